// SPDX-License-Identifier: Apache-2.0
/*
 * Page-locked host memory. Nothing is locked on the client: the promise that matters to a program is that copies may be
 * asynchronous, and those are made by late copies. Kernels reach it from when its device pointer is asked for
 * (exposed.c). Application threads.
 */
#include "libgleamcuda/host.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/pages.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/space.h"
#include "libgleamcuda/stream.h"

#define PAGE	  4096ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct space space; /* guarded by lock */

uint32_t host_made;

CUresult host_start(void)
{
	static bool reserved; /* an earlier cuInit has come to nothing */
	void *at;

	if (reserved)
		return CUDA_SUCCESS;
	at = mmap((void *)(uintptr_t)HOST_BASE, HOST_SPAN, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != (void *)(uintptr_t)HOST_BASE) {
		if (at != MAP_FAILED)
			munmap(at, HOST_SPAN);
		gleam_log("the addresses from %#llx on, for page-locked memory, are taken in this process",
			  (unsigned long long)HOST_BASE);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	space_init(&space, HOST_BASE, HOST_SPAN);
	reserved = true;
	return CUDA_SUCCESS;
}

static uint64_t pages(uint64_t size)
{
	return (size + PAGE - 1) & ~(PAGE - 1);
}

uint64_t host_space_take(uint64_t size)
{
	uint64_t address;

	pthread_mutex_lock(&lock);
	address = space_take(&space, pages(size), PAGE, 0);
	pthread_mutex_unlock(&lock);
	return address;
}

void host_space_give(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&lock);
	space_give(&space, address, pages(size));
	pthread_mutex_unlock(&lock);
}

CUresult do_cuMemHostAlloc(struct call *call, void **pp, size_t bytesize, unsigned int Flags)
{
	struct range range = { .size = bytesize, .kind = RANGE_HOST_MADE, .device = call->context->device,
			       .context = call->context };
	void *at;

	if (!pp ||
	    (Flags & ~(unsigned int)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
				     CU_MEMHOSTALLOC_WRITECOMBINED)))
		return CUDA_ERROR_INVALID_VALUE;
	/* As the driver: nothing is memory at NULL, which is freed without effect. */
	if (!bytesize) {
		*pp = NULL;
		return CUDA_SUCCESS;
	}
	if (bytesize > HOST_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range.start = host_space_take(bytesize);
	if (!range.start)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pages_make(call, range.start, pages(bytesize))) {
		at = (void *)(uintptr_t)range.start;
		range.flags = RANGE_PAGES;
	} else {
		at = mmap((void *)(uintptr_t)range.start, pages(bytesize), PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	if (at == MAP_FAILED)
		goto give_space;
	range.host = range.start;
	range.owner = (void *)(uintptr_t)Flags;
	if (range_add(&range))
		goto unmap;
	__atomic_fetch_add(&host_made, 1, __ATOMIC_RELAXED);
	*pp = at;
	return CUDA_SUCCESS;

unmap:
	if (range.flags & RANGE_PAGES)
		pages_end(call, range.start, pages(bytesize));
	mmap(at, pages(bytesize), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
give_space:
	host_space_give(range.start, bytesize);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult do_cuMemAllocHost_v2(struct call *call, void **pp, size_t bytesize)
{
	return do_cuMemHostAlloc(call, pp, bytesize, 0);
}

CUresult do_cuMemAllocHost(struct call *call, void **pp, unsigned int bytesize)
{
	return do_cuMemHostAlloc(call, pp, bytesize, 0);
}

/* Copies that are on their way into it have to arrive first; natively this waits too. */
static void quiet(struct call *call, const struct range *range)
{
	if (late_any() || hostfunc_outstanding())
		context_wait(call);
	/* Copies of other contexts, too: bytes that come later would come to nowhere. */
	late_wait_range((void *)(uintptr_t)range->start, range->size);
}

/* Kernels may still be using it. */
static void exposed_end(struct call *call, const struct range *range)
{
	if (!exposed_any() || !exposed_is(range->start))
		return;
	context_wait(call);
	exposed_close(call, range->start);
}

CUresult do_cuMemFreeHost(struct call *call, void *p)
{
	struct range range;

	if (!p)
		return CUDA_SUCCESS;
	if (!range_find((uint64_t)(uintptr_t)p, &range) || range.start != (uint64_t)(uintptr_t)p ||
	    range.kind != RANGE_HOST_MADE)
		return CUDA_ERROR_INVALID_VALUE;
	quiet(call, &range);
	exposed_end(call, &range);
	if (range_remove(range.start, false, &range))
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_fetch_sub(&host_made, 1, __ATOMIC_RELAXED);
	if (range.flags & RANGE_PAGES)
		pages_end(call, range.start, pages(range.size));
	mmap(p, pages(range.size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	host_space_give(range.start, range.size);
	return CUDA_SUCCESS;
}

/* Natively it is pinned, which fails for what isn't there. */
static bool is_mapped(uint64_t start, uint64_t size)
{
	uint64_t first = start & ~(PAGE - 1);

	/* A walk over the mappings; nothing is written. */
	return !msync((void *)(uintptr_t)first, start + size - first, MS_ASYNC) || errno != ENOMEM;
}

CUresult do_cuMemHostRegister_v2(struct call *call, void *p, size_t bytesize, unsigned int Flags)
{
	struct range range = { .start = (uint64_t)(uintptr_t)p, .size = bytesize, .kind = RANGE_HOST_REGISTERED,
			       .device = call->context->device, .context = call->context };
	struct range other;

	if (!p || !bytesize || bytesize > UINT64_MAX - range.start ||
	    (Flags & ~(unsigned int)(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
				     CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)))
		return CUDA_ERROR_INVALID_VALUE;
	if (Flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return call_refuse(call, "memory of devices on this machine can't be reached by a GPU of another");
	if (range_find(range.start, &other) && other.kind != RANGE_HOST_REGISTERED && other.kind != RANGE_HOST_MADE)
		return CUDA_ERROR_INVALID_VALUE;
	if (range_overlaps(range.start, bytesize))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!is_mapped(range.start, bytesize))
		return CUDA_ERROR_INVALID_VALUE;
	range.host = range.start;
	range.owner = (void *)(uintptr_t)Flags;
	if (Flags & CU_MEMHOSTREGISTER_READ_ONLY)
		range.flags = RANGE_READ_ONLY;
	switch (range_add(&range)) {
	case 0:
		return CUDA_SUCCESS;
	case -EEXIST:
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	default:
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
}

CUresult do_cuMemHostUnregister(struct call *call, void *p)
{
	struct range range;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!range_find((uint64_t)(uintptr_t)p, &range) || range.kind != RANGE_HOST_REGISTERED ||
	    range.start != (uint64_t)(uintptr_t)p)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	quiet(call, &range);
	exposed_end(call, &range);
	return range_remove(range.start, false, NULL) ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_SUCCESS;
}

CUresult do_cuMemHostGetFlags(struct call *call, unsigned int *pFlags, void *p)
{
	struct range range;

	if (!pFlags || !p || !range_find((uint64_t)(uintptr_t)p, &range))
		return CUDA_ERROR_INVALID_VALUE;
	if (range.kind == RANGE_HOST_MADE) {
		*pFlags = (unsigned int)(uintptr_t)range.owner;
		return CUDA_SUCCESS;
	}
	if (range.kind != RANGE_HOST_REGISTERED)
		return CUDA_ERROR_INVALID_VALUE;
	/* The manual promises nothing of registered memory; the driver tells it as made memory, mapped in any case. */
	*pFlags = ((unsigned int)(uintptr_t)range.owner & CU_MEMHOSTREGISTER_PORTABLE) | CU_MEMHOSTALLOC_DEVICEMAP;
	return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetDevicePointer_v2(struct call *call, CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	struct range range;
	CUresult result;

	if (!pdptr || !p || Flags || !range_find((uint64_t)(uintptr_t)p, &range) ||
	    (range.kind != RANGE_HOST_MADE && range.kind != RANGE_HOST_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	result = exposed_open(call, range.start, range.size);
	if (result)
		return result;
	range_place(range.start, exposed_device(range.start));
	*pdptr = exposed_device((uint64_t)(uintptr_t)p);
	return CUDA_SUCCESS;
}

CUresult do_cuMemHostGetDevicePointer(struct call *call, CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	return call_refuse(call, "it returns 32-bit addresses; rebuild the program with CUDA 4 or later");
}
