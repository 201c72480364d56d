# SPDX-License-Identifier: Apache-2.0
"""dispatch.c: the worker's decoder and call of each op; worker_bodies.h: handlers that are written by hand."""

import wire
from text import guard, head, wrapped

BY_NUMBER = ("OBJECT_TEX", "OBJECT_SURF", "OBJECT_VMM")  # the driver's object is a number, no pointer


def argument(entry, param):
	"""How a parameter of the driver's function is passed."""
	arg = entry.arg(param.name)
	if arg.is_birth:
		return "&born"
	if arg.direction == "out":
		return f"&out_{arg.name}"
	if arg.name == entry.scope:
		return "cmd->stream"
	if arg.is_handle:
		cast = "(uintptr_t)" if wire.HANDLES[arg.kind][0] in BY_NUMBER else ""
		return f"({param.type}){cast}object_{arg.name}"
	return f"m.{arg.name}" if arg.kind == "str" else f"({param.type})m.{arg.name}"


def bulk_lines(entry):
	lines = []
	for arg in entry.args:
		if arg.is_bulk:
			flag = "FRAME_BULK_UP" if arg.kind == "bulk" else "FRAME_BULK_DOWN"
			lines += [f"if (!(cmd->hdr->flags & {flag}))", "\treturn CMD_BROKEN;", f"m.{arg.name} = cmd->bulk;"]
	return lines


def by_hand(entry):
	name = entry.name
	lines = [f"struct msg_{name} m;"]
	if entry.answers and not entry.get("worker_todo"):
		lines += [f"struct ans_{name} a = {{ 0 }};", "CUresult result;"]
	lines += ["", f"if (!msg_{name}_get(r, &m))", "\treturn CMD_BROKEN;"] + bulk_lines(entry)
	if entry.get("worker_todo"):
		return lines + ["return CUDA_ERROR_NOT_SUPPORTED; /* not built yet */"]
	if not entry.answers:
		return lines + [f"return worker_do_{name}(w, cmd, &m);"]
	lines.append(f"result = worker_do_{name}(w, cmd, &m, &a);")
	return lines + ["if (result == CUDA_SUCCESS)", f"\tans_{name}_put(ans, &a);", "return result;"]


def mechanical(entry):
	name = entry.name
	birth = next((arg for arg in entry.args if arg.is_birth), None)
	deaths = [arg for arg in entry.args if arg.is_death]
	lookups = [arg for arg in entry.args if arg.is_handle and arg.direction == "in" and arg.name != entry.scope]
	lines = [f"struct msg_{name} m;"]
	if entry.answers:
		lines.append(f"struct ans_{name} a = {{ 0 }};")
	lines += [f"{entry.param(arg.name).pointee} out_{arg.name} = 0;" for arg in entry.answers]
	lines += [f"void *object_{arg.name};" for arg in lookups]
	if birth:
		lines.append(f"{wire.HANDLES[birth.kind][1]} born = 0;")
	lines += ["CUresult result;", "", f"if (!msg_{name}_get(r, &m))", "\treturn CMD_BROKEN;"]
	for arg in lookups:
		null_ok = "true" if "null-ok" in arg.marks else "false"
		lines += [f"if (!object_get(w, {wire.HANDLES[arg.kind][0]}, m.{arg.name}, {null_ok}, &object_{arg.name}))",
			  "\treturn CUDA_ERROR_INVALID_HANDLE;"]
	arguments = [argument(entry, param) for param in entry.params]
	lines += wrapped(f"result = worker_drv(w)->{name}(", arguments, ");", "\t").split("\n")
	lines += [f"object_remove(w, m.{arg.name});" for arg in deaths]
	if birth:
		value = "(void *)(uintptr_t)born" if wire.HANDLES[birth.kind][0] in BY_NUMBER else "born"
		lines += ["if (result != CUDA_SUCCESS)", "\treturn result;",
			  f"if (!object_add(w, {wire.HANDLES[birth.kind][0]}, m.{birth.name}, {value})) {{"]
		if entry.get("undo"):
			lines.append(f"\tworker_drv(w)->{entry.get('undo')}(born);")
		lines += ["\treturn CMD_BROKEN;", "}"]
	if entry.answers:
		lines += ["if (result != CUDA_SUCCESS)", "\treturn result;"]
		lines += [f"a.{arg.name} = ({arg.codec[0]})out_{arg.name};" for arg in entry.answers]
		lines.append(f"ans_{name}_put(ans, &a);")
	return lines + ["return result;"]


def emit(description, out):
	text = head("Decoding and calling of commands, on the worker's executor thread.")
	text += '#include "broker/worker/worker.h"\n\n#include "gen/worker_bodies.h"\n\n'
	text += "/* Every decoder has the same parameters, whether it needs them or not. */\n"
	text += '#pragma GCC diagnostic ignored "-Wunused-parameter"\n'
	table = "\nconst worker_handler worker_handlers[OP_MAX] = {\n"
	for entry in description.ops:
		lines = by_hand(entry) if "by_worker" in entry.keys else mechanical(entry)
		parameters = "struct worker *w, struct cmd *cmd, struct reader *r, struct writer *ans"
		text += f"\nstatic CUresult run_{entry.name}({parameters})\n{{\n"
		text += "".join(f"\t{line}\n" if line else "\n" for line in lines) + "}\n"
		table += f"\t[OP_{entry.name}] = run_{entry.name},\n"
	out.write("dispatch.c", text + table + "};\n")
	body = '#include "broker/worker/worker.h"\n'
	for entry in description.ops:
		if "by_worker" in entry.keys and not entry.get("worker_todo"):
			parts = ["struct worker *w", "struct cmd *cmd", f"const struct msg_{entry.name} *m"]
			parts += [f"struct ans_{entry.name} *a"] if entry.answers else []
			body += f"\n/* {entry.get('by_worker')}: {entry.get('doc')} */\n"
			body += wrapped(f"CUresult worker_do_{entry.name}(", parts, ");", "\t\t") + "\n"
	what = "Handlers that are written by hand, in broker/worker/."
	out.write("worker_bodies.h", guard("GLEAM_GEN_WORKER_BODIES_H", body, what))
