// SPDX-License-Identifier: Apache-2.0
/*
 * Host memory that the device may use: allocated page-locked memory and registered ranges. Its device address is
 * its host address. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_stream.h"

#define HOST_ALLOC_FLAGS (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)
#define HOST_REGISTER_FLAGS                                                                               \
	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY | \
	 CU_MEMHOSTREGISTER_READ_ONLY)
/* Page-locked memory at once in one allocation; the device could not even be told more. */
#define HOST_SIZE_MAX ((uint64_t)1 << 40)

static void host_release(const struct soft_range *range)
{
	munmap(range->backing, range->size);
}

SOFT_API(cuMemHostAlloc, void **pointer, size_t size, unsigned int flags)
{
	struct soft_range range = { .kind = SOFT_RANGE_HOST, .device = -1, .flags = flags, .release = host_release };

	SOFT_ENTER(context);
	if (!pointer || size > HOST_SIZE_MAX || flags & ~HOST_ALLOC_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size) {
		*pointer = NULL;
		return CUDA_SUCCESS;
	}
	range.backing = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (range.backing == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range.base = (uint64_t)(uintptr_t)range.backing;
	range.size = size;
	range.device = context->device->ordinal;
	range.context = context;
	if (soft_map_add(&range) < 0) {
		munmap(range.backing, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pointer = range.backing;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemAllocHost_v2, void **pointer, size_t size)
{
	return cuMemHostAlloc(pointer, size, 0);
}

static bool kind_is(const struct soft_range *range, const void *kind)
{
	return range->kind == *(const enum soft_range_kind *)kind;
}

SOFT_API(cuMemFreeHost, void *pointer)
{
	const enum soft_range_kind kind = SOFT_RANGE_HOST;
	struct soft_range range;

	SOFT_ENTER(context);
	if (!pointer)
		return CUDA_SUCCESS;
	if (!soft_map_find((uint64_t)(uintptr_t)pointer, &range) || range.kind != kind ||
	    range.base != (uint64_t)(uintptr_t)pointer)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_context_sync(context));
	if (soft_map_remove((uint64_t)(uintptr_t)pointer, kind_is, &kind, &range) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	soft_map_release(&range);
	return CUDA_SUCCESS;
}

/* Whether every page of it is mapped at all: a device can't be told of others. */
static bool pages_mapped(uint64_t address, uint64_t size)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char resident[1024];
	uint64_t end = address + size;

	for (uint64_t at = address & ~(page - 1); at < end; at += page * sizeof(resident)) {
		uint64_t length = MIN(page * sizeof(resident), end - at);

		if (mincore((void *)(uintptr_t)at, length, resident) < 0)
			return false;
	}
	return true;
}

SOFT_API(cuMemHostRegister_v2, void *pointer, size_t size, unsigned int flags)
{
	struct soft_range range = { .kind = SOFT_RANGE_REGISTERED, .flags = flags };
	int ret;

	SOFT_ENTER(context);
	range.base = (uint64_t)(uintptr_t)pointer;
	range.size = size;
	range.device = context->device->ordinal;
	range.context = context;
	range.read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
	if (!pointer || !size || flags & ~HOST_REGISTER_FLAGS || size > HOST_SIZE_MAX || range.base > UINT64_MAX - size)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!pages_mapped(range.base, size))
		return CUDA_ERROR_INVALID_VALUE;
	ret = soft_map_add(&range);
	if (ret == -EEXIST)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return ret < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

SOFT_API(cuMemHostUnregister, void *pointer)
{
	const enum soft_range_kind kind = SOFT_RANGE_REGISTERED;
	struct soft_range range;

	SOFT_ENTER(context);
	if (!pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_map_find((uint64_t)(uintptr_t)pointer, &range) || range.kind != kind ||
	    range.base != (uint64_t)(uintptr_t)pointer)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	/* The pages are the caller's: nobody may be in them when this returns. */
	TRY(soft_context_sync(context));
	if (soft_map_remove((uint64_t)(uintptr_t)pointer, kind_is, &kind, &range) < 0)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemHostGetDevicePointer_v2, CUdeviceptr *device, void *pointer, unsigned int flags)
{
	struct soft_range range;

	SOFT_ENTER(context);
	if (!device || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_map_find((uint64_t)(uintptr_t)pointer, &range) || !soft_range_on_host(&range))
		return CUDA_ERROR_INVALID_VALUE;
	*device = (uint64_t)(uintptr_t)pointer;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemHostGetFlags, unsigned int *flags, void *pointer)
{
	struct soft_range range;

	SOFT_ENTER(context);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_map_find((uint64_t)(uintptr_t)pointer, &range) ||
	    (range.kind != SOFT_RANGE_HOST && range.kind != SOFT_RANGE_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	/* With unified addresses all of it is mapped, whatever was asked. */
	*flags = range.kind == SOFT_RANGE_HOST ? range.flags : range.flags & CU_MEMHOSTREGISTER_PORTABLE;
	*flags |= CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}
