// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory in chunks. Small allocations share chunks of 2 MiB, as they do on a real device; larger ones have
 * mappings of their own, rounded up to it. Pages are the kernel's until they are touched. Variables of modules have chunks of their own, at
 * addresses that depend on nothing but which there were before, as a real driver's do. Any thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/proto/space.h"
#include "broker/softgpu/soft_memory.h"

#define UNIT_SIZE 512u
#define CHUNK_UNITS (SOFT_GRANULARITY / UNIT_SIZE)
#define WORD_BITS 64u
/* From here on an allocation has its own mapping: sharing a chunk would waste more. */
#define SMALL_MAX ((uint64_t)1 << 20)

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

struct chunk {
	struct chunk *next;
	struct soft_device *device;
	bool symbols;
	uint64_t base;
	uint64_t size; /* of a mapping of its own; 0 for a shared chunk */
	unsigned int units_used;
	unsigned int hint; /* no free unit below */
	uint64_t used[CHUNK_UNITS / WORD_BITS];
};

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by heap_lock: shared chunks of each device, of variables and of all else */
static struct chunk *chunks[2][SOFT_DEVICES_MAX];

/* Address space aligned to the granularity, pages from nowhere until touched. */
static void *region_map(uint64_t size)
{
	uint64_t room = size + SOFT_GRANULARITY;
	uint64_t address, start;
	void *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	address = (uint64_t)(uintptr_t)at;
	start = (address + SOFT_GRANULARITY - 1) & ~(uint64_t)(SOFT_GRANULARITY - 1);
	if (start > address)
		munmap(at, start - address);
	munmap((void *)(uintptr_t)(start + size), room - size - (start - address));
	return (void *)(uintptr_t)start;
}

/* The first free place. A kernel that doesn't know the flag takes it for a wish. */
static void *symbols_map(uint64_t size)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;

	for (uint64_t want = SPACE_SYMBOLS; size < SPACE_SYMBOLS_END - want; want += SOFT_GRANULARITY) {
		void *at = mmap((void *)(uintptr_t)want, size, PROT_READ | PROT_WRITE, flags, -1, 0);

		if ((uint64_t)(uintptr_t)at == want)
			return at;
		if (at != MAP_FAILED)
			munmap(at, size);
		else if (errno != EEXIST)
			break;
	}
	return region_map(size);
}

static struct chunk *chunk_new(struct soft_device *device, uint64_t size, bool symbols)
{
	struct chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	if (soft_device_charge(device, size) != CUDA_SUCCESS)
		goto free_chunk;
	chunk->device = device;
	chunk->symbols = symbols;
	chunk->base = (uint64_t)(uintptr_t)(symbols ? symbols_map(size) : region_map(size));
	if (!chunk->base)
		goto uncharge;
	return chunk;
uncharge:
	soft_device_uncharge(device, size);
free_chunk:
	free(chunk);
	return NULL;
}

static void chunk_free(struct chunk *chunk, uint64_t size)
{
	munmap((void *)(uintptr_t)chunk->base, size);
	soft_device_uncharge(chunk->device, size);
	free(chunk);
}

static bool unit_used(const struct chunk *chunk, unsigned int unit)
{
	return chunk->used[unit / WORD_BITS] >> unit % WORD_BITS & 1;
}

/* First run of @count free units; CHUNK_UNITS where there is none. */
static unsigned int chunk_search(const struct chunk *chunk, unsigned int count)
{
	unsigned int run = 0;

	if (CHUNK_UNITS - chunk->units_used < count)
		return CHUNK_UNITS;
	for (unsigned int unit = chunk->hint; unit < CHUNK_UNITS; unit++) {
		if (run == 0 && unit % WORD_BITS == 0 && chunk->used[unit / WORD_BITS] == UINT64_MAX) {
			unit += WORD_BITS - 1;
			continue;
		}
		run = unit_used(chunk, unit) ? 0 : run + 1;
		if (run == count)
			return unit - count + 1;
	}
	return CHUNK_UNITS;
}

static void chunk_mark(struct chunk *chunk, unsigned int first, unsigned int count, bool used)
{
	for (unsigned int unit = first; unit < first + count; unit++) {
		if (used)
			chunk->used[unit / WORD_BITS] |= (uint64_t)1 << unit % WORD_BITS;
		else
			chunk->used[unit / WORD_BITS] &= ~((uint64_t)1 << unit % WORD_BITS);
	}
	if (used) {
		chunk->units_used += count;
		if (first == chunk->hint)
			chunk->hint = first + count;
	} else {
		chunk->units_used -= count;
		chunk->hint = MIN(chunk->hint, first);
	}
}

static unsigned int units_of(uint64_t size)
{
	return (unsigned int)((size + UNIT_SIZE - 1) / UNIT_SIZE);
}

static CUresult take_small(struct soft_device *device, uint64_t size, bool symbols, uint64_t *address_out, void **backing_out)
{
	unsigned int count = units_of(size);
	unsigned int first = CHUNK_UNITS;
	struct chunk **list = &chunks[symbols][device->ordinal];
	struct chunk *chunk;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	pthread_mutex_lock(&heap_lock);
	for (chunk = *list; chunk; chunk = chunk->next) {
		first = chunk_search(chunk, count);
		if (first != CHUNK_UNITS)
			break;
	}
	if (!chunk) {
		chunk = chunk_new(device, SOFT_GRANULARITY, symbols);
		if (!chunk)
			goto unlock;
		first = 0;
		chunk->next = *list;
		*list = chunk;
	}
	chunk_mark(chunk, first, count, true);
	*address_out = chunk->base + (uint64_t)first * UNIT_SIZE;
	*backing_out = chunk;
	result = CUDA_SUCCESS;
unlock:
	pthread_mutex_unlock(&heap_lock);
	return result;
}

CUresult soft_heap_take(struct soft_device *device, uint64_t size, bool symbols, uint64_t *address_out, void **backing_out)
{
	uint64_t rounded = (size + SOFT_GRANULARITY - 1) & ~(uint64_t)(SOFT_GRANULARITY - 1);
	struct chunk *chunk;

	if (size > device->memory_size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size < SMALL_MAX)
		return take_small(device, size, symbols, address_out, backing_out);
	chunk = chunk_new(device, rounded, symbols);
	if (!chunk)
		return CUDA_ERROR_OUT_OF_MEMORY;
	chunk->size = rounded;
	*address_out = chunk->base;
	*backing_out = chunk;
	return CUDA_SUCCESS;
}

void soft_heap_release(const struct soft_range *range)
{
	struct chunk *chunk = range->backing;
	struct chunk **link;

	if (chunk->size) {
		chunk_free(chunk, chunk->size);
		return;
	}
	pthread_mutex_lock(&heap_lock);
	chunk_mark(chunk, (unsigned int)((range->base - chunk->base) / UNIT_SIZE), units_of(range->size), false);
	if (!chunk->units_used) {
		for (link = &chunks[chunk->symbols][chunk->device->ordinal]; *link != chunk; link = &(*link)->next)
			;
		*link = chunk->next;
		chunk_free(chunk, SOFT_GRANULARITY);
	}
	pthread_mutex_unlock(&heap_lock);
}
