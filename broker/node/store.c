/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's books: which chunks there are, who has been told of them, which go for room. Any thread; see store.h.
 *
 * A chunk is in one of two lists. It begins in probation, in the order of arrival; a second sight takes it to the main list,
 * which is in the order of use. What goes for room is the oldest of probation, unless the main list has more than three quarters of
 * the tier: what is seen once can't push out what is used again and again, nor is it left without any room.
 */
#include "broker/node/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/node/store_private.h"

#define SHELF_BUCKETS 1024u /* at first; doubled when there are as many chunks */

/* ---- lists ---- */

static void list_add(struct entry *entry, enum entry_list list)
{
	struct store *store = entry->shelf->store;

	entry->list = list;
	entry->newer = NULL;
	entry->older = store->newest[list];
	if (entry->older)
		entry->older->newer = entry;
	else
		store->oldest[list] = entry;
	store->newest[list] = entry;
	store->memory_of[list] += entry->mem ? entry->name.size : 0;
	store->disk_of[list] += entry->on_disk ? entry->name.size : 0;
}

static void list_remove(struct entry *entry)
{
	struct store *store = entry->shelf->store;

	if (entry->newer)
		entry->newer->older = entry->older;
	else
		store->newest[entry->list] = entry->older;
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		store->oldest[entry->list] = entry->newer;
	store->memory_of[entry->list] -= entry->mem ? entry->name.size : 0;
	store->disk_of[entry->list] -= entry->on_disk ? entry->name.size : 0;
}

void entry_memory_locked(struct entry *entry, uint8_t *block)
{
	entry->mem = block;
	entry->shelf->stats.memory += entry->name.size;
	entry->shelf->store->memory_of[entry->list] += entry->name.size;
}

void entry_disk_locked(struct entry *entry, bool on_disk)
{
	struct shelf *shelf = entry->shelf;
	/* Wraps for those that leave. */
	uint64_t more = on_disk ? entry->name.size : -(uint64_t)entry->name.size;

	entry->on_disk = on_disk;
	shelf->stats.disk += more;
	shelf->store->disk_of[entry->list] += more;
	shelf->dirty = true;
}

uint64_t store_disk_used_locked(const struct store *store)
{
	return store->disk_of[LIST_PROBATION] + store->disk_of[LIST_MAIN];
}

void entry_promote_locked(struct entry *entry)
{
	list_remove(entry);
	list_add(entry, LIST_MAIN);
}

/* Seen again. */
static void entry_touch_locked(struct entry *entry)
{
	entry_promote_locked(entry);
	entry->durable = true;
	disk_write_later_locked(entry);
}

struct entry *store_victim_locked(struct store *store, bool main_full, bool (*may_go)(const struct entry *entry))
{
	enum entry_list first = main_full ? LIST_MAIN : LIST_PROBATION;

	for (unsigned i = 0; i < LISTS; i++) {
		unsigned looked = 0;

		for (struct entry *entry = store->oldest[i ? !first : first]; entry && looked < STORE_LOOK_MAX;
		     entry = entry->newer, looked++)
			if (!entry->refs && !entry->drop && !entry->writing && !entry->loading && may_go(entry))
				return entry;
	}
	return NULL;
}

/* ---- the table ---- */

static struct entry **bucket_of(struct shelf *shelf, const uint8_t *hash)
{
	uint64_t key;

	memcpy(&key, hash, sizeof(key));
	return &shelf->buckets[key & (shelf->bucket_count - 1)];
}

struct entry *shelf_find_locked(struct shelf *shelf, const uint8_t hash[CACHE_HASH_SIZE])
{
	for (struct entry *entry = *bucket_of(shelf, hash); entry; entry = entry->next)
		if (memcmp(entry->name.hash, hash, CACHE_HASH_SIZE) == 0)
			return entry;
	return NULL;
}

struct entry *shelf_find_head_locked(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE])
{
	for (struct entry *entry = *bucket_of(shelf, head); entry; entry = entry->next)
		if (memcmp(entry->name.hash, head, CACHE_HEAD_SIZE) == 0)
			return entry;
	return NULL;
}

/* Without memory for a bigger one the table stays, and is slower. */
static void table_grow(struct shelf *shelf)
{
	struct entry **old = shelf->buckets;
	struct entry **grown = calloc(2 * (size_t)shelf->bucket_count, sizeof(*grown));
	uint32_t count = shelf->bucket_count;

	if (!grown)
		return;
	shelf->buckets = grown;
	shelf->bucket_count = 2 * count;
	for (uint32_t i = 0; i < count; i++) {
		struct entry *entry = old[i];

		while (entry) {
			struct entry *next = entry->next;
			struct entry **bucket = bucket_of(shelf, entry->name.hash);

			entry->next = *bucket;
			*bucket = entry;
			entry = next;
		}
	}
	free(old);
}

struct entry *entry_add_locked(struct shelf *shelf, const struct chunk_name *name)
{
	struct entry *entry = calloc(1, sizeof(*entry));
	struct entry **bucket;

	if (!entry)
		return NULL;
	if (shelf->stats.entries >= shelf->bucket_count)
		table_grow(shelf);
	bucket = bucket_of(shelf, name->hash);
	entry->shelf = shelf;
	entry->name = *name;
	entry->next = *bucket;
	*bucket = entry;
	entry->serial = ++shelf->serial;
	entry->told_before = shelf->told_last;
	if (entry->told_before)
		entry->told_before->told_after = entry;
	else
		shelf->told_first = entry;
	shelf->told_last = entry;
	for (struct reader_of_shelf *reader = shelf->readers; reader; reader = reader->next)
		if (!reader->ahead)
			reader->ahead = entry;
	list_add(entry, LIST_PROBATION);
	shelf->stats.entries++;
	shelf->stats.bytes += name->size;
	shelf->dirty = true;
	return entry;
}

static void memory_give_locked(struct entry *entry)
{
	if (!entry->mem)
		return;
	block_give(&entry->shelf->store->blocks, entry->mem, entry->name.size);
	entry->mem = NULL;
	entry->shelf->stats.memory -= entry->name.size;
	entry->shelf->store->memory_of[entry->list] -= entry->name.size;
}

static void entry_free_locked(struct entry *entry)
{
	struct shelf *shelf = entry->shelf;

	for (struct entry **at = bucket_of(shelf, entry->name.hash); *at; at = &(*at)->next) {
		if (*at == entry) {
			*at = entry->next;
			break;
		}
	}
	for (struct reader_of_shelf *reader = shelf->readers; reader; reader = reader->next)
		if (reader->ahead == entry)
			reader->ahead = entry->told_after;
	if (entry->told_before)
		entry->told_before->told_after = entry->told_after;
	else
		shelf->told_first = entry->told_after;
	if (entry->told_after)
		entry->told_after->told_before = entry->told_before;
	else
		shelf->told_last = entry->told_before;
	disk_forget_locked(entry);
	memory_give_locked(entry);
	list_remove(entry);
	shelf->stats.entries--;
	shelf->stats.bytes -= entry->name.size;
	shelf->dirty = true;
	if (entry->drop) {
		*entry->drop->before = entry->drop->next;
		if (entry->drop->next)
			entry->drop->next->before = entry->drop->before;
		free(entry->drop);
	}
	free(entry);
}

/* ---- the end of a chunk ---- */

static void drop_settle_locked(struct entry *entry)
{
	for (unsigned i = 0; i < STORE_READERS_MAX / 64; i++)
		if (entry->drop->owe[i])
			return;
	if (!entry->refs && !entry->writing && !entry->loading)
		entry_free_locked(entry);
}

void entry_drop_locked(struct entry *entry)
{
	struct shelf *shelf = entry->shelf;
	struct drop *drop;

	if (entry->drop)
		return;
	drop = calloc(1, sizeof(*drop));
	if (!drop)
		return; /* another time */
	drop->entry = entry;
	drop->before = &shelf->drops;
	drop->next = shelf->drops;
	if (drop->next)
		drop->next->before = &drop->next;
	shelf->drops = drop;
	entry->drop = drop;
	for (struct reader_of_shelf *reader = shelf->readers; reader; reader = reader->next) {
		if (reader->seen < entry->serial)
			continue;
		drop->owe[reader->index / 64] |= 1ull << reader->index % 64;
		drop->tell[reader->index / 64] |= 1ull << reader->index % 64;
	}
	drop_settle_locked(entry);
}

void entry_put_locked(struct entry *entry)
{
	assert(entry->refs);
	entry->refs--;
	if (entry->drop)
		drop_settle_locked(entry);
}

/* ---- room ---- */

static bool memory_main_full(const struct store *store)
{
	return store->memory_of[LIST_MAIN] > store->blocks.size - store->blocks.size / 4;
}

static bool memory_may_go(const struct entry *entry)
{
	return entry->mem && entry->on_disk;
}

static bool memory_only_may_go(const struct entry *entry)
{
	return entry->mem && !entry->on_disk && !entry->pinned;
}

uint8_t *store_block_locked(struct store *store, uint32_t size)
{
	uint8_t *block = block_take(&store->blocks, size);

	for (unsigned i = 0; !block && i < STORE_LOOK_MAX; i++) {
		struct entry *entry = store_victim_locked(store, memory_main_full(store), memory_may_go);

		if (!entry)
			break;
		memory_give_locked(entry);
		block = block_take(&store->blocks, size);
	}
	if (!block) {
		store->room_wanted += size;
		store->news(store->owner);
	}
	return block;
}

uint8_t *store_coming_locked(struct store *store, uint32_t size)
{
	uint8_t *block;

	if (store->coming + size > store->blocks.size / 4)
		return NULL; /* faster than they can be hashed: the rest comes another time */
	block = store_block_locked(store, size);
	if (block)
		store->coming += size;
	return block;
}

void store_coming_end_locked(struct store *store, uint8_t *block, uint32_t size)
{
	store->coming -= size;
	if (block)
		block_give(&store->blocks, block, size);
}

void store_tidy(struct store *store)
{
	uint64_t want;

	pthread_mutex_lock(&store->lock);
	want = store->room_wanted;
	store->room_wanted = 0;
	/* At once for what comes next: a drop takes a round trip. */
	if (want && want < store->blocks.size / 32)
		want = store->blocks.size / 32;
	while (want) {
		struct entry *entry = store_victim_locked(store, memory_main_full(store), memory_only_may_go);
		uint64_t size;

		if (!entry)
			break;
		size = block_size(entry->name.size);
		entry->shelf->stats.evictions++;
		entry_drop_locked(entry);
		want = want > size ? want - size : 0;
	}
	pthread_mutex_unlock(&store->lock);
}

/* ---- coming in ---- */

struct put {
	struct job job;
	struct shelf *shelf;
	uint8_t *block;
	uint32_t size;
	bool durable;
};

static void put_run(struct job *job)
{
	struct put *put = (struct put *)job;
	struct shelf *shelf = put->shelf;
	struct store *store = shelf->store;
	struct chunk_name name;
	struct entry *entry = NULL;
	bool fresh = false;
	int err = jobs_are_ending(store->hash) ? -ECANCELED : chunk_name(shelf->salt, put->block, put->size, &name);

	pthread_mutex_lock(&store->lock);
	if (!err && !store->stopping) {
		entry = shelf_find_locked(shelf, name.hash);
		if (!entry) {
			entry = entry_add_locked(shelf, &name);
			fresh = entry != NULL;
		} else if (!entry->drop) {
			entry_touch_locked(entry);
		}
	}
	if (entry && !entry->mem && !entry->drop && !entry->loading) {
		entry_memory_locked(entry, put->block);
		put->block = NULL;
	}
	if (fresh) {
		entry->verified = true;
		entry->durable = put->durable;
		disk_write_later_locked(entry);
	}
	store_coming_end_locked(store, put->block, put->size);
	pthread_mutex_unlock(&store->lock);
	if (fresh)
		store->news(store->owner);
	free(put);
}

void shelf_put(struct shelf *shelf, uint8_t *block, uint32_t size, bool durable)
{
	struct store *store = shelf->store;
	struct put *put = calloc(1, sizeof(*put));

	if (!put) {
		pthread_mutex_lock(&store->lock);
		store_coming_end_locked(store, block, size);
		pthread_mutex_unlock(&store->lock);
		return;
	}
	*put = (struct put){ .job.run = put_run, .shelf = shelf, .block = block, .size = size, .durable = durable };
	jobs_post(store->hash, &put->job);
}

void shelf_keep(struct shelf *shelf, const struct bulk_keep *keep, const uint8_t *bytes, uint32_t size)
{
	struct store *store = shelf->store;
	uint8_t *block;

	if (keep->total != size) {
		part_keep(shelf, keep, bytes, size);
		return;
	}
	pthread_mutex_lock(&store->lock);
	shelf->stats.misses++;
	block = store_coming_locked(store, size);
	pthread_mutex_unlock(&store->lock);
	if (!block)
		return;
	memcpy(block, bytes, size);
	shelf_put(shelf, block, size, keep->tag != 0);
}

/* ---- going out ---- */

/* The chunk is in memory, and counted. */
static void fetch_serve(struct fetch *fetch, const uint8_t *mem)
{
	struct store *store = fetch->shelf->store;
	struct entry *entry = fetch->entry;

	memcpy(fetch->place, mem + fetch->at, fetch->size);
	pthread_mutex_lock(&store->lock);
	entry_put_locked(entry);
	pthread_mutex_unlock(&store->lock);
	fetch->done(fetch, 0);
}

static void fetch_run(struct job *job);

/* What has waited for the disk. The caller is not one of them. */
static void waiters_go(struct store *store, struct fetch *waiters, struct entry *entry, int err)
{
	while (waiters) {
		struct fetch *next = waiters->next;

		if (!err) {
			waiters->job.run = fetch_run;
			jobs_post(store->work, &waiters->job);
		} else {
			pthread_mutex_lock(&store->lock);
			entry_put_locked(entry);
			pthread_mutex_unlock(&store->lock);
			waiters->done(waiters, err);
		}
		waiters = next;
	}
}

/* From the disk into memory, or past it where there is no room; checked against its name. */
static void fetch_load(struct fetch *fetch)
{
	struct shelf *shelf = fetch->shelf;
	struct store *store = shelf->store;
	struct entry *entry = fetch->entry;
	struct fetch *waiters;
	uint8_t *block, *own = NULL;
	uint32_t size = entry->name.size;
	struct chunk_name name;
	bool verified;
	int err;

	pthread_mutex_lock(&store->lock);
	block = store_block_locked(store, size);
	verified = entry->verified;
	pthread_mutex_unlock(&store->lock);
	if (!block)
		own = malloc(size);
	err = block || own ? disk_read(entry, block ? block : own) : -ENOMEM;
	if (!err && !verified)
		err = chunk_name(shelf->salt, block ? block : own, size, &name);
	if (!err && !verified && memcmp(&name, &entry->name, sizeof(name)) != 0)
		err = -EBADMSG;
	if (!err)
		memcpy(fetch->place, (block ? block : own) + fetch->at, fetch->size);
	free(own);
	pthread_mutex_lock(&store->lock);
	entry->loading = false;
	waiters = entry->waiters;
	entry->waiters = NULL;
	if (!err) {
		entry->verified = true;
		if (block)
			entry_memory_locked(entry, block);
	} else {
		if (block)
			block_give(&store->blocks, block, size);
		if (err != -ENOMEM) {
			char text[CHUNK_TEXT_SIZE];
			uint32_t dropped;

			chunk_text(entry->name.hash, CACHE_HASH_SIZE, text);
			if (log_limit_take(&store->limit, &dropped))
				log_warn("weight cache: chunk %s %s: dropped, its bytes are sent again", text,
					 err == -EBADMSG ? "is damaged on disk" : "can't be read from disk");
			entry->bad = true;
			shelf->stats.damaged++;
			entry_drop_locked(entry);
		}
	}
	entry_put_locked(entry);
	pthread_mutex_unlock(&store->lock);
	if (err)
		store->news(store->owner);
	waiters_go(store, waiters, entry, err);
	fetch->done(fetch, err);
}

static void fetch_run(struct job *job)
{
	struct fetch *fetch = (struct fetch *)job;
	struct store *store = fetch->shelf->store;
	struct entry *entry = fetch->entry;
	const uint8_t *mem;
	bool bad, load = false;

	pthread_mutex_lock(&store->lock);
	mem = entry->mem;
	bad = entry->bad;
	if (bad) {
		entry_put_locked(entry);
	} else if (!mem) {
		load = !entry->loading;
		if (load) {
			entry->loading = true;
		} else {
			fetch->next = entry->waiters;
			entry->waiters = fetch;
		}
	}
	pthread_mutex_unlock(&store->lock);
	if (bad)
		fetch->done(fetch, -EBADMSG);
	else if (mem)
		fetch_serve(fetch, mem); /* what is in memory stays there while it is counted */
	else if (load)
		fetch_load(fetch);
}

int shelf_fetch(struct shelf *shelf, const uint8_t hash[CACHE_HASH_SIZE], uint32_t total, struct fetch *fetch)
{
	struct store *store = shelf->store;
	struct entry *entry;
	int err = 0;

	pthread_mutex_lock(&store->lock);
	entry = shelf_find_locked(shelf, hash);
	if (!entry)
		err = -ENOENT;
	else if (entry->name.size != total || fetch->at > total || fetch->size > total - fetch->at)
		err = -ERANGE;
	if (!err) {
		entry->refs++;
		if (!entry->drop)
			entry_touch_locked(entry);
		shelf->stats.hits++;
		shelf->stats.saved += fetch->size;
	}
	pthread_mutex_unlock(&store->lock);
	if (err)
		return err;
	fetch->shelf = shelf;
	fetch->entry = entry;
	fetch->job.run = fetch_run;
	jobs_post(store->work, &fetch->job);
	return 0;
}

/* ---- readers ---- */

struct reader_of_shelf *shelf_read(struct shelf *shelf)
{
	struct reader_of_shelf *reader = calloc(1, sizeof(*reader));
	unsigned index = 0;

	if (!reader)
		return NULL;
	pthread_mutex_lock(&shelf->store->lock);
	while (index < STORE_READERS_MAX && shelf->reader_mask[index / 64] & 1ull << index % 64)
		index++;
	if (index < STORE_READERS_MAX) {
		shelf->reader_mask[index / 64] |= 1ull << index % 64;
		*reader = (struct reader_of_shelf){ .next = shelf->readers, .shelf = shelf, .index = index,
						    .ahead = shelf->told_first };
		shelf->readers = reader;
	}
	pthread_mutex_unlock(&shelf->store->lock);
	if (index < STORE_READERS_MAX)
		return reader;
	free(reader);
	return NULL;
}

static bool drop_agree_locked(struct drop *drop, unsigned index)
{
	uint64_t bit = 1ull << index % 64;

	if (!(drop->owe[index / 64] & bit))
		return false;
	drop->owe[index / 64] &= ~bit;
	drop->tell[index / 64] &= ~bit;
	drop_settle_locked(drop->entry);
	return true;
}

void shelf_read_end(struct reader_of_shelf *reader)
{
	struct shelf *shelf = reader->shelf;

	pthread_mutex_lock(&shelf->store->lock);
	for (struct reader_of_shelf **at = &shelf->readers; *at; at = &(*at)->next) {
		if (*at == reader) {
			*at = reader->next;
			break;
		}
	}
	shelf->reader_mask[reader->index / 64] &= ~(1ull << reader->index % 64);
	for (struct drop *drop = shelf->drops, *next; drop; drop = next) {
		next = drop->next;
		drop_agree_locked(drop, reader->index);
	}
	pthread_mutex_unlock(&shelf->store->lock);
	free(reader);
}

unsigned reader_news(struct reader_of_shelf *reader, struct cache_id *ids_out, unsigned max)
{
	struct shelf *shelf = reader->shelf;
	unsigned count = 0;

	pthread_mutex_lock(&shelf->store->lock);
	while (reader->ahead && count < max) {
		struct entry *entry = reader->ahead;

		if (!entry->drop)
			ids_out[count++] = chunk_id(&entry->name);
		reader->seen = entry->serial;
		reader->ahead = entry->told_after;
	}
	pthread_mutex_unlock(&shelf->store->lock);
	return count;
}

unsigned reader_drops(struct reader_of_shelf *reader, struct cache_id *ids_out, unsigned max)
{
	struct shelf *shelf = reader->shelf;
	uint64_t bit = 1ull << reader->index % 64;
	unsigned count = 0;

	pthread_mutex_lock(&shelf->store->lock);
	for (struct drop *drop = shelf->drops; drop && count < max; drop = drop->next) {
		if (!(drop->tell[reader->index / 64] & bit))
			continue;
		drop->tell[reader->index / 64] &= ~bit;
		ids_out[count++] = chunk_id(&drop->entry->name);
	}
	pthread_mutex_unlock(&shelf->store->lock);
	return count;
}

int reader_dropped(struct reader_of_shelf *reader, const struct cache_id *id)
{
	struct shelf *shelf = reader->shelf;
	struct entry *entry;
	int err = -EPROTO;

	pthread_mutex_lock(&shelf->store->lock);
	entry = shelf_find_head_locked(shelf, id->head);
	if (entry && entry->drop && drop_agree_locked(entry->drop, reader->index))
		err = 0;
	pthread_mutex_unlock(&shelf->store->lock);
	return err;
}

/* ---- commands ---- */

static bool head_is_all(const uint8_t head[CACHE_HEAD_SIZE])
{
	static const uint8_t zeros[CACHE_HEAD_SIZE];

	return memcmp(head, zeros, sizeof(zeros)) == 0;
}

int shelf_pin(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], bool pin)
{
	struct entry *entry = NULL;

	pthread_mutex_lock(&shelf->store->lock);
	if (head_is_all(head)) {
		for (entry = shelf->told_first; entry; entry = entry->told_after)
			entry->pinned = pin;
	} else {
		entry = shelf_find_head_locked(shelf, head);
		if (entry)
			entry->pinned = pin;
	}
	shelf->dirty = true;
	if (entry && pin) {
		entry->durable = true;
		disk_write_later_locked(entry);
	}
	pthread_mutex_unlock(&shelf->store->lock);
	return entry || head_is_all(head) ? 0 : -ENOENT;
}

int shelf_drop(struct shelf *shelf, const uint8_t head[CACHE_HEAD_SIZE], uint64_t *count_out)
{
	struct entry *entry;
	uint64_t count = 0;
	bool all = head_is_all(head);

	pthread_mutex_lock(&shelf->store->lock);
	entry = all ? shelf->told_first : shelf_find_head_locked(shelf, head);
	while (entry) {
		struct entry *next = all ? entry->told_after : NULL;

		if (!entry->drop && !(all && entry->pinned)) {
			entry_drop_locked(entry);
			count++;
		}
		entry = next;
	}
	pthread_mutex_unlock(&shelf->store->lock);
	shelf->store->news(shelf->store->owner);
	*count_out = count;
	return all || count ? 0 : -ENOENT;
}

/* 0: sound. The entry is counted. */
static int verify_one(struct shelf *shelf, struct entry *entry)
{
	struct store *store = shelf->store;
	uint32_t size = entry->name.size;
	uint8_t *bytes = malloc(size);
	struct chunk_name name;
	bool on_disk;
	int err = bytes ? 0 : -ENOMEM;

	pthread_mutex_lock(&store->lock);
	on_disk = entry->on_disk;
	if (!err && !on_disk && entry->mem)
		memcpy(bytes, entry->mem, size);
	pthread_mutex_unlock(&store->lock);
	if (!err && on_disk)
		err = disk_read(entry, bytes);
	if (!err)
		err = chunk_name(shelf->salt, bytes, size, &name);
	if (!err && memcmp(&name, &entry->name, sizeof(name)) != 0)
		err = -EBADMSG;
	free(bytes);
	pthread_mutex_lock(&store->lock);
	if (!err) {
		entry->verified = true;
	} else if (err != -ENOMEM) {
		shelf->stats.damaged++;
		/* The copy in memory was right when it came; another one is written from there. */
		if (entry->mem && on_disk) {
			disk_forget_locked(entry);
			disk_write_later_locked(entry);
		} else {
			entry->bad = true;
			entry_drop_locked(entry);
		}
	}
	entry_put_locked(entry);
	pthread_mutex_unlock(&store->lock);
	return err;
}

static void verify_run(struct job *job)
{
	struct verify *verify = (struct verify *)job;
	struct shelf *shelf = verify->shelf;
	struct store *store = shelf->store;
	bool all = head_is_all(verify->head);
	uint64_t damaged = 0, serial = 0;
	int err = all ? 0 : -ENOENT;

	while (!jobs_are_ending(store->work)) {
		struct entry *entry;

		pthread_mutex_lock(&store->lock);
		entry = all ? shelf->told_first : shelf_find_head_locked(shelf, verify->head);
		/* What goes meanwhile is no loss; serials only grow. */
		while (all && entry && (entry->serial <= serial || entry->drop))
			entry = entry->told_after;
		if (entry && entry->drop)
			entry = NULL;
		if (entry) {
			entry->refs++;
			serial = entry->serial;
		}
		pthread_mutex_unlock(&store->lock);
		if (!entry)
			break;
		err = verify_one(shelf, entry);
		damaged += err == -EBADMSG || err == -EIO;
		if (!all)
			break;
		err = 0;
	}
	if (damaged)
		store->news(store->owner);
	verify->done(verify, err, damaged);
}

void shelf_verify(struct shelf *shelf, struct verify *verify)
{
	verify->shelf = shelf;
	verify->job.run = verify_run;
	jobs_post(shelf->store->work, &verify->job);
}

void shelf_stats(struct shelf *shelf, struct cache_stats *stats_out)
{
	pthread_mutex_lock(&shelf->store->lock);
	*stats_out = shelf->stats;
	pthread_mutex_unlock(&shelf->store->lock);
}

/* ---- life ---- */

struct store *store_new(const struct store_setting *setting, void (*news)(void *owner), void *owner)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->setting = *setting;
	store->news = news;
	store->owner = owner;
	store->folder_lock = -1;
	if (!*setting->dir)
		store->setting.disk = 0;
	store->work = jobs_new(jobs_threads(), "gleam-store", false);
	store->hash = jobs_new(jobs_threads(), "gleam-hash", true);
	store->disk = jobs_new(1, "gleam-disk", false);
	if (!store->work || !store->hash || !store->disk || blocks_init(&store->blocks, setting->memory)) {
		jobs_free(store->work);
		jobs_free(store->hash);
		jobs_free(store->disk);
		free(store);
		return NULL;
	}
	pthread_mutex_init(&store->lock, NULL);
	return store;
}

void store_free(struct store *store)
{
	struct shelf *shelf;

	if (!store)
		return;
	pthread_mutex_lock(&store->lock);
	store->stopping = true;
	pthread_mutex_unlock(&store->lock);
	jobs_free(store->work);
	jobs_free(store->hash);
	jobs_free(store->disk);
	disk_stop(store);
	parts_drop_locked(store);
	while ((shelf = store->shelves)) {
		assert(!shelf->readers);
		while (shelf->told_first) {
			/* The files stay. */
			if (shelf->told_first->on_disk)
				entry_disk_locked(shelf->told_first, false);
			entry_free_locked(shelf->told_first);
		}
		store->shelves = shelf->next;
		free(shelf->buckets);
		free(shelf);
	}
	blocks_fini(&store->blocks);
	pthread_mutex_destroy(&store->lock);
	free(store);
}

struct shelf *store_shelf(struct store *store, const char *tenant, const uint8_t salt[CACHE_SALT_SIZE])
{
	struct shelf *shelf;

	pthread_mutex_lock(&store->lock);
	for (shelf = store->shelves; shelf; shelf = shelf->next)
		if (memcmp(shelf->salt, salt, CACHE_SALT_SIZE) == 0 && strcmp(shelf->tenant, tenant) == 0)
			break;
	pthread_mutex_unlock(&store->lock);
	if (shelf)
		return shelf;
	shelf = calloc(1, sizeof(*shelf));
	if (!shelf)
		return NULL;
	shelf->store = store;
	shelf->bucket_count = SHELF_BUCKETS;
	shelf->buckets = calloc(SHELF_BUCKETS, sizeof(struct entry *));
	if (!shelf->buckets) {
		free(shelf);
		return NULL;
	}
	strncpy(shelf->tenant, tenant, sizeof(shelf->tenant) - 1);
	memcpy(shelf->salt, salt, CACHE_SALT_SIZE);
	pthread_mutex_lock(&store->lock);
	shelf->next = store->shelves;
	store->shelves = shelf;
	pthread_mutex_unlock(&store->lock);
	disk_start(shelf);
	return shelf;
}
