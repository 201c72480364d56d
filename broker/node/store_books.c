/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's books: which chunks there are, and which go for room. Any thread, with the store's lock; see store_private.h.
 *
 * A chunk is in one of two lists. It begins in probation, in the order of arrival; a second sight takes it to the main list,
 * which is in the order of use. What goes for room is the oldest of probation, unless the main list has more than three quarters of
 * the tier: what is seen once can't push out what is used again and again, nor is it left without any room.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/node/store_private.h"

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

void entry_touch_locked(struct entry *entry)
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

void entry_free_locked(struct entry *entry)
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

void drop_settle_locked(struct entry *entry)
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

void entry_put(struct entry *entry)
{
	struct store *store = entry->shelf->store;

	pthread_mutex_lock(&store->lock);
	entry_put_locked(entry);
	pthread_mutex_unlock(&store->lock);
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
