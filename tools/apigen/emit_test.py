# SPDX-License-Identifier: Apache-2.0
"""test_codec.c: every message and answer there and back, cut at each byte, and at its limits."""

from text import head, quoted

HEAD = """#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gen/msg.h"
#include "gen/ops.h"
#include "gen/print.h"

#define PATTERN_SIZE (64u << 10)
#define BUFFER_SIZE  (128u << 10)

static uint8_t *pattern; /* what counted fields are filled with */
static char *letters;	 /* the same without a zero byte */

static int pattern_make(void **state)
{
	(void)state;
	pattern = malloc(PATTERN_SIZE);
	letters = malloc(PATTERN_SIZE);
	if (!pattern || !letters)
		return -1;
	for (unsigned i = 0; i < PATTERN_SIZE; i++) {
		pattern[i] = (uint8_t)(i * 7 + 1);
		letters[i] = (char)('a' + i % 26);
	}
	return 0;
}

static int pattern_free(void **state)
{
	(void)state;
	free(pattern);
	free(letters);
	return 0;
}

/* A string of @length letters, to be freed. */
static char *letters_take(size_t length)
{
	char *text = malloc(length + 1);

	assert_non_null(text);
	memcpy(text, letters, length);
	text[length] = 0;
	return text;
}

/* A copy that ends where the bytes end, so that a reader that goes on is seen by the sanitizer. */
static uint8_t *cut(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1);

	assert_non_null(copy);
	memcpy(copy, bytes, size);
	return copy;
}

/*
 * There and back; @start bytes stand before the fields (an answer's CUresult). Then every shorter payload is refused,
 * one byte more too, and a writer with less room says so.
 */
#define CODEC_TEST(kind, start, op, print)                                                                     \\
	static void test_##kind(void **state)                                                                  \\
	{                                                                                                      \\
		struct kind sent, got;                                                                         \\
		char line[256];                                                                                \\
                                                                                                               \\
		(void)state;                                                                                   \\
		memset(&sent, 0, sizeof(sent));                                                                \\
		memset(&got, 0x5a, sizeof(got));                                                               \\
		fill_##kind(&sent);                                                                            \\
                                                                                                               \\
		size_t size = (start) + kind##_size(&sent);                                                    \\
		uint8_t *bytes = calloc(1, size + 8);                                                          \\
		struct writer w = writer_on(bytes, size);                                                      \\
                                                                                                               \\
		assert_non_null(bytes);                                                                        \\
		w.at = (start);                                                                                \\
		kind##_put(&w, &sent);                                                                         \\
		assert_false(w.fault);                                                                         \\
		assert_true(w.at <= size);                                                                     \\
                                                                                                               \\
		size_t used = w.at;                                                                            \\
		struct reader r = reader_on(bytes, used);                                                      \\
                                                                                                               \\
		r.at = (start);                                                                                \\
		assert_true(kind##_get(&r, &got));                                                             \\
		same_##kind(&sent, &got);                                                                      \\
		r = reader_on(bytes, used);                                                                    \\
		r.at = (start);                                                                                \\
		assert_true(print(line, sizeof(line), op, &r) > 0);                                            \\
		assert_int_equal(strncmp(line, op_info[op].name, strlen(op_info[op].name)), 0);                \\
		for (size_t less = (start); less < used; less++) {                                             \\
			uint8_t *copy = cut(bytes, less);                                                      \\
                                                                                                               \\
			r = reader_on(copy, less);                                                             \\
			r.at = (start);                                                                        \\
			assert_false(kind##_get(&r, &got));                                                    \\
			r = reader_on(copy, less);                                                             \\
			r.at = (start);                                                                        \\
			assert_int_equal(print(line, less % sizeof(line), op, &r), -EBADMSG);                  \\
			w = writer_on(copy, less);                                                             \\
			w.at = (start);                                                                        \\
			kind##_put(&w, &sent);                                                                 \\
			assert_true(w.fault);                                                                  \\
			free(copy);                                                                            \\
		}                                                                                              \\
		r = reader_on(bytes, used + 1);                                                                \\
		r.at = (start);                                                                                \\
		assert_false(kind##_get(&r, &got));                                                            \\
		free_##kind(&sent);                                                                            \\
		free(bytes);                                                                                   \\
	}

/* A counted field at its limit passes, one more is refused; what stands in the message has its bytes after it. */
#define LIMIT_TEST(kind, field, set, unset)                                                                    \\
	static void test_limit_##kind##_##field(void **state)                                                  \\
	{                                                                                                      \\
		uint8_t *bytes = malloc(BUFFER_SIZE);                                                          \\
                                                                                                               \\
		(void)state;                                                                                   \\
		assert_non_null(bytes);                                                                        \\
		for (unsigned over = 0; over < 2; over++) {                                                    \\
			struct kind sent, got;                                                                 \\
			struct writer w = writer_on(bytes, BUFFER_SIZE);                                       \\
                                                                                                               \\
			memset(&sent, 0, sizeof(sent));                                                        \\
			set;                                                                                   \\
			kind##_put(&w, &sent);                                                                 \\
			assert_false(w.fault);                                                                 \\
                                                                                                               \\
			struct reader r = reader_on(bytes, w.at);                                              \\
                                                                                                               \\
			assert_int_equal(kind##_get(&r, &got), !over);                                         \\
			unset;                                                                                 \\
		}                                                                                              \\
		free(bytes);                                                                                   \\
	}
"""

COUNT = 5  # elements of a counted field in the round trip: enough to see a shift


def fill(kind, args):
	lines, frees, same = [], [], []
	for index, arg in enumerate(args):
		name = arg.name
		if arg.is_bulk:
			continue
		if arg.count is None:
			ctype, codec, size = arg.codec
			number = sum((index * 16 + byte + 1 & 0xff) << 8 * byte for byte in range(size))
			value = f"{index + 1.5}f" if codec == "f32" else f"({ctype}){number:#x}{'u' if size < 8 else 'ull'}"
			lines.append(f"m->{name} = {value};")
			same.append(f"assert_true(a->{name} == b->{name});")
		elif arg.kind == "bytes":
			lines += [f"m->{name} = pattern + {index};", f"m->{name}_size = {min(arg.count, 8 * COUNT + 3)};"]
			same += [f"assert_int_equal(a->{name}_size, b->{name}_size);",
				 f"assert_memory_equal(a->{name}, b->{name}, a->{name}_size);",
				 f"assert_int_equal((uintptr_t)b->{name} % 8, 0);"]
		elif arg.kind == "str":
			lines.append(f"m->{name} = letters_take({min(arg.count, 8 * COUNT + 3)});")
			frees.append(f"free((char *)m->{name});")
			same.append(f"assert_string_equal(a->{name}, b->{name});")
		elif arg.kind == "block":
			lines.append(f"memcpy(m->{name}, pattern, sizeof(m->{name}));")
			same.append(f"assert_memory_equal(a->{name}, b->{name}, sizeof(a->{name}));")
		else:
			lines += [f"m->{name} = (const void *)pattern;", f"m->{name}_count = {min(arg.count, COUNT)};"]
			same += [f"assert_int_equal(a->{name}_count, b->{name}_count);",
				 f"assert_memory_equal(a->{name}, b->{name}, a->{name}_count * sizeof(*a->{name}));"]
	text = ""
	for verb, params, unused, body in (
		("fill", f"struct {kind} *m", ["m"], lines),
		("free", f"struct {kind} *m", ["m"], frees),
		("same", f"const struct {kind} *a, const struct {kind} *b", ["a", "b"], same),
	):
		text += f"\nstatic void {verb}_{kind}({params})\n{{\n"
		text += "".join(f"\t{line}\n" for line in (body or [f"(void){name};" for name in unused])) + "}\n"
	return text


def limits(kind, args):
	text, names = "", []
	for arg in args:
		if arg.count is None or arg.kind == "block":
			continue
		if arg.kind == "str":
			change = f"sent.{arg.name} = letters_take({arg.count} + over)"
			undo = f"free((char *)sent.{arg.name})"
		else:
			count = "size" if arg.kind == "bytes" else "count"
			change = f"sent.{arg.name} = (const void *)pattern; sent.{arg.name}_{count} = {arg.count} + over"
			undo = "(void)over"
		text += f"LIMIT_TEST({kind}, {arg.name}, {change}, {undo})\n"
		names.append(f"test_limit_{kind}_{arg.name}")
	return text, names


def emit(description, out):
	text = head("Every message there and back, cut at each byte, and at its limits.") + HEAD
	tests = []
	for entry in description.ops:
		for prefix, args, start, printer in (
			("msg", entry.fields, 0, "msg_print"),
			("ans", entry.answers, 4, "ans_print"),
		):
			if prefix == "ans" and not args:
				continue
			kind = f"{prefix}_{entry.name}"
			text += fill(kind, args) + f"CODEC_TEST({kind}, {start}, OP_{entry.name}, {printer})\n"
			tests.append(f"test_{kind}")
			more, names = limits(kind, args)
			text += more
			tests += names
	text += """
static void test_op_unknown(void **state)
{
	struct reader r = reader_on("", 0);
	char line[8];

	(void)state;
	assert_int_equal(msg_print(line, sizeof(line), 0, &r), -ENOENT);
	assert_int_equal(msg_print(line, sizeof(line), OP_MAX, &r), -ENOENT);
	assert_int_equal(ans_print(line, sizeof(line), 0xffff, &r), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
"""
	text += "".join(f"\t\tcmocka_unit_test({name}),\n" for name in tests + ["test_op_unknown"])
	text += f"\t}};\n\n\treturn cmocka_run_group_tests_name({quoted('codec')}, tests, pattern_make, pattern_free);\n}}\n"
	out.write("test_codec.c", text)
