// SPDX-License-Identifier: Apache-2.0
/*
 * Streams. Birth, commands and death are messages that nobody waits for; whether work is done is read from the progress
 * words, and only what they can't tell yet costs a trip. Application threads.
 */
#include "libgleamcuda/stream.h"

#include <stddef.h>

#include "broker/proto/progress.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/green.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/launch.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/pool.h"
#include "libgleamcuda/pages.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/streamword.h"

#define STREAM_FLAGS CU_STREAM_NON_BLOCKING

static struct stable streams = STABLE(struct stream);
static struct stream legacies[SESSION_CONTEXTS];
static uint64_t stream_ids = 3; /* 1 and 2 are legacy and per-thread in the driver's own numbering */

/* ---- finding ---- */

struct stream *stream_legacy(struct context *context)
{
	struct stream *stream = &legacies[context->index];

	if (!__atomic_load_n(&stream->handle, __ATOMIC_ACQUIRE)) {
		/* The same values whoever writes them; the handle last. */
		stream->context = context;
		stream->word = PROGRESS_STREAMS + context->index;
		__atomic_store_n(&stream->handle, WIRE_STREAM_LEGACY, __ATOMIC_RELEASE);
	}
	return stream;
}

struct stream *stream_find(struct call *call, uint64_t handle)
{
	if (handle == WIRE_STREAM_LEGACY)
		return stream_legacy(call->context);
	return handle_data(OBJECT_STREAM, handle);
}

CUresult call_stream_named(struct call *call, CUstream stream, uint64_t *handle_out)
{
	uint64_t value = (uint64_t)(uintptr_t)stream;

	/* NULL and the like are those of the green context. */
	if (__builtin_expect(call->green != NULL, 0) && value <= 2)
		call_in(call, call->green);
	if (value == (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD || (!value && call->ptds)) {
		CUresult result = stream_own(call, handle_out);

		return result ? result : fence_pass(call, *handle_out);
	}
	if (!value || value == (uint64_t)(uintptr_t)CU_STREAM_LEGACY) {
		*handle_out = WIRE_STREAM_LEGACY;
		return fence_pass(call, WIRE_STREAM_LEGACY);
	}

	struct stream *s = handle_data(OBJECT_STREAM, value);

	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!__atomic_load_n(&s->context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	/* A stream of another context: the call runs in the stream's own. */
	call_in(call, s->context);
	*handle_out = value;
	return fence_pass(call, value);
}

CUresult call_stream(struct call *call, CUstream stream, uint64_t *handle_out)
{
	CUresult result = call_stream_named(call, stream, handle_out);

	return !result && capture_going() ? capture_refuses(call, *handle_out) : result;
}

/* ---- what has been sent ---- */

static void seq_raise(uint64_t *word, uint64_t seq)
{
	uint64_t before = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (before < seq && !__atomic_compare_exchange_n(word, &before, seq, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

void stream_note(struct call *call, uint64_t handle, uint64_t seq)
{
	struct stream *stream = stream_find(call, handle);

	if (!stream)
		return;
	seq_raise(&stream->last_seq, seq);
	seq_raise(&stream->own_seq, seq);
	/* The legacy stream is done when all blocking streams are. */
	if (!(stream->flags & CU_STREAM_NON_BLOCKING) && handle != WIRE_STREAM_LEGACY)
		seq_raise(&stream_legacy(stream->context)->last_seq, seq);
	seq_raise(&stream->context->last_seq, seq);
	/* Who frees memory of the primary context waits for its green ones too. */
	if (__builtin_expect(stream->context->base != NULL, 0))
		seq_raise(&stream->context->base->last_seq, seq);
	if (__builtin_expect(call->touches, 0)) {
		seq_raise(&stream->touch_seq, seq);
		if (!(stream->flags & CU_STREAM_NON_BLOCKING))
			seq_raise(&stream_legacy(stream->context)->touch_seq, seq);
		call->touches = false;
	}
}

void stream_uploaded(struct call *call, uint64_t handle)
{
	struct stream *stream = stream_find(call, handle);

	if (stream && call->posted)
		seq_raise(&stream->upload_seq, call->posted);
}

/* Another blocking stream of the context, as a wait for host data sees it. */
struct landing {
	uint64_t seq;
	bool wait;
	bool done;
	CUresult result;
};
static __thread struct landing *landing;

static void landing_of(uint64_t handle, void *data)
{
	struct stream *stream = data;

	(void)handle;
	if (!stream || stream->flags & CU_STREAM_NON_BLOCKING)
		return;
	if (landing->wait && !landing->result)
		landing->result = late_wait(stream->context->session, &stream->late, landing->seq);
	else if (!landing->wait)
		landing->done = landing->done && late_done(&stream->late, landing->seq);
}

static void landed(struct stream *stream, uint64_t seq, struct landing *state)
{
	struct stream *legacy = stream_legacy(stream->context);

	service_settle(stream->context->session);
	/* Nothing is on its way anywhere: what nearly every wait finds. */
	if (!late_any())
		return;
	/* Copies of streams that this one has waited for by an event. */
	if (state->wait)
		state->result = late_told_wait(stream->context->session);
	else if (!late_told_done(stream->context->session))
		state->done = false;
	if (state->result || (!state->wait && !state->done))
		return;
	landing = state;
	state->seq = seq;
	landing_of(stream->handle, stream);
	if (stream->flags & CU_STREAM_NON_BLOCKING) {
		if (state->wait)
			state->result = late_wait(stream->context->session, &stream->late, seq);
		else
			state->done = late_done(&stream->late, seq);
		return;
	}
	if (stream != legacy) {
		uint64_t own = __atomic_load_n(&legacy->own_seq, __ATOMIC_ACQUIRE);

		landing_of(legacy->handle, legacy);
		/* Other blocking streams count up to the last command of the legacy stream before this. */
		state->seq = own < seq ? own : seq;
	}
	handle_each(OBJECT_STREAM, stream->context, landing_of);
}

bool stream_landed(struct stream *stream, uint64_t seq)
{
	struct landing state = { .done = true };

	landed(stream, seq, &state);
	return state.done;
}

CUresult stream_landed_wait(struct stream *stream, uint64_t seq)
{
	struct landing state = { .wait = true };

	landed(stream, seq, &state);
	return state.result;
}

static CUresult stream_flush(struct call *call, struct stream *stream)
{
	struct msg_gleamFlush m = { .stream = stream->handle };
	CUresult result = call_open(call, OP_gleamFlush, msg_gleamFlush_size(&m));

	if (result)
		return result;
	msg_gleamFlush_put(&call->w, &m);
	seq_raise(&stream->flush_seq, call_post(call));
	return CUDA_SUCCESS;
}

static bool stream_reached(struct call *call, struct stream *stream, uint64_t seq)
{
	return !seq || session_reached(call->session, stream->word, seq);
}

bool stream_shows(struct call *call, struct stream *stream)
{
	/* Blocking streams wait for each other by way of the legacy one. */
	struct stream *with = stream->flags & CU_STREAM_NON_BLOCKING ? stream : stream_legacy(stream->context);

	if (late_any() || hostfunc_outstanding() || streamword_waiting())
		return true;
	return (exposed_any() || pages_any()) &&
	       (!stream_reached(call, stream, __atomic_load_n(&stream->touch_seq, __ATOMIC_ACQUIRE)) ||
		!stream_reached(call, with, __atomic_load_n(&with->touch_seq, __ATOMIC_ACQUIRE)));
}

/*
 * A synchronise whose newest command is a copy from the host: what a program does that wants its buffer back, and what
 * cuMemcpyHtoD is natively. The bytes have been taken, so it is as that copy is here: the call returns, and what other streams
 * do next comes behind it. Not where the program could tell, nor when a failure has to be told.
 */
static bool stream_excused(struct call *call, struct stream *stream)
{
	uint64_t seq = __atomic_load_n(&stream->last_seq, __ATOMIC_ACQUIRE);

	if (is_off(OFF_ASYNC))
		return false;
	if (!seq || seq <= __atomic_load_n(&stream->excused_seq, __ATOMIC_ACQUIRE))
		return seq && !stream_shows(call, stream) && !session_error_peek(call->session, call->context->index);
	if (seq != __atomic_load_n(&stream->upload_seq, __ATOMIC_ACQUIRE) || stream_reached(call, stream, seq) ||
	    launches_block() || stream_shows(call, stream) || session_error_peek(call->session, call->context->index))
		return false;
	if (fence_raise(call, stream->handle))
		return false;
	seq_raise(&stream->excused_seq, call->posted > seq ? call->posted : seq);
	return true;
}

bool stream_was_synced(struct stream *stream, uint64_t seq)
{
	struct context *context = stream->context;

	if (seq <= __atomic_load_n(&stream->excused_seq, __ATOMIC_ACQUIRE) ||
	    seq <= __atomic_load_n(&context->done_seq, __ATOMIC_ACQUIRE))
		return true;
	return !(stream->flags & CU_STREAM_NON_BLOCKING) &&
	       seq <= __atomic_load_n(&stream_legacy(context)->excused_seq, __ATOMIC_ACQUIRE);
}

bool stream_done(struct call *call, struct stream *stream)
{
	uint64_t seq = __atomic_load_n(&stream->last_seq, __ATOMIC_ACQUIRE);

	if (seq && stream_was_synced(stream, seq))
		return stream_landed(stream, seq);
	if (!stream_reached(call, stream, seq)) {
		/* One flush for all that was sent before it. */
		if (__atomic_load_n(&stream->flush_seq, __ATOMIC_ACQUIRE) < seq)
			stream_flush(call, stream);
		return false;
	}
	return stream_landed(stream, seq);
}

/* The failure that the words hold for the call's context. Only a trip makes the worker go on after one. */
static CUresult latched(struct call *call)
{
	return session_error_peek(call->session, call->context->index);
}

/* What every wait ends with. */
static CUresult waited(struct call *call, CUresult result)
{
	if (region_any())
		region_bring(call);
	if (__builtin_expect(!result && __atomic_load_n(&call->context->owed, __ATOMIC_RELAXED), 0))
		result = (CUresult)__atomic_exchange_n(&call->context->owed, 0, __ATOMIC_RELAXED);
	return result;
}

CUresult stream_wait(struct call *call, struct stream *stream)
{
	uint64_t seq = __atomic_load_n(&stream->last_seq, __ATOMIC_ACQUIRE);
	CUresult result = CUDA_SUCCESS;

	if (!stream_reached(call, stream, seq) || latched(call) || is_off(OFF_ASYNC)) {
		struct msg_gleamStreamSync m = { .stream = stream->handle };

		result = call_open(call, OP_gleamStreamSync, msg_gleamStreamSync_size(&m));
		if (result)
			return result;
		msg_gleamStreamSync_put(&call->w, &m);
		result = call_wait(call);
		session_error_take(call->session, call->context->index);
	}

	if (!result)
		seq_raise(&stream->excused_seq, seq);

	CUresult arrived = stream_landed_wait(stream, seq);

	if (!result)
		pool_synchronised(call);

	return waited(call, result ? result : arrived);
}

static __thread bool quiet; /* of the handle_each() in progress */

static void quiet_of(uint64_t handle, void *data)
{
	struct stream *stream = data;

	(void)handle;
	if (stream && quiet) {
		uint64_t seq = __atomic_load_n(&stream->own_seq, __ATOMIC_ACQUIRE);

		quiet = !seq || session_reached(stream->context->session, stream->word, seq);
	}
}

bool context_is_quiet(struct call *call)
{
	struct context *context = call->context;
	uint64_t done = __atomic_load_n(&context->done_seq, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&context->last_seq, __ATOMIC_ACQUIRE) <= done)
		return true;
	/* Of a stream that is gone only a wait for the context can tell. */
	if (__atomic_load_n(&context->gone_seq, __ATOMIC_ACQUIRE) > done)
		return false;
	quiet = true;
	quiet_of(WIRE_STREAM_LEGACY, stream_legacy(context));
	if (quiet)
		handle_each(OBJECT_STREAM, context, quiet_of);
	return quiet;
}

CUresult context_wait(struct call *call)
{
	struct context *context = call->context;
	uint64_t seq = __atomic_load_n(&context->last_seq, __ATOMIC_ACQUIRE);
	CUresult result = CUDA_SUCCESS;

	if (__builtin_expect(__atomic_load_n(&context->greens, __ATOMIC_ACQUIRE) != 0, 0))
		contexts_green_wait(call, context);
	if (seq > __atomic_load_n(&context->done_seq, __ATOMIC_ACQUIRE) || latched(call) || is_off(OFF_ASYNC)) {
		struct msg_gleamContextSync m = { .index = context->index };

		result = call_open(call, OP_gleamContextSync, msg_gleamContextSync_size(&m));
		if (result)
			return result;
		msg_gleamContextSync_put(&call->w, &m);
		result = call_wait(call);
		session_error_take(call->session, context->index);
		if (!result)
			seq_raise(&context->done_seq, seq);
	}
	service_settle(call->session);
	if (late_any())
		late_told_wait(call->session);
	late_wait_context(call->session, context->index, seq);
	if (!result)
		pool_synchronised(call);
	return waited(call, result);
}

/* ---- birth and death ---- */

/* @hidden: of the library's own, which no order of the program's has to do with. */
static CUresult stream_make(struct call *call, unsigned int flags, int priority, bool hidden, uint64_t *handle_out)
{
	struct stream *stream = stable_take(&streams);
	struct msg_cuStreamCreateWithPriority m = { .flags = flags, .priority = priority };
	uint64_t handle;
	CUresult result;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->context = call->context;
	stream->flags = flags;
	stream->priority = priority;
	if (flags & CU_STREAM_NON_BLOCKING && !hidden)
		__atomic_store_n(&call->context->has_free_streams, 1, __ATOMIC_RELEASE);
	stream->id = __atomic_fetch_add(&stream_ids, 1, __ATOMIC_RELAXED);
	handle = handle_new(OBJECT_STREAM, call->context, stream);
	if (!handle || !progress_word(handle, call->context->index, &stream->word)) {
		/* Every word is taken: more streams than the session memory has words for. */
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto end_handle;
	}
	stream->handle = handle;
	m.phStream = handle;
	result = call_open(call, OP_cuStreamCreateWithPriority, msg_cuStreamCreateWithPriority_size(&m));
	if (result)
		goto end_handle;
	msg_cuStreamCreateWithPriority_put(&call->w, &m);

	uint64_t seq = call_post(call);

	/* Words keep the value of the stream that had them before; everything of this one is later. */
	stream->flush_seq = seq;
	*handle_out = handle;
	if (__builtin_expect(__atomic_load_n(&call->context->gate, __ATOMIC_ACQUIRE) != 0, 0) && !hidden)
		return do_cuStreamWaitEvent(call, (CUstream)(uintptr_t)handle, (CUevent)(uintptr_t)call->context->gate, 0);
	return CUDA_SUCCESS;

end_handle:
	if (handle)
		handle_end(handle);
	stable_give(&streams, stream);
	return result;
}

CUresult stream_own(struct call *call, uint64_t *handle_out)
{
	struct context *context = call->context;
	uint32_t epoch = __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);

	if (call->thread->own[context->index].epoch == epoch && call->thread->own[context->index].handle) {
		*handle_out = call->thread->own[context->index].handle;
		return CUDA_SUCCESS;
	}

	CUresult result = stream_make(call, CU_STREAM_DEFAULT, 0, false, handle_out);

	if (!result) {
		call->thread->own[context->index].handle = *handle_out;
		call->thread->own[context->index].epoch = epoch;
	}
	return result;
}

struct stream *stream_side(struct call *call)
{
	static pthread_mutex_t sides_lock = PTHREAD_MUTEX_INITIALIZER;
	/* guarded by it */
	static struct {
		uint64_t handle;
		uint32_t epoch;
	} sides[SESSION_CONTEXTS];
	struct context *context = call->context;
	uint32_t epoch = __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);
	uint64_t handle = 0;

	pthread_mutex_lock(&sides_lock);
	if (sides[context->index].epoch == epoch)
		handle = sides[context->index].handle;
	if (!handle && !stream_make(call, CU_STREAM_NON_BLOCKING, 0, false, &handle)) {
		sides[context->index].handle = handle;
		sides[context->index].epoch = epoch;
	}
	pthread_mutex_unlock(&sides_lock);
	return handle ? handle_data(OBJECT_STREAM, handle) : NULL;
}

CUresult stream_side_make(struct call *call, uint64_t *handle_out)
{
	return stream_make(call, CU_STREAM_NON_BLOCKING, 0, true, handle_out);
}

CUresult do_cuStreamCreateWithPriority(struct call *call, CUstream *phStream, unsigned int flags, int priority)
{
	const struct snapshot_device *d = &call->session->snapshot.devices[call->context->node_device];
	uint64_t handle;
	CUresult result;

	if (!phStream || (flags & ~(unsigned int)STREAM_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	/* The driver clamps: greatest is the smaller number. */
	if (priority > d->priority_least)
		priority = d->priority_least;
	if (priority < d->priority_greatest)
		priority = d->priority_greatest;
	call_in(call, call_current(call));
	result = stream_make(call, flags, priority, false, &handle);
	if (!result)
		*phStream = (CUstream)(uintptr_t)handle;
	return result;
}

CUresult do_cuStreamCreate(struct call *call, CUstream *phStream, unsigned int Flags)
{
	return do_cuStreamCreateWithPriority(call, phStream, Flags, 0);
}

CUresult do_cuStreamDestroy_v2(struct call *call, CUstream hStream)
{
	struct msg_cuStreamDestroy_v2 m;
	struct stream *stream = handle_data(OBJECT_STREAM, (uint64_t)(uintptr_t)hStream);
	CUresult result;

	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	result = call_stream_named(call, hStream, &m.hStream);
	if (result)
		return result;
	capture_stream_gone(stream);
	result = call_open(call, OP_cuStreamDestroy_v2, msg_cuStreamDestroy_v2_size(&m));
	if (result)
		return result;
	msg_cuStreamDestroy_v2_put(&call->w, &m);

	uint64_t seq = call_post(call);

	seq_raise(&stream->context->last_seq, seq);
	seq_raise(&stream->context->gone_seq, seq);
	if (region_any())
		region_stream_gone(m.hStream);
	across_stream_gone(m.hStream);
	/* With copies in flight the object stays: they hold on to its list. Rare, and a hundred bytes. */
	if (handle_end(m.hStream) && late_done(&stream->late, UINT64_MAX))
		stable_give(&streams, stream);
	return CUDA_SUCCESS;
}

static void closed_end(uint64_t handle, void *data)
{
	struct stream *stream = data;

	if (handle_end(handle) && late_done(&stream->late, UINT64_MAX))
		stable_give(&streams, stream);
}

void stream_context_closed(struct context *context)
{
	struct stream *legacy = stream_legacy(context);

	handle_each(OBJECT_STREAM, context, closed_end);
	__atomic_store_n(&legacy->last_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&legacy->own_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&legacy->flush_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&legacy->touch_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&legacy->upload_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&legacy->excused_seq, 0, __ATOMIC_RELAXED);
	legacy->attributes = (struct stream_attributes){ .policy = 0 };
	__atomic_store_n(&context->last_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->done_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->gone_seq, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->owed, 0, __ATOMIC_RELAXED);
}

/* ---- order ---- */

/* An event of another server's. A capture would be a graph over two servers. */
static CUresult wait_across(struct call *call, uint64_t stream, uint64_t event, bool captured)
{
	if (!captured && !event_is_captured(event))
		return event_is_recorded(event) ? across_wait(call, stream, event) : CUDA_SUCCESS;
	gleam_log("cuStreamWaitEvent: a capture can't span the GPUs of two servers");
	return captured ? capture_refuses(call, stream) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult do_cuStreamWaitEvent(struct call *call, CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct msg_cuStreamWaitEvent m = { .Flags = Flags };
	bool captured = false;
	CUresult result;

	if (Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_handle(call, OBJECT_EVENT, hEvent, 0, &m.hEvent);
	if (!result)
		result = call_stream_captured(call, hStream, &m.hStream, &captured);
	if (!result && across_any() && handle_context(m.hEvent)->session != call->session)
		return wait_across(call, m.hStream, m.hEvent, captured);
	if (!result && (captured || event_is_captured(m.hEvent)))
		return event_capture_wait(call, m.hStream, m.hEvent, captured && Flags & CU_EVENT_WAIT_EXTERNAL);
	if (!result)
		result = call_open(call, OP_cuStreamWaitEvent, msg_cuStreamWaitEvent_size(&m));
	if (result)
		return result;
	m.Flags = 0; /* external matters in captures alone */
	msg_cuStreamWaitEvent_put(&call->w, &m);
	/* What the event stands for may be a kernel that writes where the host looks: then it is this stream's affair, too. */
	call->touches = exposed_any();
	stream_note(call, m.hStream, call_post(call));
	return CUDA_SUCCESS;
}

CUresult do_cuStreamQuery(struct call *call, CUstream hStream)
{
	uint64_t handle;
	CUresult result = call_stream(call, hStream, &handle);

	if (result)
		return result;

	struct stream *stream = stream_find(call, handle);

	if (latched(call))
		return stream_wait(call, stream);
	return stream_done(call, stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult do_cuStreamSynchronize(struct call *call, CUstream hStream)
{
	uint64_t handle;
	CUresult result = call_stream(call, hStream, &handle);

	if (result)
		return result;

	struct stream *stream = stream_find(call, handle);

	return stream_excused(call, stream) ? CUDA_SUCCESS : stream_wait(call, stream);
}

/* ---- questions ---- */

CUresult do_cuStreamGetFlags(struct call *call, CUstream hStream, unsigned int *flags)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream_find(call, handle)->flags;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetPriority(struct call *call, CUstream hStream, int *priority)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = __atomic_load_n(&stream_find(call, handle)->priority, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

uint64_t stream_id(struct call *call, uint64_t handle)
{
	struct stream *stream = stream_find(call, handle);

	/* Legacy streams count from the top down: one a context and activation, never met by created ones. */
	if (handle == WIRE_STREAM_LEGACY)
		return UINT64_MAX - call->context->id;
	return stream ? stream->id : 0;
}

CUresult do_cuStreamGetId(struct call *call, CUstream hStream, unsigned long long *streamId)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!streamId)
		return CUDA_ERROR_INVALID_VALUE;
	*streamId = stream_id(call, handle);
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx(struct call *call, CUstream hStream, CUcontext *pctx)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = call->context->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuStreamGetCtx_v2(struct call *call, CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	CUresult result;

	if (call->green && hStream == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!pGreenCtx)
		return CUDA_ERROR_INVALID_VALUE;
	result = do_cuStreamGetCtx(call, hStream, pCtx);
	if (!result) {
		*pGreenCtx = green_of(call->context);
		*pCtx = context_base(call->context)->handle;
	}
	return result;
}

CUresult do_cuStreamGetDevice(struct call *call, CUstream hStream, CUdevice *device)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = call->context->device;
	return CUDA_SUCCESS;
}
