// SPDX-License-Identifier: Apache-2.0
/*
 * Between two servers; see across.h. A stream of one that something of the other comes before or after has side streams there, of
 * the library's own, so that what two streams do is in no order that the program hasn't asked for. Application threads begin, the relay
 * thread (hostfunc.h) goes on.
 */
#include "libgleamcuda/across.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/stream.h"

#define CHUNK  (4u << 20) /* of a copy between servers: what is on its way at a time is two of them */
#define CHUNKS 2u

struct context *across_owner(const struct call *call, uint64_t address)
{
	uint64_t unit = memory_unit(address);
	struct session *of = across_any() ? session_of_unit(unit) : NULL;
	struct range range;

	if (!of || of == call->session)
		return NULL;
	/* Memory of pools, and mapped memory, belongs to a device. */
	if (range_find(address, &range) && range.context)
		return range.context;
	return context_on(device_of_unit(unit));
}

/* Something of @context's has failed for the sake of another server: its next wait tells. */
static void owe(struct context *context, CUresult result)
{
	if (result)
		__atomic_store_n(&context->owed, (uint32_t)result, __ATOMIC_RELAXED);
}

/* ---- side streams ---- */

/*
 * Waits are sent when the program asks for them, and work when the stream has come to it: on one stream work would come behind
 * waits for what is to come after it.
 */
enum side_for { SIDE_WAITS, SIDE_WORK };

struct side {
	struct side *next;
	enum side_for what;
	struct context *of; /* of the stream that it is for */
	uint32_t of_epoch;
	uint64_t stream; /* wire handle: that of a legacy stream is its context's */
	struct context *at;
	uint32_t at_epoch;
	uint64_t handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock: held over a command that makes one */
static struct side *sides;

static uint32_t epoch_of(const struct context *context)
{
	return __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);
}

/* The stream at @at that is for the call's stream. */
static CUresult side_of(const struct call *call, uint64_t stream, struct context *at, enum side_for what, uint64_t *side_out)
{
	struct side *side;
	struct call other;
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	for (side = sides; side; side = side->next)
		if (side->what == what && side->stream == stream && side->of == call->context && side->of_epoch == epoch_of(call->context) &&
		    side->at == at && side->at_epoch == epoch_of(at))
			break;
	if (side)
		goto unlock;
	side = calloc(1, sizeof(*side));
	if (!side) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto unlock;
	}
	*side = (struct side){ .next = sides, .what = what, .of = call->context, .of_epoch = epoch_of(call->context),
			       .stream = stream, .at = at, .at_epoch = epoch_of(at) };
	call_start(&other, at->session, at);
	result = stream_side_make(&other, &side->handle);
	call_leave(&other, CUDA_SUCCESS);
	if (result)
		free(side);
	else
		sides = side;
unlock:
	if (!result)
		*side_out = side->handle;
	pthread_mutex_unlock(&lock);
	return result;
}

static void side_end(struct side *side)
{
	struct call call;

	/* A context that has ended has taken it along. */
	if (side->at_epoch == epoch_of(side->at) && __atomic_load_n(&side->at->active, __ATOMIC_ACQUIRE)) {
		call_start(&call, side->at->session, side->at);
		do_cuStreamDestroy_v2(&call, (CUstream)(uintptr_t)side->handle);
		call_leave(&call, CUDA_SUCCESS);
	}
	free(side);
}

/* Those of one stream, or of all of a context. */
static void sides_end(uint64_t stream, const struct context *context)
{
	struct side *gone = NULL;

	pthread_mutex_lock(&lock);
	for (struct side **link = &sides; *link;) {
		struct side *side = *link;

		if (context ? side->of != context && side->at != context : side->stream != stream) {
			link = &side->next;
			continue;
		}
		*link = side->next;
		side->next = gone;
		gone = side;
	}
	pthread_mutex_unlock(&lock);
	while (gone) {
		struct side *next = gone->next;

		side_end(gone);
		gone = next;
	}
}

void across_stream_gone(uint64_t stream)
{
	if (across_any())
		sides_end(stream, NULL);
}

void across_context_closed(struct context *context)
{
	if (across_any())
		sides_end(0, context);
}

/* ---- events ---- */

/* A stream that stands still until an event of the other server has come. */
struct wait {
	struct context *context;
	struct hostfunc *stop; /* the stream's, once it has come so far */
	uint64_t event, record;
	uint32_t left; /* atomic: of the two that both have to come */
};

static void wait_part(struct wait *wait)
{
	if (__atomic_sub_fetch(&wait->left, 1, __ATOMIC_ACQ_REL))
		return;
	hostfunc_go(wait->stop);
	free(wait);
}

static void wait_reached(struct hostfunc *stop, bool failed, void *user)
{
	struct wait *wait = user;

	(void)failed;
	wait->stop = stop;
	wait_part(wait);
}

static void wait_done(struct hostfunc *stop, bool failed, void *user)
{
	struct wait *wait = user;

	/* The other server is lost, and with it whatever this stream was to find. */
	if (failed)
		owe(wait->context, CUDA_ERROR_DEVICE_UNAVAILABLE);
	else if (wait->record)
		/* The word of the event's stream may come behind this. Who then waits for the stream here finds the event done. */
		event_came(wait->event, wait->record);
	hostfunc_go(stop);
	wait_part(wait);
}

/* On the side stream, in a call of its own: wait for the event there, and tell. */
static CUresult event_follow(struct context *of, uint64_t side, uint64_t event, struct wait *wait)
{
	struct msg_cuStreamWaitEvent m = { .hStream = side, .hEvent = event };
	struct call call;
	CUresult result;

	call_start(&call, of->session, of);
	result = call_open(&call, OP_cuStreamWaitEvent, msg_cuStreamWaitEvent_size(&m));
	if (!result) {
		msg_cuStreamWaitEvent_put(&call.w, &m);
		stream_note(&call, side, call_post(&call));
		result = hostfunc_relay_stop(&call, side, wait_done, wait);
	}
	call_leave(&call, CUDA_SUCCESS);
	return result;
}

CUresult across_wait(struct call *call, uint64_t stream, uint64_t event)
{
	struct context *of = handle_context(event);
	struct wait *wait;
	uint64_t side;
	CUresult result;

	if (!of || session_is_dead(of->session))
		return of ? session_death(of->session) : CUDA_ERROR_INVALID_HANDLE;
	result = side_of(call, stream, of, SIDE_WAITS, &side);
	if (result)
		return result;
	wait = calloc(1, sizeof(*wait));
	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wait->context = call->context;
	wait->event = event;
	wait->record = event_newest(event);
	wait->left = 2;
	result = hostfunc_relay_stop(call, stream, wait_reached, wait);
	if (result) {
		free(wait);
		return result;
	}
	result = event_follow(of, side, event, wait);
	/* The stop is out: it is let go when the stream has come to it. */
	if (result)
		wait_part(wait);
	return result;
}

/* ---- commands ---- */

/* One command at the other server in the order of a stream. */
struct errand {
	struct context *context; /* of the stream */
	struct context *owner;
	uint64_t side;
	struct hostfunc *stop; /* of the stream */
	across_send *send;
	uint64_t message[]; /* aligned for any */
};

static void errand_done(struct hostfunc *stop, bool failed, void *user)
{
	struct errand *errand = user;

	if (failed)
		owe(errand->context, CUDA_ERROR_DEVICE_UNAVAILABLE);
	hostfunc_go(stop);
	hostfunc_go(errand->stop);
	free(errand);
}

static void errand_begin(struct hostfunc *stop, bool failed, void *user)
{
	struct errand *errand = user;
	struct call call;
	CUresult result;

	errand->stop = stop;
	call_start(&call, errand->owner->session, errand->owner);
	result = failed ? CUDA_ERROR_DEVICE_UNAVAILABLE : fence_pass(&call, errand->side);
	if (!result)
		result = errand->send(&call, errand->side, errand->message);
	if (!result)
		result = hostfunc_relay_stop(&call, errand->side, errand_done, errand);
	call_leave(&call, CUDA_SUCCESS);
	if (!result)
		return;
	owe(errand->context, result);
	hostfunc_go(stop);
	free(errand);
}

CUresult across_run(struct call *call, uint64_t stream, struct context *owner, across_send *send, const void *message, size_t size,
		    bool async)
{
	struct errand *errand = calloc(1, sizeof(*errand) + size);
	CUresult result;

	if (!errand)
		return CUDA_ERROR_OUT_OF_MEMORY;
	errand->context = call->context;
	errand->owner = owner;
	errand->send = send;
	memcpy(errand->message, message, size);
	result = side_of(call, stream, owner, SIDE_WORK, &errand->side);
	if (!result)
		result = hostfunc_relay_stop(call, stream, errand_begin, errand);
	if (result) {
		free(errand);
		return result;
	}
	return async ? CUDA_SUCCESS : stream_wait(call, stream_find(call, stream));
}

/* ---- copies ---- */

/*
 * A copy in the order of a stream: from the source's server (or this process's memory) in chunks to the destination's. Two chunks
 * are on their way at a time; the relay thread alone has it once the stream has come to it.
 */
struct relay {
	struct context *context; /* of the stream */
	struct hostfunc *stop;	 /* of the stream */
	struct context *from, *to; /* NULL: this process's memory */
	uint64_t from_side, to_side;
	struct copy copy;
	uint64_t row, at; /* of the next chunk that is asked for: row, and byte in it */
	uint32_t asked, landed; /* chunks */
	struct copy chunks[CHUNKS];
	uint8_t *staging; /* CHUNKS of CHUNK bytes, where both ends are servers */
	CUresult result;  /* of what has failed first */
};

/* The next chunk of what is left; false: that was all. */
static bool chunk_next(struct relay *r, struct copy *chunk_out)
{
	const struct copy *c = &r->copy;
	uint64_t rows = 1, width;

	if (r->row == c->rows)
		return false;
	width = c->width - r->at;
	if (c->rows > 1 && !r->at && c->width <= CHUNK) {
		rows = CHUNK / c->width;
		if (rows > c->rows - r->row)
			rows = c->rows - r->row;
	} else if (width > CHUNK) {
		width = CHUNK;
	}
	*chunk_out = *c;
	chunk_out->dst += r->row * c->dst_pitch + r->at;
	chunk_out->src += r->row * c->src_pitch + r->at;
	chunk_out->width = width;
	chunk_out->rows = rows;
	if (r->at + width == c->width) {
		r->row += rows;
		r->at = 0;
	} else {
		r->at += width;
	}
	return true;
}

static CUresult chunk_run(struct context *context, const struct copy *chunk)
{
	struct call call;
	CUresult result;

	call_start(&call, context->session, context);
	/* Behind what synchronous copies have left there. */
	result = fence_pass(&call, chunk->stream);
	if (!result)
		result = copy_run(&call, chunk);
	call_leave(&call, CUDA_SUCCESS);
	return result;
}

static CUresult stop_at(struct context *context, uint64_t side, hostfunc_relay *function, struct relay *r)
{
	struct call call;
	CUresult result;

	call_start(&call, context->session, context);
	result = hostfunc_relay_stop(&call, side, function, r);
	call_leave(&call, CUDA_SUCCESS);
	return result;
}

static void relay_free(struct relay *r)
{
	free(r->staging);
	free(r);
}

static void relay_end(struct relay *r, CUresult result)
{
	owe(r->context, result);
	hostfunc_go(r->stop);
	relay_free(r);
}

/* Its last bytes are where they belong. */
static void relay_done(struct hostfunc *stop, bool failed, void *user)
{
	struct relay *r = user;

	hostfunc_go(stop);
	relay_end(r, failed ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS);
}

static CUresult relay_to(struct relay *r, const struct copy *chunk)
{
	struct copy c = *chunk;

	c.src_place = PLACE_PAGEABLE; /* it is read at once: the stream has come to it */
	c.dst_place = PLACE_DEVICE;
	c.stream = r->to_side;
	c.async = true;
	return chunk_run(r->to, &c);
}

/* From this process's memory. */
static CUresult relay_up(struct relay *r)
{
	struct copy chunk;
	CUresult result = CUDA_SUCCESS;

	while (!result && chunk_next(r, &chunk))
		result = relay_to(r, &chunk);
	return result ? result : stop_at(r->to, r->to_side, relay_done, r);
}

static void relay_landed(struct hostfunc *stop, bool failed, void *user);

/* Asks for a chunk; it lands in @staging, or where it belongs if that is here. */
static CUresult relay_ask(struct relay *r)
{
	struct copy *kept = &r->chunks[r->asked % CHUNKS];
	struct copy c;
	CUresult result;

	if (!chunk_next(r, kept))
		return CUDA_SUCCESS;
	c = *kept;
	if (r->staging) {
		c.dst = (uint64_t)(uintptr_t)(r->staging + (uint64_t)(r->asked % CHUNKS) * CHUNK);
		c.dst_pitch = c.width;
		kept->src = c.dst;
		kept->src_pitch = c.width;
	}
	c.src_place = PLACE_DEVICE;
	c.dst_place = PLACE_PINNED;
	c.stream = r->from_side;
	c.async = true;
	result = chunk_run(r->from, &c);
	if (result)
		return result;
	result = stop_at(r->from, r->from_side, relay_landed, r);
	if (result)
		r->staging = NULL; /* bytes may still come to it, and nobody tells when: it stays */
	else
		r->asked++;
	return result;
}

/* A chunk has landed; those that were asked for behind it come before anything is given up, for they write to the staging. */
static void relay_landed(struct hostfunc *stop, bool failed, void *user)
{
	struct relay *r = user;
	const struct copy *chunk = &r->chunks[r->landed++ % CHUNKS];

	hostfunc_go(stop);
	if (failed) {
		r->staging = NULL; /* as in relay_ask() */
		r->result = CUDA_ERROR_DEVICE_UNAVAILABLE;
	}
	if (!r->result && r->to)
		r->result = relay_to(r, chunk);
	if (!r->result)
		r->result = relay_ask(r);
	if (r->landed < r->asked)
		return;
	if (!r->result && r->to) {
		r->result = stop_at(r->to, r->to_side, relay_done, r);
		if (!r->result)
			return;
	}
	relay_end(r, r->result);
}

static void relay_begin(struct hostfunc *stop, bool failed, void *user)
{
	struct relay *r = user;
	CUresult result = CUDA_SUCCESS;

	r->stop = stop;
	if (failed) {
		relay_end(r, CUDA_ERROR_DEVICE_UNAVAILABLE);
		return;
	}
	if (!r->from) {
		result = relay_up(r);
		if (result)
			relay_end(r, result);
		return;
	}
	for (uint32_t i = 0; i < CHUNKS && !r->result; i++)
		r->result = relay_ask(r);
	if (!r->asked)
		relay_end(r, r->result);
}

bool across_copies(const struct call *call, const struct copy *c)
{
	return (c->dst_place == PLACE_DEVICE && across_owner(call, c->dst)) ||
	       (c->src_place == PLACE_DEVICE && across_owner(call, c->src));
}

/* The context by which one end is reached; NULL for this process's memory. */
static struct context *end_of(const struct call *call, enum place place, uint64_t address)
{
	struct context *owner = place == PLACE_DEVICE ? across_owner(call, address) : NULL;

	return place == PLACE_DEVICE && !owner ? call->context : owner;
}

/* Pageable memory: natively the stream is waited for, too, and the copy is done when the call returns. */
static CUresult copy_now(struct call *call, const struct copy *copy, struct context *owner, uint64_t side)
{
	struct copy c = *copy;
	CUresult result = stream_wait(call, stream_find(call, c.stream));
	struct call other;

	if (result)
		return result;
	call_start(&other, owner->session, owner);
	c.stream = side;
	c.async = false;
	result = copy_run(&other, &c);
	if (!result)
		result = stream_wait(&other, stream_find(&other, side));
	call_leave(&other, CUDA_SUCCESS);
	return result;
}

static CUresult copy_there(struct call *call, uint64_t stream, const void *message)
{
	struct copy c = *(const struct copy *)message;

	c.stream = stream;
	c.async = true;
	return copy_run(call, &c);
}

CUresult across_copy(struct call *call, const struct copy *copy)
{
	struct context *from = end_of(call, copy->src_place, copy->src), *to = end_of(call, copy->dst_place, copy->dst);
	struct relay *r;
	CUresult result = CUDA_SUCCESS;

	/* All of it at one other server. */
	if (from && to && from->session == to->session)
		return across_run(call, copy->stream, to, copy_there, copy, sizeof(*copy), copy->async);
	r = calloc(1, sizeof(*r));
	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r->context = call->context;
	r->copy = *copy;
	r->from = from;
	r->to = to;
	if (from)
		result = side_of(call, copy->stream, from, SIDE_WORK, &r->from_side);
	if (!result && to)
		result = side_of(call, copy->stream, to, SIDE_WORK, &r->to_side);
	if (!result && (copy->src_place == PLACE_PAGEABLE || copy->dst_place == PLACE_PAGEABLE)) {
		result = copy_now(call, copy, from ? from : to, from ? r->from_side : r->to_side);
		relay_free(r);
		return result;
	}
	if (!result && r->from && r->to) {
		r->staging = malloc((size_t)CHUNKS * CHUNK);
		if (!r->staging)
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!result)
		result = hostfunc_relay_stop(call, copy->stream, relay_begin, r);
	if (result) {
		relay_free(r);
		return result;
	}
	return copy->async ? CUDA_SUCCESS : stream_wait(call, stream_find(call, copy->stream));
}
