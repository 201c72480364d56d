// SPDX-License-Identifier: Apache-2.0
// Kernels of random programs: each reads and writes what it is told, and launches that change places show in the result.

__device__ unsigned int shared_word = 7;

// data = data * 3 + value, every word.
extern "C" __global__ void step(unsigned int *data, unsigned int value, unsigned int n)
{
	for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		data[i] = data[i] * 3 + value;
}

// data = data * 5 + from + value.
extern "C" __global__ void mix(unsigned int *data, unsigned int value, unsigned int n, const unsigned int *from)
{
	for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		data[i] = data[i] * 5 + from[i] + value;
}

// The same as step, some time later.
extern "C" __global__ void late_step(unsigned int *data, unsigned int value, unsigned int n, unsigned int ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	} while (now - start < ns);
	__syncthreads();
	for (unsigned int i = threadIdx.x; i < n; i += blockDim.x)
		data[i] = data[i] * 3 + value;
}

// data = data * 7 + the module's word, which changes with it.
extern "C" __global__ void through_global(unsigned int *data, unsigned int value, unsigned int n)
{
	if (blockIdx.x)
		return;
	for (unsigned int i = threadIdx.x; i < n; i += blockDim.x)
		data[i] = data[i] * 7 + shared_word;
	__syncthreads();
	if (threadIdx.x == 0)
		shared_word = shared_word * 3 + value;
}
