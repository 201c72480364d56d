// SPDX-License-Identifier: Apache-2.0
/*
 * The map of device-visible memory: a sorted array under a read-write lock, and the visits that hold pages in
 * place. Any thread; lookups come from the threads that execute kernels.
 */
#include "broker/softgpu/soft_map.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_context.h"

_Atomic uint64_t soft_map_generation = 1;

static pthread_rwlock_t map_lock = PTHREAD_RWLOCK_INITIALIZER;
/* guarded by map_lock: sorted by base, never overlapping */
static struct soft_range *ranges;
static size_t range_count;
static size_t range_room;
static uint64_t range_ids;

/* What waits for visits to end, oldest first. */
struct leaving {
	struct leaving *next;
	uint64_t epoch;
	struct soft_range range;
};

static pthread_mutex_t visit_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by visit_lock; visits in the order of their beginning */
static struct soft_visit *visit_first, *visit_last;
static uint64_t visit_epoch;
static struct leaving *leaving_first, **leaving_tail = &leaving_first;

/* Index of the first range that ends beyond @address. */
static size_t range_after_locked(uint64_t address)
{
	size_t low = 0, high = range_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (address - ranges[middle].base < ranges[middle].size || ranges[middle].base > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

int soft_map_add(struct soft_range *range)
{
	int ret = -EEXIST;
	size_t at;

	if (!range->size || range->base > UINT64_MAX - range->size)
		return -EINVAL;
	pthread_rwlock_wrlock(&map_lock);
	at = range_after_locked(range->base);
	if (at < range_count && ranges[at].base < range->base + range->size)
		goto unlock;
	if (range_count == range_room) {
		size_t room = range_room ? range_room * 2 : 64;
		struct soft_range *grown = realloc(ranges, room * sizeof(*grown));

		ret = -ENOMEM;
		if (!grown)
			goto unlock;
		ranges = grown;
		range_room = room;
	}
	range->id = ++range_ids;
	range->context_handle = range->context ? atomic_load(&range->context->object.handle) : 0;
	memmove(ranges + at + 1, ranges + at, (range_count - at) * sizeof(*ranges));
	ranges[at] = *range;
	range_count++;
	ret = 0;
unlock:
	pthread_rwlock_unlock(&map_lock);
	return ret;
}

static void range_take_locked(size_t at, struct soft_range *range_out)
{
	*range_out = ranges[at];
	memmove(ranges + at, ranges + at + 1, (range_count - at - 1) * sizeof(*ranges));
	range_count--;
	atomic_fetch_add(&soft_map_generation, 1);
}

int soft_map_remove(uint64_t base, bool (*match)(const struct soft_range *range, const void *key), const void *key,
		    struct soft_range *range_out)
{
	int ret = -ENOENT;
	size_t at;

	pthread_rwlock_wrlock(&map_lock);
	at = range_after_locked(base);
	if (at < range_count && ranges[at].base == base && (!match || match(&ranges[at], key))) {
		range_take_locked(at, range_out);
		ret = 0;
	}
	pthread_rwlock_unlock(&map_lock);
	return ret;
}

void soft_map_release(const struct soft_range *range)
{
	struct leaving *leaving = NULL;

	if (!range->release)
		return;
	pthread_mutex_lock(&visit_lock);
	if (visit_first) {
		leaving = malloc(sizeof(*leaving));
		if (leaving) {
			leaving->next = NULL;
			leaving->epoch = ++visit_epoch;
			leaving->range = *range;
			*leaving_tail = leaving;
			leaving_tail = &leaving->next;
		}
	}
	pthread_mutex_unlock(&visit_lock);
	/* Without memory for the note it goes at once: a stale access then faults instead of the process waiting. */
	if (!leaving)
		range->release(range);
}

void soft_visit_begin(struct soft_visit *visit)
{
	pthread_mutex_lock(&visit_lock);
	visit->epoch = visit_epoch;
	visit->next = NULL;
	visit->previous = visit_last;
	if (visit_last)
		visit_last->next = visit;
	else
		visit_first = visit;
	visit_last = visit;
	pthread_mutex_unlock(&visit_lock);
}

void soft_visit_end(struct soft_visit *visit)
{
	struct leaving *ready = NULL, **tail = &ready;

	pthread_mutex_lock(&visit_lock);
	if (visit->previous)
		visit->previous->next = visit->next;
	else
		visit_first = visit->next;
	if (visit->next)
		visit->next->previous = visit->previous;
	else
		visit_last = visit->previous;
	/* What left after the oldest remaining visit began may still be in its hands. */
	while (leaving_first && (!visit_first || leaving_first->epoch <= visit_first->epoch)) {
		*tail = leaving_first;
		tail = &leaving_first->next;
		leaving_first = leaving_first->next;
		*tail = NULL;
	}
	if (!leaving_first)
		leaving_tail = &leaving_first;
	pthread_mutex_unlock(&visit_lock);
	while (ready) {
		struct leaving *next = ready->next;

		ready->range.release(&ready->range);
		free(ready);
		ready = next;
	}
}

void soft_map_sweep(const struct soft_context *context)
{
	struct soft_range range;
	size_t at = 0;

	for (;;) {
		bool found = false;

		pthread_rwlock_wrlock(&map_lock);
		for (at = MIN(at, range_count); at < range_count && !found; at++)
			if (ranges[at].context == context)
				found = true;
		if (found)
			range_take_locked(--at, &range);
		pthread_rwlock_unlock(&map_lock);
		if (!found)
			return;
		soft_map_release(&range);
	}
}

bool soft_map_find(uint64_t address, struct soft_range *range_out)
{
	bool found;
	size_t at;

	pthread_rwlock_rdlock(&map_lock);
	at = range_after_locked(address);
	found = at < range_count && ranges[at].base <= address;
	if (found)
		*range_out = ranges[at];
	pthread_rwlock_unlock(&map_lock);
	return found;
}

bool soft_map_covers(uint64_t address, uint64_t size, bool write)
{
	bool covered = false;
	uint64_t at = address;

	if (address > UINT64_MAX - size)
		return false;
	if (!size)
		return true;
	pthread_rwlock_rdlock(&map_lock);
	for (size_t i = range_after_locked(address); i < range_count && ranges[i].base <= at; i++) {
		if (ranges[i].blocked || (write && ranges[i].read_only))
			break;
		at = ranges[i].base + ranges[i].size;
		if (at - address >= size) {
			covered = true;
			break;
		}
	}
	pthread_rwlock_unlock(&map_lock);
	return covered;
}

bool soft_map_touches(uint64_t address, uint64_t size)
{
	bool touches;
	size_t at;

	pthread_rwlock_rdlock(&map_lock);
	at = range_after_locked(address);
	touches = at < range_count && (ranges[at].base <= address || ranges[at].base - address < size);
	pthread_rwlock_unlock(&map_lock);
	return touches;
}

static uint32_t bit_set(uint32_t bits, CUdevice device, bool on)
{
	return on ? bits | 1u << device : bits & ~(1u << device);
}

bool soft_map_protect(uint64_t address, uint64_t size, CUdevice device, bool read, bool write)
{
	uint64_t end = address + size;
	uint64_t at = address;
	size_t first, last;

	pthread_rwlock_wrlock(&map_lock);
	first = last = range_after_locked(address);
	while (last < range_count && ranges[last].base == at && at < end) {
		at += ranges[last].size;
		last++;
	}
	if (at == end) {
		for (size_t i = first; i < last; i++) {
			ranges[i].readers = bit_set(ranges[i].readers, device, read);
			ranges[i].writers = bit_set(ranges[i].writers, device, write);
			ranges[i].blocked = !ranges[i].readers;
			ranges[i].read_only = !ranges[i].writers;
		}
		atomic_fetch_add(&soft_map_generation, 1);
	}
	pthread_rwlock_unlock(&map_lock);
	return at == end;
}

bool soft_map_set_sync(uint64_t address, bool sync)
{
	bool found;
	size_t at;

	pthread_rwlock_wrlock(&map_lock);
	at = range_after_locked(address);
	found = at < range_count && ranges[at].base <= address;
	if (found)
		ranges[at].sync = sync;
	pthread_rwlock_unlock(&map_lock);
	return found;
}
