// SPDX-License-Identifier: Apache-2.0
/*
 * Advice on managed memory: a record a page, of those allocations that any was given of. Application threads.
 */
#include "libgleamcuda/advice.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct advised {
	struct advised *next;
	uint64_t base;
	uint64_t pages;
	struct advice *advice; /* of each page */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct advised *all;

static struct advised **find_locked(uint64_t base)
{
	struct advised **at = &all;

	while (*at && (*at)->base != base)
		at = &(*at)->next;
	return at;
}

static struct advised *make_locked(uint64_t base, uint64_t whole)
{
	struct advised *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->base = base;
	a->pages = (base % ADVICE_PAGE + whole + ADVICE_PAGE - 1) / ADVICE_PAGE;
	a->advice = calloc(a->pages, sizeof(*a->advice));
	if (!a->advice) {
		free(a);
		return NULL;
	}
	a->next = all;
	all = a;
	return a;
}

static uint64_t page_of(const struct advised *a, uint64_t address)
{
	return address / ADVICE_PAGE - a->base / ADVICE_PAGE;
}

CUresult advice_change(uint64_t base, uint64_t whole, uint64_t start, uint64_t size,
		       void (*change)(struct advice *advice, const void *arg), const void *arg)
{
	struct advised *a;

	pthread_mutex_lock(&lock);
	a = *find_locked(base);
	if (!a)
		a = make_locked(base, whole);
	for (uint64_t page = a ? page_of(a, start) : 1; a && page < a->pages && page <= page_of(a, start + size - 1); page++)
		change(&a->advice[page], arg);
	pthread_mutex_unlock(&lock);
	return a ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool same(const CUmemLocation *a, const CUmemLocation *b)
{
	return a->type == b->type && a->id == b->id;
}

void advice_common(uint64_t base, uint64_t start, uint64_t size, struct advice *advice_out)
{
	const CUmemLocation none = { .type = CU_MEM_LOCATION_TYPE_INVALID };
	struct advised *a;

	*advice_out = (struct advice){ .preferred = none, .prefetched = none };
	pthread_mutex_lock(&lock);
	a = *find_locked(base);
	if (a)
		*advice_out = a->advice[page_of(a, start)];
	for (uint64_t page = a ? page_of(a, start) : 1; a && page < a->pages && page <= page_of(a, start + size - 1); page++) {
		const struct advice *other = &a->advice[page];

		if (!same(&other->preferred, &advice_out->preferred))
			advice_out->preferred = none;
		if (!same(&other->prefetched, &advice_out->prefetched))
			advice_out->prefetched = none;
		advice_out->accessed_by &= other->accessed_by;
		advice_out->read_mostly &= other->read_mostly;
	}
	pthread_mutex_unlock(&lock);
}

void advice_forget(uint64_t base)
{
	struct advised **at, *a;

	pthread_mutex_lock(&lock);
	at = find_locked(base);
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	if (!a)
		return;
	free(a->advice);
	free(a);
}
