// SPDX-License-Identifier: Apache-2.0
/*
 * Libraries: cuLibrary*. As the driver does it, loading one succeeds for whatever it is given, and a bad image shows when
 * something is asked of it; the answer is here by then. Application threads.
 */
#include <stdlib.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/file.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/image.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/session.h"

/* Options of libraries: two are known. */
#define LIBRARY_OPTIONS_MAX 16

static CUresult options_check(struct call *call, CUlibraryOption *options, void **values, unsigned int count)
{
	if (!count)
		return CUDA_SUCCESS;
	if (!options || count > LIBRARY_OPTIONS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		switch ((int)options[i]) {
		case CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE:
			if (values && values[i])
				return call_refuse(call, "device code can't call host functions over the network");
			break;
		case CU_LIBRARY_BINARY_IS_PRESERVED:
			/* The image goes out before the call returns: nothing of it is needed later. */
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	return CUDA_SUCCESS;
}

/* Failures of the image are kept for later; those of the session and of memory are told at once. */
static bool result_waits(struct call *call, CUresult result)
{
	switch (result) {
	case CUDA_ERROR_INVALID_IMAGE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_INVALID_SOURCE:
	case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
	case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
	case CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC:
		return !session_is_dead(call->session);
	default:
		return false;
	}
}

/* A library is of no context: the other servers get it as well. What they say of it is asked for where it matters. */
static void load_others(struct call *call, struct program *program, const void *image, uint64_t size, const struct jit *jit)
{
	struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++) {
		struct answer *answer = NULL;
		struct call other;

		if (s == call->session || session_is_dead(s))
			continue;
		call_start(&other, s, NULL);
		program->results[i] = image_load(&other, program->handle, image, size, jit, &answer);
		call_leave(&other, CUDA_SUCCESS);
		if (!program->results[i])
			program->loaded |= 1u << i;
		/* The first that could read it says what is in it. */
		if (answer && !program->answer)
			program->answer = answer;
		else if (answer)
			answer_put(answer);
	}
}

static CUresult unload_send(struct call *call, const void *message)
{
	const struct msg_cuLibraryUnload *m = message;
	return CALL_SEND(call, cuLibraryUnload, m);
}

static CUresult library_load(struct call *call, CUlibrary *library, const void *image, uint64_t size,
			     const struct jit *jit)
{
	struct program *program = program_new(OBJECT_LIBRARY, call->context);
	CUresult result;

	if (!program)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = image_load(call, program->handle, image, size, jit, &program->answer);
	if (result && !result_waits(call, result)) {
		program_free(program);
		return result;
	}
	program->load_result = result;
	program->results[call->session->index] = result;
	if (!result)
		program->loaded = 1u << call->session->index;
	load_others(call, program, image, size, jit);
	*library = (CUlibrary)(uintptr_t)program->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryLoadData(struct call *call, CUlibrary *library, const void *code, CUjit_option *jitOptions,
			      void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
			      void **libraryOptionValues, unsigned int numLibraryOptions)
{
	struct jit jit;
	CUresult result;

	if (!library || !code)
		return CUDA_ERROR_INVALID_VALUE;
	result = options_check(call, libraryOptions, libraryOptionValues, numLibraryOptions);
	if (!result)
		result = jit_read(call, numJitOptions, jitOptions, jitOptionsValues, &jit);
	return result ? result : library_load(call, library, code, 0, &jit);
}

CUresult do_cuLibraryLoadFromFile(struct call *call, CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
				  void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				  void **libraryOptionValues, unsigned int numLibraryOptions)
{
	struct jit jit;
	void *bytes;
	uint64_t size;
	CUresult result;

	if (!library || !fileName)
		return CUDA_ERROR_INVALID_VALUE;
	/* A file is always read whole: the driver refuses to be told that it is preserved. */
	for (unsigned int i = 0; libraryOptions && i < numLibraryOptions && i < LIBRARY_OPTIONS_MAX; i++)
		if (libraryOptions[i] == CU_LIBRARY_BINARY_IS_PRESERVED)
			return CUDA_ERROR_INVALID_VALUE;
	result = options_check(call, libraryOptions, libraryOptionValues, numLibraryOptions);
	if (!result)
		result = jit_read(call, numJitOptions, jitOptions, jitOptionsValues, &jit);
	if (!result)
		result = file_read(fileName, &bytes, &size);
	if (result)
		return result;
	result = library_load(call, library, bytes, size, &jit);
	free(bytes);
	return result;
}

CUresult do_cuLibraryUnload(struct call *call, CUlibrary library)
{
	struct msg_cuLibraryUnload m;
	struct program *program;
	CUresult result = library_of(library, &program);

	if (result)
		return result;
	m.library = program->handle;
	/* A failed load left nothing at the worker. */
	if (program->answer) {
		result = library_tell(call, program, unload_send, &m);
		if (result)
			return result;
	}
	program_free(program);
	return CUDA_SUCCESS;
}

/* ---- kernels ---- */

CUresult do_cuLibraryGetKernel(struct call *call, CUkernel *pKernel, CUlibrary library, const char *name)
{
	struct answer_function *info;
	struct kernel *kernel;
	struct program *program;
	CUresult result;

	if (!pKernel || !name || !*name)
		return CUDA_ERROR_INVALID_VALUE;
	result = library_of(library, &program);
	if (!result)
		result = program_find(call, program, name, &info);
	if (!result)
		result = program_kernel(call, program, info, &kernel);
	if (!result)
		*pKernel = (CUkernel)(uintptr_t)kernel->handle;
	return result;
}

static CUresult listed(struct call *call, CUlibrary library, struct program **program_out)
{
	CUresult result = library_of(library, program_out);

	if (result)
		return result;
	if (!(*program_out)->answer)
		return (*program_out)->load_result;
	if (answer_is_unlisted((*program_out)->answer))
		return call_refuse(call, "the server's driver is too old to list kernels");
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryGetKernelCount(struct call *call, unsigned int *count, CUlibrary lib)
{
	struct program *program;
	CUresult result;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	result = listed(call, lib, &program);
	if (!result)
		*count = answer_count(program->answer);
	return result;
}

CUresult do_cuLibraryEnumerateKernels(struct call *call, CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
	struct program *program;
	CUresult result;

	if (!kernels)
		return CUDA_ERROR_INVALID_VALUE;
	result = listed(call, lib, &program);
	for (uint32_t i = 0; !result && i < numKernels && i < answer_count(program->answer); i++) {
		struct kernel *kernel;

		result = program_kernel(call, program, answer_at(program->answer, i), &kernel);
		if (!result)
			kernels[i] = (CUkernel)(uintptr_t)kernel->handle;
	}
	return result;
}

/* ---- the library's module in a context ---- */

CUresult library_module(struct call *call, struct program *library, struct context *context, struct program **module_out)
{
	struct context *current = call->context;
	struct program *module;
	CUresult result = CUDA_SUCCESS;

	if (!library->answer)
		return library->load_result;
	result = library_is_in(library, context->session);
	if (result)
		return result;
	pthread_mutex_lock(&library->lock);
	module = library->modules[context->index];
	if (!module) {
		struct msg_cuLibraryGetModule m = { .library = library->handle };

		module = program_new(OBJECT_MODULE, context);
		if (!module) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
			goto unlock;
		}
		module->library = library;
		m.pMod = module->handle;
		call_in(call, context);
		result = call_open(call, OP_cuLibraryGetModule, msg_cuLibraryGetModule_size(&m));
		if (!result) {
			msg_cuLibraryGetModule_put(&call->w, &m);
			call_post(call);
			library->modules[context->index] = module;
		} else {
			program_free(module);
		}
		call_in(call, current);
	}
unlock:
	pthread_mutex_unlock(&library->lock);
	if (!result)
		*module_out = module;
	return result;
}

CUresult do_cuLibraryGetModule(struct call *call, CUmodule *pMod, CUlibrary library)
{
	struct program *program, *module;
	CUresult result;

	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	result = library_of(library, &program);
	if (!result)
		result = library_module(call, program, call->context, &module);
	if (!result)
		*pMod = (CUmodule)(uintptr_t)module->handle;
	return result;
}

/* ---- variables ---- */

CUresult do_cuLibraryGetGlobal(struct call *call, CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct program *program;
	uint64_t address, size;
	bool managed;
	CUresult result;

	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	result = library_of(library, &program);
	if (!result)
		result = program_variable(call, program, name, &address, &size, &managed);
	if (result)
		return result;
	if (dptr)
		*dptr = (CUdeviceptr)address;
	if (bytes)
		*bytes = (size_t)size;
	return CUDA_SUCCESS;
}

/*
 * Without a current context, too: cudart asks before it has made one. The memory is one for all contexts, and its contents come by
 * way of one: the first device's primary context, which then is active without being held.
 */
static CUresult managed_context(struct call *call)
{
	CUcontext handle;
	CUresult result;

	if (call->context && __atomic_load_n(&call->context->active, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	call_in(call, context_primary(0));
	if (!call->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (__atomic_load_n(&call->context->active, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	result = do_cuDevicePrimaryCtxRetain(call, &handle, 0);
	if (!result)
		primary_let_go(call->context);
	return result;
}

CUresult do_cuLibraryGetManaged(struct call *call, CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
	struct program *program;
	uint64_t address, size;
	bool managed = false;
	CUresult result;

	if ((!dptr && !bytes) || !name)
		return CUDA_ERROR_INVALID_VALUE;
	result = library_of(library, &program);
	if (!result && !program->answer)
		result = program->load_result;
	if (!result)
		result = managed_context(call);
	if (!result)
		result = program_variable(call, program, name, &address, &size, &managed);
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return call_refuse(call, "the address of a __managed__ variable is taken in this process: start it again, or without gdb");
	if (!result && !managed)
		result = CUDA_ERROR_NOT_FOUND;
	if (result)
		return result;
	if (dptr)
		*dptr = (CUdeviceptr)address;
	if (bytes)
		*bytes = (size_t)size;
	return CUDA_SUCCESS;
}

CUresult do_cuLibraryGetUnifiedFunction(struct call *call, void **fptr, CUlibrary library, const char *symbol)
{
	struct program *program;
	CUresult result;

	if (!fptr || !symbol)
		return CUDA_ERROR_INVALID_VALUE;
	result = library_of(library, &program);
	return result ? result : call_refuse(call, "functions for host and device alike need a host that shares memory with the GPU");
}
