// SPDX-License-Identifier: Apache-2.0
// What the driver provides to kernels: printf, assert, trap, malloc.
#include <cassert>
#include <cstdint>
#include <cstdio>

extern "C" __global__ void print_all(const char *name, double real)
{
	if (threadIdx.x == 1)
		printf("%s: %d %5u|%-6x|%08.3f %c %lld %p %% %g\n", "text", -5, 7u, 255, real, 'z', -1234567890123ll, (void *)16,
		       (float)real * 2);
	if (threadIdx.x == 2)
		printf("no arguments\n");
	if (threadIdx.x == 3)
		printf("%*d|%-*d|%.*f|%s\n", 6, 42, 6, 42, 2, real, name);
}

extern "C" __global__ void check(const int *in)
{
	assert(in[threadIdx.x] >= 0);
}

extern "C" __global__ void stop(int which)
{
	if (threadIdx.x == which)
		__trap();
}

extern "C" __global__ void from_heap(int *out)
{
	int *memory = (int *)malloc(16 * sizeof(int));

	for (int i = 0; i < 16; i++)
		memory[i] = threadIdx.x * i;
	out[threadIdx.x] = memory[threadIdx.x % 16];
	free(memory);
}
