/* SPDX-License-Identifier: Apache-2.0 */
/* Where device memory's bytes came from. Executor thread; see origin.h. */
#include "broker/worker/origin.h"

#include <stdlib.h>
#include <string.h>

#define ORIGINS_FIRST 256u
#define ORIGINS_MAX   (64u << 10) /* pieces of 1 MiB at most: 64 GiB of weights; 2 MiB of ours */

struct origin {
	uint64_t address;
	uint64_t position;
	uint32_t size;
	uint32_t age; /* counts up */
};

struct origins {
	struct origin *all; /* those before sorted: by address, each address once */
	uint32_t count;
	uint32_t sorted;
	uint32_t room;
	uint32_t age;
};

static int by_address(const void *x, const void *y)
{
	const struct origin *a = x, *b = y;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return a->age > b->age ? -1 : a->age < b->age; /* the newest first */
}

static int by_age(const void *x, const void *y)
{
	const struct origin *a = x, *b = y;

	return a->age > b->age ? -1 : a->age < b->age;
}

/* In order, and what was copied to the same place again only once. */
static void origins_sort(struct origins *o)
{
	uint32_t kept = 0;

	if (o->sorted == o->count)
		return;
	qsort(o->all, o->count, sizeof(*o->all), by_address);
	for (uint32_t i = 0; i < o->count; i++)
		if (!kept || o->all[i].address != o->all[kept - 1].address)
			o->all[kept++] = o->all[i];
	o->count = o->sorted = kept;
}

static bool origins_grow(struct origins *o)
{
	uint32_t room = o->room ? 2 * o->room : ORIGINS_FIRST;
	struct origin *all;

	/* A program that uploads to the same places again and again needs no more. */
	origins_sort(o);
	if (o->count <= o->room / 2 && o->room)
		return true;
	if (room > ORIGINS_MAX) {
		qsort(o->all, o->count, sizeof(*o->all), by_age);
		o->count /= 2;
		o->sorted = 0;
		return true;
	}
	all = realloc(o->all, room * sizeof(*all));
	if (!all)
		return false;
	o->all = all;
	o->room = room;
	return true;
}

void origin_note(struct worker *w, uint64_t address, const struct bulk_ref *piece)
{
	struct origins *o = w->origins;

	if (!o)
		o = w->origins = calloc(1, sizeof(*o));
	if (!o || (o->count == o->room && !origins_grow(o)))
		return;
	o->all[o->count++] = (struct origin){ .address = address, .position = piece->cookie, .size = piece->size, .age = o->age++ };
}

uint64_t origin_find(struct worker *w, uint64_t address, uint64_t *run)
{
	struct origins *o = w->origins;
	uint32_t low = 0, high;

	if (!o || !o->count)
		return ORIGIN_NONE;
	origins_sort(o);
	for (high = o->count; low < high;) {
		uint32_t middle = low + (high - low) / 2;

		if (o->all[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	/* Up to where the next one begins, which may be newer. */
	if (low < o->count && o->all[low].address - address < *run)
		*run = o->all[low].address - address;
	if (!low || address - o->all[low - 1].address >= o->all[low - 1].size)
		return ORIGIN_NONE;
	if (*run > o->all[low - 1].size - (address - o->all[low - 1].address))
		*run = o->all[low - 1].size - (address - o->all[low - 1].address);
	return o->all[low - 1].position + (address - o->all[low - 1].address);
}

void origins_free(struct worker *w)
{
	if (w->origins)
		free(w->origins->all);
	free(w->origins);
	w->origins = NULL;
}
