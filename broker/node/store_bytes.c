/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of chunks: coming in from links, going out to workers, from memory or from disk. Any thread; see store.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/node/store_private.h"

/* ---- coming in ---- */

struct put {
	struct job job;
	struct shelf *shelf;
	uint8_t *block;
	uint32_t size;
	bool durable;
	uint64_t mark;
};

/* What this thread has had of a core. */
static uint64_t thread_ns(void)
{
	struct timespec ts = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void put_run(struct job *job)
{
	struct put *put = (struct put *)job;
	struct shelf *shelf = put->shelf;
	struct store *store = shelf->store;
	struct chunk_name name;
	struct entry *entry = NULL;
	bool fresh = false, pressed;
	uint64_t wall_ns = clock_ns(), cpu_ns = thread_ns();
	int err = jobs_are_ending(store->hash) ? -ECANCELED : chunk_name(shelf->salt, put->block, put->size, &name);

	cpu_ns = thread_ns() - cpu_ns;
	pthread_mutex_lock(&store->lock);
	pressed = pressure_is(&store->pressure, wall_ns);
	pressure_add(&store->pressure, clock_ns() - wall_ns, cpu_ns, clock_ns());
	pressed = pressed != pressure_is(&store->pressure, clock_ns());
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
	if (entry && !entry->drop)
		shelf_mark_locked(shelf, put->mark, &name);
	if (fresh) {
		entry->verified = true;
		entry->durable = put->durable;
		disk_write_later_locked(entry);
	}
	store_coming_end_locked(store, put->block, put->size);
	pthread_mutex_unlock(&store->lock);
	if (fresh || pressed)
		store->news(store->owner);
	free(put);
}

void shelf_put(struct shelf *shelf, uint8_t *block, uint32_t size, bool durable, uint64_t mark)
{
	struct store *store = shelf->store;
	struct put *put = calloc(1, sizeof(*put));

	if (!put) {
		pthread_mutex_lock(&store->lock);
		store_coming_end_locked(store, block, size);
		pthread_mutex_unlock(&store->lock);
		return;
	}
	*put = (struct put){ .job.run = put_run, .shelf = shelf, .block = block, .size = size, .durable = durable, .mark = mark };
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
	shelf_put(shelf, block, size, keep->tag != 0, keep->mark);
}

/* ---- going out ---- */

static void fetch_copy(struct fetch *fetch, const uint8_t *bytes)
{
	if (fetch->begin)
		fetch->begin(fetch);
	memcpy(fetch->place, bytes + fetch->at, fetch->size);
}

/* The chunk is in memory, and counted. */
static void fetch_serve(struct fetch *fetch, const uint8_t *mem)
{
	struct entry *entry = fetch->entry;

	fetch_copy(fetch, mem);
	entry_put(entry);
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
			entry_put(entry);
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
		fetch_copy(fetch, block ? block : own);
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
		if (!fetch->quiet) {
			shelf->stats.hits++;
			shelf->stats.saved += fetch->size;
		}
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
