# SPDX-License-Identifier: Apache-2.0
"""drv.h and drv.c: the driver's functions that the worker calls, by pointers of their exact types."""

from text import guard, head, quoted, wrapped


def names(description):
	"""Functions that the dispatch calls, those that undo a birth, and the lists under drv."""
	wanted = set()
	for family in description.families:
		wanted.update(family.drv)
	for entry in description.ops:
		if "by_worker" not in entry.keys:
			wanted.add(entry.name)
		if entry.get("undo"):
			wanted.add(entry.get("undo"))
	return sorted(wanted)


def emit(description, out):
	wanted = names(description)
	body = '#include "gen/api.h"\n\nstruct drv {\n'
	body += "".join(f"\t__typeof__({name}) *{name};\n" for name in wanted)
	body += """};

/*
 * Fill @drv from a library opened with dlopen(). A function that it lacks becomes one that returns NOT_FOUND.
 * Returns how many it lacks.
 */
int drv_load(struct drv *drv, void *dl);
"""
	out.write("drv.h", guard("GLEAM_GEN_DRV_H", body, "The driver as the worker calls it."))
	text = head("The driver as the worker calls it.") + "#include <dlfcn.h>\n\n" + '#include "gen/drv.h"\n\n'
	text += '#pragma GCC diagnostic ignored "-Wunused-parameter"\n'
	for name in wanted:
		entry = description.by_name[name]
		parts = [param.declare() for param in entry.params] or ["void"]
		text += "\n" + wrapped(f"static CUresult missing_{name}(", parts, ")", "\t") + "\n{\n\treturn CUDA_ERROR_NOT_FOUND;\n}\n"
	text += "\nint drv_load(struct drv *drv, void *dl)\n{\n\tint missing = 0;\n\tvoid *symbol;\n"
	for name in wanted:
		text += f"\n\tsymbol = dlsym(dl, {quoted(name)});\n"
		text += f"\tdrv->{name} = symbol ? (__typeof__(drv->{name}))symbol : missing_{name};\n"
		text += "\tmissing += !symbol;\n"
	out.write("drv.c", text + "\n\treturn missing;\n}\n")
