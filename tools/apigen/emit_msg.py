# SPDX-License-Identifier: Apache-2.0
"""msg.h: a struct for the fields of each command and of each answer, with its size, writer and reader."""

from text import guard

HELPERS = """#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "broker/lib/codec.h"
#include "broker/proto/wire.h"

/* A count, then the elements at a multiple of 8. */
static inline void msg_put_array(struct writer *w, const void *elements, uint32_t count, size_t element_size)
{
	put_u32(w, count);

	uint8_t *room = writer_room(w, 8, count * element_size);

	if (room && count)
		memcpy(room, elements, count * element_size);
}

static inline const void *msg_get_array(struct reader *r, uint32_t count_max, size_t element_size, uint32_t *count_out)
{
	uint32_t count = get_u32(r);

	*count_out = 0;
	if (count > count_max)
		r->fault = true;

	const uint8_t *elements = reader_take(r, 8, (r->fault ? 0 : count) * element_size);

	if (elements)
		*count_out = count;
	return elements;
}
"""


def members(args):
	lines = []
	for arg in args:
		if arg.is_bulk:
			lines.append(f"struct bulk_ref {arg.name}; /* not in the payload */")
		elif arg.count is None:
			lines.append(f"{arg.codec[0]} {arg.name};")
		elif arg.kind == "bytes":
			lines += [f"const void *{arg.name};", f"uint32_t {arg.name}_size; /* {arg.count} at most */"]
		elif arg.kind == "str":
			lines.append(f"const char *{arg.name}; /* {arg.count} bytes at most */")
		elif arg.kind == "block":
			lines.append(f"uint8_t {arg.name}[{arg.count}];")
		else:
			kind = "uint32_t" if arg.kind == "u32" else "uint64_t"
			lines += [f"const {kind} *{arg.name};", f"uint32_t {arg.name}_count; /* {arg.count} at most */"]
	return lines or ["uint8_t nothing;"]


def size_terms(args, start):
	"""A constant and the parts that depend on values: an upper bound, exact up to the first counted field."""
	at, known, terms = start, True, []
	for arg in args:
		if arg.is_bulk:
			continue
		if arg.count is None:
			size = arg.codec[2]
			at += (-at % size if known else size - 1) + size
			continue
		if arg.kind == "block":
			at += arg.count
			continue
		at += (-at % 4 if known else 3) + 4
		if arg.kind == "str":
			terms.append(f"(m->{arg.name} ? strlen(m->{arg.name}) : 0)")
			at += 1
		else:
			at += -at % 8 if known else 7
			terms.append(f"m->{arg.name}_size" if arg.kind == "bytes" else
				     f"(size_t)m->{arg.name}_count * {4 if arg.kind == 'u32' else 8}")
		known = False
	return at - start, terms


def put_line(arg):
	if arg.count is None:
		return f"put_{arg.codec[1]}(w, m->{arg.name});"
	if arg.kind == "bytes":
		return f"put_bytes(w, m->{arg.name}, m->{arg.name}_size);"
	if arg.kind == "str":
		return f"put_str(w, m->{arg.name});"
	if arg.kind == "block":
		return f"put_block(w, m->{arg.name}, sizeof(m->{arg.name}));"
	return f"msg_put_array(w, m->{arg.name}, m->{arg.name}_count, sizeof(*m->{arg.name}));"


def get_line(arg):
	if arg.is_bulk:
		return f"m->{arg.name} = (struct bulk_ref){{ 0 }};"
	if arg.count is None:
		return f"m->{arg.name} = get_{arg.codec[1]}(r);"
	if arg.kind == "bytes":
		return f"m->{arg.name} = get_bytes(r, {arg.count}, &m->{arg.name}_size);"
	if arg.kind == "str":
		return f"m->{arg.name} = get_str(r, {arg.count});"
	if arg.kind == "block":
		return f"get_block(r, m->{arg.name}, sizeof(m->{arg.name}));"
	return f"m->{arg.name} = msg_get_array(r, {arg.count}, sizeof(*m->{arg.name}), &m->{arg.name}_count);"


def head_of(prefix, args):
	"""
	Single values at the beginning of a command, which begins a buffer: their places are known, so one look at the room does for all of them.
	As (argument, offset), their size, and whether there are gaps. Nothing where it doesn't pay, and of answers, whose start is not aligned.
	"""
	head, at, gaps = [], 0, False
	for arg in args if prefix == "msg" else []:
		if arg.is_bulk:
			continue
		if arg.count is not None:
			break
		size = arg.codec[2]
		gaps |= at % size != 0
		at += -at % size
		head.append((arg, at))
		at += size
	return (head, at, gaps) if len(head) > 1 else ([], 0, False)


def put_lines(prefix, args):
	head, size, gaps = head_of(prefix, args)
	rest = [arg for arg in args if not arg.is_bulk][len(head):]
	lines = []
	if head:
		lines += [f"uint8_t *head = writer_room(w, 8, {size});", "", "if (head) {"]
		lines += [f"\tmemset(head, 0, {size});"] if gaps else []
		lines += [f"\tmemcpy(head + {at}, &m->{arg.name}, {arg.codec[2]});" for arg, at in head] + ["}"]
	return lines + [put_line(arg) for arg in rest]


def get_lines(prefix, args):
	head, size, _ = head_of(prefix, args)
	heads = [arg for arg, _ in head]
	lines = []
	if head:
		lines += [f"const uint8_t *head = reader_take(r, 8, {size});", "", "if (head) {"]
		lines += [f"\tmemcpy(&m->{arg.name}, head + {at}, {arg.codec[2]});" for arg, at in head] + ["} else {"]
		lines += [f"\tm->{arg.name} = 0;" for arg in heads] + ["}"]
	return lines + [get_line(arg) for arg in args if arg not in heads]


def struct(prefix, entry, args):
	name = f"{prefix}_{entry.name}"
	# An answer stands behind the CUresult, and its fields are aligned from there on.
	at, terms = size_terms(args, 4 if prefix == "ans" else 0)
	size = " + ".join(([str(at)] if at or not terms else []) + terms)
	wire = [arg for arg in args if not arg.is_bulk]
	text = f"struct {name} {{\n" + "".join(f"\t{line}\n" for line in members(args)) + "};\n"
	text += f"static inline size_t {name}_size(const struct {name} *m)\n{{\n"
	text += ("" if terms else "\t(void)m;\n") + f"\treturn {size};\n}}\n"
	text += f"static inline void {name}_put(struct writer *w, const struct {name} *m)\n{{\n"
	text += "".join(f"\t{line}".rstrip() + "\n" for line in put_lines(prefix, args)) if wire else "\t(void)w;\n\t(void)m;\n"
	text += "}\n"
	text += f"static inline bool {name}_get(struct reader *r, struct {name} *m)\n{{\n"
	text += "".join(f"\t{line}".rstrip() + "\n" for line in get_lines(prefix, args)) or "\tm->nothing = 0;\n"
	return text + "\treturn !r->fault && reader_left(r) == 0;\n}\n"


def emit(description, out):
	body = HELPERS
	for entry in description.ops:
		body += f"\n/* {entry.get('doc')} */\n" + struct("msg", entry, entry.fields)
		if entry.answers:
			body += struct("ans", entry, entry.answers)
	what = "Fields of commands and answers. What a reader gives is borrowed from its buffer."
	out.write("msg.h", guard("GLEAM_GEN_MSG_H", body, what))
