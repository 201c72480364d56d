/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of addresses from which pieces are taken and given back: sorted free extents, first fit. The caller locks.
 */
#ifndef GLEAM_SPACE_H
#define GLEAM_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct extent {
	uint64_t start;
	uint64_t size;
};

struct space {
	struct extent *free; /* by start, never touching one another */
	uint32_t count;
	uint32_t room;
	uint64_t base;
	uint64_t span;
	bool started; /* false: everything is free, nothing allocated yet */
};

void space_init(struct space *space, uint64_t base, uint64_t span);
/* @align is a power of two. @hint: taken if it is free and aligned, else anywhere; 0: anywhere. 0: there is none. */
uint64_t space_take(struct space *space, uint64_t size, uint64_t align, uint64_t hint);
/* Exactly what was taken. */
void space_give(struct space *space, uint64_t start, uint64_t size);

#endif
