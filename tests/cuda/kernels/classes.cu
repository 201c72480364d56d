// SPDX-License-Identifier: Apache-2.0
// Virtual functions: tables of them are variables, and have addresses of functions.
#include <cstdint>

struct shape {
	__device__ virtual uint32_t area(uint32_t x)
	{
		return x;
	}
};

struct square : shape {
	__device__ uint32_t area(uint32_t x) override
	{
		return x * x;
	}
};

// Virtual functions are called by a table of their class, which objects point to; this one dies with its kernel.
extern "C" __global__ void by_class(uint32_t x, uint32_t *out, int which)
{
	square a;
	shape b;
	shape *volatile one = which ? &a : &b;

	out[0] = one->area(x);
}
