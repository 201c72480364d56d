// SPDX-License-Identifier: Apache-2.0
/*
 * c = a * b with tiles in shared memory, compared with the CPU. Whole numbers, so that every order of summation gives the
 * same float. Usage: matmul [ROWS]
 */
#include "tests/cuda/prog.h"

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 256;
	size_t size = (size_t)n * (size_t)n * sizeof(float);
	float *a = malloc(size), *b = malloc(size), *c = malloc(size);
	CUdeviceptr da, db, dc;
	CUfunction matmul;
	uint32_t seed = 2;
	int wrong = 0;

	prog_context(NULL);
	matmul = prog_function("matmul", "matmul_tiled");
	for (int i = 0; i < n * n; i++) {
		a[i] = (float)(prog_random(&seed) % 17) - 8;
		b[i] = (float)(prog_random(&seed) % 17) - 8;
	}
	MUST(cuMemAlloc(&da, size));
	MUST(cuMemAlloc(&db, size));
	MUST(cuMemAlloc(&dc, size));
	MUST(cuMemcpyHtoD(da, a, size));
	MUST(cuMemcpyHtoD(db, b, size));

	unsigned int blocks = ((unsigned int)n + 15) / 16;
	void *params[] = { &da, &db, &dc, &n };
	double start = prog_seconds();

	MUST(cuLaunchKernel(matmul, blocks, blocks, 1, 16, 16, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	printf("matmul: %d x %d in %.3f s\n", n, n, prog_seconds() - start);
	MUST(cuMemcpyDtoH(c, dc, size));
	for (int row = 0; row < n; row++)
		for (int column = 0; column < n; column++) {
			float sum = 0;

			for (int k = 0; k < n; k++)
				sum += a[row * n + k] * b[k * n + column];
			wrong += c[row * n + column] != sum;
		}
	CHECK(!wrong, "%d of %d elements", wrong, n * n);
	MUST(cuMemFree(da));
	MUST(cuMemFree(db));
	MUST(cuMemFree(dc));
	free(a);
	free(b);
	free(c);
	return prog_end();
}
