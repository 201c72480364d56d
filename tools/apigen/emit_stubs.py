# SPDX-License-Identifier: Apache-2.0
"""stubs_FAMILY.c: the exported functions, and the bodies of those that need nothing but checks and their message."""

import emit_trace
import wire
from text import head, quoted, wrapped

TODO = "not built yet"


def signature(name, entry, storage, first=()):
	parts = list(first) + [param.declare() for param in entry.params]
	return wrapped(f"{storage} CUresult {name}(", parts or ["void"], ")", "\t")


def handle_lines(arg, param):
	if arg.kind == "stream":
		return [f"result = call_stream(call, {arg.name}, &m.{arg.name});"]
	kind = wire.HANDLES[arg.kind][0]
	marks = "HANDLE_NULL_OK" if "null-ok" in arg.marks else "0"
	value = f"(const void *)(uintptr_t){arg.name}" if kind in ("OBJECT_TEX", "OBJECT_SURF", "OBJECT_VMM") else arg.name
	return [f"result = call_handle(call, {kind}, {value}, {marks}, &m.{arg.name});"]


def body_message(entry):
	"""Checks, encodes, posts or waits, and hands out."""
	name = entry.name
	lines = [f"struct msg_{name} m = {{ 0 }};"]
	if entry.answers:
		lines.append(f"struct ans_{name} a;")
	lines += ["CUresult result;", ""]
	for arg in entry.args:
		if arg.direction == "out" and "out-null-ok" not in arg.marks:
			lines += [f"if (!{arg.name})", "\treturn CUDA_ERROR_INVALID_VALUE;"]
		elif arg.kind == "str":
			lines += [f"if (!{arg.name} || strlen({arg.name}) > {arg.count})", "\treturn CUDA_ERROR_INVALID_VALUE;"]
	for arg in entry.args:
		if arg.direction != "in":
			continue
		if arg.is_handle:
			lines += handle_lines(arg, entry.param(arg.name)) + ["if (result != CUDA_SUCCESS)", "\treturn result;"]
		elif arg.kind == "str":
			lines.append(f"m.{arg.name} = {arg.name};")
		elif arg.kind == "device":
			lines += [f"if (!device_at({arg.name}))", "\treturn CUDA_ERROR_INVALID_DEVICE;"]
			lines.append(f"m.{arg.name} = ({arg.codec[0]})device_at({arg.name})->node_device;")
		else:
			lines.append(f"m.{arg.name} = ({arg.codec[0]}){arg.name};")
	births = [arg for arg in entry.args if arg.is_birth]
	undo = []
	for arg in births:
		lines.append(f"result = call_birth(call, {wire.HANDLES[arg.kind][0]}, &m.{arg.name});")
		lines += ["if (result != CUDA_SUCCESS)"] + failed(undo)
		undo.append(f"call_death(call, m.{arg.name});")
	lines.append(f"result = call_open(call, OP_{name}, msg_{name}_size(&m));")
	lines += ["if (result != CUDA_SUCCESS)"] + failed(undo)
	lines.append(f"msg_{name}_put(&call->w, &m);")
	if entry.klass == "async":
		lines.append("call_post(call);")
	else:
		lines.append("result = call_wait(call);")
		lines += ["if (result != CUDA_SUCCESS)"] + failed(undo)
		if entry.answers:
			lines += [f"if (!ans_{name}_get(&call->r, &a))", "\treturn CUDA_ERROR_UNKNOWN; /* the peer answered nonsense */"]
	for arg in entry.answers:
		store = f"*{arg.name} = ({entry.param(arg.name).pointee})a.{arg.name};"
		lines += [f"if ({arg.name})", f"\t{store}"] if "out-null-ok" in arg.marks else [store]
	lines += [f"*{arg.name} = ({entry.param(arg.name).pointee})(uintptr_t)m.{arg.name};" for arg in births]
	lines += [f"call_death(call, m.{arg.name});" for arg in entry.args if arg.is_death]
	return lines + ["return CUDA_SUCCESS;"]


def failed(undo):
	if not undo:
		return ["\treturn result;"]
	return ["{"] + ["\t" + line for line in undo] + ["\treturn result;", "}"]


def joined(lines):
	"""An if whose block opens on the next line is written on one."""
	text = []
	for line in lines:
		if line == "{" and text:
			text[-1] += " {"
		else:
			text.append(line)
	return "".join(f"\t{line}\n" if line else "\n" for line in text)


def body(description, entry):
	if entry.get("by") and not entry.get("todo"):
		return ""
	start = signature(f"do_{entry.name}", entry, "static", ["struct call *call"])
	if entry.klass == "refuse":
		lines = [f"return call_refuse(call, {quoted(entry.get('why'))});"]
	elif entry.get("todo"):
		lines = [f"return call_refuse(call, {quoted(TODO)});"]
	else:
		lines = body_message(entry)
	return f"\n{start}\n{{\n{joined(lines)}}}\n"


# Which object tells the context in a thread that has none (tests/cuda/nocontext.c): that of the first of these types.
TELLS_CONTEXT = ("CUstream", "CUevent", "CUmodule", "CUfunction")
# Of calls about memory: by their first parameter.
TELLS_CONTEXT_AT = ("cuMemFree_v2", "cuMemFreeHost")


def by_object(entry, name):
	"""The call that looks for a context where none is current, or None."""
	if name in TELLS_CONTEXT_AT:
		return f"call_enter_at(&call, (uint64_t)(uintptr_t){entry.params[0].name})"
	for kind in TELLS_CONTEXT:
		for param in entry.params:
			if param.type == kind:
				return f"call_enter_by(&call, (uint64_t)(uintptr_t){param.name})"
	return None


def export(description, entry, name, ptds):
	target = description.body(entry)
	needs = f"NEEDS_{entry.get('needs', target.get('needs', 'context')).upper()}"
	arguments = ["&call"] + [param.name for param in entry.params]
	text = "\n" + signature(name, entry, "GLEAM_EXPORT") + "\n{\n\tstruct call call;\n"
	text += f"\tCUresult result = call_enter(&call, API_{name}, {needs}, {'true' if ptds else 'false'});\n\n"
	other = by_object(entry, name) if needs == "NEEDS_CONTEXT" else None
	if other:
		text += f"\tif (__builtin_expect(result == CUDA_ERROR_INVALID_CONTEXT, 0))\n\t\tresult = {other};\n"
	text += "\tif (result == CUDA_SUCCESS)\n"
	text += wrapped(f"\t\tresult = do_{target.name}(", arguments, ");", "\t\t\t") + "\n"
	text += emit_trace.call_lines(description.abi, entry)
	return text + "\treturn call_leave(&call, result);\n}\n"


def emit(description, out):
	for family in description.families:
		entries = sorted((e for e in family.entries if not e.internal), key=lambda e: e.name)
		if not entries:
			continue
		text = head(f"{family.title}: exported functions.")
		text += '#include "libgleamcuda/call.h"\n#include "libgleamcuda/trace.h"\n'
		if any(arg.kind == "device" for entry in entries for arg in entry.args):
			text += '#include "libgleamcuda/device.h"\n'
		text += '\n#include "gen/bodies.h"\n#include "gen/msg.h"\n\n'
		text += "/* What is refused looks at none of its parameters. */\n"
		text += '#pragma GCC diagnostic ignored "-Wunused-parameter"\n'
		for entry in entries:
			if not entry.get("same"):
				text += body(description, entry)
		for entry in entries:
			text += export(description, entry, entry.name, False)
			if entry.variant:
				text += export(description, entry, entry.variant[0], True)
		out.write(f"stubs_{family.name}.c", text)
