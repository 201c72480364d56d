# SPDX-License-Identifier: Apache-2.0
"""ops.h and ops.c: numbers, classes and flags of all commands; the hash by which two peers know that they agree."""

import hashlib

import wire
from text import guard, head, quoted


def canonical(description):
	"""What the wire depends on, and nothing else: numbers, names, classes, scopes, fields."""
	lines = []
	for entry in description.ops:
		lines.append(f"{entry.op:#06x} {entry.name} {entry.klass} {entry.scope or '-'} {entry.get('again', 'no')}")
		lines += [f"\t{arg}" for arg in entry.args]
	return "\n".join(lines) + "\n"


def flags(entry):
	names = []
	if entry.scope:
		names.append("OP_SCOPE_STREAM")
	if entry.klass == "sync":
		names.append("OP_HAS_REPLY")
	names += ["OP_BULK_UP" if arg.kind == "bulk" else "OP_BULK_DOWN" for arg in entry.args if arg.is_bulk]
	if entry.get("again", "no") == "yes":
		names.append("OP_AGAIN")
	if any(arg.is_birth for arg in entry.args):
		names.append("OP_BIRTH")
	if any(arg.is_death for arg in entry.args):
		names.append("OP_DEATH")
	if entry.internal:
		names.append("OP_INTERNAL")
	return names


def emit(description, out):
	ops = description.ops
	digest = hashlib.sha256(canonical(description).encode()).digest()
	rows = [", ".join(f"{byte:#04x}" for byte in digest[at : at + 16]) for at in (0, 16)]
	body = "#include <stdint.h>\n\nenum op {\n"
	body += "".join(f"\tOP_{entry.name} = {entry.op:#06x},\n" for entry in ops)
	op_max = max((entry.op for entry in ops), default=0) + 1
	body += f"}};\n#define OP_MAX {op_max:#x} /* size of tables that are indexed by op */\n\n"
	body += "/* SHA-256 over all ops and their fields: peers whose hashes differ do not talk. */\n"
	body += f"#define PROTOCOL_HASH {{ {rows[0]}, \\\n\t\t\t{rows[1]} }}\n\n"
	body += """enum op_class {
	OP_ASYNC = 1, /* no reply; a failure is latched */
	OP_SYNC = 2,
};

enum op_flag {
	OP_SCOPE_STREAM = 1, /* the payload begins with a stream's handle */
	OP_HAS_REPLY = 2,
	OP_BULK_UP = 4,
	OP_BULK_DOWN = 8,
	OP_AGAIN = 16, /* may be executed twice */
	OP_BIRTH = 32,
	OP_DEATH = 64,
	OP_INTERNAL = 128, /* no function of the API: api is OP_NO_API */
};
#define OP_NO_API 0xffffu

struct op_info {
	const char *name; /* NULL: no such op */
	uint8_t op_class;
	uint8_t flags;
	uint16_t api; /* enum api, gen/api.h */
};
extern const struct op_info op_info[OP_MAX];
"""
	out.write("ops.h", guard("GLEAM_GEN_OPS_H", body, "Commands."))
	table = head("The table of commands.") + '#include "gen/ops.h"\n#include "gen/api.h"\n'
	table += '#include "broker/proto/ring.h"\n#include "broker/proto/wire.h"\n\n'
	table += "/* The sizes by which the generator has checked that every message and answer fits. */\n"
	table += f"static_assert(FRAME_SIZE_MAX - sizeof(struct frame_hdr) - sizeof(struct bulk_ref) == {wire.FRAME_PAYLOAD_MAX},\n"
	table += '\t      "FRAME_PAYLOAD_MAX in tools/apigen/wire.py");\n'
	table += "static_assert(sizeof(((struct reply_slot *)0)->data) - sizeof(struct frame_hdr) - 4 == "
	table += f"{wire.REPLY_PAYLOAD_MAX},\n\t      \"REPLY_PAYLOAD_MAX in tools/apigen/wire.py\");\n\n"
	table += "const struct op_info op_info[OP_MAX] = {\n"
	for entry in ops:
		api = "OP_NO_API" if entry.internal else f"API_{entry.name}"
		columns = (quoted(entry.name), f"OP_{entry.klass.upper()}", " | ".join(flags(entry)) or "0", api)
		table += f"\t[OP_{entry.name}] = {{ {', '.join(columns)} }},\n"
	out.write("ops.c", table + "};\n")
	out.write("ops.dict", "# Op numbers as they lie in a frame header, for fuzzers.\n" + "".join(
		f'{entry.name}="\\x{entry.op & 0xff:02x}\\x{entry.op >> 8:02x}"\n' for entry in ops))
