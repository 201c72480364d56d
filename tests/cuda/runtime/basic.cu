// SPDX-License-Identifier: Apache-2.0
// A program of the runtime API as nvcc users write them: static or shared cudart, kernels linked into the program.
// Field cases P-001 (the runtime starts), P-007 (threads without set-up), P-017 (reset).
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static int passed, failed;

#define MUST(call)                                                                                       \
	do {                                                                                             \
		cudaError_t e = (call);                                                                  \
		if (e != cudaSuccess) {                                                                  \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e));     \
			printf("%d passed, %d failed\n", passed, failed + 1);                            \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)
#define CHECK(condition, ...)                                                                            \
	do {                                                                                             \
		if (condition) {                                                                         \
			passed++;                                                                        \
		} else {                                                                                 \
			failed++;                                                                        \
			printf("%s:%d: wrong: ", __FILE__, __LINE__);                                    \
			printf(__VA_ARGS__);                                                             \
			printf("\n");                                                                    \
		}                                                                                        \
	} while (0)

__constant__ float factor = 2.0f;
__device__ int total;

__global__ void scale(const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = in[i] * factor;
}

__global__ void count(int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		atomicAdd(&total, 1);
}

template <typename T> __global__ void fill(T *out, T value, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = value;
}

static int scaled_wrong(cudaStream_t stream, float by)
{
	const int n = 100000;
	std::vector<float> in(n), out(n);
	float *din, *dout;
	int wrong = 0;

	for (int i = 0; i < n; i++)
		in[i] = (float)(i % 1000);
	MUST(cudaMalloc(&din, n * sizeof(float)));
	MUST(cudaMalloc(&dout, n * sizeof(float)));
	MUST(cudaMemcpyAsync(din, in.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));
	scale<<<(n + 255) / 256, 256, 0, stream>>>(din, dout, n);
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(out.data(), dout, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++)
		wrong += out[i] != in[i] * by;
	MUST(cudaFree(din));
	MUST(cudaFree(dout));
	return wrong;
}

static void symbols()
{
	float three = 3.0f, back = 0;
	int zero = 0, got = 0;

	MUST(cudaMemcpyToSymbol(factor, &three, sizeof(three)));
	MUST(cudaMemcpyFromSymbol(&back, factor, sizeof(back)));
	CHECK(back == 3.0f, "a constant read back: %f", back);
	CHECK(scaled_wrong(nullptr, 3.0f) == 0, "a kernel with a changed constant");
	MUST(cudaMemcpyToSymbol(total, &zero, sizeof(zero)));
	count<<<100, 128>>>(12345);
	MUST(cudaMemcpyFromSymbol(&got, total, sizeof(got)));
	CHECK(got == 12345, "threads counted: %d", got);
}

static void streams_and_events()
{
	cudaStream_t stream;
	cudaEvent_t start, stop;
	float ms = -1;
	double *data;
	double last = 0;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&stop));
	MUST(cudaEventRecord(start, stream));
	CHECK(scaled_wrong(stream, 3.0f) == 0, "a kernel on a stream");
	MUST(cudaEventRecord(stop, stream));
	MUST(cudaEventSynchronize(stop));
	MUST(cudaEventElapsedTime(&ms, start, stop));
	CHECK(ms > 0 && ms < 10000, "%f ms", ms);
	MUST(cudaMallocAsync(&data, 1000 * sizeof(double), stream));
	fill<double><<<4, 256, 0, stream>>>(data, 1.5, 1000);
	MUST(cudaMemcpyAsync(&last, data + 999, sizeof(last), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
	CHECK(last == 1.5, "a template kernel: %f", last);
	MUST(cudaFreeAsync(data, stream));
	MUST(cudaEventDestroy(start));
	MUST(cudaEventDestroy(stop));
	MUST(cudaStreamDestroy(stream));
}

static void host_memory()
{
	int *pinned, *device;
	cudaPointerAttributes attributes;
	int local;

	MUST(cudaMallocHost(&pinned, 1 << 20));
	MUST(cudaMalloc(&device, 1 << 20));
	fill<int><<<1024, 256>>>(device, 42, 1 << 18);
	MUST(cudaMemcpyAsync(pinned, device, 1 << 20, cudaMemcpyDeviceToHost));
	MUST(cudaDeviceSynchronize());
	CHECK(pinned[0] == 42 && pinned[(1 << 18) - 1] == 42, "page-locked memory");
	MUST(cudaPointerGetAttributes(&attributes, pinned));
	CHECK(attributes.type == cudaMemoryTypeHost, "type of page-locked memory: %d", attributes.type);
	MUST(cudaPointerGetAttributes(&attributes, device + 5));
	CHECK(attributes.type == cudaMemoryTypeDevice && attributes.device == 0, "type of device memory: %d", attributes.type);
	MUST(cudaPointerGetAttributes(&attributes, &local));
	CHECK(attributes.type == cudaMemoryTypeUnregistered, "type of a local variable: %d", attributes.type);
	MUST(cudaMemset(device, 0, 1 << 20));
	MUST(cudaMemcpy(pinned, device, 1 << 20, cudaMemcpyDefault));
	CHECK(pinned[77] == 0, "memset");
	MUST(cudaFree(device));
	MUST(cudaFreeHost(pinned));
}

static void threads()
{
	std::vector<std::thread> all;
	int wrong[16];

	for (int t = 0; t < 16; t++)
		all.emplace_back([t, &wrong] {
			cudaStream_t stream;

			wrong[t] = 1;
			if (cudaStreamCreate(&stream) != cudaSuccess)
				return;
			wrong[t] = scaled_wrong(stream, 3.0f);
			cudaStreamDestroy(stream);
		});
	for (auto &thread : all)
		thread.join();
	for (int t = 0; t < 16; t++)
		CHECK(wrong[t] == 0, "thread %d: %d", t, wrong[t]);
}

static void resets()
{
	for (int i = 0; i < 3; i++) {
		MUST(cudaDeviceReset());
		/* The constant is as the program has it again. */
		CHECK(scaled_wrong(nullptr, 2.0f) == 0, "after a reset");
	}
}

int main()
{
	cudaDeviceProp prop;
	int devices = 0, driver = 0, runtime = 0, blocks = 0;
	size_t free_bytes, total_bytes;

	MUST(cudaGetDeviceCount(&devices));
	CHECK(devices > 0, "%d devices", devices);
	MUST(cudaGetDeviceProperties(&prop, 0));
	MUST(cudaDriverGetVersion(&driver));
	MUST(cudaRuntimeGetVersion(&runtime));
	printf("%s, compute %d.%d, driver %d, runtime %d\n", prop.name, prop.major, prop.minor, driver, runtime);
	CHECK(prop.multiProcessorCount > 0 && prop.maxThreadsPerBlock == 1024 && prop.warpSize == 32, "properties");
	MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
	CHECK(total_bytes == prop.totalGlobalMem && free_bytes <= total_bytes, "memory figures");
	CHECK(scaled_wrong(nullptr, 2.0f) == 0, "a kernel on the default stream");
	symbols();
	streams_and_events();
	host_memory();
	threads();
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
	CHECK(blocks >= 1 && blocks <= 32, "%d blocks of 256 threads", blocks);
	resets();
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}
