// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that a driver refuses, whose code the two runs must agree in. Nothing else runs at the same time that makes or
 * ends an object, so a dead handle or address is nobody else's. Each gives its code, or several of them as one number.
 */
#include "tests/cuda/differ.h"
#include "tests/cuda/prog.h"

#define CODES(a, b) ((int)(a) * 1000 + (int)(b))

static int alloc_null(const struct illegal_at *at)
{
	(void)at;
	return (int)cuMemAlloc(NULL, 64);
}

static int alloc_nothing(const struct illegal_at *at)
{
	CUdeviceptr memory;

	(void)at;
	return (int)cuMemAlloc(&memory, 0);
}

static int alloc_huge(const struct illegal_at *at)
{
	CUdeviceptr memory;

	(void)at;
	return (int)cuMemAlloc(&memory, (size_t)1 << 50);
}

static int free_inside(const struct illegal_at *at)
{
	return at->device_size > 1 ? (int)cuMemFree(at->device + 1) : 0;
}

static int free_twice(const struct illegal_at *at)
{
	CUdeviceptr memory = 0;

	(void)at;
	if (cuMemAlloc(&memory, 4096))
		return -1;
	CUresult first = cuMemFree(memory);

	return CODES(first, cuMemFree(memory));
}

static int free_foreign(const struct illegal_at *at)
{
	(void)at;
	return (int)cuMemFree((CUdeviceptr)(uintptr_t)&passed);
}

static int free_host_foreign(const struct illegal_at *at)
{
	int here = 0;

	(void)at;
	return (int)cuMemFreeHost(&here);
}

static int free_host_twice(const struct illegal_at *at)
{
	void *memory = NULL;

	(void)at;
	if (cuMemAllocHost(&memory, 4096))
		return -1;
	CUresult first = cuMemFreeHost(memory);

	return CODES(first, cuMemFreeHost(memory));
}

static int register_wrong(const struct illegal_at *at)
{
	static char bytes[16384];

	(void)at;
	CUresult nothing = cuMemHostRegister(bytes, 0, 0), first = cuMemHostRegister(bytes + 4096, 4096, 0);
	CUresult twice = cuMemHostRegister(bytes + 4096, 4096, 0), overlap = cuMemHostRegister(bytes + 4096, 8192, 0);
	CUresult end = cuMemHostUnregister(bytes + 4096), again = cuMemHostUnregister(bytes + 4096);

	return CODES(CODES(nothing, first), twice) ^ CODES(overlap, CODES(end, again));
}

static int up_beyond(const struct illegal_at *at)
{
	static char bytes[64];

	/* Far beyond: what lies close behind may be another allocation. */
	return (int)cuMemcpyHtoDAsync(at->device + at->device_size - 1, bytes, (size_t)1 << 42, at->stream);
}

static int up_to_nothing(const struct illegal_at *at)
{
	char bytes[4] = { 0 };

	(void)at;
	return CODES(cuMemcpyHtoD(0, bytes, 4), cuMemcpyHtoD(at->device, bytes, 0));
}

static int down_from_nothing(const struct illegal_at *at)
{
	char bytes[4];

	return (int)cuMemcpyDtoHAsync(bytes, 0x1234, 4, at->stream);
}

static int set_beyond(const struct illegal_at *at)
{
	return (int)cuMemsetD8Async(at->device, 1, (size_t)1 << 42, at->stream);
}

static int set_crooked(const struct illegal_at *at)
{
	return (int)cuMemsetD32Async(at->device + 1, 1, 1, at->stream);
}

static int rows_narrow(const struct illegal_at *at)
{
	char bytes[256] = { 0 };
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes, .srcPitch = 2,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = at->device, .dstPitch = 1,
			       .WidthInBytes = 4, .Height = 2 };
	CUresult narrow = cuMemcpy2D_v2(&copy);

	copy.srcPitch = copy.dstPitch = 4;
	copy.Height = 0;
	return CODES(narrow, cuMemcpy2D_v2(&copy));
}

static int launch_dims(const struct illegal_at *at)
{
	CUdeviceptr data = at->device;
	unsigned int value = 0, n = 0;
	void *params[] = { &data, &value, &n };
	CUresult none = cuLaunchKernel(at->function, 0, 1, 1, 1, 1, 1, 0, at->stream, params, NULL);
	CUresult wide = cuLaunchKernel(at->function, 1, 1, 1, 2048, 1, 1, 0, at->stream, params, NULL);
	CUresult deep = cuLaunchKernel(at->function, 1, 1, 1, 1, 1, 65, 0, at->stream, params, NULL);
	CUresult high = cuLaunchKernel(at->function, 1, 65536, 1, 1, 1, 1, 0, at->stream, params, NULL);
	CUresult shared = cuLaunchKernel(at->function, 1, 1, 1, 1, 1, 1, 1u << 20, at->stream, params, NULL);

	return CODES(CODES(none, wide), deep) ^ CODES(high, shared);
}

static int launch_nothing(const struct illegal_at *at)
{
	return (int)cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, at->stream, NULL, NULL);
}

static int function_missing(const struct illegal_at *at)
{
	CUmodule module;
	CUfunction function;

	if (cuFuncGetModule(&module, at->function))
		return -1;
	return CODES(cuModuleGetFunction(&function, module, "no_such_kernel"), cuModuleGetFunction(&function, module, NULL));
}

static int module_broken(const struct illegal_at *at)
{
	CUmodule module;

	(void)at;
	return CODES(cuModuleLoadData(&module, ".version 7.0\n.target sm_75\n.address_size 64\nnonsense\n"),
		     cuModuleLoadData(&module, NULL));
}

static int stream_flags(const struct illegal_at *at)
{
	CUstream stream;

	(void)at;
	return CODES(cuStreamCreate(&stream, 0xff00), cuStreamCreate(NULL, 0));
}

static int event_flags(const struct illegal_at *at)
{
	CUevent event;

	(void)at;
	return CODES(cuEventCreate(&event, 0xff00), cuEventCreate(NULL, 0));
}

static int event_null(const struct illegal_at *at)
{
	return CODES(cuEventRecord(NULL, at->stream), cuStreamWaitEvent(at->stream, NULL, 0));
}

static int elapsed_early(const struct illegal_at *at)
{
	CUevent a = NULL, b = NULL;
	float ms;

	(void)at;
	if (cuEventCreate(&a, 0) || cuEventCreate(&b, CU_EVENT_DISABLE_TIMING))
		return -1;
	CUresult never = cuEventElapsedTime(&ms, a, a), untimed = cuEventElapsedTime(&ms, a, b);
	CUresult query = cuEventQuery(a);

	cuEventDestroy(a);
	cuEventDestroy(b);
	return CODES(CODES(never, untimed), query);
}

static int free_async_foreign(const struct illegal_at *at)
{
	return (int)cuMemFreeAsync((CUdeviceptr)(uintptr_t)&passed, at->stream);
}

static int pointer_foreign(const struct illegal_at *at)
{
	unsigned int type = 99;
	int here = 0;

	(void)at;
	return CODES(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&here),
		     cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at->device));
}

static int function_attribute(const struct illegal_at *at)
{
	int value;

	return CODES(cuFuncGetAttribute(&value, 1000, at->function),
		     cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, at->function));
}

static int device_attribute(const struct illegal_at *at)
{
	int value;

	return CODES(cuDeviceGetAttribute(&value, 5000, at->context_device),
		     cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4711));
}

static int hostfunc_null(const struct illegal_at *at)
{
	return (int)cuLaunchHostFunc(at->stream, NULL, NULL);
}

static int null_answers(const struct illegal_at *at)
{
	return CODES(cuStreamGetPriority(at->stream, NULL), cuStreamGetFlags(at->stream, NULL));
}

/* ---- what the library refuses and a real driver may fall over ---- */

static int stale_stream(const struct illegal_at *at)
{
	CUstream stream = NULL;

	(void)at;
	if (cuStreamCreate(&stream, 0) || cuStreamDestroy(stream))
		return -1;
	return CODES(cuStreamQuery(stream), cuStreamSynchronize(stream));
}

static int stale_event(const struct illegal_at *at)
{
	CUevent event = NULL;

	if (cuEventCreate(&event, 0) || cuEventDestroy(event))
		return -1;
	return CODES(cuEventQuery(event), cuEventRecord(event, at->stream));
}

static int launch_no_params(const struct illegal_at *at)
{
	return (int)cuLaunchKernel(at->function, 1, 1, 1, 1, 1, 1, 0, at->stream, NULL, NULL);
}

static int wrong_kind(const struct illegal_at *at)
{
	CUevent event = NULL;

	(void)at;
	if (cuEventCreate(&event, 0))
		return -1;
	CUresult query = cuStreamQuery((CUstream)event);

	return CODES(query, cuEventDestroy(event));
}

#define LIVES(name) { #name, name }

static const struct {
	const char *name;
	int (*call)(const struct illegal_at *at);
} illegals[] = {
	LIVES(alloc_null), LIVES(alloc_nothing), LIVES(alloc_huge), LIVES(free_inside), LIVES(free_twice),
	LIVES(free_foreign), LIVES(free_host_foreign), LIVES(free_host_twice), LIVES(register_wrong), LIVES(up_beyond),
	LIVES(up_to_nothing), LIVES(down_from_nothing), LIVES(set_beyond), LIVES(set_crooked), LIVES(rows_narrow),
	LIVES(launch_dims), LIVES(launch_nothing), LIVES(function_missing), LIVES(module_broken), LIVES(stream_flags),
	LIVES(event_flags), LIVES(event_null), LIVES(elapsed_early), LIVES(free_async_foreign), LIVES(pointer_foreign),
	LIVES(function_attribute), LIVES(device_attribute), LIVES(hostfunc_null), LIVES(null_answers),
	/* from here on not on a real driver */
	LIVES(stale_stream), LIVES(stale_event), LIVES(launch_no_params), LIVES(wrong_kind),
};

#define ILLEGALS (sizeof(illegals) / sizeof(illegals[0]))
const unsigned illegal_count = ILLEGALS, illegal_real_count = ILLEGALS - 4;

const char *illegal_name(unsigned what)
{
	return what < ILLEGALS ? illegals[what].name : "?";
}

int illegal_call(unsigned what, const struct illegal_at *at)
{
	return illegals[what].call(at);
}
