/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node holds, as its broker knows: a table of cache_ids, 24 bytes a chunk, found by fingerprint. One thread.
 */
#ifndef GLEAM_CORE_HELD_H
#define GLEAM_CORE_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/chunk.h"

struct held {
	struct cache_id *slots; /* size 0: empty; HELD_GONE: was in use */
	uint32_t slot_count;	/* a power of two, or 0 */
	uint32_t used;		/* slots that aren't empty */
	uint32_t count;		/* chunks */
	uint64_t bytes;
};

/* The same twice is once. -ENOMEM: it isn't known, so it will be sent. -EPROTO: no chunk has that size. */
int held_add(struct held *held, const struct cache_id *id);
void held_remove(struct held *held, const struct cache_id *id);
bool held_has(const struct held *held, const struct chunk_name *name);
/* Whether there is anything of that fingerprint and size. */
bool held_may(const struct held *held, uint32_t print, uint32_t size);
void held_clear(struct held *held);
/* From slot *@at on, the next chunk; NULL at the end. */
const struct cache_id *held_next(const struct held *held, uint32_t *at);

#endif
