// SPDX-License-Identifier: Apache-2.0
/*
 * Modules, libraries and launches: from an image to numbers, and everything that a driver refuses on the way.
 */
#include "tests/unit/soft_driver.h"

#include <unistd.h>

#include "broker/lib/fatbin.h"

#define COUNT 10000

static const char kernels[] = ".version 8.0\n"
			      ".target sm_75\n"
			      ".address_size 64\n"
			      ".visible .global .align 4 .u32 counter = 5;\n"
			      ".visible .const .align 4 .b8 table[16] = {1, 2, 3, 4};\n"
			      ".visible .entry store(.param .u64 where, .param .u32 what)\n"
			      "{\n"
			      "	.reg .b64 %rd<2>;\n"
			      "	.reg .b32 %r<2>;\n"
			      "	ld.param.u64 %rd1, [where];\n"
			      "	ld.param.u32 %r1, [what];\n"
			      "	st.global.u32 [%rd1], %r1;\n"
			      "	ret;\n"
			      "}\n"
			      ".visible .entry trapper()\n"
			      "{\n"
			      "	trap;\n"
			      "}\n"
			      ".visible .entry spin(.param .u64 flag)\n"
			      "{\n"
			      "	.reg .b64 %rd<2>;\n"
			      "	.reg .b32 %r<2>;\n"
			      "	.reg .pred %p<2>;\n"
			      "	ld.param.u64 %rd1, [flag];\n"
			      "again:\n"
			      "	ld.volatile.global.u32 %r1, [%rd1];\n"
			      "	setp.eq.u32 %p1, %r1, 0;\n"
			      "	@%p1 bra again;\n"
			      "	ret;\n"
			      "}\n"
			      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);\n"
			      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
			      ".extern .func free(.param .b64 p);\n"
			      ".global .align 1 .b8 text[10] = {118, 97, 108, 117, 101, 32, 37, 100, 10, 0};\n"
			      ".visible .entry talk(.param .u32 what)\n"
			      "{\n"
			      "	.local .align 8 .b8 args[8];\n"
			      "	.reg .b64 %rd<5>;\n"
			      "	.reg .b32 %r<4>;\n"
			      "	ld.param.u32 %r1, [what];\n"
			      "	{ .param .b64 p0; .param .b64 r0;\n"
			      "	st.param.b64 [p0], 64;\n"
			      "	call.uni (r0), malloc, (p0);\n"
			      "	ld.param.b64 %rd3, [r0]; }\n"
			      "	st.u32 [%rd3+60], %r1;\n"
			      "	ld.u32 %r3, [%rd3+60];\n"
			      "	mov.u64 %rd1, args;\n"
			      "	cvta.local.u64 %rd2, %rd1;\n"
			      "	st.local.u32 [%rd1], %r3;\n"
			      "	mov.u64 %rd4, text;\n"
			      "	cvta.global.u64 %rd4, %rd4;\n"
			      "	{ .param .b64 p0; .param .b64 p1; .param .b32 r0;\n"
			      "	st.param.b64 [p0], %rd4; st.param.b64 [p1], %rd2;\n"
			      "	call.uni (r0), vprintf, (p0, p1);\n"
			      "	ld.param.b32 %r2, [r0]; }\n"
			      "	{ .param .b64 p0; st.param.b64 [p0], %rd3; call.uni free, (p0); }\n"
			      "	ret;\n"
			      "}\n"
			      ".visible .entry count(.param .u64 unused)\n"
			      ".maxntid 64, 1, 1\n"
			      "{\n"
			      "	.reg .b32 %r<2>;\n"
			      "	.reg .b64 %rd<2>;\n"
			      "	mov.u64 %rd1, counter;\n"
			      "	atom.global.add.u32 %r1, [%rd1], 1;\n"
			      "	ret;\n"
			      "}\n";

static CUresult launch(CUfunction function, unsigned int blocks, unsigned int threads, CUstream stream, void **params)
{
	return CU(cuLaunchKernel)(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

static void vector_add(CUfunction function)
{
	static float a[COUNT], b[COUNT], c[COUNT];
	CUdeviceptr pa, pb, pc;
	int count = COUNT;
	void *params[] = { &pa, &pb, &pc, &count };

	for (int i = 0; i < COUNT; i++) {
		a[i] = (float)i;
		b[i] = 0.5f * (float)i;
		c[i] = -1;
	}
	assert_ok(CU(cuMemAlloc_v2)(&pa, sizeof(a)));
	assert_ok(CU(cuMemAlloc_v2)(&pb, sizeof(b)));
	assert_ok(CU(cuMemAlloc_v2)(&pc, sizeof(c)));
	assert_ok(CU(cuMemcpyHtoD_v2)(pa, a, sizeof(a)));
	assert_ok(CU(cuMemcpyHtoD_v2)(pb, b, sizeof(b)));
	assert_ok(launch(function, (COUNT + 255) / 256, 256, NULL, params));
	assert_ok(CU(cuMemcpyDtoH_v2)(c, pc, sizeof(c)));
	for (int i = 0; i < COUNT; i++)
		assert_true(c[i] == 1.5f * (float)i);
	assert_ok(CU(cuMemFree_v2)(pa));
	assert_ok(CU(cuMemFree_v2)(pb));
	assert_ok(CU(cuMemFree_v2)(pc));
}

static void test_vector_add(void **state)
{
	CUmodule module;
	char *text;

	driver_start(0);
	text = driver_file("tests/cuda/kernels/vecadd.ptx", NULL);
	module = driver_module(text);
	vector_add(driver_function(module, "vecadd"));
	assert_ok(CU(cuModuleUnload)(module));
	assert_int_equal(CU(cuModuleUnload)(module), CUDA_ERROR_INVALID_HANDLE);
	free(text);
}

/* A container around the text, the entry compressed or not. */
static size_t container_make(uint8_t *out, const char *text, size_t size)
{
	size_t stored = (size + 1 + 7) & ~(size_t)7;
	const uint32_t header[4] = { FATBIN_MAGIC, 16u << 16 | 1, (uint32_t)(64 + stored), 0 };
	uint8_t *entry = out + 16;

	memcpy(out, header, sizeof(header));
	memset(entry, 0, 64 + stored);
	entry[0] = FATBIN_KIND_PTX;
	entry[2] = entry[3] = 1;
	entry[4] = 64;
	memcpy(entry + 8, &stored, 8);
	entry[28] = 75;
	entry[40] = 0x11;
	memcpy(entry + 64, text, size);
	return 16 + 64 + stored;
}

static void test_images_of_every_form(void **state)
{
	static const uint8_t cubin[64 + 64] = { 0x7f, 'E', 'L', 'F', 2, 1, 1, 0x41, 8, [18] = 190 };
	struct {
		uint32_t magic, version;
		const void *data, *extra;
	} wrapper = { FATBIN_WRAPPER_MAGIC, 1, NULL, NULL };
	char path[] = "/tmp/test_soft_launch.XXXXXX";
	uint8_t *container;
	CUlibrary library;
	CUmodule module;
	CUkernel kernel;
	size_t size;
	char *text;
	int fd;

	driver_start(0);
	text = driver_file("tests/cuda/kernels/vecadd.ptx", &size);
	container = malloc(size + 256);
	assert_non_null(container);
	size = container_make(container, text, size);
	wrapper.data = container;
	assert_ok(CU(cuModuleLoadData)(&module, container));
	vector_add(driver_function(module, "vecadd"));
	assert_ok(CU(cuModuleUnload)(module));
	assert_ok(CU(cuModuleLoadFatBinary)(&module, &wrapper));
	assert_ok(CU(cuModuleUnload)(module));
	assert_ok(CU(cuLibraryLoadData)(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
	assert_ok(CU(cuLibraryGetKernel)(&kernel, library, "vecadd"));
	/* A kernel is taken wherever a function is. */
	vector_add((CUfunction)kernel);
	assert_ok(CU(cuLibraryUnload)(library));
	assert_int_equal(CU(cuLibraryGetKernel)(&kernel, library, "vecadd"), CUDA_ERROR_INVALID_HANDLE);

	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, container, size), size);
	close(fd);
	assert_ok(CU(cuModuleLoad)(&module, path));
	assert_ok(CU(cuModuleUnload)(module));
	assert_ok(CU(cuLibraryLoadFromFile)(&library, path, NULL, NULL, 0, NULL, NULL, 0));
	assert_ok(CU(cuLibraryUnload)(library));
	unlink(path);
	assert_int_equal(CU(cuModuleLoad)(&module, path), CUDA_ERROR_FILE_NOT_FOUND);

	container[16 + 28] = 120; /* PTX for a later device */
	assert_int_equal(CU(cuModuleLoadData)(&module, container), CUDA_ERROR_NO_BINARY_FOR_GPU);
	container[16 + 4] = 63; /* a header that is too short */
	assert_int_equal(CU(cuModuleLoadData)(&module, container), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(CU(cuModuleLoadData)(&module, cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_int_equal(CU(cuModuleLoadData)(&module, "garbage"), CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(CU(cuModuleLoadData)(&module, NULL), CUDA_ERROR_INVALID_VALUE);
	free(container);
	free(text);
}

static void test_bad_ptx_is_explained(void **state)
{
	char error[512] = "x", info[64] = "x";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
				   CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME };
	void *values[] = { error, (void *)sizeof(error), info, (void *)sizeof(info), NULL };
	CUmodule module;

	driver_start(0);
	assert_int_equal(CU(cuModuleLoadDataEx)(&module, ".version 8.0\n.target sm_75\n.address_size 64\nnonsense;\n", 5,
						options, values),
			 CUDA_ERROR_INVALID_PTX);
	assert_non_null(strstr(error, "line 4"));
	assert_int_equal((size_t)(uintptr_t)values[1], strlen(error));
	assert_int_equal((size_t)(uintptr_t)values[3], 0);
	assert_int_equal(info[0], 0);
	assert_non_null(values[4]);
	assert_int_equal(CU(cuModuleLoadData)(&module, ".version 99.0\n.target sm_75\n.address_size 64\n"),
			 CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	options[0] = 1000;
	assert_int_equal(CU(cuModuleLoadDataEx)(&module, kernels, 5, options, values), CUDA_ERROR_INVALID_VALUE);
}

static void test_what_a_module_tells(void **state)
{
	CUfunction functions[8], function;
	size_t offset, size;
	unsigned int count;
	const char *name;
	CUdeviceptr variable;
	CUmodule module, owner;
	uint32_t value;
	uint8_t table[4];
	int attribute;

	driver_start(0);
	module = driver_module(kernels);
	assert_ok(CU(cuModuleGetFunctionCount)(&count, module));
	assert_int_equal(count, 5);
	assert_ok(CU(cuModuleEnumerateFunctions)(functions, 8, module));
	assert_ok(CU(cuFuncGetName)(&name, functions[0]));
	assert_string_equal(name, "store");
	assert_ok(CU(cuFuncGetModule)(&owner, functions[0]));
	assert_ptr_equal(owner, module);
	assert_ok(CU(cuFuncGetParamInfo)(functions[0], 1, &offset, &size));
	assert_int_equal(offset, 8);
	assert_int_equal(size, 4);
	assert_int_equal(CU(cuFuncGetParamInfo)(functions[0], 2, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuModuleGetFunction)(&function, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	assert_ok(CU(cuModuleGetGlobal_v2)(&variable, &size, module, "counter"));
	assert_int_equal(size, 4);
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, variable, 4));
	assert_int_equal(value, 5);
	assert_ok(CU(cuModuleGetGlobal_v2)(&variable, &size, module, "table"));
	assert_int_equal(size, 16);
	assert_ok(CU(cuMemcpyDtoH_v2)(table, variable, 4));
	assert_int_equal(table[3], 4);
	assert_int_equal(CU(cuModuleGetGlobal_v2)(&variable, &size, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	function = driver_function(module, "count");
	assert_ok(CU(cuFuncGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	assert_int_equal(attribute, 64);
	assert_ok(CU(cuFuncGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
	assert_int_equal(attribute, 49152);
	for (int i = 0; i < CU_FUNC_ATTRIBUTE_MAX; i++)
		assert_ok(CU(cuFuncGetAttribute)(&attribute, i, function));
	assert_int_equal(CU(cuFuncGetAttribute)(&attribute, 99, function), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuModuleUnload)(module));
	assert_int_equal(CU(cuFuncGetName)(&name, functions[0]), CUDA_ERROR_INVALID_HANDLE);
}

static void test_limits_of_a_launch(void **state)
{
	CUfunction function, bounded;
	CUdeviceptr memory;
	CUmodule module;
	uint32_t what = 0x12345678, value;
	void *params[] = { &memory, &what };
	struct {
		CUdeviceptr where;
		uint32_t what;
	} block;
	size_t size = 12;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
	CUstream stale;

	driver_start(0);
	module = driver_module(kernels);
	function = driver_function(module, "store");
	bounded = driver_function(module, "count");
	assert_ok(CU(cuMemAlloc_v2)(&memory, 4));
	assert_ok(launch(function, 1, 1, NULL, params));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
	assert_int_equal(value, what);
	block.where = memory;
	block.what = 77;
	assert_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
	assert_int_equal(value, 77);
	size = 8;
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(function, 1, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(function, 0, 1, NULL, params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(function, 1, 1025, NULL, params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 65536, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 65, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 32, 2, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(bounded, 1, 65, NULL, params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 49153, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448));
	assert_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 232448, NULL, params, NULL));
	assert_int_equal(CU(cuFuncSetAttribute)(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch((CUfunction)module, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(launch(NULL, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuStreamCreate)(&stale, 0));
	assert_ok(CU(cuStreamDestroy_v2)(stale));
	assert_int_equal(launch(function, 1, 1, stale, params), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(CU(cuMemFree_v2)(memory));
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_launch_attributes(void **state)
{
	CUlaunchAttribute attributes[3] = { { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY },
					    { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 1, 1, 1 } },
					    { .id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT } };
	CUlaunchConfig config = { 4, 1, 1, 32, 1, 1, 0, NULL, attributes, 3 };
	CUdeviceptr variable, unused = 0;
	void *params[] = { &unused };
	CUfunction function;
	CUmodule module;
	CUevent event;
	uint32_t value;

	driver_start(0);
	module = driver_module(kernels);
	function = driver_function(module, "count");
	assert_ok(CU(cuEventCreate)(&event, 0));
	attributes[2].value.launchCompletionEvent.event = event;
	assert_ok(CU(cuLaunchKernelEx)(&config, function, params, NULL));
	assert_ok(CU(cuEventSynchronize)(event));
	assert_ok(CU(cuModuleGetGlobal_v2)(&variable, NULL, module, "counter"));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, variable, 4));
	assert_int_equal(value, 5 + 4 * 32);
	attributes[1].value.clusterDim.x = 3; /* does not divide the grid */
	assert_int_equal(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[1].id = 15;
	assert_int_equal(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_INVALID_VALUE);
	attributes[1].id = 200;
	assert_int_equal(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_INVALID_VALUE);
	config.attrs = NULL;
	assert_int_equal(CU(cuLaunchKernelEx)(&config, function, params, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuLaunchCooperativeKernel)(function, 2, 1, 1, 32, 1, 1, 0, NULL, params));
	assert_int_equal(CU(cuLaunchCooperativeKernel)(function, 1000000, 1, 1, 32, 1, 1, 0, NULL, params),
			 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_launches_are_asynchronous_and_concurrent(void **state)
{
	CUstream first, second;
	volatile uint32_t *flag;
	CUdeviceptr address, memory;
	uint32_t what = 9, value = 0;
	void *spin_params[] = { &address }, *store_params[] = { &memory, &what };
	CUmodule module;

	driver_start(0);
	module = driver_module(kernels);
	assert_ok(CU(cuMemHostAlloc)((void **)&flag, 64, 0));
	*flag = 0;
	address = (CUdeviceptr)(uintptr_t)flag;
	assert_ok(CU(cuMemAlloc_v2)(&memory, 4));
	assert_ok(CU(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
	assert_ok(launch(driver_function(module, "spin"), 1, 1, first, spin_params));
	assert_ok(launch(driver_function(module, "store"), 1, 1, second, store_params));
	assert_ok(CU(cuStreamSynchronize)(second));
	assert_int_equal(CU(cuStreamQuery)(first), CUDA_ERROR_NOT_READY);
	assert_ok(CU(cuMemcpyDtoHAsync_v2)(&value, memory, 4, second));
	assert_int_equal(value, 9);
	/* Memory that nobody's kernel uses can go and come while one runs. */
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	assert_ok(CU(cuStreamSynchronize)(first));
	assert_ok(CU(cuStreamDestroy_v2)(first));
	assert_ok(CU(cuStreamDestroy_v2)(second));
	assert_ok(CU(cuMemFree_v2)(memory));
	assert_ok(CU(cuMemFreeHost)((void *)(uintptr_t)flag));
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_memory_leaves_beside_a_running_kernel(void **state)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	const CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const size_t piece = (size_t)2 << 20;
	CUmemGenericAllocationHandle first, second;
	volatile uint32_t *flag;
	CUdeviceptr range, address;
	void *params[] = { &address };
	CUstream stream;
	CUmodule module;
	uint32_t value;

	driver_start(0);
	module = driver_module(kernels);
	assert_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuMemHostAlloc)((void **)&flag, 64, 0));
	*flag = 0;
	address = (CUdeviceptr)(uintptr_t)flag;
	assert_ok(CU(cuMemAddressReserve)(&range, 4 * piece, 0, 0, 0));
	assert_ok(CU(cuMemCreate)(&first, piece, &prop, 0));
	assert_ok(CU(cuMemMap)(range, piece, 0, first, 0));
	assert_ok(CU(cuMemSetAccess)(range, piece, &access, 1));
	assert_ok(CU(cuMemsetD32_v2)(range, 1, 4));
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(launch(driver_function(module, "spin"), 1, 1, stream, params));
	while (CU(cuStreamQuery)(stream) != CUDA_ERROR_NOT_READY)
		;
	/* None of this waits for the kernel, and other memory may come to the same place at once. */
	assert_ok(CU(cuMemUnmap)(range, piece));
	assert_ok(CU(cuMemRelease)(first));
	assert_ok(CU(cuMemCreate)(&second, piece, &prop, 0));
	assert_ok(CU(cuMemMap)(range, piece, 0, second, 0));
	assert_ok(CU(cuMemSetAccess)(range, piece, &access, 1));
	assert_int_equal(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	assert_ok(CU(cuStreamSynchronize)(stream));
	/* What was put off has not touched the new mapping. */
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, range, 4));
	assert_int_equal(value, 0);
	assert_ok(CU(cuMemsetD32_v2)(range, 1, 4));
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(CU(cuMemUnmap)(range, piece));
	assert_ok(CU(cuMemRelease)(second));
	assert_ok(CU(cuMemAddressFree)(range, 4 * piece));
	assert_ok(CU(cuMemFreeHost)((void *)(uintptr_t)flag));
	assert_ok(CU(cuStreamDestroy_v2)(stream));
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_kernels_print_and_allocate(void **state)
{
	char path[] = "/tmp/test_soft_launch.out.XXXXXX";
	uint32_t what = 42;
	void *params[] = { &what };
	CUmodule module;
	char *text;
	int out, fd;

	driver_start(0);
	module = driver_module(kernels);
	fflush(stdout);
	out = dup(1);
	fd = mkstemp(path);
	assert_true(out >= 0 && fd >= 0);
	dup2(fd, 1);
	assert_ok(launch(driver_function(module, "talk"), 1, 2, NULL, params));
	assert_ok(CU(cuCtxSynchronize)());
	dup2(out, 1);
	close(out);
	close(fd);
	text = driver_file(path, NULL);
	assert_string_equal(text, "value 42\nvalue 42\n");
	free(text);
	unlink(path);
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_a_spinning_kernel_ends_with_its_context(void **state)
{
	CUcontext context;
	volatile uint32_t *flag;
	CUdeviceptr address;
	void *params[] = { &address };
	CUmodule module;

	driver_start(0);
	assert_ok(CU(cuMemHostAlloc)((void **)&flag, 64, 0));
	*flag = 0;
	address = (CUdeviceptr)(uintptr_t)flag;
	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	module = driver_module(kernels);
	assert_ok(launch(driver_function(module, "spin"), 1, 32, NULL, params));
	assert_ok(CU(cuCtxDestroy_v2)(context));
	assert_ok(CU(cuMemFreeHost)((void *)(uintptr_t)flag));
}

static char log_path[] = "/tmp/test_soft_launch.log.XXXXXX";

static void test_faults_stick_and_are_explained(void **state)
{
	CUdeviceptr nowhere = 0x123450, memory, odd;
	uint32_t what = 1;
	void *params[] = { &nowhere, &what }, *odd_params[] = { &odd, &what };
	CUcontext context;
	CUmodule module;
	CUevent event;
	char *log;

	/* Each fault needs a context of its own: it never works again. */
	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	module = driver_module(kernels);
	assert_ok(CU(cuEventCreate)(&event, 0));
	assert_ok(launch(driver_function(module, "store"), 1, 1, NULL, params));
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(CU(cuMemAlloc_v2)(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(CU(cuEventQuery)(event), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_int_equal(CU(cuStreamQuery)(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_ok(CU(cuCtxDestroy_v2)(context));

	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	module = driver_module(kernels);
	assert_ok(CU(cuMemAlloc_v2)(&memory, 8));
	odd = memory + 2;
	assert_ok(launch(driver_function(module, "store"), 1, 1, NULL, odd_params));
	assert_int_equal(CU(cuStreamSynchronize)(NULL), CUDA_ERROR_MISALIGNED_ADDRESS);
	assert_ok(CU(cuCtxDestroy_v2)(context));

	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	module = driver_module(kernels);
	assert_ok(launch(driver_function(module, "trapper"), 1, 1, NULL, NULL));
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_LAUNCH_FAILED);
	assert_ok(CU(cuCtxDestroy_v2)(context));

	/* A freed address, exactly beyond an allocation, and another device's memory. */
	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	module = driver_module(kernels);
	assert_ok(CU(cuMemAlloc_v2)(&memory, 64));
	nowhere = memory + 64;
	assert_ok(launch(driver_function(module, "store"), 1, 1, NULL, params));
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_ok(CU(cuCtxDestroy_v2)(context));

	log = driver_file(log_path, NULL);
	assert_non_null(strstr(log, "kernel store"));
	assert_non_null(strstr(log, "0x123450"));
	assert_non_null(strstr(log, "st.global.u32"));
	free(log);
}

static void test_peer_memory_is_closed_until_opened(void **state)
{
	CUcontext first, second;
	CUdeviceptr memory;
	uint32_t what = 3, value;
	void *params[] = { &memory, &what };
	CUmodule module;

	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuCtxCreate_v2)(&second, 0, 1));
	assert_ok(CU(cuMemAlloc_v2)(&memory, 4));
	assert_ok(CU(cuCtxCreate_v2)(&first, 0, 0));
	module = driver_module(kernels);
	assert_ok(CU(cuCtxEnablePeerAccess)(second, 0));
	assert_ok(launch(driver_function(module, "store"), 1, 1, NULL, params));
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
	assert_int_equal(value, 3);
	assert_ok(CU(cuCtxDisablePeerAccess)(second));
	assert_ok(launch(driver_function(module, "store"), 1, 1, NULL, params));
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
	assert_ok(CU(cuCtxDestroy_v2)(first));
	assert_ok(CU(cuCtxDestroy_v2)(second));
}

static void test_libraries_serve_every_context(void **state)
{
	CUcontext first, second;
	CUdeviceptr one, two;
	CUlibrary library, owner;
	CUkernel kernel, kernels_found[8];
	CUfunction function;
	CUmodule module;
	unsigned int count;
	uint64_t unused = 0;
	void *params[] = { &unused };
	uint32_t value;
	size_t size;
	int attribute;

	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuLibraryLoadData)(&library, kernels, NULL, NULL, 0, NULL, NULL, 0));
	assert_ok(CU(cuLibraryGetKernelCount)(&count, library));
	assert_int_equal(count, 5);
	assert_ok(CU(cuLibraryEnumerateKernels)(kernels_found, 8, library));
	assert_ok(CU(cuLibraryGetKernel)(&kernel, library, "count"));
	assert_ptr_equal(kernel, kernels_found[4]);
	assert_ok(CU(cuKernelGetLibrary)(&owner, kernel));
	assert_ptr_equal(owner, library);
	assert_ok(CU(cuKernelSetAttribute)(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, kernel, 1));
	assert_ok(CU(cuKernelGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 0));
	assert_int_equal(attribute, 49152);
	assert_ok(CU(cuKernelGetAttribute)(&attribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, 1));
	assert_int_equal(attribute, 100000);

	assert_ok(CU(cuCtxCreate_v2)(&first, 0, 0));
	assert_ok(launch((CUfunction)kernel, 1, 32, NULL, params));
	assert_ok(CU(cuLibraryGetGlobal)(&one, &size, library, "counter"));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, one, 4));
	assert_int_equal(value, 37);
	assert_ok(CU(cuLibraryGetModule)(&module, library));
	assert_int_equal(CU(cuModuleUnload)(module), CUDA_ERROR_NOT_PERMITTED);
	assert_ok(CU(cuKernelGetFunction)(&function, kernel));
	assert_ok(CU(cuCtxCreate_v2)(&second, 0, 1));
	assert_ok(CU(cuLibraryGetGlobal)(&two, &size, library, "counter"));
	assert_int_not_equal(one, two);
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, two, 4));
	assert_int_equal(value, 5);
	/* A function belongs to its context. */
	assert_int_equal(launch(function, 1, 32, NULL, params), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuCtxDestroy_v2)(first));
	assert_ok(CU(cuLibraryUnload)(library));
	assert_ok(CU(cuCtxDestroy_v2)(second));
}

static void test_linking(void **state)
{
	static const char caller[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
				     ".extern .func (.param .b32 r) twice(.param .b32 x);\n"
				     ".visible .entry main_kernel(.param .u64 where)\n{\n"
				     "	.reg .b64 %rd<2>;\n	.reg .b32 %r<2>;\n	ld.param.u64 %rd1, [where];\n"
				     "	{ .param .b32 x; .param .b32 r;\n	st.param.b32 [x], 21;\n"
				     "	call.uni (r), twice, (x);\n	ld.param.b32 %r1, [r]; }\n"
				     "	st.global.u32 [%rd1], %r1;\n	ret;\n}\n";
	static const char callee[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
				     ".visible .func (.param .b32 r) twice(.param .b32 x)\n{\n"
				     "	.reg .b32 %r<2>;\n	ld.param.b32 %r1, [x];\n	add.u32 %r1, %r1, %r1;\n"
				     "	st.param.b32 [r], %r1;\n	ret;\n}\n";
	char error[512] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { error, (void *)sizeof(error) };
	CUdeviceptr memory;
	void *link, *image, *params[] = { &memory };
	CUmodule module;
	uint32_t value;
	size_t size;

	driver_start(0);
	assert_ok(CU(cuLinkCreate_v2)(2, options, values, &link));
	assert_ok(CU(cuLinkAddData_v2)(link, 1, (void *)(uintptr_t)caller, sizeof(caller), "caller", 0, NULL, NULL));
	assert_int_equal(CU(cuLinkComplete)(link, &image, &size), CUDA_ERROR_INVALID_PTX);
	assert_non_null(strstr(error, "twice"));
	assert_ok(CU(cuLinkAddData_v2)(link, 1, (void *)(uintptr_t)callee, sizeof(callee) - 1, "callee", 0, NULL, NULL));
	assert_int_equal(CU(cuLinkAddData_v2)(link, 0, (void *)(uintptr_t)callee, 8, "cubin", 0, NULL, NULL),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
	assert_ok(CU(cuLinkComplete)(link, &image, &size));
	assert_ok(CU(cuModuleLoadData)(&module, image));
	assert_ok(CU(cuLinkDestroy)(link));
	assert_int_equal(CU(cuLinkDestroy)(link), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuMemAlloc_v2)(&memory, 4));
	assert_ok(launch(driver_function(module, "main_kernel"), 1, 1, NULL, params));
	assert_ok(CU(cuMemcpyDtoH_v2)(&value, memory, 4));
	assert_int_equal(value, 42);
	assert_ok(CU(cuMemFree_v2)(memory));
	assert_ok(CU(cuModuleUnload)(module));
}

static void test_occupancy(void **state)
{
	CUfunction function;
	CUmodule module;
	size_t bytes;
	int blocks, grid, block;

	driver_start(0);
	module = driver_module(kernels);
	function = driver_function(module, "store");
	assert_ok(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 1024, 0));
	assert_int_equal(blocks, 2);
	assert_ok(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 32, 0));
	assert_int_equal(blocks, 32);
	assert_ok(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 128, 100000));
	assert_int_equal(blocks, 2);
	assert_int_equal(CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(&blocks, function, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuOccupancyMaxPotentialBlockSize)(&grid, &block, function, NULL, 0, 0));
	assert_int_equal(block, 1024);
	assert_int_equal(grid, 264);
	assert_ok(CU(cuOccupancyAvailableDynamicSMemPerBlock)(&bytes, function, 2, 128));
	assert_int_equal(bytes, 233472 / 2 - 1024);
	assert_ok(CU(cuModuleUnload)(module));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vector_add),
		cmocka_unit_test(test_images_of_every_form),
		cmocka_unit_test(test_bad_ptx_is_explained),
		cmocka_unit_test(test_what_a_module_tells),
		cmocka_unit_test(test_limits_of_a_launch),
		cmocka_unit_test(test_launch_attributes),
		cmocka_unit_test(test_launches_are_asynchronous_and_concurrent),
		cmocka_unit_test(test_memory_leaves_beside_a_running_kernel),
		cmocka_unit_test(test_kernels_print_and_allocate),
		cmocka_unit_test(test_a_spinning_kernel_ends_with_its_context),
		cmocka_unit_test(test_faults_stick_and_are_explained),
		cmocka_unit_test(test_peer_memory_is_closed_until_opened),
		cmocka_unit_test(test_libraries_serve_every_context),
		cmocka_unit_test(test_linking),
		cmocka_unit_test(test_occupancy),
	};
	int fd = mkstemp(log_path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	setenv("GLEAM_SOFTGPU_DEVICES", "2", 1);
	setenv("GLEAM_SOFTGPU_LOG", log_path, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(log_path);
	return failed;
}
