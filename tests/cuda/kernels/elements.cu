// SPDX-License-Identifier: Apache-2.0
// nvcc: -arch=compute_75 -fmad=false
// Each function of elements.h as a kernel over arrays. No contraction: plain C has none.
#include <cstdint>

#define ELEMENT(name, type, ...) \
	static __device__ type name##_of(type a, type b) __VA_ARGS__ \
	extern "C" __global__ void name(const type *x, const type *y, type *out, int n) \
	{ \
		for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) \
			out[i] = name##_of(x[i], y[i]); \
	}
#include "elements.h"
