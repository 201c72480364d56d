// SPDX-License-Identifier: Apache-2.0
/*
 * Host memory that kernels reach through its device pointer: made by CUDA and registered, read and written by both sides,
 * words beside each other, a flag that the host polls without a CUDA call.
 */
#include "tests/cuda/prog.h"

static CUfunction add, spin, write_at, sum;

static void add_on(CUdeviceptr data, unsigned int value, unsigned long long n, CUstream stream)
{
	void *params[] = { &data, &value, &n };

	MUST(cuLaunchKernel(add, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void both_ways(unsigned int *host, CUdeviceptr device, unsigned long long n, const char *what)
{
	int wrong = 0;

	for (unsigned long long i = 0; i < n; i++)
		host[i] = (unsigned int)i * 3;
	add_on(device, 5, n, NULL);
	MUST(cuCtxSynchronize());
	for (unsigned long long i = 0; i < n; i++)
		wrong += host[i] != (unsigned int)i * 3 + 5;
	CHECK(!wrong, "%s: %d words after the first kernel", what, wrong);
	/* The host changes every other word; the device sees those and keeps its own. */
	for (unsigned long long i = 0; i < n; i += 2)
		host[i] = 1000;
	add_on(device, 7, n, NULL);
	MUST(cuStreamSynchronize(NULL));
	wrong = 0;
	for (unsigned long long i = 0; i < n; i++)
		wrong += host[i] != (i % 2 ? (unsigned int)i * 3 + 12 : 1007);
	CHECK(!wrong, "%s: %d words after the second kernel", what, wrong);
}

static void neighbours(unsigned int *host, CUdeviceptr device)
{
	unsigned long long ns = 100000000;
	unsigned int value = 4242;
	void *spin_params[] = { &ns };
	CUdeviceptr at = device + 4;
	void *params[] = { &at, &value };
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	host[0] = 1;
	host[1] = 2;
	host[2] = 3;
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_params, NULL));
	MUST(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	/* While the device is at it the host writes to both sides of the device's word. */
	host[0] = 11;
	host[2] = 33;
	MUST(cuStreamSynchronize(stream));
	CHECK(host[0] == 11 && host[1] == 4242 && host[2] == 33, "neighbours: %u %u %u", host[0], host[1], host[2]);
	MUST(cuStreamDestroy(stream));
}

static void polled(volatile unsigned int *host, CUdeviceptr device)
{
	unsigned long long ns = 20000000;
	unsigned int value = 77;
	void *spin_params[] = { &ns };
	void *params[] = { &device, &value };
	double limit = prog_seconds() + 5;

	host[0] = 0;
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL));
	MUST(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, spin_params, NULL));
	while (host[0] != 77 && prog_seconds() < limit)
		usleep(100);
	CHECK(host[0] == 77, "a word that is polled without a CUDA call");
	MUST(cuCtxSynchronize());
}

int main(void)
{
	enum { N = 5000 };
	unsigned int *made, *registered = aligned_alloc(4096, 65536), total = 0, value;
	CUdeviceptr device, scratch;
	CUmodule module;
	CUevent event;

	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&write_at, module, "write_at"));
	MUST(cuModuleGetFunction(&sum, module, "sum"));

	MUST(cuMemHostAlloc((void **)&made, N * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&device, made, 0));
	both_ways(made, device, N, "memory that CUDA made");
	neighbours(made, device);
	polled(made, device);

	/* An event says that the kernel's words are there. */
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	value = made[N - 1];
	add_on(device, 1, N, NULL);
	MUST(cuEventRecord(event, NULL));
	MUST(cuEventSynchronize(event));
	CHECK(made[N - 1] == value + 1, "after an event: %u, not %u", made[N - 1], value + 1);
	MUST(cuEventDestroy(event));

	/* A kernel that reads it. */
	MUST(cuMemAlloc(&scratch, 4));
	MUST(cuMemsetD32(scratch, 0, 1));
	for (unsigned int i = 0; i < N; i++)
		made[i] = i;
	{
		unsigned long long n = N;
		void *params[] = { &device, &scratch, &n };

		MUST(cuLaunchKernel(sum, 2, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	}
	MUST(cuMemcpyDtoH(&total, scratch, 4));
	CHECK(total == N * (N - 1) / 2, "a kernel summed %u", total);

	/* Without asking for a device pointer: addresses are unified. */
	MUST(cuMemFreeHost(made));
	MUST(cuMemHostAlloc((void **)&made, 1 << 20, 0));
	both_ways(made, (CUdeviceptr)(uintptr_t)made, N, "a host pointer as a kernel's parameter");
	MUST(cuMemFreeHost(made));
	MUST(cuMemHostAlloc((void **)&made, N * 4, 0));
	made[N - 1] = 1;
	MUST(cuMemsetD32((CUdeviceptr)(uintptr_t)made, 99, N - 1));
	MUST(cuCtxSynchronize());
	CHECK(made[0] == 99 && made[N - 2] == 99 && made[N - 1] == 1, "memset of host memory: %u %u", made[0], made[N - 1]);

	MUST(cuMemHostRegister(registered, 65536, CU_MEMHOSTREGISTER_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&device, registered, 0));
	both_ways(registered, device, N, "registered memory");
	MUST(cuMemHostUnregister(registered));
	EXPECT(cuMemHostUnregister(registered), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	MUST(cuMemFreeHost(made));
	MUST(cuMemFree(scratch));
	free(registered);
	return prog_end();
}
