/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory tier's blocks: a buddy allocator over one reservation, so that room which was given back has its pages already:
 * fresh pages cost more than the copy into them. Behind the store's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/node/store_private.h"

#define BLOCK_FREE 0x80u

static unsigned order_of(uint32_t size)
{
	unsigned order = 0;

	while (((uint64_t)BLOCK_MIN << order) < size)
		order++;
	return order;
}

uint64_t block_size(uint32_t size)
{
	return (uint64_t)BLOCK_MIN << order_of(size);
}

static void free_put(struct blocks *b, uint32_t at, unsigned order)
{
	b->order[at] = (uint8_t)(order | BLOCK_FREE);
	b->prev[at] = 0;
	b->next[at] = b->free[order];
	if (b->next[at])
		b->prev[b->next[at] - 1] = at + 1;
	b->free[order] = at + 1;
}

static void free_remove(struct blocks *b, uint32_t at, unsigned order)
{
	if (b->prev[at])
		b->next[b->prev[at] - 1] = b->next[at];
	else
		b->free[order] = b->next[at];
	if (b->next[at])
		b->prev[b->next[at] - 1] = b->prev[at];
	b->order[at] = 0;
}

int blocks_init(struct blocks *b, uint64_t size)
{
	uint64_t count;
	uint8_t *map;

	*b = (struct blocks){ .size = size & ~(uint64_t)(CACHE_CHUNK_SIZE - 1) };
	count = b->size / BLOCK_MIN;
	if (count == 0 || count > UINT32_MAX / 2)
		return -EINVAL;
	/* Twice the alignment of huge pages is found in one chunk more. */
	map = mmap(NULL, b->size + CACHE_CHUNK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	b->base = (uint8_t *)(((uintptr_t)map + CACHE_CHUNK_SIZE - 1) & ~(uintptr_t)(CACHE_CHUNK_SIZE - 1));
	munmap(map, (size_t)(b->base - map));
	munmap(b->base + b->size, CACHE_CHUNK_SIZE - (size_t)(b->base - map));
	madvise(b->base, b->size, MADV_HUGEPAGE);
	madvise(b->base, b->size, MADV_DONTDUMP);
	b->order = calloc(count, 1);
	b->next = calloc(count, sizeof(*b->next));
	b->prev = calloc(count, sizeof(*b->prev));
	if (!b->order || !b->next || !b->prev) {
		blocks_fini(b);
		return -ENOMEM;
	}
	return 0;
}

void blocks_fini(struct blocks *b)
{
	if (b->base)
		munmap(b->base, b->size);
	free(b->order);
	free(b->next);
	free(b->prev);
	*b = (struct blocks){ 0 };
}

uint8_t *block_take(struct blocks *b, uint32_t size)
{
	unsigned order = order_of(size), from = order;
	uint32_t at;

	while (from < BLOCK_ORDERS && !b->free[from])
		from++;
	if (from == BLOCK_ORDERS) {
		if (b->touched == b->size)
			return NULL;
		from = BLOCK_ORDERS - 1;
		free_put(b, (uint32_t)(b->touched / BLOCK_MIN), from);
		b->touched += CACHE_CHUNK_SIZE;
	}
	at = b->free[from] - 1;
	free_remove(b, at, from);
	while (from > order) {
		from--;
		free_put(b, at + (1u << from), from);
	}
	b->order[at] = (uint8_t)order;
	b->used += (uint64_t)BLOCK_MIN << order;
	return b->base + (uint64_t)at * BLOCK_MIN;
}

void block_give(struct blocks *b, uint8_t *block, uint32_t size)
{
	unsigned order = order_of(size);
	uint32_t at = (uint32_t)((uint64_t)(block - b->base) / BLOCK_MIN);

	b->used -= (uint64_t)BLOCK_MIN << order;
	while (order < BLOCK_ORDERS - 1) {
		uint32_t buddy = at ^ 1u << order;

		if (b->order[buddy] != (order | BLOCK_FREE))
			break;
		free_remove(b, buddy, order);
		at &= ~(1u << order);
		order++;
	}
	free_put(b, at, order);
}
