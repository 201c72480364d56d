/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By which chunks of the weight cache a session's pieces came, as far back as is remembered: for a move, whose bytes may be those of a chunk
 * that the other node holds. Any thread.
 */
#ifndef GLEAM_NODE_ORIGIN_H
#define GLEAM_NODE_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/wire.h"

struct origins;

/* A piece is [at, at + size) of a chunk of @total bytes. */
struct origin {
	uint64_t position; /* of the piece in the up arena, free-running */
	uint64_t mark;	   /* what the chunk was known by when it came (struct bulk_keep); 0: its name was known */
	uint32_t size;
	uint32_t at;
	uint32_t total;
	uint8_t hash[CACHE_HASH_SIZE]; /* without a mark */
};

/* NULL: out of memory. */
struct origins *origins_new(void);
void origins_free(struct origins *origins);
/* Forgets the oldest rather than fail. */
void origins_add(struct origins *origins, const struct origin *origin);
/* Of @size bytes at @position, which lie in one piece; false: nothing is known of them. */
bool origins_find(struct origins *origins, uint64_t position, uint32_t size, struct origin *origin_out);

#endif
