// SPDX-License-Identifier: Apache-2.0
/*
 * secret write: fills most of the device's memory with a pattern, says so, and waits to be killed.
 * secret look: asks for most of the memory and looks for anything that is not zero. Natively a driver may give what it
 * likes; through Gleam memory is clean. Without an argument it does a little of both, so that it runs as a test.
 */
#include "tests/cuda/prog.h"

#define CHUNK (64ull << 20)

static int chunks_take(CUdeviceptr *at, int most, double share)
{
	size_t free_bytes, total;
	int count = 0;

	MUST(cuMemGetInfo(&free_bytes, &total));
	if (most > (int)(free_bytes * share / CHUNK))
		most = (int)(free_bytes * share / CHUNK);
	while (count < most && cuMemAlloc(&at[count], CHUNK) == CUDA_SUCCESS)
		count++;
	printf("%d of %d chunks, %zu MiB were free\n", count, most, free_bytes >> 20);
	CHECK(count == most && count > 0, "memory that is said to be free");
	return count;
}

int main(int argc, char **argv)
{
	static CUdeviceptr at[4096];
	bool write = argc > 1 && !strcmp(argv[1], "write");
	unsigned int *back = malloc(CHUNK);
	int count, dirty = 0;

	prog_context(NULL);
	count = chunks_take(at, argc > 1 ? 4096 : 2, 0.9);
	if (write) {
		for (int i = 0; i < count; i++)
			MUST(cuMemsetD32(at[i], 0x5ec4e7, CHUNK / 4));
		MUST(cuCtxSynchronize());
		printf("written\n");
		fflush(stdout);
		sleep(60);
		return 1;
	}
	for (int i = 0; i < count && argc > 1; i++) {
		MUST(cuMemcpyDtoH(back, at[i], CHUNK));
		for (size_t k = 0; k < CHUNK / 4; k++)
			dirty += back[k] != 0;
	}
	CHECK(!dirty, "%d words of somebody else", dirty);
	for (int i = 0; i < count; i++)
		MUST(cuMemFree(at[i]));
	free(back);
	return prog_end();
}
