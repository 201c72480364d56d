/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of kernels that print; see fatbin_print.h. A program that loads large libraries waits for this with each of them: what lies
 * behind the names, nine tenths and more, isn't looked at where their end can be seen.
 */
#include "broker/lib/fatbin_print.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"

#define HEAD_FIRST ((size_t)256 << 10) /* of most cubins all names are in it; smaller ones are unpacked whole */
#define HEAD_MORE  4u
#define HEAD_MAX   ((size_t)16 << 20)

static bool names_printf(const void *names, size_t size)
{
	return memmem(names, size, "vprintf", 7) != NULL;
}

/* Bytes that are all there: up to the table of symbols; without one, all of them. */
static bool whole_names_printf(const void *bytes, size_t size)
{
	size_t names = size;

	fatbin_elf_symbols(bytes, size, &names);
	return names_printf(bytes, names);
}

static bool packed_names_printf(const struct fatbin_entry *entry)
{
	size_t most = entry->unpacked_size < HEAD_MAX ? entry->unpacked_size : HEAD_MAX;
	uint8_t *bytes = NULL;
	bool found = false;

	for (size_t size = HEAD_FIRST < most ? HEAD_FIRST : most;; size = size * HEAD_MORE < most ? size * HEAD_MORE : most) {
		size_t names;

		free(bytes);
		bytes = malloc(size ? size : 1);
		if (!bytes || fatbin_entry_unpack_head(entry, bytes, size, &names))
			break;
		/* In the last head there may be no table: then all of it is searched. */
		if (fatbin_elf_symbols(bytes, names, &names) == 0 || size == most) {
			found = names_printf(bytes, names);
			break;
		}
	}
	free(bytes);
	return found;
}

bool fatbin_prints(const void *image, size_t size)
{
	struct fatbin_image found;
	struct fatbin_iter iter;
	struct fatbin_entry entry;

	if (fatbin_parse(image, size, &found) || found.data_form != FATBIN_FORM_CONTAINER)
		return whole_names_printf(image, size);
	fatbin_iter_init(&iter, found.data, found.size);
	while (fatbin_iter_next(&iter, &entry) > 0)
		if (entry.packed ? packed_names_printf(&entry) : whole_names_printf(entry.payload, entry.payload_size))
			return true;
	return false;
}
