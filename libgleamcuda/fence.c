// SPDX-License-Identifier: Apache-2.0
/*
 * Fences: one event for each context, recorded again at each raise; a stream passes when it has waited for the newest.
 * Since a stream that raises has passed before, the newest record stands for all older ones. Any thread.
 */
#include "libgleamcuda/fence.h"

#include <pthread.h>
#include <stdbool.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/stream.h"

struct fence {
	pthread_mutex_t lock;
	/* guarded by lock */
	uint64_t event;	 /* of the library's own; it ends with the context */
	uint64_t stream; /* that the newest copy was sent on */
	uint32_t index;	 /* of that stream's context: of a primary one and its green ones, whose fence is one */
	/* atomics, written under lock */
	uint32_t epoch; /* the context's life that event belongs to */
	uint64_t count; /* raises; a stream's fence_seen is one of them */
};

static struct fence fences[SESSION_CONTEXTS] = {
	[0 ... SESSION_CONTEXTS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER },
};

static bool fence_stands(const struct fence *f, const struct context *context)
{
	return __atomic_load_n(&f->epoch, __ATOMIC_ACQUIRE) == __atomic_load_n(&context->epoch, __ATOMIC_RELAXED);
}

/* The legacy stream and blocking ones are in order without help. */
static bool ordered(const struct fence *f, const struct stream *stream)
{
	if (f->index != stream->context->index)
		return false;
	return f->stream == stream->handle || (f->stream == WIRE_STREAM_LEGACY && !(stream->flags & CU_STREAM_NON_BLOCKING));
}

static CUresult pass_locked(struct call *call, struct fence *f, struct stream *stream)
{
	uint64_t count = f->count;

	if (stream->fence_seen == count)
		return CUDA_SUCCESS;
	if (fence_stands(f, context_base(call->context)) && !ordered(f, stream)) {
		struct msg_cuStreamWaitEvent m = { .hStream = stream->handle, .hEvent = f->event };
		CUresult result = CALL_SEND(call, cuStreamWaitEvent, &m);

		if (result)
			return result;
	}
	__atomic_store_n(&stream->fence_seen, count, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult fence_pass(struct call *call, uint64_t handle)
{
	struct fence *f = &fences[context_base(call->context)->index];
	uint64_t count = __atomic_load_n(&f->count, __ATOMIC_ACQUIRE);
	struct stream *stream;
	CUresult result;

	/* No synchronous copy has ever left one: what most programs find. */
	if (__builtin_expect(!count, 1))
		return CUDA_SUCCESS;
	stream = stream_find(call, handle);
	if (!stream || __atomic_load_n(&stream->fence_seen, __ATOMIC_ACQUIRE) == count)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&f->lock);
	result = pass_locked(call, f, stream);
	pthread_mutex_unlock(&f->lock);
	return result;
}

static CUresult record_locked(struct call *call, struct fence *f, struct stream *stream)
{
	struct msg_cuEventRecord m = { .hStream = stream->handle };
	struct context *base = context_base(call->context);
	CUresult result;

	if (!f->event || !fence_stands(f, base)) {
		struct context *context = call->context;
		CUevent event;

		call_in(call, base);
		result = do_cuEventCreate(call, &event, CU_EVENT_DISABLE_TIMING);
		call_in(call, context);
		if (result)
			return result;
		f->event = (uint64_t)(uintptr_t)event;
		__atomic_store_n(&f->epoch, __atomic_load_n(&base->epoch, __ATOMIC_RELAXED), __ATOMIC_RELEASE);
	} else {
		/* Another thread's copy may stand since this one began; the record shall stand for both. */
		result = pass_locked(call, f, stream);
		if (result)
			return result;
	}
	m.hEvent = f->event;
	result = call_open(call, OP_cuEventRecord, msg_cuEventRecord_size(&m));
	if (result)
		return result;
	msg_cuEventRecord_put(&call->w, &m);
	event_launched(call, m.hEvent, stream->handle, call_post(call));
	f->stream = stream->handle;
	f->index = stream->context->index;
	__atomic_store_n(&stream->fence_seen, f->count + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&f->count, f->count + 1, __ATOMIC_RELEASE);
	return CUDA_SUCCESS;
}

CUresult fence_raise(struct call *call, uint64_t handle)
{
	struct stream *stream = stream_find(call, handle);
	struct fence *f = &fences[context_base(call->context)->index];
	CUresult result;

	/* Where every stream waits for the legacy one there is nothing to keep. */
	if (!stream || (handle == WIRE_STREAM_LEGACY && !__atomic_load_n(&call->context->has_free_streams, __ATOMIC_ACQUIRE)))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&f->lock);
	result = record_locked(call, f, stream);
	pthread_mutex_unlock(&f->lock);
	return result;
}
