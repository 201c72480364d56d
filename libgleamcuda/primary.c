// SPDX-License-Identifier: Apache-2.0
/*
 * Primary contexts: one a device, with a handle that is there before anybody holds it and stays the same over resets.
 * Retains are counted; the last release ends it, a reset ends it at once and leaves the count. Any thread.
 */
#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/cls.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

/* Mapped host memory can't be chosen: every context has it, and cuCtxGetFlags says so by itself. */
#define PRIMARY_FLAGS 0xf7u

CUresult do_cuDevicePrimaryCtxRetain(struct call *call, CUcontext *pctx, CUdevice dev)
{
	struct context *context = context_primary(dev);
	CUresult result = CUDA_SUCCESS;

	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lifecycle_lock);
	if (!context->active) {
		const struct snapshot_device *raw = device_at(dev)->raw;

		__atomic_store_n(&context->flags, context->primary_flags | raw->context_flags, __ATOMIC_RELAXED);
		__atomic_store_n(&context->api_version, raw->api_version, __ATOMIC_RELAXED);
		context_activate_locked(call, context, &result);
	}
	if (!result) {
		context->attached++;
		*pctx = context->handle;
	}
	pthread_mutex_unlock(&lifecycle_lock);
	return result;
}

void primary_let_go(struct context *context)
{
	pthread_mutex_lock(&lifecycle_lock);
	if (context->attached)
		context->attached--;
	pthread_mutex_unlock(&lifecycle_lock);
}

/* Ends it once its work is done; with @only_unheld not if another thread has retained it meanwhile. */
static void primary_end(struct call *call, struct context *context, bool only_unheld)
{
	struct cls_block *cls = NULL;

	call_in(call, context);
	if (__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		context_wait(call);
	pthread_mutex_lock(&lifecycle_lock);
	if (context->active && !(only_unheld && context->attached)) {
		cls = context_deactivate_locked(call, context);
		__atomic_store_n(&context->primary_flags, 0, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lifecycle_lock);
	cls_destroy_all(context, cls);
}

CUresult do_cuDevicePrimaryCtxRelease_v2(struct call *call, CUdevice dev)
{
	struct context *context = context_primary(dev);
	bool last;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lifecycle_lock);
	if (!context->attached) {
		pthread_mutex_unlock(&lifecycle_lock);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	last = --context->attached == 0;
	pthread_mutex_unlock(&lifecycle_lock);
	if (last)
		primary_end(call, context, true);
	return CUDA_SUCCESS;
}

/* Whoever holds it still does: a retain brings it up again, and each release is owed as before. */
CUresult do_cuDevicePrimaryCtxReset_v2(struct call *call, CUdevice dev)
{
	struct context *context = context_primary(dev);

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	primary_end(call, context, false);
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxGetState(struct call *call, CUdevice dev, unsigned int *flags, int *active)
{
	const struct context *context = context_primary(dev);

	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = __atomic_load_n(&context->primary_flags, __ATOMIC_RELAXED);
	*active = __atomic_load_n(&context->active, __ATOMIC_ACQUIRE) != 0;
	return CUDA_SUCCESS;
}

CUresult do_cuDevicePrimaryCtxSetFlags_v2(struct call *call, CUdevice dev, unsigned int flags)
{
	struct context *context = context_primary(dev);
	unsigned int sched = flags & 7;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((flags & ~PRIMARY_FLAGS) || (sched & (sched - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lifecycle_lock);
	__atomic_store_n(&context->primary_flags, flags, __ATOMIC_RELAXED);
	if (context->active)
		__atomic_store_n(&context->flags, flags | device_at(dev)->raw->context_flags, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lifecycle_lock);
	return CUDA_SUCCESS;
}
