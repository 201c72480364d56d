/* SPDX-License-Identifier: Apache-2.0 */
/* Those who are told of chunks, and asked before one goes. Any thread; see store.h. */
#include <errno.h>
#include <stdlib.h>

#include "broker/node/store_private.h"

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
