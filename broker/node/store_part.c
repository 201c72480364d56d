/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks that come in pieces: pieces of files begin and end where tensors do, chunks at multiples of CACHE_CHUNK_SIZE. Their
 * bytes are gathered until a chunk is whole; what never becomes whole makes room for what comes later. Lane threads.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/node/store_private.h"

#define PART_SPANS_MAX 4096u /* pieces of a chunk that lie apart */

static void part_free_locked(struct part *part)
{
	struct store *store = part->shelf->store;

	for (struct part **at = &store->parts; *at; at = &(*at)->next) {
		if (*at == part) {
			*at = part->next;
			store->part_count--;
			break;
		}
	}
	if (part->block)
		store_coming_end_locked(store, part->block, part->total);
	free(part->spans);
	free(part);
}

void parts_drop_locked(struct store *store)
{
	while (store->parts)
		part_free_locked(store->parts);
}

static struct part *part_find_locked(struct shelf *shelf, const struct bulk_keep *keep)
{
	struct store *store = shelf->store;
	struct part *part, *oldest = NULL;

	for (part = store->parts; part; part = part->next) {
		if (part->shelf == shelf && part->tag == keep->tag && part->total == keep->total)
			return part;
		if (!part->busy && (!oldest || part->age < oldest->age))
			oldest = part;
	}
	if (store->part_count >= STORE_PARTS_MAX) {
		if (!oldest)
			return NULL;
		part_free_locked(oldest);
		oldest = NULL;
	}
	part = calloc(1, sizeof(*part));
	if (!part)
		return NULL;
	part->shelf = shelf;
	part->tag = keep->tag;
	part->total = keep->total;
	part->block = store_coming_locked(store, keep->total);
	/* The oldest has had its time. */
	if (!part->block && oldest && store->part_count) {
		part_free_locked(oldest);
		part->block = store_coming_locked(store, keep->total);
	}
	if (!part->block) {
		free(part);
		return NULL;
	}
	part->next = store->parts;
	store->parts = part;
	store->part_count++;
	return part;
}

/* [at, end) comes. False: out of memory, or too many gaps. @known_out: it has come before. */
static bool span_add(struct part *part, uint32_t at, uint32_t end, bool *known_out)
{
	uint32_t i = 0, j;

	*known_out = false;
	for (uint32_t k = 0; k < part->span_count && part->spans[k].at <= at; k++)
		*known_out = *known_out || part->spans[k].end >= end;
	if (*known_out)
		return true;
	while (i < part->span_count && part->spans[i].end < at)
		i++;
	for (j = i; j < part->span_count && part->spans[j].at <= end; j++) {
		if (part->spans[j].at < at)
			at = part->spans[j].at;
		if (part->spans[j].end > end)
			end = part->spans[j].end;
	}
	if (i == j && part->span_count == part->span_max) {
		uint32_t max = part->span_max ? 2 * part->span_max : 8;
		struct part_span *grown = max <= PART_SPANS_MAX ? realloc(part->spans, max * sizeof(*grown)) : NULL;

		if (!grown)
			return false;
		part->spans = grown;
		part->span_max = max;
	}
	/* j - i of them become one. */
	memmove(part->spans + i + 1, part->spans + j, (part->span_count - j) * sizeof(*part->spans));
	part->span_count += 1 - (j - i);
	part->spans[i] = (struct part_span){ .at = at, .end = end };
	return true;
}

void part_keep(struct shelf *shelf, const struct bulk_keep *keep, const uint8_t *bytes, uint32_t size)
{
	struct store *store = shelf->store;
	struct part *part;
	uint8_t *whole = NULL;
	uint32_t total = 0;

	bool known = false, added = false;

	pthread_mutex_lock(&store->lock);
	shelf->stats.misses++;
	part = part_find_locked(shelf, keep);
	if (part) {
		part->busy++;
		part->age = ++store->part_age;
		/* Before they lie there: whoever finds the chunk whole waits for those who still copy. */
		added = span_add(part, keep->at, keep->at + size, &known);
	}
	pthread_mutex_unlock(&store->lock);
	if (!part)
		return;
	if (added && !known)
		memcpy(part->block + keep->at, bytes, size);
	pthread_mutex_lock(&store->lock);
	part->busy--;
	if (!part->busy && part->span_count == 1 && part->spans[0].at == 0 && part->spans[0].end == part->total) {
		whole = part->block;
		total = part->total;
		part->block = NULL;
		part_free_locked(part);
	}
	pthread_mutex_unlock(&store->lock);
	if (whole)
		shelf_put(shelf, whole, total, true, keep->tag);
}
