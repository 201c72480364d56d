// SPDX-License-Identifier: Apache-2.0
// sources: broker/lib/imagevars.c
/*
 * Arbitrary bytes as a cubin or PTX whose variables are looked for: names lie in the bytes, and words belong to a name that was told.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/lib/imagevars.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	const uint8_t *data;
	size_t size;
	unsigned names;
};

static void name_check(const struct seen *seen, const char *name, size_t size)
{
	const uint8_t *at = (const uint8_t *)name;

	if (!size || at < seen->data || size > seen->size - (size_t)(at - seen->data) || memchr(name, 0, size))
		abort();
}

static void variable_hear(void *arg, const char *name, size_t size, bool constant)
{
	struct seen *seen = arg;

	(void)constant;
	name_check(seen, name, size);
	seen->names++;
}

static void word_hear(void *arg, const char *name, size_t size, uint64_t offset)
{
	struct seen *seen = arg;

	(void)offset;
	name_check(seen, name, size);
	if (!seen->names)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen seen = { .data = data, .size = size };
	const struct imagevars_hear hear = { .variable = variable_hear, .word = word_hear, .arg = &seen };

	imagevars_look(data, size, &hear);
	return 0;
}
