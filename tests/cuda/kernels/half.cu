// SPDX-License-Identifier: Apache-2.0
// nvcc: -arch=compute_80
// Half precision and bfloat16 as programs use them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_axpy(const __half *x, const __half *y, __half *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = __hfma(x[i], __float2half(1.5f), y[i]);
}

extern "C" __global__ void half2_mix(const __half2 *x, const __half2 *y, __half2 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		__half2 v = __hadd2(__hmul2(x[i], y[i]), __hsub2(x[i], y[i]));

		v = __hmax2(v, __hneg2(x[i]));
		out[i] = __hmin2(v, __habs2(y[i]));
	}
}

extern "C" __global__ void half_dot(const __half *x, const __half *y, float *out, int n)
{
	__shared__ float sums[128];
	float sum = 0;

	for (int i = threadIdx.x; i < n; i += blockDim.x)
		sum += __half2float(x[i]) * __half2float(y[i]);
	sums[threadIdx.x] = sum;
	__syncthreads();
	for (int step = 64; step > 0; step /= 2) {
		if (threadIdx.x < step)
			sums[threadIdx.x] += sums[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*out = sums[0];
}

extern "C" __global__ void bf16_scale(const __nv_bfloat16 *x, __nv_bfloat16 *out, float by, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = __float2bfloat16(__bfloat162float(x[i]) * by);
}

extern "C" __global__ void bf162_fma(const __nv_bfloat162 *x, const __nv_bfloat162 *y, __nv_bfloat162 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = __hfma2(x[i], y[i], x[i]);
}

extern "C" __global__ void half_compare(const __half *x, const __half *y, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = __hlt(x[i], y[i]) + 2 * __heq(x[i], y[i]) + 4 * __hgtu(x[i], y[i]) + 8 * __hisnan(x[i]) +
			 16 * __half2int_rn(__hmin(x[i], __float2half(100.f))) % 1000;
}
