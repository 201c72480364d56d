// SPDX-License-Identifier: Apache-2.0
// sources: broker/lib/fatbin.c broker/lib/fatbin_elf.c libs: -lzstd -llz4
/*
 * Arbitrary bytes as an image: parsed, walked, each small entry unpacked, and read as a cubin.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"

/* An honest reader allocates what an entry claims; a fuzzer need not follow every claim. */
#define UNPACK_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int name_read(void *user, const char *name)
{
	struct fatbin_param params[16];
	struct fatbin_kernel kernel;
	const struct fatbin_entry *entry = user;

	fatbin_kernel_params(entry->payload, entry->payload_size, name, params, 16, &kernel);
	return strlen(name) > 4096;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fatbin_image image;
	struct fatbin_entry entry;
	struct fatbin_iter iter;
	struct fatbin_entry whole = { .payload = data, .payload_size = size };

	if (fatbin_parse(data, size, &image) == 0 && image.size > size)
		abort();
	fatbin_iter_init(&iter, data, size);
	while (fatbin_iter_next(&iter, &entry) > 0) {
		if (entry.unpacked_size <= UNPACK_MAX) {
			void *buffer = malloc(entry.unpacked_size + 1);
			size_t got;

			if (buffer && fatbin_entry_unpack(&entry, buffer, entry.unpacked_size, &got) == 0 &&
			    got != entry.unpacked_size)
				abort();
			free(buffer);
		}
		fatbin_kernels(entry.payload, entry.payload_size, name_read, &entry);
	}
	fatbin_choose(data, size, 9, 0, true, &entry);
	fatbin_elf_arch(data, size);
	fatbin_kernels(data, size, name_read, &whole);
	return 0;
}
