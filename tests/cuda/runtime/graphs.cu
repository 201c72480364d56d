// SPDX-License-Identifier: Apache-2.0
// Graphs of the runtime API, as frameworks use them: captured with a private allocation inside, replayed with new input,
// forked and joined, updated instead of made again, and built by hand.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static int passed, failed;

#define MUST(call)                                                                                       \
	do {                                                                                             \
		cudaError_t result = (call);                                                             \
		if (result != cudaSuccess) {                                                             \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result)); \
			printf("%d passed, %d failed\n", passed, failed + 1);                            \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)

static void check(bool right, const char *what, double got)
{
	if (right) {
		passed++;
	} else {
		failed++;
		printf("wrong: %s: %g\n", what, got);
	}
}

__global__ void scale(float *out, const float *in, float by, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = in[i] * by;
}

__global__ void plus(float *out, const float *a, const float *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = a[i] + b[i];
}

static const int n = 1 << 16;

static float first(const float *device)
{
	float value;

	MUST(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost));
	return value;
}

static void capture_and_replay()
{
	cudaStream_t stream, side;
	cudaEvent_t fork, join;
	cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	cudaStreamCaptureStatus status;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float *in, *a, *b, *priv, *host, *back;
	size_t nodes;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
	MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
	MUST(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
	MUST(cudaMalloc(&in, n * sizeof(float)));
	MUST(cudaMalloc(&a, n * sizeof(float)));
	MUST(cudaMalloc(&b, n * sizeof(float)));
	MUST(cudaMallocHost(&host, n * sizeof(float)));
	MUST(cudaMallocHost(&back, n * sizeof(float)));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	/* The caching allocator's way to ask for more in the middle. */
	MUST(cudaThreadExchangeStreamCaptureMode(&mode));
	MUST(cudaMalloc(&priv, n * sizeof(float)));
	MUST(cudaThreadExchangeStreamCaptureMode(&mode));
	MUST(cudaMemcpyAsync(in, host, n * sizeof(float), cudaMemcpyHostToDevice, stream));
	scale<<<n / 256, 256, 0, stream>>>(a, in, 2, n);
	MUST(cudaEventRecord(fork, stream));
	MUST(cudaStreamWaitEvent(side, fork, 0));
	scale<<<n / 256, 256, 0, side>>>(b, a, 10, n);
	scale<<<n / 256, 256, 0, stream>>>(priv, a, 100, n);
	MUST(cudaEventRecord(join, side));
	MUST(cudaStreamWaitEvent(stream, join, 0));
	plus<<<n / 256, 256, 0, stream>>>(a, b, priv, n);
	MUST(cudaMemcpyAsync(back, a, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamIsCapturing(side, &status));
	check(status == cudaStreamCaptureStatusActive, "the side stream is capturing", status);
	MUST(cudaGetLastError());
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
	check(nodes == 6, "nodes", (double)nodes);
	MUST(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
	MUST(cudaGraphDestroy(graph));
	for (int turn = 1; turn <= 5; turn++) {
		bool right = true;

		for (int i = 0; i < n; i++)
			host[i] = (float)(turn + i % 7);
		MUST(cudaGraphLaunch(exec, stream));
		MUST(cudaStreamSynchronize(stream));
		for (int i = 0; i < n; i++)
			right = right && back[i] == (float)(turn + i % 7) * 220;
		check(right, "a replay", back[0]);
	}
	MUST(cudaGraphExecDestroy(exec));

	/* Captured anew and updated, a step after the other. */
	exec = nullptr;
	for (int step = 1; step <= 4; step++) {
		cudaGraphExecUpdateResultInfo info;

		MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
		scale<<<n / 256, 256, 0, stream>>>(b, a, (float)step, n);
		MUST(cudaMemsetAsync(priv, 0, n * sizeof(float), stream));
		plus<<<n / 256, 256, 0, stream>>>(in, b, priv, n);
		MUST(cudaStreamEndCapture(stream, &graph));
		if (exec) {
			MUST(cudaGraphExecUpdate(exec, graph, &info));
			check(info.result == cudaGraphExecUpdateSuccess, "an update", info.result);
		} else {
			MUST(cudaGraphInstantiate(&exec, graph, 0));
		}
		MUST(cudaGraphDestroy(graph));
		MUST(cudaGraphLaunch(exec, stream));
		MUST(cudaStreamSynchronize(stream));
		check(first(in) == back[0] * (float)step, "a step", first(in));
	}
	MUST(cudaGraphExecDestroy(exec));

	/* What a capture forbids is an error of the runtime too, and leaves nothing behind. */
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	scale<<<1, 32, 0, stream>>>(a, in, 1, 1);
	check(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported, "a wait in a capture", 0);
	check(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated, "its end", 0);
	cudaGetLastError();
	scale<<<1, 32, 0, stream>>>(a, in, 0, 1);
	MUST(cudaStreamSynchronize(stream));
	check(first(a) == 0, "after it", first(a));
	MUST(cudaFree(in));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	MUST(cudaFree(priv));
	MUST(cudaFreeHost(host));
	MUST(cudaFreeHost(back));
	MUST(cudaEventDestroy(fork));
	MUST(cudaEventDestroy(join));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaStreamDestroy(side));
}

static void CUDART_CB count(void *arg)
{
	++*static_cast<int *>(arg);
}

static void by_hand()
{
	float *a, *b, start[4] = { 1, 2, 3, 4 }, end[4] = { 0 }, by = 3;
	int elements = 4, calls = 0;
	void *args[] = { &b, &a, &by, &elements };
	cudaKernelNodeParams kernel = {};
	cudaHostNodeParams host = { count, &calls };
	cudaMemsetParams set = {};
	cudaGraphNode_t up, fill, run, down, call;
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	MUST(cudaMalloc(&a, sizeof(start)));
	MUST(cudaMalloc(&b, 2 * sizeof(start)));
	MUST(cudaGraphCreate(&graph, 0));
	MUST(cudaGraphAddMemcpyNode1D(&up, graph, nullptr, 0, a, start, sizeof(start), cudaMemcpyHostToDevice));
	set.dst = b;
	set.elementSize = 4;
	set.width = 8;
	set.height = 1;
	MUST(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
	kernel.func = reinterpret_cast<void *>(scale);
	kernel.gridDim = dim3(1);
	kernel.blockDim = dim3(32);
	kernel.kernelParams = args;
	MUST(cudaGraphAddKernelNode(&run, graph, &up, 1, &kernel));
	MUST(cudaGraphAddDependencies(graph, &fill, &run, nullptr, 1));
	MUST(cudaGraphAddMemcpyNode1D(&down, graph, &run, 1, end, b, sizeof(end), cudaMemcpyDeviceToHost));
	MUST(cudaGraphAddHostNode(&call, graph, &down, 1, &host));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphLaunch(exec, cudaStreamPerThread));
	MUST(cudaStreamSynchronize(cudaStreamPerThread));
	check(end[0] == 3 && end[3] == 12 && calls == 1, "by hand", end[3]);
	by = 5;
	MUST(cudaGraphExecKernelNodeSetParams(exec, run, &kernel));
	start[3] = 7;
	MUST(cudaGraphLaunch(exec, cudaStreamPerThread));
	MUST(cudaStreamSynchronize(cudaStreamPerThread));
	check(end[0] == 5 && end[3] == 35 && calls == 2, "by hand, changed", end[3]);
	MUST(cudaGraphExecDestroy(exec));
	MUST(cudaGraphDestroy(graph));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
}

int main()
{
	capture_and_replay();
	by_hand();
	printf("%d passed, %d failed\n", passed, failed);
	return failed != 0;
}
