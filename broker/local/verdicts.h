/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What servers said about images that programs of this machine have loaded (broker/proto/verdict.h), kept so that the next program's load of one
 * needn't wait for an answer. A program is told what programs of its own user have left here, of the same server with the same driver: whoever leaves
 * something false deceives himself alone. The bytes are never looked into. Control thread.
 */
#ifndef GLEAM_LOCAL_VERDICTS_H
#define GLEAM_LOCAL_VERDICTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/proto/verdict.h"
#include "broker/proto/wire.h"

/* One user has half of the room at most. */
#define VERDICTS_ENTRIES_MAX 16384u

struct verdicts;

/* Whose, and what said so. */
struct verdict_scope {
	uid_t uid;
	const char *server; /* borrowed, both, for the call */
	const char *driver; /* path and version, as its node has told */
};

struct verdicts_stats {
	uint64_t bytes;
	uint64_t entries;
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions; /* went for room */
};

/* @bytes_max 0: nothing is kept. NULL: no memory. */
struct verdicts *verdicts_new(uint64_t bytes_max);
void verdicts_free(struct verdicts *verdicts);

/* NULL: nothing is known. Good until the next call. */
const uint8_t *verdicts_find(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, size_t *size_out);
/*
 * Takes @bytes (from malloc). The same is there already: it stays, with its records, and counts as used. Something else is: it was false, or isn't true
 * any more, and goes. Nothing is kept where there is no room or memory.
 */
void verdicts_keep(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, uint8_t *bytes, size_t size);
/* @record behind what is kept, unless it is there or there is no room; nothing is kept: nothing happens. */
void verdicts_more(struct verdicts *verdicts, const struct verdict_scope *scope, const struct verdict_key *key, const void *record,
		   size_t size);

void verdicts_stats(const struct verdicts *verdicts, struct verdicts_stats *stats_out);

/*
 * One that comes from a program in parts, in their order; zeros at first. @part is of [@at, @at + @size) of @total bytes; with @at 0 another one begins,
 * and what there was of the one before is dropped. -EPROTO: it is not the next part of anything, or too large. 1: it is whole, and the caller has
 * *@bytes_out; NULL: there was no memory.
 */
struct verdict_parts {
	struct verdict_key key;
	uint8_t *bytes;	    /* NULL with @total: no memory, the parts are counted only */
	uint32_t total, at; /* 0: none has begun */
};
int verdict_part(struct verdict_parts *parts, const struct verdict_key *key, uint32_t total, uint32_t at, const void *part, uint32_t size,
		 uint8_t **bytes_out);
void verdict_parts_drop(struct verdict_parts *parts);

#endif
