# SPDX-License-Identifier: Apache-2.0
"""What a description must satisfy before anything is made of it."""

import os
import re

import wire

CLASSES = ("local", "async", "sync", "refuse")
NEEDS = ("none", "init", "context")
OP_MAX = 0x2000  # tables are indexed by op: families of 256, and room for twice as many as there are
DOC_SIZE_MAX = 120  # one line of a reference page
# Names of variables in generated functions, which a parameter would hide.
RESERVED = {"call", "result"}


class Checker:
	def __init__(self, description, abi, errors, root):
		self.description = description
		self.abi = abi
		self.errors = errors
		self.root = root

	def wrong(self, entry, key, message):
		line = key if type(key) is int else entry.at(key)
		self.errors.add(entry.path, line, f"{entry.name}: {message}")

	def run(self):
		seen = {}
		for family in self.description.families:
			for entry in family.entries:
				if other := seen.get(entry.name):
					self.wrong(entry, None, f"is also in {other.path}:{other.line}")
				seen.setdefault(entry.name, entry)
		ops = {}
		for entry in self.description.entries:
			self.entry(entry)
			if (number := entry.op) is None:
				continue
			if other := ops.get(number):
				self.wrong(entry, "op", f"op {number:#06x} is also that of {other.name} ({other.path}:{other.at('op')})")
			ops.setdefault(number, entry)
		exports = {}
		for entry in self.description.functions:
			for name in entry.exports:
				if other := exports.get(name):
					self.wrong(entry, None, f"{name} is exported twice, also by {other.name}")
				exports[name] = entry
		for family in self.description.families:
			for name in family.drv:
				if name not in seen or seen[name].internal:
					line = family.source.line_of_text("family", "drv", name)
					self.errors.add(family.path, line, f"drv: {name} is no function")

	def entry(self, entry):
		doc = entry.get("doc")
		if not doc:
			self.wrong(entry, "doc", "doc is missing")
		elif len(doc) > DOC_SIZE_MAX or "\n" in doc or not doc.endswith("."):
			self.wrong(entry, "doc", f"doc is one sentence that ends in a full stop, at most {DOC_SIZE_MAX} characters")
		if entry.get("needs", "context") not in NEEDS:
			self.wrong(entry, "needs", f"needs is one of {', '.join(NEEDS)}")
		if entry.get("again", "no") not in ("yes", "no"):
			self.wrong(entry, "again", "again is yes or no")
		if entry.get("again") and entry.op is None:
			self.wrong(entry, "again", "again is for entries with an op")
		if entry.internal:
			self.internal(entry)
		else:
			self.function(entry)
		if entry.op is not None:
			self.message(entry)
		elif entry.args or "scope" in entry.keys or "undo" in entry.keys or "by_worker" in entry.keys:
			key = next(key for key in ("args", "scope", "undo", "by_worker") if key in entry.keys)
			self.wrong(entry, key, f"{key} is for entries with an op")

	def internal(self, entry):
		if not entry.name.startswith("gleam"):
			self.wrong(entry, None, "the name of an internal entry begins with gleam")
		for key in ("proto", "since", "base", "ptsz", "ptds", "by", "same", "todo", "needs", "undo", "errors"):
			if key in entry.keys:
				self.wrong(entry, key, f"an internal entry has no {key}")
		if entry.klass not in ("async", "sync"):
			self.wrong(entry, "class", "an internal entry is async or sync")
		for key in ("op", "by_worker"):
			if key not in entry.keys:
				self.wrong(entry, None, f"an internal entry needs {key}")

	def function(self, entry):
		if not re.fullmatch(r"cu[A-Z]\w*", entry.name):
			self.wrong(entry, None, "is not the name of a driver function")
		for key in ("proto", "since"):
			if key not in entry.keys:
				self.wrong(entry, None, f"{key} is missing")
		self.prototype(entry)
		if entry.base != re.sub(r"_v\d+$", "", entry.name):
			self.wrong(entry, "base", f"the base of {entry.name} is {re.sub(r'_v[0-9]+$', '', entry.name)}")
		if "ptsz" in entry.keys and "ptds" in entry.keys:
			self.wrong(entry, "ptds", "has ptsz and ptds")
		if "ptsz" in entry.keys and not any(self.abi.carries_stream(param.base) for param in entry.params):
			self.wrong(entry, "ptsz", "ptsz, but no parameter carries a stream")
		if "ptds" in entry.keys and any(param.base == "CUstream" for param in entry.params):
			self.wrong(entry, "ptds", "ptds is for functions without a stream; with one it is ptsz")
		for code in entry.get("errors", []):
			if code not in self.abi.results:
				self.wrong(entry, "errors", f"{code} is no CUresult")
		if "same" in entry.keys:
			self.same(entry)
			return
		if entry.klass not in CLASSES:
			self.wrong(entry, "class", f"class is one of {', '.join(CLASSES)}")
		if entry.klass == "refuse":
			for key in ("op", "by", "args", "todo"):
				if key in entry.keys:
					self.wrong(entry, key, f"what is refused has no {key}")
			if not entry.get("why"):
				self.wrong(entry, "why", "a refusal needs its why")
			return
		if entry.klass == "local" and entry.op is not None:
			self.wrong(entry, "op", "a local function sends nothing: no op")
		if entry.op is None and "by" not in entry.keys:
			self.wrong(entry, "class", "without an op it needs by, the file that holds its body")
		if "by" in entry.keys:
			if not entry.get("why") and entry.get("by") not in entry.family.by:
				self.wrong(entry, "by", f"by needs a why, here or under [family.by] for {entry.get('by')}")
			path = os.path.join(self.root, "libgleamcuda", entry.get("by"))
			if not entry.get("todo") and not os.path.exists(path):
				self.wrong(entry, "by", f"libgleamcuda/{entry.get('by')} does not exist: mark it todo until it does")
		elif "todo" in entry.keys:
			self.wrong(entry, "todo", "todo is for entries with by")

	def same(self, entry):
		for key in ("class", "op", "args", "by", "by_worker", "why", "todo", "scope", "undo"):
			if key in entry.keys:
				self.wrong(entry, key, f"same says it all: no {key}")
		other = self.description.by_name.get(entry.get("same"))
		if other is None or other.internal:
			self.wrong(entry, "same", f"there is no {entry.get('same')}")
			return
		if other.get("same") or other.family is not entry.family:
			self.wrong(entry, "same", f"{other.name} must have a body of its own, in the same file")
		if [param.type for param in other.params] != [param.type for param in entry.params]:
			self.wrong(entry, "same", f"{other.name} has other parameters")

	def prototype(self, entry):
		names = set()
		for param in entry.params:
			if not param.name:
				self.wrong(entry, "proto", f'parameter "{param.type}" has no name')
			elif not self.abi.known(param.base):
				self.wrong(entry, "proto", f'type "{param.base}" of {param.name} is not in cuda_abi.h')
			if param.name in names:
				self.wrong(entry, "proto", f"two parameters are called {param.name}")
			if param.name in RESERVED:
				self.wrong(entry, "proto", f"{param.name} is the name of a variable in generated code")
			names.add(param.name)

	def message(self, entry):
		if entry.klass not in ("async", "sync"):
			return
		if not 0 < entry.op < OP_MAX:
			self.wrong(entry, "op", f"op lies between 1 and {OP_MAX - 1:#x}")
		if "args" not in entry.keys:
			self.wrong(entry, "op", "an op needs args, [] if it carries nothing")
		names = set()
		for arg in entry.args:
			if arg.name in names:
				self.wrong(entry, arg.line, f"two arguments are called {arg.name}")
			names.add(arg.name)
		if entry.klass == "async":
			for arg in entry.answers:
				self.wrong(entry, arg.line, f"{arg.name} goes out, but async has no reply")
		if sum(arg.is_bulk for arg in entry.args) > 1:
			self.wrong(entry, "args", "a frame refers to one bulk or cell")
		if (size := sum(arg.size_max for arg in entry.fields)) > wire.FRAME_PAYLOAD_MAX:
			self.wrong(entry, "args", f"may take {size} bytes; a frame has {wire.FRAME_PAYLOAD_MAX}")
		if (size := sum(arg.size_max for arg in entry.answers)) > wire.REPLY_PAYLOAD_MAX:
			self.wrong(entry, "args", f"the reply may take {size} bytes; a slot has {wire.REPLY_PAYLOAD_MAX}")
		if "scope" in entry.keys:
			first = entry.fields[0] if entry.fields else None
			if first is None or first.name != entry.scope or first.kind != "stream" or first.is_birth:
				self.wrong(entry, "scope", f"the stream {entry.scope} has to be the first in argument")
		if "by_worker" in entry.keys:
			if not entry.get("worker_why") and entry.get("by_worker") not in entry.family.by_worker:
				self.wrong(entry, "by_worker",
					   f"by_worker needs a worker_why, here or under [family.by_worker] for {entry.get('by_worker')}")
			path = os.path.join(self.root, "broker/worker", entry.get("by_worker"))
			if not entry.get("worker_todo") and not os.path.exists(path):
				self.wrong(entry, "by_worker",
					   f"broker/worker/{entry.get('by_worker')} does not exist: mark it worker_todo until it does")
		elif "worker_todo" in entry.keys:
			self.wrong(entry, "worker_todo", "worker_todo is for entries with by_worker")
		if "undo" in entry.keys:
			self.undo(entry)
		by_hand = "by" in entry.keys and "by_worker" in entry.keys
		if not entry.internal and not by_hand:
			self.arguments(entry)

	def undo(self, entry):
		other = self.description.by_name.get(entry.get("undo"))
		births = [arg for arg in entry.args if arg.is_birth]
		if other is None or other.internal or len(other.params) != 1:
			self.wrong(entry, "undo", f"{entry.get('undo')} is no function with one parameter")
		elif len(births) != 1 or other.params[0].type != wire.HANDLES[births[0].kind][1]:
			self.wrong(entry, "undo", f"{other.name} does not take what is born here")

	def arguments(self, entry):
		"""One side at least is generated, so arguments and parameters are the same."""
		for arg in entry.args:
			param = entry.param(arg.name)
			if param is None:
				self.wrong(entry, arg.line, f"{arg.name} is no parameter of {entry.name}")
			elif message := self.mismatch(arg, param):
				self.wrong(entry, arg.line, message)
		for param in entry.params:
			if entry.arg(param.name) is None:
				self.wrong(entry, "args", f"parameter {param.name} is not among the arguments")

	def mismatch(self, arg, param):
		if arg.is_bulk or arg.kind in ("bytes", "block") or (arg.count and arg.kind in ("u32", "u64")):
			return f"{arg.name}: {arg.kind} needs hand-written ends, by and by_worker"
		if arg.kind == "str":
			ok = arg.direction == "in" and param.type == "const char *"
			return "" if ok else f"{arg.name}: str is for const char *, not {param.type}"
		if arg.kind == "device" and arg.direction == "out":
			return f"{arg.name}: a device goes to the worker, never back"
		if arg.kind == "context":
			return f"{arg.name}: a context index needs hand-written ends, by and by_worker"
		depth = 1 if arg.direction == "out" else 0
		if param.depth != depth:
			return f"{arg.name}: {arg.direction} does not fit {param.type}"
		if arg.is_handle:
			want = wire.HANDLES[arg.kind][1]
			ok = param.base == want
		else:
			ok = self.abi.resolve(param.base) in wire.SCALAR_C[arg.kind]
		return "" if ok else f"{arg.name}: {arg.kind} does not fit {param.type}"
