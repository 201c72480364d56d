// SPDX-License-Identifier: Apache-2.0
// Barriers, shared memory, and threads that go different ways between them. Blocks of up to 256 threads.
#include <cstdint>

// Inclusive sums within each block, the simple way.
extern "C" __global__ void scan_block(const uint32_t *in, uint32_t *out, int n)
{
	__shared__ uint32_t sums[2][256];
	int t = threadIdx.x;
	int i = blockIdx.x * blockDim.x + t;
	int which = 0;

	sums[0][t] = i < n ? in[i] : 0;
	__syncthreads();
	for (int step = 1; step < blockDim.x; step *= 2) {
		sums[!which][t] = sums[which][t] + (t >= step ? sums[which][t - step] : 0);
		which = !which;
		__syncthreads();
	}
	if (i < n)
		out[i] = sums[which][t];
}

extern "C" __global__ void sort_block(uint32_t *data)
{
	extern __shared__ uint32_t keys[];
	unsigned int t = threadIdx.x;

	data += blockIdx.x * blockDim.x;
	keys[t] = data[t];
	__syncthreads();
	for (unsigned int size = 2; size <= blockDim.x; size *= 2) {
		for (unsigned int stride = size / 2; stride > 0; stride /= 2) {
			unsigned int other = t ^ stride;

			if (other > t) {
				bool up = (t & size) == 0;

				if ((keys[t] > keys[other]) == up) {
					uint32_t swap = keys[t];

					keys[t] = keys[other];
					keys[other] = swap;
				}
			}
			__syncthreads();
		}
	}
	data[t] = keys[t];
}

extern "C" __global__ void transpose(const float *in, float *out, int width, int height)
{
	__shared__ float tile[16][17];
	int x = blockIdx.x * 16 + threadIdx.x;
	int y = blockIdx.y * 16 + threadIdx.y;

	if (x < width && y < height)
		tile[threadIdx.y][threadIdx.x] = in[y * width + x];
	__syncthreads();
	x = blockIdx.y * 16 + threadIdx.x;
	y = blockIdx.x * 16 + threadIdx.y;
	if (x < height && y < width)
		out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void stencil(const float *in, float *out, int n, int rounds)
{
	__shared__ float line[258];
	int t = threadIdx.x + 1;
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	line[t] = i < n ? in[i] : 0;
	if (threadIdx.x == 0) {
		line[0] = i > 0 ? in[i - 1] : 0;
		line[blockDim.x + 1] = i + (int)blockDim.x < n ? in[i + blockDim.x] : 0;
	}
	__syncthreads();
	for (int round = 0; round < rounds; round++) {
		float value = line[t - 1] + 2 * line[t] + line[t + 1];

		__syncthreads();
		line[t] = value;
		__syncthreads();
	}
	if (i < n)
		out[i] = line[t];
}

// Votes of the whole block.
extern "C" __global__ void block_votes(const int *in, int *out)
{
	int t = threadIdx.x;
	int i = blockIdx.x * blockDim.x + t;
	int count = __syncthreads_count(in[i] > 0);
	int all = __syncthreads_and(in[i] > -100);
	int any = __syncthreads_or(in[i] == 77);

	out[i] = count * 4 + !!all * 2 + !!any;
}

// Half of the block makes, half takes, over two named barriers.
extern "C" __global__ void hand_over(const int *in, int *out, int rounds)
{
	__shared__ int box[128];
	int t = threadIdx.x % 128;
	bool maker = threadIdx.x < 128;
	int sum = 0;

	for (int round = 0; round < rounds; round++) {
		if (maker) {
			box[t] = in[round * 128 + t] * 3;
			asm volatile("bar.arrive 1, 256;" ::: "memory");
			asm volatile("bar.sync 2, 256;" ::: "memory");
		} else {
			asm volatile("bar.sync 1, 256;" ::: "memory");
			sum += box[127 - t];
			asm volatile("bar.arrive 2, 256;" ::: "memory");
		}
	}
	if (!maker)
		out[t] = sum;
}

// Threads leave one after the other; the rest still meet.
extern "C" __global__ void leave_early(int *out)
{
	__shared__ int left;
	int t = threadIdx.x;

	if (t == 0)
		left = 0;
	__syncthreads();
	for (int round = 0; round < 8; round++) {
		if (t % 8 == round) {
			out[blockIdx.x * blockDim.x + t] = atomicAdd(&left, 0) * 1000 + t;
			return;
		}
		__syncthreads();
		if (t == 7)
			left = round + 1;
		__syncthreads();
	}
}

// Longest common subsequence along diagonals.
extern "C" __global__ void subsequence(const char *a, const char *b, int n, int *out)
{
	__shared__ int cells[3][257];
	int t = threadIdx.x;

	for (int i = t; i < 3 * 257; i += blockDim.x)
		(&cells[0][0])[i] = 0;
	__syncthreads();
	for (int diagonal = 2; diagonal <= 2 * n; diagonal++) {
		int i = t + 1;
		int j = diagonal - i;
		int *now = cells[diagonal % 3];
		const int *before = cells[(diagonal + 2) % 3];
		const int *corner = cells[(diagonal + 1) % 3];

		if (i <= n && j >= 1 && j <= n) {
			if (a[i - 1] == b[j - 1])
				now[i] = corner[i - 1] + 1;
			else
				now[i] = max(before[i], before[i - 1]);
		} else if (i <= n && j <= 0) {
			now[i] = 0;
		}
		__syncthreads();
	}
	if (t == n - 1)
		*out = cells[(2 * n) % 3][n];
}

extern "C" __global__ void exchange_sort(int *data, int n)
{
	__shared__ int keys[256];
	__shared__ bool changed;
	int t = threadIdx.x;

	if (t < n)
		keys[t] = data[t];
	__syncthreads();
	for (int round = 0;; round++) {
		if (t == 0)
			changed = false;
		__syncthreads();
		for (int odd = 0; odd < 2; odd++) {
			int i = 2 * t + odd;

			if (i + 1 < n && keys[i] > keys[i + 1]) {
				int swap = keys[i];

				keys[i] = keys[i + 1];
				keys[i + 1] = swap;
				changed = true;
			}
			__syncthreads();
		}
		bool again = changed;

		__syncthreads();
		if (!again)
			break;
	}
	if (t < n)
		data[t] = keys[t];
}

extern "C" __global__ void histogram_shared(const uint8_t *in, uint32_t *bins, int n)
{
	__shared__ uint32_t local[256];

	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		local[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&local[in[i]], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		if (local[i])
			atomicAdd(&bins[i], local[i]);
}

// A block of three dimensions whose threads take turns by a loop of their own length between barriers.
extern "C" __global__ void uneven(uint32_t *out)
{
	__shared__ uint32_t sum[4];
	int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	uint32_t x = t;

	if (t < 4)
		sum[t] = 0;
	__syncthreads();
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < (t * 7 + round) % 13; i++)
			x = x * 1664525u + 1013904223u;
		atomicAdd(&sum[x >> 30], x >> 8);
		__syncthreads();
		x ^= sum[round % 4];
		__syncthreads();
	}
	out[blockIdx.x * blockDim.x * blockDim.y * blockDim.z + t] = x;
}
