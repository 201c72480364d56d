// SPDX-License-Identifier: Apache-2.0
// A table of functions, which kernels might change.
#include <cstdint>

extern "C" {

__device__ __noinline__ uint32_t twice(uint32_t x)
{
	return 2 * x;
}

__device__ __noinline__ uint32_t thrice(uint32_t x)
{
	return 3 * x;
}

typedef uint32_t (*change)(uint32_t);
__device__ change changes[2] = { twice, thrice };

// Calls by way of a table of functions.
__global__ void by_table(uint32_t x, uint32_t *out)
{
	out[0] = changes[x % 2](x);
}

// A function's address lies in memory.
__global__ void tell_function(uint64_t *out)
{
	out[0] = (uint64_t)changes[1];
}

}
