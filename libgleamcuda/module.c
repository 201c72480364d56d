// SPDX-License-Identifier: Apache-2.0
/*
 * Modules: cuModule*. Loads are answered by the call; names, lists and counts from the answer. Application threads.
 */
#include <stdlib.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/file.h"
#include "libgleamcuda/image.h"
#include "libgleamcuda/program.h"

static CUresult module_load(struct call *call, CUmodule *module, const void *image, uint64_t size, const struct jit *jit)
{
	struct program *program = program_new(OBJECT_MODULE, call->context);
	CUresult result;

	if (!program)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = image_load(call, program->handle, image, size, jit, &program->answer);
	if (result) {
		program_free(program);
		return result;
	}
	*module = (CUmodule)(uintptr_t)program->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuModuleLoadDataEx(struct call *call, CUmodule *module, const void *image, unsigned int numOptions,
			       CUjit_option *options, void **optionValues)
{
	struct jit jit;
	CUresult result;

	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	result = jit_read(call, numOptions, options, optionValues, &jit);
	return result ? result : module_load(call, module, image, 0, &jit);
}

CUresult do_cuModuleLoadData(struct call *call, CUmodule *module, const void *image)
{
	return do_cuModuleLoadDataEx(call, module, image, 0, NULL, NULL);
}

CUresult do_cuModuleLoadFatBinary(struct call *call, CUmodule *module, const void *fatCubin)
{
	return do_cuModuleLoadDataEx(call, module, fatCubin, 0, NULL, NULL);
}

CUresult do_cuModuleLoad(struct call *call, CUmodule *module, const char *fname)
{
	struct jit jit;
	void *bytes;
	uint64_t size;
	CUresult result;

	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	result = file_read(fname, &bytes, &size);
	if (result)
		return result;
	result = jit_read(call, 0, NULL, NULL, &jit);
	if (!result)
		result = module_load(call, module, bytes, size, &jit);
	free(bytes);
	return result;
}

CUresult do_cuModuleUnload(struct call *call, CUmodule hmod)
{
	struct msg_cuModuleUnload m;
	struct program *module;
	CUresult result = module_of(hmod, &module);

	if (result)
		return result;
	/* It goes with its library. */
	if (module->library)
		return CUDA_ERROR_NOT_PERMITTED;
	m.hmod = module->handle;
	call_in(call, module->context);
	result = CALL_SEND(call, cuModuleUnload, &m);
	if (result)
		return result;
	program_free(module);
	return CUDA_SUCCESS;
}

CUresult do_cuModuleGetFunction(struct call *call, CUfunction *hfunc, CUmodule hmod, const char *name)
{
	struct answer_function *info;
	struct function *function;
	struct program *module;
	CUresult result;

	/* The module is looked at first, and no current context is needed: measured. */
	result = module_of(hmod, &module);
	if (result)
		return result;
	if (!hfunc || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	result = program_find(call, module, name, &info);
	if (!result) {
		call_in(call, module->context);
		result = program_function(call, module, info, &function);
	}
	if (!result)
		*hfunc = (CUfunction)(uintptr_t)function->handle;
	return result;
}

/* The answer that lists the functions of a module. */
static CUresult listed(struct call *call, struct program *module, struct answer **answer_out)
{
	*answer_out = module->library ? module->library->answer : module->answer;
	if (answer_is_unlisted(*answer_out))
		return call_refuse(call, "the server's driver is too old to list functions");
	return CUDA_SUCCESS;
}

CUresult do_cuModuleGetFunctionCount(struct call *call, unsigned int *count, CUmodule mod)
{
	struct program *module;
	struct answer *answer;
	CUresult result;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_of(mod, &module);
	if (!result)
		result = listed(call, module, &answer);
	if (!result)
		*count = answer_count(answer);
	return result;
}

CUresult do_cuModuleEnumerateFunctions(struct call *call, CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	struct program *module;
	struct answer *answer;
	CUresult result;

	if (!functions)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_of(mod, &module);
	if (!result)
		result = listed(call, module, &answer);
	if (result)
		return result;
	call_in(call, module->context);
	for (uint32_t i = 0; i < numFunctions && i < answer_count(answer); i++) {
		struct function *function;

		result = program_function(call, module, answer_at(answer, i), &function);
		if (result)
			return result;
		functions[i] = (CUfunction)(uintptr_t)function->handle;
	}
	return CUDA_SUCCESS;
}

CUresult module_each_function(CUmodule hmod, void (*each)(void *user, CUfunction), void *user)
{
	struct program *module;
	struct answer *answer;
	struct call call;
	CUresult result = call_enter(&call, API_cuModuleEnumerateFunctions, NEEDS_CONTEXT, false);

	if (!result)
		result = module_of(hmod, &module);
	if (!result)
		result = listed(&call, module, &answer);
	for (uint32_t i = 0; !result && i < answer_count(answer); i++) {
		struct function *function;

		call_in(&call, module->context);
		result = program_function(&call, module, answer_at(answer, i), &function);
		if (!result)
			each(user, (CUfunction)(uintptr_t)function->handle);
	}
	return call_leave(&call, result);
}

CUresult do_cuModuleGetGlobal_v2(struct call *call, CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
	struct program *module;
	uint64_t address, size;
	bool managed;
	CUresult result;

	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	result = module_of(hmod, &module);
	if (!result)
		result = program_variable(call, module, name, &address, &size, &managed);
	if (result)
		return result;
	if (dptr)
		*dptr = (CUdeviceptr)address;
	if (bytes)
		*bytes = (size_t)size;
	return CUDA_SUCCESS;
}

CUresult do_cuModuleGetGlobal(struct call *call, CUdeviceptr_v1 *dptr, unsigned int *bytes, CUmodule hmod,
			      const char *name)
{
	CUdeviceptr address;
	size_t size;
	CUresult result;

	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	result = do_cuModuleGetGlobal_v2(call, &address, &size, hmod, name);
	if (result)
		return result;
	/* Addresses of 32 bits: from the time before there were more. */
	if (address > UINT32_MAX || size > UINT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (dptr)
		*dptr = (CUdeviceptr_v1)address;
	if (bytes)
		*bytes = (unsigned int)size;
	return CUDA_SUCCESS;
}
