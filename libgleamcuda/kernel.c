// SPDX-License-Identifier: Apache-2.0
/*
 * Functions and kernels: cuFunc* and cuKernel*. Attributes came with the load; what the program sets is remembered here
 * and told to the worker without waiting, so the checks are the driver's (measured with driver 580.159). A setting of a
 * function is its own; one of a kernel reaches its functions on that device too. Application threads.
 */
#include <pthread.h>
#include <stddef.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/program.h"

/* ---- attributes ---- */

static bool is_cluster(int attribute)
{
	return attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH && attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH;
}

/* @own_cluster: not what the function was compiled with. */
static CUresult value_check(int attribute, int value, const int32_t *values, bool own_cluster, int device)
{
	const int32_t *limits = device_at(device)->raw->attributes;
	bool good;

	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		good = value >= 0 && value <= limits[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] -
						      values[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		good = value >= -1 && value <= 100;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		/* What it was compiled with stays; all else is looked at when something is launched. */
		good = !own_cluster && values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] ? value == values[attribute] : value >= 0;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		good = true;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		good = value >= 0 && value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING;
		break;
	default:
		good = false;
		break;
	}
	return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void function_value_set(struct function *function, int attribute, int value)
{
	if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
		value = value != 0;
	__atomic_store_n(&function->values[attribute], value, __ATOMIC_RELAXED);
	if (is_cluster(attribute))
		__atomic_store_n(&function->own_cluster, true, __ATOMIC_RELAXED);
}

bool function_cluster_slowly(const struct function *function, const CUlaunchAttribute *attrs, uint32_t count, CUlaunchAttribute *attr_out)
{
	CUlaunchAttribute attr = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };

	attr.value.clusterDim.x = (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
	attr.value.clusterDim.y = (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
	attr.value.clusterDim.z = (uint32_t)function_value(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
	if (!attr.value.clusterDim.x)
		return false;
	for (uint32_t i = 0; i < count; i++)
		if (attrs[i].id == attr.id)
			return false;
	*attr_out = attr;
	return true;
}

/* Bounds are told in the order in which they rise. Held while a message is sent, and for rises alone. */
static pthread_mutex_t bounds_lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: not a bound, and told whenever it is set. */
static int32_t *bound_of(struct bounds *bounds, CUfunction_attribute attribute)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return &bounds->dynamic_shared;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		return &bounds->nonportable;
	default:
		return NULL;
	}
}

static CUresult function_tell(struct call *call, const struct function *function, CUfunction_attribute attribute, int value)
{
	struct msg_cuFuncSetAttribute m = { .hfunc = function->handle, .attrib = (uint32_t)attribute, .value = value };

	return CALL_SEND(call, cuFuncSetAttribute, &m);
}

static CUresult function_raise(struct call *call, struct function *function, CUfunction_attribute attribute, int value)
{
	int32_t *bound = bound_of(&function->bounds, attribute);
	CUresult result = CUDA_SUCCESS;

	pthread_mutex_lock(&bounds_lock);
	if (value > __atomic_load_n(bound, __ATOMIC_RELAXED)) {
		result = function_tell(call, function, attribute, value);
		if (!result)
			bound_rise(bound, value);
	}
	pthread_mutex_unlock(&bounds_lock);
	return result;
}

CUresult do_cuFuncGetAttribute(struct call *call, int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
	struct function *function;
	CUresult result;

	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_of(hfunc, &function);
	if (result)
		return result;
	if ((unsigned int)attrib >= VERDICT_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_ready(call, function);
	if (!result)
		*pi = function_value(function, attrib);
	return result;
}

CUresult do_cuFuncSetAttribute(struct call *call, CUfunction hfunc, CUfunction_attribute attrib, int value)
{
	struct function *function;
	CUresult result = function_of(hfunc, &function);

	if (!result)
		result = function_ready(call, function);
	if (!result)
		result = value_check((int)attrib, value, function->values, __atomic_load_n(&function->own_cluster, __ATOMIC_RELAXED),
				     function->context->device);
	if (result)
		return result;
	call_in(call, function->context);
	/* Set again to what it is: frameworks do that before each launch. */
	if (function_value(function, attrib) == value)
		return CUDA_SUCCESS;
	if (bound_of(&function->bounds, attrib))
		result = function_raise(call, function, attrib, value);
	else if (!is_cluster((int)attrib))
		result = function_tell(call, function, attrib, value);
	if (result)
		return result;
	function_value_set(function, (int)attrib, value);
	return CUDA_SUCCESS;
}

static CUresult kernel_on(struct call *call, CUkernel hkernel, CUdevice dev, struct kernel **kernel_out,
			  struct kernel_values **values_out)
{
	CUresult result = kernel_of(hkernel, kernel_out);

	if (result)
		return result;
	if (!device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	return kernel_values_of(call, *kernel_out, dev, values_out);
}

CUresult do_cuKernelGetAttribute(struct call *call, int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
	struct kernel_values *values;
	struct kernel *k;
	CUresult result;

	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_on(call, kernel, dev, &k, &values);
	if (result)
		return result;
	if ((unsigned int)attrib >= VERDICT_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	*pi = __atomic_load_n(&values->values[attrib], __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* A setting reaches every function that the kernel has on the device. */
static bool functions_have(struct kernel *kernel, CUdevice dev, int attribute, int value, bool set)
{
	bool same = true;

	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		struct function *function = __atomic_load_n(&kernel->functions[i], __ATOMIC_ACQUIRE);

		if (!function || function->context->device != dev || !__atomic_load_n(&function->ready, __ATOMIC_ACQUIRE))
			continue;
		if (set)
			function_value_set(function, attribute, value);
		else
			same &= function_value(function, (CUfunction_attribute)attribute) == value;
	}
	return same;
}

static CUresult kernel_tell(struct call *call, const struct kernel *k, CUfunction_attribute attribute, int value, CUdevice dev)
{
	struct msg_cuKernelSetAttribute m = { .attrib = (uint32_t)attribute, .val = value, .kernel = k->handle,
					      .dev = (int32_t)device_at(dev)->node_device };
	CUresult result = kernel_at(call, k, dev);

	return result ? result : CALL_SEND(call, cuKernelSetAttribute, &m);
}

/* The functions get what the kernel gets, which must not be less than theirs. */
static CUresult kernel_raise(struct call *call, struct kernel *k, struct kernel_values *values, CUfunction_attribute attribute,
			     int value, CUdevice dev)
{
	int32_t *bounds[1 + SESSION_CONTEXTS] = { bound_of(&values->bounds, attribute) };
	uint32_t count = 1;
	CUresult result = CUDA_SUCCESS;
	bool low = false;

	pthread_mutex_lock(&bounds_lock);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		struct function *function = __atomic_load_n(&k->functions[i], __ATOMIC_ACQUIRE);

		if (function && function->context->device == dev)
			bounds[count++] = bound_of(&function->bounds, attribute);
	}
	for (uint32_t i = 0; i < count; i++)
		low |= __atomic_load_n(bounds[i], __ATOMIC_RELAXED) < value;
	for (uint32_t i = 0; i < count; i++)
		bound_rise(&value, __atomic_load_n(bounds[i], __ATOMIC_RELAXED));
	if (low)
		result = kernel_tell(call, k, attribute, value, dev);
	for (uint32_t i = 0; low && !result && i < count; i++)
		bound_rise(bounds[i], value);
	pthread_mutex_unlock(&bounds_lock);
	return result;
}

CUresult do_cuKernelSetAttribute(struct call *call, CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
	struct kernel_values *values;
	struct kernel *k;
	CUresult result = kernel_on(call, kernel, dev, &k, &values);

	if (!result)
		result = value_check((int)attrib, val, values->values, __atomic_load_n(&values->own_cluster, __ATOMIC_RELAXED), dev);
	if (result)
		return result;
	if (__atomic_load_n(&values->values[attrib], __ATOMIC_RELAXED) == val &&
	    functions_have(k, dev, (int)attrib, val, false))
		return CUDA_SUCCESS;
	if (bound_of(&values->bounds, attrib))
		result = kernel_raise(call, k, values, attrib, val, dev);
	else if (!is_cluster((int)attrib))
		result = kernel_tell(call, k, attrib, val, dev);
	if (result)
		return result;
	if (is_cluster((int)attrib))
		__atomic_store_n(&values->own_cluster, true, __ATOMIC_RELAXED);
	__atomic_store_n(&values->values[attrib], val, __ATOMIC_RELAXED);
	functions_have(k, dev, (int)attrib, val, true);
	return CUDA_SUCCESS;
}

/* ---- cache and bank preferences ---- */

CUresult do_cuFuncSetCacheConfig(struct call *call, CUfunction hfunc, CUfunc_cache config)
{
	struct msg_cuFuncSetCacheConfig m = { .config = (uint32_t)config };
	struct function *function;
	CUresult result = function_of(hfunc, &function);

	if (result)
		return result;
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	m.hfunc = function->handle;
	call_in(call, function->context);
	result = CALL_SEND(call, cuFuncSetCacheConfig, &m);
	if (result)
		return result;
	__atomic_store_n(&function->cache_config, (uint32_t)config, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult do_cuKernelSetCacheConfig(struct call *call, CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
	struct msg_cuKernelSetCacheConfig m = { .config = (uint32_t)config };
	struct kernel *k;
	CUresult result = kernel_of(kernel, &k);

	if (result)
		return result;
	if (!device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return CUDA_ERROR_INVALID_VALUE;
	m.kernel = k->handle;
	m.dev = (int32_t)device_at(dev)->node_device;
	result = kernel_at(call, k, dev);
	if (!result)
		result = CALL_SEND(call, cuKernelSetCacheConfig, &m);
	if (result)
		return result;
	__atomic_store_n(&k->cache_config[dev], (uint32_t)config, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		struct function *function = __atomic_load_n(&k->functions[i], __ATOMIC_ACQUIRE);

		if (function && function->context->device == dev)
			__atomic_store_n(&function->cache_config, (uint32_t)config, __ATOMIC_RELAXED);
	}
	return CUDA_SUCCESS;
}

CUresult do_cuFuncSetSharedMemConfig(struct call *call, CUfunction hfunc, CUsharedconfig config)
{
	struct msg_cuFuncSetSharedMemConfig m = { .config = (uint32_t)config };
	struct function *function;
	CUresult result = function_of(hfunc, &function);

	if (result)
		return result;
	if ((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	m.hfunc = function->handle;
	call_in(call, function->context);
	result = CALL_SEND(call, cuFuncSetSharedMemConfig, &m);
	if (result)
		return result;
	return CUDA_SUCCESS;
}

/* ---- names, layouts, relations ---- */

CUresult do_cuFuncGetName(struct call *call, const char **name, CUfunction hfunc)
{
	struct function *function;
	CUresult result;

	(void)call;
	/* A NULL function is a wrong value here, not a wrong handle: measured. */
	if (!name || !hfunc)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_of(hfunc, &function);
	if (!result)
		*name = function->info->name;
	return result;
}

CUresult do_cuKernelGetName(struct call *call, const char **name, CUkernel hfunc)
{
	struct kernel *kernel;
	CUresult result;

	(void)call;
	if (!name || !hfunc)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_of(hfunc, &kernel);
	if (!result)
		*name = kernel->info->name;
	return result;
}

static CUresult param_tell(const struct function *function, size_t index, size_t *offset_out, size_t *size_out)
{
	if (index >= function->param_count)
		return CUDA_ERROR_INVALID_VALUE;
	*offset_out = function->params[index].offset;
	if (size_out)
		*size_out = function->params[index].size;
	return CUDA_SUCCESS;
}

CUresult do_cuFuncGetParamInfo(struct call *call, CUfunction func, size_t paramIndex, size_t *paramOffset,
			       size_t *paramSize)
{
	struct function *function;
	CUresult result;

	if (!paramOffset || !func)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_of(func, &function);
	if (!result)
		result = function_ready(call, function);
	return result ? result : param_tell(function, paramIndex, paramOffset, paramSize);
}

CUresult do_cuKernelGetParamInfo(struct call *call, CUkernel kernel, size_t paramIndex, size_t *paramOffset,
				 size_t *paramSize)
{
	struct function *function;
	struct kernel *k;
	CUresult result;

	if (!paramOffset || !kernel)
		return CUDA_ERROR_INVALID_VALUE;
	/* The driver loads the function for it. */
	if (!call->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	result = kernel_of(kernel, &k);
	if (!result)
		result = kernel_function(call, k, call->context, &function);
	if (!result)
		result = function_ready(call, function);
	return result ? result : param_tell(function, paramIndex, paramOffset, paramSize);
}

CUresult do_cuFuncGetModule(struct call *call, CUmodule *hmod, CUfunction hfunc)
{
	struct program *module;
	struct function *function;
	CUresult result;

	if (!hmod)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_of(hfunc, &function);
	if (result)
		return result;
	if (!function->kernel) {
		*hmod = (CUmodule)(uintptr_t)function->program->handle;
		return CUDA_SUCCESS;
	}
	result = library_module(call, function->program, function->context, &module);
	if (!result)
		*hmod = (CUmodule)(uintptr_t)module->handle;
	return result;
}

CUresult do_cuKernelGetLibrary(struct call *call, CUlibrary *pLib, CUkernel kernel)
{
	struct kernel *k;
	CUresult result;

	(void)call;
	if (!pLib)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_of(kernel, &k);
	if (!result)
		*pLib = (CUlibrary)(uintptr_t)k->program->handle;
	return result;
}

CUresult do_cuKernelGetFunction(struct call *call, CUfunction *pFunc, CUkernel kernel)
{
	struct function *function;
	struct kernel *k;
	uint64_t handle;
	CUresult result;

	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	result = kernel_of(kernel, &k);
	if (!result)
		result = kernel_function(call, k, call->context, &function);
	if (!result)
		result = function_handle(call, function, &handle);
	if (!result)
		*pFunc = (CUfunction)(uintptr_t)handle;
	return result;
}

/* ---- lazy loading: a function whose handle exists was loaded with it, also under the real driver ---- */

CUresult do_cuFuncIsLoaded(struct call *call, CUfunctionLoadingState *state, CUfunction function)
{
	struct function *f;
	CUresult result;

	(void)call;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	result = function_of(function, &f);
	if (!result)
		*state = CU_FUNCTION_LOADING_STATE_LOADED;
	return result;
}

CUresult do_cuFuncLoad(struct call *call, CUfunction function)
{
	struct function *f;

	(void)call;
	return function_of(function, &f);
}
