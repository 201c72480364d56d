// SPDX-License-Identifier: Apache-2.0
/*
 * Events of a whole context: a record behind all that its streams have been given, a wait before all that they are given next, on
 * streams that are made later too. Made of records and waits of streams, with a stream and events of the library's own for each context
 * that asks: a driver's own call would not see what still waits in queues of ours. Application threads.
 */
#include <pthread.h>
#include <stdlib.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/green.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/stream.h"

/* guarded by lock, which is held over a whole record or wait: an event of ours stands for one stream at a time */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct helper {
	uint64_t stream;
	CUevent event; /* of one stream after the other */
	CUevent gate;  /* for streams that are made later */
	uint32_t epoch;
} helpers[SESSION_CONTEXTS];

struct list {
	uint64_t *handles;
	size_t count;
	size_t room;
	bool failed;
};
static __thread struct list *list; /* of the handle_each() in progress */

static void list_add(uint64_t handle, void *data)
{
	(void)data;
	if (list->count == list->room) {
		size_t room = list->room ? list->room * 2 : 16;
		uint64_t *handles = realloc(list->handles, room * sizeof(*handles));

		if (!handles) {
			list->failed = true;
			return;
		}
		list->handles = handles;
		list->room = room;
	}
	list->handles[list->count++] = handle;
}

/* All streams of @context, the legacy one first. Its handles are to be freed. */
static CUresult streams_of(struct call *call, struct context *context, struct list *list_out)
{
	CUresult result = CUDA_SUCCESS;

	*list_out = (struct list){ .count = 0 };
	list = list_out;
	list_add(WIRE_STREAM_LEGACY, NULL);
	handle_each(OBJECT_STREAM, context, list_add);
	if (list_out->failed)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 1; capture_going() && i < list_out->count; i++)
		if (capture_refuses(call, list_out->handles[i]))
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return result;
}

/* The call is @context's from here on, as if that were current. */
static CUresult enter(struct call *call, struct context *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	call->green = context->base ? context : NULL;
	call_in(call, context_base(context));
	return CUDA_SUCCESS;
}

static CUresult helper_locked(struct call *call, struct context *context, struct helper **helper_out)
{
	struct helper *h = &helpers[context->index];
	uint32_t epoch = __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);
	CUresult result;

	if (h->epoch != epoch || !h->stream) {
		*h = (struct helper){ .epoch = epoch };
		result = do_cuEventCreate(call, &h->event, CU_EVENT_DISABLE_TIMING);
		if (!result)
			result = do_cuEventCreate(call, &h->gate, CU_EVENT_DISABLE_TIMING);
		call_in(call, context);
		if (!result)
			result = stream_side_make(call, &h->stream);
		call_in(call, context_base(context));
		if (result)
			return result;
	}
	*helper_out = h;
	return CUDA_SUCCESS;
}

static CUstream stream_of(uint64_t handle)
{
	return handle == WIRE_STREAM_LEGACY ? CU_STREAM_LEGACY : (CUstream)(uintptr_t)handle;
}

static CUresult record(struct call *call, struct context *context, CUevent hEvent)
{
	CUresult result = enter(call, context);
	struct list streams;
	struct helper *h;

	if (result)
		return result;
	if (!handle_live(OBJECT_EVENT, (uint64_t)(uintptr_t)hEvent) ||
	    handle_context((uint64_t)(uintptr_t)hEvent) != context_base(context))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&lock);
	result = streams_of(call, context, &streams);
	if (!result)
		result = helper_locked(call, context, &h);
	for (size_t i = 0; i < streams.count && !result; i++) {
		if (streams.handles[i] == h->stream)
			continue;
		result = do_cuEventRecord(call, h->event, stream_of(streams.handles[i]));
		/* One that another thread has destroyed since has nothing more to wait for. */
		if (result == CUDA_ERROR_INVALID_HANDLE)
			result = CUDA_SUCCESS;
		else if (!result)
			result = do_cuStreamWaitEvent(call, stream_of(h->stream), h->event, 0);
	}
	if (!result)
		result = do_cuEventRecord(call, hEvent, stream_of(h->stream));
	pthread_mutex_unlock(&lock);
	free(streams.handles);
	return result;
}

static CUresult wait(struct call *call, struct context *context, CUevent hEvent)
{
	CUresult result = enter(call, context);
	struct list streams;
	struct helper *h;

	if (result)
		return result;
	if (!handle_live(OBJECT_EVENT, (uint64_t)(uintptr_t)hEvent))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event_is_captured((uint64_t)(uintptr_t)hEvent))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&lock);
	result = streams_of(call, context, &streams);
	if (!result)
		result = helper_locked(call, context, &h);
	/* First for streams that are made meanwhile: twice does no harm. */
	if (!result)
		result = do_cuStreamWaitEvent(call, stream_of(h->stream), hEvent, 0);
	if (!result)
		result = do_cuEventRecord(call, h->gate, stream_of(h->stream));
	if (!result)
		__atomic_store_n(&context->gate, (uint64_t)(uintptr_t)h->gate, __ATOMIC_RELEASE);
	for (size_t i = 0; i < streams.count && !result; i++) {
		if (streams.handles[i] == h->stream)
			continue;
		result = do_cuStreamWaitEvent(call, stream_of(streams.handles[i]), hEvent, 0);
		if (result == CUDA_ERROR_INVALID_HANDLE)
			result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	free(streams.handles);
	return result;
}

CUresult do_cuCtxRecordEvent(struct call *call, CUcontext hCtx, CUevent hEvent)
{
	return record(call, context_find(hCtx), hEvent);
}

CUresult do_cuCtxWaitEvent(struct call *call, CUcontext hCtx, CUevent hEvent)
{
	return wait(call, context_find(hCtx), hEvent);
}

CUresult do_cuGreenCtxRecordEvent(struct call *call, CUgreenCtx hCtx, CUevent hEvent)
{
	return record(call, green_context(hCtx), hEvent);
}

CUresult do_cuGreenCtxWaitEvent(struct call *call, CUgreenCtx hCtx, CUevent hEvent)
{
	return wait(call, green_context(hCtx), hEvent);
}
