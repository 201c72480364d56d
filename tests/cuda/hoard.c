// SPDX-License-Identifier: Apache-2.0
/*
 * One program of several on a GPU, and what it leaves to the others.
 *
 *	hoard keep MIB		has so much, frees it, says "ready", and lives until its input ends
 *	hoard take MIB RESULT	must be given so much, or RESULT, the number of an error; writes and reads it where it is given; "took MS"
 *	hoard			takes 64 MiB
 */
#include <time.h>

#include "tests/cuda/prog.h"

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void keep(size_t bytes)
{
	CUdeviceptr at;
	char byte;

	MUST(cuMemAlloc(&at, bytes));
	MUST(cuMemsetD8(at, 1, bytes));
	MUST(cuMemFree(at));
	MUST(cuCtxSynchronize());
	printf("ready\n");
	while (read(0, &byte, 1) > 0)
		;
	/* It can still have it all, unless somebody else has it now. */
	CHECK(cuMemAlloc(&at, 1 << 20) == CUDA_SUCCESS, "one MiB");
}

static void take(size_t bytes, CUresult want)
{
	unsigned char last = 0;
	CUdeviceptr at = 0;
	double began = now_ms();
	CUresult result = cuMemAlloc(&at, bytes);

	printf("took %.0f\n", now_ms() - began);
	CHECK(result == want, "%zu MiB: %s", bytes >> 20, prog_error(result));
	if (result != CUDA_SUCCESS)
		return;
	MUST(cuMemsetD8(at, 7, bytes));
	MUST(cuMemcpyDtoH(&last, at + bytes - 1, 1));
	CHECK(last == 7, "the last byte is %u", last);
	MUST(cuMemFree(at));
}

int main(int argc, char **argv)
{
	CUdevice device;

	prog_context(&device);
	if (argc < 3)
		take(64 << 20, CUDA_SUCCESS);
	else if (strcmp(argv[1], "keep") == 0)
		keep(strtoull(argv[2], NULL, 0) << 20);
	else
		take(strtoull(argv[2], NULL, 0) << 20, argc > 3 ? (CUresult)atoi(argv[3]) : CUDA_SUCCESS);
	return prog_end();
}
