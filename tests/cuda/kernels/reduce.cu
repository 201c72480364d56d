// SPDX-License-Identifier: Apache-2.0
// *out += sum of in[0 .. n-1]: a tree in shared memory for each block, an atomic for its result.
extern "C" __global__ void reduce_sum(const float *in, float *out, int n)
{
	__shared__ float part[256];
	float sum = 0.0f;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		sum += in[i];
	part[threadIdx.x] = sum;
	__syncthreads();
	for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		atomicAdd(out, part[0]);
}
