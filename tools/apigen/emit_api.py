# SPDX-License-Identifier: Apache-2.0
"""What the library exports: api.h, api.c, bodies.h and export.map."""

from text import guard, head, quoted, wrapped


def declare(name, entry, first=()):
	parts = list(first) + [param.declare() for param in entry.params]
	return wrapped(f"CUresult {name}(", parts or ["void"], ");", "\t")


def emit(description, out):
	exports = {name: entry for entry in description.functions for name in entry.exports}
	names = sorted(exports)
	body = '#include "broker/proto/cuda_abi.h"\n\n/* Every exported function, in alphabetical order. */\nenum api {\n'
	body += "".join(f"\tAPI_{name},\n" for name in names)
	body += "\tAPI_COUNT,\n};\n\nextern const char *const api_names[API_COUNT];\n\n"
	body += "".join(declare(name, exports[name]) + "\n" for name in names)
	out.write("api.h", guard("GLEAM_GEN_API_H", body, "The exported functions."))
	text = head("Names of the exported functions.") + '#include "gen/api.h"\n#include "broker/proto/ring.h"\n\n'
	text += 'static_assert((int)API_COUNT <= SESSION_API_MAX, "session memory has a counter for each");\n\n'
	text += "const char *const api_names[API_COUNT] = {\n"
	text += "".join(f"\t[API_{name}] = {quoted(name)},\n" for name in names)
	out.write("api.c", text + "};\n")
	body = '#include "gen/api.h"\n\nstruct call;\n'
	for entry in description.functions:
		if entry.get("by") and not entry.get("todo"):
			body += f"\n/* {entry.get('by')}: {entry.get('doc')} */\n"
			body += declare(f"do_{entry.name}", entry, ["struct call *call"]) + "\n"
	out.write("bodies.h", guard("GLEAM_GEN_BODIES_H", body, "Bodies that are written by hand, in libgleamcuda/."))
	text = "{\nglobal:\n" + "".join(f"\t{name};\n" for name in names) + "\tgleam_*;\nlocal:\n\t*;\n};\n"
	out.write("export.map", text)
