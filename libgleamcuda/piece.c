// SPDX-License-Identifier: Apache-2.0
/*
 * Physical device memory in pieces, and where they are mapped: what the worker has granted and nobody uses, blocks of whole pieces,
 * and what comes back when the work issued before a free has completed. Application threads, and the service thread for what comes
 * back. The lock is never held over a message that waits. See devmem.h.
 */
#include "libgleamcuda/devmem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/session.h"

#define GRANT_MIN      (16ull << 20)  /* asked for at least: eight small pieces, 0.1 ms of the worker's time */
#define SPARE_MAX      (256ull << 20) /* asked for beyond that, half of what was granted before */
#define SPARE_LACK_MAX (32ull << 20)  /* larger allocations cost a round trip each, which they take anyway */
#define UNSPENT_MAX    (512ull << 20) /* kept for the next allocation; more goes back to the node */
#define MAP_PIECES_MAX 512	      /* of one message */
#define FREED_WAIT_NS  20000000	      /* so often a session that has died is noticed */
#define FREED_WAITS    250	      /* 5 s in all: notices that came before an answer take far less */

static struct devmem devmems[SNAPSHOT_DEVICES];
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

struct devmem *devmem_of(uint32_t unit)
{
	pthread_once(&devmems_once, devmems_init);
	return &devmems[unit];
}

CUresult memory_start(uint32_t first, uint32_t count)
{
	static uint32_t reserved; /* bit per unit; an earlier cuInit has come to nothing */

	for (uint32_t u = first; u < first + count && u < SNAPSHOT_DEVICES; u++) {
		void *want = (void *)(uintptr_t)(DEVICE_BASE + u * DEVICE_SPAN);
		void *at;

		if (reserved & 1u << u)
			continue;
		/* Nothing of the program's may come to lie where device addresses are. */
		at = mmap(want, DEVICE_SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (at == want) {
			reserved |= 1u << u;
			continue;
		}
		if (at != MAP_FAILED)
			munmap(at, DEVICE_SPAN);
		gleam_log("the addresses from %p on, for device %u, are taken in this process", want, u);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* ---- pieces ---- */

static bool piece_add_locked(struct devmem *dm, uint64_t id)
{
	uint32_t class = id & 0xff;
	struct pieces *p;

	if (class >= PIECE_CLASSES)
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
	dm->unspent_bytes += piece_class_size[class];
	return true;
}

/* Pieces for exactly @size bytes, the largest first; their number, or 0 and nothing taken. */
static uint32_t pieces_take_locked(struct devmem *dm, uint64_t size, uint64_t *ids, uint32_t ids_max)
{
	uint32_t taken[PIECE_CLASSES] = { 0 };
	uint64_t left = size;
	uint32_t count = 0;

	for (int class = PIECE_CLASSES - 1; class >= 0; class--) {
		uint64_t want = left / piece_class_size[class];

		taken[class] = want < dm->unspent[class].count ? (uint32_t)want : dm->unspent[class].count;
		left -= taken[class] * piece_class_size[class];
		count += taken[class];
	}
	if (left || count > ids_max)
		return 0;
	count = 0;
	for (int class = PIECE_CLASSES - 1; class >= 0; class--)
		for (uint32_t i = 0; i < taken[class]; i++)
			ids[count++] = dm->unspent[class].ids[--dm->unspent[class].count];
	dm->unspent_bytes -= size;
	return count;
}

/* What a request for @size still lacks after the unspent pieces that it can use. */
static uint64_t pieces_lack_locked(const struct devmem *dm, uint64_t size)
{
	for (int class = PIECE_CLASSES - 1; class >= 0; class--) {
		uint64_t want = size / piece_class_size[class];
		uint64_t have = want < dm->unspent[class].count ? want : dm->unspent[class].count;

		size -= have * piece_class_size[class];
	}
	return size;
}

/*
 * What is asked for beyond need: a program that has allocated much in small portions goes on so, and each answer is a round trip behind
 * everything that the worker has to do.
 */
static uint64_t spare_of(struct devmem *dm, uint64_t lack)
{
	uint64_t granted;

	if (lack > SPARE_LACK_MAX || is_off(OFF_GRANTS))
		return 0;
	pthread_mutex_lock(&dm->lock);
	granted = dm->granted_bytes;
	pthread_mutex_unlock(&dm->lock);
	return granted / 2 < SPARE_MAX ? granted / 2 : SPARE_MAX;
}

static CUresult grant_ask(struct call *call, uint32_t unit, uint64_t bytes, uint64_t spare)
{
	struct devmem *dm = devmem_of(unit);
	struct msg_gleamGrant m = { .device = unit - call->session->first, .bytes = bytes, .spare = spare };
	struct ans_gleamGrant a;
	CUresult result = CALL_ASK(call, gleamGrant, &m);

	if (result)
		return result;
	if (!ans_gleamGrant_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	if (!a.pieces_count)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&dm->lock);
	for (uint32_t i = 0; i < a.pieces_count; i++) {
		if (!piece_add_locked(dm, a.pieces[i]))
			gleam_log("a piece of memory of unknown size was granted");
		else
			dm->granted_bytes += piece_class_size[a.pieces[i] & 0xff];
	}
	pthread_mutex_unlock(&dm->lock);
	return CUDA_SUCCESS;
}

/* Unspent pieces beyond @keep bytes go back to the node; @all: so many that no more than that is left. Called without the lock. */
static void unspent_return(struct call *call, uint32_t unit, uint64_t keep, bool all)
{
	struct devmem *dm = devmem_of(unit);
	uint64_t ids[MAP_PIECES_MAX];
	struct msg_gleamGrantReturn m = { .device = unit - call->session->first, .pieces = ids };

	pthread_mutex_lock(&dm->lock);
	for (int class = PIECE_CLASSES - 1; class >= 0; class--) {
		struct pieces *p = &dm->unspent[class];

		while (p->count && dm->unspent_bytes > keep &&
		       (all || dm->unspent_bytes - piece_class_size[class] >= keep) &&
		       m.pieces_count < MAP_PIECES_MAX) {
			ids[m.pieces_count++] = p->ids[--p->count];
			dm->unspent_bytes -= piece_class_size[class];
			dm->granted_bytes -= piece_class_size[class];
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
	struct msg_gleamMap m = { .address = block->address, .device = block->unit - call->session->first, .pieces = ids,
				  .pieces_count = count };
	return CALL_SEND(call, gleamMap, &m);
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

/* Whether more is here than when @lack was missing: the notices may have been read between the worker's answer and our look. */
static bool came_back(struct devmem *dm, uint64_t size, uint64_t lack)
{
	bool more;

	pthread_mutex_lock(&dm->lock);
	more = pieces_lack_locked(dm, size) < lack;
	pthread_mutex_unlock(&dm->lock);
	return more;
}

CUresult block_new(struct call *call, uint64_t size, struct block **block_out)
{
	uint32_t unit = call->context->unit;
	struct devmem *dm = devmem_of(unit);
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
	block->unit = unit;
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
		result = grant_ask(call, unit, lack < GRANT_MIN && !is_off(OFF_GRANTS) ? GRANT_MIN : lack, spare_of(dm, lack));
		if (result == CUDA_ERROR_OUT_OF_MEMORY && lack < GRANT_MIN)
			result = grant_ask(call, unit, lack, 0);
		if (result == CUDA_ERROR_OUT_OF_MEMORY && turn == 0) {
			/* Pieces of a size that doesn't fit may be lying about. */
			unspent_return(call, unit, 0, true);
			result = grant_ask(call, unit, size, 0);
		}
		if (result == CUDA_ERROR_OUT_OF_MEMORY && (freed_wait(call, dm) || came_back(dm, size, lack)))
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

CUresult block_free(struct call *call, struct block *block)
{
	struct devmem *dm = devmem_of(block->unit);
	struct msg_gleamFree m = { .address = block->address, .bytes = block->size };
	CUresult result;

	pthread_mutex_lock(&dm->lock);
	block->next = dm->freeing;
	dm->freeing = block;
	pthread_mutex_unlock(&dm->lock);
	result = CALL_SEND(call, gleamFree, &m);
	if (result)
		return result;
	return CUDA_SUCCESS;
}

void memory_freed(struct session *s, struct reader *r)
{
	uint64_t address = get_u64(r);
	uint32_t size = 0;
	const void *ids = get_bytes(r, FRAME_SIZE_MAX, &size);
	uint64_t unit = memory_unit(address);
	struct block *block = NULL;

	/* Of its own devices alone. */
	if (r->fault || session_of_unit(unit) != s) {
		gleam_log("a notice of freed memory that can't be read");
		return;
	}

	struct devmem *dm = devmem_of((uint32_t)unit);
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
		unspent_return(&call, (uint32_t)unit, UNSPENT_MAX / 2, false);
		call_leave(&call, CUDA_SUCCESS);
	}
}

void memory_recall(struct session *s, uint32_t device, uint64_t bytes)
{
	struct call call;
	uint64_t have;

	if (device >= s->snapshot.device_count || s->first + device >= SNAPSHOT_DEVICES)
		return;
	have = __atomic_load_n(&devmem_of(s->first + device)->unspent_bytes, __ATOMIC_RELAXED);
	call_start(&call, s, NULL);
	unspent_return(&call, s->first + device, have > bytes ? have - bytes : 0, true);
	call_leave(&call, CUDA_SUCCESS);
}

/* ---- addresses for others ---- */

uint64_t memory_space_take(uint32_t unit, uint64_t size, uint64_t align, uint64_t hint)
{
	struct devmem *dm = devmem_of(unit);
	uint64_t address;

	pthread_mutex_lock(&dm->lock);
	address = space_take(&dm->space, size, align, hint);
	pthread_mutex_unlock(&dm->lock);
	return address;
}

void memory_space_give(uint64_t address, uint64_t size)
{
	struct devmem *dm = devmem_of((uint32_t)memory_unit(address));

	pthread_mutex_lock(&dm->lock);
	space_give(&dm->space, address, size);
	pthread_mutex_unlock(&dm->lock);
}
