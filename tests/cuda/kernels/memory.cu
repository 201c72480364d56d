// SPDX-License-Identifier: Apache-2.0
// Spaces, sizes and vectors of loads and stores.
#include <cstdint>

__constant__ int table[64];
__device__ uint32_t counter = 5;
__device__ int numbers[4] = { 10, 20, 30, 40 };
__device__ int *pointer_to_numbers = &numbers[2];
__device__ const char text[] = "device text";

extern "C" __global__ void constants(const int *in, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = table[in[i] & 63] + table[5] + *pointer_to_numbers + numbers[i & 3] + text[i % 11];
}

extern "C" __global__ void globals(uint32_t by)
{
	atomicAdd(&counter, by);
}

struct arguments {
	uint8_t small;
	uint16_t shorter[3];
	double real;
	float4 four;
	char name[7];
};

extern "C" __global__ void parameters(arguments a, char b, short c, int d, long long e, float f, arguments *out)
{
	if (threadIdx.x == 0) {
		a.small += b;
		a.shorter[d & 1] += c;
		a.real += e + f;
		a.four.z *= 2;
		a.name[threadIdx.x + d] = 'x';
		*out = a;
	}
}

extern "C" __global__ void vectors(const float4 *in, const uint2 *pairs, float4 *out, ushort4 *small, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		float4 v = __ldg(&in[i]);
		uint2 p = pairs[i];

		out[i] = make_float4(v.w + p.x, v.z, v.y * p.y, v.x);
		small[i] = make_ushort4(p.x, p.x >> 16, p.y, p.y >> 16);
	}
}

extern "C" __global__ void small_types(const int8_t *a, const uint8_t *b, const int16_t *c, const uint16_t *d, int64_t *out,
				       int8_t *narrow, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[i] = (int64_t)a[i] * 1000000 + b[i] * 1000 + c[i] - d[i];
		narrow[i] = (int8_t)(a[i] + b[i]);
	}
}

// A pointer that may lead to any space.
extern "C" __global__ void any_space(int *global, int *out, int n)
{
	__shared__ int shared[64];
	int local[4];
	int t = threadIdx.x;
	int *p;

	shared[t] = t * 10;
	for (int i = 0; i < 4; i++)
		local[i] = t + i * 100;
	__syncthreads();
	if (t % 3 == 0)
		p = &shared[63 - t];
	else if (t % 3 == 1)
		p = &local[n & 3];
	else
		p = &global[t];
	*p += 1;
	out[t] = *p + (__isShared(p) ? 1000 : 0) + (__isGlobal(p) ? 2000 : 0) + (__isLocal(p) ? 4000 : 0);
}

extern "C" __global__ void dynamic_shared(const double *in, double *out)
{
	extern __shared__ double room[];
	char *bytes = (char *)&room[blockDim.x];
	int t = threadIdx.x;

	room[t] = in[t];
	bytes[t] = (char)t;
	__syncthreads();
	out[t] = room[blockDim.x - 1 - t] + bytes[(t + 1) % blockDim.x];
}

extern "C" __global__ void stray_read(const int *in, int *out, int where)
{
	out[threadIdx.x] = in[threadIdx.x == 3 ? where : threadIdx.x];
}

extern "C" __global__ void stray_write(int *out, long long where)
{
	out[threadIdx.x == 5 ? where : threadIdx.x] = 1;
}

extern "C" __global__ void misaligned(char *at)
{
	*(int *)(at + threadIdx.x) = 1;
}

extern "C" __global__ void stray_shared(int *out, int where)
{
	__shared__ int box[32];

	box[threadIdx.x] = threadIdx.x;
	__syncthreads();
	out[threadIdx.x] = box[threadIdx.x + where];
}

extern "C" __global__ void forever(volatile int *flag)
{
	while (*flag == 0)
		;
}

extern "C" __global__ void forever_quiet(int *out)
{
	int x = threadIdx.x;

	asm volatile("{\n\tAGAIN: add.s32 %0, %0, 1;\n\tbra AGAIN;\n\t}" : "+r"(x));
	*out = x;
}
