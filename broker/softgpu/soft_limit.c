// SPDX-License-Identifier: Apache-2.0
/*
 * What a program may set in a context: limits, cache and bank preferences, and whose memory its kernels may use. Any
 * thread.
 */
#include "broker/softgpu/soft_context.h"

/* ---- settings ---- */

SOFT_API(cuCtxGetLimit, size_t *value, CUlimit limit)
{
	SOFT_ENTER(context);
	if (!value || limit < 0 || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&context->lock);
	*value = context->limits[limit];
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetLimit, CUlimit limit, size_t value)
{
	/* A thread's stack: what a kernel may be given, less than all threads together could fill. */
	const size_t stack_max = (size_t)512 << 10;

	SOFT_ENTER(context);
	switch (limit) {
	case CU_LIMIT_STACK_SIZE:
		if (value > stack_max)
			return CUDA_ERROR_INVALID_VALUE;
		value = (value + 15) & ~(size_t)15;
		break;
	case CU_LIMIT_PRINTF_FIFO_SIZE:
	case CU_LIMIT_MALLOC_HEAP_SIZE:
	case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
		break;
	case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: /* a hint */
		if (value > 128)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
	case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
	case CU_LIMIT_SHMEM_SIZE:
	case CU_LIMIT_CIG_ENABLED:
	case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	pthread_mutex_lock(&context->lock);
	context->limits[limit] = value;
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetCacheConfig, int *config)
{
	SOFT_ENTER(context);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&context->lock);
	*config = context->cache_config;
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetCacheConfig, int config)
{
	SOFT_ENTER(context);
	if (config < 0 || config > 3)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&context->lock);
	context->cache_config = config;
	pthread_mutex_unlock(&context->lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxGetSharedMemConfig, int *config)
{
	SOFT_ENTER(context);
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = 1; /* four-byte banks, fixed on every device since sm_50 */
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxSetSharedMemConfig, int config)
{
	SOFT_ENTER(context);
	return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SOFT_API(cuCtxResetPersistingL2Cache, void)
{
	SOFT_ENTER(context);
	return CUDA_SUCCESS;
}

/* ---- peers ---- */

static CUresult peer_arg(CUcontext handle, struct soft_context *context, struct soft_context **peer_out)
{
	TRY(soft_context_find(handle, peer_out));
	if ((*peer_out)->device != context->device)
		return CUDA_SUCCESS;
	soft_object_put(&(*peer_out)->object);
	*peer_out = NULL;
	return CUDA_ERROR_INVALID_DEVICE;
}

SOFT_API(cuCtxEnablePeerAccess, CUcontext handle, unsigned int flags)
{
	SOFT_HELD struct soft_context *peer = NULL;
	uint32_t bit;

	SOFT_ENTER(context);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(peer_arg(handle, context, &peer));
	bit = 1u << peer->device->ordinal;
	if (atomic_fetch_or(&context->peers, bit) & bit)
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxDisablePeerAccess, CUcontext handle)
{
	SOFT_HELD struct soft_context *peer = NULL;
	uint32_t bit;

	SOFT_ENTER(context);
	TRY(peer_arg(handle, context, &peer));
	bit = 1u << peer->device->ordinal;
	if (!(atomic_fetch_and(&context->peers, ~bit) & bit))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	return CUDA_SUCCESS;
}
