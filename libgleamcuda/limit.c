// SPDX-License-Identifier: Apache-2.0
/*
 * Settings of a context: limits and cache preferences. What a new context has is in the snapshot; what the driver makes of
 * a new value is asked once and remembered. Any thread.
 */
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/session.h"

static bool limit_exists(CUlimit limit)
{
	return (uint32_t)limit < SNAPSHOT_LIMITS;
}

/* A trip the first time after a change: cuCtxGetLimit is asked 44 times for a token of a language model. */
CUresult do_cuCtxGetLimit(struct call *call, size_t *pvalue, CUlimit limit)
{
	struct context *context = call->context;
	struct msg_cuCtxGetLimit m = { .limit = (uint32_t)limit };
	struct ans_cuCtxGetLimit a;
	CUresult result;

	if (!pvalue || !limit_exists(limit))
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_load_n(&context->limits_known, __ATOMIC_ACQUIRE) & 1u << limit) {
		*pvalue = __atomic_load_n(&context->limits[limit], __ATOMIC_RELAXED);
		return CUDA_SUCCESS;
	}
	result = CALL_ASK(call, cuCtxGetLimit, &m);
	if (result)
		return result;
	if (!ans_cuCtxGetLimit_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	__atomic_store_n(&context->limits[limit], a.pvalue, __ATOMIC_RELAXED);
	__atomic_fetch_or(&context->limits_known, 1u << limit, __ATOMIC_RELEASE);
	*pvalue = a.pvalue;
	return CUDA_SUCCESS;
}

/* The driver refuses, rounds and clamps by rules of the card: it decides, and what it made of it is asked later. */
CUresult do_cuCtxSetLimit(struct call *call, CUlimit limit, size_t value)
{
	struct msg_cuCtxSetLimit m = { .limit = (uint32_t)limit, .value = value };
	CUresult result;

	if (!limit_exists(limit))
		return CUDA_ERROR_INVALID_VALUE;
	result = CALL_ASK(call, cuCtxSetLimit, &m);
	if (!result)
		__atomic_fetch_and(&call->context->limits_known, ~(1u << limit), __ATOMIC_RELEASE);
	return result;
}

CUresult do_cuCtxGetCacheConfig(struct call *call, CUfunc_cache *pconfig)
{
	if (!pconfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pconfig = (CUfunc_cache)__atomic_load_n(&call->context->cache_config, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetCacheConfig(struct call *call, CUfunc_cache config)
{
	struct msg_cuCtxSetCacheConfig m = { .config = (uint32_t)config };
	CUresult result;

	if ((uint32_t)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	result = CALL_SEND(call, cuCtxSetCacheConfig, &m);
	if (result)
		return result;
	__atomic_store_n(&call->context->cache_config, (uint32_t)config, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* The width of shared memory's banks can't be chosen on any card since Maxwell: setting it changes nothing. */
CUresult do_cuCtxGetSharedMemConfig(struct call *call, CUsharedconfig *pConfig)
{
	if (!pConfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pConfig = (CUsharedconfig)call->session->snapshot.devices[call->context->node_device].shared_config;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxSetSharedMemConfig(struct call *call, CUsharedconfig config)
{
	return (uint32_t)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
