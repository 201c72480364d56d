// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: captured ones in all modes, explicit ones of every type of node, launches one behind the other, changes of what
 * was made, and calls that a capture does not bear, with the codes that CUDA documents. Results are compared with what
 * the same steps give on the CPU.
 */
#include <pthread.h>

#include "tests/cuda/pieces.h"

#define WORDS 4096u

static CUcontext context;
static CUdevice device;
static CUfunction fill, chain, add, spin;

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value, unsigned long long n)
{
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void chain_on(CUstream stream, CUdeviceptr data, unsigned int value)
{
	void *params[] = { &data, &value };

	MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static CUdeviceptr buffer(size_t size)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, size));
	MUST(cuMemsetD8(at, 0, size));
	MUST(cuCtxSynchronize());
	return at;
}

/* ---- captures ---- */

static void line_check(CUstreamCaptureMode mode)
{
	CUdeviceptr a = buffer(WORDS * 4), b = buffer(WORDS * 4), start = buffer(4);
	unsigned int want = 3, got[8];
	CUstreamCaptureStatus status;
	CUstream stream = stream_new();
	CUgraphExec exec;
	CUgraph graph, seen = NULL;
	const CUgraphNode *needs = NULL;
	size_t count = 0;
	cuuint64_t id = 0;

	EXPECT(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE, "status %d before", (int)status);
	MUST(cuStreamBeginCapture_v2(stream, mode));
	EXPECT(cuStreamBeginCapture_v2(stream, mode), CUDA_ERROR_ILLEGAL_STATE);
	MUST(cuMemsetD32Async(a, 7, WORDS, stream));
	chain_on(stream, start, 5);
	MUST(cuMemcpyDtoDAsync(a, start, 4, stream));
	MUST(cuMemcpyDtoDAsync(b, a, WORDS * 4, stream));
	MUST(cuStreamGetCaptureInfo_v2(stream, &status, &id, &seen, &needs, &count));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && seen && count == 1 && needs, "info: %d, %zu needs", (int)status,
	      count);
	chain_on(stream, b, 1);
	MUST(cuStreamEndCapture(stream, &graph));
	CHECK(graph == seen, "another graph than the one asked for");
	EXPECT(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE, "status %d afterwards", (int)status);
	count = 0;
	MUST(cuGraphGetNodes(graph, NULL, &count));
	CHECK(count == 5, "%zu nodes, not 5", count);
	MUST(cuGraphGetEdges(graph, NULL, NULL, &count));
	CHECK(count == 4, "%zu edges, not 4", count);
	CHECK(word(b) == 0, "a capture ran: %u", word(b));
	exec = made(graph);
	/* What was made lives by itself. */
	MUST(cuGraphDestroy(graph));
	word_set(start, want);
	for (int i = 0; i < 20; i++) {
		MUST(cuGraphLaunch(exec, stream));
		want = want * 3 + 5;
	}
	MUST(cuStreamSynchronize(stream));
	EXPECT(cuStreamQuery(stream), CUDA_SUCCESS);
	CHECK(word(start) == want, "20 launches: %u, not %u", word(start), want);
	MUST(cuMemcpyDtoH(got, b, sizeof(got)));
	CHECK(got[0] == want * 3 + 1 && got[1] == 7 && got[7] == 7, "last buffer: %u %u", got[0], got[1]);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
	MUST(cuMemFree(start));
}

/* Host memory of copies is read at each launch and written at each. */
static void host_check(bool pinned)
{
	CUdeviceptr data = buffer(WORDS * 4);
	CUstream stream = stream_new();
	unsigned int *in, *out;
	CUgraphExec exec;
	CUgraph graph;
	bool right = true;

	if (pinned) {
		MUST(cuMemAllocHost((void **)&in, WORDS * 4));
		MUST(cuMemAllocHost((void **)&out, WORDS * 4));
	} else {
		in = malloc(WORDS * 4);
		out = malloc(WORDS * 4);
	}
	memset(in, 0, WORDS * 4);
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(cuMemcpyHtoDAsync(data, in, WORDS * 4, stream));
	chain_on(stream, data, 1);
	MUST(cuMemcpyDtoHAsync(out, data, WORDS * 4, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	for (unsigned int turn = 0; turn < 5; turn++) {
		for (unsigned int i = 0; i < WORDS; i++)
			in[i] = turn * 1000 + i;
		memset(out, 0xee, WORDS * 4);
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		right = right && out[0] == turn * 3000 + 1;
		for (unsigned int i = 1; i < WORDS; i++)
			right = right && out[i] == turn * 1000 + i;
	}
	CHECK(right, "%s memory of a graph: %u", pinned ? "page-locked" : "pageable", out[0]);
	/* On two streams, one launch behind the other. */
	{
		CUstream other = stream_new();

		for (unsigned int i = 0; i < WORDS; i++)
			in[i] = 50;
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuGraphLaunch(exec, other));
		MUST(cuStreamSynchronize(other));
		MUST(cuStreamSynchronize(stream));
		CHECK(out[0] == 151 && out[WORDS - 1] == 50, "on two streams: %u %u", out[0], out[WORDS - 1]);
		MUST(cuStreamDestroy(other));
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	if (pinned) {
		MUST(cuMemFreeHost(in));
		MUST(cuMemFreeHost(out));
	} else {
		free(in);
		free(out);
	}
}

/* A second stream is drawn into a capture by an event and comes back by another. */
static void fork_check(void)
{
	CUdeviceptr a = buffer(4), b = buffer(4), c = buffer(4);
	CUstream one = stream_new(), two = stream_new();
	CUevent forked, done;
	CUstreamCaptureStatus status;
	CUgraphExec exec;
	CUgraph graph;
	size_t count;

	MUST(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fill_on(one, a, 11, 1);
	MUST(cuEventRecord(forked, one));
	MUST(cuStreamWaitEvent(two, forked, 0));
	MUST(cuStreamIsCapturing(two, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "the second stream is not capturing");
	MUST(cuMemcpyDtoDAsync(b, a, 4, two));
	chain_on(two, b, 2);
	chain_on(one, a, 1);
	MUST(cuEventRecord(done, two));
	MUST(cuStreamWaitEvent(one, done, 0));
	MUST(cuMemcpyDtoDAsync(c, b, 4, one));
	chain_on(one, c, 4);
	MUST(cuStreamEndCapture(one, &graph));
	MUST(cuStreamIsCapturing(two, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE, "the second stream is still capturing");
	MUST(cuGraphGetEdges(graph, NULL, NULL, &count));
	CHECK(count == 6, "%zu edges, not 6", count);
	exec = made(graph);
	for (int i = 0; i < 3; i++)
		MUST(cuGraphLaunch(exec, two));
	MUST(cuStreamSynchronize(two));
	CHECK(word(a) == 34 && word(b) == 35 && word(c) == 109, "%u %u %u", word(a), word(b), word(c));
	EXPECT(cuEventQuery(done), CUDA_ERROR_INVALID_VALUE);
	MUST(cuEventRecord(done, two));
	MUST(cuEventSynchronize(done));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuEventDestroy(forked));
	MUST(cuEventDestroy(done));
	MUST(cuStreamDestroy(one));
	MUST(cuStreamDestroy(two));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
	MUST(cuMemFree(c));
}

/* The capture is spoilt: its stream tells so, and its end too. */
static void spoilt(CUstream stream, CUresult end, const char *what)
{
	CUgraph graph = (CUgraph)1;
	CUresult result = cuStreamEndCapture(stream, &graph);

	CHECK(result == end, "%s: the end of the capture gave %d, not %d", what, (int)result, (int)end);
	CHECK(!graph, "%s: a graph all the same", what);
}

static void begin(CUstream stream, CUdeviceptr data, CUstreamCaptureMode mode)
{
	MUST(cuStreamBeginCapture_v2(stream, mode));
	fill_on(stream, data, 1, 1);
}

static void *allocates(void *arg)
{
	CUdeviceptr at;

	MUST(cuCtxSetCurrent(context));
	*(CUresult *)arg = cuMemAlloc(&at, 4096);
	if (*(CUresult *)arg == CUDA_SUCCESS)
		MUST(cuMemFree(at));
	return NULL;
}

static CUresult alloc_elsewhere(void)
{
	pthread_t thread;
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (pthread_create(&thread, NULL, allocates, &result))
		exit(1);
	pthread_join(thread, NULL);
	return result;
}

static void illegal_check(void)
{
	CUdeviceptr data = buffer(64), at = 0;
	CUstream stream = stream_new(), other = stream_new(), blocking;
	CUstreamCaptureStatus status;
	CUstreamCaptureMode mode;
	CUevent event, loose;
	CUgraph graph;

	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&loose, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventRecord(loose, other));
	MUST(cuStreamSynchronize(other));

	EXPECT(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	EXPECT(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

	begin(stream, data, CU_STREAM_CAPTURE_MODE_GLOBAL);
	EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	MUST(cuStreamIsCapturing(stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "status %d after a wait", (int)status);
	EXPECT(cuMemsetD32Async(data, 0, 1, stream), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "synchronise");

	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "query");

	begin(stream, data, CU_STREAM_CAPTURE_MODE_GLOBAL);
	EXPECT(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "synchronise the context");

	begin(stream, data, CU_STREAM_CAPTURE_MODE_GLOBAL);
	EXPECT(cuMemAlloc(&at, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "allocate");

	/* Relaxed by the capture, or by the thread as PyTorch does it around its allocations. */
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(cuMemAlloc(&at, 4096), CUDA_SUCCESS);
	MUST(cuMemFree(at));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphDestroy(graph));
	begin(stream, data, CU_STREAM_CAPTURE_MODE_GLOBAL);
	mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	EXPECT(cuMemAlloc(&at, 4096), CUDA_SUCCESS);
	MUST(cuMemFree(at));
	MUST(cuThreadExchangeStreamCaptureMode(&mode));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphDestroy(graph));

	/* Other threads: forbidden by global captures alone. */
	begin(stream, data, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	CHECK(alloc_elsewhere() == CUDA_SUCCESS, "an allocation beside a thread's own capture");
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphDestroy(graph));
	begin(stream, data, CU_STREAM_CAPTURE_MODE_GLOBAL);
	CHECK(alloc_elsewhere() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an allocation beside a global capture");
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "allocate elsewhere");

	/* The legacy stream would have to wait for a blocking one. */
	begin(blocking, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(cuMemsetD32Async(data, 0, 1, NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	spoilt(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "legacy stream");
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(cuMemsetD32Async(data, 0, 1, NULL), CUDA_SUCCESS);
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphDestroy(graph));

	/* Events. */
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuEventRecord(event, stream));
	EXPECT(cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "wait for a captured event");
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	EXPECT(cuStreamWaitEvent(stream, loose, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an event from outside");
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	begin(other, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuEventRecord(event, stream));
	EXPECT(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	cuStreamEndCapture(other, &graph);
	cuStreamEndCapture(stream, &graph);

	/* Ends. */
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuEventRecord(event, stream));
	MUST(cuStreamWaitEvent(other, event, 0));
	fill_on(other, data, 1, 1);
	spoilt(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "an open fork");
	MUST(cuStreamIsCapturing(other, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE, "the fork is still capturing: %d", (int)status);
	begin(stream, data, CU_STREAM_CAPTURE_MODE_RELAXED);
	MUST(cuEventRecord(event, stream));
	MUST(cuStreamWaitEvent(other, event, 0));
	EXPECT(cuStreamEndCapture(other, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	cuStreamEndCapture(stream, &graph);

	/* Nothing is left behind. */
	word_set(data, 0);
	fill_on(stream, data, 9, 1);
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == 9, "after all captures: %u", word(data));
	MUST(cuEventDestroy(event));
	MUST(cuEventDestroy(loose));
	MUST(cuStreamDestroy(stream));
	MUST(cuStreamDestroy(other));
	MUST(cuStreamDestroy(blocking));
	MUST(cuMemFree(data));
}

/* A capture into a graph that is there, and dependencies that the program changes. */
static void into_check(void)
{
	CUdeviceptr data = buffer(4);
	CUstream stream = stream_new();
	unsigned int value = 4;
	unsigned long long n = 1;
	void *params[] = { &data, &value, &n };
	CUDA_KERNEL_NODE_PARAMS kernel = { .func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					   .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	CUgraphNode first, last[2];
	CUgraphExec exec;
	CUgraph graph, ended;
	size_t count = 2;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &kernel));
	MUST(cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	chain_on(stream, data, 1);
	MUST(cuStreamUpdateCaptureDependencies(stream, &first, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	chain_on(stream, data, 2);
	MUST(cuStreamEndCapture(stream, &ended));
	CHECK(ended == graph, "the capture went into another graph");
	MUST(cuGraphNodeGetDependentNodes(first, last, &count));
	CHECK(count == 2, "%zu nodes need the first, not 2", count);
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == (4 * 3 + 1) * 3 + 2, "%u", word(data));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* ---- explicit graphs ---- */

static CUgraphNode kernel_node(CUgraph graph, CUfunction function, void **params, const CUgraphNode *needs, size_t count)
{
	CUDA_KERNEL_NODE_PARAMS p = { .func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
				      .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	CUgraphNode node;

	MUST(cuGraphAddKernelNode_v2(&node, graph, needs, count, &p));
	return node;
}

static CUgraphNode chain_node(CUgraph graph, CUdeviceptr data, unsigned int value, const CUgraphNode *needs, size_t count)
{
	void *params[] = { &data, &value };

	return kernel_node(graph, chain, params, needs, count);
}

static CUDA_MEMCPY3D line(void *host_dst, CUdeviceptr dst, const void *host_src, CUdeviceptr src, size_t size)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = host_src ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, .srcHost = host_src, .srcDevice = src,
		.dstMemoryType = host_dst ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE, .dstHost = host_dst, .dstDevice = dst,
		.WidthInBytes = size, .Height = 1, .Depth = 1,
	};
}

/* One node, two that need it, one that needs both. */
static void diamond_check(void)
{
	CUdeviceptr a = buffer(4), b = buffer(4), out = buffer(64);
	CUDA_MEMSET_NODE_PARAMS set = { .dst = out, .value = 0x5a, .elementSize = 1, .width = 64, .height = 1 };
	CUDA_MEMCPY3D copy = line(NULL, out, NULL, a, 4), copied;
	CUDA_MEMSET_NODE_PARAMS got;
	CUgraphNode nodes[6], list[8], from[8], to[8], need;
	unsigned int *words, value = 6;
	CUgraphNodeType type;
	CUstream stream = stream_new();
	CUgraphExec exec;
	CUgraph graph, clone;
	size_t count;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddEmptyNode(&nodes[0], graph, NULL, 0));
	nodes[1] = chain_node(graph, a, 5, &nodes[0], 1);
	nodes[2] = chain_node(graph, b, 7, &nodes[0], 1);
	MUST(cuGraphAddMemsetNode(&nodes[3], graph, &nodes[0], 1, &set, context));
	MUST(cuGraphAddMemcpyNode(&nodes[4], graph, &nodes[1], 3, &copy, context));
	count = 8;
	MUST(cuGraphGetNodes(graph, list, &count));
	CHECK(count == 5 && list[4] == nodes[4] && !list[5], "%zu nodes", count);
	count = 1;
	MUST(cuGraphGetRootNodes(graph, list, &count));
	CHECK(count == 1 && list[0] == nodes[0], "%zu roots", count);
	count = 8;
	MUST(cuGraphGetEdges(graph, from, to, &count));
	CHECK(count == 6, "%zu edges", count);
	count = 8;
	MUST(cuGraphNodeGetDependencies(nodes[4], list, &count));
	CHECK(count == 3, "%zu dependencies", count);
	MUST(cuGraphNodeGetType(nodes[3], &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_MEMSET, "type %d", (int)type);
	MUST(cuGraphMemsetNodeGetParams(nodes[3], &got));
	CHECK(got.dst == out && got.value == 0x5a && got.width == 64, "memset parameters");
	MUST(cuGraphMemcpyNodeGetParams(nodes[4], &copied));
	CHECK(copied.WidthInBytes == 4, "copy parameters");
	/* Bad edges. */
	EXPECT(cuGraphAddDependencies(graph, &nodes[1], &nodes[1], 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGraphAddDependencies(graph, &nodes[1], &nodes[2], 1), CUDA_SUCCESS);
	MUST(cuGraphRemoveDependencies(graph, &nodes[1], &nodes[2], 1));
	exec = made(graph);
	for (int i = 0; i < 2; i++)
		MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	words = malloc(64);
	MUST(cuMemcpyDtoH(words, out, 64));
	CHECK(word(a) == 20 && word(b) == 28 && words[0] == 20 && words[1] == 0x5a5a5a5a, "%u %u %u %#x", word(a), word(b),
	      words[0], words[1]);
	free(words);

	/* A copy of the graph, changed by itself. */
	{
		void *params[] = { &b, &value };
		CUDA_KERNEL_NODE_PARAMS p;
		CUgraphExec second;

		MUST(cuGraphClone(&clone, graph));
		MUST(cuGraphNodeFindInClone(&need, nodes[2], clone));
		MUST(cuGraphKernelNodeGetParams_v2(need, &p));
		CHECK(p.blockDimX == 32 && p.kernelParams && *(unsigned int *)p.kernelParams[1] == 7, "kernel parameters");
		p.kernelParams = params;
		p.extra = NULL;
		MUST(cuGraphKernelNodeSetParams_v2(need, &p));
		MUST(cuGraphNodeFindInClone(&need, nodes[1], clone));
		MUST(cuGraphDestroyNode(need));
		MUST(cuGraphGetNodes(clone, NULL, &count));
		CHECK(count == 4, "%zu nodes after one was destroyed", count);
		second = made(clone);
		MUST(cuGraphLaunch(second, stream));
		MUST(cuStreamSynchronize(stream));
		CHECK(word(a) == 20 && word(b) == 90, "the copy: %u %u", word(a), word(b));
		MUST(cuGraphExecDestroy(second));
		MUST(cuGraphDestroy(clone));
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
	MUST(cuMemFree(out));
}

struct meeting {
	unsigned int *host;
	unsigned int calls;
};

static void host_doubles(void *arg)
{
	struct meeting *m = arg;

	m->host[0] *= 2;
	m->calls++;
}

static void host_adds(void *arg)
{
	struct meeting *m = arg;

	m->host[0] += 1;
	m->calls++;
}

/* Device, host function, device again: the function sees what came down, and the device what it wrote. */
static void host_node_check(void)
{
	CUdeviceptr data = buffer(4), behind = buffer(4);
	/* Page-locked: pageable memory is staged, and nothing says that a host node sees it. */
	unsigned int *host = NULL, want = 1;
	CUresult locked = cuMemAllocHost((void **)&host, 8);
	struct meeting m = { .host = host };
	CUDA_HOST_NODE_PARAMS fn = { .fn = host_doubles, .userData = &m }, got;
	CUDA_MEMCPY3D down = line(host, 0, NULL, data, 4), up = line(NULL, data, host, 0, 4);
	CUDA_MEMCPY3D side = line(NULL, behind, NULL, data, 4);
	CUgraphNode nodes[5];
	CUstream stream = stream_new();
	CUgraphExec exec;
	CUgraph graph;

	MUST(locked);
	host[0] = host[1] = 0;
	MUST(cuGraphCreate(&graph, 0));
	nodes[0] = chain_node(graph, data, 1, NULL, 0);
	MUST(cuGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &down, context));
	MUST(cuGraphAddHostNode(&nodes[2], graph, &nodes[1], 1, &fn));
	MUST(cuGraphHostNodeGetParams(nodes[2], &got));
	CHECK(got.fn == host_doubles && got.userData == &m, "host parameters");
	MUST(cuGraphAddMemcpyNode(&nodes[3], graph, &nodes[2], 1, &up, context));
	MUST(cuGraphAddMemcpyNode(&nodes[4], graph, &nodes[3], 1, &side, context));
	exec = made(graph);
	word_set(data, want);
	for (int i = 0; i < 4; i++) {
		MUST(cuGraphLaunch(exec, stream));
		chain_on(stream, data, 3);
		want = (want * 3 + 1) * 2 * 3 + 3;
		/* Two without a wait between them, then with one. */
		if (i)
			MUST(cuStreamSynchronize(stream));
	}
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == want && m.calls == 4, "%u, not %u, after %u calls", word(data), want, m.calls);
	CHECK(word(behind) * 3 + 3 == want, "behind: %u", word(behind));
	/* Another function. */
	fn.fn = host_adds;
	MUST(cuGraphExecHostNodeSetParams(exec, nodes[2], &fn));
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	want = want * 3 + 1 + 1;
	CHECK(word(data) == want, "%u, not %u, with another function", word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));

	/* A captured one. */
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	chain_on(stream, data, 1);
	MUST(cuMemcpyDtoHAsync(host, data, 4, stream));
	MUST(cuLaunchHostFunc(stream, host_doubles, &m));
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(host[0] == (want * 3 + 1) * 2, "a captured host function: %u", host[0]);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuMemFreeHost(host));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(behind));
}

/* Rows stay as they are in what was made, and may be said again. */
static void rows_check(CUDA_MEMCPY3D rows)
{
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &rows, context));
	exec = made(graph);
	EXPECT(cuGraphExecMemcpyNodeSetParams(exec, node, &rows, context), CUDA_SUCCESS);
	rows.dstDevice += 4;
	EXPECT(cuGraphExecMemcpyNodeSetParams(exec, node, &rows, context), CUDA_ERROR_INVALID_VALUE);
	rows.Height = 1;
	EXPECT(cuGraphExecMemcpyNodeSetParams(exec, node, &rows, context), CUDA_ERROR_INVALID_VALUE);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

/* What was made is changed: node by node, as a whole, and not where the shape differs. */
static void update_check(void)
{
	CUdeviceptr a = buffer(4), b = buffer(64);
	CUgraphExecUpdateResultInfo info;
	CUgraphNode nodes[3], others[3];
	unsigned int value = 10, on = 7, host[16];
	void *params[] = { &a, &value };
	CUDA_KERNEL_NODE_PARAMS p = { .func = chain, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
				      .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	CUDA_MEMSET_NODE_PARAMS set = { .dst = b, .value = 1, .elementSize = 4, .width = 16, .height = 1 };
	CUDA_MEMCPY3D copy = line(NULL, b, NULL, a, 4);
	CUstream stream = stream_new();
	CUgraphExec exec;
	CUgraph graph, other;
	size_t count;

	MUST(cuGraphCreate(&graph, 0));
	nodes[0] = chain_node(graph, a, 1, NULL, 0);
	MUST(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &set, context));
	MUST(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, context));
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &p));
	set.value = 2;
	MUST(cuGraphExecMemsetNodeSetParams(exec, nodes[1], &set, context));
	copy = line(NULL, b + 8, NULL, a, 4);
	MUST(cuGraphExecMemcpyNodeSetParams(exec, nodes[2], &copy, context));
	/* Rows aren't one dimension. */
	copy.WidthInBytes = copy.srcPitch = copy.dstPitch = 2;
	copy.Height = 2;
	EXPECT(cuGraphExecMemcpyNodeSetParams(exec, nodes[2], &copy, context), CUDA_ERROR_INVALID_VALUE);
	rows_check(copy);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(host, b, 64));
	CHECK(word(a) == 13 && host[0] == 2 && host[1] == 2 && host[2] == 13, "%u: %u %u %u", word(a), host[0], host[1],
	      host[2]);
	EXPECT(cuGraphExecMemsetNodeSetParams(exec, nodes[0], &set, context), CUDA_ERROR_INVALID_VALUE);

	/* Off, and on again. */
	MUST(cuGraphNodeSetEnabled(exec, nodes[0], 0));
	MUST(cuGraphNodeGetEnabled(exec, nodes[0], &on));
	CHECK(!on, "a node that is off is on");
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(a) == 13, "a node that is off ran: %u", word(a));
	MUST(cuGraphNodeSetEnabled(exec, nodes[0], 1));

	/* As a whole: the next token of a program that captures each. */
	for (unsigned int i = 0; i < 3; i++) {
		MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		chain_on(stream, a, 100 + i);
		MUST(cuMemsetD32Async(b, 40 + i, 16, stream));
		MUST(cuMemcpyDtoDAsync(b + 4, a, 4, stream));
		MUST(cuStreamEndCapture(stream, &other));
		EXPECT(cuGraphExecUpdate_v2(exec, other, &info), CUDA_SUCCESS);
		CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "update result %d", (int)info.result);
		MUST(cuGraphDestroy(other));
		MUST(cuGraphLaunch(exec, stream));
	}
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(host, b, 64));
	CHECK(word(a) == ((13 * 3 + 100) * 3 + 101) * 3 + 102 && host[0] == 42 && host[1] == word(a), "%u: %u %u", word(a),
	      host[0], host[1]);

	/* Launches that wait behind a busy stream, more than are given to a driver at once, run as they were sent. */
	{
		enum { LAUNCHES = 700 };
		unsigned long long ns = 100000000;
		unsigned int want = word(a);
		void *busy[] = { &ns };

		MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, busy, NULL));
		for (unsigned int i = 0; i < LAUNCHES; i++) {
			MUST(cuGraphLaunch(exec, stream));
			want = want * 3 + 102;
		}
		value = 55;
		MUST(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &p));
		for (unsigned int i = 0; i < 3; i++) {
			MUST(cuGraphLaunch(exec, stream));
			want = want * 3 + 55;
		}
		MUST(cuStreamSynchronize(stream));
		CHECK(word(a) == want, "changed behind %d launches: %#x, not %#x", LAUNCHES, word(a), want);
	}

	/* Other shapes. */
	MUST(cuGraphCreate(&other, 0));
	others[0] = chain_node(other, a, 1, NULL, 0);
	EXPECT(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "update result %d", (int)info.result);
	others[1] = chain_node(other, a, 1, &others[0], 1);
	others[2] = chain_node(other, a, 1, &others[1], 1);
	EXPECT(cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, "update result %d", (int)info.result);
	MUST(cuGraphDestroy(other));
	MUST(cuGraphGetNodes(graph, NULL, &count));
	CHECK(count == 3, "%zu nodes", count);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
}

/* A graph in a graph, twice; a cycle can't be made. */
static void child_check(void)
{
	CUdeviceptr data = buffer(4);
	CUgraphNode nodes[3], inner[2], n;
	CUstream stream = stream_new();
	CUgraph child, graph, copy;
	CUgraphExec exec = NULL;
	CUresult result;

	MUST(cuGraphCreate(&child, 0));
	inner[0] = chain_node(child, data, 1, NULL, 0);
	inner[1] = chain_node(child, data, 2, inner, 1);
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddChildGraphNode(&nodes[0], graph, NULL, 0, child));
	nodes[1] = chain_node(graph, data, 3, &nodes[0], 1);
	MUST(cuGraphAddChildGraphNode(&nodes[2], graph, &nodes[1], 1, child));
	MUST(cuGraphChildGraphNodeGetGraph(nodes[0], &copy));
	CHECK(copy && copy != child, "a child is a copy");
	/* The copies stay as they were. */
	MUST(cuGraphDestroy(child));
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == ((5 * 3 + 3) * 3 + 1) * 3 + 2, "children: %u", word(data));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));

	MUST(cuGraphCreate(&graph, 0));
	nodes[0] = chain_node(graph, data, 1, NULL, 0);
	n = chain_node(graph, data, 1, nodes, 1);
	/* The driver may tell of a cycle here, or when the graph is made. */
	result = cuGraphAddDependencies(graph, &n, nodes, 1);
	if (!result)
		result = cuGraphInstantiateWithFlags(&exec, graph, 0);
	CHECK(result == CUDA_ERROR_INVALID_VALUE, "a cycle: %d", (int)result);
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* Events that a graph records and waits for, by nodes and by external records in a capture. */
static void event_check(void)
{
	CUdeviceptr a = buffer(4), b = buffer(4);
	CUstream one = stream_new(), two = stream_new();
	unsigned long long ns = 50000000;
	void *busy[] = { &ns };
	CUevent ready, go, seen;
	CUgraphNode nodes[4];
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&go, CU_EVENT_DISABLE_TIMING));
	MUST(cuGraphCreate(&graph, 0));
	nodes[0] = chain_node(graph, a, 4, NULL, 0);
	MUST(cuGraphAddEventRecordNode(&nodes[1], graph, &nodes[0], 1, ready));
	MUST(cuGraphAddEventWaitNode(&nodes[2], graph, &nodes[1], 1, go));
	nodes[3] = chain_node(graph, b, 1, &nodes[2], 1);
	MUST(cuGraphEventRecordNodeGetEvent(nodes[1], &seen));
	CHECK(seen == ready, "the event of a record node");
	exec = made(graph);
	/* b is written by the second stream first, then by the graph, then by the second stream again. */
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, two, busy, NULL));
	fill_on(two, b, 5, 1);
	MUST(cuEventRecord(go, two));
	MUST(cuGraphLaunch(exec, one));
	MUST(cuStreamWaitEvent(two, ready, 0));
	MUST(cuStreamSynchronize(one));
	MUST(cuStreamSynchronize(two));
	EXPECT(cuEventQuery(ready), CUDA_SUCCESS);
	CHECK(word(a) == 4 && word(b) == 16, "events in a graph: %u %u", word(a), word(b));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));

	MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuStreamWaitEvent(one, go, CU_EVENT_WAIT_EXTERNAL));
	chain_on(one, b, 2);
	MUST(cuEventRecordWithFlags(ready, one, CU_EVENT_RECORD_EXTERNAL));
	MUST(cuStreamEndCapture(one, &graph));
	exec = made(graph);
	MUST(cuGraphLaunch(exec, one));
	MUST(cuEventSynchronize(ready));
	CHECK(word(b) == 50, "external events: %u", word(b));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuEventDestroy(ready));
	MUST(cuEventDestroy(go));
	MUST(cuStreamDestroy(one));
	MUST(cuStreamDestroy(two));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
}

/* Words that a graph writes and waits for. */
static void words_check(void)
{
	CUdeviceptr data = buffer(16);
	CUstreamBatchMemOpParams ops[2] = { { .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = data,
							      .value = 77 } },
					    { .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = data,
							     .value = 77, .flags = CU_STREAM_WAIT_VALUE_EQ } } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = { .ctx = context, .count = 2, .paramArray = ops }, got;
	CUstream stream = stream_new();
	CUgraphNode nodes[2];
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddBatchMemOpNode(&nodes[0], graph, NULL, 0, &p));
	nodes[1] = chain_node(graph, data, 1, nodes, 1);
	MUST(cuGraphBatchMemOpNodeGetParams(nodes[0], &got));
	CHECK(got.count == 2 && got.paramArray[0].writeValue.value == 77, "words' parameters");
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == 232, "words: %u", word(data));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* Memory that a graph allocates: used, handed out, freed in the graph or by the program. */
static void memory_check(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
					 .bytesize = 1 << 20 };
	CUdeviceptr out = buffer(4), at = 0;
	CUgraphNode nodes[4];
	CUDA_MEMCPY3D copy;
	CUstream stream = stream_new();
	unsigned int value = 21;
	unsigned long long n = 1024;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t used = 1;

	p.poolProps.location.id = device;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &p));
	CHECK(p.dptr != 0, "no address");
	{
		void *params[] = { &p.dptr, &value, &n };

		nodes[1] = kernel_node(graph, fill, params, nodes, 1);
	}
	copy = line(NULL, out, NULL, p.dptr + 400, 4);
	MUST(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, context));
	MUST(cuGraphAddMemFreeNode(&nodes[3], graph, &nodes[2], 1, p.dptr));
	exec = made(graph);
	for (int i = 0; i < 3; i++)
		MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(out) == 21, "memory of a graph: %u", word(out));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));

	/* Captured, and the program's until it frees it. */
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	MUST(cuMemAllocAsync(&at, 1 << 16, stream));
	fill_on(stream, at, 33, 16);
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuMemcpyDtoDAsync(out, at + 60, 4, stream));
	MUST(cuMemFreeAsync(at, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(out) == 33, "captured memory: %u", word(out));
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuMemFree(at));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	/* A real driver counts what it keeps for the next graph. */
	CHECK(used == 0 || !prog_on_gleam(), "%llu bytes of graphs are in use at the end", (unsigned long long)used);
	MUST(cuDeviceGraphMemTrim(device));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(out));
}

static void gone(void *arg)
{
	__atomic_fetch_add((unsigned int *)arg, 1, __ATOMIC_RELEASE);
}

static bool went(unsigned int *count)
{
	for (int i = 0; i < 200 && !__atomic_load_n(count, __ATOMIC_ACQUIRE); i++)
		usleep(10000);
	return __atomic_load_n(count, __ATOMIC_ACQUIRE) == 1;
}

static void object_check(void)
{
	CUdeviceptr data = buffer(4);
	CUstream stream = stream_new();
	unsigned int count = 0;
	char path[] = "/tmp/gleam-graph-XXXXXX";
	CUuserObject object;
	CUgraphExec exec;
	CUgraph graph;
	char text[64] = "";
	FILE *file;
	int fd;

	MUST(cuUserObjectCreate(&object, &count, gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	MUST(cuGraphCreate(&graph, 0));
	chain_node(graph, data, 1, NULL, 0);
	MUST(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	exec = made(graph);
	fd = mkstemp(path);
	close(fd);
	MUST(cuGraphDebugDotPrint(graph, path, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
	file = fopen(path, "r");
	CHECK(file && fgets(text, sizeof(text), file) && !strncmp(text, "digraph", 7), "the text begins with '%s'", text);
	if (file)
		fclose(file);
	unlink(path);
	MUST(cuGraphDestroy(graph));
	CHECK(count == 0, "the object went with the graph, though something made of it lives");
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuGraphExecDestroy(exec));
	CHECK(went(&count), "the object is still there");
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* General calls for all types of nodes, and attributes of kernels. */
static void general_check(void)
{
	CUdeviceptr data = buffer(64);
	unsigned int value = 8;
	void *params[] = { &data, &value };
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_MEMSET };
	CUkernelNodeAttrValue attribute = { .priority = 0 };
	CUstream stream = stream_new();
	CUgraphNode nodes[2];
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	p.memset.dst = data;
	p.memset.value = 2;
	p.memset.elementSize = 4;
	p.memset.width = 16;
	p.memset.height = 1;
	p.memset.ctx = context;
	MUST(cuGraphAddNode_v2(&nodes[0], graph, NULL, NULL, 0, &p));
	memset(&p, 0, sizeof(p));
	p.type = CU_GRAPH_NODE_TYPE_KERNEL;
	p.kernel.func = chain;
	p.kernel.gridDimX = p.kernel.gridDimY = p.kernel.gridDimZ = 1;
	p.kernel.blockDimX = p.kernel.blockDimY = p.kernel.blockDimZ = 1;
	p.kernel.kernelParams = params;
	MUST(cuGraphAddNode_v2(&nodes[1], graph, nodes, NULL, 1, &p));
	MUST(cuGraphKernelNodeSetAttribute(nodes[1], CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
	MUST(cuGraphKernelNodeGetAttribute(nodes[1], CU_LAUNCH_ATTRIBUTE_PRIORITY, &attribute));
	CHECK(attribute.priority == 0, "priority %d", attribute.priority);
	exec = made(graph);
	MUST(cuGraphUpload(exec, stream));
	MUST(cuGraphLaunch(exec, stream));
	value = 9;
	MUST(cuGraphExecNodeSetParams(exec, nodes[1], &p));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == 14, "general calls: %u", word(data));
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == 15, "general change: %u", word(data));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* Boxes of arrays: from host memory as it is at each launch, on to device memory, and back; by nodes, changed, and captured. */
static void array_check(void)
{
	enum { WIDE = 48, HIGH = 20, X = 4, Y = 3, W = 24, H = 10 };
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = WIDE, .Height = HIGH, .Format = CU_AD_FORMAT_UNSIGNED_INT32, .NumChannels = 1 };
	CUstream stream = stream_new();
	unsigned int in[WIDE * HIGH], out[WIDE * HIGH], other[WIDE * HIGH];
	CUdeviceptr rows = buffer(WIDE * HIGH * 4);
	CUDA_MEMCPY3D up = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = WIDE * 4, .srcXInBytes = X * 4, .srcY = Y,
			     .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstXInBytes = X * 4, .dstY = Y, .WidthInBytes = W * 4, .Height = H,
			     .Depth = 1 };
	CUDA_MEMCPY3D across = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcXInBytes = X * 4, .srcY = Y, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				 .WidthInBytes = W * 4, .Height = H, .Depth = 1 };
	CUDA_MEMCPY3D flat = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = rows,
			       .dstPitch = W * 4, .WidthInBytes = W * 4, .Height = H, .Depth = 1 };
	CUDA_MEMCPY3D down = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out,
			       .dstPitch = WIDE * 4, .WidthInBytes = W * 4, .Height = H, .Depth = 1 };
	CUarray a, b;
	CUgraphNode nodes[4];
	CUgraphExec exec;
	CUgraph graph;
	bool right = true;

	MUST(cuArray3DCreate_v2(&a, &desc));
	MUST(cuArray3DCreate_v2(&b, &desc));
	up.dstArray = across.srcArray = a;
	across.dstArray = flat.srcArray = down.srcArray = b;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemcpyNode(&nodes[0], graph, NULL, 0, &up, context));
	MUST(cuGraphAddMemcpyNode(&nodes[1], graph, &nodes[0], 1, &across, context));
	MUST(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &flat, context));
	MUST(cuGraphAddMemcpyNode(&nodes[3], graph, &nodes[1], 1, &down, context));
	exec = made(graph);
	for (unsigned int turn = 1; turn < 4; turn++) {
		for (unsigned int i = 0; i < WIDE * HIGH; i++) {
			in[i] = turn * 10000 + i;
			other[i] = turn * 20000 + i;
		}
		if (turn == 3) {
			/* From elsewhere: only copies of one dimension can be changed in what was made */
			up.srcHost = other;
			EXPECT(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &up, context), CUDA_ERROR_INVALID_VALUE);
		}
		memset(out, 0, sizeof(out));
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		for (unsigned int y = 0; y < H; y++)
			for (unsigned int x = 0; x < W; x++) {
				unsigned int want = in[(y + Y) * WIDE + x + X];

				right = right && out[y * WIDE + x] == want;
				if (!x)
					right = right && word(rows + y * W * 4) == want;
			}
		CHECK(right, "boxes of arrays, turn %u", turn);
	}
	up.dstXInBytes = (WIDE - W + 1) * 4;
	EXPECT(cuGraphMemcpyNodeSetParams(nodes[0], &up), CUDA_ERROR_INVALID_VALUE);
	up.dstXInBytes = X * 4;
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	/* Captured. */
	up.srcHost = in;
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(cuMemcpy3DAsync_v2(&up, stream));
	MUST(cuMemcpy3DAsync_v2(&across, stream));
	MUST(cuMemcpy3DAsync_v2(&down, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	for (unsigned int i = 0; i < WIDE * HIGH; i++)
		in[i] = 70000 + i;
	memset(out, 0, sizeof(out));
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	for (unsigned int y = 0; y < H; y++)
		for (unsigned int x = 0; x < W; x++)
			right = right && out[y * WIDE + x] == in[(y + Y) * WIDE + x + X];
	CHECK(right, "captured boxes of arrays");
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuArrayDestroy(a));
	MUST(cuArrayDestroy(b));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(rows));
}

/* More nodes than a few, a wide node, and many launches in flight: what frameworks replay. */
static void large_check(void)
{
	enum { NODES = 1500, WIDE = 1200, LAUNCHES = 40 };
	CUdeviceptr data = buffer(4), wide = buffer(WIDE * 4);
	CUstream stream = stream_new();
	CUgraphNode *leaves = malloc(WIDE * sizeof(CUgraphNode));
	unsigned int want = 0, *host = malloc(WIDE * 4), wrong = 0;
	CUgraphExec exec;
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (unsigned int i = 0; i < NODES; i++)
		chain_on(stream, data, i);
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	for (unsigned int l = 0; l < LAUNCHES; l++) {
		MUST(cuGraphLaunch(exec, stream));
		for (unsigned int i = 0; i < NODES; i++)
			want = want * 3 + i;
	}
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == want, "%d launches of %d nodes: %#x, not %#x", LAUNCHES, NODES, word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));

	MUST(cuGraphCreate(&graph, 0));
	for (unsigned int i = 0; i < WIDE; i++)
		leaves[i] = chain_node(graph, wide + i * 4, i, NULL, 0);
	chain_node(graph, wide, 1, leaves, WIDE);
	exec = made(graph);
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(host, wide, WIDE * 4));
	for (unsigned int i = 1; i < WIDE; i++)
		wrong += host[i] != i;
	CHECK(!wrong && host[0] == 1, "%u of %d leaves are wrong", wrong, WIDE);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	free(leaves);
	free(host);
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(wide));
}

int main(void)
{
	CUmodule module;

	context = prog_context(&device);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&chain, module, "chain"));
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	line_check(CU_STREAM_CAPTURE_MODE_GLOBAL);
	line_check(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	line_check(CU_STREAM_CAPTURE_MODE_RELAXED);
	host_check(true);
	host_check(false);
	fork_check();
	illegal_check();
	into_check();
	diamond_check();
	host_node_check();
	update_check();
	child_check();
	event_check();
	words_check();
	memory_check();
	object_check();
	general_check();
	array_check();
	large_check();
	return prog_end();
}
