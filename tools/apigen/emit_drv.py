# SPDX-License-Identifier: Apache-2.0
"""drv.h and drv.c: the driver's functions that the worker calls, by pointers of their exact types; drv_timed.c: the same, measured."""

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

/* For broker/worker/cost.h: a number for each of them, and its name. */
enum drv_call {
"""
	body += "".join(f"\tDRV_{name},\n" for name in wanted)
	body += """	DRV_COUNT,
};
extern const char *const drv_names[DRV_COUNT];

/* Puts functions into @drv that call those which it had, and tell cost.h how long that took. Once in a process. */
void drv_timed(struct drv *drv);
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
	out.write("drv_timed.c", timed(description, wanted))


def timed(description, wanted):
	text = head("The driver as the worker calls it, measured.") + '#include "broker/worker/cost.h"\n#include "gen/drv.h"\n\n'
	text += "static struct drv real;\n"
	for name in wanted:
		entry = description.by_name[name]
		parts = [param.declare() for param in entry.params] or ["void"]
		text += "\n" + wrapped(f"static CUresult timed_{name}(", parts, ")", "\t") + "\n{\n\tuint64_t began_ticks = cost_now();\n"
		text += wrapped(f"\tCUresult outcome = real.{name}(", [param.name for param in entry.params], ");", "\t\t")
		text += f"\n\n\tcost_called(DRV_{name}, began_ticks);\n\treturn outcome;\n}}\n"
	text += "\nvoid drv_timed(struct drv *drv)\n{\n\treal = *drv;\n"
	text += "".join(f"\tdrv->{name} = timed_{name};\n" for name in wanted) + "}\n\n"
	text += "const char *const drv_names[DRV_COUNT] = {\n"
	return text + "".join(f"\t[DRV_{name}] = {quoted(name)},\n" for name in wanted) + "};\n"
