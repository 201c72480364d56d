// SPDX-License-Identifier: Apache-2.0
// Threads that never made a context get the primary one by themselves: begun before the first CUDA call of the process, and after
// (field case P-007).
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

static std::atomic<int> wrong, right;
static std::atomic<bool> go;

#define MUST(call)                                                                                  \
	do {                                                                                        \
		cudaError_t result = (call);                                                        \
		if (result != cudaSuccess) {                                                        \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result)); \
			wrong++;                                                                    \
			return;                                                                     \
		}                                                                                   \
	} while (0)

static __global__ void multiply(unsigned int *data, unsigned int by, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		data[i] *= by;
}

static void work(unsigned int number)
{
	const int n = 5000;
	std::vector<unsigned int> host(n);
	unsigned int *device;
	cudaStream_t stream;

	for (int i = 0; i < n; i++)
		host[i] = (unsigned int)i;
	MUST(cudaMalloc((void **)&device, n * 4));
	MUST(cudaMemcpy(device, host.data(), n * 4, cudaMemcpyHostToDevice));
	MUST(cudaStreamCreate(&stream));
	multiply<<<(n + 127) / 128, 128, 0, stream>>>(device, number, n);
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(host.data(), device, n * 4, cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaFree(device));
	for (int i = 0; i < n; i++)
		if (host[i] != (unsigned int)i * number) {
			printf("thread %u: word %d is %u\n", number, i, host[i]);
			wrong++;
			return;
		}
	right++;
}

static void early(unsigned int number)
{
	while (!go)
		std::this_thread::yield();
	work(number);
}

static void join(std::vector<std::thread> &threads)
{
	for (auto &thread : threads)
		thread.join();
	threads.clear();
}

int main()
{
	std::vector<std::thread> threads;
	size_t before = 0, after = 0, total;

	for (unsigned int i = 0; i < 4; i++)
		threads.emplace_back(early, 100 + i);
	go = true;
	join(threads);
	cudaMemGetInfo(&before, &total);
	for (unsigned int i = 0; i < 16; i++)
		threads.emplace_back(work, 3 + i);
	join(threads);
	/* With a device that this thread has chosen by itself. */
	cudaSetDevice(0);
	for (unsigned int i = 0; i < 16; i++)
		threads.emplace_back(work, 30 + i);
	join(threads);
	cudaDeviceSynchronize();
	cudaMemGetInfo(&after, &total);
	if (after + (64u << 20) < before) {
		printf("%zu bytes were free, %zu are at the end\n", before, after);
		wrong++;
	}
	printf("%d passed, %d failed\n", (int)right, (int)wrong);
	return wrong != 0;
}
