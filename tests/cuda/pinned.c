// SPDX-License-Identifier: Apache-2.0
/*
 * Page-locked memory as the source and destination of copies: what has arrived after which wait, when sources are read,
 * and the codes of its functions.
 */
#include <sys/mman.h>

#include "tests/cuda/prog.h"

enum { BIG = 4 << 20 };

static CUfunction add, spin;

static void spin_on(CUstream stream, unsigned long long ns)
{
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void add_on(CUdeviceptr data, unsigned int value, unsigned long long n, CUstream stream)
{
	void *params[] = { &data, &value, &n };

	MUST(cuLaunchKernel(add, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

/* Stream b waits for an event behind a copy on stream a; whoever has waited for b, by any means, finds a's bytes. */
static void waited_for_through_another(void)
{
	CUstream a, b;
	CUevent behind, end;
	CUdeviceptr device, scratch;
	unsigned int *host;
	int wrong = 0;

	MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&behind, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAlloc(&device, BIG));
	MUST(cuMemAlloc(&scratch, 4096));
	MUST(cuMemHostAlloc((void **)&host, BIG, 0));
	for (unsigned int turn = 1; turn <= 24; turn++) {
		MUST(cuMemsetD32Async(device, turn, BIG / 4, a));
		MUST(cuMemcpyDtoHAsync(host, device, BIG, a));
		MUST(cuEventRecord(behind, a));
		MUST(cuStreamWaitEvent(b, behind, 0));
		add_on(scratch, 1, 16, b);
		switch (turn % 3) {
		case 0:
			MUST(cuStreamSynchronize(b));
			break;
		case 1:
			MUST(cuEventRecord(end, b));
			MUST(cuEventSynchronize(end));
			break;
		default:
			while (cuStreamQuery(b) == CUDA_ERROR_NOT_READY)
				;
		}
		wrong += host[0] != turn || host[BIG / 8] != turn || host[BIG / 4 - 1] != turn;
	}
	CHECK(!wrong, "%d of 24 waits for a stream that had waited for the copy's came before its bytes", wrong);
	MUST(cuMemFreeHost(host));
	MUST(cuMemFree(scratch));
	MUST(cuMemFree(device));
	MUST(cuEventDestroy(end));
	MUST(cuEventDestroy(behind));
	MUST(cuStreamDestroy(b));
	MUST(cuStreamDestroy(a));
}

static const char *const flags_ptx =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	/* Waits until *flag isn't 0 (10 s at most), then copies it to *to. */
	".visible .entry wait_for(.param .u64 flag, .param .u64 to)\n{\n\t.reg .pred %p<3>;\n\t.reg .b32 %r<2>;\n\t.reg .b64 %d<8>;\n"
	"\tld.param.u64 %d1, [flag];\n\tld.param.u64 %d2, [to];\n\tmov.u64 %d3, %globaltimer;\n"
	"again:\n\tld.volatile.global.u32 %r1, [%d1];\n\tsetp.ne.u32 %p1, %r1, 0;\n\t@%p1 bra done;\n"
	"\tmov.u64 %d4, %globaltimer;\n\tsub.u64 %d5, %d4, %d3;\n\tsetp.lt.u64 %p2, %d5, 10000000000;\n\t@%p2 bra again;\n"
	"done:\n\tst.global.u32 [%d2], %r1;\n\tret;\n}\n"
	/* **table += by: by a pointer that lies in memory. */
	".visible .entry by_pointer(.param .u64 table, .param .u32 by)\n{\n\t.reg .b32 %r<4>;\n\t.reg .b64 %d<3>;\n"
	"\tld.param.u64 %d1, [table];\n\tld.param.u32 %r1, [by];\n\tld.global.u64 %d2, [%d1];\n\tld.global.u32 %r2, [%d2];\n"
	"\tadd.u32 %r3, %r2, %r1;\n\tst.global.u32 [%d2], %r3;\n\tret;\n}\n";

static void flags(void)
{
	const unsigned int kinds[] = { 0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_WRITECOMBINED,
				       CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED };
	void *host = NULL;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		unsigned int told = 99, type = 0;
		CUdeviceptr device = 0;

		MUST(cuMemHostAlloc(&host, 10000, kinds[i]));
		MUST(cuMemHostGetFlags(&told, host));
		/* Every context maps, so natively that bit comes back whether it was asked for or not. */
		CHECK((told | CU_MEMHOSTALLOC_DEVICEMAP) == (kinds[i] | CU_MEMHOSTALLOC_DEVICEMAP), "flags %u come back as %u", kinds[i],
		      told);
		MUST(cuMemHostGetDevicePointer_v2(&device, host, 0));
		CHECK(device == (CUdeviceptr)(uintptr_t)host, "a device pointer of its own: %llx, %p", device, host);
		MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device + 9999));
		CHECK(type == CU_MEMORYTYPE_HOST, "its type: %u", type);
		EXPECT(cuMemHostGetDevicePointer_v2(&device, host, 1), CUDA_ERROR_INVALID_VALUE);
		MUST(cuMemFreeHost(host));
	}
	EXPECT(cuMemHostAlloc(&host, 100, 0x80), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostAlloc(&host, 0, 0x80), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostAlloc(&host, 0, 0), CUDA_SUCCESS);
	CHECK(!host, "nothing lies at %p", host);
	EXPECT(cuMemFreeHost(host), CUDA_SUCCESS);
}

static void registering(void)
{
	const size_t size = 3 << 20;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *hole = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr device;
	CUstream stream;
	int wrong = 0;

	/* Odd places and sizes. */
	MUST(cuMemHostRegister(memory + 4096 + 13, 5001, 0));
	EXPECT(cuMemHostRegister(memory + 4096 + 13, 5001, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	EXPECT(cuMemHostRegister(memory + 8192, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	EXPECT(cuMemHostRegister(memory, size, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK(cuMemHostUnregister(memory + 8192) != CUDA_SUCCESS, "unregistered in the middle");
	MUST(cuMemHostUnregister(memory + 4096 + 13));
	EXPECT(cuMemHostUnregister(memory + 4096 + 13), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	/* What isn't there, in part or at all, and what can't be. */
	munmap(hole + 4096, 4096);
	CHECK(cuMemHostRegister(hole, 3 * 4096, 0) != CUDA_SUCCESS, "a range with a hole is registered");
	CHECK(cuMemHostRegister(hole + 4096, 4096, 0) != CUDA_SUCCESS, "a hole is registered");
	CHECK(cuMemHostRegister(memory, 1ull << 46, 0) != CUDA_SUCCESS, "64 TiB are registered");
	EXPECT(cuMemHostRegister(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostRegister(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
	munmap(hole, 4096);
	munmap(hole + 8192, 4096);

	/* Unregistered while a copy into it is on its way: it arrives, and nothing comes later. */
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&device, size));
	MUST(cuMemsetD8(device, 9, size));
	MUST(cuCtxSynchronize()); /* the stream below doesn't wait for the legacy one */
	memset(memory, 1, size);
	MUST(cuMemHostRegister(memory, size, CU_MEMHOSTREGISTER_PORTABLE));
	spin_on(stream, 30000000);
	MUST(cuMemcpyDtoHAsync(memory, device, size, stream));
	MUST(cuMemHostUnregister(memory));
	MUST(cuStreamSynchronize(stream));
	for (size_t i = 0; i < size; i += 4096)
		wrong += memory[i] != 9;
	CHECK(!wrong && memory[size - 1] == 9, "%d pages of a copy into memory that is unregistered meanwhile", wrong);
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(device));
	munmap(memory, size);
}

/* A kernel waits for a word of the host's, which comes without a CUDA call. */
static void flag_for_the_kernel(CUfunction wait_for)
{
	unsigned int *host;
	CUdeviceptr flag, to;
	void *params[] = { &flag, &to };
	double from;

	MUST(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&flag, host, 0));
	to = flag + 2048;
	host[0] = host[512] = 0;
	MUST(cuLaunchKernel(wait_for, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	usleep(50000);
	CHECK(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY && !*(volatile unsigned int *)&host[512], "it did not wait");
	from = prog_seconds();
	*(volatile unsigned int *)host = 4711;
	while (*(volatile unsigned int *)&host[512] != 4711 && prog_seconds() < from + 8)
		usleep(100);
	CHECK(host[512] == 4711, "a flag that a kernel polls");
	MUST(cuCtxSynchronize());
	MUST(cuMemFreeHost(host));
}

/* Kernels reach memory by pointers that lie in device memory, or in other memory of the host. */
static void by_pointers(CUfunction by_pointer)
{
	unsigned int *host, *other, by = 5;
	unsigned long long *table;
	CUdeviceptr device, at;
	void *params[] = { &at, &by };

	MUST(cuMemHostAlloc((void **)&host, 8192, 0));
	MUST(cuMemHostAlloc((void **)&other, 8192, 0));
	MUST(cuMemHostAlloc((void **)&table, 4096, 0));
	MUST(cuMemAlloc(&device, 8));
	host[3] = 100;
	at = (CUdeviceptr)(uintptr_t)&host[3];
	MUST(cuMemcpyHtoD(device, &at, 8));
	at = device;
	MUST(cuLaunchKernel(by_pointer, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	CHECK(host[3] == 105, "by a pointer in device memory: %u", host[3]);
	other[7] = 200;
	table[1] = (unsigned long long)(uintptr_t)&other[7];
	at = (CUdeviceptr)(uintptr_t)&table[1];
	MUST(cuLaunchKernel(by_pointer, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	CHECK(other[7] == 205, "by a pointer in host memory: %u", other[7]);
	MUST(cuMemFree(device));
	MUST(cuMemFreeHost(table));
	MUST(cuMemFreeHost(other));
	MUST(cuMemFreeHost(host));
}

/* A graph's source is read at each launch; a source that a kernel writes before the copy is read after it. */
static void sources(void)
{
	unsigned int *host, result = 0;
	CUdeviceptr device;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemHostAlloc((void **)&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemAlloc(&device, 4096));
	host[0] = 1;
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(cuMemcpyHtoDAsync(device, host, 4096, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned int turn = 10; turn < 13; turn++) {
		host[0] = turn;
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		MUST(cuMemcpyDtoH(&result, device, 4));
		CHECK(result == turn, "a graph's launch read %u, not %u", result, turn);
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	host[0] = 50;
	spin_on(stream, 10000000);
	add_on((CUdeviceptr)(uintptr_t)host, 7, 1, stream);
	MUST(cuMemcpyHtoDAsync(device, host, 4096, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(&result, device, 4));
	CHECK(result == 57 && host[0] == 57, "a source that a kernel writes: %u, %u", result, host[0]);
	MUST(cuMemFree(device));
	MUST(cuMemFreeHost(host));
	MUST(cuStreamDestroy(stream));
}

int main(void)
{
	CUfunction wait_for, by_pointer;
	CUmodule module;

	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleLoadData(&module, flags_ptx));
	MUST(cuModuleGetFunction(&wait_for, module, "wait_for"));
	MUST(cuModuleGetFunction(&by_pointer, module, "by_pointer"));
	waited_for_through_another();
	flags();
	registering();
	flag_for_the_kernel(wait_for);
	by_pointers(by_pointer);
	sources();
	return prog_end();
}
