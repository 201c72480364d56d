// SPDX-License-Identifier: Apache-2.0
/*
 * Stream entry points: making, asking, waiting, and calling the program back. Any thread.
 */
#include <stdlib.h>

#include "broker/softgpu/soft_capture.h"
#include "broker/softgpu/soft_event.h"
#include "broker/softgpu/soft_stream.h"
#include "broker/softgpu/soft_work.h"

SOFT_API(cuStreamCreateWithPriority, CUstream *stream_out, unsigned int flags, int priority)
{
	SOFT_WAITS();

	struct soft_stream *stream;

	SOFT_ENTER(context);
	if (!stream_out || flags & ~CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	/* Out of range is not wrong: the nearest is taken. */
	priority = MAX(SOFT_PRIORITY_GREATEST, MIN(SOFT_PRIORITY_LEAST, priority));
	TRY(soft_stream_new(context, SOFT_STREAM_USER, flags, priority, &stream));
	*stream_out = (CUstream)(uintptr_t)atomic_load(&stream->object.handle);
	soft_object_put(&stream->object);
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamCreate, CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

SOFT_API(cuStreamDestroy_v2, CUstream handle)
{
	SOFT_HELD struct soft_stream *stream = NULL;
	struct soft_object *object;

	TRY(soft_ready());
	/* Streams that are no objects of the program can't be destroyed. */
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	stream = (struct soft_stream *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_STREAM);
	if (!stream || stream->kind != SOFT_STREAM_USER)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_capture_gone(stream);
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_STREAM);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_stream_close((struct soft_stream *)object);
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuStreamDestroy, cuStreamDestroy_v2);

SOFT_API(cuStreamQuery, CUstream handle)
{
	struct soft_ticket *ticket = NULL;
	bool done;

	SOFT_STREAM_ARG(stream, handle);
	/* The legacy stream is idle when what it would wait for is: a point put there now tells at some later query. */
	if (stream->kind == SOFT_STREAM_LEGACY)
		done = soft_context_idle(soft_stream_context(stream));
	else {
		ticket = soft_stream_last(stream);
		done = !ticket || soft_ticket_done(ticket);
		soft_ticket_put(ticket);
	}
	if (!done)
		return CUDA_ERROR_NOT_READY;
	return (CUresult)atomic_load(&soft_stream_context(stream)->error);
}

SOFT_API(cuStreamSynchronize, CUstream handle)
{
	SOFT_STREAM_ARG(stream, handle);
	return soft_stream_sync(stream);
}

SOFT_API(cuStreamGetPriority, CUstream handle, int *priority)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetFlags, CUstream handle, unsigned int *flags)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetId, CUstream handle, unsigned long long *id)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = stream->id;
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetCtx, CUstream handle, CUcontext *context)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = soft_context_handle(soft_stream_context(stream));
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetDevice, CUstream handle, CUdevice *device)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = soft_stream_context(stream)->device->ordinal;
	return CUDA_SUCCESS;
}

SOFT_API(cuThreadExchangeStreamCaptureMode, int *mode)
{
	static __thread int thread_mode;
	int old = thread_mode;

	TRY(soft_ready());
	if (!mode || *mode < 0 || *mode > 2)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

/* ---- attributes: kept for whoever reads them, without effect on a software device ---- */

SOFT_API(cuStreamGetAttribute, CUstream handle, int attribute, CUlaunchAttributeValue *value)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		*value = (CUlaunchAttributeValue){ .priority = stream->priority };
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		pthread_mutex_lock(&soft_stream_context(stream)->lock);
		*value = stream->attributes[attribute];
		pthread_mutex_unlock(&soft_stream_context(stream)->lock);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuStreamSetAttribute, CUstream handle, int attribute, const CUlaunchAttributeValue *value)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		pthread_mutex_lock(&soft_stream_context(stream)->lock);
		if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
			stream->priority = MAX(SOFT_PRIORITY_GREATEST, MIN(SOFT_PRIORITY_LEAST, value->priority));
		else
			stream->attributes[attribute] = *value;
		pthread_mutex_unlock(&soft_stream_context(stream)->lock);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuStreamCopyAttributes, CUstream to_handle, CUstream from_handle)
{
	SOFT_STREAM_ARG(to, to_handle);
	SOFT_STREAM_ARG(from, from_handle);
	if (soft_stream_context(to) != soft_stream_context(from))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&soft_stream_context(to)->lock);
	to->priority = from->priority;
	for (unsigned int i = 0; i < SOFT_STREAM_ATTRIBUTES; i++)
		to->attributes[i] = from->attributes[i];
	pthread_mutex_unlock(&soft_stream_context(to)->lock);
	return CUDA_SUCCESS;
}

/* ---- host functions ---- */

struct host_command {
	struct soft_command command;
	CUhostFn function;
	CUstreamCallback callback;
	CUstream handle; /* as the program named the stream */
	void *user;
};

static CUresult host_run(struct soft_command *command, struct soft_stream *stream)
{
	struct host_command *host = (struct host_command *)command;

	if (host->function)
		host->function(host->user);
	else
		host->callback(host->handle, (CUresult)atomic_load(&soft_stream_context(stream)->error), host->user);
	return CUDA_SUCCESS;
}

static void host_free(struct soft_command *command)
{
	free(command);
}

static CUresult host_submit(CUstream handle, CUhostFn function, CUstreamCallback callback, void *user)
{
	struct host_command *host;

	SOFT_STREAM_ARG(stream, handle);
	if (!function && !callback)
		return CUDA_ERROR_INVALID_VALUE;
	if (soft_capturing(stream) && function) {
		const CUDA_HOST_NODE_PARAMS params = { .fn = function, .userData = user };
		struct soft_work work;

		TRY(soft_work_host(&work, &params));
		return soft_capture_add(stream, &work);
	}
	host = calloc(1, sizeof(*host));
	if (!host)
		return CUDA_ERROR_OUT_OF_MEMORY;
	host->command.run = host_run;
	host->command.free = host_free;
	/* A callback is told of errors, a host function is not called after one. */
	host->command.after_error = callback != NULL;
	host->function = function;
	host->callback = callback;
	host->handle = handle;
	host->user = user;
	return soft_stream_submit(stream, &host->command, NULL);
}

SOFT_API(cuLaunchHostFunc, CUstream stream, CUhostFn function, void *user)
{
	return host_submit(stream, function, NULL, user);
}

SOFT_API(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void *user, unsigned int flags)
{
	TRY(soft_ready());
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	return host_submit(stream, NULL, callback, user);
}
