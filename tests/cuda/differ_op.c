// SPDX-License-Identifier: Apache-2.0
/*
 * Operations as text: `2 up buf=3 off=16 size=4096 host=1 hoff=0 stream=4 form=1`, where the first number is the thread.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/differ.h"

const char *const kind_names[KINDS] = {
#define DIFFER_NAME(id, name, args) name,
	DIFFER_KINDS(DIFFER_NAME)
#undef DIFFER_NAME
};
const char *const kind_args[KINDS] = {
#define DIFFER_ARGUMENTS(id, name, args) args,
	DIFFER_KINDS(DIFFER_ARGUMENTS)
#undef DIFFER_ARGUMENTS
};

static size_t word_size(const char *at)
{
	return strcspn(at, " ");
}

int op_arg(enum kind kind, const char *name)
{
	int index = 0;

	for (const char *at = kind_args[kind]; *at; index++) {
		size_t size = word_size(at);

		if (size == strlen(name) && !memcmp(at, name, size))
			return index;
		at += size + (at[size] == ' ');
	}
	return -1;
}

void op_print(FILE *file, const struct op *op)
{
	int index = 0;

	fprintf(file, "%d %s", op->thread, kind_names[op->kind]);
	for (const char *at = kind_args[op->kind]; *at; index++) {
		size_t size = word_size(at);

		fprintf(file, " %.*s=%lld", (int)size, at, (long long)op->a[index]);
		at += size + (at[size] == ' ');
	}
}

static int kind_of(const char *name, size_t size)
{
	for (int kind = 0; kind < KINDS; kind++)
		if (strlen(kind_names[kind]) == size && !memcmp(kind_names[kind], name, size))
			return kind;
	return -1;
}

int op_parse(const char *line, struct op *op_out)
{
	struct op op = { 0 };
	char *end;
	unsigned long thread;
	int kind;

	line += strspn(line, " \t");
	if (!*line || *line == '#' || *line == '\n')
		return 0;
	thread = strtoul(line, &end, 10);
	if (end == line || *end != ' ' || thread >= DIFFER_THREADS)
		return -1;
	line = end + 1;
	kind = kind_of(line, strcspn(line, " \n"));
	if (kind < 0)
		return -1;
	op.thread = (uint8_t)thread;
	op.kind = (uint8_t)kind;
	line += strcspn(line, " \n");
	while (*line == ' ') {
		char name[16];
		size_t size;
		int index;

		line += strspn(line, " ");
		if (!*line || *line == '\n' || *line == '#')
			break;
		size = strcspn(line, "=");
		if (size >= sizeof(name) || line[size] != '=')
			return -1;
		memcpy(name, line, size);
		name[size] = '\0';
		index = op_arg((enum kind)kind, name);
		if (index < 0)
			return -1;
		op.a[index] = strtoll(line + size + 1, &end, 10);
		if (end == line + size + 1)
			return -1;
		line = end;
	}
	*op_out = op;
	return 1;
}

uint64_t differ_hash(const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t h = size, v;

	for (; size >= 8; size -= 8, at += 8) {
		memcpy(&v, at, 8);
		h = differ_mix(h, v);
	}
	for (; size; size--, at++)
		h = differ_mix(h, *at);
	return h;
}
