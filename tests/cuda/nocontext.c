// SPDX-License-Identifier: Apache-2.0
/*
 * Calls about an object that knows its context, in a thread that has none: PyTorch's pinning thread asks events like that.
 * nocontext --list prints what each gives.
 */
#include <pthread.h>

#include "tests/cuda/prog.h"

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUfunction function;
static CUstream stream;
static CUevent event, later;
static CUdeviceptr memory;
static void *host;
static CUgraph graph;
static CUgraphExec exec;
static CUmemoryPool pool;
static bool list;

/* Whether another context is current, instead of none. */
static bool other;

static void code(CUresult got, int want, int want_other, const char *what)
{
	int expected = other ? want_other : want;

	if (list)
		printf("%-28s %s %d\n", what, other ? "other" : "none", (int)got);
	CHECK((int)got == expected, "%s %s gave %d, not %d", what, other ? "with another context" : "without a context", (int)got,
	      expected);
}

static void nothing(void *arg)
{
}

static void stream_calls(void)
{
	unsigned flags;
	int priority;
	CUcontext told = NULL;
	CUstreamCaptureStatus status;
	unsigned long long id;
	int n = 16;
	void *args[] = { &memory, &memory, &memory, &n };
	CUdeviceptr at = 0;

	code(cuStreamQuery(stream), 0, 0, "cuStreamQuery");
	code(cuStreamSynchronize(stream), 0, 0, "cuStreamSynchronize");
	code(cuStreamGetFlags(stream, &flags), 0, 0, "cuStreamGetFlags");
	code(cuStreamGetPriority(stream, &priority), 0, 0, "cuStreamGetPriority");
	code(cuStreamGetCtx(stream, &told), 0, 0, "cuStreamGetCtx");
	code(cuStreamGetId(stream, &id), 0, 0, "cuStreamGetId");
	code(cuStreamIsCapturing(stream, &status), 0, 0, "cuStreamIsCapturing");
	code(cuStreamWaitEvent(stream, event, 0), 0, 0, "cuStreamWaitEvent");
	code(cuLaunchHostFunc(stream, nothing, NULL), 0, 0, "cuLaunchHostFunc");
	code(cuLaunchKernel(function, 1, 1, 1, 16, 1, 1, 0, stream, args, NULL), 0, 0, "cuLaunchKernel");
	code(cuMemcpyHtoDAsync(memory, host, 64, stream), 0, 0, "cuMemcpyHtoDAsync");
	code(cuMemcpyDtoHAsync(host, memory, 64, stream), 0, 0, "cuMemcpyDtoHAsync");
	code(cuMemcpyAsync(memory, memory + 64, 64, stream), 0, 0, "cuMemcpyAsync");
	code(cuMemsetD8Async(memory, 1, 64, stream), 0, 0, "cuMemsetD8Async");
	code(cuMemAllocAsync(&at, 64, stream), 0, 0, "cuMemAllocAsync");
	if (at)
		code(cuMemFreeAsync(at, stream), 0, 0, "cuMemFreeAsync");
	at = 0;
	code(cuMemAllocFromPoolAsync(&at, 64, pool, stream), 0, 0, "cuMemAllocFromPoolAsync");
	if (at)
		code(cuMemFree(at), 0, 0, "cuMemFree of a pool's");
	code(cuGraphLaunch(exec, stream), 0, 0, "cuGraphLaunch");
	code(cuStreamSynchronize(stream), 0, 0, "cuStreamSynchronize");
	code(cuEventRecord(event, stream), 0, 0, "cuEventRecord");
}

static void other_calls(void)
{
	CUdeviceptr at = 0;
	CUfunction f;
	CUevent fresh = NULL;
	CUgraph g = NULL;
	CUgraphExec x = NULL;
	unsigned int type;
	size_t size;
	float ms;
	int value;

	code(cuEventSynchronize(event), 0, 0, "cuEventSynchronize");
	code(cuEventQuery(event), 0, 0, "cuEventQuery");
	code(cuEventElapsedTime(&ms, event, later), 0, 0, "cuEventElapsedTime");
	code(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function), 0, 0, "cuFuncGetAttribute");
	code(cuFuncSetCacheConfig(function, CU_FUNC_CACHE_PREFER_L1), 0, 0, "cuFuncSetCacheConfig");
	code(cuModuleGetFunction(&f, module, "vecadd"), 0, 0, "cuModuleGetFunction");
	code(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), 0, 0, "cuPointerGetAttribute");
	code(cuMemGetAddressRange_v2(&at, &size, memory), 201, 0, "cuMemGetAddressRange");
	code(cuMemHostGetDevicePointer_v2(&at, host, 0), 201, 0, "cuMemHostGetDevicePointer");
	code(cuMemcpyHtoD(memory, host, 64), 201, 0, "cuMemcpyHtoD");
	code(cuMemcpyDtoH(host, memory, 64), 201, 0, "cuMemcpyDtoH");
	code(cuMemcpyDtoD(memory, memory + 64, 64), 201, 0, "cuMemcpyDtoD");
	code(cuMemsetD8(memory, 1, 64), 201, 0, "cuMemsetD8");
	code(cuGraphCreate(&g, 0), 0, 0, "cuGraphCreate");
	code(cuGraphInstantiateWithFlags(&x, graph, 0), 201, 0, "cuGraphInstantiate");
	if (x)
		code(cuGraphExecDestroy(x), 0, 0, "cuGraphExecDestroy");
	if (g)
		code(cuGraphDestroy(g), 0, 0, "cuGraphDestroy");
	code(cuEventCreate(&fresh, 0), 201, 0, "cuEventCreate");
	if (fresh)
		code(cuEventDestroy(fresh), 0, 0, "cuEventDestroy");
	at = 0;
	code(cuMemAlloc(&at, 64), 201, 0, "cuMemAlloc");
	if (at)
		cuMemFree(at);
}

static void end_calls(void)
{
	code(cuEventDestroy(event), 0, 0, "cuEventDestroy");
	code(cuEventDestroy(later), 0, 0, "cuEventDestroy");
	code(cuGraphExecDestroy(exec), 0, 0, "cuGraphExecDestroy");
	code(cuGraphDestroy(graph), 0, 0, "cuGraphDestroy");
	code(cuMemPoolDestroy(pool), 0, 0, "cuMemPoolDestroy");
	code(cuStreamDestroy(stream), 0, 0, "cuStreamDestroy");
	code(cuMemFree(memory), 0, 0, "cuMemFree");
	code(cuMemFreeHost(host), 0, 0, "cuMemFreeHost");
	code(cuModuleUnload(module), 0, 0, "cuModuleUnload");
}

static void objects_make(void)
{
	char *ptx = prog_ptx("vecadd");
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED };
	CUgraphNode node;

	props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	props.location.id = device;
	MUST(cuModuleLoadData(&module, ptx));
	MUST(cuModuleGetFunction(&function, module, "vecadd"));
	free(ptx);
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, 0));
	MUST(cuEventCreate(&later, 0));
	MUST(cuMemAlloc(&memory, 1 << 20));
	MUST(cuMemHostAlloc(&host, 4096, 0));
	MUST(cuMemPoolCreate(&pool, &props));
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddEmptyNode(&node, graph, NULL, 0));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuEventRecord(event, stream));
	MUST(cuEventRecord(later, stream));
	MUST(cuStreamSynchronize(stream));
}

static void *bare(void *arg)
{
	CUcontext made = NULL;

	if (other) {
		CUctxCreateParams params = { 0 };

		MUST(cuCtxCreate_v4(&made, &params, 0, device));
	}
	stream_calls();
	other_calls();
	end_calls();
	if (made)
		MUST(cuCtxDestroy(made));
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	list = argc > 1 && !strcmp(argv[1], "--list");
	context = prog_context(&device);
	for (int i = 0; i < 2; i++) {
		other = i;
		objects_make();
		pthread_create(&thread, NULL, bare, NULL);
		pthread_join(thread, NULL);
	}
	/* Whatever the end calls left. */
	MUST(cuDevicePrimaryCtxReset(device));
	MUST(cuDevicePrimaryCtxRelease(device));
	return prog_end();
}
