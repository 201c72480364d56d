// SPDX-License-Identifier: Apache-2.0
/*
 * Allocations of device memory and the API's questions about them: small ones lie in slabs, others are blocks of pieces of their own
 * (devmem.h). Any thread.
 */
#include "libgleamcuda/memory.h"

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/devmem.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/managed.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/pool.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/share.h"

/* ---- allocations ---- */

static CUresult take(struct call *call, uint64_t size, uint64_t align, uint64_t *address_out, void **owner_out)
{
	struct block *block = NULL;
	struct slab *slab = NULL;
	CUresult result;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > DEVICE_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (size < SLAB_LIMIT) {
		result = slab_alloc(call, size, (uint32_t)(align / MEMORY_ALIGN), address_out, &slab);
		if (!result && is_off(OFF_GRANTS))
			result = off_trip(call);
		if (result)
			return result;
		*owner_out = slab_block(slab);
		session_memory_count(call->session, (int64_t)size);
		return CUDA_SUCCESS;
	}
	result = block_new(call, (size + PIECE_SMALL - 1) & ~(PIECE_SMALL - 1), &block);
	if (result)
		return result;
	*address_out = block->address;
	*owner_out = block;
	session_memory_count(call->session, (int64_t)size);
	return CUDA_SUCCESS;
}

CUresult memory_take(struct call *call, uint64_t size, uint64_t *address_out, void **owner_out)
{
	return take(call, size, MEMORY_ALIGN, address_out, owner_out);
}

CUresult memory_take_pages(struct call *call, uint64_t size, uint64_t *address_out, void **owner_out)
{
	return take(call, size, MEMORY_PAGE, address_out, owner_out);
}

CUresult memory_give(struct call *call, uint64_t address, uint64_t size, void *owner)
{
	struct block *block = owner;
	struct session *of = session_of_unit(block->unit);

	/* A call about another server's devices, as a pool's may be: it is told in a call of its own. */
	if (of && of != call->session) {
		struct call other;
		CUresult result;

		call_start(&other, of, context_primary(device_of_unit(block->unit)));
		result = other.context ? memory_give(&other, address, size, owner) : CUDA_ERROR_INVALID_DEVICE;
		call_leave(&other, CUDA_SUCCESS);
		return result;
	}
	session_memory_count(call->session, -(int64_t)size);
	if (!block->slab)
		return block_free(call, block);
	slab_free(call, block->slab, address, size);
	return is_off(OFF_GRANTS | OFF_ASYNC) && call->thread ? off_trip(call) : CUDA_SUCCESS;
}

CUresult memory_alloc(struct call *call, uint64_t size, uint64_t *address_out)
{
	struct range range = { .size = size, .kind = RANGE_DEVICE, .flags = RANGE_IPC,
			       .device = call->context->device, .context = call->context };
	CUresult result = memory_take(call, size, &range.start, &range.owner);

	if (result)
		return result;
	range.dev = range.start;
	if (range_add(&range)) {
		memory_give(call, range.start, size, range.owner);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address_out = range.start;
	return CUDA_SUCCESS;
}

CUresult memory_free(struct call *call, uint64_t address)
{
	struct range range;
	CUresult result;

	if (!address)
		return CUDA_SUCCESS;
	if (graph_memory_free(address, &result)) {
		graph_memory_sweep(call);
		return result;
	}
	if (!range_find(address, &range) || range.start != address ||
	    (range.kind != RANGE_DEVICE && (range.kind != RANGE_MANAGED || range.flags & RANGE_VARIABLE)))
		return CUDA_ERROR_INVALID_VALUE;
	if (range.flags & RANGE_SHARED)
		return share_close(call, address);
	if (range.pool)
		return pool_free(call, address, NULL);
	/* Of two threads that free one address, one finds it. */
	if (range_remove(address, false, &range))
		return CUDA_ERROR_INVALID_VALUE;
	call_in(call, range.context);
	if (range.kind == RANGE_MANAGED)
		return managed_give(call, &range);
	return memory_give(call, range.start, range.size, range.owner);
}

uint64_t memory_block(uint64_t start)
{
	struct range range;

	if (!range_find(start, &range) || range.start != start || range.kind != RANGE_DEVICE || !range.owner)
		return 0;
	return ((const struct block *)(range.pool ? pool_owner(range.owner) : range.owner))->address;
}

static void context_range_free(const struct range *range)
{
	struct call call;

	if ((range->kind != RANGE_DEVICE && range->kind != RANGE_MANAGED) || !range->owner || range->pool ||
	    range->flags & RANGE_VARIABLE)
		return;
	call_start(&call, range->context->session, range->context);
	if (range->kind == RANGE_MANAGED)
		managed_give(&call, range);
	else
		memory_give(&call, range->start, range->size, range->owner);
	call_leave(&call, CUDA_SUCCESS);
}

void memory_context_closed(struct context *context)
{
	range_remove_context(context, context_range_free);
}

/* ---- the API ---- */

CUresult do_cuMemAlloc_v2(struct call *call, CUdeviceptr *dptr, size_t bytesize)
{
	uint64_t address;
	CUresult result;

	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = memory_alloc(call, bytesize, &address);
	if (!result)
		*dptr = address;
	return result;
}

CUresult do_cuMemFree_v2(struct call *call, CUdeviceptr dptr)
{
	return memory_free(call, dptr);
}

CUresult do_cuMemAllocPitch_v2(struct call *call, CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			       unsigned int ElementSizeBytes)
{
	uint64_t pitch;
	CUresult result;

	if (!dptr || !pPitch || !WidthInBytes || !Height ||
	    (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (WidthInBytes > DEVICE_SPAN || Height > DEVICE_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pitch = (WidthInBytes + MEMORY_ALIGN - 1) & ~(uint64_t)(MEMORY_ALIGN - 1);
	if (Height > DEVICE_SPAN / pitch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = do_cuMemAlloc_v2(call, dptr, pitch * Height);
	if (!result)
		*pPitch = pitch;
	return result;
}

CUresult do_cuMemGetInfo_v2(struct call *call, size_t *free_out, size_t *total)
{
	struct msg_gleamMemInfo m;
	struct ans_gleamMemInfo a;
	CUresult result;

	if (!free_out || !total)
		return CUDA_ERROR_INVALID_VALUE;
	m.device = call->context->node_device;
	result = CALL_ASK(call, gleamMemInfo, &m);
	if (result)
		return result;
	if (!ans_gleamMemInfo_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	*free_out = a.free; /* what this process holds unused included */
	*total = a.total;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAddressRange_v2(struct call *call, CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
	struct range range;

	if (!range_find(dptr, &range))
		return CUDA_ERROR_NOT_FOUND;
	if (range.kind != RANGE_DEVICE && range.kind != RANGE_MAPPED && range.kind != RANGE_GLOBAL && range.kind != RANGE_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	if (pbase)
		*pbase = range.start;
	if (psize)
		*psize = range.size;
	return CUDA_SUCCESS;
}

/* The first API had 32-bit addresses, which ours never are: what can't be told is refused. */

CUresult do_cuMemAlloc(struct call *call, CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	return call_refuse(call, "it returns 32-bit addresses; rebuild the program with CUDA 4 or later");
}

CUresult do_cuMemAllocPitch(struct call *call, CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			    unsigned int Height, unsigned int ElementSizeBytes)
{
	return call_refuse(call, "it returns 32-bit addresses; rebuild the program with CUDA 4 or later");
}

CUresult do_cuMemFree(struct call *call, CUdeviceptr_v1 dptr)
{
	return dptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult do_cuMemGetAddressRange(struct call *call, CUdeviceptr_v1 *pbase, unsigned int *psize, CUdeviceptr_v1 dptr)
{
	return CUDA_ERROR_NOT_FOUND;
}

CUresult do_cuMemGetInfo(struct call *call, unsigned int *free_out, unsigned int *total)
{
	size_t free_bytes, total_bytes;
	CUresult result;

	if (!free_out || !total)
		return CUDA_ERROR_INVALID_VALUE;
	result = do_cuMemGetInfo_v2(call, &free_bytes, &total_bytes);
	if (result)
		return result;
	*free_out = free_bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)free_bytes;
	*total = total_bytes > UINT32_MAX ? UINT32_MAX : (unsigned int)total_bytes;
	return CUDA_SUCCESS;
}
