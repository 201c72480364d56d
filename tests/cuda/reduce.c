// SPDX-License-Identifier: Apache-2.0
/*
 * A sum with barriers in shared memory and an atomic per block, compared with the CPU. Whole numbers below 2^24, so that
 * every order gives the same float.
 */
#include "tests/cuda/prog.h"

static void reduce_check(CUfunction reduce, int n, unsigned int blocks)
{
	float *in = malloc((size_t)n * sizeof(float));
	float want = 0, sum = 0;
	CUdeviceptr din, dout;
	uint32_t seed = (uint32_t)n;

	for (int i = 0; i < n; i++) {
		in[i] = (float)(prog_random(&seed) % 8);
		want += in[i];
	}
	MUST(cuMemAlloc(&din, (size_t)n * sizeof(float)));
	MUST(cuMemAlloc(&dout, sizeof(float)));
	MUST(cuMemcpyHtoD(din, in, (size_t)n * sizeof(float)));
	MUST(cuMemsetD32(dout, 0, 1));

	void *params[] = { &din, &dout, &n };

	MUST(cuLaunchKernel(reduce, blocks, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&sum, dout, sizeof(sum)));
	CHECK(sum == want, "sum of %d elements with %u blocks: %.1f, not %.1f", n, blocks, (double)sum, (double)want);
	MUST(cuMemFree(din));
	MUST(cuMemFree(dout));
	free(in);
}

int main(void)
{
	CUfunction reduce;

	prog_context(NULL);
	reduce = prog_function("reduce", "reduce_sum");
	reduce_check(reduce, 1, 1);
	reduce_check(reduce, 255, 1);
	reduce_check(reduce, 1000, 3);
	reduce_check(reduce, 1 << 20, 64);
	reduce_check(reduce, 999983, 1);
	return prog_end();
}
