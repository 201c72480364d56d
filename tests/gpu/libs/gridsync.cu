// SPDX-License-Identifier: Apache-2.0
// A cooperative launch whose blocks wait for each other (cooperative groups), and cuda::atomic with acquire and release
// between blocks of one grid.
#include "lib.h"
#include <cooperative_groups.h>
#include <cuda/atomic>

namespace cg = cooperative_groups;

// Each round every thread adds what its neighbour in the next block held before: wrong without the waits.
__global__ void rounds(uint32_t *cells, uint32_t *next, int n, int count)
{
	cg::grid_group grid = cg::this_grid();
	int i = (int)grid.thread_rank();

	for (int round = 0; round < count; round++) {
		if (i < n)
			next[i] = cells[i] * 3u + cells[(i + blockDim.x) % n];
		grid.sync();
		if (i < n)
			cells[i] = next[i];
		grid.sync();
	}
}

// Block 0 publishes, the others wait for the flag and read what is behind it.
__global__ void publish(int *flag, int *value, int *seen)
{
	cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);

	if (threadIdx.x)
		return;
	if (!blockIdx.x) {
		*value = 4711;
		ready.store(1, cuda::memory_order_release);
		seen[0] = 4711;
	} else {
		while (!ready.load(cuda::memory_order_acquire))
			;
		seen[blockIdx.x] = *(volatile int *)value;
	}
}

__global__ void add_up(unsigned *total, unsigned *largest)
{
	cuda::atomic_ref<unsigned, cuda::thread_scope_device> sum(*total), most(*largest);
	unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;

	sum.fetch_add(mine, cuda::memory_order_relaxed);
	most.fetch_max(mine, cuda::memory_order_relaxed);
}

int main()
{
	const int block = 128, count = 10;
	int cooperative = 0, each = 0, processors = 0, n, turns = count;
	cudaDeviceProp properties;

	lib_device();
	MUST(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
	if (!cooperative)
		lib_skip("the device has no cooperative launch");
	MUST(cudaGetDeviceProperties(&properties, 0));
	processors = properties.multiProcessorCount;
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, rounds, block, 0));
	CHECK(each > 0, "%d blocks a multiprocessor", each);
	/* The same grid on every device, so that the results are. */
	int blocks = processors * each < 16 ? processors * each : 16;
	n = blocks * block;
	std::vector<uint32_t> cells(n), after(n);
	for (int i = 0; i < n; i++)
		cells[i] = (uint32_t)i * 2654435761u;
	Device<uint32_t> device(cells), next(n);
	void *arguments[] = {&device.at, &next.at, &n, &turns};
	MUST(cudaLaunchCooperativeKernel((const void *)rounds, blocks, block, arguments, 0, 0));
	for (int round = 0; round < count; round++) {
		for (int i = 0; i < n; i++)
			after[i] = cells[i] * 3u + cells[(i + block) % n];
		cells = after;
	}
	CHECK(device.get() == cells, "cells after %d rounds", count);
	/* More blocks than fit at once are refused, not run. */
	cudaError_t refused = cudaLaunchCooperativeKernel((const void *)rounds, 1 << 20, block, arguments, 0, 0);
	CHECK(refused == cudaErrorCooperativeLaunchTooLarge, "a grid that does not fit gave %d (%s)", (int)refused,
	      cudaGetErrorString(refused));
	cudaGetLastError();

	Device<int> flag(std::vector<int>(1, 0)), value(std::vector<int>(1, 0)), seen(std::vector<int>(blocks, 0));
	void *more[] = {&flag.at, &value.at, &seen.at};
	MUST(cudaLaunchCooperativeKernel((const void *)publish, blocks, 32, more, 0, 0));
	CHECK(seen.get() == std::vector<int>(blocks, 4711), "what was published");
	Device<unsigned> total(std::vector<unsigned>(1, 0)), largest(std::vector<unsigned>(1, 0));
	add_up<<<64, 256>>>(total.at, largest.at);
	MUST(cudaGetLastError());
	CHECK(total.get()[0] == 64u * 256 * (64 * 256 - 1) / 2 && largest.get()[0] == 64 * 256 - 1, "atomic sums");
	return lib_end();
}
