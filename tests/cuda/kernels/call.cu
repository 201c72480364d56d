// SPDX-License-Identifier: Apache-2.0
// Functions that are called: directly, by pointer, by themselves.
#include <cstdint>

struct triple {
	int32_t a;
	double b;
	uint8_t c[5];
};

static __device__ __noinline__ triple make_triple(int x, triple t)
{
	t.a += x;
	t.b *= 0.5;
	for (int i = 0; i < 5; i++)
		t.c[i] = (uint8_t)(t.c[i] + i * x);
	return t;
}

extern "C" __global__ void structures(const int *in, double *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		triple t = { in[i], in[i] * 1.5, { 1, 2, 3, 4, 5 } };

		t = make_triple(in[i] & 7, t);
		if (in[i] & 1)
			t = make_triple(3, t);
		out[i] = t.a + t.b + t.c[0] + 2 * t.c[1] + 3 * t.c[2] + 4 * t.c[3] + 5 * t.c[4];
	}
}

static __device__ __noinline__ uint32_t fibonacci(uint32_t n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

extern "C" __global__ void recursion(const uint32_t *in, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = fibonacci(in[i] % 12);
}

static __device__ __noinline__ int op_add(int a, int b)
{
	return a + b;
}
static __device__ __noinline__ int op_sub(int a, int b)
{
	return a - b;
}
static __device__ __noinline__ int op_mul(int a, int b)
{
	return a * b;
}
static __device__ __noinline__ int op_mix(int a, int b)
{
	return op_add(op_mul(a, 3), op_sub(b, 7));
}

typedef int (*operation)(int, int);
__device__ operation operations[4] = { op_add, op_sub, op_mul, op_mix };
__constant__ operation constant_operations[2] = { op_mix, op_sub };

// Each lane by a pointer of its own.
extern "C" __global__ void by_table(const int *a, const int *b, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = operations[a[i] & 3](a[i], b[i]) + constant_operations[b[i] & 1](b[i], a[i]);
}

struct shape {
	__device__ shape(float s) : size(s)
	{
	}
	virtual __device__ float area() const = 0;
	virtual __device__ float weight(float by) const
	{
		return area() * by;
	}
	float size;
};

struct square : shape {
	__device__ square(float s) : shape(s)
	{
	}
	__device__ float area() const override
	{
		return size * size;
	}
};

struct circle : shape {
	__device__ circle(float s) : shape(s)
	{
	}
	__device__ float area() const override
	{
		return size * size * 3.0f;
	}
	__device__ float weight(float by) const override
	{
		return area() + by;
	}
};

extern "C" __global__ void virtuals(const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		square s(in[i]);
		circle c(in[i]);
		const shape *which = i % 3 ? (const shape *)&s : (const shape *)&c;

		out[i] = which->weight(2.0f) + which->area();
	}
}

static __device__ __noinline__ int walk_even(int n, operation *table);
static __device__ __noinline__ int walk_odd(int n, operation *table)
{
	return n == 0 ? 0 : table[n & 3](n, walk_even(n - 1, table));
}
static __device__ __noinline__ int walk_even(int n, operation *table)
{
	return n == 0 ? 1 : table[(n + 1) & 3](walk_odd(n - 1, table), n);
}

extern "C" __global__ void mutual(const int *in, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = walk_odd(in[i] & 7, operations);
}

// The address of a function goes out and comes in again as a parameter.
extern "C" __global__ void give_pointer(operation *out, int which)
{
	*out = operations[which];
}

extern "C" __global__ void take_pointer(operation f, const int *in, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = f(in[i], i);
}
