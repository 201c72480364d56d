/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's store of chunks: a memory tier and a disk tier, bounded, one shelf for each tenant. docs/cache.md tells what it
 * guarantees.
 *
 * Names are made here, from the bytes that came: what a broker says about them is never believed. A chunk that a reader (a
 * link) has been told of stays until that reader agrees to its end.
 *
 * Any thread, behind one lock, unless it says otherwise.
 */
#ifndef GLEAM_NODE_STORE_H
#define GLEAM_NODE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/jobs.h"
#include "broker/core/mirror.h"
#include "broker/lib/chunk.h"
#include "broker/lib/conf.h"
#include "broker/proto/stats.h"

struct store;
struct shelf;
struct entry;

struct store_setting {
	char dir[CONF_PATH_SIZE]; /* "": no disk tier */
	uint64_t memory;	  /* bytes; 0: no store at all */
	uint64_t disk;		  /* bytes; 0: no disk tier */
};

/* NULL: out of memory, or no address space for the memory tier. @news: any thread, there is something for store_tidy(). */
struct store *store_new(const struct store_setting *setting, void (*news)(void *owner), void *owner);
/* Nobody calls it any more. Waits for what it does, and writes its indices. */
void store_free(struct store *store);
/* A tenant's part, made when it is first asked for; its disk is read then. Lives as long as the store. NULL: out of memory. */
struct shelf *store_shelf(struct store *store, const char *tenant, const uint8_t salt[CACHE_SALT_SIZE]);
/* Control thread, after news(): makes room where it was short. */
void store_tidy(struct store *store);
void shelf_stats(struct shelf *shelf, struct cache_stats *stats_out);

/* Bytes that have come, which are copied; or dropped, where there is no room for them. */
void shelf_keep(struct shelf *shelf, const struct bulk_keep *keep, const uint8_t *bytes, uint32_t size);

/* Bytes of a chunk, copied to where they are wanted. */
struct fetch {
	struct job job;
	struct fetch *next;
	struct shelf *shelf;
	struct entry *entry;
	uint32_t at;
	uint32_t size;
	uint8_t *place;
	/* A thread of the store, may be NULL: bytes are about to be written there. */
	void (*begin)(struct fetch *fetch);
	bool quiet; /* counts for nothing: nobody is saved anything by it */
	/* A thread of the store. @err: -EBADMSG or what the disk said; the chunk is gone then. Owns @fetch. */
	void (*done)(struct fetch *fetch, int err);
};

/* at, size, place, begin and done are set. 0: done() comes. -ENOENT: there is no such chunk here. -ERANGE: it isn't so long. */
int shelf_fetch(struct shelf *shelf, const uint8_t hash[CACHE_HASH_SIZE], uint32_t total, struct fetch *fetch);

/* The name of a chunk that is here, by the mark that it came with; 0: by its hash. False: there is none, or it isn't so long. */
bool shelf_name_of(struct shelf *shelf, uint64_t mark, const uint8_t hash[CACHE_HASH_SIZE], uint32_t total, struct chunk_name *name_out);

/* ---- readers: those who are told what is held ---- */

struct reader_of_shelf;
#define STORE_READERS_MAX 256u /* links of a node */

/* NULL: too many, or out of memory. */
struct reader_of_shelf *shelf_read(struct shelf *shelf);
/* Its leases end. */
void shelf_read_end(struct reader_of_shelf *reader);
/* What it hasn't heard yet, leased from now on; how many. */
unsigned reader_news(struct reader_of_shelf *reader, struct cache_id *ids_out, unsigned max);
/* What it is asked to forget, each once. */
unsigned reader_drops(struct reader_of_shelf *reader, struct cache_id *ids_out, unsigned max);
/* It has forgotten. -EPROTO: it was never asked to. */
int reader_dropped(struct reader_of_shelf *reader, const struct cache_id *id);

/* ---- commands of people ---- */

/* @head of zeros: all of them. -ENOENT. */
int shelf_pin(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], bool pin);
int shelf_drop(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], uint64_t *count_out);

struct verify {
	struct job job;
	struct shelf *shelf;
	uint8_t head[CACHE_HEAD_SIZE];
	/* A thread of the store. @err: -ENOENT, -EBADMSG (one chunk, damaged); @damaged of @checked were. Owns @verify. */
	void (*done)(struct verify *verify, int err, uint64_t damaged);
};
void shelf_verify(struct shelf *shelf, struct verify *verify);

#endif
