// SPDX-License-Identifier: Apache-2.0
/*
 * Launches of every form, parameters of every size up to 32 KiB, module variables, dynamic shared memory, and what the
 * driver refuses at once.
 */
#include <unistd.h>

#include "tests/cuda/prog.h"

static CUdeviceptr out;

struct mixed {
	char c;
	double d;
	short s;
	int v[3];
};

static void params_check(CUmodule module)
{
	unsigned int got[11];
	char c = -3;
	short s = -300;
	int i = 70000;
	long long l = 0x1122334455667788ll;
	float f = 12345.0f;
	double d = 54321.0;
	struct mixed m = { .c = 9, .d = 77.0, .s = 8, .v = { 1, 2, 3 } };
	void *params[] = { &out, &c, &s, &i, &l, &f, &d, &m };
	CUfunction function;

	MUST(cuModuleGetFunction(&function, module, "params"));
	MUST(cuMemsetD32(out, 0, 16));
	MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(got, out, sizeof(got)));
	CHECK(got[0] == (unsigned int)-3 && got[1] == (unsigned int)-300 && got[2] == 70000, "small parameters");
	CHECK(got[3] == 0x55667788 && got[4] == 0x11223344 && got[5] == 12345 && got[6] == 54321, "large parameters");
	CHECK(got[7] == 9 && got[8] == 77 && got[9] == 8 && got[10] == 321, "a struct");
}

static void extra_check(CUmodule module)
{
	struct {
		CUdeviceptr where;
		unsigned int value;
	} packed = { out, 4711 };
	size_t size = sizeof(packed.where) + sizeof(packed.value);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
			  CU_LAUNCH_PARAM_END };
	void *params[] = { &packed.where, &packed.value };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
				  .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY };
	CUfunction function;
	unsigned int got = 0;

	MUST(cuModuleGetFunction(&function, module, "write_at"));
	MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 4711, "packed parameters: %u", got);
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra), CUDA_ERROR_INVALID_VALUE);

	packed.value = 4712;
	MUST(cuLaunchKernelEx(&config, function, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 4712, "cuLaunchKernelEx: %u", got);
	attribute.value.priority = 0;
	config.attrs = &attribute;
	config.numAttrs = 1;
	packed.value = 4713;
	MUST(cuLaunchKernelEx(&config, function, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 4713, "cuLaunchKernelEx with a priority: %u", got);

	packed.value = 4714;
	MUST(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 4714, "cooperative launch: %u", got);
}

static void wide_check(void)
{
	static unsigned int wide[8188];
	CUmodule module;
	CUfunction function;
	unsigned int want = 0, got = 0;
	char *text = prog_ptx("wide");
	void *params[] = { &out, wide };

	MUST(cuModuleLoadData(&module, text));
	free(text);
	MUST(cuModuleGetFunction(&function, module, "wide_sum"));
	for (unsigned int i = 0; i < 8188; i++) {
		wide[i] = i * 7 + 1;
		want += wide[i] * (i + 1);
	}
	MUST(cuMemsetD32(out, 0, 1));
	MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == want, "32 KiB of parameters: %#x, not %#x", got, want);
	MUST(cuModuleUnload(module));
}

static void globals_check(CUmodule module)
{
	CUfunction function;
	CUdeviceptr counter, table;
	unsigned int value = 40, got = 0, row[4];
	size_t size = 0;
	void *params[] = { &out };

	MUST(cuModuleGetGlobal(&counter, &size, module, "counter"));
	CHECK(size == 4, "size of a variable: %zu", size);
	MUST(cuMemcpyDtoH(&got, counter, 4));
	CHECK(got == 5, "initial value: %u", got);
	MUST(cuMemcpyHtoD(counter, &value, 4));
	MUST(cuModuleGetFunction(&function, module, "globals"));
	MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 41, "a variable that was written: %u", got);
	MUST(cuModuleGetGlobal(&table, &size, module, "table"));
	CHECK(size == 16, "size of a constant table: %zu", size);
	MUST(cuMemcpyDtoH(row, table, sizeof(row)));
	CHECK(row[0] == 1 && row[3] == 1000, "a constant table");
	EXPECT(cuModuleGetGlobal(&table, &size, module, "no_such_variable"), CUDA_ERROR_NOT_FOUND);
}

static void shared_check(CUmodule module, CUdevice device)
{
	CUfunction function;
	unsigned int words = 12 * 1024 - 1, got = 0;
	int limit;
	void *params[] = { &out, &words };

	MUST(cuModuleGetFunction(&function, module, "dynamic_shared"));
	MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, words * 4, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == words * (words - 1) / 2, "48 KiB of shared memory: %u", got);
	MUST(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
	if (limit < 64 << 10)
		return;
	words = 16 * 1024;
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, words * 4, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 << 10));
	MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, words * 4, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == words * (words - 1) / 2, "64 KiB of shared memory: %u", got);
}

static void held(void *user)
{
	while (!__atomic_load_n((int *)user, __ATOMIC_ACQUIRE))
		usleep(200);
}

/* Holds @stream until *go. Where each launch is awaited (GLEAM_OFF) none can wait. */
static void hold(CUstream stream, int *go)
{
	const char *off = getenv("GLEAM_OFF");

	if (!off || (!strstr(off, "async") && !strstr(off, "all")))
		MUST(cuLaunchHostFunc(stream, held, go));
}

static void bound_set(CUfunction function, CUkernel kernel, CUdevice device, int bytes)
{
	if (kernel)
		MUST(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes, kernel,
					  device));
	else
		MUST(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
}

/*
 * A bound that holds for a launch is the one of the moment at which it is made, however long it waits in its
 * stream: libraries set it before each of their launches, now higher, now lower. More launches than a worker
 * gives to its driver at once.
 */
static void bounds_check(CUfunction function, CUkernel kernel, CUdevice device)
{
	CUstream stream;
	unsigned int high = 16 * 1024, middle = 12 * 1024 - 1, low = 8, got = 0;
	int limit, go = 0;
	void *params_high[] = { &out, &high }, *params_middle[] = { &out, &middle },
	     *params_low[] = { &out, &low };

	MUST(cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
	if (limit < 64 << 10)
		return;
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	hold(stream, &go);
	/* Under what holds without being set. */
	for (int i = 0; i < 600; i++)
		MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, middle * 4, stream, params_middle, NULL));
	for (int i = 0; i < 100; i++) {
		bound_set(function, kernel, device, 64 << 10);
		MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, high * 4, stream, params_high, NULL));
		bound_set(function, kernel, device, i % 2 ? 1 << 10 : 60 << 10);
		EXPECT(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, high * 4, stream, params_high, NULL),
		       CUDA_ERROR_INVALID_VALUE);
		MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, low * 4, stream, params_low, NULL));
	}
	bound_set(function, kernel, device, 64 << 10);
	MUST(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, high * 4, stream, params_high, NULL));
	bound_set(function, kernel, device, 0);
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	EXPECT(cuStreamSynchronize(stream), CUDA_SUCCESS);
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == high * (high - 1) / 2, "shared memory under a bound that has been lowered since: %u",
	      got);
	MUST(cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
	CHECK(limit == 0, "the bound that was set last: %d", limit);
	MUST(cuStreamDestroy(stream));
}

static void bounds_checks(CUdevice device)
{
	CUmodule module = prog_module("util");
	char *text = prog_ptx("util");
	CUlibrary library;
	CUfunction function;
	CUkernel kernel;

	MUST(cuModuleGetFunction(&function, module, "dynamic_shared"));
	bounds_check(function, NULL, device);
	MUST(cuModuleUnload(module));
	MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	free(text);
	MUST(cuLibraryGetKernel(&kernel, library, "dynamic_shared"));
	MUST(cuKernelGetFunction(&function, kernel));
	bounds_check(function, kernel, device);
	MUST(cuLibraryUnload(library));
}

/* What blocks a cluster has, x and y, by the launch's first block. */
static const char cluster_ptx[] = ".version 8.0\n"
				  ".target sm_90\n"
				  ".address_size 64\n"
				  ".visible .entry mark(.param .u64 out, .param .u32 at)\n"
				  "{\n"
				  "	.reg .pred %first;\n"
				  "	.reg .b32 %x, %y, %at;\n"
				  "	.reg .b64 %out, %byte;\n"
				  "	mov.u32 %x, %ctaid.x;\n"
				  "	mov.u32 %y, %ctaid.y;\n"
				  "	or.b32 %x, %x, %y;\n"
				  "	setp.eq.u32 %first, %x, 0;\n"
				  "	@!%first bra end;\n"
				  "	ld.param.u64 %out, [out];\n"
				  "	cvta.to.global.u64 %out, %out;\n"
				  "	ld.param.u32 %at, [at];\n"
				  "	mul.wide.u32 %byte, %at, 4;\n"
				  "	add.s64 %out, %out, %byte;\n"
				  "	mov.u32 %x, %cluster_nctaid.x;\n"
				  "	mov.u32 %y, %cluster_nctaid.y;\n"
				  "	shl.b32 %y, %y, 8;\n"
				  "	or.b32 %x, %x, %y;\n"
				  "	st.global.u32 [%out], %x;\n"
				  "end:\n"
				  "	ret;\n"
				  "}\n"
				  ".visible .entry fixed() .reqnctapercluster 2, 1, 1\n"
				  "{\n"
				  "	ret;\n"
				  "}\n";

static void cluster_set(CUfunction function, CUkernel kernel, CUdevice device, int x, int y)
{
	int values[3] = { x, y, x ? 1 : 0 };

	for (int i = 0; i < 3; i++) {
		CUfunction_attribute which = (CUfunction_attribute)(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i);

		if (kernel)
			MUST(cuKernelSetAttribute(which, values[i], kernel, device));
		else
			MUST(cuFuncSetAttribute(function, which, values[i]));
	}
}

static void clusters_check(CUfunction function, CUkernel kernel, CUdevice device)
{
	enum { TURNS = 50 }; /* under the thousand that a stream takes before a launch waits */
	CUlaunchAttribute given = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 4, 1, 1 } };
	CUlaunchConfig config = { .gridDimX = 4, .gridDimY = 4, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1,
				  .attrs = &given, .numAttrs = 1 };
	unsigned int marks[4 * TURNS], at;
	void *params[] = { &out, &at };
	CUDA_KERNEL_NODE_PARAMS p = { .func = function, .gridDimX = 4, .gridDimY = 4, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = params };
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;
	CUstream stream;
	bool right = true;
	int value, go = 0;

	MUST(cuMemsetD32(out, 0, 1024));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	config.hStream = stream;
	hold(stream, &go);
	at = 1000;
	for (int i = 0; i < 600; i++)
		MUST(cuLaunchKernel(function, 4, 4, 1, 32, 1, 1, 0, stream, params, NULL));
	for (at = 0; at < 4 * TURNS; at++) {
		cluster_set(function, kernel, device, 2, 1);
		EXPECT(cuLaunchKernel(function, 3, 1, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
		MUST(cuLaunchKernel(function, 4, 4, 1, 32, 1, 1, 0, stream, params, NULL));
		at++;
		cluster_set(function, kernel, device, 1, 4);
		MUST(cuLaunchKernel(function, 4, 4, 1, 32, 1, 1, 0, stream, params, NULL));
		at++;
		/* None, so that a launch may say what it likes. */
		cluster_set(function, kernel, device, 0, 0);
		MUST(cuLaunchKernel(function, 3, 3, 1, 32, 1, 1, 0, stream, params, NULL));
		at++;
		MUST(cuLaunchKernelEx(&config, function, params, NULL));
	}
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	EXPECT(cuStreamSynchronize(stream), CUDA_SUCCESS);
	MUST(cuMemcpyDtoH(marks, out, sizeof(marks)));
	for (unsigned int i = 0; i < 4 * TURNS; i += 4)
		right = right && marks[i] == 0x102 && marks[i + 1] == 0x401 && marks[i + 2] == 0x101 && marks[i + 3] == 0x104;
	CHECK(right, "clusters of launches that waited: %#x %#x %#x %#x", marks[0], marks[1], marks[2], marks[3]);
	MUST(cuMemcpyDtoH(marks, out + 4000, 4));
	CHECK(marks[0] == 0x101, "no cluster was set then: %#x", marks[0]);

	/* In a graph; and what is asked. */
	at = 1001;
	cluster_set(function, kernel, device, 2, 2);
	MUST(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, function));
	CHECK(value == 2, "required height: %d", value);
	config.numAttrs = 0;
	MUST(cuOccupancyMaxPotentialClusterSize(&value, function, &config));
	CHECK(value == 8, "the largest cluster: %d", value);
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(marks, out + 4004, 4));
	CHECK(marks[0] == 0x202, "a cluster in a graph: %#x", marks[0]);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	cluster_set(function, kernel, device, 0, 0);
	MUST(cuStreamDestroy(stream));
}

/*
 * Clusters that the program requires of a function: each launch has those of the moment at which it is made. Then of a kernel, which
 * reach its functions, also those that are made later.
 */
static void clusters_checks(CUdevice device)
{
	CUlibrary library;
	CUfunction function;
	CUmodule module;
	CUkernel kernel;
	int major = 0, width = 0;

	/* Not CLUSTER_LAUNCH: the software GPU knows the sizes and not the barriers, so it doesn't offer them. */
	MUST(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	if (major < 9)
		return;
	MUST(cuModuleLoadData(&module, cluster_ptx));
	MUST(cuModuleGetFunction(&function, module, "mark"));
	clusters_check(function, NULL, device);
	/* What code was compiled for stays. */
	MUST(cuModuleGetFunction(&function, module, "fixed"));
	EXPECT(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2), CUDA_SUCCESS);
	MUST(cuModuleUnload(module));
	MUST(cuLibraryLoadData(&library, cluster_ptx, NULL, NULL, 0, NULL, NULL, 0));
	MUST(cuLibraryGetKernel(&kernel, library, "mark"));
	cluster_set(NULL, kernel, device, 2, 1);
	MUST(cuKernelGetFunction(&function, kernel));
	MUST(cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, function));
	CHECK(width == 2, "required width of a kernel's function: %d", width);
	cluster_set(NULL, kernel, device, 0, 0);
	clusters_check(function, kernel, device);
	MUST(cuLibraryUnload(library));
}

static void refusals_check(CUmodule module)
{
	CUfunction function;

	EXPECT(cuModuleGetFunction(&function, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
	MUST(cuModuleGetFunction(&function, module, "nothing"));
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	EXPECT(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 32, 32, 2, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void library_check(void)
{
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;
	CUdeviceptr counter;
	unsigned int value = 99, got = 0, count = 0;
	size_t size;
	int threads = 0;
	char *text = prog_ptx("util");
	void *params[] = { &out, &value };

	MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	free(text);
	MUST(cuLibraryGetKernel(&kernel, library, "write_at"));
	EXPECT(cuLibraryGetKernel(&kernel, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	MUST(cuLibraryGetKernel(&kernel, library, "write_at"));
	/* cudart passes the kernel itself. */
	MUST(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 99, "a kernel launched as a function: %u", got);
	MUST(cuKernelGetFunction(&function, kernel));
	value = 98;
	MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&got, out, 4));
	CHECK(got == 98, "a kernel's function: %u", got);
	MUST(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
	CHECK(threads >= 256 && threads <= 1024, "most threads per block: %d", threads);
	MUST(cuLibraryGetGlobal(&counter, &size, library, "counter"));
	MUST(cuMemcpyDtoH(&got, counter, 4));
	CHECK(got == 5 && size == 4, "a library's own variable: %u", got);
	MUST(cuLibraryGetKernelCount(&count, library));
	CHECK(count == 11, "%u kernels", count);
	MUST(cuLibraryUnload(library));
}

int main(void)
{
	CUdevice device;
	CUmodule module;

	prog_context(&device);
	module = prog_module("util");
	MUST(cuMemAlloc(&out, 4096));
	params_check(module);
	extra_check(module);
	wide_check();
	globals_check(module);
	shared_check(module, device);
	bounds_checks(device);
	clusters_checks(device);
	refusals_check(module);
	library_check();
	MUST(cuModuleUnload(module));
	MUST(cuMemFree(out));
	return prog_end();
}
