// SPDX-License-Identifier: Apache-2.0
/*
 * Cases from the field about contexts: each version of cuCtxCreate is found with its own signature (P-013), and work after a reset
 * is right, with the memory where it was and old handles dead (P-017). 20 rounds of each; GLEAM_LONG=1: 100.
 */
#include <pthread.h>

#include "tests/cuda/prog.h"

static int rounds = 20;

/* ---- P-013 ---- */

static void *find(const char *name, int version)
{
	CUdriverProcAddressQueryResult status = 99;
	void *address = NULL;

	MUST(cuGetProcAddress_v2(name, &address, version, CU_GET_PROC_ADDRESS_DEFAULT, &status));
	CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS && address, "%s of %d: status %d", name, version, (int)status);
	return address;
}

static void made(CUcontext context, unsigned int flags, const char *what)
{
	unsigned int got = 99, version = 0;
	CUdeviceptr memory;
	uint32_t value = 0;

	EXPECT(cuCtxGetFlags(&got), CUDA_SUCCESS);
	CHECK((got & 7) == flags, "%s: flags %#x, not %#x", what, got, flags);
	EXPECT(cuCtxGetApiVersion(context, &version), CUDA_SUCCESS);
	CHECK(version >= 3010 && version <= 13000, "%s: version %u", what, version);
	MUST(cuMemAlloc(&memory, 4096));
	MUST(cuMemsetD32(memory, 77, 1024));
	MUST(cuMemcpyDtoH(&value, memory + 4092, 4));
	CHECK(value == 77, "%s: a copy gave %u", what, value);
	EXPECT(cuCtxDestroy(context), CUDA_SUCCESS);
}

static void versions(CUdevice device)
{
	CUresult (*v1)(CUcontext *, unsigned int, CUdevice) = find("cuCtxCreate", 2000);
	CUresult (*v2)(CUcontext *, unsigned int, CUdevice) = find("cuCtxCreate", 3020);
	CUresult (*v3)(CUcontext *, CUexecAffinityParam *, int, unsigned int, CUdevice) = find("cuCtxCreate", 11040);
	CUresult (*v4)(CUcontext *, CUctxCreateParams *, unsigned int, CUdevice) = find("cuCtxCreate", 12050);
	CUresult (*newest)(CUcontext *, CUctxCreateParams *, unsigned int, CUdevice) = find("cuCtxCreate", 13000);
	CUcontext context;

	CHECK((void *)v2 != (void *)v3 && (void *)v3 != (void *)v4 && (void *)newest == (void *)v4, "versions are mixed up");
	for (int i = 0; i < rounds; i++) {
		unsigned int flags = i % 2 ? CU_CTX_SCHED_BLOCKING_SYNC : CU_CTX_SCHED_SPIN;

		/* The first version is of 32-bit times and need not make one; it must not crash. */
		if (v1(&context, flags, device) == CUDA_SUCCESS)
			made(context, flags, "v1");
		MUST(v2(&context, flags, device));
		made(context, flags, "v2");
		MUST(v3(&context, NULL, 0, flags, device));
		made(context, flags, "v3");
		MUST(v4(&context, NULL, flags, device));
		made(context, flags, "v4");
	}
}

/* ---- P-017 ---- */

static CUcontext primary;

static size_t free_bytes(void)
{
	size_t available = 0, total;

	MUST(cuMemGetInfo(&available, &total));
	return available;
}

static void work(bool leave_queued)
{
	enum { N = 1 << 16 };
	static uint32_t host[N];
	unsigned long long n = N, ns = 30000000;
	CUmodule module = prog_module("util");
	uint32_t value = 5;
	CUdeviceptr memory;
	CUfunction add, spin;
	CUstream stream;
	CUevent event;

	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, 0));
	MUST(cuMemAlloc(&memory, sizeof(host)));
	for (uint32_t i = 0; i < N; i++)
		host[i] = i;
	MUST(cuMemcpyHtoD(memory, host, sizeof(host)));

	void *params[] = { &memory, &value, &n };
	void *spin_params[] = { &ns };
	uint32_t wrong = 0;

	MUST(cuLaunchKernel(add, 32, 1, 1, 128, 1, 1, 0, stream, params, NULL));
	MUST(cuEventRecord(event, stream));
	MUST(cuEventSynchronize(event));
	MUST(cuMemcpyDtoH(host, memory, sizeof(host)));
	for (uint32_t i = 0; i < N; i++)
		wrong += host[i] != i + 5;
	CHECK(!wrong, "%u words after a reset", wrong);
	if (leave_queued)
		MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_params, NULL));
}

static void *second_thread(void *arg)
{
	MUST(cuCtxSetCurrent(primary));
	work(false);
	return NULL;
}

static void resets(CUdevice device)
{
	size_t before, after;
	CUdeviceptr old;
	CUstream stream;
	pthread_t thread;
	int active;
	unsigned int flags;

	MUST(cuDevicePrimaryCtxRetain(&primary, device)); /* held twice: a reset doesn't ask */
	MUST(cuCtxSetCurrent(primary));
	work(false);
	MUST(cuDevicePrimaryCtxReset(device));
	MUST(cuDevicePrimaryCtxRetain(&primary, device));
	before = free_bytes();
	for (int i = 0; i < rounds; i++) {
		work(i % 2);
		if (i % 4 == 0) {
			pthread_create(&thread, NULL, second_thread, NULL);
			pthread_join(thread, NULL);
		}
		MUST(cuMemAlloc(&old, 1 << 20));
		MUST(cuStreamCreate(&stream, 0));
		MUST(cuDevicePrimaryCtxReset(device));
		MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
		CHECK(!active, "the context is active after a reset");
		MUST(cuDevicePrimaryCtxRetain(&primary, device));
		MUST(cuCtxSetCurrent(primary));
		if (prog_on_gleam()) {
			EXPECT(cuMemFree(old), CUDA_ERROR_INVALID_VALUE);
			CHECK(cuStreamSynchronize(stream) != CUDA_SUCCESS, "a stream of before the reset works");
		}
	}
	after = free_bytes();
	CHECK(after + (32u << 20) >= before, "%zu MiB were free, and %zu are after %d resets", before >> 20, after >> 20, rounds);
}

int main(void)
{
	const char *wish = getenv("GLEAM_LONG");
	CUdevice device;

	if (wish && strcmp(wish, "1") == 0)
		rounds = 100;
	prog_context(&device);
	versions(device);
	resets(device);
	return prog_end();
}
