// SPDX-License-Identifier: Apache-2.0
// Variables of a module: what kernels change, and pointers that the driver fills in.
#include <cstdint>

extern "C" {

__device__ uint32_t counter = 7;
__device__ uint32_t history[1000];
// Filled in by whoever loads it.
__device__ uint32_t *to_counter = &counter;
__device__ uint32_t *to_middle[3] = { &history[10], nullptr, &history[500] };
__constant__ uint32_t factors[4] = { 3, 5, 7, 11 };
__constant__ uint32_t *const_to_counter = &counter;
// Filled in by kernels, or by nobody.
__device__ uint32_t *stored;

// One step: out gets what it came to.
__global__ void step(uint32_t by, uint32_t *out)
{
	*to_counter += by;
	*const_to_counter += factors[by % 4];
	history[counter % 1000] += by;
	*to_middle[0] += 1;
	*to_middle[2] += 2;
	out[0] = counter;
	out[1] = history[10];
	out[2] = history[500];
	out[3] = history[counter % 1000];
	out[4] = stored ? *stored : 0;
}

// Somebody comes to know where a variable lies.
__global__ void tell(uint64_t *out)
{
	out[0] = (uint64_t)&counter;
}

// A variable does.
__global__ void store()
{
	stored = &counter;
}

__global__ void add(uint64_t *where, uint32_t by)
{
	*(uint32_t *)*where += by;
}

__global__ void add_at(uint32_t *where, uint32_t by)
{
	*where += by;
}

}
