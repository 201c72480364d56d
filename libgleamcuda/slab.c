// SPDX-License-Identifier: Apache-2.0
/*
 * Slabs: pieces that small allocations share, cut into units of MEMORY_ALIGN bytes. Freed units are used again when the work issued
 * before has completed. Application threads. See devmem.h.
 */
#include "libgleamcuda/devmem.h"

#include <stdlib.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/stream.h"

#define SLAB_UNITS     (PIECE_SMALL / MEMORY_ALIGN)
#define QUARANTINE_MAX (4ull << 20) /* freed slab bytes that wait for work to complete, before we wait for it */

struct slab {
	struct block *block;
	struct slab *next;
	uint32_t free_units;
	uint64_t used[SLAB_UNITS / 64]; /* bit per unit of MEMORY_ALIGN bytes */
};

struct freed { /* of a slab, until the work issued before has completed */
	struct freed *next;
	struct slab *slab;
	uint32_t first;
	uint32_t units;
	uint64_t seq;
	struct context *context;
};

static bool unit_used(const struct slab *slab, uint32_t unit)
{
	return slab->used[unit / 64] >> unit % 64 & 1;
}

static void units_mark(struct slab *slab, uint32_t first, uint32_t units, bool used)
{
	for (uint32_t i = first; i < first + units; i++) {
		if (used)
			slab->used[i / 64] |= 1ull << i % 64;
		else
			slab->used[i / 64] &= ~(1ull << i % 64);
	}
	slab->free_units = used ? slab->free_units - units : slab->free_units + units;
}

/* First run of free units that is long enough, at a multiple of @align units; -1 if none is. */
static int64_t units_find(const struct slab *slab, uint32_t units, uint32_t align)
{
	uint32_t run = 0;

	if (slab->free_units < units)
		return -1;
	for (uint32_t i = 0; i < SLAB_UNITS; i++) {
		if (!(i % 64) && slab->used[i / 64] == ~0ull) {
			run = 0;
			i += 63;
			continue;
		}
		if (unit_used(slab, i) || (!run && i % align))
			run = 0;
		else
			run++;
		if (run == units)
			return i + 1 - units;
	}
	return -1;
}

/* Freed units whose work has completed can be used again. */
static void quarantine_clear_locked(struct devmem *dm)
{
	struct freed **at = &dm->quarantine;

	while (*at) {
		struct freed *f = *at;

		if (__atomic_load_n(&f->context->active, __ATOMIC_ACQUIRE) &&
		    __atomic_load_n(&f->context->done_seq, __ATOMIC_ACQUIRE) < f->seq) {
			at = &f->next;
			continue;
		}
		units_mark(f->slab, f->first, f->units, false);
		dm->quarantine_bytes -= (uint64_t)f->units * MEMORY_ALIGN;
		*at = f->next;
		free(f);
	}
	dm->quarantine_end = at;
}

static uint64_t slab_take_locked(struct devmem *dm, uint32_t units, uint32_t align, struct slab **slab_out)
{
	for (struct slab *slab = dm->slabs; slab; slab = slab->next) {
		int64_t first = units_find(slab, units, align);

		if (first < 0)
			continue;
		units_mark(slab, (uint32_t)first, units, true);
		*slab_out = slab;
		return slab->block->address + (uint64_t)first * MEMORY_ALIGN;
	}
	return 0;
}

CUresult slab_alloc(struct call *call, uint64_t size, uint32_t align, uint64_t *address_out, struct slab **slab_out)
{
	struct devmem *dm = devmem_of(call->context->unit);
	uint32_t units = (uint32_t)((size + MEMORY_ALIGN - 1) / MEMORY_ALIGN);
	struct block *block;
	struct slab *slab;
	CUresult result;
	bool crowded;

	pthread_mutex_lock(&dm->lock);
	*address_out = slab_take_locked(dm, units, align, slab_out);
	if (!*address_out) {
		quarantine_clear_locked(dm);
		*address_out = slab_take_locked(dm, units, align, slab_out);
	}
	crowded = dm->quarantine_bytes > QUARANTINE_MAX;
	pthread_mutex_unlock(&dm->lock);
	if (*address_out)
		return CUDA_SUCCESS;
	if (crowded) {
		/* A program that allocates and frees small memory without ever waiting: natively each free waits. */
		result = context_wait(call);
		if (result)
			return result;
		pthread_mutex_lock(&dm->lock);
		quarantine_clear_locked(dm);
		*address_out = slab_take_locked(dm, units, align, slab_out);
		pthread_mutex_unlock(&dm->lock);
		if (*address_out)
			return CUDA_SUCCESS;
	}
	result = block_new(call, PIECE_SMALL, &block);
	if (result)
		return result;
	slab = calloc(1, sizeof(*slab));
	if (!slab) {
		block_free(call, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	slab->block = block;
	slab->free_units = SLAB_UNITS;
	block->slab = slab;
	pthread_mutex_lock(&dm->lock);
	units_mark(slab, 0, units, true);
	slab->next = dm->slabs;
	dm->slabs = slab;
	pthread_mutex_unlock(&dm->lock);
	*address_out = block->address;
	*slab_out = slab;
	return CUDA_SUCCESS;
}

void slab_free(struct call *call, struct slab *slab, uint64_t address, uint64_t size)
{
	struct devmem *dm = devmem_of(slab->block->unit);
	uint32_t units = (uint32_t)((size + MEMORY_ALIGN - 1) / MEMORY_ALIGN);
	struct freed *f = calloc(1, sizeof(*f));

	if (!f)
		return; /* the units stay taken: better than being used too early */
	f->slab = slab;
	f->first = (uint32_t)((address - slab->block->address) / MEMORY_ALIGN);
	f->units = units;
	f->context = call->context;
	f->seq = __atomic_load_n(&call->context->last_seq, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&dm->lock);
	*dm->quarantine_end = f;
	dm->quarantine_end = &f->next;
	dm->quarantine_bytes += (uint64_t)units * MEMORY_ALIGN;
	pthread_mutex_unlock(&dm->lock);
}

struct block *slab_block(const struct slab *slab)
{
	return slab->block;
}
