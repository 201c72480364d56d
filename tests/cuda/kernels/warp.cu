// SPDX-License-Identifier: Apache-2.0
// Lanes of a warp together: shuffles, votes, matches.
#include <cstdint>

extern "C" __global__ void warp_reduce(const int *in, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int sum = in[i];
	int least = in[i];

	for (int offset = 16; offset > 0; offset /= 2) {
		sum += __shfl_down_sync(0xffffffff, sum, offset);
		least = min(least, __shfl_xor_sync(0xffffffff, least, offset));
	}
	if (threadIdx.x % 32 == 0)
		out[i / 32] = sum * 3 + least;
}

extern "C" __global__ void warp_scan(const float *in, float *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int lane = threadIdx.x % 32;
	float sum = in[i];

	for (int offset = 1; offset < 32; offset *= 2) {
		float other = __shfl_up_sync(0xffffffff, sum, offset);

		if (lane >= offset)
			sum += other;
	}
	out[i] = sum;
}

// Segments of eight, rotated; 64-bit values go in two.
extern "C" __global__ void rotate_segments(const uint64_t *in, uint64_t *out, int by)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = __shfl_sync(0xffffffff, in[i], threadIdx.x + by, 8) + __shfl_up_sync(0xffffffff, in[i], 3, 16);
}

extern "C" __global__ void votes(const int *in, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t ballot = __ballot_sync(0xffffffff, in[i] & 1);
	bool all = __all_sync(0xffffffff, in[i] > -1000);
	bool any = __any_sync(0xffffffff, in[i] == 5);
	uint32_t some = 0;

	// a part of the warp on its own
	if (in[i] & 1)
		some = __ballot_sync(ballot, in[i] & 2);
	out[i] = (ballot ^ some) + all * 3 + any * 7 + __popc(__activemask());
}

extern "C" __global__ void matches(const int *in, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int same;
	uint32_t any = __match_any_sync(0xffffffff, in[i]);
	uint32_t all = __match_all_sync(0xffffffff, (unsigned long long)in[i & ~31] << 20, &same);

	out[i] = any ^ all ^ (same ? 0x80000000u : 0);
}

// One atomic for all lanes that want one.
extern "C" __global__ void aggregate(const int *in, uint32_t *counter, uint32_t *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = 0xffffffff;
	if (in[i] % 3 == 0) {
		uint32_t mask = __activemask();
		int leader = __ffs(mask) - 1;
		uint32_t base = 0;

		if (threadIdx.x % 32 == leader)
			base = atomicAdd(counter, __popc(mask));
		base = __shfl_sync(mask, base, leader);
		out[i] = base + __popc(mask & ((1u << (threadIdx.x % 32)) - 1));
	}
}

// Lanes contend for a lock that one of them holds: the others must not keep it from going on.
extern "C" __global__ void warp_lock(int *lock, int *counter, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		bool done = false;

		while (!done) {
			if (atomicCAS(lock, 0, 1) == 0) {
				*(volatile int *)counter += 1;
				__threadfence();
				atomicExch(lock, 0);
				done = true;
			}
		}
	}
}

// The same where the holder is left behind by the loop's shape.
extern "C" __global__ void warp_lock_spin(int *lock, int *counter)
{
	while (atomicCAS(lock, 0, 1) != 0)
		;
	*(volatile int *)counter += 1;
	__threadfence();
	atomicExch(lock, 0);
}

extern "C" __global__ void sync_halves(int *out)
{
	__shared__ int box[64];
	int t = threadIdx.x;

	box[t] = t;
	if (t % 32 < 16) {
		__syncwarp(0x0000ffff);
		out[t] = box[(t & ~15) + (t + 5) % 16];
		__syncwarp(0x0000ffff);
		box[t] = 2 * t;
		__syncwarp();
	} else {
		box[t] = 3 * t;
		__syncwarp();
		out[t] = box[t - 16];
	}
}
