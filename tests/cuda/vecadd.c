// SPDX-License-Identifier: Apache-2.0
/*
 * c = a + b on the GPU, compared with the CPU: the smallest whole program.
 * Usage: vecadd [ELEMENTS [LAUNCHES [MILLISECONDS BETWEEN THEM]]]
 */
#include "tests/cuda/prog.h"

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1 << 20;
	int launches = argc > 2 ? atoi(argv[2]) : 1;
	int pause_ms = argc > 3 ? atoi(argv[3]) : 0;
	size_t size = (size_t)n * sizeof(float);
	float *a = malloc(size), *b = malloc(size), *c = malloc(size);
	CUdeviceptr da, db, dc;
	CUfunction vecadd;
	CUdevice device;
	char name[128];
	uint32_t seed = 1;
	int wrong = 0;

	prog_context(&device);
	MUST(cuDeviceGetName(name, sizeof(name), device));
	printf("vecadd: %d elements, %d launches on %s\n", n, launches, name);
	vecadd = prog_function("vecadd", "vecadd");
	for (int i = 0; i < n; i++) {
		a[i] = (float)prog_random(&seed) / 1024;
		b[i] = (float)prog_random(&seed) / 1024;
	}
	MUST(cuMemAlloc(&da, size));
	MUST(cuMemAlloc(&db, size));
	MUST(cuMemAlloc(&dc, size));
	MUST(cuMemcpyHtoD(da, a, size));
	MUST(cuMemcpyHtoD(db, b, size));
	MUST(cuMemsetD8(dc, 0xff, size));

	void *params[] = { &da, &db, &dc, &n };

	for (int i = 0; i < launches; i++) {
		CUresult result = cuLaunchKernel(vecadd, ((unsigned int)n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, params,
						 NULL);

		if (!result && pause_ms) {
			result = cuCtxSynchronize();
			usleep((useconds_t)pause_ms * 1000);
		}
		if (result) {
			printf("vecadd: launch %d: %s (%d)\n", i + 1, prog_error(result), (int)result);
			return 3;
		}
	}
	MUST(cuMemcpyDtoH(c, dc, size));
	for (int i = 0; i < n; i++)
		wrong += c[i] != a[i] + b[i];
	CHECK(!wrong, "%d of %d elements", wrong, n);
	MUST(cuMemFree(da));
	MUST(cuMemFree(db));
	MUST(cuMemFree(dc));
	free(a);
	free(b);
	free(c);
	return prog_end();
}
