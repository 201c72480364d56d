# SPDX-License-Identifier: Apache-2.0
"""trace_args.h and trace_args.c: names and kinds of every function's arguments, for GLEAM_TRACE and who reads its file."""

import hashlib

from text import guard, head, quoted, wrapped

ARGS_MAX = 24

HEADER = """#include <stdint.h>

#include "gen/api.h"

/* From TRACE_ARG_OUT on: a pointer; recorded is what the call has written there. */
enum trace_arg_kind {
	TRACE_ARG_I32,
	TRACE_ARG_U32,
	TRACE_ARG_U64,
	TRACE_ARG_HEX, /* address or handle */
	TRACE_ARG_F32,
	TRACE_ARG_STR,
	TRACE_ARG_STRUCT, /* by value: its address in the caller's frame, which tells nothing */
	TRACE_ARG_OUT,
	TRACE_ARG_OUT_I32 = TRACE_ARG_OUT,
	TRACE_ARG_OUT_U32,
	TRACE_ARG_OUT_U64,
	TRACE_ARG_OUT_HEX,
	TRACE_ARG_OUT_F32,
};

struct trace_arg {
	const char *name;
	enum trace_arg_kind kind;
};

struct trace_args {
	const struct trace_arg *args;
	uint32_t count;
};

/* By enum api. */
extern const struct trace_args trace_args[API_COUNT];
/* Of all names, in order: a file by another version has other numbers. */
extern const uint64_t trace_names_hash;
"""

NUMBERS = {"int": "I32", "enum": "I32", "CUdevice": "I32", "unsigned int": "U32", "unsigned short": "U32", "unsigned char": "U32",
	   "uint32_t": "U32", "size_t": "U64", "uint64_t": "U64", "unsigned long long": "U64", "CUdeviceptr": "HEX",
	   "float": "F32"}


def number(abi, base):
	return NUMBERS.get(base) or NUMBERS.get(abi.resolve(base))


def kind(abi, entry, param):
	"""
	Read through are single results: pointers to numbers and handles of functions without a count, whose arrays those would
	be otherwise.
	"""
	if not param.depth:
		return number(abi, param.base) or ("HEX" if abi.is_address(param.base) else "STRUCT")
	constant = "const" in param.type
	if param.depth == 1 and param.base == "char" and constant:
		return "STR"
	if constant or any(word in other.name.lower() for other in entry.params if other is not param for word in ("count", "num")):
		return "HEX"
	if param.depth == 2 and param.base == "void" and param.name.startswith("p"):
		return "OUT_HEX"
	if param.depth == 1 and (number(abi, param.base) or param.base in abi.handles):
		kind = number(abi, param.base) or "HEX"
		# What has another size than its kind is read as what it is: an address.
		return "HEX" if param.base in ("unsigned short", "unsigned char") else f"OUT_{kind}"
	return "HEX"


def value(abi, param):
	"""An argument as 64 bits, in the stub."""
	if not param.depth:
		if param.base == "float":
			return f"trace_f32({param.name})"
		if number(abi, param.base) == "I32":
			return f"(uint64_t)(int64_t){param.name}"
		if number(abi, param.base):
			return f"(uint64_t){param.name}"
		if not abi.is_address(param.base):
			return f"(uint64_t)(uintptr_t)&{param.name}"
	return f"(uint64_t)(uintptr_t){param.name}"


def call_lines(abi, entry):
	"""The stub's lines that record the call."""
	values = [value(abi, param) for param in entry.params]
	text = "\tif (__builtin_expect(call.entered_ns != 0, 0))\n"
	if not values:
		return text + "\t\ttrace_call(&call, result, NULL, 0);\n"
	array = f"(const uint64_t[]){{ {', '.join(values)} }}"
	return text + wrapped("\t\ttrace_call(", ["&call", "result", array, str(len(values))], ");", "\t\t\t") + "\n"


def emit(description, out):
	exports = {name: entry for entry in description.functions for name in entry.exports}
	names = sorted(exports)
	out.write("trace_args.h", guard("GLEAM_GEN_TRACE_ARGS_H", HEADER, "Arguments of functions, for traces."))
	text = head("Arguments of functions, for traces.") + "#include <stddef.h>\n\n"
	text += '#include "gen/trace_args.h"\n#include "broker/proto/trace.h"\n\n'
	rows = ""
	for name in names:
		entry = exports[name]
		if len(entry.params) > ARGS_MAX:
			raise SystemExit(f"{name}: a trace has room for {ARGS_MAX} arguments; raise TRACE_ARGS_MAX")
		if entry.params:
			fields = "".join(f"\t{{ {quoted(p.name)}, TRACE_ARG_{kind(description.abi, entry, p)} }},\n" for p in entry.params)
			text += f"static const struct trace_arg args_{name}[] = {{\n{fields}}};\n"
		rows += f"\t[API_{name}] = {{ {f'args_{name}' if entry.params else 'NULL'}, {len(entry.params)} }},\n"
	digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
	text += f"\nstatic_assert(TRACE_ARGS_MAX == {ARGS_MAX}, \"as tools/apigen/emit_trace.py has it\");\n\n"
	text += f"const struct trace_args trace_args[API_COUNT] = {{\n{rows}}};\n\n"
	text += f"const uint64_t trace_names_hash = 0x{digest}ull;\n"
	out.write("trace_args.c", text)
