// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts: the table, their births and deaths, and every question about one. The books are the library's; the worker is
 * told of births and deaths. Any thread; lifecycle_lock orders births and deaths, questions take no lock.
 */
#include "libgleamcuda/context.h"

#include "broker/lib/shm.h"
#include "broker/proto/handle.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/cls.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define CLOSE_HOOKS_MAX 16

/* Of cuCtxCreate; the low three bits are at most one of spin, yield, blocking sync. */
#define FLAGS_ALL   0xffu
#define FLAGS_SCHED 0x7u

pthread_mutex_t lifecycle_lock = PTHREAD_MUTEX_INITIALIZER;

/* Indices 0 .. devices - 1 are the primary contexts. Never freed: stacks and handles point into it. */
static struct context contexts[SESSION_CONTEXTS];
static uint32_t generations[SESSION_CONTEXTS]; /* guarded by lifecycle_lock */
static uint32_t index_next;		       /* guarded by lifecycle_lock: freed places wait for their turn */
static uint64_t id_last;		       /* guarded by lifecycle_lock */
static void (*hooks[CLOSE_HOOKS_MAX])(struct context *context); /* atomic */

void context_on_close(void (*hook)(struct context *context))
{
	for (int i = 0; i < CLOSE_HOOKS_MAX; i++) {
		void (*none)(struct context *context) = NULL;

		if (__atomic_load_n(&hooks[i], __ATOMIC_RELAXED) == hook ||
		    __atomic_compare_exchange_n(&hooks[i], &none, hook, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return;
	}
	assert(!"context_on_close: raise CLOSE_HOOKS_MAX");
}

/* ---- the table ---- */

static CUcontext handle_of(uint32_t index, uint32_t generation)
{
	return (CUcontext)(uintptr_t)handle_make(OBJECT_CONTEXT, generation, index);
}

static void device_set(struct context *context, int ordinal)
{
	const struct device *device = device_at(ordinal);

	context->device = ordinal;
	context->node_device = device->node_device;
	context->unit = device->unit;
	context->session = device->session;
}

CUresult contexts_init(void)
{
	struct session *first = session_at(0);
	CUresult result = CUDA_SUCCESS;

	/* Of several servers the devices have been chosen before, and servers of which none was are gone. */
	if (session_count() == 1 && !first->chooses)
		result = devices_init(&first, 1);
	if (result)
		return result;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		contexts[i].index = i;
		contexts[i].session = first;
		pthread_mutex_init(&contexts[i].lock, NULL);
	}
	for (int i = 0; i < device_count(); i++) {
		contexts[i].primary = true;
		device_set(&contexts[i], i);
		generations[i] = 1;
		__atomic_store_n(&contexts[i].handle, handle_of((uint32_t)i, 1), __ATOMIC_RELEASE);
	}
	index_next = (uint32_t)device_count();
	return CUDA_SUCCESS;
}

struct context *context_find(CUcontext handle)
{
	uint64_t value = (uint64_t)(uintptr_t)handle;
	uint32_t index = handle_index(value);

	if (handle_type(value) != OBJECT_CONTEXT || index >= SESSION_CONTEXTS)
		return NULL;
	return __atomic_load_n(&contexts[index].handle, __ATOMIC_ACQUIRE) == handle ? &contexts[index] : NULL;
}

struct context *context_primary(int device)
{
	return device_at(device) ? &contexts[device] : NULL;
}

struct context *context_on(int device)
{
	struct context *context = context_primary(device);

	if (!context || __atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return context;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (contexts[i].device == device && __atomic_load_n(&contexts[i].active, __ATOMIC_ACQUIRE))
			return &contexts[i];
	return NULL;
}

struct context *context_at(uint32_t index)
{
	return index < SESSION_CONTEXTS && __atomic_load_n(&contexts[index].handle, __ATOMIC_ACQUIRE) ? &contexts[index] :
													 NULL;
}

static bool is_active(const struct context *context)
{
	return __atomic_load_n(&context->active, __ATOMIC_ACQUIRE) != 0;
}

/* A place that no living context and no thread's stack uses. */
static struct context *place_take_locked(void)
{
	uint32_t first = (uint32_t)device_count();

	for (uint32_t i = 0; i < SESSION_CONTEXTS - first; i++) {
		uint32_t index = first + (index_next - first + i) % (SESSION_CONTEXTS - first);
		struct context *context = &contexts[index];

		/* Pairs with the release in thread_pop(). */
		if (context->active || context->attached || __atomic_load_n(&context->stacked, __ATOMIC_ACQUIRE))
			continue;
		index_next = index + 1;
		generations[index] = generations[index] % HANDLE_GEN_MAX + 1;
		return context;
	}
	return NULL;
}

/* ---- activation ---- */

static void activated_locked(struct context *context, uint64_t seq);

void context_activate_locked(struct call *call, struct context *context, CUresult *result_out)
{
	struct msg_gleamContextOpen m = {
		.index = context->index,
		.device = context->node_device,
		.flags = context->flags,
		.primary = context->primary,
	};

	/* To the context's server, which may know nothing of the current one. */
	if (call->session != context->session) {
		call_to(call, context->session);
		call->context = NULL;
	}
	*result_out = call_open(call, OP_gleamContextOpen, msg_gleamContextOpen_size(&m));
	if (*result_out)
		return;
	/* A failure of the epoch before is not this one's. */
	__atomic_store_n(&shm_error(&call->session->shm, context->index)->code, 0, __ATOMIC_RELEASE);
	msg_gleamContextOpen_put(&call->w, &m);
	activated_locked(context, call_post(call));
}

static void activated_locked(struct context *context, uint64_t seq)
{
	const struct snapshot_device *raw = device_at(context->device)->raw;

	__atomic_store_n(&context->error, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->gate, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&context->last_seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&context->done_seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&context->id, ++id_last, __ATOMIC_RELAXED);
	__atomic_store_n(&context->cache_config, raw->cache_config, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < SNAPSHOT_LIMITS; i++)
		__atomic_store_n(&context->limits[i], raw->limits[i], __ATOMIC_RELAXED);
	__atomic_store_n(&context->limits_known, raw->limits_known, __ATOMIC_RELEASE);
	__atomic_store_n(&context->epoch, context->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&context->active, 1, __ATOMIC_RELEASE);
}

/*
 * Ends what lives in the context and tells the worker. The caller has waited for its work, and calls cls_destroy_all() with
 * what is returned when it holds no lock: destructors are the program's.
 */
struct cls_block *context_deactivate_locked(struct call *call, struct context *context)
{
	struct msg_gleamContextClose m = { .index = context->index };
	struct cls_block *cls;

	pthread_mutex_lock(&context->lock);
	__atomic_store_n(&context->active, 0, __ATOMIC_RELEASE);
	cls = cls_detach_locked(context);
	pthread_mutex_unlock(&context->lock);

	call_in(call, context);
	for (int i = 0; i < CLOSE_HOOKS_MAX; i++) {
		void (*hook)(struct context *closed) = __atomic_load_n(&hooks[i], __ATOMIC_ACQUIRE);

		if (hook)
			hook(context);
	}
	range_remove_context(context, NULL);
	/* A session that died needs no close: the worker is gone, and its contexts with it. */
	CALL_SEND(call, gleamContextClose, &m);
	return cls;
}

/* The driver waits for a context's work before it takes the context away; failures are told to nobody any more. */
static void work_wait(struct call *call, struct context *context)
{
	call_in(call, context);
	context_wait(call);
}

static bool flags_are_bad(unsigned int flags)
{
	unsigned int sched = flags & FLAGS_SCHED;

	return (flags & ~FLAGS_ALL) || (sched & (sched - 1));
}

static CUresult context_create(struct call *call, CUcontext *pctx, unsigned int flags, CUdevice dev,
			       unsigned int api_version)
{
	struct context *context;
	CUresult result;

	if (!pctx || flags_are_bad(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lifecycle_lock);
	context = place_take_locked();
	if (!context) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto unlock;
	}
	device_set(context, dev);
	context->base = NULL;
	__atomic_store_n(&context->flags, flags, __ATOMIC_RELAXED);
	__atomic_store_n(&context->api_version, api_version, __ATOMIC_RELAXED);
	__atomic_store_n(&context->handle, handle_of(context->index, generations[context->index]), __ATOMIC_RELEASE);
	context_activate_locked(call, context, &result);
	if (result)
		goto unlock;
	result = thread_push(call->thread, context);
	if (result) {
		/* Nothing can hang on it yet. */
		context_deactivate_locked(call, context);
		goto unlock;
	}
	context->attached = 1;
	*pctx = context->handle;
unlock:
	pthread_mutex_unlock(&lifecycle_lock);
	return result;
}

/* Takes one attachment; the last one ends it. @whole: all of them (destroy). */
static CUresult context_end(struct call *call, struct context *context, bool whole)
{
	struct cls_block *cls = NULL;
	bool last;

	if (!is_active(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (whole || context->attached == 1)
		work_wait(call, context);
	pthread_mutex_lock(&lifecycle_lock);
	if (!is_active(context)) {
		pthread_mutex_unlock(&lifecycle_lock);
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	context->attached = whole ? 0 : context->attached - 1;
	last = !context->attached;
	if (last)
		cls = context_deactivate_locked(call, context);
	pthread_mutex_unlock(&lifecycle_lock);
	if (last) {
		/* Destructors find it still current, as in the driver. */
		cls_destroy_all(context, cls);
		if (context_current() == context)
			thread_pop(call->thread);
	}
	return CUDA_SUCCESS;
}

/* The first version shares this body; its contexts tell another version, that is all. */
CUresult do_cuCtxCreate_v2(struct call *call, CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return context_create(call, pctx, flags, dev, call->api == API_cuCtxCreate ? 3010 : 3020);
}

/* Affinity to a part of the multiprocessors needs MPS; the device says so when it is asked. */
CUresult do_cuCtxCreate_v3(struct call *call, CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			   unsigned int flags, CUdevice dev)
{
	if (numParams < 0 || (numParams && !paramsArray))
		return CUDA_ERROR_INVALID_VALUE;
	if (numParams)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return context_create(call, pctx, flags, dev, 3020);
}

CUresult do_cuCtxCreate_v4(struct call *call, CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			   CUdevice dev)
{
	if (ctxCreateParams) {
		if (ctxCreateParams->numExecAffinityParams < 0 ||
		    (ctxCreateParams->numExecAffinityParams && !ctxCreateParams->execAffinityParams))
			return CUDA_ERROR_INVALID_VALUE;
		if (ctxCreateParams->numExecAffinityParams)
			return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
		if (ctxCreateParams->cigParams)
			return CUDA_ERROR_NOT_SUPPORTED;
	}
	return context_create(call, pctx, flags, dev, 3020);
}

CUresult do_cuCtxDestroy_v2(struct call *call, CUcontext ctx)
{
	struct context *context = context_find(ctx);

	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context || context->primary || context->base)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context_end(call, context, true);
}

CUresult context_green_make(struct call *call, int device, const uint32_t *parts, uint32_t count, struct context **context_out)
{
	struct msg_gleamGreenOpen m = { .parts = parts, .parts_count = count };
	struct context *context;
	CUcontext primary;
	CUresult result = do_cuDevicePrimaryCtxRetain(call, &primary, device);

	if (result)
		return result;
	pthread_mutex_lock(&lifecycle_lock);
	context = place_take_locked();
	if (context) {
		context->attached = 1; /* the place is taken */
		device_set(context, device);
		context->base = context_primary(device);
		__atomic_store_n(&context->flags, context->base->flags, __ATOMIC_RELAXED);
		__atomic_store_n(&context->api_version, context->base->api_version, __ATOMIC_RELAXED);
		__atomic_store_n(&context->handle, handle_of(context->index, generations[context->index]), __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lifecycle_lock);
	result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!context)
		goto release;
	call_in(call, context->base);
	m.index = context->index;
	m.device = context->node_device;
	result = CALL_ASK(call, gleamGreenOpen, &m);
	pthread_mutex_lock(&lifecycle_lock);
	if (result) {
		context->attached = 0;
	} else {
		__atomic_store_n(&shm_error(&call->session->shm, context->index)->code, 0, __ATOMIC_RELEASE);
		activated_locked(context, call->posted);
		/* There are streams now that don't wait for the legacy one of the other. */
		__atomic_store_n(&context->has_free_streams, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&context->base->has_free_streams, 1, __ATOMIC_RELEASE);
		__atomic_add_fetch(&context->base->greens, 1, __ATOMIC_RELEASE);
		*context_out = context;
	}
	pthread_mutex_unlock(&lifecycle_lock);
	if (!result)
		return CUDA_SUCCESS;
release:
	do_cuDevicePrimaryCtxRelease_v2(call, device);
	return result;
}

CUresult context_green_end(struct call *call, struct context *context)
{
	int device = context->device;
	CUresult result = context_end(call, context, true);

	if (!result)
		__atomic_sub_fetch(&context_primary(device)->greens, 1, __ATOMIC_RELEASE);
	return result ? result : do_cuDevicePrimaryCtxRelease_v2(call, device);
}

/* Failures are told where the green context is asked. */
void contexts_green_wait(struct call *call, struct context *base)
{
	for (uint32_t i = (uint32_t)device_count(); i < SESSION_CONTEXTS; i++)
		if (contexts[i].base == base && is_active(&contexts[i]))
			work_wait(call, &contexts[i]);
	call_in(call, base);
}

CUresult do_cuCtxAttach(struct call *call, CUcontext *pctx, unsigned int flags)
{
	struct context *context = call->context;
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;

	if (!pctx || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lifecycle_lock);
	if (is_active(context)) {
		context->attached++;
		*pctx = context->handle;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lifecycle_lock);
	return result;
}

CUresult do_cuCtxDetach(struct call *call, CUcontext ctx)
{
	struct context *context = context_find(ctx);

	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	/* Only the current one may be detached from. */
	if (!context || context != call_current(call) || context->base)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context->primary)
		return do_cuDevicePrimaryCtxRelease_v2(call, context->device);
	return context_end(call, context, false);
}

/* ---- current ones ---- */

CUresult do_cuCtxGetCurrent(struct call *call, CUcontext *pctx)
{
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = call->context ? call_current(call)->handle : NULL;
	return CUDA_SUCCESS;
}

/* A destroyed context may be made current, as in the driver; calls that need it then say so. */
CUresult do_cuCtxSetCurrent(struct call *call, CUcontext ctx)
{
	struct context *context = context_find(ctx);

	if (ctx && !context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return thread_set(call->thread, context);
}

CUresult do_cuCtxPushCurrent_v2(struct call *call, CUcontext ctx)
{
	struct context *context = context_find(ctx);

	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	return context ? thread_push(call->thread, context) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuCtxPopCurrent_v2(struct call *call, CUcontext *pctx)
{
	struct context *context = thread_pop(call->thread);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (pctx)
		*pctx = context->handle;
	return CUDA_SUCCESS;
}

/* ---- questions: they work on a context that has ended where the driver's do ---- */

/* The context of an argument where NULL means the current one. */
static CUresult context_arg(const struct call *call, CUcontext ctx, struct context **context_out)
{
	*context_out = ctx ? context_find(ctx) : call_current(call);
	return *context_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult do_cuCtxGetDevice(struct call *call, CUdevice *device)
{
	if (!call->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = call->context->device;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetDevice_v2(struct call *call, CUdevice *device, CUcontext ctx)
{
	struct context *context;
	CUresult result = context_arg(call, ctx, &context);

	if (result)
		return result;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = context->device;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetFlags(struct call *call, unsigned int *flags)
{
	if (!call->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = is_active(call->context) ? __atomic_load_n(&call->context->flags, __ATOMIC_RELAXED) : 0;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetFlags(struct call *call, unsigned int flags)
{
	if (flags_are_bad(flags))
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_store_n(&call->context->flags, flags, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* cudart's test whether a context lives: a handle says INVALID_CONTEXT, NULL says that the current one has ended. */
CUresult do_cuCtxGetApiVersion(struct call *call, CUcontext ctx, unsigned int *version)
{
	struct context *context;
	CUresult result = context_arg(call, ctx, &context);

	if (result)
		return result;
	if (!is_active(context))
		return ctx ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = __atomic_load_n(&context->api_version, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetId(struct call *call, CUcontext ctx, unsigned long long *ctxId)
{
	struct context *context;
	CUresult result = context_arg(call, ctx, &context);

	if (result)
		return result;
	if (!is_active(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	*ctxId = __atomic_load_n(&context->id, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult do_cuCtxGetStreamPriorityRange(struct call *call, int *leastPriority, int *greatestPriority)
{
	const struct snapshot_device *raw = device_at(call->context->device)->raw;

	if (leastPriority)
		*leastPriority = raw->priority_least;
	if (greatestPriority)
		*greatestPriority = raw->priority_greatest;
	return CUDA_SUCCESS;
}

/* Without affinity a context has all multiprocessors. */
CUresult do_cuCtxGetExecAffinity(struct call *call, CUexecAffinityParam *pExecAffinity, CUexecAffinityType type)
{
	if (!pExecAffinity)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	pExecAffinity->type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
	pExecAffinity->param.smCount.val =
		(unsigned int)device_at(call->context->device)->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	return CUDA_SUCCESS;
}

/* ---- waiting ---- */

CUresult do_cuCtxSynchronize(struct call *call)
{
	call_in(call, call_current(call));
	return context_wait(call);
}

CUresult do_cuCtxSynchronize_v2(struct call *call, CUcontext ctx)
{
	struct context *context;
	CUresult result = context_arg(call, ctx, &context);

	if (result)
		return result;
	if (!is_active(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	call_in(call, context);
	if (session_is_dead(call->session))
		return session_death(call->session);
	result = (CUresult)__atomic_load_n(&context->error, __ATOMIC_RELAXED);
	return result ? result : context_wait(call);
}
