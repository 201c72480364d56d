// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation from eight threads: the default pool and one of the program's own, memory that passes from
// stream to stream, a pool that is trimmed, attributes that tell one story.
#include "lib.h"
#include <thread>

__global__ void fill(uint32_t *out, uint32_t seed, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		out[i] = seed + (uint32_t)i * 2654435761u;
}

__global__ void fold(const uint32_t *in, unsigned long long *sum, int n)
{
	unsigned long long mine = 0;

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		mine += in[i];
	atomicAdd(sum, mine);
}

static const int threads = 8, rounds = 25;

static unsigned long long expected(uint32_t seed, int n)
{
	unsigned long long sum = 0;

	for (int i = 0; i < n; i++)
		sum += seed + (uint32_t)i * 2654435761u;
	return sum;
}

// Rounds of allocate, fill, fold, free; what was freed is soon someone's again.
static void work(int who, cudaMemPool_t pool, unsigned long long *sums, int *wrong)
{
	Random random((uint32_t)who + 1);
	cudaStream_t stream, other;
	cudaEvent_t event;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	for (int round = 0; round < rounds; round++) {
		int n = 1 + (int)(random.bits() % 100000);
		uint32_t *data, seed = random.bits();
		unsigned long long *sum;

		if (round % 2)
			MUST(cudaMallocFromPoolAsync((void **)&data, (size_t)n * 4, pool, stream));
		else
			MUST(cudaMallocAsync((void **)&data, (size_t)n * 4, stream));
		MUST(cudaMallocAsync((void **)&sum, 8, stream));
		MUST(cudaMemsetAsync(sum, 0, 8, stream));
		fill<<<8, 128, 0, stream>>>(data, seed, n);
		/* The second stream reads and frees what the first made. */
		MUST(cudaEventRecord(event, stream));
		MUST(cudaStreamWaitEvent(other, event, 0));
		fold<<<8, 128, 0, other>>>(data, sum, n);
		MUST(cudaMemcpyAsync(&sums[round], sum, 8, cudaMemcpyDeviceToHost, other));
		MUST(cudaFreeAsync(data, other));
		MUST(cudaFreeAsync(sum, other));
		if (round % 5 == 4)
			MUST(cudaStreamSynchronize(other));
		/* Into pageable memory: there when the call returns. */
		*wrong += sums[round] != expected(seed, n);
	}
	MUST(cudaStreamSynchronize(other));
	MUST(cudaEventDestroy(event));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaStreamDestroy(other));
}

int main()
{
	std::vector<unsigned long long> sums(threads * rounds);
	std::vector<std::thread> all;
	cudaMemPoolProps properties = {};
	cudaMemPool_t pool, standard, got;
	uint64_t keep = 64 << 20, used = 1, reserved = 0;
	int supported = 0, wrong[threads] = {};
	void *big;

	lib_device();
	MUST(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
	if (!supported)
		lib_skip("the device has no memory pools");
	properties.allocType = cudaMemAllocationTypePinned;
	properties.location.type = cudaMemLocationTypeDevice;
	properties.location.id = 0;
	MUST(cudaMemPoolCreate(&pool, &properties));
	MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
	for (int t = 0; t < threads; t++)
		all.emplace_back(work, t, pool, &sums[t * rounds], &wrong[t]);
	for (auto &thread : all)
		thread.join();
	for (int t = 0; t < threads; t++)
		CHECK(!wrong[t], "thread %d: %d wrong sums", t, wrong[t]);
	result_add(sums);
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
	CHECK(used == 0 && reserved > 0, "used %llu, reserved %llu", (unsigned long long)used, (unsigned long long)reserved);
	MUST(cudaMemPoolTrimTo(pool, 0));
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
	CHECK(reserved == 0, "reserved %llu after a trim", (unsigned long long)reserved);
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &used));
	CHECK(used == keep, "the threshold reads %llu", (unsigned long long)used);
	/* The device's pool is the one that was set. */
	MUST(cudaDeviceGetDefaultMemPool(&standard, 0));
	MUST(cudaDeviceSetMemPool(0, pool));
	MUST(cudaDeviceGetMemPool(&got, 0));
	CHECK(got == pool && got != standard, "the pool of the device");
	MUST(cudaMallocAsync(&big, 8 << 20, 0));
	MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
	CHECK(used >= 8 << 20, "8 MiB in use reads %llu", (unsigned long long)used);
	CHECK(cudaMallocAsync(&big, (size_t)1 << 46, 0) == cudaErrorMemoryAllocation, "64 TiB");
	CHECK(cudaGetLastError() == cudaErrorMemoryAllocation && cudaGetLastError() == cudaSuccess, "the error is told once");
	MUST(cudaDeviceSetMemPool(0, standard));
	MUST(cudaMemPoolDestroy(pool));
	return lib_end();
}
