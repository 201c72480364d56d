// SPDX-License-Identifier: Apache-2.0
/*
 * Memory pools. A freed block stays in its pool: the stream that freed it may have it at once, others when the work
 * before the free has completed, which the progress words tell. At waits what exceeds the release threshold goes back.
 * Application threads; the lock is never held over a message that waits.
 */
#include "libgleamcuda/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/share.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/stream.h"

struct block {
	struct block *next;
	uint64_t address;
	uint64_t size; /* as it was taken: allocations use less */
	void *owner;   /* memory_give()'s */
	struct pool *pool;
	/* of a free one */
	struct stream *stream; /* whose work it waits for; type-stable */
	uint32_t word;
	uint64_t seq;
};

struct pool {
	uint64_t handle;
	int device;
	bool standard; /* the device's default pool: can't be destroyed */
	CUmemPoolProps props;
	/* guarded by lock */
	bool dead; /* destroyed, while allocations live */
	uint32_t open; /* bit per other device that reaches its memory */
	bool imported; /* another program's: nothing is allocated from it */
	struct block *free;
	uint64_t threshold;
	uint64_t reserved, reserved_high;
	uint64_t used, used_high;
	int reuse[3]; /* follow event dependencies, opportunistic, internal dependencies: kept, and always on */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stable pools = STABLE(struct pool);
/* guarded by lock */
static struct pool *standards[SNAPSHOT_DEVICES]; /* by the program's ordinal */
static struct pool *currents[SNAPSHOT_DEVICES];
/* atomic: blocks that lie free in some pool */
static uint32_t idle;

/* ---- pools ---- */

static struct pool *pool_of(CUmemoryPool handle)
{
	return handle_data(OBJECT_POOL, (uint64_t)(uintptr_t)handle);
}

static struct pool *pool_new(int device, bool standard)
{
	struct pool *pool = stable_take(&pools);

	if (!pool)
		return NULL;
	*pool = (struct pool){ .device = device, .standard = standard, .reuse = { 1, 1, 1 } };
	pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	pool->props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	pool->props.location.id = device;
	pool->handle = handle_new(OBJECT_POOL, NULL, pool);
	if (!pool->handle) {
		stable_give(&pools, pool);
		return NULL;
	}
	return pool;
}

static struct pool *standard_of(int device)
{
	struct pool *pool;

	if (device < 0 || device >= device_count())
		return NULL;
	pthread_mutex_lock(&lock);
	if (!standards[device])
		standards[device] = pool_new(device, true);
	pool = standards[device];
	pthread_mutex_unlock(&lock);
	return pool;
}

static struct pool *current_of(int device)
{
	struct pool *pool = standard_of(device);

	pthread_mutex_lock(&lock);
	if (pool && currents[device])
		pool = currents[device];
	pthread_mutex_unlock(&lock);
	return pool;
}

/* ---- blocks ---- */

/* May the next command of @stream use it? */
static bool block_usable(const struct block *block, const struct stream *stream)
{
	return block->stream == stream || session_reached(device_at(block->pool->device)->session, block->word, block->seq);
}

/* A free block of at least @size bytes and not twice as many; taken out of the pool. */
static struct block *block_reuse_locked(struct pool *pool, uint64_t size, struct stream *stream)
{
	struct block **best = NULL;

	for (struct block **at = &pool->free; *at; at = &(*at)->next)
		if ((*at)->size >= size && ((*at)->size <= size * 2 || (*at)->size <= PIECE_SMALL) &&
		    block_usable(*at, stream) && (!best || (*at)->size < (*best)->size))
			best = at;
	if (!best)
		return NULL;

	struct block *block = *best;

	*best = block->next;
	__atomic_fetch_sub(&idle, 1, __ATOMIC_RELAXED);
	return block;
}

static void block_return(struct call *call, struct block *block)
{
	memory_give(call, block->address, block->size, block->owner);
	free(block);
}

/* Free blocks whose work has completed go back until at most @keep bytes are reserved. Takes the lock by itself. */
static void pool_trim(struct call *call, struct pool *pool, uint64_t keep)
{
	struct block *gone = NULL;

	pthread_mutex_lock(&lock);
	for (struct block **at = &pool->free; *at && pool->reserved > keep;) {
		struct block *block = *at;

		if (!session_reached(device_at(pool->device)->session, block->word, block->seq)) {
			at = &block->next;
			continue;
		}
		*at = block->next;
		block->next = gone;
		gone = block;
		pool->reserved -= block->size;
		__atomic_fetch_sub(&idle, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	while (gone) {
		struct block *block = gone;

		gone = block->next;
		block_return(call, block);
	}
}

static void synchronised_one(uint64_t handle, void *data)
{
	struct pool *pool = data;
	struct call call;
	struct context *context;
	uint64_t keep;
	bool more;

	(void)handle;
	if (!pool)
		return;
	pthread_mutex_lock(&lock);
	keep = pool->threshold;
	more = pool->reserved > keep;
	pthread_mutex_unlock(&lock);
	if (!more)
		return;
	context = context_primary(pool->device);
	call_start(&call, context->session, context);
	pool_trim(&call, pool, keep);
	call_leave(&call, CUDA_SUCCESS);
}

void pool_synchronised(struct call *call)
{
	/* Nothing lies about in any pool: what nearly every wait finds. */
	if (__atomic_load_n(&idle, __ATOMIC_RELAXED))
		handle_each(OBJECT_POOL, NULL, synchronised_one);
}

/* ---- allocation ---- */

/* An allocation on a capturing stream is a node, whose memory is the graph's. */
static CUresult alloc_captured(struct call *call, struct pool *pool, uint64_t size, uint64_t stream, CUdeviceptr *dptr)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC };
	CUresult result = graph_memory_new(call, pool->device, size, &work.alloc.memory);

	if (result)
		return result;
	work.alloc.params.poolProps = pool->props;
	work.alloc.params.bytesize = size;
	work.alloc.params.dptr = graph_memory_address(work.alloc.memory);
	*dptr = work.alloc.params.dptr;
	result = capture_add(call, stream, &work);
	graph_memory_sweep(call);
	return result;
}

/* Memory of the pool's device, whatever device is current. */
static CUresult block_take(struct call *call, struct block *block, const struct stream *stream)
{
	struct context *current = call->context;
	CUresult result;

	call_in(call, stream->context->device == block->pool->device ? stream->context : context_primary(block->pool->device));
	result = memory_take(call, block->size, &block->address, &block->owner);
	call_in(call, current);
	return result;
}

static CUresult pool_alloc(struct call *call, struct pool *pool, uint64_t size, CUstream hStream, CUdeviceptr *dptr)
{
	struct range range = { .size = size, .kind = RANGE_DEVICE, .device = pool->device, .pool = pool->handle };
	struct block *block;
	struct stream *stream;
	uint64_t handle;
	bool captured;
	CUresult result;

	if (!dptr)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream_captured(call, hStream, &handle, &captured);
	if (result)
		return result;
	if (captured)
		return alloc_captured(call, pool, size, handle, dptr);
	stream = stream_find(call, handle);
	if (!size) {
		*dptr = 0;
		return CUDA_SUCCESS;
	}
	if (stream->context->device != pool->device && !(pool->open >> stream->context->device & 1))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	block = block_reuse_locked(pool, size, stream);
	pthread_mutex_unlock(&lock);
	if (!block) {
		block = calloc(1, sizeof(*block));
		if (!block)
			return CUDA_ERROR_OUT_OF_MEMORY;
		block->pool = pool;
		block->size = size < SLAB_LIMIT ? (size + MEMORY_ALIGN - 1) & ~(uint64_t)(MEMORY_ALIGN - 1) :
						  (size + PIECE_SMALL - 1) & ~(PIECE_SMALL - 1);
		result = block_take(call, block, stream);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && __atomic_load_n(&idle, __ATOMIC_RELAXED)) {
			/* Pools may be sitting on memory that has come free. */
			result = context_wait(call);
			pool_trim(call, pool, 0);
			if (!result)
				result = block_take(call, block, stream);
		}
		if (result) {
			free(block);
			return result;
		}
		pthread_mutex_lock(&lock);
		pool->reserved += block->size;
		if (pool->reserved > pool->reserved_high)
			pool->reserved_high = pool->reserved;
		pthread_mutex_unlock(&lock);
	}
	range.start = range.dev = block->address;
	range.owner = block;
	if (range_add(&range)) {
		block_return(call, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&lock);
	pool->used += block->size;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	pthread_mutex_unlock(&lock);
	*dptr = block->address;
	return CUDA_SUCCESS;
}

CUresult pool_free(struct call *call, uint64_t address, struct stream *stream)
{
	struct range range;
	struct block *block;
	struct pool *pool;
	CUresult result = CUDA_SUCCESS;
	bool last;

	if (!range_find(address, &range) || range.start != address || !range.pool)
		return CUDA_ERROR_INVALID_VALUE;
	/* The stream of another server's GPU: what it has is waited for, and then it is freed at its own. */
	if (device_at(range.device)->session != call->session) {
		result = stream ? stream_wait(call, stream) : CUDA_SUCCESS;
		if (result)
			return result;
		stream = NULL;
		call_in(call, context_primary(range.device));
	}
	if (!stream) {
		result = context_wait(call);
		if (result)
			return result;
	}
	if (range_remove(address, false, &range))
		return CUDA_ERROR_INVALID_VALUE;
	block = range.owner;
	pool = block->pool;
	if (!stream)
		stream = stream_legacy(call->context);
	block->stream = stream;
	block->word = stream->word;
	block->seq = __atomic_load_n(&stream->last_seq, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&lock);
	pool->used -= block->size;
	block->next = pool->free;
	pool->free = block;
	__atomic_fetch_add(&idle, 1, __ATOMIC_RELAXED);
	last = pool->dead && !pool->used;
	pthread_mutex_unlock(&lock);
	if (last) {
		pool_trim(call, pool, 0);
		stable_give(&pools, handle_end(pool->handle));
	}
	return CUDA_SUCCESS;
}

CUresult do_cuMemAllocAsync(struct call *call, CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
	struct pool *pool = current_of(call->context->device);

	return pool ? pool_alloc(call, pool, bytesize, hStream, dptr) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult do_cuMemAllocFromPoolAsync(struct call *call, CUdeviceptr *dptr, size_t bytesize, CUmemoryPool handle,
				    CUstream hStream)
{
	struct pool *pool = pool_of(handle);

	return pool && !pool->dead && !pool->imported ? pool_alloc(call, pool, bytesize, hStream, dptr) :
							CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemFreeAsync(struct call *call, CUdeviceptr dptr, CUstream hStream)
{
	bool captured;
	uint64_t handle;
	CUresult result = call_stream_captured(call, hStream, &handle, &captured);

	if (result || !dptr)
		return result;
	if (captured) {
		struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .freed = dptr };

		/* Only what a graph has allocated: everything else would be freed once and used at each launch. */
		return graph_memory_has(dptr) ? capture_add(call, handle, &work) : CUDA_ERROR_INVALID_VALUE;
	}
	if (graph_memory_free(dptr, &result)) {
		graph_memory_sweep(call);
		return result;
	}
	/* Another program's allocation: only the mapping ends, when nothing uses it any more. */
	if (share_has(dptr))
		return share_close(call, dptr);
	return pool_free(call, dptr, stream_find(call, handle));
}

/* ---- pools of devices ---- */

/* A device that isn't there has none. */
static CUresult pool_tell(const struct pool *pool, CUmemoryPool *pool_out)
{
	if (!pool)
		return CUDA_ERROR_INVALID_DEVICE;
	*pool_out = (CUmemoryPool)(uintptr_t)pool->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDefaultMemPool(struct call *call, CUmemoryPool *pool_out, CUdevice dev)
{
	return pool_out ? pool_tell(standard_of(dev), pool_out) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuDeviceGetMemPool(struct call *call, CUmemoryPool *pool_out, CUdevice dev)
{
	return pool_out ? pool_tell(current_of(dev), pool_out) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuDeviceSetMemPool(struct call *call, CUdevice dev, CUmemoryPool handle)
{
	struct pool *pool = pool_of(handle);

	if (dev < 0 || dev >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool || pool->dead || pool->device != dev)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	currents[dev] = pool;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult location_ordinal(const CUmemLocation *location, CUmemAllocationType type, CUdevice *device_out)
{
	if (!location || type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	*device_out = location->id;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetDefaultMemPool(struct call *call, CUmemoryPool *pool_out, CUmemLocation *location,
				   CUmemAllocationType type)
{
	CUdevice device;
	CUresult result = location_ordinal(location, type, &device);

	return result ? result : do_cuDeviceGetDefaultMemPool(call, pool_out, device);
}

CUresult do_cuMemGetMemPool(struct call *call, CUmemoryPool *pool_out, CUmemLocation *location, CUmemAllocationType type)
{
	CUdevice device;
	CUresult result = location_ordinal(location, type, &device);

	return result ? result : do_cuDeviceGetMemPool(call, pool_out, device);
}

CUresult do_cuMemSetMemPool(struct call *call, CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	CUdevice device;
	CUresult result = location_ordinal(location, type, &device);

	return result ? result : do_cuDeviceSetMemPool(call, device, pool);
}

CUresult do_cuMemPoolCreate(struct call *call, CUmemoryPool *pool_out, const CUmemPoolProps *poolProps)
{
	struct pool *pool;

	if (!pool_out || !poolProps || poolProps->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return call_refuse(call, "pools of host memory would be the server's");
	if (poolProps->location.id < 0 || poolProps->location.id >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (poolProps->handleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return call_refuse(call, "pools can be shared with other processes by file descriptor only");
	pool = pool_new(poolProps->location.id, false);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->props = *poolProps;
	*pool_out = (CUmemoryPool)(uintptr_t)pool->handle;
	return CUDA_SUCCESS;
}

/* Blocks of pools lie beside other memory of their device, which is opened as a whole. */
static CUresult pool_open(struct call *call, struct pool *pool, int device, bool on)
{
	bool was;

	pthread_mutex_lock(&lock);
	was = pool->open >> device & 1;
	pool->open = on ? pool->open | 1u << device : pool->open & ~(1u << device);
	pthread_mutex_unlock(&lock);
	return was == on ? CUDA_SUCCESS : peer_device(call, device, pool->device, on);
}

CUresult do_cuMemPoolDestroy(struct call *call, CUmemoryPool handle)
{
	struct pool *pool = pool_of(handle);
	bool last;

	if (!pool || pool->standard)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (pool->dead) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	pool->dead = true;
	for (int d = 0; d < SNAPSHOT_DEVICES; d++)
		if (currents[d] == pool)
			currents[d] = NULL;
	last = !pool->used;
	pthread_mutex_unlock(&lock);
	if (!call->context)
		call_in(call, context_primary(pool->device));
	for (int d = 0; d < device_count(); d++)
		if (pool->open >> d & 1)
			pool_open(call, pool, d, false);
	/* Blocks that work still uses come back by memory's own quarantine. */
	while (pool->free) {
		struct block *block;

		pthread_mutex_lock(&lock);
		block = pool->free;
		if (block) {
			pool->free = block->next;
			pool->reserved -= block->size;
			__atomic_fetch_sub(&idle, 1, __ATOMIC_RELAXED);
		}
		pthread_mutex_unlock(&lock);
		if (block)
			block_return(call, block);
	}
	if (last)
		stable_give(&pools, handle_end(pool->handle));
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolTrimTo(struct call *call, CUmemoryPool handle, size_t minBytesToKeep)
{
	struct pool *pool = pool_of(handle);

	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	if (!call->context)
		call_in(call, context_primary(pool->device));
	pool_trim(call, pool, minBytesToKeep);
	return CUDA_SUCCESS;
}

/* The three switches are ints, the rest are 64-bit numbers. */
CUresult do_cuMemPoolGetAttribute(struct call *call, CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct pool *pool = pool_of(handle);
	CUresult result = CUDA_SUCCESS;
	uint64_t number = 0;

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		memcpy(value, &pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES], sizeof(int));
		pthread_mutex_unlock(&lock);
		return CUDA_SUCCESS;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		number = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		number = pool->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		number = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		number = pool->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		number = pool->used_high;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	if (!result)
		memcpy(value, &number, sizeof(number));
	return result;
}

CUresult do_cuMemPoolSetAttribute(struct call *call, CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct pool *pool = pool_of(handle);
	CUresult result = CUDA_SUCCESS;
	uint64_t number = 0;
	int on = 0;

	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		memcpy(&on, value, sizeof(on));
		pool->reuse[attr - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = on != 0;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		memcpy(&pool->threshold, value, sizeof(pool->threshold));
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* A high-water mark can only be put back to zero, which means: to what is there now. */
		memcpy(&number, value, sizeof(number));
		if (number)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->used_high = pool->used;
		else
			pool->reserved_high = pool->reserved;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult do_cuMemPoolSetAccess(struct call *call, CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
	struct pool *pool = pool_of(handle);
	CUresult result = CUDA_SUCCESS;

	if (!pool || (count && !map))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return CUDA_ERROR_INVALID_VALUE;
		/* The pool's own device always has access. */
		if (map[i].location.id == pool->device && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		if (map[i].location.id != pool->device && !peer_possible(call, map[i].location.id, pool->device))
			return CUDA_ERROR_INVALID_DEVICE;
		if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE; /* reading alone is not for pools */
	}
	for (size_t i = 0; i < count && !result; i++)
		if (map[i].location.id != pool->device)
			result = pool_open(call, pool, map[i].location.id, map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
	return result;
}

CUresult do_cuMemPoolGetAccess(struct call *call, CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location)
{
	struct pool *pool = pool_of(memPool);

	if (!pool || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE || location->id < 0 ||
	    location->id >= device_count())
		return CUDA_ERROR_INVALID_VALUE;
	*flags = location->id == pool->device || pool->open >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE :
										 CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* ---- between processes ---- */

void *pool_owner(const void *owner)
{
	return ((const struct block *)owner)->owner;
}

static bool pool_is_shared(const struct pool *pool)
{
	return pool && !pool->dead && pool->props.handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

CUresult do_cuMemPoolExportToShareableHandle(struct call *call, void *handle_out, CUmemoryPool handle,
					     CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct share_token token = { .magic = SHARE_MAGIC, .kind = SHARE_POOL };
	struct pool *pool = pool_of(handle);
	CUresult result;
	int fd;

	if (!handle_out || flags || !pool_is_shared(pool) || pool->imported ||
	    handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	token.offset = pool->handle;
	result = share_fd_make(&token, &fd);
	if (!result)
		memcpy(handle_out, &fd, sizeof(fd));
	return result;
}

/* It has no memory of its own: allocations come one by one, by cuMemPoolImportPointer. */
CUresult do_cuMemPoolImportFromShareableHandle(struct call *call, CUmemoryPool *pool_out, void *handle,
					       CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct share_token token;
	struct pool *pool;

	if (!pool_out || flags || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !share_fd_read((int)(intptr_t)handle, &token) || token.kind != SHARE_POOL)
		return CUDA_ERROR_INVALID_VALUE;
	pool = pool_new(call->context ? call->context->device : 0, false);
	if (!pool)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->imported = true;
	pool->props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	*pool_out = (CUmemoryPool)(uintptr_t)pool->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuMemPoolExportPointer(struct call *call, CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	struct share_token token;
	struct range range;
	CUresult result;

	if (!shareData_out || !range_find(ptr, &range) || range.start != ptr || !range.pool ||
	    !pool_is_shared(pool_of((CUmemoryPool)(uintptr_t)range.pool)))
		return CUDA_ERROR_INVALID_VALUE;
	result = share_range(call, &range, SHARE_POINTER, &token);
	if (!result)
		memcpy(shareData_out, &token, sizeof(*shareData_out));
	return result;
}

CUresult do_cuMemPoolImportPointer(struct call *call, CUdeviceptr *ptr_out, CUmemoryPool handle,
				   CUmemPoolPtrExportData *shareData)
{
	struct pool *pool = pool_of(handle);
	struct share_token token;
	uint64_t address;
	CUresult result;

	if (!ptr_out || !shareData || !pool_is_shared(pool) || !pool->imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&token, shareData, sizeof(token));
	if (token.magic != SHARE_MAGIC || token.kind != SHARE_POINTER)
		return CUDA_ERROR_INVALID_VALUE;
	if (!call->context)
		call_in(call, context_primary(pool->device));
	result = share_open(call, &token, &address);
	if (!result)
		*ptr_out = address;
	return result;
}
