// SPDX-License-Identifier: Apache-2.0
/*
 * Page-locked memory as the source and destination of copies: what has arrived after which wait, when sources are read,
 * and the codes of its functions.
 */
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

int main(void)
{
	CUmodule module;

	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	waited_for_through_another();
	spin_on(NULL, 1000);
	MUST(cuCtxSynchronize());
	return prog_end();
}
