/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What chunks were known by when their bytes came, before they had names: marks of pieces and of chunks that came in pieces. The newest of
 * those that share a place is remembered. Any thread; see store.h.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/node/store_private.h"

#define MARKS (64u << 10) /* of 1 MiB or 4 MiB each; 3 MiB of ours, as far as they are used */

struct mark {
	uint64_t mark;
	uint8_t hash[CACHE_HASH_SIZE];
};

static struct mark *mark_at(const struct shelf *shelf, uint64_t mark)
{
	return &shelf->marks[(mark * 0x9e3779b97f4a7c15ull >> 32) % MARKS];
}

void shelf_mark_locked(struct shelf *shelf, uint64_t mark, const struct chunk_name *name)
{
	struct mark *place;

	if (!mark)
		return;
	if (!shelf->marks)
		shelf->marks = calloc(MARKS, sizeof(*shelf->marks));
	if (!shelf->marks)
		return;
	place = mark_at(shelf, mark);
	place->mark = mark;
	memcpy(place->hash, name->hash, sizeof(place->hash));
}

bool shelf_name_of(struct shelf *shelf, uint64_t mark, const uint8_t hash[CACHE_HASH_SIZE], uint32_t total, struct chunk_name *name_out)
{
	struct entry *entry = NULL;

	pthread_mutex_lock(&shelf->store->lock);
	if (!mark)
		entry = shelf_find_locked(shelf, hash);
	else if (shelf->marks && mark_at(shelf, mark)->mark == mark)
		entry = shelf_find_locked(shelf, mark_at(shelf, mark)->hash);
	if (entry && entry->name.size != total)
		entry = NULL;
	if (entry)
		*name_out = entry->name;
	pthread_mutex_unlock(&shelf->store->lock);
	return entry != NULL;
}
