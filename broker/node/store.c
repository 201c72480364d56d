/* SPDX-License-Identifier: Apache-2.0 */
/* The store and its shelves: made, asked how they are, ended. Any thread; see store.h. The other files do the work. */
#include "broker/node/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/node/store_private.h"

#define SHELF_BUCKETS 1024u /* at first; doubled when there are as many chunks */

void shelf_stats(struct shelf *shelf, struct cache_stats *stats_out)
{
	pthread_mutex_lock(&shelf->store->lock);
	*stats_out = shelf->stats;
	stats_out->pressed = shelf->store->few_cores && pressure_is(&shelf->store->pressure, clock_ns());
	pthread_mutex_unlock(&shelf->store->lock);
}

struct store *store_new(const struct store_setting *setting, void (*news)(void *owner), void *owner)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->setting = *setting;
	store->news = news;
	store->owner = owner;
	store->folder_lock = -1;
	store->few_cores = sysconf(_SC_NPROCESSORS_ONLN) < STORE_CORES_FEW;
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
		free(shelf->marks);
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
