// SPDX-License-Identifier: Apache-2.0
/*
 * Address space: a sorted array of free extents. Programs have hundreds of them at most, so moving the array costs less
 * than a tree. The caller locks.
 */
#include "libgleamcuda/space.h"

#include <stdlib.h>
#include <string.h>

void space_init(struct space *space, uint64_t base, uint64_t span)
{
	*space = (struct space){ .base = base, .span = span };
}

static bool room_for(struct space *space, uint32_t count)
{
	struct extent *grown;
	uint32_t room;

	if (count <= space->room)
		return true;
	room = space->room ? space->room * 2 : 64;
	grown = realloc(space->free, room * sizeof(*grown));
	if (!grown)
		return false;
	space->free = grown;
	space->room = room;
	return true;
}

static bool start(struct space *space)
{
	if (space->started)
		return true;
	if (!room_for(space, 1))
		return false;
	space->free[0] = (struct extent){ .start = space->base, .size = space->span };
	space->count = 1;
	space->started = true;
	return true;
}

/* Cut [at, at + size) out of extent @index, which holds it. False when memory is short. */
static bool cut(struct space *space, uint32_t index, uint64_t at, uint64_t size)
{
	struct extent e = space->free[index];
	uint64_t before = at - e.start;
	uint64_t after = e.start + e.size - at - size;

	if (before && after) {
		if (!room_for(space, space->count + 1))
			return false;
		memmove(&space->free[index + 1], &space->free[index], (space->count - index) * sizeof(e));
		space->count++;
		space->free[index].size = before;
		space->free[index + 1] = (struct extent){ .start = at + size, .size = after };
	} else if (before) {
		space->free[index].size = before;
	} else if (after) {
		space->free[index] = (struct extent){ .start = at + size, .size = after };
	} else {
		memmove(&space->free[index], &space->free[index + 1], (space->count - index - 1) * sizeof(e));
		space->count--;
	}
	return true;
}

uint64_t space_take(struct space *space, uint64_t size, uint64_t align, uint64_t hint)
{
	if (!size || size > space->span || !start(space))
		return 0;
	if (hint && !(hint & (align - 1)))
		for (uint32_t i = 0; i < space->count; i++) {
			struct extent e = space->free[i];

			if (hint >= e.start && hint - e.start <= e.size && size <= e.size - (hint - e.start))
				return cut(space, i, hint, size) ? hint : 0;
		}
	for (uint32_t i = 0; i < space->count; i++) {
		struct extent e = space->free[i];
		uint64_t at = (e.start + align - 1) & ~(align - 1);

		if (at - e.start <= e.size && size <= e.size - (at - e.start))
			return cut(space, i, at, size) ? at : 0;
	}
	return 0;
}

void space_give(struct space *space, uint64_t start_at, uint64_t size)
{
	uint32_t i = 0;

	while (i < space->count && space->free[i].start < start_at)
		i++;

	bool joins_before = i && space->free[i - 1].start + space->free[i - 1].size == start_at;
	bool joins_after = i < space->count && start_at + size == space->free[i].start;

	if (joins_before && joins_after) {
		space->free[i - 1].size += size + space->free[i].size;
		memmove(&space->free[i], &space->free[i + 1], (space->count - i - 1) * sizeof(space->free[0]));
		space->count--;
	} else if (joins_before) {
		space->free[i - 1].size += size;
	} else if (joins_after) {
		space->free[i].start = start_at;
		space->free[i].size += size;
	} else {
		/* Addresses are plenty: short of memory they are simply not used again. */
		if (!room_for(space, space->count + 1))
			return;
		memmove(&space->free[i + 1], &space->free[i], (space->count - i) * sizeof(space->free[0]));
		space->free[i] = (struct extent){ .start = start_at, .size = size };
		space->count++;
	}
}
