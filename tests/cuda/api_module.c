// SPDX-License-Identifier: Apache-2.0
/*
 * Modules, libraries, functions and kernels: every way to load and to list them, what they are asked, occupancy, and the
 * first API's way to launch.
 */
#include "tests/cuda/prog.h"

static CUdevice device;

static unsigned int word_at(CUdeviceptr memory)
{
	unsigned int word = 0;

	MUST(cuMemcpyDtoH(&word, memory, 4));
	return word;
}

/* Writes its text where file forms of loading find it. */
static void file_write(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (!file || fwrite(text, 1, strlen(text), file) != strlen(text) || fclose(file)) {
		perror(path);
		exit(1);
	}
}

static void functions(CUmodule module, const char *text, const char *path)
{
	size_t offset = 77, size = 77;
	CUfunctionLoadingState state = (CUfunctionLoadingState)77;
	CUfunction function, *list;
	CUmodule owner = NULL, other;
	const char *name = NULL;
	unsigned int count = 0;
	int value = -1;
	bool found = false;

	MUST(cuModuleGetFunction(&function, module, "fill"));
	EXPECT(cuFuncGetName(&name, function), CUDA_SUCCESS);
	CHECK(name && !strcmp(name, "fill"), "the name %s", name);
	EXPECT(cuFuncGetModule(&owner, function), CUDA_SUCCESS);
	CHECK(owner == module, "a function of another module");
	EXPECT(cuFuncGetParamInfo(function, 1, &offset, &size), CUDA_SUCCESS);
	CHECK(offset == 8 && size == 4, "the second parameter: %zu bytes at %zu", size, offset);
	EXPECT(cuFuncGetParamInfo(function, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuFuncLoad(function), CUDA_SUCCESS);
	EXPECT(cuFuncIsLoaded(&state, function), CUDA_SUCCESS);
	CHECK(state == CU_FUNCTION_LOADING_STATE_LOADED, "state %d", (int)state);
	EXPECT(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function), CUDA_SUCCESS);
	CHECK(value >= 32 && value <= 1024, "%d threads of a block", value);
	EXPECT(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16384), CUDA_SUCCESS);
	EXPECT(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function), CUDA_SUCCESS);
	CHECK(value == 16384, "%d bytes of dynamic shared memory", value);
	EXPECT(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	EXPECT(cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE), CUDA_SUCCESS);
	EXPECT(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
	CHECK(count >= 8, "%u functions", count);
	list = calloc(count, sizeof(*list));
	EXPECT(cuModuleEnumerateFunctions(list, count, module), CUDA_SUCCESS);
	for (unsigned int i = 0; i < count; i++) {
		MUST(cuFuncGetName(&name, list[i]));
		found |= !strcmp(name, "fill");
	}
	CHECK(found, "fill is not listed");
	free(list);
	EXPECT(cuModuleGetFunction(&function, module, "nobody"), CUDA_ERROR_NOT_FOUND);

	EXPECT(cuModuleLoad(&other, path), CUDA_SUCCESS);
	EXPECT(cuModuleGetFunction(&function, other, "fill"), CUDA_SUCCESS);
	EXPECT(cuModuleUnload(other), CUDA_SUCCESS);
	EXPECT(cuModuleLoad(&other, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND);
	EXPECT(cuModuleLoadFatBinary(&other, text), CUDA_SUCCESS);
	EXPECT(cuModuleUnload(other), CUDA_SUCCESS);
	EXPECT(cuModuleLoadDataEx(&other, text, 0, NULL, NULL), CUDA_SUCCESS);
	EXPECT(cuModuleUnload(other), CUDA_SUCCESS);
}

static void libraries(const char *text, const char *path)
{
	size_t offset = 77, size = 77;
	CUlibrary library, owner = NULL, other;
	CUkernel kernel, *list;
	CUmodule module = NULL;
	CUfunction function = NULL;
	const char *name = NULL;
	unsigned int count = 0;
	CUdeviceptr variable = 0;
	void *host = NULL;
	int value = -1, threads = -1;
	bool found = false;

	MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	EXPECT(cuLibraryGetKernel(&kernel, library, "fill"), CUDA_SUCCESS);
	EXPECT(cuKernelGetName(&name, kernel), CUDA_SUCCESS);
	CHECK(name && !strcmp(name, "fill"), "the name %s", name);
	EXPECT(cuKernelGetLibrary(&owner, kernel), CUDA_SUCCESS);
	CHECK(owner == library, "a kernel of another library");
	EXPECT(cuKernelGetParamInfo(kernel, 2, &offset, &size), CUDA_SUCCESS);
	CHECK(offset == 16 && size == 8, "the third parameter: %zu bytes at %zu", size, offset);
	EXPECT(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
	EXPECT(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device), CUDA_SUCCESS);
	EXPECT(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function), CUDA_SUCCESS);
	CHECK(value == threads, "a kernel has %d threads, its function %d", value, threads);
	EXPECT(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8192, kernel, device), CUDA_SUCCESS);
	EXPECT(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, device), CUDA_SUCCESS);
	CHECK(value == 8192, "%d bytes of dynamic shared memory", value);
	EXPECT(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_SHARED, device), CUDA_SUCCESS);
	EXPECT(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
	CHECK(module != NULL, "no module");
	EXPECT(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
	list = calloc(count + 1, sizeof(*list));
	EXPECT(cuLibraryEnumerateKernels(list, count, library), CUDA_SUCCESS);
	for (unsigned int i = 0; i < count; i++)
		found |= list[i] == kernel;
	CHECK(found, "a kernel is not listed");
	free(list);
	EXPECT(cuLibraryGetKernel(&kernel, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	EXPECT(cuLibraryGetGlobal(&variable, &size, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	EXPECT(cuLibraryGetManaged(&variable, &size, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	CHECK(cuLibraryGetUnifiedFunction(&host, library, "nobody") != CUDA_SUCCESS, "a unified function that isn't there");
	EXPECT(cuLibraryUnload(library), CUDA_SUCCESS);
	EXPECT(cuLibraryLoadFromFile(&other, path, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	EXPECT(cuLibraryGetKernel(&kernel, other, "sum"), CUDA_SUCCESS);
	EXPECT(cuLibraryUnload(other), CUDA_SUCCESS);
}

static size_t shared_none(int block)
{
	(void)block;
	return 0;
}

static void occupancy(CUmodule module)
{
	CUlaunchAttribute cluster = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };
	CUlaunchConfig config = { 64, 1, 1, 128, 1, 1, 0, NULL, NULL, 0 };
	int blocks = -1, again = -1, grid = -1, block = -1, clusters = -1, size = -1, threads = 0, offered = 0;
	size_t dynamic = 0;
	CUfunction function;

	MUST(cuModuleGetFunction(&function, module, "fill"));
	MUST(cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device));
	MUST(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device));
	EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 128, 0), CUDA_SUCCESS);
	CHECK(blocks > 0 && blocks * 128 <= threads, "%d blocks of 128 threads in %d", blocks, threads);
	EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&again, function, 128, 0, 0), CUDA_SUCCESS);
	CHECK(again == blocks, "%d blocks with flags", again);
	EXPECT(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, shared_none, 0, 0), CUDA_SUCCESS);
	CHECK(grid > 0 && block > 0 && block <= 1024, "%d blocks of %d", grid, block);
	EXPECT(cuOccupancyMaxPotentialBlockSizeWithFlags(&size, &again, function, NULL, 0, 0, 0), CUDA_SUCCESS);
	CHECK(size == grid && again == block, "%d blocks of %d with flags", size, again);
	EXPECT(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, function, blocks, 128), CUDA_SUCCESS);
	EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessor(&again, function, 128, dynamic > 16384 ? 16384 : dynamic), CUDA_SUCCESS);
	CHECK(again > 0, "no block fits with %zu bytes", dynamic);
	if (offered) {
		cluster.value.clusterDim.x = 2;
		cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
		config.attrs = &cluster;
		EXPECT(cuOccupancyMaxPotentialClusterSize(&size, function, &config), CUDA_SUCCESS);
		CHECK(size >= 1 && size <= 16, "clusters of %d", size);
		config.numAttrs = 1;
		EXPECT(cuOccupancyMaxActiveClusters(&clusters, function, &config), CUDA_SUCCESS);
		CHECK(clusters > 0, "%d clusters", clusters);
	} else {
		cuOccupancyMaxPotentialClusterSize(&size, function, &config);
		cuOccupancyMaxActiveClusters(&clusters, function, &config);
		CHECK(true, "no clusters here");
	}
	EXPECT(cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, function, 128, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Parameters laid out by hand: out at 0, the value at 8, the count at 16. */
static void first_api(CUmodule module)
{
	unsigned long long count = 64;
	CUdeviceptr memory;
	CUfunction function;
	CUstream stream;

	MUST(cuModuleGetFunction(&function, module, "fill"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&memory, 256));
	MUST(cuMemsetD8(memory, 0, 256));
	EXPECT(cuFuncSetBlockShape(function, 32, 1, 1), CUDA_SUCCESS);
	EXPECT(cuFuncSetSharedSize(function, 64), CUDA_SUCCESS);
	EXPECT(cuParamSetSize(function, 24), CUDA_SUCCESS);
	EXPECT(cuParamSetv(function, 0, &memory, 8), CUDA_SUCCESS);
	EXPECT(cuParamSeti(function, 8, 4711), CUDA_SUCCESS);
	EXPECT(cuParamSetv(function, 16, &count, 8), CUDA_SUCCESS);
	EXPECT(cuLaunchGrid(function, 2, 1), CUDA_SUCCESS);
	MUST(cuCtxSynchronize());
	CHECK(word_at(memory + 252) == 4711, "cuLaunchGrid wrote %u", word_at(memory + 252));
	/* The bits of a float are the value of an integer. */
	EXPECT(cuParamSetf(function, 8, 1.0f), CUDA_SUCCESS);
	EXPECT(cuLaunchGridAsync(function, 2, 1, stream), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	CHECK(word_at(memory) == 0x3f800000, "cuLaunchGridAsync wrote %#x", word_at(memory));
	EXPECT(cuParamSeti(function, 8, 5), CUDA_SUCCESS);
	EXPECT(cuLaunch(function), CUDA_SUCCESS);
	MUST(cuCtxSynchronize());
	CHECK(word_at(memory) == 5, "cuLaunch wrote %u", word_at(memory));
	MUST(cuMemFree(memory));
	MUST(cuStreamDestroy(stream));
}

static void cooperative(CUmodule module)
{
	unsigned int value = 12;
	unsigned long long count = 64;
	CUDA_LAUNCH_PARAMS one = { 0 };
	CUdeviceptr memory;
	CUfunction function;
	CUstream stream;
	CUresult result;
	int offered = 0;

	MUST(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device));
	MUST(cuModuleGetFunction(&function, module, "fill"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&memory, 256));
	MUST(cuMemsetD8(memory, 0, 256));
	MUST(cuCtxSynchronize());

	void *params[] = { &memory, &value, &count };

	if (offered) {
		EXPECT(cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, params), CUDA_SUCCESS);
		MUST(cuStreamSynchronize(stream));
		CHECK(word_at(memory + 128) == 12, "a cooperative kernel wrote %u", word_at(memory + 128));
	}
	one.function = function;
	one.gridDimX = 2;
	one.gridDimY = one.gridDimZ = one.blockDimY = one.blockDimZ = 1;
	one.blockDimX = 32;
	one.hStream = stream;
	one.kernelParams = params;
	value = 13;
	/* Gone from newer drivers and devices: then it says so, and nothing has run. */
	result = cuLaunchCooperativeKernelMultiDevice(&one, 1, 0);
	MUST(cuStreamSynchronize(stream));
	CHECK(word_at(memory) == (result ? (offered ? 12u : 0u) : 13u), "many devices: %d, and %u", (int)result, word_at(memory));
	MUST(cuMemFree(memory));
	MUST(cuStreamDestroy(stream));
}

int main(void)
{
	char *text, path[64];
	CUmodule module;

	prog_context(&device);
	text = prog_ptx("util");
	snprintf(path, sizeof(path), "/tmp/gleam-api-module-%d.ptx", (int)getpid());
	file_write(path, text);
	MUST(cuModuleLoadData(&module, text));
	functions(module, text, path);
	libraries(text, path);
	occupancy(module);
	first_api(module);
	cooperative(module);
	unlink(path);
	EXPECT(cuModuleUnload(module), CUDA_SUCCESS);
	free(text);
	return prog_end();
}
