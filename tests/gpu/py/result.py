# SPDX-License-Identifier: Apache-2.0
"""The end of a program with a framework: what was checked, and a SHA-256 over the bytes of all results."""
import hashlib
import os
import sys

_sum = hashlib.sha256()
_passed = 0
_failed = 0


def add(*values):
	"""Arrays, tensors, numbers: whatever came back from the device, in order."""
	for value in values:
		if hasattr(value, "detach"):
			import torch

			value = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
		elif isinstance(value, float):
			value = value.hex().encode()
		elif isinstance(value, (int, str, bool)):
			value = str(value).encode()
		elif not isinstance(value, bytes):
			import numpy

			value = numpy.ascontiguousarray(numpy.asarray(value))
		_sum.update(value if isinstance(value, bytes) else value.tobytes())


def check(condition, *what):
	global _passed, _failed
	if condition:
		_passed += 1
	else:
		_failed += 1
		print("wrong:", *what, flush=True)


def skip(reason):
	print(reason, flush=True)
	os._exit(77)


def need(*names):
	"""Modules, or a skip that names the first that isn't there."""
	import importlib

	modules = []
	for name in names:
		try:
			modules.append(importlib.import_module(name))
		except ImportError as error:
			skip(f"needs {name}: {error}")
	return modules[0] if len(modules) == 1 else modules


def torch_ready():
	"""PyTorch with fixed seeds and algorithms that repeat themselves."""
	os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
	torch = need("torch")
	if not torch.cuda.is_available():
		print("wrong: torch.cuda.is_available() is False")
		print("0 passed, 1 failed", flush=True)
		sys.exit(1)
	torch.manual_seed(0)
	torch.use_deterministic_algorithms(True, warn_only=True)
	torch.utils.deterministic.fill_uninitialized_memory = False
	torch.backends.cudnn.benchmark = False
	return torch


def end():
	print("checksum", _sum.hexdigest())
	print(f"{_passed} passed, {_failed} failed", flush=True)
	sys.exit(1 if _failed else 0)
