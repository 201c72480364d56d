// SPDX-License-Identifier: Apache-2.0
// Loaders as frameworks have them: eight threads, each with two page-locked buffers, a stream and events; a buffer is
// filled anew as soon as the event behind its copy has passed, while the other one is on its way. Results come back into
// page-locked memory too. Also memory that is registered, portable, mapped and write-combined.
#include "lib.h"
#include <thread>

__global__ void step(const float *in, float *out, int n, float weight)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = out[i] * 0.5f + in[i] * weight;
}

static const int threads = 8, batches = 12, n = 128 * 1024;

static float sample(int who, int batch, int i) { return (float)((who * 31 + batch * 17 + i) % 251); }

static void load(int who, float *back, int *wrong)
{
	cudaStream_t stream;
	cudaEvent_t sent[2];
	float *host[2], *in[2], *out, *result;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (int b = 0; b < 2; b++) {
		MUST(cudaHostAlloc((void **)&host[b], n * sizeof(float), who % 2 ? cudaHostAllocPortable : cudaHostAllocDefault));
		MUST(cudaMalloc((void **)&in[b], n * sizeof(float)));
		MUST(cudaEventCreateWithFlags(&sent[b], cudaEventDisableTiming | (who % 3 ? 0 : cudaEventBlockingSync)));
	}
	MUST(cudaMallocHost((void **)&result, n * sizeof(float)));
	MUST(cudaMalloc((void **)&out, n * sizeof(float)));
	MUST(cudaMemsetAsync(out, 0, n * sizeof(float), stream));
	for (int batch = 0; batch < batches; batch++) {
		int b = batch % 2;

		/* An event that was never recorded has passed. */
		MUST(cudaEventSynchronize(sent[b]));
		for (int i = 0; i < n; i++)
			host[b][i] = sample(who, batch, i);
		MUST(cudaMemcpyAsync(in[b], host[b], n * sizeof(float), cudaMemcpyHostToDevice, stream));
		MUST(cudaEventRecord(sent[b], stream));
		step<<<(n + 255) / 256, 256, 0, stream>>>(in[b], out, n, 0.25f);
	}
	MUST(cudaMemcpyAsync(result, out, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	while (cudaStreamQuery(stream) == cudaErrorNotReady)
		std::this_thread::yield();
	for (int i = 0; i < n; i++) {
		float want = 0;

		for (int batch = 0; batch < batches; batch++)
			want = want * 0.5f + sample(who, batch, i) * 0.25f;
		*wrong += std::fabs(result[i] - want) > 1e-3f;
	}
	memcpy(back, result, n * sizeof(float));
	for (int b = 0; b < 2; b++) {
		MUST(cudaFreeHost(host[b]));
		MUST(cudaFree(in[b]));
		MUST(cudaEventDestroy(sent[b]));
	}
	MUST(cudaFreeHost(result));
	MUST(cudaFree(out));
	MUST(cudaStreamDestroy(stream));
}

// A range of the program's own memory, registered while it is used.
static void registered()
{
	std::vector<float> source = random_floats(1 << 18, 5), back(1 << 18);
	Device<float> device(source.size());
	size_t size = source.size() * sizeof(float);
	unsigned flags = 0;

	MUST(cudaHostRegister(source.data(), size, cudaHostRegisterDefault));
	MUST(cudaHostRegister(back.data(), size, cudaHostRegisterPortable));
	CHECK(cudaHostRegister(source.data(), size, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered, "twice");
	cudaGetLastError();
	/* Flags are told of what cudaHostAlloc made; what registered memory answers is to be as natively. */
	if (cudaHostGetFlags(&flags, back.data()) != cudaSuccess)
		flags = (unsigned)cudaGetLastError() << 16;
	result_add(&flags, sizeof(flags));
	MUST(cudaMemcpyAsync(device.at, source.data(), size, cudaMemcpyHostToDevice, 0));
	MUST(cudaMemcpyAsync(back.data(), device.at, size, cudaMemcpyDeviceToHost, 0));
	MUST(cudaStreamSynchronize(0));
	CHECK(back == source, "through registered memory");
	result_add(back);
	MUST(cudaHostUnregister(source.data()));
	MUST(cudaHostUnregister(back.data()));
	CHECK(cudaHostUnregister(back.data()) == cudaErrorHostMemoryNotRegistered, "unregistered twice");
	cudaGetLastError();
}

// A kernel reads and writes page-locked memory itself.
static void mapped()
{
	const int count = 1 << 16;
	float *in, *out, *device_in, *device_out;
	unsigned flags = 0;
	int wrong = 0;

	MUST(cudaHostAlloc((void **)&in, count * sizeof(float), cudaHostAllocMapped | cudaHostAllocWriteCombined));
	MUST(cudaHostAlloc((void **)&out, count * sizeof(float), cudaHostAllocMapped));
	for (int i = 0; i < count; i++) {
		in[i] = (float)i;
		out[i] = 8.0f;
	}
	MUST(cudaHostGetFlags(&flags, in));
	CHECK(flags & cudaHostAllocMapped && flags & cudaHostAllocWriteCombined, "flags %#x", flags);
	MUST(cudaHostGetDevicePointer((void **)&device_in, in, 0));
	MUST(cudaHostGetDevicePointer((void **)&device_out, out, 0));
	step<<<count / 256, 256>>>(device_in, device_out, count, 2.0f);
	MUST(cudaGetLastError());
	MUST(cudaDeviceSynchronize());
	for (int i = 0; i < count; i++)
		if (out[i] != 4.0f + 2.0f * (float)i && !wrong++)
			printf("mapped memory: value %d is %g, not %g\n", i, out[i], 4.0f + 2.0f * (float)i);
	CHECK(!wrong, "%d of %d values in mapped memory", wrong, count);
	result_add(out, count * sizeof(float));
	MUST(cudaFreeHost(in));
	MUST(cudaFreeHost(out));
}

int main()
{
	std::vector<std::vector<float>> back(threads, std::vector<float>(n));
	std::vector<std::thread> all;
	int wrong[threads] = {};

	lib_device();
	for (int t = 0; t < threads; t++)
		all.emplace_back(load, t, back[t].data(), &wrong[t]);
	for (auto &thread : all)
		thread.join();
	for (int t = 0; t < threads; t++) {
		CHECK(!wrong[t], "thread %d: %d wrong values", t, wrong[t]);
		result_add(back[t]);
	}
	registered();
	mapped();
	return lib_end();
}
