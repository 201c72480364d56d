// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts: their lives, the stack of each thread, and what a program may set in them. Any thread.
 */
#include "broker/softgpu/soft_context.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_green.h"
#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_module.h"
#include "broker/softgpu/soft_stream.h"

static const size_t limits_default[CU_LIMIT_MAX] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 7340032,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8388608,
	[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
	[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
	[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128,
};

/* The thread's stack of contexts, as handles: what they name may end at any time. */
static __thread CUcontext stack[SOFT_STACK_DEPTH];
static __thread unsigned int stack_depth;

static _Atomic uint64_t context_ids = 1;

CUcontext soft_context_handle(const struct soft_context *context)
{
	return (CUcontext)(uintptr_t)atomic_load(&context->object.handle);
}

static void context_free(struct soft_object *object)
{
	struct soft_context *context = (struct soft_context *)object;

	pthread_mutex_destroy(&context->lock);
	free(context);
}

static CUresult context_new(struct soft_device *device, bool primary, struct soft_context **context_out)
{
	struct soft_context *context = calloc(1, sizeof(*context));
	CUresult result;

	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&context->object, SOFT_CONTEXT, NULL, context_free);
	context->device = device;
	context->primary = primary;
	pthread_mutex_init(&context->lock, NULL);
	result = soft_object_publish(&context->object);
	if (result != CUDA_SUCCESS) {
		soft_object_put(&context->object);
		return result;
	}
	*context_out = context;
	return CUDA_SUCCESS;
}

/* From nothing, or from an ended primary context, to one that works. */
static CUresult context_start(struct soft_context *context, unsigned int flags, unsigned int api_version)
{
	struct soft_stream *legacy;

	atomic_store(&context->id, atomic_fetch_add(&context_ids, 1));
	atomic_store(&context->error, CUDA_SUCCESS);
	atomic_store(&context->ending, false);
	atomic_store(&context->abort, 0);
	atomic_store(&context->heap_used, 0);
	atomic_store(&context->flags, flags);
	atomic_store(&context->peers, 0);
	pthread_mutex_lock(&context->lock);
	memcpy(context->limits, limits_default, sizeof(context->limits));
	context->cache_config = 0;
	context->shared_config = 0;
	context->api_version = api_version;
	pthread_mutex_unlock(&context->lock);
	TRY(soft_stream_new(context, SOFT_STREAM_LEGACY, 0, 0, &legacy));
	soft_object_put(&legacy->object);
	atomic_store(&context->alive, true);
	return CUDA_SUCCESS;
}

/* Ends what lives in the context; the context itself stays as an object. */
static void context_stop(struct soft_context *context)
{
	static const enum soft_type types[] = { SOFT_EVENT, SOFT_FUNCTION, SOFT_MODULE, SOFT_TEXTURE, SOFT_SURFACE,
						SOFT_MIPMAP, SOFT_ARRAY };
	struct soft_object *object;

	atomic_store(&context->alive, false);
	atomic_store(&context->ending, true);
	atomic_store(&context->abort, 1);
	soft_stream_stop_all(context);
	soft_library_leave(context);
	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		while ((object = soft_object_retire_owned(context, types[i])) != NULL)
			soft_object_put(object);
	soft_memory_leave(context);
}

CUresult soft_context_setup(void)
{
	for (int i = 0; i < soft_device_count(); i++) {
		struct soft_device *device = soft_device_find(i);

		TRY(context_new(device, true, &device->primary));
	}
	return CUDA_SUCCESS;
}

void soft_context_fail(struct soft_context *context, CUresult error)
{
	unsigned int none = CUDA_SUCCESS;

	atomic_compare_exchange_strong(&context->error, &none, error);
	/* What else runs there would only end when it liked. */
	atomic_store(&context->abort, 1);
	if (context->base)
		soft_context_fail(context->base, error);
}

CUresult soft_context_find(CUcontext handle, struct soft_context **context_out)
{
	struct soft_context *context;

	if (!handle)
		return CUDA_ERROR_INVALID_CONTEXT;
	context = (struct soft_context *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_CONTEXT);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_load(&context->alive)) {
		soft_object_put(&context->object);
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	*context_out = context;
	return CUDA_SUCCESS;
}

CUresult soft_context_enter_failed(struct soft_context **context_out)
{
	TRY(soft_ready());
	if (!stack_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	return soft_context_find(stack[stack_depth - 1], context_out);
}

CUresult soft_context_enter(struct soft_context **context_out)
{
	struct soft_context *context;
	unsigned int error;

	TRY(soft_context_enter_failed(&context));
	error = atomic_load(&context->error);
	if (!error)
		error = atomic_load(&soft_context_home(context)->error);
	if (error) {
		soft_object_put(&context->object);
		return (CUresult)error;
	}
	*context_out = context;
	return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

static CUresult device_arg(CUdevice dev, struct soft_device **device_out)
{
	TRY(soft_ready());
	*device_out = soft_device_find(dev);
	return *device_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/* Held over start and end of primary contexts, so that a retain never meets a half-ended one. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

SOFT_API(cuDevicePrimaryCtxRetain, CUcontext *context_out, CUdevice dev)
{
	struct soft_device *device;
	CUresult result = CUDA_SUCCESS;

	TRY(device_arg(dev, &device));
	if (!context_out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&primary_lock);
	if (device->primary_count == 0 && !atomic_load(&device->primary->alive))
		result = context_start(device->primary, device->primary_flags, SOFT_VERSION);
	if (result == CUDA_SUCCESS) {
		device->primary_count++;
		*context_out = soft_context_handle(device->primary);
	}
	pthread_mutex_unlock(&primary_lock);
	return result;
}

SOFT_API(cuDevicePrimaryCtxRelease_v2, CUdevice dev)
{
	struct soft_device *device;
	CUresult result = CUDA_SUCCESS;

	TRY(device_arg(dev, &device));
	pthread_mutex_lock(&primary_lock);
	if (!device->primary_count)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (--device->primary_count == 0 && atomic_load(&device->primary->alive))
		context_stop(device->primary);
	pthread_mutex_unlock(&primary_lock);
	return result;
}

SOFT_ALIAS(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

SOFT_API(cuDevicePrimaryCtxReset_v2, CUdevice dev)
{
	struct soft_device *device;
	CUresult result = CUDA_SUCCESS;

	TRY(device_arg(dev, &device));
	pthread_mutex_lock(&primary_lock);
	if (atomic_load(&device->primary->alive)) {
		context_stop(device->primary);
		/* Those that had retained it go on with a fresh one. */
		if (device->primary_count)
			result = context_start(device->primary, device->primary_flags, SOFT_VERSION);
	}
	pthread_mutex_unlock(&primary_lock);
	return result;
}

SOFT_ALIAS(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

static CUresult flags_check(unsigned int flags)
{
	unsigned int wait = flags & CU_CTX_SCHED_MASK;

	/* One way of waiting at most. */
	if (flags & ~CU_CTX_FLAGS_MASK || (wait != 0 && wait != 1 && wait != 2 && wait != 4))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

SOFT_API(cuDevicePrimaryCtxSetFlags_v2, CUdevice dev, unsigned int flags)
{
	struct soft_device *device;

	TRY(device_arg(dev, &device));
	TRY(flags_check(flags));
	pthread_mutex_lock(&primary_lock);
	device->primary_flags = flags;
	atomic_store(&device->primary->flags, flags);
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

SOFT_API(cuDevicePrimaryCtxGetState, CUdevice dev, unsigned int *flags, int *active)
{
	struct soft_device *device;

	TRY(device_arg(dev, &device));
	if (!flags && !active)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&primary_lock);
	if (flags)
		*flags = device->primary_flags;
	if (active)
		*active = atomic_load(&device->primary->alive);
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

static CUresult stack_push(CUcontext handle)
{
	if (stack_depth == SOFT_STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[stack_depth++] = handle;
	return CUDA_SUCCESS;
}

static CUresult context_create(CUcontext *context_out, unsigned int flags, CUdevice dev, unsigned int api_version)
{
	struct soft_context *context;
	struct soft_device *device;
	CUresult result;

	TRY(device_arg(dev, &device));
	if (!context_out)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(flags_check(flags));
	TRY(context_new(device, false, &context));
	result = context_start(context, flags, api_version);
	if (result == CUDA_SUCCESS)
		result = stack_push(soft_context_handle(context));
	if (result != CUDA_SUCCESS) {
		context_stop(context);
		soft_object_put(soft_object_retire(atomic_load(&context->object.handle), SOFT_CONTEXT));
		return result;
	}
	*context_out = soft_context_handle(context);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxCreate_v2, CUcontext *context, unsigned int flags, CUdevice dev)
{
	return context_create(context, flags, dev, 3020);
}

SOFT_API(cuCtxCreate_v3, CUcontext *context, void *affinity, int affinity_count, unsigned int flags, CUdevice dev)
{
	TRY(soft_ready());
	if (affinity_count < 0 || (affinity_count > 0 && !affinity))
		return CUDA_ERROR_INVALID_VALUE;
	if (affinity_count > 0)
		return (CUresult)224; /* UNSUPPORTED_EXEC_AFFINITY: as a device that is not partitioned answers */
	return context_create(context, flags, dev, SOFT_VERSION);
}

SOFT_API(cuCtxCreate_v4, CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	TRY(soft_ready());
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuCtxCreate_v3(context, params ? params->execAffinityParams : NULL,
			      params ? params->numExecAffinityParams : 0, flags, dev);
}

SOFT_API(cuCtxDestroy_v2, CUcontext handle)
{
	struct soft_context *context;

	TRY(soft_ready());
	TRY(soft_context_find(handle, &context));
	if (context->primary || context->base) {
		soft_object_put(&context->object);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	soft_object_put(&context->object);
	context = (struct soft_context *)soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_CONTEXT);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_stop(context);
	soft_object_put(&context->object);
	if (stack_depth && stack[stack_depth - 1] == handle)
		stack_depth--;
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuCtxDestroy, cuCtxDestroy_v2);

CUresult soft_context_green_new(struct soft_device *device, struct soft_context **context_out)
{
	struct soft_context *context;
	CUcontext primary;
	CUresult result;

	TRY(cuDevicePrimaryCtxRetain(&primary, device->ordinal));
	result = context_new(device, false, &context);
	if (result == CUDA_SUCCESS) {
		context->base = device->primary;
		result = context_start(context, device->primary_flags, SOFT_VERSION);
		if (result != CUDA_SUCCESS)
			soft_object_put(soft_object_retire(atomic_load(&context->object.handle), SOFT_CONTEXT));
	}
	if (result != CUDA_SUCCESS)
		cuDevicePrimaryCtxRelease_v2(device->ordinal);
	else
		*context_out = context;
	return result;
}

void soft_context_green_end(struct soft_context *context)
{
	CUdevice device = context->device->ordinal;
	struct soft_object *object = soft_object_retire(atomic_load(&context->object.handle), SOFT_CONTEXT);

	context_stop(context);
	soft_object_put(object);
	cuDevicePrimaryCtxRelease_v2(device);
}

SOFT_API(cuCtxAttach, CUcontext *context, unsigned int flags)
{
	/* Removed from use long ago; the real driver refuses as well where a context was not made by cuCtxCreate. */
	TRY(soft_ready());
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- the current context ---- */

SOFT_API(cuCtxPushCurrent_v2, CUcontext handle)
{
	SOFT_HELD struct soft_object *context = NULL;

	TRY(soft_ready());
	context = soft_object_find((uint64_t)(uintptr_t)handle, SOFT_CONTEXT);
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return stack_push(handle);
}

SOFT_ALIAS(cuCtxPushCurrent, cuCtxPushCurrent_v2);

SOFT_API(cuCtxPopCurrent_v2, CUcontext *context)
{
	TRY(soft_ready());
	if (!stack_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	stack_depth--;
	if (context)
		*context = stack[stack_depth];
	return CUDA_SUCCESS;
}

SOFT_ALIAS(cuCtxPopCurrent, cuCtxPopCurrent_v2);

SOFT_API(cuCtxSetCurrent, CUcontext handle)
{
	SOFT_HELD struct soft_object *context = NULL;

	TRY(soft_ready());
	if (handle) {
		context = soft_object_find((uint64_t)(uintptr_t)handle, SOFT_CONTEXT);
		if (!context)
			return CUDA_ERROR_INVALID_CONTEXT;
		if (stack_depth)
			stack[stack_depth - 1] = handle;
		else
			return stack_push(handle);
	} else if (stack_depth) {
		stack_depth--;
	}
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetCurrent, CUcontext *context)
{
	TRY(soft_ready());
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = stack_depth ? stack[stack_depth - 1] : NULL;
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetDevice, CUdevice *device)
{
	SOFT_HELD struct soft_context *context = NULL;

	TRY(soft_ready());
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!stack_depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	/* Answered for a primary context that is not alive, too: its device does not change. */
	context = (struct soft_context *)soft_object_find((uint64_t)(uintptr_t)stack[stack_depth - 1], SOFT_CONTEXT);
	if (!context)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*device = context->device->ordinal;
	return CUDA_SUCCESS;
}

/* What takes a context or NULL for the current one. */
static CUresult context_arg(CUcontext handle, struct soft_context **context_out)
{
	TRY(soft_ready());
	return handle ? soft_context_find(handle, context_out) : soft_context_enter_failed(context_out);
}

SOFT_API(cuCtxGetDevice_v2, CUdevice *device, CUcontext handle)
{
	SOFT_HELD struct soft_context *context = NULL;

	if (!handle)
		return cuCtxGetDevice(device);
	TRY(context_arg(handle, &context));
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device->ordinal;
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxSynchronize_v2, CUcontext handle)
{
	SOFT_HELD struct soft_context *context = NULL;

	TRY(context_arg(handle, &context));
	TRY(soft_green_sync(context));
	return soft_context_sync(context);
}

SOFT_API(cuCtxSynchronize, void)
{
	return cuCtxSynchronize_v2(NULL);
}

SOFT_API(cuCtxGetId, CUcontext handle, unsigned long long *id)
{
	SOFT_HELD struct soft_context *context = NULL;

	TRY(context_arg(handle, &context));
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = atomic_load(&context->id);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetApiVersion, CUcontext handle, unsigned int *version)
{
	SOFT_HELD struct soft_context *context = NULL;

	TRY(context_arg(handle, &context));
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&context->lock);
	*version = context->api_version;
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetFlags, unsigned int *flags)
{
	SOFT_ENTER(context);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = atomic_load(&context->flags) | CU_CTX_MAP_HOST;
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetFlags, unsigned int flags)
{
	SOFT_ENTER(context);
	TRY(flags_check(flags));
	atomic_store(&context->flags, flags);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
	SOFT_ENTER(context);
	if (least)
		*least = SOFT_PRIORITY_LEAST;
	if (greatest)
		*greatest = SOFT_PRIORITY_GREATEST;
	return CUDA_SUCCESS;
}
