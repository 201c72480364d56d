/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory by the byte: where cuMemAlloc, variables of modules, pools and the kernels' own malloc come from.
 */
#ifndef SOFT_MEMORY_H
#define SOFT_MEMORY_H

#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_map.h"

/*
 * New memory of @context's device, counted against it, in the map as @kind. OUT_OF_MEMORY where the device or the
 * machine has no more.
 */
CUresult soft_memory_new(struct soft_context *context, uint64_t size, enum soft_range_kind kind, uint64_t owner,
			 uint64_t *address_out);

/* Managed memory: pages of its own, which the host may use, too. @context may be NULL: then it lasts until it is deleted. */
CUresult soft_memory_managed(struct soft_device *device, struct soft_context *context, uint64_t size, unsigned int flags,
			     uint64_t *address_out);

/* The same for a pool, whose memory belongs to no context. */
CUresult soft_memory_pool_range(struct soft_device *device, uint64_t size, uint64_t pool, uint64_t *address_out);

/* Whether kernels of @device may use memory of this pool. */
bool soft_pool_is_open(uint64_t pool, CUdevice device);

/* Frees a pool's block outside of any stream's order; INVALID_VALUE where it was freed before. */
CUresult soft_pool_delete(const struct soft_range *range);

/* Pools give back what they keep beyond their threshold: called when a context has been waited for. */
void soft_pool_settle(struct soft_device *device);

/* Gives back what soft_memory_new() made at @address as one of @kinds (bits); INVALID_VALUE where there is none. */
CUresult soft_memory_delete(uint64_t address, unsigned int kinds);

/* Frees everything that belongs to a context which ends. */
void soft_memory_leave(struct soft_context *context);

/* The part of a device's memory that is below chunk size. */
struct soft_heap;

/* @size bytes, 512-aligned, among variables or not, not in the map; the caller's range must carry soft_heap_release and the backing. */
CUresult soft_heap_take(struct soft_device *device, uint64_t size, bool symbols, uint64_t *address_out, void **backing_out);
void soft_heap_release(const struct soft_range *range);

#endif
