// SPDX-License-Identifier: Apache-2.0
// nvcc: -arch=compute_75
// Atomics on global and shared memory.
#include <cstdint>
#include <cuda_fp16.h>

extern "C" __global__ void histogram(const uint8_t *in, uint32_t *bins, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&bins[in[i]], 1u);
}

// out: sum, least, greatest, and, or, xor, unsigned least and greatest
extern "C" __global__ void integer_atomics(const int *in, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	atomicAdd(&out[0], in[i]);
	atomicMin(&out[1], in[i]);
	atomicMax(&out[2], in[i]);
	atomicAnd(&out[3], in[i] | 0xff00);
	atomicOr(&out[4], in[i] & 0x0ff0);
	atomicXor(&out[5], in[i]);
	atomicMin((unsigned int *)&out[6], (unsigned int)in[i]);
	atomicMax((unsigned int *)&out[7], (unsigned int)in[i]);
	atomicSub(&out[8], in[i]);
}

extern "C" __global__ void long_atomics(const long long *in, long long *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	atomicAdd((unsigned long long *)&out[0], (unsigned long long)in[i]);
	atomicMin(&out[1], in[i]);
	atomicMax(&out[2], in[i]);
	atomicAnd((unsigned long long *)&out[3], (unsigned long long)in[i] | 0xff);
	atomicOr((unsigned long long *)&out[4], (unsigned long long)in[i] & 0xffff0000);
	atomicXor((unsigned long long *)&out[5], (unsigned long long)in[i]);
}

// Each thread gets a ticket of its own, counted around.
extern "C" __global__ void tickets(uint32_t *counter, uint32_t *seen, uint32_t limit)
{
	uint32_t up = atomicInc(&counter[0], limit - 1);
	uint32_t down = atomicDec(&counter[1], limit - 1);

	atomicAdd(&seen[up], 1u);
	atomicAdd(&seen[limit + down], 1u);
}

// The greatest float, by compare and swap.
extern "C" __global__ void float_greatest(const float *in, float *out, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		int *at = (int *)out;
		int old = *at;

		while (__int_as_float(old) < in[i]) {
			int assumed = old;

			old = atomicCAS(at, assumed, __float_as_int(in[i]));
			if (old == assumed)
				break;
		}
	}
}

extern "C" __global__ void float_atomics(const float *in, float *sum, double *wide, int n)
{
	__shared__ float part;
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (threadIdx.x == 0)
		part = 0;
	__syncthreads();
	if (i < n) {
		atomicAdd(&part, in[i]);
		atomicAdd(wide, (double)in[i]);
	}
	__syncthreads();
	if (threadIdx.x == 0)
		atomicAdd(sum, part);
}

extern "C" __global__ void half_atomics(__half2 *sum, __half *one, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		atomicAdd(sum, __halves2half2(__float2half(1.0f), __float2half(i % 2 ? 2.0f : 0.5f)));
		atomicAdd(one, __float2half(0.25f));
	}
}

// Blocks that wait for each other in order: each adds to what the one before has left.
extern "C" __global__ void chain(volatile int *done, volatile uint32_t *value)
{
	int b = blockIdx.x;

	if (threadIdx.x == 0) {
		while (done[b] == 0)
			;
		__threadfence();
		value[b + 1] = value[b] * 3 + b;
		__threadfence();
		done[b + 1] = 1;
	}
}

extern "C" __global__ void short_swaps(unsigned short *lock, int *counter)
{
	for (bool done = false; !done;) {
		if (atomicCAS(lock, (unsigned short)0, (unsigned short)1) == 0) {
			*(volatile int *)counter += 1;
			__threadfence();
			*(volatile unsigned short *)lock = 0;
			done = true;
		}
	}
}
