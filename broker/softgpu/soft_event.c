// SPDX-License-Identifier: Apache-2.0
/*
 * Events. Any thread.
 */
#include "broker/softgpu/soft_event.h"

#include <stdlib.h>

#include "broker/softgpu/soft_capture.h"
#include "broker/softgpu/soft_work.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

static void event_free(struct soft_object *object)
{
	struct soft_event *event = (struct soft_event *)object;

	soft_capture_forget(event);
	soft_ticket_put(event->ticket);
	pthread_mutex_destroy(&event->lock);
	free(event);
}

CUresult soft_event_find(CUevent handle, struct soft_event **event_out)
{
	struct soft_event *event;
	unsigned int error;

	TRY(soft_ready());
	event = (struct soft_event *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_EVENT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	error = atomic_load(&event->object.owner->error);
	if (error) {
		soft_object_put(&event->object);
		return (CUresult)error;
	}
	*event_out = event;
	return CUDA_SUCCESS;
}

void soft_event_set(struct soft_event *event, struct soft_ticket *ticket)
{
	struct soft_ticket *old;

	pthread_mutex_lock(&event->lock);
	old = event->ticket;
	event->ticket = soft_ticket_get(ticket);
	pthread_mutex_unlock(&event->lock);
	soft_ticket_put(old);
}

struct soft_ticket *soft_event_ticket(struct soft_event *event)
{
	struct soft_ticket *ticket;

	pthread_mutex_lock(&event->lock);
	ticket = event->ticket ? soft_ticket_get(event->ticket) : NULL;
	pthread_mutex_unlock(&event->lock);
	return ticket;
}

CUresult soft_event_record(struct soft_event *event, struct soft_stream *stream)
{
	struct soft_ticket *ticket;

	TRY(soft_stream_mark(stream, NULL, &ticket));
	soft_event_set(event, ticket);
	soft_ticket_put(ticket);
	return CUDA_SUCCESS;
}

SOFT_API(cuEventCreate, CUevent *event_out, unsigned int flags)
{
	struct soft_event *event;
	CUresult result;

	SOFT_ENTER(context);
	if (!event_out || flags & ~EVENT_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_EVENT_INTERPROCESS)
		return flags & CU_EVENT_DISABLE_TIMING ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&event->object, SOFT_EVENT, context, event_free);
	event->flags = flags;
	pthread_mutex_init(&event->lock, NULL);
	result = soft_object_publish(&event->object);
	if (result != CUDA_SUCCESS) {
		soft_object_put(&event->object);
		return result;
	}
	*event_out = (CUevent)(uintptr_t)atomic_load(&event->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuEventDestroy_v2, CUevent handle)
{
	struct soft_object *event;

	TRY(soft_ready());
	event = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_EVENT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_object_put(event);
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuEventDestroy, cuEventDestroy_v2);

SOFT_API(cuEventRecordWithFlags, CUevent handle, CUstream stream_handle, unsigned int flags)
{
	SOFT_EVENT_ARG(event, handle);
	SOFT_STREAM_ARG(stream, stream_handle);
	if (flags & ~CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	/* An event belongs to one context, and is recorded only there. */
	if (event->object.owner != soft_context_home(soft_stream_context(stream)))
		return CUDA_ERROR_INVALID_HANDLE;
	if (soft_capturing(stream) && flags & CU_EVENT_RECORD_EXTERNAL) {
		struct soft_work work;

		TRY(soft_work_event(&work, CU_GRAPH_NODE_TYPE_EVENT_RECORD, handle));
		return soft_capture_add(stream, &work);
	}
	if (soft_capturing(stream))
		return soft_capture_record(stream, event);
	soft_capture_forget(event);
	return soft_event_record(event, stream);
}

SOFT_API(cuEventRecord, CUevent handle, CUstream stream)
{
	return cuEventRecordWithFlags(handle, stream, 0);
}

SOFT_API(cuEventQuery, CUevent handle)
{
	struct soft_ticket *ticket;
	bool done;

	SOFT_EVENT_ARG(event, handle);
	ticket = soft_event_ticket(event);
	done = !ticket || soft_ticket_done(ticket);
	soft_ticket_put(ticket);
	if (!done)
		return CUDA_ERROR_NOT_READY;
	return (CUresult)atomic_load(&event->object.owner->error);
}

SOFT_API(cuEventSynchronize, CUevent handle)
{
	struct soft_ticket *ticket;

	SOFT_EVENT_ARG(event, handle);
	ticket = soft_event_ticket(event);
	if (ticket) {
		soft_ticket_wait(ticket);
		soft_ticket_put(ticket);
	}
	return (CUresult)atomic_load(&event->object.owner->error);
}

SOFT_API(cuEventElapsedTime_v2, float *milliseconds, CUevent start_handle, CUevent end_handle)
{
	struct soft_ticket *first, *last;
	CUresult result = CUDA_SUCCESS;

	SOFT_EVENT_ARG(start, start_handle);
	SOFT_EVENT_ARG(end, end_handle);
	if (!milliseconds)
		return CUDA_ERROR_INVALID_VALUE;
	if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || start->object.owner != end->object.owner)
		return CUDA_ERROR_INVALID_HANDLE;
	first = soft_event_ticket(start);
	last = soft_event_ticket(end);
	if (!first || !last)
		result = CUDA_ERROR_INVALID_HANDLE;
	else if (!soft_ticket_done(first) || !soft_ticket_done(last))
		result = CUDA_ERROR_NOT_READY;
	else
		*milliseconds = (float)((double)((int64_t)(last->time_ns - first->time_ns)) / 1e6);
	soft_ticket_put(first);
	soft_ticket_put(last);
	return result;
}

SOFT_ALIAS(cuEventElapsedTime, cuEventElapsedTime_v2);

SOFT_API(cuStreamWaitEvent, CUstream stream_handle, CUevent handle, unsigned int flags)
{
	struct soft_ticket *ticket;
	CUresult result;
	bool captured;

	SOFT_STREAM_ARG(stream, stream_handle);
	SOFT_EVENT_ARG(event, handle);
	if (flags & ~CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (soft_capturing(stream) && flags & CU_EVENT_WAIT_EXTERNAL) {
		struct soft_work work;

		TRY(soft_work_event(&work, CU_GRAPH_NODE_TYPE_WAIT_EVENT, handle));
		return soft_capture_add(stream, &work);
	}
	result = soft_capture_wait(stream, event, &captured);
	if (captured)
		return result;
	ticket = soft_event_ticket(event);
	if (ticket && !soft_ticket_done(ticket))
		result = soft_stream_mark(stream, ticket, NULL);
	soft_ticket_put(ticket);
	return result;
}
