// SPDX-License-Identifier: Apache-2.0
/*
 * Memory pools and stream-ordered allocation. Memory is there as soon as the call returns, and goes back in the
 * stream's order; what a pool keeps for reuse is counted as reserved. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_stream.h"

/* Blocks a pool keeps: of a size class each, so a search is a walk of a short list. */
#define POOL_KEPT_MAX 4096

/* Memory that came back and may be given out again once @ticket is torn, or at once to work behind it. */
struct kept {
	struct kept *next;
	uint64_t address, size;
	struct soft_ticket *ticket;
	uint64_t stream; /* the handle of the stream it was freed in */
};

struct soft_memory_pool {
	struct soft_object object;
	struct soft_device *device;
	size_t size_max; /* 0: the device's */
	bool builtin;	 /* a device's default pool */
	_Atomic uint32_t open; /* bit per other device that may use its memory */

	pthread_mutex_t lock;
	/* guarded by lock */
	uint64_t threshold; /* what may stay reserved when a stream is idle */
	int reuse[4];	    /* by attribute number */
	uint64_t reserved, reserved_high, used, used_high;
	unsigned int kept_count;
	struct kept *kept;
};

/* What a block was asked from: found by its address when it is freed. */
#define BLOCK_UNIT 512u

static void pool_free(struct soft_object *object)
{
	struct soft_memory_pool *pool = (struct soft_memory_pool *)object;

	while (pool->kept) {
		struct kept *kept = pool->kept;

		pool->kept = kept->next;
		/* Freed, but work from before the free may still use it. */
		if (kept->ticket)
			soft_ticket_wait(kept->ticket);
		soft_memory_delete(kept->address, 1u << SOFT_RANGE_POOL);
		soft_ticket_put(kept->ticket);
		free(kept);
	}
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static CUresult pool_new(struct soft_device *device, size_t size_max, bool builtin, CUmemoryPool *pool_out)
{
	struct soft_memory_pool *pool = calloc(1, sizeof(*pool));
	CUresult result;

	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&pool->object, SOFT_POOL, NULL, pool_free);
	pthread_mutex_init(&pool->lock, NULL);
	pool->device = device;
	pool->size_max = size_max;
	pool->builtin = builtin;
	for (unsigned int i = 1; i < 4; i++)
		pool->reuse[i] = 1;
	result = soft_object_publish(&pool->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&pool->object);
	else
		*pool_out = (CUmemoryPool)(uintptr_t)atomic_load(&pool->object.handle);
	return result;
}

static CUresult pool_find(CUmemoryPool handle, struct soft_memory_pool **pool_out)
{
	TRY(soft_ready());
	*pool_out = (struct soft_memory_pool *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_POOL);
	return *pool_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define POOL_ARG(name, handle)                          \
	SOFT_HELD struct soft_memory_pool *name = NULL; \
	TRY(pool_find(handle, &name))

/* A device's default and current pool, made at the first question. */
static CUresult device_pools(CUdevice ordinal, struct soft_device **device_out, CUmemoryPool *default_out,
			     CUmemoryPool *current_out)
{
	struct soft_device *device;
	CUresult result = CUDA_SUCCESS;
	CUmemoryPool pool;

	TRY(soft_ready());
	device = soft_device_find(ordinal);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&device->lock);
	if (!device->pool_default) {
		result = pool_new(device, 0, true, &pool);
		if (result == CUDA_SUCCESS)
			device->pool_default = device->pool_current = pool;
	}
	*default_out = device->pool_default;
	*current_out = device->pool_current;
	pthread_mutex_unlock(&device->lock);
	*device_out = device;
	return result;
}

SOFT_API(cuDeviceGetDefaultMemPool, CUmemoryPool *pool, CUdevice dev)
{
	CUmemoryPool first, current;
	struct soft_device *device;

	TRY(device_pools(dev, &device, &first, &current));
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = first;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetMemPool, CUmemoryPool *pool, CUdevice dev)
{
	CUmemoryPool first, current;
	struct soft_device *device;

	TRY(device_pools(dev, &device, &first, &current));
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = current;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceSetMemPool, CUdevice dev, CUmemoryPool handle)
{
	CUmemoryPool first, current;
	struct soft_device *device;

	TRY(device_pools(dev, &device, &first, &current));
	POOL_ARG(pool, handle);
	if (pool->device != device)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&device->lock);
	device->pool_current = handle;
	pthread_mutex_unlock(&device->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolCreate, CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct soft_device *device;

	TRY(soft_ready());
	if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	device = soft_device_find(props->location.id);
	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	return pool_new(device, props->maxSize, false, pool);
}

SOFT_API(cuMemPoolDestroy, CUmemoryPool handle)
{
	struct soft_object *object;

	POOL_ARG(pool, handle);
	if (pool->builtin)
		return CUDA_ERROR_NOT_PERMITTED;
	pthread_mutex_lock(&pool->device->lock);
	if (pool->device->pool_current == handle)
		pool->device->pool_current = pool->device->pool_default;
	pthread_mutex_unlock(&pool->device->lock);
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_POOL);
	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	soft_object_put(object);
	return CUDA_SUCCESS;
}

/* Gives kept blocks that nobody waits for back to the device until no more than @keep bytes are reserved. */
static void pool_trim_locked(struct soft_memory_pool *pool, uint64_t keep)
{
	struct kept **link = &pool->kept;

	while (*link && pool->reserved > keep) {
		struct kept *kept = *link;

		if (kept->ticket && !soft_ticket_done(kept->ticket)) {
			link = &kept->next;
			continue;
		}
		*link = kept->next;
		pool->reserved -= kept->size;
		pool->kept_count--;
		soft_memory_delete(kept->address, 1u << SOFT_RANGE_POOL);
		soft_ticket_put(kept->ticket);
		free(kept);
	}
}

/* Whether the block at @address has been freed. */
static bool kept_find_locked(const struct soft_memory_pool *pool, uint64_t address)
{
	for (const struct kept *kept = pool->kept; kept; kept = kept->next)
		if (kept->address == address)
			return true;
	return false;
}

/* A kept block of just this size that work in @stream may use: freed in that stream before, or free for all. */
static struct kept *pool_reuse_locked(struct soft_memory_pool *pool, uint64_t size, uint64_t stream)
{
	for (struct kept **link = &pool->kept; *link; link = &(*link)->next) {
		struct kept *kept = *link;

		if (kept->size != size || (kept->stream != stream && kept->ticket && !soft_ticket_done(kept->ticket)))
			continue;
		*link = kept->next;
		pool->kept_count--;
		return kept;
	}
	return NULL;
}

static bool pool_is_open(struct soft_memory_pool *pool, CUdevice device)
{
	return device == pool->device->ordinal || atomic_load(&pool->open) >> device & 1;
}

bool soft_pool_is_open(uint64_t handle, CUdevice device)
{
	SOFT_HELD struct soft_memory_pool *pool = (struct soft_memory_pool *)soft_object_find(handle, SOFT_POOL);

	return pool && pool_is_open(pool, device);
}

static CUresult pool_take(struct soft_memory_pool *pool, struct soft_stream *stream, size_t asked, CUdeviceptr *pointer)
{
	struct soft_context *context = soft_stream_context(stream);
	uint64_t size = (asked + BLOCK_UNIT - 1) & ~(uint64_t)(BLOCK_UNIT - 1);
	CUresult result = CUDA_SUCCESS;
	struct kept *kept;
	uint64_t address;

	if (!pool_is_open(pool, context->device->ordinal))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->lock);
	kept = pool_reuse_locked(pool, size, atomic_load(&stream->object.handle));
	if (kept) {
		address = kept->address;
		soft_ticket_put(kept->ticket);
		free(kept);
	} else {
		if (pool->size_max && (size > pool->size_max || pool->reserved > pool->size_max - size))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else
			result = soft_memory_pool_range(pool->device, size, atomic_load(&pool->object.handle), &address);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && pool->kept) {
			/* What is kept for others may be what is missing. */
			pool_trim_locked(pool, 0);
			if (!pool->size_max || (size <= pool->size_max && pool->reserved <= pool->size_max - size))
				result = soft_memory_pool_range(pool->device, size,
								atomic_load(&pool->object.handle), &address);
		}
		if (result != CUDA_SUCCESS)
			goto unlock;
		pool->reserved += size;
		pool->reserved_high = MAX(pool->reserved_high, pool->reserved);
	}
	pool->used += size;
	pool->used_high = MAX(pool->used_high, pool->used);
	*pointer = address;
unlock:
	pthread_mutex_unlock(&pool->lock);
	return result;
}

SOFT_API(cuMemAllocFromPoolAsync, CUdeviceptr *pointer, size_t size, CUmemoryPool handle, CUstream stream_handle)
{
	SOFT_STREAM_ARG(stream, stream_handle);
	POOL_ARG(pool, handle);
	if (!pointer || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > pool->device->memory_size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return pool_take(pool, stream, size, pointer);
}

SOFT_API(cuMemAllocAsync, CUdeviceptr *pointer, size_t size, CUstream stream_handle)
{
	CUmemoryPool first, current;
	struct soft_device *device;

	SOFT_STREAM_ARG(stream, stream_handle);
	TRY(device_pools(soft_stream_context(stream)->device->ordinal, &device, &first, &current));
	return cuMemAllocFromPoolAsync(pointer, size, current, stream_handle);
}

/* Until a command put into @stream now would run: that follows the legacy stream too, as waiting for @stream need not. */
static CUresult stream_reach(struct soft_stream *stream)
{
	struct soft_ticket *ticket = NULL;

	TRY(soft_stream_mark(stream, NULL, &ticket));
	soft_ticket_wait(ticket);
	soft_ticket_put(ticket);
	return (CUresult)atomic_load(&soft_stream_context(stream)->error);
}

SOFT_API(cuMemFreeAsync, CUdeviceptr pointer, CUstream stream_handle)
{
	SOFT_HELD struct soft_memory_pool *pool = NULL;
	struct soft_ticket *ticket = NULL;
	struct soft_range range;
	struct kept *kept;
	bool freed;

	SOFT_STREAM_ARG(stream, stream_handle);
	if (!pointer || !soft_map_find(pointer, &range) || range.base != pointer)
		return CUDA_ERROR_INVALID_VALUE;
	/* Memory of the synchronous calls may be freed so as well: in the stream's order, which waits here. */
	if (range.kind == SOFT_RANGE_DEVICE) {
		TRY(stream_reach(stream));
		return soft_memory_delete(pointer, 1u << SOFT_RANGE_DEVICE);
	}
	if (range.kind != SOFT_RANGE_POOL)
		return CUDA_ERROR_INVALID_VALUE;
	if (pool_find((CUmemoryPool)(uintptr_t)range.owner, &pool) != CUDA_SUCCESS) {
		/* The pool was destroyed: the memory was only waiting for this. */
		TRY(stream_reach(stream));
		return soft_memory_delete(pointer, 1u << SOFT_RANGE_POOL);
	}
	kept = calloc(1, sizeof(*kept));
	if (!kept)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&pool->lock);
	freed = kept_find_locked(pool, pointer);
	pthread_mutex_unlock(&pool->lock);
	if (freed) {
		free(kept);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (soft_stream_mark(stream, NULL, &ticket) != CUDA_SUCCESS) {
		free(kept);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*kept = (struct kept){
		.address = pointer,
		.size = range.size,
		.ticket = ticket,
		.stream = atomic_load(&stream->object.handle),
	};
	pthread_mutex_lock(&pool->lock);
	kept->next = pool->kept;
	pool->kept = kept;
	pool->kept_count++;
	pool->used -= range.size;
	if (pool->kept_count > POOL_KEPT_MAX)
		pool_trim_locked(pool, 0);
	pthread_mutex_unlock(&pool->lock);
	return CUDA_SUCCESS;
}

CUresult soft_pool_delete(const struct soft_range *range)
{
	SOFT_HELD struct soft_memory_pool *pool = NULL;
	bool freed = false;

	if (pool_find((CUmemoryPool)(uintptr_t)range->owner, &pool) != CUDA_SUCCESS)
		return soft_memory_delete(range->base, 1u << SOFT_RANGE_POOL);
	pthread_mutex_lock(&pool->lock);
	freed = kept_find_locked(pool, range->base);
	if (!freed) {
		pool->used -= range->size;
		pool->reserved -= range->size;
	}
	pthread_mutex_unlock(&pool->lock);
	return freed ? CUDA_ERROR_INVALID_VALUE : soft_memory_delete(range->base, 1u << SOFT_RANGE_POOL);
}

void soft_pool_settle(struct soft_device *device)
{
	SOFT_HELD struct soft_memory_pool *pool = NULL;
	CUmemoryPool current;

	pthread_mutex_lock(&device->lock);
	current = device->pool_current;
	pthread_mutex_unlock(&device->lock);
	if (!current || pool_find(current, &pool) != CUDA_SUCCESS)
		return;
	pthread_mutex_lock(&pool->lock);
	pool_trim_locked(pool, MAX(pool->threshold, pool->used));
	pthread_mutex_unlock(&pool->lock);
}

SOFT_API(cuMemPoolTrimTo, CUmemoryPool handle, size_t keep)
{
	POOL_ARG(pool, handle);
	pthread_mutex_lock(&pool->lock);
	pool_trim_locked(pool, keep);
	pthread_mutex_unlock(&pool->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolSetAttribute, CUmemoryPool handle, int attribute, void *value)
{
	CUresult result = CUDA_SUCCESS;

	POOL_ARG(pool, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->lock);
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute] = *(int *)value != 0;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(uint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* A high-water mark can only be brought back to what is there now. */
		if (*(uint64_t *)value)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->used_high = pool->used;
		else
			pool->reserved_high = pool->reserved;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
		break;
	}
	pthread_mutex_unlock(&pool->lock);
	return result;
}

SOFT_API(cuMemPoolGetAttribute, CUmemoryPool handle, int attribute, void *value)
{
	CUresult result = CUDA_SUCCESS;

	POOL_ARG(pool, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->lock);
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = pool->reuse[attribute];
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(uint64_t *)value = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(uint64_t *)value = pool->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(uint64_t *)value = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(uint64_t *)value = pool->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(uint64_t *)value = pool->used_high;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
		break;
	}
	pthread_mutex_unlock(&pool->lock);
	return result;
}

SOFT_API(cuMemPoolSetAccess, CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	POOL_ARG(pool, handle);
	if (count && !map)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !soft_device_find(map[i].location.id))
			return CUDA_ERROR_INVALID_VALUE;
		/* One's own device can't be shut out. */
		if (map[i].location.id == pool->device->ordinal && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
	}
	for (size_t i = 0; i < count; i++) {
		if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
			atomic_fetch_and(&pool->open, ~(1u << map[i].location.id));
		else
			atomic_fetch_or(&pool->open, 1u << map[i].location.id);
	}
	atomic_fetch_add(&soft_map_generation, 1);
	return CUDA_SUCCESS;
}

SOFT_API(cuMemPoolGetAccess, int *flags, CUmemoryPool handle, CUmemLocation *location)
{
	POOL_ARG(pool, handle);
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || !soft_device_find(location->id))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = pool_is_open(pool, location->id) ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
