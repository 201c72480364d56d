// SPDX-License-Identifier: Apache-2.0
/*
 * Conditional nodes of graphs: if, else, while and switch, in each other, with bodies built by nodes and by captures, changed and
 * launched again; and wrong uses. What the bodies compute is compared with the same steps on the CPU. Where CUDA's manual says that a
 * use is wrong and not by which code that is told, the code is held against Gleam and the software GPU, and a real driver's is printed.
 */
#include "tests/cuda/pieces.h"

#define STEP(x, add) ((x) * 3u + (add))

static CUcontext context;
static CUfunction set, set_from, count_down, set_both, step;

#define ASSUME(call, want)                                                                                     \
	do {                                                                                                   \
		CUresult assume_result = (call);                                                               \
                                                                                                               \
		if (prog_on_gleam())                                                                           \
			CHECK(assume_result == (want), "%s gave %d (%s), not %d", #call, (int)assume_result,   \
			      prog_error(assume_result), (int)(want));                                         \
		else                                                                                           \
			printf("told: %s: %d%s\n", #call, (int)assume_result,                                  \
			       assume_result == (want) ? "" : " (another code is assumed)");                   \
	} while (0)

static CUdeviceptr word_new(unsigned int value)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, 256));
	MUST(cuMemsetD32(at, value, 64));
	MUST(cuCtxSynchronize());
	return at;
}

static CUgraphNode kernel(CUgraph graph, CUfunction function, void **params, const CUgraphNode *need)
{
	CUDA_KERNEL_NODE_PARAMS p = { .func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = params };
	CUgraphNode node;

	MUST(cuGraphAddKernelNode_v2(&node, graph, need, need ? 1 : 0, &p));
	return node;
}

static CUgraphNode set_node(CUgraph graph, CUgraphConditionalHandle handle, unsigned int value, const CUgraphNode *need)
{
	void *params[] = { &handle, &value };

	return kernel(graph, set, params, need);
}

static CUgraphNode from_node(CUgraph graph, CUgraphConditionalHandle handle, CUdeviceptr from, const CUgraphNode *need)
{
	void *params[] = { &handle, &from };

	return kernel(graph, set_from, params, need);
}

static CUgraphNode down_node(CUgraph graph, CUgraphConditionalHandle handle, CUdeviceptr left, const CUgraphNode *need)
{
	void *params[] = { &handle, &left };

	return kernel(graph, count_down, params, need);
}

static CUgraphNode step_node(CUgraph graph, CUdeviceptr at, unsigned int add, const CUgraphNode *need)
{
	void *params[] = { &at, &add };

	return kernel(graph, step, params, need);
}

static CUgraphConditionalHandle handle_new(CUgraph graph, unsigned int value, unsigned int flags)
{
	CUgraphConditionalHandle handle = 0;

	MUST(cuGraphConditionalHandleCreate(&handle, graph, context, value, flags));
	return handle;
}

static CUgraphNodeParams branch(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned int size)
{
	return (CUgraphNodeParams){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
				    .conditional = { .handle = handle, .type = type, .size = size, .ctx = context } };
}

/* The node; its bodies come back in @bodies_out. */
static CUgraphNode branch_node(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned int size,
			       const CUgraphNode *need, CUgraph **bodies_out)
{
	CUgraphNodeParams p = branch(handle, type, size);
	CUgraphNode node;

	MUST(cuGraphAddNode_v2(&node, graph, need, NULL, need ? 1 : 0, &p));
	*bodies_out = p.conditional.phGraph_out;
	CHECK(*bodies_out && (*bodies_out)[0] && (*bodies_out)[size - 1], "a node without bodies");
	return node;
}

static CUgraph graph_new(void)
{
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	return graph;
}

static void run(CUgraphExec exec, CUstream stream)
{
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
}

/* ---- each kind ---- */

/* A value that is there from the start of each launch, and is set back by it. */
static void default_check(unsigned int value)
{
	CUdeviceptr data = word_new(1);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *bodies;
	CUgraphConditionalHandle handle = handle_new(graph, value, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode node = branch_node(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies), first;
	CUgraphNodeType type;
	unsigned int want = 1;
	CUgraphExec exec;

	/* What the body leaves behind is not seen by the next launch. */
	first = step_node(bodies[0], data, 5, NULL);
	set_node(bodies[0], handle, !value, &first);
	MUST(cuGraphNodeGetType(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_CONDITIONAL, "type %d", (int)type);
	exec = made(graph);
	for (int i = 0; i < 4; i++) {
		run(exec, stream);
		if (value)
			want = STEP(want, 5);
	}
	CHECK(word(data) == want, "if with %u from the start: %u, not %u", value, word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

static void else_check(void)
{
	CUdeviceptr data = word_new(1), which = word_new(0);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *bodies;
	CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
	CUgraphNode first = from_node(graph, handle, which, NULL);
	CUgraphNode node = branch_node(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, &first, &bodies);
	static const unsigned int values[] = { 1, 0, 7, 0, 0x80000000u };
	unsigned int want = 1;
	CUgraphExec exec;

	step_node(bodies[0], data, 10, NULL);
	step_node(bodies[1], data, 20, NULL);
	step_node(graph, data, 1, &node);
	exec = made(graph);
	for (int i = 0; i < 5; i++) {
		word_set(which, values[i]);
		run(exec, stream);
		want = STEP(STEP(want, values[i] ? 10 : 20), 1);
		CHECK(word(data) == want, "if or else by %#x: %u, not %u", values[i], word(data), want);
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(which));
}

static void while_check(void)
{
	static const unsigned int turns[] = { 1, 5, 100 };
	CUdeviceptr data = word_new(2), left = word_new(0);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *bodies;
	CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode node = branch_node(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies);
	CUgraphNode inner = step_node(bodies[0], data, 3, NULL);
	unsigned int want = 2;
	CUgraphExec exec;

	down_node(bodies[0], handle, left, &inner);
	step_node(graph, data, 9, &node);
	exec = made(graph);
	MUST(cuGraphUpload(exec, stream));
	for (int i = 0; i < 3; i++) {
		word_set(left, turns[i]);
		run(exec, stream);
		for (unsigned int t = 0; t < turns[i]; t++)
			want = STEP(want, 3);
		want = STEP(want, 9);
		CHECK(word(data) == want && word(left) == 0, "%u turns: %#x, not %#x; %u left", turns[i], word(data), want, word(left));
	}
	/* One behind the other, nobody waiting in between. */
	for (int i = 0; i < 10; i++) {
		MUST(cuMemsetD32Async(left, 7, 1, stream));
		MUST(cuGraphLaunch(exec, stream));
		for (unsigned int t = 0; t < 7; t++)
			want = STEP(want, 3);
		want = STEP(want, 9);
	}
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == want, "ten launches in flight: %#x, not %#x", word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(left));
}

static void switch_check(void)
{
	CUdeviceptr data = word_new(1), which = word_new(0);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *bodies;
	CUgraphConditionalHandle handle = handle_new(graph, 0, 0);
	CUgraphNode first = from_node(graph, handle, which, NULL);
	unsigned int want = 1;
	CUgraphExec exec;

	branch_node(graph, handle, CU_GRAPH_COND_TYPE_SWITCH, 4, &first, &bodies);
	/* The third does nothing. */
	for (unsigned int i = 0; i < 4; i++)
		if (i != 2)
			step_node(bodies[i], data, 100 + i, NULL);
	exec = made(graph);
	for (unsigned int value = 0; value < 6; value++) {
		word_set(which, value);
		run(exec, stream);
		if (value < 4 && value != 2)
			want = STEP(want, 100 + value);
		CHECK(word(data) == want, "switch by %u: %u, not %u", value, word(data), want);
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(which));
}

/* ---- more of them ---- */

/* A loop with a choice in it, whose handle is the body's; the choice alternates by a word that the loop counts down. */
static void nested_check(void)
{
	CUdeviceptr data = word_new(1), left = word_new(6), odd = word_new(0);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *loop, *choice;
	CUgraphConditionalHandle outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), inner;
	CUgraphNode node, first;
	unsigned int want = 1, flag = 0;
	CUgraphExec exec;

	branch_node(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop);
	inner = handle_new(loop[0], 0, 0);
	first = from_node(loop[0], inner, odd, NULL);
	node = branch_node(loop[0], inner, CU_GRAPH_COND_TYPE_IF, 2, &first, &choice);
	/* if: odd becomes 0 * 3 + 0; else: it becomes 3 * 0 + 1. */
	first = step_node(choice[0], data, 50, NULL);
	{
		CUDA_MEMSET_NODE_PARAMS fill = { .dst = odd, .value = 0, .elementSize = 4, .width = 1, .height = 1 };
		CUgraphNode filled;

		MUST(cuGraphAddMemsetNode(&filled, choice[0], &first, 1, &fill, context));
	}
	first = step_node(choice[1], data, 60, NULL);
	step_node(choice[1], odd, 1, &first);
	down_node(loop[0], outer, left, &node);
	exec = made(graph);
	run(exec, stream);
	for (int i = 0; i < 6; i++) {
		want = STEP(want, flag ? 50 : 60);
		flag = !flag;
	}
	CHECK(word(data) == want, "a choice in a loop: %u, not %u", word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(left));
	MUST(cuMemFree(odd));
}

/* Two nodes, two values set by one kernel that has the handles in a structure. */
static void structure_check(void)
{
	CUdeviceptr a = word_new(1), b = word_new(1);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *first_bodies, *second_bodies;
	struct {
		unsigned int value, more;
		CUgraphConditionalHandle first, second;
	} asked = { .value = 1, .more = 2, .first = handle_new(graph, 0, 0), .second = handle_new(graph, 9, CU_GRAPH_COND_ASSIGN_DEFAULT) };
	void *params[] = { &asked };
	CUDA_KERNEL_NODE_PARAMS p = { .func = set_both, .gridDimX = 3, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = params };
	CUgraphNode node;
	CUgraphExec exec;

	MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &p));
	branch_node(graph, asked.first, CU_GRAPH_COND_TYPE_IF, 1, &node, &first_bodies);
	branch_node(graph, asked.second, CU_GRAPH_COND_TYPE_SWITCH, 5, &node, &second_bodies);
	step_node(first_bodies[0], a, 4, NULL);
	for (unsigned int i = 0; i < 5; i++)
		step_node(second_bodies[i], b, 70 + i, NULL);
	exec = made(graph);
	run(exec, stream);
	CHECK(word(a) == STEP(1, 4) && word(b) == STEP(1, 73), "two by one kernel: %u and %u", word(a), word(b));
	MUST(cuGraphExecDestroy(exec));
	/* Nothing is made of it: it can be once more. */
	exec = made(graph);
	run(exec, stream);
	CHECK(word(a) == STEP(STEP(1, 4), 4) && word(b) == STEP(STEP(1, 73), 73), "made once more: %u and %u", word(a), word(b));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
}

/* Copies, fills, children, and page-locked memory in a body. */
static void body_check(void)
{
	CUdeviceptr data = word_new(3), copy = word_new(0), left = word_new(0), pinned_device;
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = copy + 8, .value = 0x77, .elementSize = 1, .width = 16, .height = 1 };
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), child = graph_new(), *bodies;
	CUgraphConditionalHandle handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUgraphNode node = branch_node(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &bodies), at;
	CUDA_MEMCPY3D p = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = data, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .dstDevice = copy, .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	unsigned int *pinned, want = 3, got[8];
	CUgraphExec exec;

	MUST(cuMemHostAlloc((void **)&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&pinned_device, pinned, 0));
	memset(pinned, 0, 4096);
	pinned[1] = 4;
	at = step_node(child, data, 1, NULL);
	step_node(child, data, 2, &at);
	MUST(cuGraphAddChildGraphNode(&at, bodies[0], NULL, 0, child));
	MUST(cuGraphAddMemcpyNode(&at, bodies[0], &at, 1, &p, context));
	MUST(cuGraphAddMemsetNode(&at, bodies[0], &at, 1, &fill, context));
	/* Down to page-locked memory, and up from it. */
	p.dstMemoryType = CU_MEMORYTYPE_HOST;
	p.dstHost = pinned + 16;
	MUST(cuGraphAddMemcpyNode(&at, bodies[0], &at, 1, &p, context));
	p = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = pinned + 1, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			     .dstDevice = copy + 32, .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	MUST(cuGraphAddMemcpyNode(&at, bodies[0], &at, 1, &p, context));
	MUST(cuGraphAddEmptyNode(&at, bodies[0], &at, 1));
	down_node(bodies[0], handle, left, &at);
	(void)node;
	exec = made(graph);
	for (unsigned int turn = 1; turn < 4; turn++) {
		word_set(left, turn);
		pinned[1] = turn * 11;
		run(exec, stream);
		for (unsigned int i = 0; i < turn; i++)
			want = STEP(STEP(want, 1), 2);
		MUST(cuMemcpyDtoH(got, copy, sizeof(got)));
		CHECK(word(data) == want && got[0] == want && got[2] == 0x77777777u && got[5] == 0x77777777u, "%u turns: %u %u %#x %#x",
		      turn, word(data), got[0], got[2], got[5]);
		CHECK(pinned[16] == want && word(copy + 32) == turn * 11, "page-locked: %u, not %u; %u, not %u", pinned[16], want,
		      word(copy + 32), turn * 11);
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphDestroy(child));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFreeHost(pinned));
	MUST(cuMemFree(data));
	MUST(cuMemFree(copy));
	MUST(cuMemFree(left));
}

/* A conditional node put into a capture that is going on, and a body that is captured too: as frameworks do it. */
static void capture_check(void)
{
	CUdeviceptr data = word_new(1), left = word_new(4);
	CUstream stream = stream_new(), inner = stream_new();
	CUgraphNodeParams p;
	CUgraphConditionalHandle handle;
	CUstreamCaptureStatus status;
	const CUgraphNode *needs;
	unsigned int add = 2, want = 1;
	void *step_params[] = { &data, &add };
	CUgraph graph, body, same;
	CUgraphNode node;
	CUgraphExec exec;
	size_t count;
	CUresult r = cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

	if (r == CUDA_ERROR_NOT_SUPPORTED) {
		printf("no captures here\n");
		goto end;
	}
	MUST(r);
	MUST(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, step_params, NULL));
	MUST(cuStreamGetCaptureInfo_v2(stream, &status, NULL, &graph, &needs, &count));
	handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	p = branch(handle, CU_GRAPH_COND_TYPE_WHILE, 1);
	MUST(cuGraphAddNode_v2(&node, graph, needs, NULL, count, &p));
	MUST(cuStreamUpdateCaptureDependencies(stream, &node, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	body = p.conditional.phGraph_out[0];
	MUST(cuStreamBeginCaptureToGraph(inner, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	add = 5;
	MUST(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, inner, step_params, NULL));
	{
		void *params[] = { &handle, &left };

		MUST(cuLaunchKernel(count_down, 1, 1, 1, 1, 1, 1, 0, inner, params, NULL));
	}
	MUST(cuStreamEndCapture(inner, &same));
	CHECK(same == body, "a body's capture went into another graph");
	add = 8;
	MUST(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, step_params, NULL));
	MUST(cuStreamEndCapture(stream, &graph));
	exec = made(graph);
	for (int i = 0; i < 3; i++) {
		word_set(left, 4);
		run(exec, stream);
		want = STEP(want, 2);
		for (int t = 0; t < 4; t++)
			want = STEP(want, 5);
		want = STEP(want, 8);
	}
	CHECK(word(data) == want, "captured: %#x, not %#x", word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
end:
	MUST(cuStreamDestroy(stream));
	MUST(cuStreamDestroy(inner));
	MUST(cuMemFree(data));
	MUST(cuMemFree(left));
}

/* ---- changes ---- */

struct shape {
	CUgraph graph;
	CUgraphNode setter;
	CUgraphNode body_step;
	CUgraphConditionalHandle handle;
};

/* By @value: one step of @add in the body, then one of 1. */
static struct shape shape_new(CUdeviceptr data, unsigned int value, unsigned int add)
{
	struct shape s = { .graph = graph_new() };
	CUgraphNode node;
	CUgraph *bodies;

	s.handle = handle_new(s.graph, 0, 0);
	s.setter = set_node(s.graph, s.handle, value, NULL);
	node = branch_node(s.graph, s.handle, CU_GRAPH_COND_TYPE_IF, 1, &s.setter, &bodies);
	s.body_step = step_node(bodies[0], data, add, NULL);
	step_node(s.graph, data, 1, &node);
	return s;
}

static void update_check(void)
{
	CUdeviceptr data = word_new(1);
	CUstream stream = stream_new();
	struct shape first = shape_new(data, 1, 4), second = shape_new(data, 1, 6), other;
	CUgraphExec exec = made(first.graph);
	CUgraphExecUpdateResultInfo info;
	unsigned int want = 1, value = 0, add = 9;
	void *setter_params[] = { &first.handle, &value }, *step_params[] = { &data, &add };
	CUDA_KERNEL_NODE_PARAMS p = { .func = set, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1,
				      .blockDimZ = 1, .kernelParams = setter_params };
	CUgraph *bodies;

	run(exec, stream);
	want = STEP(STEP(want, 4), 1);
	CHECK(word(data) == want, "before changes: %u, not %u", word(data), want);
	/* The kernel that sets the value. */
	MUST(cuGraphExecKernelNodeSetParams_v2(exec, first.setter, &p));
	run(exec, stream);
	want = STEP(want, 1);
	CHECK(word(data) == want, "set to false: %u, not %u", word(data), want);
	value = 1;
	MUST(cuGraphExecKernelNodeSetParams_v2(exec, first.setter, &p));
	/* A node of the body. */
	p.func = step;
	p.kernelParams = step_params;
	ASSUME(cuGraphExecKernelNodeSetParams_v2(exec, first.body_step, &p), CUDA_SUCCESS);
	if (prog_on_gleam()) {
		run(exec, stream);
		want = STEP(STEP(want, 9), 1);
		CHECK(word(data) == want, "a body's kernel changed: %u, not %u", word(data), want);
	} else {
		run(exec, stream);
		want = word(data);
	}
	/* All of it. */
	EXPECT(cuGraphExecUpdate_v2(exec, second.graph, &info), CUDA_SUCCESS);
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "update: %d", (int)info.result);
	run(exec, stream);
	want = STEP(STEP(want, 6), 1);
	CHECK(word(data) == want, "changed as a whole: %u, not %u", word(data), want);
	/* Another kind of node in its place. */
	other.graph = graph_new();
	other.handle = handle_new(other.graph, 0, 0);
	other.setter = set_node(other.graph, other.handle, 1, NULL);
	other.setter = branch_node(other.graph, other.handle, CU_GRAPH_COND_TYPE_SWITCH, 1, &other.setter, &bodies);
	step_node(bodies[0], data, 6, NULL);
	step_node(other.graph, data, 1, &other.setter);
	EXPECT(cuGraphExecUpdate_v2(exec, other.graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	CHECK(info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS, "a switch took the place of an if");
	if (!prog_on_gleam())
		printf("told: result of that: %d\n", (int)info.result);
	run(exec, stream);
	want = STEP(STEP(want, 6), 1);
	CHECK(word(data) == want, "after a change that was refused: %u, not %u", word(data), want);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(first.graph));
	MUST(cuGraphDestroy(second.graph));
	MUST(cuGraphDestroy(other.graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
}

/* ---- wrong uses ---- */

static void nothing(void *arg)
{
	(void)arg;
}

static void wrong_check(void)
{
	CUdeviceptr data = word_new(1);
	CUgraph graph = graph_new(), other = graph_new(), clone = NULL, *bodies;
	CUgraphConditionalHandle handle = 0, strange = handle_new(other, 0, 0);
	CUDA_HOST_NODE_PARAMS host = { .fn = nothing };
	CUDA_GRAPH_INSTANTIATE_PARAMS ask = { 0 };
	CUgraphNode node, child;
	CUgraphNodeParams p;
	CUgraphExec exec = NULL, second = NULL;
	static unsigned int pageable[4];
	CUDA_MEMCPY3D down = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = data, .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = pageable, .WidthInBytes = 4, .Height = 1, .Depth = 1 };

	EXPECT(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 2), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGraphConditionalHandleCreate(NULL, graph, context, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGraphConditionalHandleCreate(&handle, NULL, context, 0, 0), CUDA_ERROR_INVALID_VALUE);
	handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	p = branch(handle, CU_GRAPH_COND_TYPE_WHILE, 2);
	EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	p = branch(handle, CU_GRAPH_COND_TYPE_IF, 3);
	EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	p = branch(handle, CU_GRAPH_COND_TYPE_SWITCH, 0);
	EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	p = branch(handle, (CUgraphConditionalNodeType)3, 1);
	EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	/* 580 on an H200 takes that one, and then refused the next node of that graph. */
	p = branch(strange, CU_GRAPH_COND_TYPE_IF, 1);
	if (prog_on_gleam())
		EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	/* A handle that no node looks at. */
	ASSUME(cuGraphInstantiateWithParams(&exec, other, &ask), CUDA_ERROR_INVALID_VALUE);
	if (prog_on_gleam())
		CHECK(ask.result_out == CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, "a handle without a node: %d", (int)ask.result_out);
	else
		printf("told: result of that: %d\n", (int)ask.result_out);
	MUST(cuGraphDestroy(other));
	other = graph_new();
	branch_node(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
	step_node(bodies[0], data, 5, NULL);
	ASSUME(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
	ASSUME(cuGraphAddChildGraphNode(&child, other, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
	ASSUME(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ASSUME(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuGraphLaunch(exec, NULL));
	MUST(cuCtxSynchronize());
	CHECK(word(data) == STEP(1, 5), "after wrong uses: %u", word(data));
	MUST(cuGraphExecDestroy(exec));
	if (second)
		MUST(cuGraphExecDestroy(second));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphDestroy(other));

	/* What bodies can't hold; a driver may say so where it is added, or when the graph is made. */
	for (int kind = 0; kind < 2; kind++) {
		CUresult added;

		graph = graph_new();
		handle = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
		branch_node(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
		added = kind ? cuGraphAddMemcpyNode(&node, bodies[0], NULL, 0, &down, context) :
			       cuGraphAddHostNode(&node, bodies[0], NULL, 0, &host);
		if (!prog_on_gleam())
			printf("told: %s in a body, added: %d\n", kind ? "pageable memory" : "a host function", (int)added);
		else
			CHECK(!added, "%s in a body, added: %d", kind ? "pageable memory" : "a host function", (int)added);
		if (!added) {
			exec = NULL;
			ASSUME(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
			if (exec)
				MUST(cuGraphExecDestroy(exec));
		}
		MUST(cuGraphDestroy(graph));
	}
	if (prog_on_gleam()) {
		/* Handles that have ended. */
		graph = graph_new();
		handle = handle_new(graph, 0, 0);
		MUST(cuGraphDestroy(graph));
		graph = graph_new();
		p = branch(handle, CU_GRAPH_COND_TYPE_IF, 1);
		EXPECT(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
		handle = handle_new(graph, 0, 0);
		branch_node(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
		other = bodies[0];
		MUST(cuGraphDestroy(graph));
		EXPECT(cuGraphAddEmptyNode(&node, other, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	}
	MUST(cuMemFree(data));
}

/* Uses that CUDA's manual does not decide: a handle of the graph around a body, and one handle for two nodes. */
static void open_check(void)
{
	CUdeviceptr data = word_new(1), left = word_new(3);
	CUstream stream = stream_new();
	CUgraph graph = graph_new(), *loop, *bodies;
	CUgraphConditionalHandle outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), inner = handle_new(graph, 0, 0);
	CUgraphNode node = branch_node(graph, outer, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &loop), first;
	CUgraphNodeParams p = branch(inner, CU_GRAPH_COND_TYPE_IF, 1);
	unsigned int want = 1;
	CUgraphExec exec;

	first = set_node(loop[0], inner, 1, NULL);
	ASSUME(cuGraphAddNode_v2(&node, loop[0], &first, NULL, 1, &p), CUDA_SUCCESS);
	if (p.conditional.phGraph_out) {
		step_node(p.conditional.phGraph_out[0], data, 4, NULL);
		down_node(loop[0], outer, left, &node);
		exec = NULL;
		ASSUME(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
		if (exec) {
			run(exec, stream);
			for (int i = 0; i < 3; i++)
				want = STEP(want, 4);
			CHECK(word(data) == want, "a handle of the graph around: %u, not %u", word(data), want);
			MUST(cuGraphExecDestroy(exec));
		}
	}
	MUST(cuGraphDestroy(graph));

	graph = graph_new();
	outer = handle_new(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = branch_node(graph, outer, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies);
	step_node(bodies[0], data, 5, NULL);
	p = branch(outer, CU_GRAPH_COND_TYPE_IF, 1);
	ASSUME(cuGraphAddNode_v2(&node, graph, &node, NULL, 1, &p), CUDA_SUCCESS);
	if (p.conditional.phGraph_out) {
		step_node(p.conditional.phGraph_out[0], data, 6, NULL);
		/* Which is told when the graph is made. */
		EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
	}
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(data));
	MUST(cuMemFree(left));
}

int main(void)
{
	CUmodule module;

	context = prog_context(NULL);
	module = prog_module("condition");
	MUST(cuModuleGetFunction(&set, module, "set"));
	MUST(cuModuleGetFunction(&set_from, module, "set_from"));
	MUST(cuModuleGetFunction(&count_down, module, "count_down"));
	MUST(cuModuleGetFunction(&set_both, module, "set_both"));
	MUST(cuModuleGetFunction(&step, module, "step"));
	default_check(0);
	default_check(1);
	else_check();
	while_check();
	switch_check();
	nested_check();
	structure_check();
	body_check();
	capture_check();
	update_check();
	wrong_check();
	open_check();
	return prog_end();
}
