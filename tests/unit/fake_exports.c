// SPDX-License-Identifier: Apache-2.0
/*
 * Exports that the library's core refers to, without the library: a short table for cuGetProcAddress, sorted as the real
 * one is, and the module functions that private tables lead to, which remember what they were given.
 */
#include "tests/unit/fake_exports.h"

#include "gen/api.h"
#include "gen/procaddr.h"

#define ROW(base, name, since, kind, number) { base, name, since, kind, (void *)(uintptr_t)(number) }

const struct proc proc_table[PROC_COUNT] = {
	ROW("cuCtxCreate", "cuCtxCreate", 2000, PROC_LEGACY, 1),
	ROW("cuCtxCreate", "cuCtxCreate_v2", 3020, PROC_LEGACY, 2),
	ROW("cuCtxCreate", "cuCtxCreate_v3", 11040, PROC_LEGACY, 3),
	ROW("cuCtxCreate", "cuCtxCreate_v4", 12050, PROC_LEGACY, 4),
	ROW("cuInit", "cuInit", 2000, PROC_LEGACY, 5),
	ROW("cuMemcpyHtoD", "cuMemcpyHtoD", 2000, PROC_LEGACY, 6),
	ROW("cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020, PROC_LEGACY, 7),
	ROW("cuMemcpyHtoD", "cuMemcpyHtoD_v2_ptds", 7000, PROC_PTDS, 8),
	ROW("cuStreamQuery", "cuStreamQuery", 2000, PROC_LEGACY, 9),
	ROW("cuStreamQuery", "cuStreamQuery_ptsz", 7000, PROC_PTSZ, 10),
	[10 ... PROC_COUNT - 1] = ROW("cuZ", "cuZ", 2000, PROC_LEGACY, 11),
};

const void *fake_image;
unsigned int fake_function_count = 2;

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	fake_image = image;
	*module = (CUmodule)(uintptr_t)0x77;
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
	*count = fake_function_count;
	return mod == (CUmodule)(uintptr_t)0x77 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
	for (unsigned int i = 0; i < numFunctions; i++)
		functions[i] = (CUfunction)(uintptr_t)(0x100 + i);
	return CUDA_SUCCESS;
}
