// SPDX-License-Identifier: Apache-2.0
/*
 * Copies of every size between host and device, page-locked and not; when the host's bytes are read and when they are
 * there (field cases P-002, P-003); rows with a pitch (P-023).
 */
#include "tests/cuda/prog.h"

static CUfunction spin, fill;

static void busy(CUstream stream, unsigned long long ms)
{
	unsigned long long ns = ms * 1000000;
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value, unsigned long long n)
{
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void pattern(uint8_t *bytes, size_t size, uint32_t seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(prog_random(&seed) >> 3);
}

static void sizes_check(void)
{
	static const size_t sizes[] = { 1,	 3,	    4,	      64,	   4000,	4001,	      32768, 32769,
					1000003, 1 << 20, (1 << 20) + 1, 3 << 20, (5 << 20) + 12345, 64 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i];
		uint8_t *from = malloc(size), *to = malloc(size + 1);
		CUdeviceptr device, other;

		pattern(from, size, (uint32_t)size);
		memset(to, 0xee, size + 1);
		MUST(cuMemAlloc(&device, size));
		MUST(cuMemAlloc(&other, size));
		MUST(cuMemcpyHtoD(device, from, size));
		MUST(cuMemcpyDtoD(other, device, size));
		MUST(cuMemcpyDtoH(to, other, size));
		CHECK(!memcmp(from, to, size) && to[size] == 0xee, "%zu bytes there and back", size);
		MUST(cuMemFree(device));
		MUST(cuMemFree(other));
		free(from);
		free(to);
	}
}

/* P-002: bytes for pageable memory are there when even the Async call returns. */
static void down_check(CUstream stream)
{
	static const size_t sizes[] = { 4, 4096, 1 << 20, 16 << 20 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *to = malloc(sizes[i]);
		CUdeviceptr device;

		MUST(cuMemAlloc(&device, sizes[i]));
		memset(to, 0xee, sizes[i]);
		busy(stream, 50);
		fill_on(stream, device, 0x01020304, sizes[i] / 4);
		MUST(cuMemcpyDtoHAsync(to, device, sizes[i], stream));
		CHECK(to[sizes[i] - 1] == 1 && to[0] == 4, "%zu bytes were late", sizes[i]);
		MUST(cuMemFree(device));
		free(to);
	}
}

/* Page-locked memory: the call may return early, and a wait brings the bytes. */
static void pinned_check(CUstream stream)
{
	size_t size = 3 << 20;
	uint8_t *pinned, *registered = aligned_alloc(4096, size);
	CUdeviceptr device;
	double start;

	MUST(cuMemAllocHost((void **)&pinned, size));
	MUST(cuMemHostRegister(registered, size, 0));
	MUST(cuMemAlloc(&device, size));
	memset(pinned, 0xee, size);
	memset(registered, 0xdd, size);
	MUST(cuMemsetD8(device, 0, size));
	MUST(cuCtxSynchronize());
	start = prog_seconds();
	busy(stream, 300);
	fill_on(stream, device, 0x11223344, size / 4);
	MUST(cuMemcpyDtoHAsync(pinned, device, size, stream));
	MUST(cuMemcpyDtoHAsync(registered, device, size, stream));
	CHECK(prog_seconds() - start < 0.25, "asynchronous copies waited %.3f s", prog_seconds() - start);
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	MUST(cuStreamSynchronize(stream));
	CHECK(pinned[0] == 0x44 && pinned[size - 1] == 0x11, "page-locked memory after the wait");
	CHECK(!memcmp(pinned, registered, size), "registered memory after the wait");

	pattern(pinned, size, 7);
	MUST(cuMemcpyHtoDAsync(device, pinned, size, stream));
	MUST(cuStreamSynchronize(stream));
	memset(registered, 0, size);
	MUST(cuMemcpyDtoH(registered, device, size));
	CHECK(!memcmp(pinned, registered, size), "page-locked memory to the device and back");
	MUST(cuMemHostUnregister(registered));
	MUST(cuMemFreeHost(pinned));
	MUST(cuMemFree(device));
	free(registered);
}

/* P-003: a pageable source may be reused the moment the call returns. */
static void up_check(CUstream stream)
{
	enum { SLOTS = 200, SIZE = 96 << 10 };
	uint8_t *buffer = malloc(SIZE), *back = malloc(SIZE);
	CUdeviceptr slots;
	int wrong = 0;

	MUST(cuMemAlloc(&slots, (size_t)SLOTS * SIZE));
	busy(stream, 100);
	for (int i = 0; i < SLOTS; i++) {
		memset(buffer, i, SIZE);
		MUST(cuMemcpyHtoDAsync(slots + (size_t)i * SIZE, buffer, SIZE, stream));
		memset(buffer, 0xee, SIZE);
		if (i % 10 == 9) {
			free(buffer);
			buffer = malloc(SIZE);
		}
	}
	MUST(cuStreamSynchronize(stream));
	for (int i = 0; i < SLOTS; i++) {
		MUST(cuMemcpyDtoH(back, slots + (size_t)i * SIZE, SIZE));
		for (int k = 0; k < SIZE; k++)
			wrong += back[k] != (uint8_t)i;
	}
	CHECK(!wrong, "%d bytes were written after the call", wrong);
	MUST(cuMemFree(slots));
	free(buffer);
	free(back);
}

static void rows_check(void)
{
	enum { WIDTH = 1919 * 4, HEIGHT = 1081, HOST_PITCH = 8192, BACK_PITCH = 7777 };
	uint8_t *picture = malloc((size_t)HOST_PITCH * HEIGHT), *back = malloc((size_t)BACK_PITCH * HEIGHT);
	CUDA_MEMCPY2D copy = { 0 };
	CUdeviceptr device;
	size_t pitch;
	int wrong = 0, padding = 0;

	pattern(picture, (size_t)HOST_PITCH * HEIGHT, 23);
	memset(back, 0xa5, (size_t)BACK_PITCH * HEIGHT);
	MUST(cuMemAllocPitch_v2(&device, &pitch, WIDTH, HEIGHT, 4));
	CHECK(pitch >= WIDTH, "pitch %zu", pitch);
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = picture;
	copy.srcPitch = HOST_PITCH;
	copy.srcXInBytes = 16;
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.dstDevice = device;
	copy.dstPitch = pitch;
	copy.WidthInBytes = WIDTH;
	copy.Height = HEIGHT;
	MUST(cuMemcpy2D_v2(&copy));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = device;
	copy.srcPitch = pitch;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = back;
	copy.dstPitch = BACK_PITCH;
	copy.WidthInBytes = WIDTH;
	copy.Height = HEIGHT;
	MUST(cuMemcpy2D_v2(&copy));
	for (int row = 0; row < HEIGHT; row++) {
		wrong += memcmp(back + row * BACK_PITCH, picture + row * HOST_PITCH + 16, WIDTH) != 0;
		for (int x = WIDTH; x < BACK_PITCH; x++)
			padding += back[row * BACK_PITCH + x] != 0xa5;
	}
	CHECK(!wrong, "%d rows", wrong);
	CHECK(!padding, "%d bytes of padding", padding);
	copy.dstPitch = WIDTH - 1;
	EXPECT(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
	copy.dstPitch = BACK_PITCH;
	copy.Height = 0;
	EXPECT(cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
	MUST(cuMemFree(device));
	free(picture);
	free(back);
}

static void bounds_check(void)
{
	uint8_t bytes[256] = { 0 };
	CUdeviceptr device;

	MUST(cuMemAlloc(&device, 4096));
	EXPECT(cuMemcpyHtoD(0, bytes, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoD((CUdeviceptr)(uintptr_t)bytes, bytes, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyDtoH(bytes, 0x1234, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoD(device, bytes, 0), CUDA_SUCCESS);
	MUST(cuMemFree(device));
	EXPECT(cuMemcpyHtoD(device, bytes, 4), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	CUstream stream;
	CUmodule module;

	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	sizes_check();
	down_check(stream);
	pinned_check(stream);
	up_check(stream);
	rows_check();
	bounds_check();
	MUST(cuStreamDestroy(stream));
	return prog_end();
}
