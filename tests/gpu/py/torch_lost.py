# SPDX-License-Identifier: Apache-2.0
"""The process on the server that works for us is killed in the middle of steps: PyTorch raises an error that says that the device is unavailable, soon
and again at each later call; the program lives, and Gleam's log names cause and call. Natively, where there is no such process, only the steps."""
import ctypes
import os
import signal
import threading
import time

import result

torch = result.torch_ready()


def worker():
	"""Page-locked memory that the device has used lies at the same address in the process that works for us; of this size it is ours."""
	cuda = ctypes.CDLL("libcuda.so.1")
	size = 4096 * (1200 + os.getpid() % 800)
	host, device = ctypes.c_void_p(), ctypes.c_uint64()
	result.check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(size), 2) == 0, "cuMemHostAlloc")
	result.check(cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), host, 0) == 0, "cuMemHostGetDevicePointer")
	result.check(cuda.cuMemsetD8_v2(device, ctypes.c_ubyte(3), ctypes.c_size_t(1000)) == 0, "cuMemsetD8")
	torch.cuda.synchronize()
	result.check(ctypes.string_at(host, 1000) == b"\3" * 1000, "page-locked memory")
	for pid in filter(str.isdigit, os.listdir("/proc")):
		try:
			with open(f"/proc/{pid}/comm") as file:
				if file.read().strip() != "gleam-worker":
					continue
			with open(f"/proc/{pid}/maps") as file:
				if any(line.startswith(f"{host.value:x}-{host.value + size:x} ") for line in file):
					return int(pid)
		except OSError:
			pass
	return None


def error_of(call):
	try:
		call()
	except RuntimeError as error:
		return f"{type(error).__name__}: {error}"
	return None


weights = [torch.randn(256, 256, device="cuda") / 16 for _ in range(4)]
x = torch.randn(64, 256, device="cuda")


def step():
	global x
	for weight in weights:
		x = torch.tanh(x @ weight + 0.1)
	return x.sum().item()


losses = [step() for _ in range(20)]
result.add(*losses)
if os.environ.get("GLEAM_SOCKET"):
	pid = worker()
	if pid is None:
		result.skip("gleam-worker can't be seen from here: it must run on this machine, and be ours to look at")
	killed = []

	def kill():
		time.sleep(0.3)
		killed.append(time.monotonic())
		os.kill(pid, signal.SIGKILL)

	threading.Thread(target=kill).start()
	end = time.monotonic() + 30
	first, steps = None, 0
	while first is None and time.monotonic() < end:
		first = error_of(step)
		steps += 1
	told = time.monotonic()
	print("in step", steps, "after the kill", "%.3f s:" % (told - killed[0]) if killed else "-", first, flush=True)
	result.check(first is not None and steps > 1, "no error, or too early")
	# A library in between may have put its own name for it there; the next call of PyTorch itself says what it is.
	result.check(first is not None and ("unavailable" in first or "CUBLAS_STATUS" in first), "the error is", first)
	result.check(killed and told - killed[0] < 10, "it took", told - killed[0] if killed else None)
	began = time.monotonic()
	for name, call in (("synchronize", torch.cuda.synchronize), ("a new tensor", lambda: torch.zeros(1 << 26, device="cuda")),
			   ("a copy back", lambda: weights[0].cpu()), ("a copy there", lambda: torch.ones(1000).cuda()), ("a step", step)) * 2:
		error = error_of(call)
		print(f"{name}: {(error or 'no error').splitlines()[0]}", flush=True)
		result.check(error is not None and ("unavailable" in error or (name == "a step" and "CUBLAS_STATUS" in error)), name, error)
	result.check(time.monotonic() - began < 10, "ten calls took", time.monotonic() - began)
	# The program itself is well.
	a = torch.arange(1000, dtype=torch.float64)
	result.check((a * 2).sum().item() == 999000, "a sum without a GPU")
	log = os.environ.get("GLEAM_LOG", "")
	if os.path.isfile(log):
		with open(log) as file:
			text = file.read()
		result.check("the worker process on the server died" in text, "the log names no cause")
		result.check(": error 46" in text and "cu" in text, "the log names no call")
result.end()
