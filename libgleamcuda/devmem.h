/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What piece.c, slab.c and memory.c share of device memory: three layers, of which allocations are the uppermost, slabs hold the small
 * ones, and blocks of whole pieces lie below. A unit (memory.h) has one struct devmem. Any thread.
 */
#ifndef GLEAM_DEVMEM_H
#define GLEAM_DEVMEM_H

#include <pthread.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/piece.h"
#include "broker/proto/snapshot.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/space.h"

struct call;
struct freed;
struct slab;

/* Memory of whole pieces: an allocation, or a slab. Also the entry of what is being freed at the worker. */
struct block {
	uint64_t address;
	uint64_t size;
	uint32_t unit;
	struct slab *slab; /* NULL: an allocation of its own */
	struct block *next; /* in devmem.freeing */
};

struct pieces {
	uint64_t *ids;
	uint32_t count;
	uint32_t room;
};

struct devmem {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct space space;
	struct pieces unspent[PIECE_CLASSES];
	uint64_t unspent_bytes;
	uint64_t granted_bytes; /* in all that is granted now */
	struct slab *slabs;
	struct freed *quarantine; /* oldest first */
	struct freed **quarantine_end;
	uint64_t quarantine_bytes;
	struct block *freeing;
	pthread_cond_t freed; /* something has left freeing */
};


/* ---- piece.c ---- */

struct devmem *devmem_of(uint32_t unit);
/* A block of @size bytes, a multiple of PIECE_SMALL, of the call's context's device. */
CUresult block_new(struct call *call, uint64_t size, struct block **block_out);
/* The block is no one's any more; its addresses and pieces come back with the notice. */
CUresult block_free(struct call *call, struct block *block);

/* ---- slab.c ---- */

/* Less than SLAB_LIMIT bytes, at a multiple of @align units of MEMORY_ALIGN bytes. */
CUresult slab_alloc(struct call *call, uint64_t size, uint32_t align, uint64_t *address_out, struct slab **slab_out);
/* Used again when the work issued before has completed. */
void slab_free(struct call *call, struct slab *slab, uint64_t address, uint64_t size);
/* The block that it lies in. */
struct block *slab_block(const struct slab *slab);

#endif
