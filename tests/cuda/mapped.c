// SPDX-License-Identifier: Apache-2.0
/*
 * Host memory that kernels reach through its device pointer: made by CUDA and registered, read and written by both sides,
 * words beside each other, a flag that the host polls without a CUDA call. "at ADDRESS": registered memory there, where the server has
 * something else, so that devices know it by another address.
 */
#include <sys/mman.h>

#include "tests/cuda/prog.h"

#define N 5000u

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

/* Numbers that change by one each turn: a byte in four, a million of them. */
static void scattered(void)
{
	unsigned long long n = 1 << 20;
	unsigned int *host, wrong = 0;
	CUdeviceptr device;

	MUST(cuMemHostAlloc((void **)&host, n * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&device, host, 0));
	for (unsigned long long i = 0; i < n; i++)
		host[i] = (unsigned int)i << 8;
	add_on(device, 1, n, NULL);
	MUST(cuCtxSynchronize());
	for (unsigned int turn = 1; turn <= 3; turn++) {
		for (unsigned long long i = 0; i < n; i++)
			host[i]++;
		add_on(device, 1, n, NULL);
		MUST(cuCtxSynchronize());
	}
	for (unsigned long long i = 0; i < n; i++)
		wrong += host[i] != ((unsigned int)i << 8) + 7;
	CHECK(!wrong, "%u of a million numbers", wrong);
	MUST(cuMemFreeHost(host));
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

/* All that a program does with host memory, by either of its two addresses. */
static int moved(uint64_t at)
{
	size_t size = 65536;
	void *want = (void *)(uintptr_t)at;
	unsigned int *host = mmap(want, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CUstreamBatchMemOpParams ops[2];
	CUdeviceptr device, other, plain, asked = 0;
	unsigned int *small = NULL;
	unsigned int words[16];
	CUmemorytype type = 0;
	int same = -1, wrong = 0;
	CUstream stream;
	CUdevice dev;

	if (host != want) {
		printf("%p is taken in this process, too\n0 passed, 0 failed\n", want);
		return 77;
	}
	MUST(cuCtxGetDevice(&dev));
	MUST(cuDeviceGetAttribute(&same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, dev));
	CHECK(same == 0, "host pointers are said to be devices' ones: %d", same);
	for (int turn = 0; turn < 2; turn++) {
		MUST(cuMemHostRegister(host, size, CU_MEMHOSTREGISTER_DEVICEMAP));
		MUST(cuMemHostGetDevicePointer_v2(&device, host, 0));
		MUST(cuMemHostGetDevicePointer_v2(&other, host + 5, 0));
		CHECK(device != at && other == device + 20, "its device pointers are %llx and %llx", device, other);
		MUST(cuPointerGetAttribute(&asked, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 8));
		CHECK(asked == device + 8, "told as %llx, not %llx", asked, device + 8);
		MUST(cuPointerGetAttribute(&small, CU_POINTER_ATTRIBUTE_HOST_POINTER, device + 8));
		CHECK(small == host + 2, "the host pointer is told as %p, not %p", (void *)small, (void *)(host + 2));
		MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
		CHECK(type == CU_MEMORYTYPE_HOST, "memory of type %d", (int)type);
		both_ways(host, device, N, "registered memory by another address");
		neighbours(host, device);
		polled(host, device);

		/* Fills and copies by each. */
		MUST(cuMemAlloc(&plain, size));
		MUST(cuMemsetD32(device, 7, 100));
		MUST(cuMemsetD32(at + 400, 8, 100));
		CHECK(host[0] == 7 && host[99] == 7 && host[100] == 8 && host[199] == 8, "fills: %u %u %u", host[0], host[99], host[100]);
		MUST(cuMemcpyHtoD(plain, (void *)(uintptr_t)device, size));
		MUST(cuMemcpyDtoH(words, plain + 396, 8));
		CHECK(words[0] == 7 && words[1] == 8, "copied by its device pointer: %u %u", words[0], words[1]);
		MUST(cuMemsetD32(plain, 9, N));
		MUST(cuMemcpyDtoD(device, plain, N * 4));
		for (unsigned int i = 0; i < N; i++)
			wrong += host[i] != 9;
		CHECK(!wrong, "copied to its device pointer: %d words", wrong);
		MUST(cuMemcpyDtoD(plain, device + 4, 4));

		/* A stream waits for a word and writes one. */
		MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		memset(ops, 0, sizeof(ops));
		ops[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		ops[0].waitValue.address = device;
		ops[0].waitValue.value = 1234;
		ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
		ops[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ops[1].writeValue.address = device + 4;
		ops[1].writeValue.value = 4321;
		MUST(cuStreamBatchMemOp_v2(stream, 2, ops, 0));
		MUST(cuStreamWaitValue32_v2(stream, at + 8, 5, CU_STREAM_WAIT_VALUE_EQ));
		MUST(cuStreamWriteValue32_v2(stream, at + 12, 6, 0));
		EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
		host[0] = 1234;
		host[2] = 5;
		MUST(cuStreamSynchronize(stream));
		CHECK(host[1] == 4321 && host[3] == 6, "words that the stream wrote: %u %u", host[1], host[3]);
		MUST(cuStreamDestroy(stream));
		MUST(cuMemFree(plain));
		MUST(cuMemHostUnregister(host));
		EXPECT(cuMemcpyDtoD(device, device + 64, 4), CUDA_ERROR_INVALID_VALUE);
	}
	return prog_end();
}

int main(int argc, char **argv)
{
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
	if (argc > 2 && !strcmp(argv[1], "at")) {
		free(registered);
		return moved(strtoull(argv[2], NULL, 16));
	}

	MUST(cuMemHostAlloc((void **)&made, N * 4, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&device, made, 0));
	both_ways(made, device, N, "memory that CUDA made");
	neighbours(made, device);
	scattered();
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
