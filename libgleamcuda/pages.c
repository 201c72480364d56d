// SPDX-License-Identifier: Apache-2.0
/* Copies of the program's own pages. Application threads; see pages.h. */
#include "libgleamcuda/pages.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/host.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define PAGES_LEAST  (64u << 10) /* less is copied faster than the worker maps it */
#define SMALL_MAX    (32u << 10) /* up: bytes that go in their command */
#define TAKEN_MAX    (512u << 10) /* of a synchronous copy up: bytes that are taken faster than the GPU is waited for */
#define REPLY_MAX    4000u	 /* of a synchronous copy down: comes in the answer */
#define PAGES_PART   4u		 /* of the machine's memory at most, in all; the rest is copied */
#define WRITES_MAX   1024u	 /* copies to pages on their way; more go another way */

static_assert(SESSION_PAGES_SIZE >= HOST_SPAN, "offsets in the file are those in Gleam's range");

/* A copy that the device makes to pages of ours. */
struct write {
	uint64_t from, end;
	struct context *context;
	uint32_t word; /* of its stream */
	uint64_t seq;
};

uint32_t pages_count;
static uint64_t pages_bytes; /* atomic */
static uint32_t off; /* atomic; 0: not looked, 1: on, 2: off */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct write writes[WRITES_MAX];
static uint32_t write_count;

static bool is_off(void)
{
	uint32_t state = __atomic_load_n(&off, __ATOMIC_RELAXED);

	if (state == 0) {
		const char *asked = secure_getenv("GLEAM_PAGES");

		state = asked && strcmp(asked, "copied") == 0 ? 2 : 1;
		if (asked && *asked && state == 1 && strcmp(asked, "shared") != 0)
			gleam_log("GLEAM_PAGES=%s: neither shared nor copied, ignored", asked);
		__atomic_store_n(&off, state, __ATOMIC_RELAXED);
	}
	return state == 2;
}

/* ---- memory ---- */

static CUresult range_tell(struct call *call, uint64_t address, uint64_t size, bool open)
{
	const struct msg_gleamPages m = { .address = address, .bytes = size, .open = open };

	return CALL_ASK(call, gleamPages, &m);
}

static void pages_empty(const struct session *s, uint64_t address, uint64_t size)
{
	/* A file that can't have holes keeps the bytes until the process ends. */
	if (fallocate(s->pages, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(address - HOST_BASE), (off_t)size) < 0)
		gleam_log("%llu KiB of page-locked memory can't be given back", (unsigned long long)(size >> 10));
}

/* What there is at once may not be too much for the machine: natively a driver refuses then. */
static uint64_t pages_left(void)
{
	uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / PAGES_PART;
	uint64_t taken = __atomic_load_n(&pages_bytes, __ATOMIC_RELAXED);

	return taken < most ? most - taken : 0;
}

bool pages_make(struct call *call, uint64_t address, uint64_t size)
{
	struct session *s = call->session;
	CUresult result;
	void *at;

	/* With GPUs of several servers memory is for all of them. */
	if (s->pages < 0 || size < PAGES_LEAST || size > pages_left() || session_count() != 1 || !session_is_direct(s) ||
	    __atomic_load_n(&s->header->pages, __ATOMIC_ACQUIRE) != 1 || is_off())
		return false;
	/* As natively it is all there from the beginning, and counts as this process's. */
	at = mmap((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, s->pages,
		  (off_t)(address - HOST_BASE));
	if (at == MAP_FAILED)
		return false;
	result = range_tell(call, address, size, true);
	if (result == CUDA_SUCCESS) {
		__atomic_fetch_add(&pages_count, 1, __ATOMIC_RELEASE);
		__atomic_fetch_add(&pages_bytes, size, __ATOMIC_RELAXED);
		return true;
	}
	gleam_log("%llu KiB of page-locked memory are not for the GPU itself (%d): their bytes are copied", (unsigned long long)(size >> 10),
		  (int)result);
	pages_empty(s, address, size);
	return false;
}

void pages_end(struct call *call, uint64_t address, uint64_t size)
{
	struct session *s = call->session;

	/* A worker elsewhere has none of it, and one that is gone needs no word. */
	if (session_is_direct(s))
		range_tell(call, address, size, false);
	__atomic_fetch_sub(&pages_count, 1, __ATOMIC_RELEASE);
	__atomic_fetch_sub(&pages_bytes, size, __ATOMIC_RELAXED);
	pages_empty(s, address, size);
}

/* ---- what is on its way ---- */

static bool write_is_done(const struct session *s, const struct write *write)
{
	return session_reached(s, write->word, write->seq) || !__atomic_load_n(&write->context->active, __ATOMIC_ACQUIRE);
}

static void writes_prune_locked(const struct session *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < write_count; i++)
		if (!write_is_done(s, &writes[i]))
			writes[kept++] = writes[i];
	write_count = kept;
}

/* The context that the last copy to these bytes is of; NULL: there is none on its way. */
static struct context *writer_find(const struct session *s, uint64_t from, uint64_t end)
{
	struct context *context = NULL;

	pthread_mutex_lock(&lock);
	writes_prune_locked(s);
	for (uint32_t i = 0; i < write_count; i++)
		if (writes[i].from < end && from < writes[i].end)
			context = writes[i].context;
	pthread_mutex_unlock(&lock);
	return context;
}

CUresult pages_wait(struct call *call, uint64_t address, uint64_t size)
{
	struct context *context = call->context, *writer;
	CUresult result = CUDA_SUCCESS;

	while (!result && (writer = writer_find(call->session, address, address + size))) {
		call_in(call, writer);
		result = context_wait(call);
		call_in(call, context);
	}
	return result;
}

/* ---- copies ---- */

/* Whether copies of pages may be sent now; if so pages_sent() has to follow. */
static bool pages_begin(struct session *s)
{
	__atomic_fetch_add(&s->header->pages_open, 1, __ATOMIC_SEQ_CST);
	/* Pairs with the fence in client_direct_has_pages(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (session_is_direct(s) && __atomic_load_n(&s->header->pages, __ATOMIC_ACQUIRE) == 1)
		return true;
	__atomic_fetch_sub(&s->header->pages_open, 1, __ATOMIC_RELEASE);
	return false;
}

static void pages_sent(struct session *s)
{
	__atomic_fetch_sub(&s->header->pages_open, 1, __ATOMIC_RELEASE);
}

static CUresult copy_up(struct call *call, const struct copy *c)
{
	const struct msg_gleamPagesUp m = { .stream = c->stream, .dst = c->dst, .host = c->src, .size = c->width };

	return CALL_SEND(call, gleamPagesUp, &m);
}

/* Known before it is sent: who reads the bytes here waits for it. */
static CUresult copy_down(struct call *call, const struct copy *c, const struct stream *stream)
{
	const struct msg_gleamPagesDown m = { .stream = c->stream, .host = c->dst, .src = c->src, .size = c->width };
	CUresult result = call_open(call, OP_gleamPagesDown, msg_gleamPagesDown_size(&m));
	bool room;

	if (result)
		return result;
	msg_gleamPagesDown_put(&call->w, &m);
	/* With the append lock: nobody who holds this one waits for that. */
	pthread_mutex_lock(&lock);
	if (write_count == WRITES_MAX)
		writes_prune_locked(call->session);
	room = write_count < WRITES_MAX;
	if (room)
		writes[write_count++] = (struct write){ .from = c->dst, .end = c->dst + c->width, .context = stream->context,
							.word = stream->word, .seq = call->session->seq + 1 };
	pthread_mutex_unlock(&lock);
	if (!room) {
		call_cancel(call);
		return CUDA_ERROR_NOT_READY;
	}
	call_post(call);
	return CUDA_SUCCESS;
}

bool pages_copy(struct call *call, const struct copy *c, CUresult *result_out)
{
	bool up = c->dst_place == PLACE_DEVICE && c->src_place == PLACE_PINNED;
	bool down = c->src_place == PLACE_DEVICE && c->dst_place == PLACE_PINNED;
	uint64_t host = up ? c->src : c->dst;
	struct session *s = call->session;
	struct stream *stream;
	struct range range;

	if (c->rows != 1 || (!up && !down) || !host_is_made_at(host))
		return false;
	if (up && c->width <= (c->async ? SMALL_MAX : TAKEN_MAX))
		return false;
	if (down && !c->async && c->width <= REPLY_MAX)
		return false;
	if (!range_find(host, &range) || !(range.flags & RANGE_PAGES) || c->width > range.size - (host - range.start))
		return false;
	/* The mirror has what kernels write there, and gets what they are to read. */
	if (exposed_any() && exposed_holds(host))
		return false;
	/* Bytes that come from cells are stored by us, not by the stream. */
	late_wait_range((void *)(uintptr_t)host, c->width);
	if (!pages_begin(s))
		return false;
	stream = stream_find(call, c->stream);
	call->unawaited = !c->async; /* what follows is awaited */
	*result_out = up ? copy_up(call, c) : copy_down(call, c, stream);
	pages_sent(s);
	call->unawaited = false;
	if (*result_out == CUDA_ERROR_NOT_READY)
		return false; /* too many are on their way */
	if (*result_out)
		return true;
	call->touches = true;
	stream_note(call, c->stream, call->posted);
	call_count_bytes(call, c->width);
	if (!c->async)
		*result_out = stream_wait(call, stream);
	return true;
}
