// SPDX-License-Identifier: Apache-2.0
/*
 * Two GPUs: copies between them with and without access, kernels of one in the memory of the other (allocated before and after,
 * small and large, mapped, of a pool, a variable), events across them, and the codes of wrong calls. With one GPU only what can be
 * asked. "illegal": a kernel in memory that was not opened to it.
 */
#include "tests/cuda/prog.h"

#define SMALL 1000u		    /* words: shares a piece with others */
#define LARGE ((6u << 20) / 4 + 3) /* words: pieces of its own, and not all of the last */

struct gpu {
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUfunction add, fill, spin;
	CUdeviceptr small, large;
};

static uint32_t *host;

static void use(const struct gpu *gpu)
{
	MUST(cuCtxSetCurrent(gpu->context));
}

static void gpu_open(struct gpu *gpu, CUdevice device)
{
	CUmodule module;

	gpu->device = device;
	MUST(cuDevicePrimaryCtxRetain(&gpu->context, device));
	use(gpu);
	MUST(cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING));
	module = prog_module("util");
	MUST(cuModuleGetFunction(&gpu->add, module, "add"));
	MUST(cuModuleGetFunction(&gpu->fill, module, "fill"));
	MUST(cuModuleGetFunction(&gpu->spin, module, "spin"));
	MUST(cuMemAlloc(&gpu->small, SMALL * 4));
	MUST(cuMemAlloc(&gpu->large, LARGE * 4));
}

/* data[] += value by a kernel of @gpu. */
static void add_on(const struct gpu *gpu, CUdeviceptr data, uint32_t value, uint64_t n)
{
	void *params[] = { &data, &value, &n };

	use(gpu);
	MUST(cuLaunchKernel(gpu->add, 8, 1, 1, 128, 1, 1, 0, gpu->stream, params, NULL));
}

static void fill_on(const struct gpu *gpu, CUdeviceptr data, uint32_t value, uint64_t n)
{
	void *params[] = { &data, &value, &n };

	use(gpu);
	MUST(cuLaunchKernel(gpu->fill, 8, 1, 1, 128, 1, 1, 0, gpu->stream, params, NULL));
}

static void wait_for(const struct gpu *gpu)
{
	use(gpu);
	MUST(cuStreamSynchronize(gpu->stream));
}

/* @n words at @data, read by @gpu, are all @value. */
static void is_all(const struct gpu *gpu, CUdeviceptr data, uint32_t value, uint32_t n, const char *what)
{
	uint32_t wrong = 0;

	use(gpu);
	memset(host, 0xee, n * 4);
	MUST(cuMemcpyDtoH(host, data, n * 4));
	for (uint32_t i = 0; i < n; i++)
		wrong += host[i] != value;
	CHECK(!wrong, "%s: %u of %u words, the first is %u, not %u", what, wrong, n, host[0], value);
}

static void questions(int count)
{
	for (int a = 0; a < count; a++)
		for (int b = 0; b < count; b++) {
			int can = -1, supported = -1;

			EXPECT(cuDeviceCanAccessPeer(&can, a, b), CUDA_SUCCESS);
			if (a == b) {
				CHECK(can == 0, "device %d is a peer of itself", a);
				EXPECT(cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b),
				       CUDA_ERROR_INVALID_DEVICE);
				continue;
			}
			EXPECT(cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b), CUDA_SUCCESS);
			CHECK(can == supported, "%d and %d: %d, and by attribute %d", a, b, can, supported);
		}
	EXPECT(cuDeviceCanAccessPeer(NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceCanAccessPeer(&count, 0, 99), CUDA_ERROR_INVALID_DEVICE);
}

static void copies(const struct gpu *one, const struct gpu *two)
{
	const struct {
		CUdeviceptr from, to;
		uint32_t n;
	} sizes[] = { { one->small, two->small, SMALL }, { one->large, two->large, LARGE } };

	for (int i = 0; i < 2; i++) {
		CUdeviceptr from = sizes[i].from, to = sizes[i].to;
		uint32_t n = sizes[i].n;

		fill_on(one, from, 11 + (uint32_t)i, n);
		wait_for(one);
		MUST(cuMemcpyPeer(to, two->context, from, one->context, n * 4));
		is_all(two, to, 11 + (uint32_t)i, n, "cuMemcpyPeer");
		fill_on(one, from, 21 + (uint32_t)i, n);
		MUST(cuMemcpyPeerAsync(to, two->context, from, one->context, n * 4, one->stream));
		wait_for(one);
		is_all(two, to, 21 + (uint32_t)i, n, "cuMemcpyPeerAsync");
		fill_on(two, to, 31 + (uint32_t)i, n);
		wait_for(two);
		use(one);
		MUST(cuMemcpyDtoD(from, to, n * 4));
		is_all(one, from, 31 + (uint32_t)i, n, "cuMemcpyDtoD from the other device");
		/* Addresses say where memory is: any current context may copy it. */
		for (uint32_t k = 0; k < n; k++)
			host[k] = 41;
		use(one);
		MUST(cuMemcpyHtoD(to, host, n * 4));
		is_all(one, to, 41, n, "a copy to the host of the other device's memory");
		is_all(two, to, 41, n, "a copy from the host to the other device's memory");
	}
	EXPECT(cuMemcpyPeer(two->small, two->context, one->small, NULL, 4), CUDA_ERROR_INVALID_CONTEXT);
}

static void rows(const struct gpu *one, const struct gpu *two)
{
	CUDA_MEMCPY3D_PEER box = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = one->large, .srcContext = one->context, .srcPitch = 512,
		.srcHeight = 8,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = two->large, .dstContext = two->context, .dstPitch = 1024,
		.dstHeight = 8, .WidthInBytes = 256, .Height = 8, .Depth = 1,
	};

	fill_on(one, one->large, 51, LARGE);
	fill_on(two, two->large, 52, LARGE);
	wait_for(two);
	wait_for(one);
	MUST(cuMemcpy3DPeer(&box));
	for (uint32_t row = 0; row < 8; row++) {
		is_all(two, two->large + row * 1024, 51, 64, "a row that was copied");
		is_all(two, two->large + row * 1024 + 256, 52, 192, "what is between rows");
	}
}

static CUresult device_pointer(CUdeviceptr at)
{
	CUdeviceptr got = 0;
	CUresult result = cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at);

	if (result == CUDA_SUCCESS)
		CHECK(got == at, "its device pointer is %llx", got);
	return result;
}

static void access_codes(const struct gpu *one, const struct gpu *two)
{
	use(one);
	EXPECT(cuCtxDisablePeerAccess(two->context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	EXPECT(cuCtxEnablePeerAccess(two->context, 1), CUDA_ERROR_INVALID_VALUE);
	if (prog_on_gleam()) /* as documented */
		EXPECT(cuCtxEnablePeerAccess(one->context, 0), CUDA_ERROR_INVALID_CONTEXT);
	EXPECT(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	if (prog_on_gleam())
		EXPECT(device_pointer(two->large), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuCtxEnablePeerAccess(two->context, 0), CUDA_SUCCESS);
	EXPECT(device_pointer(two->large), CUDA_SUCCESS);
	EXPECT(cuCtxEnablePeerAccess(two->context, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	use(two);
	EXPECT(cuCtxDisablePeerAccess(one->context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
}

/* After access_codes(): kernels of @one reach the memory of @two. */
static void kernels(const struct gpu *one, const struct gpu *two)
{
	CUdeviceptr later, later_small;

	fill_on(two, two->small, 5, SMALL);
	fill_on(two, two->large, 6, LARGE);
	wait_for(two);
	add_on(one, two->small, 100, SMALL);
	add_on(one, two->large, 100, LARGE);
	wait_for(one);
	is_all(two, two->small, 105, SMALL, "a kernel in small memory of the other device");
	is_all(two, two->large, 106, LARGE, "a kernel in large memory of the other device");
	use(two);
	MUST(cuMemAlloc(&later, 3 * LARGE * 4));
	MUST(cuMemAlloc(&later_small, 64));
	fill_on(two, later, 7, 3 * LARGE);
	fill_on(two, later_small, 8, 16);
	wait_for(two);
	add_on(one, later + (uint64_t)LARGE * 4, 1, LARGE);
	add_on(one, later_small, 1, 16);
	wait_for(one);
	is_all(two, later, 7, LARGE, "what nobody touched");
	is_all(two, later + (uint64_t)LARGE * 4, 8, LARGE, "a kernel in memory that was allocated later");
	is_all(two, later_small, 9, 16, "a kernel in small memory that was allocated later");
	use(two);
	MUST(cuMemFree(later));
	MUST(cuMemFree(later_small));
}

/* A kernel of the second device waits for one of the first by an event, and sees what it wrote there. */
static void events(const struct gpu *one, const struct gpu *two)
{
	unsigned long long ns = 20000000;
	void *params[] = { &ns };
	CUevent done, back;

	use(two);
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	use(one);
	MUST(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
	for (int turn = 0; turn < 10; turn++) {
		use(two);
		MUST(cuLaunchKernel(two->spin, 1, 1, 1, 1, 1, 1, 0, two->stream, params, NULL));
		fill_on(two, two->large, (uint32_t)turn, LARGE);
		MUST(cuEventRecord(done, two->stream));
		use(one);
		MUST(cuStreamWaitEvent(one->stream, done, 0));
		add_on(one, two->large, 1000, LARGE);
		MUST(cuEventRecord(back, one->stream));
		use(two);
		MUST(cuStreamWaitEvent(two->stream, back, 0));
		add_on(two, two->large, 7, LARGE);
		wait_for(two);
		is_all(two, two->large, 1007 + (uint32_t)turn, LARGE, "kernels of two devices in turns");
		ns = 1000000;
	}
	use(one);
	EXPECT(cuEventRecord(done, one->stream), CUDA_ERROR_INVALID_HANDLE);
	MUST(cuEventDestroy(done));
	MUST(cuEventDestroy(back));
}

static void mapped(const struct gpu *one, const struct gpu *two)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, two->device },
	};
	CUmemAccessDesc access[2] = {
		{ .location = { CU_MEM_LOCATION_TYPE_DEVICE, two->device }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
		{ .location = { CU_MEM_LOCATION_TYPE_DEVICE, one->device }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE },
	};
	CUmemGenericAllocationHandle handle;
	unsigned long long flags = 99;
	CUdeviceptr at;
	size_t size = 0;

	use(one);
	MUST(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	MUST(cuMemCreate(&handle, size, &prop, 0));
	MUST(cuMemAddressReserve(&at, size, 0, 0, 0));
	MUST(cuMemMap(at, size, 0, handle, 0));
	MUST(cuMemSetAccess(at, size, access, 1));
	MUST(cuMemGetAccess(&flags, &access[0].location, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "its own device has %llu", flags);
	MUST(cuMemGetAccess(&flags, &access[1].location, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, "the other device has %llu before", flags);
	MUST(cuMemSetAccess(at, size, access, 2));
	MUST(cuMemGetAccess(&flags, &access[1].location, at));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the other device has %llu", flags);
	fill_on(two, at, 3, size / 4);
	wait_for(two);
	add_on(one, at, 4, size / 4);
	wait_for(one);
	is_all(two, at, 7, (uint32_t)(size / 4), "a kernel in mapped memory of the other device");
	MUST(cuMemUnmap(at, size));
	MUST(cuMemAddressFree(at, size));
	MUST(cuMemRelease(handle));
}

static void pool(const struct gpu *one, const struct gpu *two)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, two->device } };
	CUmemAccessDesc access = { .location = { CU_MEM_LOCATION_TYPE_DEVICE, one->device },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemAccess_flags flags = 99;
	CUmemoryPool handle;
	CUdeviceptr at;

	use(two);
	MUST(cuMemPoolCreate(&handle, &props));
	MUST(cuMemPoolGetAccess(&flags, handle, &access.location));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, "the pool is open to the other device: %d", (int)flags);
	MUST(cuMemPoolSetAccess(handle, &access, 1));
	MUST(cuMemPoolGetAccess(&flags, handle, &access.location));
	CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the pool gives the other device %d", (int)flags);
	MUST(cuMemAllocFromPoolAsync(&at, LARGE * 4, handle, two->stream));
	fill_on(two, at, 60, LARGE);
	wait_for(two);
	add_on(one, at, 6, LARGE);
	wait_for(one);
	is_all(two, at, 66, LARGE, "a kernel in a pool of the other device");
	use(two);
	MUST(cuMemFreeAsync(at, two->stream));
	wait_for(two);
	MUST(cuMemPoolDestroy(handle));
}

/* Before anything else has touched the memory of the other device. */
static int illegal(const struct gpu *one, const struct gpu *two)
{
	CUresult result;

	fill_on(two, two->large, 1, LARGE);
	wait_for(two);
	add_on(one, two->large, 1, LARGE);
	result = cuStreamSynchronize(one->stream);
	CHECK(result == CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel in memory that isn't open to it gave %d", (int)result);
	return prog_end();
}

int main(int argc, char **argv)
{
	struct gpu one, two;
	int count = 0, can = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	questions(count);
	if (count < 2) {
		printf("one GPU: the rest needs two\n");
		return prog_end();
	}
	host = malloc(3 * (size_t)LARGE * 4);
	gpu_open(&one, 0);
	gpu_open(&two, 1);
	MUST(cuDeviceCanAccessPeer(&can, 0, 1));
	if (argc > 1 && can)
		return illegal(&one, &two);
	copies(&one, &two);
	rows(&one, &two);
	if (can) {
		access_codes(&one, &two);
		kernels(&one, &two);
		events(&one, &two);
		mapped(&one, &two);
		pool(&one, &two);
		use(&one);
		EXPECT(cuCtxDisablePeerAccess(two.context), CUDA_SUCCESS);
		EXPECT(cuCtxDisablePeerAccess(two.context), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
		copies(&one, &two);
	} else {
		use(&one);
		EXPECT(cuCtxEnablePeerAccess(two.context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
		printf("these two reach each other by copies alone\n");
	}
	for (int i = 0; i < 2; i++) {
		const struct gpu *gpu = i ? &two : &one;

		use(gpu);
		MUST(cuMemFree(gpu->small));
		MUST(cuMemFree(gpu->large));
		MUST(cuStreamDestroy(gpu->stream));
		MUST(cuDevicePrimaryCtxRelease(gpu->device));
	}
	free(host);
	return prog_end();
}
