// SPDX-License-Identifier: Apache-2.0
// cuBLAS calls captured from a stream by the runtime API, with kernels of the program's and copies between them, and played
// 20 times: the input changes between the turns, events are recorded around them, a second capture updates the first.
#include "lib.h"
#include <cublas_v2.h>

static const int n = 96;

__global__ void relu(float *values, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		values[i] = values[i] > 0 ? values[i] : 0;
}

__global__ void tick(unsigned *counter) { ++*counter; }

static const float one = 1, zero = 0;

// C = W2 relu(W1 X): what is captured.
static void network(cublasHandle_t handle, cudaStream_t stream, const float *w1, const float *w2, const float *x, float *h, float *y,
		    unsigned *counter)
{
	MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, w1, n, x, n, &zero, h, n));
	relu<<<(n * n + 127) / 128, 128, 0, stream>>>(h, n * n);
	MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, w2, n, h, n, &zero, y, n));
	tick<<<1, 1, 0, stream>>>(counter);
	MUST(cudaGetLastError());
}

int main()
{
	std::vector<float> w1 = random_floats(n * n, 1), w2 = random_floats(n * n, 2);
	cublasHandle_t handle;
	cudaStream_t stream;
	cudaEvent_t start, stop;
	cudaGraph_t graph, second;
	cudaGraphExec_t executable;
	cudaGraphExecUpdateResultInfo update;
	cudaStreamCaptureStatus status;
	float ms = -1, *result;
	size_t nodes = 0;
	void *workspace;

	lib_device();
	MUST(cublasCreate(&handle));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&stop));
	MUST(cudaMalloc(&workspace, 32 << 20));
	MUST(cudaMallocHost((void **)&result, n * n * 4));
	MUST(cublasSetStream(handle, stream));
	MUST(cublasSetWorkspace(handle, workspace, 32 << 20));
	Device<float> d1(w1), d2(w2), x(n * n), h(n * n), y(n * n);
	Device<unsigned> counter(std::vector<unsigned>(1, 0));
	/* Once without, so that modules are loaded. */
	MUST(cudaMemset(x.at, 0, n * n * 4));
	network(handle, stream, d1.at, d2.at, x.at, h.at, y.at, counter.at);
	MUST(cudaStreamSynchronize(stream));

	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	network(handle, stream, d1.at, d2.at, x.at, h.at, y.at, counter.at);
	MUST(cudaMemcpyAsync(result, y.at, n * n * 4, cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamIsCapturing(stream, &status));
	CHECK(status == cudaStreamCaptureStatusActive, "capture status %d", (int)status);
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphGetNodes(graph, NULL, &nodes));
	CHECK(nodes >= 5, "%zu nodes", nodes);
	MUST(cudaGraphInstantiate(&executable, graph, 0));
	for (int turn = 0; turn < 20; turn++) {
		std::vector<float> input = random_floats(n * n, 100 + turn);
		std::vector<double> hidden;
		std::vector<float> relued;

		MUST(cudaMemcpyAsync(x.at, input.data(), n * n * 4, cudaMemcpyHostToDevice, stream));
		MUST(cudaEventRecord(start, stream));
		MUST(cudaGraphLaunch(executable, stream));
		MUST(cudaEventRecord(stop, stream));
		MUST(cudaEventSynchronize(stop));
		MUST(cudaEventElapsedTime(&ms, start, stop));
		CHECK(ms > 0 && ms < 10000, "a turn took %g ms", ms);
		hidden = matmul(w1.data(), input.data(), n, n, n);
		for (double value : hidden)
			relued.push_back(value > 0 ? (float)value : 0);
		std::vector<float> got(result, result + n * n);
		result_add(got);
		CHECK_CLOSE(got, matmul(w2.data(), relued.data(), n, n, n), 1e-5, "what a graph computed");
	}
	CHECK(counter.get()[0] == 21, "the kernels ran %u times", counter.get()[0]);
	/* Captured again with the weights exchanged, the graph is updated in place. */
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	network(handle, stream, d2.at, d1.at, x.at, h.at, y.at, counter.at);
	MUST(cudaMemcpyAsync(result, y.at, n * n * 4, cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamEndCapture(stream, &second));
	cudaError_t updated = cudaGraphExecUpdate(executable, second, &update);
	CHECK(updated == cudaSuccess, "an update gave %d, reason %d", (int)updated, (int)update.result);
	MUST(cudaGraphLaunch(executable, stream));
	MUST(cudaStreamSynchronize(stream));
	std::vector<float> input = random_floats(n * n, 119), relued;
	for (double value : matmul(w2.data(), input.data(), n, n, n))
		relued.push_back(value > 0 ? (float)value : 0);
	std::vector<float> got(result, result + n * n);
	result_add(got);
	CHECK_CLOSE(got, matmul(w1.data(), relued.data(), n, n, n), 1e-5, "what the updated graph computed");
	MUST(cudaGraphExecDestroy(executable));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaGraphDestroy(second));
	MUST(cublasDestroy(handle));
	MUST(cudaFreeHost(result));
	MUST(cudaFree(workspace));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
