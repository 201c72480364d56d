// SPDX-License-Identifier: Apache-2.0
/*
 * Allocation of device memory. Any thread.
 */
#include "broker/softgpu/soft_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "broker/proto/space.h"
#include "broker/softgpu/soft_green.h"
#include "broker/softgpu/soft_stream.h"

/* What cuMemAllocPitch rounds rows up to: the texture alignment. */
#define PITCH_ALIGN 512u

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define MANAGED_PAGE 4096u

static CUresult memory_new(struct soft_device *device, struct soft_context *context, uint64_t size,
			   enum soft_range_kind kind, uint64_t owner, uint64_t *address_out)
{
	struct soft_range range = {
		.size = size,
		.kind = kind,
		.device = device->ordinal,
		.context = context,
		.owner = owner,
		.release = soft_heap_release,
	};

	TRY(soft_heap_take(device, size, kind == SOFT_RANGE_SYMBOL, &range.base, &range.backing));
	if (soft_map_add(&range) < 0) {
		soft_heap_release(&range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address_out = range.base;
	return CUDA_SUCCESS;
}

CUresult soft_memory_new(struct soft_context *context, uint64_t size, enum soft_range_kind kind, uint64_t owner,
			 uint64_t *address_out)
{
	return memory_new(context->device, soft_context_home(context), size, kind, owner, address_out);
}

CUresult soft_memory_pool_range(struct soft_device *device, uint64_t size, uint64_t pool, uint64_t *address_out)
{
	return memory_new(device, NULL, size, SOFT_RANGE_POOL, pool, address_out);
}

static bool range_kind_is(const struct soft_range *range, const void *kinds)
{
	return *(const unsigned int *)kinds >> range->kind & 1;
}

CUresult soft_memory_delete(uint64_t address, unsigned int kinds)
{
	struct soft_range range;

	if (soft_map_remove(address, range_kind_is, &kinds, &range) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	soft_map_release(&range);
	return CUDA_SUCCESS;
}

void soft_memory_leave(struct soft_context *context)
{
	soft_map_sweep(context);
}

SOFT_API(cuMemGetInfo_v2, size_t *free_bytes, size_t *total)
{
	uint64_t unused, all;

	SOFT_ENTER(context);
	if (!free_bytes && !total)
		return CUDA_ERROR_INVALID_VALUE;
	soft_device_memory(context->device, &unused, &all);
	if (free_bytes)
		*free_bytes = unused;
	if (total)
		*total = all;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemAlloc_v2, CUdeviceptr *pointer, size_t size)
{
	uint64_t address;

	SOFT_ENTER(context);
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_memory_new(context, size, SOFT_RANGE_DEVICE, 0, &address));
	*pointer = address;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemAllocPitch_v2, CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	uint64_t address, row;

	SOFT_ENTER(context);
	if (!pointer || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (width > SIZE_MAX - PITCH_ALIGN)
		return CUDA_ERROR_INVALID_VALUE;
	row = (width + PITCH_ALIGN - 1) & ~(uint64_t)(PITCH_ALIGN - 1);
	if (height > UINT64_MAX / row)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_memory_new(context, row * height, SOFT_RANGE_DEVICE, 0, &address));
	*pointer = address;
	*pitch = row;
	return CUDA_SUCCESS;
}

static void managed_release(const struct soft_range *range)
{
	munmap((void *)(uintptr_t)range->base, range->size);
}

/*
 * Whole pages, in addresses where other processes have nothing either: a program whose GPU is elsewhere has the memory
 * at the same address.
 */
static void *managed_map(uint64_t size)
{
	static _Atomic uint64_t next = SPACE_MANAGED;
	uint64_t pages = (size + MANAGED_PAGE - 1) & ~(uint64_t)(MANAGED_PAGE - 1);
	uint64_t want = atomic_fetch_add(&next, pages);
	const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
	void *at = MAP_FAILED;

	if (want < SPACE_MANAGED_END && pages < SPACE_MANAGED_END - want)
		at = mmap((void *)(uintptr_t)want, pages, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, -1, 0);
	return at == MAP_FAILED ? mmap(NULL, pages, PROT_READ | PROT_WRITE, flags, -1, 0) : at;
}

CUresult soft_memory_managed(struct soft_device *device, struct soft_context *context, uint64_t size, unsigned int flags,
			     uint64_t *address_out)
{
	struct soft_range range = { .kind = SOFT_RANGE_MANAGED, .flags = flags, .release = managed_release, .size = size,
				    .device = device->ordinal, .context = context };
	void *at = managed_map(size);

	if (at == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range.base = (uint64_t)(uintptr_t)at;
	if (soft_map_add(&range) < 0) {
		munmap(at, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*address_out = range.base;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemAllocManaged, CUdeviceptr *pointer, size_t size, unsigned int flags)
{
	uint64_t address;

	SOFT_ENTER(context);
	/* Attached to all streams or to the host. */
	if (!pointer || !size || size > context->device->memory_size || (flags != 1 && flags != 2))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_memory_managed(context->device, context, size, flags, &address));
	*pointer = address;
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamAttachMemAsync, CUstream handle, CUdeviceptr pointer, size_t size, unsigned int flags)
{
	struct soft_range range;

	SOFT_STREAM_ARG(stream, handle);
	/* Globally, to the host, or to one stream: managed memory is the host's own here, so all of them hold. */
	if ((flags != 1 && flags != 2 && flags != 4) || !soft_map_find(pointer, &range) ||
	    range.kind != SOFT_RANGE_MANAGED || range.base != pointer || (size && size != range.size))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemFree_v2, CUdeviceptr pointer)
{
	const unsigned int kinds = 1u << SOFT_RANGE_DEVICE | 1u << SOFT_RANGE_MANAGED | 1u << SOFT_RANGE_POOL;
	struct soft_range range;

	SOFT_ENTER(context);
	if (!pointer)
		return CUDA_SUCCESS;
	if (!soft_map_find(pointer, &range) || range.base != pointer || !(kinds >> range.kind & 1))
		return CUDA_ERROR_INVALID_VALUE;
	/* Waits for the work that may still use it, as the real call does. */
	TRY(soft_context_sync(context));
	TRY(soft_green_sync(soft_context_home(context)));
	if (range.context && range.context != context) {
		SOFT_HELD struct soft_context *owner = NULL;

		if (soft_context_find((CUcontext)(uintptr_t)range.context_handle, &owner) == CUDA_SUCCESS)
			soft_context_sync(owner);
	}
	return range.kind == SOFT_RANGE_POOL ? soft_pool_delete(&range) : soft_memory_delete(pointer, kinds);
}

SOFT_API(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct soft_range range;

	SOFT_ENTER(context);
	if (!soft_map_find(pointer, &range) || range.kind == SOFT_RANGE_REGISTERED)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = range.base;
	if (size)
		*size = range.size;
	return CUDA_SUCCESS;
}
