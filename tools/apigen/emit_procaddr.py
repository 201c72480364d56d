# SPDX-License-Identifier: Apache-2.0
"""procaddr.h and procaddr.c: what cuGetProcAddress chooses from; and the same choice for tests."""

from text import guard, head, quoted

KINDS = ("legacy", "ptds", "ptsz")


def rows(description):
	"""(base, export, since, kind), sorted by base, then version."""
	table = []
	for entry in description.functions:
		table.append((entry.base, entry.name, entry.get("since"), "legacy"))
		if entry.variant:
			name, kind, since = entry.variant
			table.append((entry.base, name, since, kind))
	return sorted(table, key=lambda row: (row[0], row[2], KINDS.index(row[3]), row[1]))


def choose(table, base, version, per_thread):
	"""The export that a question gets, or None: the newest one that the version knows, per-thread where there is one."""
	best = None
	for row in table:
		if row[0] == base and row[2] <= version:
			if (row[3] != "legacy") == per_thread and (best is None or row[2] >= best[2]):
				best = row
	if best is None and per_thread:
		return choose(table, base, version, False)
	return best[1] if best else None


def emit(description, out):
	table = rows(description)
	body = """#include <stdint.h>

enum proc_kind {
	PROC_LEGACY,
	PROC_PTDS, /* a synchronous function on this thread's stream */
	PROC_PTSZ, /* NULL streams mean this thread's */
};

struct proc {
	const char *base; /* what is asked for */
	const char *name; /* the export */
	uint32_t since;	  /* the lowest version of CUDA that selects it */
	uint32_t kind;	  /* enum proc_kind */
	void *address;
};

"""
	body += f"#define PROC_COUNT {len(table)}u\n"
	body += "/* Sorted by base (strcmp), then since. */\nextern const struct proc proc_table[PROC_COUNT];\n"
	out.write("procaddr.h", guard("GLEAM_GEN_PROCADDR_H", body, "The table of cuGetProcAddress."))
	text = head("The table of cuGetProcAddress.") + '#include "gen/procaddr.h"\n#include "gen/api.h"\n\n'
	text += "const struct proc proc_table[PROC_COUNT] = {\n"
	for base, name, since, kind in table:
		text += f"\t{{ {quoted(base)}, {quoted(name)}, {since}, PROC_{kind.upper()}, (void *)(uintptr_t){name} }},\n"
	out.write("procaddr.c", text + "};\n")
