# SPDX-License-Identifier: Apache-2.0
"""Types of arguments: what they are on the wire, in a message struct and in C prototypes."""

import re

FRAME_PAYLOAD_MAX = (64 << 10) - 24 - 16  # FRAME_SIZE_MAX less header and bulk_ref, broker/proto/wire.h
REPLY_PAYLOAD_MAX = 4096 - 16 - 24 - 4  # SESSION_SLOT_SIZE less the slot's and the frame's header and the CUresult

# name -> (C type in a message, codec function, bytes)
SCALARS = {
	"u8": ("uint8_t", "u8", 1),
	"u16": ("uint16_t", "u16", 2),
	"u32": ("uint32_t", "u32", 4),
	"i32": ("int32_t", "i32", 4),
	"u64": ("uint64_t", "u64", 8),
	"f32": ("float", "f32", 4),
	"size": ("uint64_t", "u64", 8),
	"devptr": ("uint64_t", "u64", 8),
	"context": ("uint32_t", "u32", 4),
	"device": ("int32_t", "i32", 4),
}

# name -> (enum object_type, C type in a prototype)
HANDLES = {
	"stream": ("OBJECT_STREAM", "CUstream"),
	"event": ("OBJECT_EVENT", "CUevent"),
	"module": ("OBJECT_MODULE", "CUmodule"),
	"library": ("OBJECT_LIBRARY", "CUlibrary"),
	"kernel": ("OBJECT_KERNEL", "CUkernel"),
	"function": ("OBJECT_FUNCTION", "CUfunction"),
	"graph": ("OBJECT_GRAPH", "CUgraph"),
	"graphexec": ("OBJECT_GRAPHEXEC", "CUgraphExec"),
	"array": ("OBJECT_ARRAY", "CUarray"),
	"mipmap": ("OBJECT_MIPMAP", "CUmipmappedArray"),
	"tex": ("OBJECT_TEX", "CUtexObject"),
	"surf": ("OBJECT_SURF", "CUsurfObject"),
	"link": ("OBJECT_LINK", "CUlinkState"),
	"pool": ("OBJECT_POOL", "CUmemoryPool"),
	"vmm": ("OBJECT_VMM", "CUmemGenericAllocationHandle"),
}

COUNTED = ("bytes", "str", "u32", "u64", "block")  # with [N]
MARKS = ("null-ok", "birth", "death", "out-null-ok")

# C types that a scalar may stand for, after typedefs that are mere aliases; enumerations go as u32 or i32, and a
# CUdevice only as device, since client and worker count them differently.
SCALAR_C = {
	"u8": ("unsigned char",),
	"u16": ("unsigned short",),
	"u32": ("unsigned int", "uint32_t", "enum"),
	"i32": ("int", "enum"),
	"u64": ("unsigned long long", "uint64_t"),
	"f32": ("float",),
	"size": ("size_t",),
	"devptr": ("CUdeviceptr",),
	"device": ("CUdevice",),
}


class Arg:
	"""One argument of a message."""

	def __init__(self, direction, name, kind, count, marks, line):
		self.direction = direction
		self.name = name
		self.kind = kind  # a key of SCALARS or HANDLES, "bulk", "cell", or a counted one
		self.count = count  # N of a counted type, else None
		self.marks = marks
		self.line = line

	def __str__(self):
		kind = self.kind if self.count is None else f"{self.kind}[{self.count}]"
		return " ".join([self.direction, self.name, ":", kind, *self.marks])

	@property
	def is_handle(self):
		return self.count is None and self.kind in HANDLES

	@property
	def is_scalar(self):
		return self.count is None and self.kind in SCALARS

	@property
	def is_bulk(self):
		return self.kind in ("bulk", "cell")

	@property
	def is_birth(self):
		return "birth" in self.marks

	@property
	def is_death(self):
		return "death" in self.marks

	@property
	def codec(self):
		"""C type and codec function of a single value."""
		if self.is_handle:
			return "uint64_t", "u64", 8
		return SCALARS[self.kind]

	@property
	def size_max(self):
		"""Most bytes on the wire, alignment included."""
		if self.is_bulk:
			return 0
		if self.count is None:
			size = self.codec[2]
			return size + size - 1
		if self.kind == "block":
			return self.count
		if self.kind == "str":
			return 7 + self.count + 1
		element = {"bytes": 1, "u32": 4, "u64": 8}[self.kind]
		return 7 + 7 + self.count * element


def arg_parse(text, line):
	"""The Arg that a string of `args` says, or a message that says what is wrong with it."""
	match = re.fullmatch(r"\s*(\S+)\s+(\w+)\s*:\s*(\w+)(?:\[(\d+)\])?\s*((?:\s+\S+)*)\s*", text)
	if not match:
		return f'"{text}" is not "<direction> <name> : <type> [marks]"'
	direction, name, kind, count, marks = match.groups()
	marks = marks.split()
	if direction not in ("in", "out"):
		return f'direction "{direction}" of {name} is neither in nor out'
	if count is None:
		if kind not in SCALARS and kind not in HANDLES and kind not in ("bulk", "cell"):
			return f'type "{kind}" of {name} is unknown'
	else:
		if kind not in COUNTED:
			return f'type "{kind}[{count}]" of {name} is unknown'
		if int(count) == 0:
			return f"{name} has no room: [0]"
	for mark in marks:
		if mark not in MARKS:
			return f'mark "{mark}" of {name} is unknown'
	arg = Arg(direction, name, kind, int(count) if count else None, marks, line)
	if arg.is_birth and not (arg.is_handle and direction == "out"):
		return f"{name}: birth is for handles that go out"
	if arg.is_death and not (arg.is_handle and direction == "in"):
		return f"{name}: death is for handles that come in"
	if "null-ok" in marks and not (arg.is_handle and direction == "in"):
		return f"{name}: null-ok is for handles that come in"
	if "out-null-ok" in marks and direction != "out":
		return f"{name}: out-null-ok is for arguments that go out"
	if direction == "out" and arg.is_handle and not arg.is_birth:
		return f"{name}: the client makes handles; mark it birth"
	if direction == "out" and arg.is_bulk:
		return f"{name}: a bulk or cell argument is always in"
	return arg
