# SPDX-License-Identifier: Apache-2.0
"""print.h and print.c: commands and answers as a line of text, for traces."""

from text import guard, head, quoted

KINDS = {"bytes": "FIELD_BYTES", "str": "FIELD_STR", "block": "FIELD_BLOCK"}

HEADER = """#include <stddef.h>
#include <stdint.h>

#include "broker/lib/codec.h"

/*
 * One line without its end: name(field=value, ...). Returns how long it is; what does not fit into @size is cut, and
 * @buf ends in a zero byte unless @size is 0. -ENOENT for an op that does not exist, -EBADMSG for a payload that is
 * not of this op; @buf then holds what could be read.
 */
int msg_print(char *buf, size_t size, uint16_t op, struct reader *r);
/* The same for the fields of an answer, without the CUresult; @r stands behind it. */
int ans_print(char *buf, size_t size, uint16_t op, struct reader *r);
"""

CODE = """
struct line {
	char *buf;
	size_t size;
	size_t at; /* of the whole line, also where it was cut */
};

static void __attribute__((format(printf, 2, 3))) line_add(struct line *line, const char *format, ...)
{
	size_t at = line->at < line->size ? line->at : line->size;
	va_list list;
	int length;

	va_start(list, format);
	length = vsnprintf(line->buf + at, line->size - at, format, list);
	va_end(list);
	if (length > 0)
		line->at += (size_t)length;
}

/* Text of another process: nothing of it reaches a terminal unread. */
static void line_add_text(struct line *line, const char *text)
{
	line_add(line, "\\"");
	for (; *text; text++)
		line_add(line, *text < ' ' || *text > '~' || *text == '"' ? "\\\\x%02x" : "%c", (unsigned char)*text);
	line_add(line, "\\"");
}

static void field_print(struct line *line, const struct field *field, struct reader *r)
{
	uint32_t size;

	line_add(line, "%s=", field->name);
	switch (field->kind) {
	case FIELD_U8:
		line_add(line, "%u", get_u8(r));
		break;
	case FIELD_U16:
		line_add(line, "%u", get_u16(r));
		break;
	case FIELD_U32:
		line_add(line, "%" PRIu32, get_u32(r));
		break;
	case FIELD_I32:
		line_add(line, "%" PRId32, get_i32(r));
		break;
	case FIELD_U64:
		line_add(line, "%" PRIu64, get_u64(r));
		break;
	case FIELD_ADDRESS:
		line_add(line, "%#" PRIx64, get_u64(r));
		break;
	case FIELD_F32:
		line_add(line, "%g", (double)get_f32(r));
		break;
	case FIELD_BYTES:
		get_bytes(r, field->max, &size);
		line_add(line, "<%" PRIu32 " bytes>", size);
		break;
	case FIELD_STR:
		line_add_text(line, get_str(r, field->max));
		break;
	case FIELD_BLOCK:
		reader_take(r, 1, field->max);
		line_add(line, "<%" PRIu32 " bytes>", field->max);
		break;
	case FIELD_U32S:
		msg_get_array(r, field->max, 4, &size);
		line_add(line, "<%" PRIu32 " words>", size);
		break;
	case FIELD_U64S:
		msg_get_array(r, field->max, 8, &size);
		line_add(line, "<%" PRIu32 " words>", size);
		break;
	}
}

static int fields_print(char *buf, size_t size, const char *name, const struct field *field, unsigned count,
			struct reader *r)
{
	struct line line = { .buf = buf, .size = size };

	line_add(&line, "%s(", name);
	for (unsigned i = 0; i < count && !r->fault; i++) {
		if (i)
			line_add(&line, ", ");
		field_print(&line, &field[i], r);
	}
	line_add(&line, ")");
	return r->fault || reader_left(r) ? -EBADMSG : (int)line.at;
}

int msg_print(char *buf, size_t size, uint16_t op, struct reader *r)
{
	if (op >= OP_MAX || !op_info[op].name)
		return -ENOENT;
	return fields_print(buf, size, op_info[op].name, &fields[spans[op].first], spans[op].sent, r);
}

int ans_print(char *buf, size_t size, uint16_t op, struct reader *r)
{
	if (op >= OP_MAX || !op_info[op].name)
		return -ENOENT;
	return fields_print(buf, size, op_info[op].name, &fields[spans[op].first + spans[op].sent], spans[op].answered, r);
}
"""


def kind(arg):
	if arg.count is not None:
		return KINDS.get(arg.kind) or ("FIELD_U32S" if arg.kind == "u32" else "FIELD_U64S")
	if arg.is_handle or arg.kind == "devptr" or "address" in arg.name:
		return "FIELD_ADDRESS"
	return f"FIELD_{arg.codec[1].upper()}"


def emit(description, out):
	out.write("print.h", guard("GLEAM_GEN_PRINT_H", HEADER, "Commands as text."))
	text = head("Commands as text.") + "#include <errno.h>\n#include <inttypes.h>\n#include <stdarg.h>\n#include <stdio.h>\n\n"
	text += '#include "gen/msg.h"\n#include "gen/ops.h"\n#include "gen/print.h"\n\n'
	text += """enum field_kind {
	FIELD_U8,
	FIELD_U16,
	FIELD_U32,
	FIELD_I32,
	FIELD_U64,
	FIELD_ADDRESS, /* u64: an address or a handle */
	FIELD_F32,
	FIELD_BYTES,
	FIELD_STR,
	FIELD_BLOCK,
	FIELD_U32S,
	FIELD_U64S,
};

struct field {
	const char *name;
	uint32_t max;
	uint8_t kind; /* enum field_kind */
};

static const struct field fields[] = {
"""
	spans, at = "", 0
	for entry in description.ops:
		sent = [arg for arg in entry.fields if not arg.is_bulk]
		for arg in sent + entry.answers:
			text += f"\t{{ {quoted(arg.name)}, {arg.count or 0}, {kind(arg)} }},\n"
		spans += f"\t[OP_{entry.name}] = {{ {at}, {len(sent)}, {len(entry.answers)} }},\n"
		at += len(sent) + len(entry.answers)
	text += "\t{ 0 },\n};\n\nstatic const struct {\n\tuint16_t first; /* in fields */\n\tuint8_t sent;\n\tuint8_t answered;\n"
	text += f"}} spans[OP_MAX] = {{\n{spans}}};\n"
	out.write("print.c", text + CODE)
