// SPDX-License-Identifier: Apache-2.0
/*
 * What functions are and may be set to. Any thread.
 */
#include <string.h>

#include "broker/softgpu/soft_module.h"

static int threads_max(const struct ptx_entry *entry)
{
	const uint32_t *bound = entry->reqntid[0] ? entry->reqntid : entry->maxntid;
	uint64_t threads;

	if (!bound[0])
		return (int)SOFT_THREADS_PER_BLOCK;
	threads = (uint64_t)bound[0] * MAX(bound[1], 1) * MAX(bound[2], 1);
	return (int)MIN(threads, (uint64_t)SOFT_THREADS_PER_BLOCK);
}

void soft_settings_init(struct soft_settings *settings, const struct ptx_entry *entry)
{
	uint32_t left = SOFT_SHARED_PER_BLOCK - MIN(entry->shared_static, SOFT_SHARED_PER_BLOCK);

	atomic_init(&settings->dynamic_max, (int)left);
	atomic_init(&settings->carveout, -1);
	atomic_init(&settings->nonportable, 0);
	atomic_init(&settings->cluster_policy, 0);
	for (unsigned int i = 0; i < 3; i++)
		atomic_init(&settings->cluster[i], (int)entry->reqnctapercluster[i]);
	atomic_init(&settings->cache_config, 0);
}

CUresult soft_settings_get(const struct soft_settings *settings, const struct ptx_entry *entry,
			   const struct ptx_module *ptx, const struct soft_device *device, int attribute, int *value_out)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value_out = threads_max(entry);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value_out = (int)entry->shared_static;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value_out = (int)entry->const_size;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value_out = (int)entry->local_size;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value_out = (int)entry->regs;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value_out = (int)ptx_module_sm(ptx);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value_out = device->major * 10 + device->minor;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
		*value_out = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value_out = atomic_load(&settings->dynamic_max);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value_out = atomic_load(&settings->carveout);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value_out = 0;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value_out = atomic_load(&settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH]);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value_out = atomic_load(&settings->nonportable);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value_out = atomic_load(&settings->cluster_policy);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult soft_settings_set(struct soft_settings *settings, const struct ptx_entry *entry, int attribute, int value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || (uint32_t)value + entry->shared_static > SOFT_SHARED_OPTIN)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&settings->dynamic_max, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&settings->carveout, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		if (value != 0 && value != 1)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&settings->nonportable, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < 0 || value > 2)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&settings->cluster_policy, value);
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		/* What the code was compiled for can't be changed; saying the same is fine. */
		if (entry->reqnctapercluster[0])
			return (uint32_t)value == entry->reqnctapercluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] ?
				       CUDA_SUCCESS :
				       CUDA_ERROR_INVALID_VALUE;
		if (value < 0)
			return CUDA_ERROR_INVALID_VALUE;
		atomic_store(&settings->cluster[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH], value);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult soft_entry_param(const struct ptx_entry *entry, size_t index, size_t *offset, size_t *size)
{
	if (index >= entry->param_count || !offset)
		return CUDA_ERROR_INVALID_VALUE;
	*offset = entry->params[index].offset;
	if (size)
		*size = entry->params[index].size;
	return CUDA_SUCCESS;
}

#define FUNCTION_ARG(name, handle)                   \
	SOFT_HELD struct soft_function *name = NULL; \
	SOFT_ENTER(context);                         \
	TRY(soft_function_find(handle, context, &name))

SOFT_API(cuFuncGetName, const char **name, CUfunction handle)
{
	FUNCTION_ARG(function, handle);
	if (!name)
		return CUDA_ERROR_INVALID_VALUE;
	*name = function->entry->name;
	return CUDA_SUCCESS;
}

SOFT_API(cuFuncGetModule, CUmodule *module, CUfunction handle)
{
	FUNCTION_ARG(function, handle);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	*module = (CUmodule)(uintptr_t)atomic_load(&function->module->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuFuncGetAttribute, int *value, CUfunction_attribute attribute, CUfunction handle)
{
	FUNCTION_ARG(function, handle);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	soft_places_function(function);
	return soft_settings_get(function->settings, function->entry, function->module->ptx,
				 function->object.owner->device, attribute, value);
}

SOFT_API(cuFuncSetAttribute, CUfunction handle, CUfunction_attribute attribute, int value)
{
	FUNCTION_ARG(function, handle);
	soft_places_function(function);
	return soft_settings_set(function->settings, function->entry, attribute, value);
}

SOFT_API(cuFuncSetCacheConfig, CUfunction handle, int config)
{
	FUNCTION_ARG(function, handle);
	if (config < 0 || config > 3)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_store(&function->settings->cache_config, config);
	return CUDA_SUCCESS;
}

SOFT_API(cuFuncSetSharedMemConfig, CUfunction handle, int config)
{
	FUNCTION_ARG(function, handle);
	return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SOFT_API(cuFuncGetParamInfo, CUfunction handle, size_t index, size_t *offset, size_t *size)
{
	FUNCTION_ARG(function, handle);
	return soft_entry_param(function->entry, index, offset, size);
}

SOFT_API(cuFuncIsLoaded, int *state, CUfunction handle)
{
	FUNCTION_ARG(function, handle);
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	*state = 1; /* code is ready once its module is there */
	return CUDA_SUCCESS;
}

SOFT_API(cuFuncLoad, CUfunction handle)
{
	FUNCTION_ARG(function, handle);
	soft_places_function(function);
	return CUDA_SUCCESS;
}
