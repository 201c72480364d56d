/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of the weight cache by their names. A name is SHA-256 over a salt and the bytes; the salt comes from the tenant's
 * key, so the same bytes have another name for another tenant. Any thread.
 *
 * The fingerprint is made of a few samples and proves nothing: where nobody holds a chunk of that fingerprint and size nobody
 * holds these bytes, so that bytes which are seen for the first time are never hashed.
 */
#ifndef GLEAM_LIB_CHUNK_H
#define GLEAM_LIB_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#include "broker/proto/wire.h"

struct chunk_name {
	uint8_t hash[CACHE_HASH_SIZE];
	uint32_t size;
	uint32_t print;
};

/* @secret of a tenant's key; NULL: the salt of those who have none. 0 or -ENOMEM. */
int chunk_salt(const void *secret, size_t size, uint8_t salt_out[CACHE_SALT_SIZE]);
uint32_t chunk_print(const uint8_t salt[CACHE_SALT_SIZE], const void *bytes, uint32_t size);
/* 0 or -ENOMEM. @bytes may change meanwhile: then the name is of something else, or of nothing. */
int chunk_name(const uint8_t salt[CACHE_SALT_SIZE], const void *bytes, uint32_t size, struct chunk_name *name_out);

static inline struct cache_id chunk_id(const struct chunk_name *name)
{
	struct cache_id id = { .size = name->size, .print = name->print };

	for (unsigned i = 0; i < CACHE_HEAD_SIZE; i++)
		id.head[i] = name->hash[i];
	return id;
}

#define CHUNK_TEXT_SIZE (2 * CACHE_HASH_SIZE + 1)
/* @size bytes of a hash in hex. */
void chunk_text(const uint8_t *hash, size_t size, char *text_out);
/* The other way; -EINVAL unless @text has 2 * @size hex digits and no more. */
int chunk_parse(const char *text, uint8_t *hash_out, size_t size);

#endif
