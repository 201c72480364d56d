// SPDX-License-Identifier: Apache-2.0
/*
 * Events. Recording is a message; whether it has completed is read from the progress word of the stream it was recorded
 * on. Only elapsed times are asked for. Application threads.
 */
#include "libgleamcuda/event.h"

#include <stddef.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/stream.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

struct event {
	/* set at birth */
	struct context *context;
	unsigned int flags;
	/* atomics: of the newest record; seq 0: never recorded. A program that records from two threads at once gets either. */
	uint64_t seq;
	uint32_t word;
	struct stream *stream; /* type-stable: may have been destroyed since */
	uint64_t stream_handle;
	uint64_t came; /* the record that is known to have come about before its stream's word says so; 0: none */
	struct capture_mark *mark; /* the newest record was captured: no work stands behind it */
};

static struct stable events = STABLE(struct event);

static CUresult event_of(struct call *call, CUevent hEvent, uint64_t *handle_out, struct event **event_out)
{
	CUresult result = call_handle(call, OBJECT_EVENT, hEvent, 0, handle_out);

	if (result)
		return result;
	*event_out = handle_data(OBJECT_EVENT, *handle_out);
	return *event_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Events may be asked about while a context of another server is current. */
static void event_at(struct call *call, struct event *event)
{
	if (event->context->session != call->session)
		call_in(call, event->context);
}

CUresult do_cuEventCreate(struct call *call, CUevent *phEvent, unsigned int Flags)
{
	struct msg_cuEventCreate m = { .Flags = Flags };
	struct event *event;
	CUresult result;

	if (!phEvent || (Flags & ~(unsigned int)EVENT_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if (Flags & CU_EVENT_INTERPROCESS) {
		if (!(Flags & CU_EVENT_DISABLE_TIMING))
			return CUDA_ERROR_INVALID_VALUE;
		return call_refuse(call, "events of other processes would have to cross the network");
	}
	event = stable_take(&events);
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->context = call->context;
	event->flags = Flags;
	m.phEvent = handle_new(OBJECT_EVENT, call->context, event);
	if (!m.phEvent) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto give_event;
	}
	result = CALL_SEND(call, cuEventCreate, &m);
	if (result)
		goto end_handle;
	*phEvent = (CUevent)(uintptr_t)m.phEvent;
	return CUDA_SUCCESS;

end_handle:
	handle_end(m.phEvent);
give_event:
	stable_give(&events, event);
	return result;
}

static bool event_mark(struct event *event)
{
	return __builtin_expect(__atomic_load_n(&event->mark, __ATOMIC_RELAXED) != NULL, 0);
}

static void event_give(struct event *event)
{
	if (event && event_mark(event))
		capture_mark_drop(&event->mark);
	stable_give(&events, event);
}

static void closed_end(uint64_t handle, void *data)
{
	if (handle_end(handle))
		event_give(data);
}

void event_context_closed(struct context *context)
{
	handle_each(OBJECT_EVENT, context, closed_end);
}

CUresult do_cuEventDestroy_v2(struct call *call, CUevent hEvent)
{
	struct msg_cuEventDestroy_v2 m;
	struct event *event;
	CUresult result = event_of(call, hEvent, &m.hEvent, &event);

	if (result)
		return result;
	/* Events may be destroyed while another context is current: the message goes in the event's own. */
	call_in(call, event->context);
	result = CALL_SEND(call, cuEventDestroy_v2, &m);
	if (result)
		return result;
	event_give(handle_end(m.hEvent));
	return CUDA_SUCCESS;
}

static void event_recorded(struct call *call, struct event *event, uint64_t stream_handle, uint64_t seq)
{
	struct stream *stream = stream_find(call, stream_handle);

	stream_note(call, stream_handle, seq);
	if (!stream)
		return;
	if (event_mark(event))
		capture_mark_drop(&event->mark);
	__atomic_store_n(&event->word, stream->word, __ATOMIC_RELAXED);
	__atomic_store_n(&event->stream, stream, __ATOMIC_RELAXED);
	__atomic_store_n(&event->stream_handle, stream_handle, __ATOMIC_RELAXED);
	/* Pairs with the acquire in event_done(). */
	__atomic_store_n(&event->seq, seq, __ATOMIC_RELEASE);
}

CUresult event_for_launch(struct call *call, CUevent hEvent, uint64_t *handle_out)
{
	struct event *event;
	CUresult result = event_of(call, hEvent, handle_out, &event);

	if (result)
		return result;
	if (event->context != context_base(call->context))
		return CUDA_ERROR_INVALID_HANDLE;
	/* Measured: an event with timing is "not supported" here. */
	return event->flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

void event_launched(struct call *call, uint64_t handle, uint64_t stream, uint64_t seq)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	if (event)
		event_recorded(call, event, stream, seq);
}

CUresult event_capture_record(struct call *call, uint64_t handle, uint64_t stream)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	return event ? capture_record(call, stream, &event->mark) : CUDA_ERROR_INVALID_HANDLE;
}

uint64_t event_newest(uint64_t handle)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	return event ? __atomic_load_n(&event->seq, __ATOMIC_ACQUIRE) : 0;
}

void event_came(uint64_t handle, uint64_t seq)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	if (event)
		__atomic_store_n(&event->came, seq, __ATOMIC_RELEASE);
}

bool event_is_recorded(uint64_t handle)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	return event && __atomic_load_n(&event->seq, __ATOMIC_ACQUIRE);
}

bool event_is_captured(uint64_t handle)
{
	struct event *event = handle_data(OBJECT_EVENT, handle);

	return event && event_mark(event);
}

CUresult event_capture_wait(struct call *call, uint64_t stream, uint64_t handle, bool external)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = handle };
	struct event *event = handle_data(OBJECT_EVENT, handle);

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return external ? capture_add(call, stream, &work) : capture_wait(call, stream, &event->mark);
}

static CUresult event_record(struct call *call, CUevent hEvent, CUstream hStream, bool external)
{
	struct msg_cuEventRecord m;
	struct event *event;
	bool captured = false;
	CUresult result = event_of(call, hEvent, &m.hEvent, &event);

	if (!result)
		result = call_stream_captured(call, hStream, &m.hStream, &captured);
	if (result)
		return result;
	/* The driver wants event and stream of one context. */
	if (event->context != context_base(call->context))
		return CUDA_ERROR_INVALID_HANDLE;
	if (__builtin_expect(captured, 0)) {
		struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = m.hEvent };

		return external ? capture_add(call, m.hStream, &work) : capture_record(call, m.hStream, &event->mark);
	}
	result = call_open(call, OP_cuEventRecord, msg_cuEventRecord_size(&m));
	if (result)
		return result;
	msg_cuEventRecord_put(&call->w, &m);
	event_recorded(call, event, m.hStream, call_post(call));
	return CUDA_SUCCESS;
}

CUresult do_cuEventRecord(struct call *call, CUevent hEvent, CUstream hStream)
{
	return event_record(call, hEvent, hStream, false);
}

CUresult do_cuEventRecordWithFlags(struct call *call, CUevent hEvent, CUstream hStream, unsigned int flags)
{
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return event_record(call, hEvent, hStream, flags & CU_EVENT_RECORD_EXTERNAL);
}

/* Has the newest record completed, its host data included? A never recorded event is done. */
static bool event_done(struct call *call, struct event *event)
{
	uint64_t seq = __atomic_load_n(&event->seq, __ATOMIC_ACQUIRE);

	if (!seq)
		return true;
	struct stream *stream = __atomic_load_n(&event->stream, __ATOMIC_RELAXED);

	if (__atomic_load_n(&event->came, __ATOMIC_ACQUIRE) != seq &&
	    !session_reached(call->session, __atomic_load_n(&event->word, __ATOMIC_RELAXED), seq) &&
	    (stream->handle != __atomic_load_n(&event->stream_handle, __ATOMIC_RELAXED) || !stream_was_synced(stream, seq)))
		return false;
	return stream_landed(stream, seq);
}

CUresult do_cuEventQuery(struct call *call, CUevent hEvent)
{
	struct event *event;
	uint64_t handle;
	CUresult result = event_of(call, hEvent, &handle, &event);

	if (result)
		return result;
	if (event_mark(event))
		return capture_asked(&event->mark);
	event_at(call, event);
	return event_done(call, event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult do_cuEventSynchronize(struct call *call, CUevent hEvent)
{
	struct event *event;
	uint64_t handle;
	CUresult result = event_of(call, hEvent, &handle, &event);

	if (result)
		return result;
	if (event_mark(event))
		return capture_asked(&event->mark);

	uint64_t seq = __atomic_load_n(&event->seq, __ATOMIC_ACQUIRE);

	if (!seq)
		return CUDA_SUCCESS;
	event_at(call, event);
	/* The worker pushes the word right after the record has completed: no trip, only the wait. */
	result = call_wait_progress(call, __atomic_load_n(&event->word, __ATOMIC_RELAXED), seq, event->context);
	if (result)
		return result;
	result = stream_landed_wait(__atomic_load_n(&event->stream, __ATOMIC_RELAXED), seq);
	if (region_any())
		region_bring(call);
	return result;
}

CUresult do_cuEventElapsedTime_v2(struct call *call, float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	struct msg_cuEventElapsedTime_v2 m;
	struct ans_cuEventElapsedTime_v2 a;
	struct event *start, *end;
	CUresult result;

	if (!pMilliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	result = event_of(call, hStart, &m.hStart, &start);
	if (!result)
		result = event_of(call, hEnd, &m.hEnd, &end);
	if (result)
		return result;
	if (event_mark(start) || event_mark(end))
		return capture_asked(event_mark(start) ? &start->mark : &end->mark);
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->seq || !end->seq)
		return CUDA_ERROR_INVALID_HANDLE;
	/* Clocks of two servers have no difference. */
	if (start->context->session != end->context->session)
		return CUDA_ERROR_INVALID_HANDLE;
	event_at(call, start);
	if (!event_done(call, start) || !event_done(call, end))
		return CUDA_ERROR_NOT_READY;
	/* A synchronise has said so before the device: now its clock is wanted. */
	result = call_wait_progress(call, __atomic_load_n(&end->word, __ATOMIC_RELAXED), end->seq, end->context);
	if (!result)
		result = call_wait_progress(call, __atomic_load_n(&start->word, __ATOMIC_RELAXED), start->seq, start->context);
	if (result)
		return result;
	result = CALL_ASK(call, cuEventElapsedTime_v2, &m);
	if (result)
		return result;
	if (!ans_cuEventElapsedTime_v2_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	*pMilliseconds = a.pMilliseconds;
	return CUDA_SUCCESS;
}
