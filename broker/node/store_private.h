/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the store share: store_books.c (which chunks there are), store_bytes.c (coming and going), store_reader.c (who is
 * told), store_command.c (people's), store_memory.c (blocks), store_disk.c (files), store_part.c (pieces), store_mark.c (what they came as).
 */
#ifndef GLEAM_NODE_STORE_PRIVATE_H
#define GLEAM_NODE_STORE_PRIVATE_H

#include <pthread.h>

#include "broker/lib/clock.h"
#include "broker/lib/key.h"
#include "broker/lib/log.h"
#include "broker/lib/pressure.h"
#include "broker/node/store.h"

#define STORE_PARTS_MAX	 64u	      /* chunks that come in pieces, at once; each takes CACHE_CHUNK_SIZE */
#define STORE_LOOK_MAX	 512u	      /* chunks that are looked at to find one that may go */
#define STORE_DISK_REST_NS (60 * NS_PER_S) /* a disk that failed is left alone for so long */
#define STORE_CORES_FEW	   8u	      /* with more there is always one for names */
#define STORE_INDEX_NS	   (30 * NS_PER_S) /* an index may be so much older than its folder */

/* ---- blocks of the memory tier: powers of two, from 64 KiB to CACHE_CHUNK_SIZE ---- */

#define BLOCK_MIN    (64u << 10)
#define BLOCK_ORDERS 7u

struct blocks {
	uint8_t *base;
	uint64_t size; /* a multiple of CACHE_CHUNK_SIZE */
	uint64_t touched; /* blocks beyond have never been used: lower ones are preferred */
	uint8_t *order;	  /* for each BLOCK_MIN: of the block that begins there, | BLOCK_FREE */
	uint32_t *next;	  /* for each BLOCK_MIN: free lists, by number + 1 */
	uint32_t *prev;
	uint32_t free[BLOCK_ORDERS];
	uint64_t used; /* bytes */
};

int blocks_init(struct blocks *blocks, uint64_t size);
void blocks_fini(struct blocks *blocks);
/* NULL: there is none. */
uint8_t *block_take(struct blocks *blocks, uint32_t size);
void block_give(struct blocks *blocks, uint8_t *block, uint32_t size);
uint64_t block_size(uint32_t size);

/* ---- books ---- */

struct drop {
	struct drop *next;
	struct drop **before;
	struct entry *entry;
	uint64_t owe[STORE_READERS_MAX / 64];  /* readers that have to agree */
	uint64_t tell[STORE_READERS_MAX / 64]; /* readers that haven't been asked yet */
};

enum entry_list { LIST_PROBATION, LIST_MAIN, LISTS };

/* All guarded by the store's lock, except that mem's bytes stay while refs counts somebody. */
struct entry {
	struct entry *next; /* of its bucket */
	struct shelf *shelf;
	struct chunk_name name;
	uint8_t *mem; /* NULL: on disk only */
	uint32_t refs;
	enum entry_list list;
	struct entry *older, *newer;		 /* in that list */
	uint64_t serial;			 /* in the order in which readers are told */
	struct entry *told_before, *told_after;
	struct entry *write_next, *write_prev;	 /* wait for the disk */
	struct fetch *waiters;			 /* while loading */
	struct drop *drop;			 /* it is on its way out */
	bool write_wanted;
	bool writing;
	bool loading;
	bool on_disk;
	bool verified; /* since the start */
	bool durable;  /* worth the disk: of a file, or seen twice */
	bool pinned;
	bool bad;
};

struct reader_of_shelf {
	struct reader_of_shelf *next;
	struct shelf *shelf;
	unsigned index;
	struct entry *ahead; /* the next to be told of; NULL: none yet */
	uint64_t seen;	     /* serial of the newest that it was told of, or passed over */
};

struct shelf {
	struct shelf *next;
	struct store *store;
	char tenant[KEY_TENANT_SIZE];
	uint8_t salt[CACHE_SALT_SIZE];
	char tag[17]; /* of its folder: from the salt */
	struct job scan;
	bool disk; /* its folder is there and ours; guarded by lock */
	bool dirty; /* its index on disk is older than its books */
	struct entry **buckets;
	uint32_t bucket_count; /* a power of two */
	struct entry *told_first, *told_last;
	uint64_t serial;
	struct reader_of_shelf *readers;
	uint64_t reader_mask[STORE_READERS_MAX / 64];
	struct drop *drops;
	struct mark *marks; /* NULL: none yet */
	struct cache_stats stats;
};

/* A chunk that comes in pieces. */
struct part {
	struct part *next;
	struct shelf *shelf;
	uint64_t tag;
	uint32_t total;
	uint32_t busy; /* threads that copy into it */
	uint64_t age;
	uint8_t *block;
	struct part_span *spans; /* what has come, in order, apart */
	uint32_t span_count;
	uint32_t span_max;
};

struct part_span {
	uint32_t at, end;
};

struct store {
	/* set when it is made, then only read */
	struct store_setting setting;
	void (*news)(void *owner);
	void *owner;
	bool few_cores;
	struct jobs *work; /* copies that somebody waits for */
	struct jobs *hash; /* names of what has come: when the machine has nothing else to do */
	struct jobs *disk; /* one thread: the disk's */

	pthread_mutex_t lock;
	/* guarded by lock */
	struct blocks blocks;
	struct shelf *shelves;
	struct entry *newest[LISTS], *oldest[LISTS];
	uint64_t memory_of[LISTS]; /* bytes of their chunks in memory, and on disk */
	uint64_t disk_of[LISTS];
	struct entry *write_first, *write_last;
	struct job write_job;
	bool write_posted;
	uint64_t disk_rest_until; /* clock_ns() */
	uint64_t indexed_ns;	  /* when the indices were written last */
	uint64_t room_wanted;	  /* bytes that found no place */
	uint64_t coming;	  /* bytes in blocks that are no chunks yet */
	struct pressure pressure; /* of the threads that make names */
	struct part *parts;
	uint32_t part_count;
	uint64_t part_age;
	struct log_limit limit;
	bool stopping;

	/* the disk's thread */
	int folder_lock; /* -1; the descriptor that keeps other daemons out */
};

/* store_books.c */
struct entry *shelf_find_locked(struct shelf *shelf, const uint8_t hash[CACHE_HASH_SIZE]);
struct entry *shelf_find_head_locked(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE]);
/* A new one, told to readers; NULL: out of memory. */
struct entry *entry_add_locked(struct shelf *shelf, const struct chunk_name *name);
/* To the main list, as the newest. */
void entry_promote_locked(struct entry *entry);
/* Seen again: promoted, and worth the disk. */
void entry_touch_locked(struct entry *entry);
/* It goes when readers agree and nobody uses it. */
void entry_drop_locked(struct entry *entry);
void entry_put_locked(struct entry *entry);
void entry_put(struct entry *entry); /* takes the lock */
/* One that is on its way out goes now, if nobody holds it any more. */
void drop_settle_locked(struct entry *entry);
/* At once: nobody uses it. Its file goes, too, if it has one. */
void entry_free_locked(struct entry *entry);
/* A block for @size bytes, for which the memory of chunks that are on disk as well is given up; NULL: no room now. */
uint8_t *store_block_locked(struct store *store, uint32_t size);
/* The same for bytes that come, of which a quarter of the memory may wait for their names; given back by coming_end. */
uint8_t *store_coming_locked(struct store *store, uint32_t size);
void store_coming_end_locked(struct store *store, uint8_t *block, uint32_t size);
/* The oldest that may go. @main_full: the main list has more than its share of the tier, so it gives before probation. */
struct entry *store_victim_locked(struct store *store, bool main_full, bool (*may_go)(const struct entry *entry));
/* Its bytes are in a block, on disk. */
void entry_memory_locked(struct entry *entry, uint8_t *block);
void entry_disk_locked(struct entry *entry, bool on_disk);
uint64_t store_disk_used_locked(const struct store *store);

/* store_bytes.c */
/* Has come whole: takes @block, hashes it on a thread of the pool. @durable: bytes of a file. @mark: that it is known by until then. */
void shelf_put(struct shelf *shelf, uint8_t *block, uint32_t size, bool durable, uint64_t mark);

/* store_mark.c */
void shelf_mark_locked(struct shelf *shelf, uint64_t mark, const struct chunk_name *name);

/* store_part.c: pieces of a chunk. */
void part_keep(struct shelf *shelf, const struct bulk_keep *keep, const uint8_t *bytes, uint32_t size);
void parts_drop_locked(struct store *store);

/* store_disk.c; these without the lock unless named so. */
void disk_start(struct shelf *shelf); /* reads what is there, on the disk's thread */
void disk_write_later_locked(struct entry *entry);
void disk_forget_locked(struct entry *entry); /* its file goes */
int disk_read(struct entry *entry, uint8_t *block);
void disk_stop(struct store *store);

#endif
