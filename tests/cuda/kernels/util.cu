// SPDX-License-Identifier: Apache-2.0
// What tests of order and memory need: kernels that take time, write patterns and fail on purpose.

// Keeps a stream busy for about @ns nanoseconds of the GPU's own clock.
extern "C" __global__ void spin(unsigned long long ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do {
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	} while (now - start < ns);
}

extern "C" __global__ void fill(unsigned int *out, unsigned int value, unsigned long long n)
{
	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
	     i += (unsigned long long)gridDim.x * blockDim.x)
		out[i] = value;
}

extern "C" __global__ void add(unsigned int *data, unsigned int value, unsigned long long n)
{
	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
	     i += (unsigned long long)gridDim.x * blockDim.x)
		data[i] += value;
}

// *out = sum of data[0 .. n-1], modulo 2^32.
extern "C" __global__ void sum(const unsigned int *data, unsigned int *out, unsigned long long n)
{
	unsigned int part = 0;

	for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
	     i += (unsigned long long)gridDim.x * blockDim.x)
		part += data[i];
	atomicAdd(out, part);
}

// data = data * 3 + value: launches that change places, or are lost, show.
extern "C" __global__ void chain(unsigned int *data, unsigned int value)
{
	if (blockIdx.x == 0 && threadIdx.x == 0)
		*data = *data * 3 + value;
}

struct mixed {
	char c;
	double d;
	short s;
	int v[3];
};

// Parameters of every size and alignment arrive as they were.
extern "C" __global__ void params(unsigned int *out, char c, short s, int i, long long l, float f, double d, mixed m)
{
	out[0] = c;
	out[1] = s;
	out[2] = i;
	out[3] = (unsigned int)l;
	out[4] = (unsigned int)(l >> 32);
	out[5] = (unsigned int)f;
	out[6] = (unsigned int)d;
	out[7] = m.c;
	out[8] = (unsigned int)m.d;
	out[9] = m.s;
	out[10] = m.v[0] + m.v[1] * 10 + m.v[2] * 100;
}

extern "C" __global__ void nothing(void)
{
}

extern "C" __global__ void write_at(unsigned int *where, unsigned int value)
{
	*where = value;
}

extern "C" __global__ void trap(void)
{
	asm volatile("trap;");
}

__device__ unsigned int counter = 5;
__constant__ unsigned int table[4] = { 1, 10, 100, 1000 };

extern "C" __global__ void globals(unsigned int *out)
{
	counter += table[threadIdx.x & 3];
	*out = counter;
}

extern "C" __global__ void dynamic_shared(unsigned int *out, unsigned int words)
{
	extern __shared__ unsigned int scratch[];

	for (unsigned int i = threadIdx.x; i < words; i += blockDim.x)
		scratch[i] = i;
	__syncthreads();
	if (threadIdx.x == 0) {
		unsigned int total = 0;

		for (unsigned int i = 0; i < words; i++)
			total += scratch[i];
		*out = total;
	}
}
