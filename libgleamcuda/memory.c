// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory. Three layers: address space of a device, physical pieces granted by the worker, and slabs that small
 * allocations share. Application threads, and the service thread for what comes back. The lock is never held over a
 * message that waits.
 */
#include "libgleamcuda/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "broker/proto/snapshot.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/managed.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/pool.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/share.h"
#include "libgleamcuda/space.h"
#include "libgleamcuda/stream.h"

#define CLASSES	       3
#define GRANT_MIN      (16ull << 20)  /* asked for at least: eight small pieces, 0.1 ms of the worker's time */
#define UNSPENT_MAX    (512ull << 20) /* kept for the next allocation; more goes back to the node */
#define MAP_PIECES_MAX 512	      /* of one message */
#define SLAB_UNITS     (PIECE_SMALL / MEMORY_ALIGN)
#define FREED_WAIT_NS  20000000 /* so often a session that has died is noticed */
#define FREED_WAITS    250	/* 5 s in all: notices that came before an answer take far less */
#define QUARANTINE_MAX (4ull << 20) /* freed slab bytes that wait for work to complete, before we wait for it */

static const uint64_t class_size[CLASSES] = { 2ull << 20, 32ull << 20, 256ull << 20 };

/* Memory of whole pieces: an allocation, or a slab. Also the entry of what is being freed at the worker. */
struct block {
	uint64_t address;
	uint64_t size;
	uint32_t device;
	struct slab *slab; /* NULL: an allocation of its own */
	struct block *next; /* in devmem.freeing */
};

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

struct pieces {
	uint64_t *ids;
	uint32_t count;
	uint32_t room;
};

static struct devmem {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct space space;
	struct pieces unspent[CLASSES];
	uint64_t unspent_bytes;
	struct slab *slabs;
	struct freed *quarantine; /* oldest first */
	struct freed **quarantine_end;
	uint64_t quarantine_bytes;
	struct block *freeing;
	pthread_cond_t freed; /* something has left freeing */
} devmems[SNAPSHOT_DEVICES];

static pthread_once_t devmems_once = PTHREAD_ONCE_INIT;

static void devmems_init(void)
{
	for (uint32_t d = 0; d < SNAPSHOT_DEVICES; d++) {
		pthread_mutex_init(&devmems[d].lock, NULL);
		pthread_cond_init(&devmems[d].freed, NULL);
		space_init(&devmems[d].space, DEVICE_BASE + d * DEVICE_SPAN, DEVICE_SPAN);
		devmems[d].quarantine_end = &devmems[d].quarantine;
	}
}

static struct devmem *devmem_of(uint32_t device)
{
	pthread_once(&devmems_once, devmems_init);
	return &devmems[device];
}

CUresult memory_start(uint32_t devices)
{
	for (uint32_t d = 0; d < devices && d < SNAPSHOT_DEVICES; d++) {
		void *want = (void *)(uintptr_t)(DEVICE_BASE + d * DEVICE_SPAN);
		/* Nothing of the program's may come to lie where device addresses are. */
		void *at = mmap(want, DEVICE_SPAN, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

		if (at == want)
			continue;
		if (at != MAP_FAILED)
			munmap(at, DEVICE_SPAN);
		gleam_log("the addresses from %p on, for device %u, are taken in this process", want, d);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* ---- pieces ---- */

static bool piece_add_locked(struct devmem *dm, uint64_t id)
{
	uint32_t class = id & 0xff;
	struct pieces *p;

	if (class >= CLASSES)
		return false;
	p = &dm->unspent[class];
	if (p->count == p->room) {
		uint32_t room = p->room ? p->room * 2 : 64;
		uint64_t *ids = realloc(p->ids, room * sizeof(*ids));

		if (!ids)
			return false;
		p->ids = ids;
		p->room = room;
	}
	p->ids[p->count++] = id;
	dm->unspent_bytes += class_size[class];
	return true;
}

/* Pieces for exactly @size bytes, the largest first; their number, or 0 and nothing taken. */
static uint32_t pieces_take_locked(struct devmem *dm, uint64_t size, uint64_t *ids, uint32_t ids_max)
{
	uint32_t taken[CLASSES] = { 0 };
	uint64_t left = size;
	uint32_t count = 0;

	for (int class = CLASSES - 1; class >= 0; class--) {
		uint64_t want = left / class_size[class];

		taken[class] = want < dm->unspent[class].count ? (uint32_t)want : dm->unspent[class].count;
		left -= taken[class] * class_size[class];
		count += taken[class];
	}
	if (left || count > ids_max)
		return 0;
	count = 0;
	for (int class = CLASSES - 1; class >= 0; class--)
		for (uint32_t i = 0; i < taken[class]; i++)
			ids[count++] = dm->unspent[class].ids[--dm->unspent[class].count];
	dm->unspent_bytes -= size;
	return count;
}

/* What a request for @size still lacks after the unspent pieces that it can use. */
static uint64_t pieces_lack_locked(const struct devmem *dm, uint64_t size)
{
	for (int class = CLASSES - 1; class >= 0; class--) {
		uint64_t want = size / class_size[class];
		uint64_t have = want < dm->unspent[class].count ? want : dm->unspent[class].count;

		size -= have * class_size[class];
	}
	return size;
}

static CUresult grant_ask(struct call *call, uint32_t device, uint64_t bytes)
{
	struct devmem *dm = devmem_of(device);
	struct msg_gleamGrant m = { .device = device, .bytes = bytes };
	struct ans_gleamGrant a;
	CUresult result = call_open(call, OP_gleamGrant, msg_gleamGrant_size(&m));

	if (result)
		return result;
	msg_gleamGrant_put(&call->w, &m);
	result = call_wait(call);
	if (result)
		return result;
	if (!ans_gleamGrant_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	if (!a.pieces_count)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&dm->lock);
	for (uint32_t i = 0; i < a.pieces_count; i++)
		if (!piece_add_locked(dm, a.pieces[i]))
			gleam_log("a piece of memory of unknown size was granted");
	pthread_mutex_unlock(&dm->lock);
	return CUDA_SUCCESS;
}

/* Unspent pieces beyond @keep bytes go back to the node. Called without the lock. */
static void unspent_return(struct call *call, uint32_t device, uint64_t keep)
{
	struct devmem *dm = devmem_of(device);
	uint64_t ids[MAP_PIECES_MAX];
	struct msg_gleamGrantReturn m = { .device = device, .pieces = ids };

	pthread_mutex_lock(&dm->lock);
	for (int class = CLASSES - 1; class >= 0; class--) {
		struct pieces *p = &dm->unspent[class];

		while (p->count && dm->unspent_bytes > keep && dm->unspent_bytes - class_size[class] >= keep &&
		       m.pieces_count < MAP_PIECES_MAX) {
			ids[m.pieces_count++] = p->ids[--p->count];
			dm->unspent_bytes -= class_size[class];
		}
	}
	pthread_mutex_unlock(&dm->lock);
	if (!m.pieces_count || call_open(call, OP_gleamGrantReturn, msg_gleamGrantReturn_size(&m)))
		return;
	msg_gleamGrantReturn_put(&call->w, &m);
	call_post(call);
}

/* ---- blocks ---- */

static CUresult map_post(struct call *call, const struct block *block, const uint64_t *ids, uint32_t count)
{
	struct msg_gleamMap m = { .address = block->address, .device = block->device, .pieces = ids,
				  .pieces_count = count };
	CUresult result = call_open(call, OP_gleamMap, msg_gleamMap_size(&m));

	if (result)
		return result;
	msg_gleamMap_put(&call->w, &m);
	call_post(call);
	return CUDA_SUCCESS;
}

/*
 * The worker has nothing left, but what this program has freed before may be on its way back: the worker answers behind its
 * notices, which the service thread reads. True if there was something to wait for.
 */
static bool freed_wait(struct call *call, struct devmem *dm)
{
	bool any;

	pthread_mutex_lock(&dm->lock);
	any = dm->freeing != NULL;
	for (int i = 0; dm->freeing && i < FREED_WAITS && !session_is_dead(call->session); i++) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += FREED_WAIT_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&dm->freed, &dm->lock, &until);
	}
	pthread_mutex_unlock(&dm->lock);
	return any;
}

/* @size is a multiple of PIECE_SMALL. */
static CUresult block_new(struct call *call, uint64_t size, struct block **block_out)
{
	uint32_t device = call->context->node_device;
	struct devmem *dm = devmem_of(device);
	struct block *block;
	uint64_t ids[MAP_PIECES_MAX];
	uint32_t count;
	CUresult result;

	if (size > DEVICE_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block = calloc(1, sizeof(*block));
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block->size = size;
	block->device = device;
	/* Each turn either has the pieces or gets more; other threads may take them first, a few times. */
	for (int turn = 0;; turn++) {
		uint64_t lack;

		pthread_mutex_lock(&dm->lock);
		count = pieces_take_locked(dm, size, ids, MAP_PIECES_MAX);
		lack = count ? 0 : pieces_lack_locked(dm, size);
		if (count) {
			block->address = space_take(&dm->space, size, PIECE_SMALL, 0);
			if (!block->address)
				for (uint32_t i = 0; i < count; i++)
					piece_add_locked(dm, ids[i]);
		}
		pthread_mutex_unlock(&dm->lock);
		if (count) {
			/* It would have been asked for. */
			result = is_off(OFF_GRANTS) && turn == 0 ? off_trip(call) : CUDA_SUCCESS;
			break;
		}
		if (turn == 8) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
			goto free_block;
		}
		/* Too many small pieces for one message: whole ones are asked for. */
		if (!lack)
			lack = size;
		result = grant_ask(call, device, lack < GRANT_MIN && !is_off(OFF_GRANTS) ? GRANT_MIN : lack);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && lack < GRANT_MIN)
			result = grant_ask(call, device, lack);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && turn == 0) {
			/* Pieces of a size that doesn't fit may be lying about. */
			unspent_return(call, device, 0);
			result = grant_ask(call, device, size);
		}
		if (result == CUDA_ERROR_OUT_OF_MEMORY && freed_wait(call, dm))
			continue;
		if (result)
			goto free_block;
	}
	if (!block->address) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto free_block;
	}
	result = map_post(call, block, ids, count);
	if (result)
		goto give_space; /* the session is gone, and the pieces with it */
	*block_out = block;
	return CUDA_SUCCESS;

give_space:
	pthread_mutex_lock(&dm->lock);
	space_give(&dm->space, block->address, size);
	pthread_mutex_unlock(&dm->lock);
free_block:
	free(block);
	return result;
}

/* The block is no one's any more; its addresses and pieces come back with the notice. */
static CUresult block_free(struct call *call, struct block *block)
{
	struct devmem *dm = devmem_of(block->device);
	struct msg_gleamFree m = { .address = block->address, .bytes = block->size };
	CUresult result;

	pthread_mutex_lock(&dm->lock);
	block->next = dm->freeing;
	dm->freeing = block;
	pthread_mutex_unlock(&dm->lock);
	result = call_open(call, OP_gleamFree, msg_gleamFree_size(&m));
	if (result)
		return result;
	msg_gleamFree_put(&call->w, &m);
	call_post(call);
	return CUDA_SUCCESS;
}

void memory_freed(struct session *s, struct reader *r)
{
	uint64_t address = get_u64(r);
	uint32_t size = 0;
	const void *ids = get_bytes(r, FRAME_SIZE_MAX, &size);
	uint64_t device = (address - DEVICE_BASE) / DEVICE_SPAN;
	struct block *block = NULL;

	if (r->fault || address < DEVICE_BASE || device >= SNAPSHOT_DEVICES) {
		gleam_log("a notice of freed memory that can't be read");
		return;
	}

	struct devmem *dm = devmem_of((uint32_t)device);
	bool much;

	pthread_mutex_lock(&dm->lock);
	for (struct block **at = &dm->freeing; *at; at = &(*at)->next)
		if ((*at)->address == address) {
			block = *at;
			*at = block->next;
			break;
		}
	if (block) {
		pthread_cond_broadcast(&dm->freed);
		space_give(&dm->space, block->address, block->size);
		for (uint32_t i = 0; i < size / 8; i++) {
			uint64_t id;

			memcpy(&id, (const uint8_t *)ids + i * 8, sizeof(id));
			piece_add_locked(dm, id);
		}
	}
	much = dm->unspent_bytes > UNSPENT_MAX;
	pthread_mutex_unlock(&dm->lock);
	if (!block)
		gleam_log("memory at %#llx came back that was not freed", (unsigned long long)address);
	free(block);
	if (much) {
		struct call call;

		call_start(&call, s, NULL);
		unspent_return(&call, (uint32_t)device, UNSPENT_MAX / 2);
		call_leave(&call, CUDA_SUCCESS);
	}
}

void memory_recall(struct session *s, uint32_t device, uint64_t bytes)
{
	struct call call;
	uint64_t have;

	if (device >= SNAPSHOT_DEVICES)
		return;
	have = __atomic_load_n(&devmem_of(device)->unspent_bytes, __ATOMIC_RELAXED);
	call_start(&call, s, NULL);
	unspent_return(&call, device, have > bytes ? have - bytes : 0);
	call_leave(&call, CUDA_SUCCESS);
}

/* ---- slabs ---- */

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

static CUresult slab_alloc(struct call *call, uint64_t size, uint32_t align, uint64_t *address_out, struct slab **slab_out)
{
	struct devmem *dm = devmem_of(call->context->node_device);
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

static void slab_free(struct call *call, struct slab *slab, uint64_t address, uint64_t size)
{
	struct devmem *dm = devmem_of(slab->block->device);
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
		*owner_out = slab->block;
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
	call->context = range.context;
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

uint64_t memory_space_take(uint32_t device, uint64_t size, uint64_t align, uint64_t hint)
{
	struct devmem *dm = devmem_of(device);
	uint64_t address;

	pthread_mutex_lock(&dm->lock);
	address = space_take(&dm->space, size, align, hint);
	pthread_mutex_unlock(&dm->lock);
	return address;
}

void memory_space_give(uint64_t address, uint64_t size)
{
	struct devmem *dm = devmem_of((uint32_t)((address - DEVICE_BASE) / DEVICE_SPAN));

	pthread_mutex_lock(&dm->lock);
	space_give(&dm->space, address, size);
	pthread_mutex_unlock(&dm->lock);
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
	result = call_open(call, OP_gleamMemInfo, msg_gleamMemInfo_size(&m));
	if (result)
		return result;
	msg_gleamMemInfo_put(&call->w, &m);
	result = call_wait(call);
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
