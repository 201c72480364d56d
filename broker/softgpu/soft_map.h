/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every address that the software GPU may touch: allocations, host memory made known to it, mapped physical
 * memory, variables of modules. A device address is the host address of the same memory.
 *
 * What executes (a kernel, a copy) is a visit. Memory that is taken out of the map can't be found from then on, but
 * its pages stay until the visits that began before have ended, so that a check made before an access holds for it.
 */
#ifndef SOFT_MAP_H
#define SOFT_MAP_H

#include <stdatomic.h>

#include "broker/softgpu/soft.h"

struct soft_context;

enum soft_range_kind {
	SOFT_RANGE_DEVICE,     /* cuMemAlloc and its kin */
	SOFT_RANGE_POOL,       /* cuMemAllocAsync */
	SOFT_RANGE_SYMBOL,     /* a module's variable */
	SOFT_RANGE_PHYSICAL,   /* cuMemMap */
	SOFT_RANGE_HOST,       /* cuMemHostAlloc */
	SOFT_RANGE_REGISTERED, /* cuMemHostRegister */
	SOFT_RANGE_MANAGED,
	SOFT_RANGE_ARRAY,
	SOFT_RANGE_HEAP, /* malloc in a kernel */
};

struct soft_range {
	uint64_t base;
	uint64_t size;
	enum soft_range_kind kind;
	CUdevice device;	      /* -1 for host memory */
	unsigned int flags;	      /* those of the call that made it */
	bool blocked;		      /* mapped without access for anybody */
	bool read_only;		      /* for everybody */
	uint32_t readers, writers;    /* of mapped memory: bit per device that may */
	bool sync;		      /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
	struct soft_context *context; /* compared only; NULL where the memory belongs to none */
	uint64_t context_handle;      /* soft_map_add() fills it in */
	uint64_t id;		      /* never reused; soft_map_add() gives it */
	uint64_t owner;		      /* handle of the pool or physical memory, 0 for none */
	/* Gives the memory back when nobody can be in it any more; NULL where there is nothing to do. */
	void (*release)(const struct soft_range *range);
	void *backing;
};

static inline bool soft_range_on_host(const struct soft_range *range)
{
	return range->kind == SOFT_RANGE_HOST || range->kind == SOFT_RANGE_REGISTERED;
}

/* -EEXIST where it meets another range, -ENOMEM. */
int soft_map_add(struct soft_range *range);

/* Takes the range that begins at @base out if @match (may be NULL) agrees: -ENOENT otherwise. Does not release it. */
int soft_map_remove(uint64_t base, bool (*match)(const struct soft_range *range, const void *key), const void *key,
		    struct soft_range *range_out);

/* Releases a range that was taken out, now or when the visits allow it. */
void soft_map_release(const struct soft_range *range);

/* Takes out and releases everything of @context. */
void soft_map_sweep(const struct soft_context *context);

/* A copy of the range that holds @address; false where there is none. */
bool soft_map_find(uint64_t address, struct soft_range *range_out);

/* Whether all of it may be read, or written: it may lie in several ranges that touch. */
bool soft_map_covers(uint64_t address, uint64_t size, bool write);

/* Whether any byte of it is in a range. */
bool soft_map_touches(uint64_t address, uint64_t size);

/* What @device may do, of what lies whole inside; false where a range sticks out or there is a gap. */
bool soft_map_protect(uint64_t address, uint64_t size, CUdevice device, bool read, bool write);

bool soft_map_set_sync(uint64_t address, bool sync);

/* Increased by each removal and each change of access. */
extern _Atomic uint64_t soft_map_generation;

struct soft_visit {
	struct soft_visit *next, *previous;
	uint64_t epoch;
};

void soft_visit_begin(struct soft_visit *visit);
void soft_visit_end(struct soft_visit *visit);

#endif
