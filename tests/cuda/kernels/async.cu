// SPDX-License-Identifier: Apache-2.0
// nvcc: -arch=compute_90 -diag-suppress 20054
// What came with compute capability 8.0 and 9.0: asynchronous copies, mbarriers, warp reductions, clusters of one.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdint>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

extern "C" __global__ void copy_async(const float4 *in, float4 *out, int tiles)
{
	__shared__ float4 stage[2][64];
	int t = threadIdx.x;

	for (int tile = 0; tile < tiles + 1; tile++) {
		if (tile < tiles) {
			unsigned int to = (unsigned int)__cvta_generic_to_shared(&stage[tile & 1][t]);

			asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\tcp.async.commit_group;" ::"r"(to), "l"(&in[tile * 64 + t])
				     : "memory");
		}
		if (tile > 0) {
			if (tile < tiles)
				asm volatile("cp.async.wait_group 1;" ::: "memory");
			else
				asm volatile("cp.async.wait_all;" ::: "memory");
			__syncthreads();
			float4 v = stage[(tile - 1) & 1][63 - t];

			out[(tile - 1) * 64 + t] = make_float4(v.w, v.z, v.y, v.x);
			__syncthreads();
		}
	}
}

extern "C" __global__ void pipelined(const int *in, int *out, int n)
{
	__shared__ int stage[128];
	__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
	auto block = cg::this_thread_block();
	auto pipe = cuda::make_pipeline(block, &state);

	for (int base = 0; base < n; base += 128) {
		pipe.producer_acquire();
		cuda::memcpy_async(block, stage, in + base, sizeof(stage), pipe);
		pipe.producer_commit();
		pipe.consumer_wait();
		out[base + threadIdx.x] = stage[127 - threadIdx.x] + 1;
		pipe.consumer_release();
	}
}

extern "C" __global__ void phases(int *out, int rounds)
{
	__shared__ cuda::barrier<cuda::thread_scope_block> barrier;
	__shared__ int sum;

	if (threadIdx.x == 0) {
		init(&barrier, blockDim.x);
		sum = 0;
	}
	__syncthreads();
	for (int round = 0; round < rounds; round++) {
		atomicAdd(&sum, threadIdx.x * round);
		barrier.arrive_and_wait();
		out[round * blockDim.x + threadIdx.x] = sum;
		auto token = barrier.arrive();

		barrier.wait(std::move(token));
	}
}

// A bulk copy in, on an mbarrier, and one out, in a group.
extern "C" __global__ void bulk(const int *in, int *out)
{
	__shared__ __align__(16) int stage[64];
	__shared__ __align__(8) uint64_t barrier;
	unsigned int at = (unsigned int)__cvta_generic_to_shared(stage);
	unsigned int gate = (unsigned int)__cvta_generic_to_shared(&barrier);
	int t = threadIdx.x;

	if (t == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(gate) : "memory");
		asm volatile("fence.proxy.async;" ::: "memory");
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 256;" ::"r"(gate) : "memory");
		asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(at), "l"(in), "r"(gate)
			     : "memory");
	}
	__syncthreads();
	asm volatile("{\n\t.reg .pred p;\n\tAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n\t@!p bra AGAIN;\n\t}" ::"r"(gate) : "memory");
	int v = stage[63 - t];

	__syncthreads();
	stage[t] = v + 1;
	__syncthreads();
	if (t == 0) {
		asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out), "r"(at) : "memory");
		asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::: "memory");
	}
}

extern "C" __global__ void warp_sums(const int *in, int *out)
{
	auto warp = cg::tiled_partition<32>(cg::this_thread_block());
	auto tile = cg::tiled_partition<8>(cg::this_thread_block());
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int sum = cg::reduce(warp, in[i], cg::plus<int>());
	unsigned int least = __reduce_min_sync(0xffffffff, (unsigned int)in[i]);
	unsigned int bits = __reduce_xor_sync(0xffffffff, (unsigned int)in[i]);

	out[i] = sum + cg::reduce(tile, in[i], cg::greater<int>()) + (int)(least ^ bits) + tile.thread_rank() + tile.meta_group_rank();
}

extern "C" __global__ void coalesced(const int *in, int *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = -1;
	if (in[i] > 0) {
		auto active = cg::coalesced_threads();

		out[i] = active.thread_rank() * 100 + active.size() + active.shfl(in[i], 0);
	}
}

extern "C" __global__ void grid_rounds(int *data, int n, int rounds)
{
	auto grid = cg::this_grid();

	for (int round = 0; round < rounds; round++) {
		int *from = data + (round & 1) * n;
		int *to = data + (~round & 1) * n;

		for (int i = grid.thread_rank(); i < n; i += grid.size())
			to[i] = from[(i + 1) % n] + from[(i + n - 1) % n];
		grid.sync();
	}
}

extern "C" __global__ void clusters(int *out)
{
	auto cluster = cg::this_cluster();

	cluster.sync();
	out[blockIdx.x * blockDim.x + threadIdx.x] = cluster.block_rank() + cluster.num_blocks() * 10;
}
