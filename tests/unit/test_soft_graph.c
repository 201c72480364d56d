// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: built by node calls, made executable, launched, changed.
 */
#include "tests/unit/soft_driver.h"
#include "tests/unit/soft_words.h"

#include <unistd.h>

/* Adds 1 to the word at its first parameter, then times its second. */
static const char kernel_text[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
				  ".visible .entry step(.param .u64 where, .param .u32 factor)\n"
				  "{\n"
				  "	.reg .b64 %rd<2>;\n	.reg .b32 %r<3>;\n"
				  "	ld.param.u64 %rd1, [where];\n	ld.param.u32 %r1, [factor];\n"
				  "	ld.global.u32 %r2, [%rd1];\n	add.u32 %r2, %r2, 1;\n"
				  "	mul.lo.u32 %r2, %r2, %r1;\n	st.global.u32 [%rd1], %r2;\n	ret;\n"
				  "}\n";

static CUfunction step_function(void)
{
	static CUmodule module;

	if (!module)
		module = driver_module(kernel_text);
	return driver_function(module, "step");
}

static CUgraphNode step_node(CUgraph graph, const CUgraphNode *needs, size_t count, uint32_t factor)
{
	CUdeviceptr where = word(0);
	void *params[] = { &where, &factor };
	CUDA_KERNEL_NODE_PARAMS node_params = { .func = step_function(), .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1,
						.blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	CUgraphNode node;

	assert_ok(CU(cuGraphAddKernelNode_v2)(&node, graph, needs, count, &node_params));
	return node;
}

static void host_node(void *user)
{
	words[1] = words[0] + (uint32_t)(uintptr_t)user;
}

static void test_every_kind_of_node_runs_in_order(void **state)
{
	CUgraphNode fill, step, copy, host, empty, record, memop, child_node, nodes[16];
	CUDA_MEMSET_NODE_PARAMS fill_params = { .dst = word(0), .value = 4, .elementSize = 4, .width = 1, .height = 1 };
	CUDA_MEMCPY3D copy_params = { .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				      .WidthInBytes = 4, .Height = 1, .Depth = 1 };
	CUDA_HOST_NODE_PARAMS host_params = { host_node, (void *)100 };
	CUstreamBatchMemOpParams op = { .pad = { 0 } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS memop_params = { NULL, 1, &op, 0 };
	CUgraph graph, child, embedded;
	CUgraphExec exec;
	CUstream stream;
	CUevent event;
	size_t count;
	int type;

	words_clear();
	fill_params.dst = word(0);
	copy_params.srcDevice = word(1);
	copy_params.dstDevice = word(2);
	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = word(3);
	op.writeValue.value = 77;
	assert_ok(CU(cuEventCreate)(&event, 0));
	assert_ok(CU(cuStreamCreate)(&stream, 0));
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	assert_ok(CU(cuGraphCreate)(&child, 0));
	step = step_node(child, NULL, 0, 3); /* (4 + 1) * 3 */
	step_node(child, &step, 1, 2);	     /* (15 + 1) * 2 */
	assert_ok(CU(cuGraphAddMemsetNode)(&fill, graph, NULL, 0, &fill_params, NULL));
	assert_ok(CU(cuGraphAddChildGraphNode)(&child_node, graph, &fill, 1, child));
	assert_ok(CU(cuGraphAddHostNode)(&host, graph, &child_node, 1, &host_params)); /* word 1: 132 */
	assert_ok(CU(cuGraphAddMemcpyNode)(&copy, graph, &host, 1, &copy_params, NULL));
	assert_ok(CU(cuGraphAddEmptyNode)(&empty, graph, &copy, 1));
	assert_ok(CU(cuGraphAddBatchMemOpNode)(&memop, graph, &empty, 1, &memop_params));
	assert_ok(CU(cuGraphAddEventRecordNode)(&record, graph, &memop, 1, event));
	/* The child was copied: what happens to the original does not matter any more. */
	assert_ok(CU(cuGraphDestroyNode)(step));
	assert_ok(CU(cuGraphDestroy)(child));
	assert_ok(CU(cuGraphChildGraphNodeGetGraph)(child_node, &embedded));
	assert_int_equal(CU(cuGraphDestroy)(embedded), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuGraphGetNodes)(embedded, NULL, &count));
	assert_int_equal(count, 2);
	assert_ok(CU(cuGraphGetNodes)(graph, NULL, &count));
	assert_int_equal(count, 7);
	count = 16;
	assert_ok(CU(cuGraphGetNodes)(graph, nodes, &count));
	assert_int_equal(count, 7);
	assert_null(nodes[7]);
	assert_ok(CU(cuGraphNodeGetType)(child_node, &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_ok(CU(cuGraphUpload)(exec, stream));
	/* The graph may go; what was made of it stays. */
	assert_ok(CU(cuGraphDestroy)(graph));
	assert_int_equal(CU(cuGraphNodeGetType)(fill, &type), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuGraphLaunch)(exec, stream));
	assert_ok(CU(cuEventSynchronize)(event));
	assert_int_equal(word_read(0), 32);
	assert_int_equal(word_read(1), 132);
	assert_int_equal(word_read(2), 132);
	assert_int_equal(word_read(3), 77);
	for (int i = 0; i < 20; i++)
		assert_ok(CU(cuGraphLaunch)(exec, i & 1 ? stream : NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), 32);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_int_equal(CU(cuGraphLaunch)(exec, stream), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_ok(CU(cuStreamDestroy_v2)(stream));
}

static void test_edges(void **state)
{
	CUgraphNode a, b, c, other, from[8], to[8], found[8];
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { 0 };
	CUgraph graph, second, clone;
	CUgraphExec exec;
	size_t count;

	words_clear();
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	assert_ok(CU(cuGraphCreate)(&second, 0));
	assert_ok(CU(cuGraphAddEmptyNode)(&other, second, NULL, 0));
	assert_ok(CU(cuGraphAddEmptyNode)(&a, graph, NULL, 0));
	assert_ok(CU(cuGraphAddEmptyNode)(&b, graph, &a, 1));
	assert_ok(CU(cuGraphAddEmptyNode)(&c, graph, NULL, 0));
	assert_int_equal(CU(cuGraphAddEmptyNode)(&found[0], graph, &other, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuGraphAddDependencies)(graph, &a, &b, 1), CUDA_ERROR_INVALID_VALUE); /* there already */
	assert_int_equal(CU(cuGraphAddDependencies)(graph, &a, &a, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuGraphAddDependencies)(graph, &a, &other, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuGraphAddDependencies)(graph, NULL, &b, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuGraphRemoveDependencies)(graph, &b, &c, 1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuGraphAddDependencies)(graph, &b, &c, 1));
	count = 8;
	assert_ok(CU(cuGraphGetEdges)(graph, from, to, &count));
	assert_int_equal(count, 2);
	assert_ptr_equal(from[1], b);
	assert_ptr_equal(to[1], c);
	count = 8;
	assert_ok(CU(cuGraphNodeGetDependencies)(c, found, &count));
	assert_int_equal(count, 1);
	assert_ptr_equal(found[0], b);
	count = 8;
	assert_ok(CU(cuGraphNodeGetDependentNodes)(a, found, &count));
	assert_int_equal(count, 1);
	count = 8;
	assert_ok(CU(cuGraphGetRootNodes)(graph, found, &count));
	assert_int_equal(count, 1);
	assert_ok(CU(cuGraphClone)(&clone, graph));
	assert_ok(CU(cuGraphNodeFindInClone)(&found[0], b, clone));
	assert_ptr_not_equal(found[0], b);
	assert_int_equal(CU(cuGraphNodeFindInClone)(&found[0], other, clone), CUDA_ERROR_INVALID_VALUE);

	/* A cycle is found when the graph is to run. */
	assert_ok(CU(cuGraphAddDependencies)(graph, &c, &a, 1));
	assert_int_equal(CU(cuGraphInstantiateWithParams)(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(params.result_out, 2);
	assert_non_null(params.hErrNode_out);
	assert_ok(CU(cuGraphRemoveDependencies)(graph, &c, &a, 1));
	assert_ok(CU(cuGraphInstantiateWithParams)(&exec, graph, &params));
	assert_int_equal(params.result_out, 0);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroyNode)(b));
	assert_ok(CU(cuGraphGetEdges)(graph, NULL, NULL, &count));
	assert_int_equal(count, 0);
	assert_ok(CU(cuGraphDestroy)(graph));
	assert_ok(CU(cuGraphDestroy)(clone));
	assert_ok(CU(cuGraphDestroy)(second));
	assert_int_equal(CU(cuGraphDestroy)(second), CUDA_ERROR_INVALID_VALUE);
}

static void test_branches_do_not_wait_for_each_other(void **state)
{
	CUstreamBatchMemOpParams wait = { .pad = { 0 } }, write = { .pad = { 0 } };
	CUDA_BATCH_MEM_OP_NODE_PARAMS wait_params = { NULL, 1, &wait, 0 }, write_params = { NULL, 1, &write, 0 };
	CUgraphNode first, second;
	CUgraphExec exec;
	CUgraph graph;

	/* The first branch waits for what the second one writes. */
	words_clear();
	wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	wait.waitValue.address = word(5);
	wait.waitValue.value = 1;
	write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	write.writeValue.address = word(5);
	write.writeValue.value = 1;
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	assert_ok(CU(cuGraphAddBatchMemOpNode)(&first, graph, NULL, 0, &wait_params));
	assert_ok(CU(cuGraphAddBatchMemOpNode)(&second, graph, NULL, 0, &write_params));
	assert_ok(CU(cuGraphInstantiate)(&exec, graph, NULL, NULL, 0));
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
}

static void test_parameters_change_between_launches(void **state)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphExecUpdateResultInfo info;
	CUgraphNode first, second, empty;
	uint32_t factor = 5;
	CUdeviceptr where = word(0);
	void *pointers[] = { &where, &factor };
	unsigned int enabled;
	CUgraphExec exec;
	CUgraph graph, other;

	words_clear();
	where = word(0);
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	first = step_node(graph, NULL, 0, 1);
	second = step_node(graph, &first, 1, 10);
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_ok(CU(cuGraphKernelNodeGetParams_v2)(second, &params));
	assert_int_equal(*(uint32_t *)params.kernelParams[1], 10);
	assert_ptr_equal(params.func, step_function());
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	/* The launch before goes on with what it had. */
	params.kernelParams = pointers;
	assert_ok(CU(cuGraphExecKernelNodeSetParams_v2)(exec, second, &params));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), 20);
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), (20 + 1 + 1) * 5);
	assert_ok(CU(cuGraphNodeSetEnabled)(exec, second, 0));
	assert_ok(CU(cuGraphNodeGetEnabled)(exec, second, &enabled));
	assert_int_equal(enabled, 0);
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), 111);
	assert_ok(CU(cuGraphNodeSetEnabled)(exec, second, 1));

	/* Another graph of the same shape; then one of another. */
	assert_ok(CU(cuGraphKernelNodeSetParams_v2)(first, &params));
	assert_ok(CU(cuGraphExecUpdate_v2)(exec, graph, &info));
	assert_int_equal(info.result, 0);
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), ((111 + 1) * 5 + 1) * 10);
	assert_ok(CU(cuGraphCreate)(&other, 0));
	assert_ok(CU(cuGraphAddEmptyNode)(&empty, other, NULL, 0));
	assert_int_equal(CU(cuGraphExecUpdate_v2)(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, 2);
	step_node(other, NULL, 0, 1);
	assert_int_equal(CU(cuGraphExecUpdate_v2)(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	assert_int_equal(info.result, 3);
	assert_int_equal(CU(cuGraphExecKernelNodeSetParams_v2)(exec, empty, &params), CUDA_ERROR_INVALID_VALUE);
	params.gridDimX = 0;
	assert_int_equal(CU(cuGraphExecKernelNodeSetParams_v2)(exec, second, &params), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
	assert_ok(CU(cuGraphDestroy)(other));
}

static void test_a_wait_node_waits_for_an_event(void **state)
{
	CUDA_MEMSET_NODE_PARAMS fill_params = { .value = 8, .elementSize = 4, .width = 1, .height = 1 };
	CUgraphNode wait, fill;
	CUgraphExec exec;
	CUstream other;
	CUgraph graph;
	CUevent event;

	words_clear();
	fill_params.dst = word(7);
	assert_ok(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuEventCreate)(&event, 0));
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	assert_ok(CU(cuGraphAddEventWaitNode)(&wait, graph, NULL, 0, event));
	assert_ok(CU(cuGraphAddMemsetNode)(&fill, graph, &wait, 1, &fill_params, NULL));
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_ok(CU(cuStreamWaitValue32_v2)(other, word(6), 1, 0));
	assert_ok(CU(cuEventRecord)(event, other));
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	usleep(20000);
	assert_int_equal(word_read(7), 0);
	__atomic_store_n(&words[6], 1, __ATOMIC_RELEASE);
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(7), 8);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_ok(CU(cuStreamDestroy_v2)(other));
}

static void test_a_large_graph(void **state)
{
	CUgraphNode previous = NULL, node;
	CUgraphExec exec;
	CUgraph graph;

	words_clear();
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	for (int i = 0; i < 2000; i++) {
		node = step_node(graph, &previous, previous ? 1 : 0, 1);
		previous = node;
	}
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_ok(CU(cuGraphLaunch)(exec, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(0), 2000);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
}

static void step_on(CUstream stream, uint32_t factor)
{
	CUdeviceptr where = word(0);
	void *params[] = { &where, &factor };

	assert_ok(CU(cuLaunchKernel)(step_function(), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void test_streams_are_captured(void **state)
{
	CUstream first, second;
	CUgraph graph, again;
	CUgraphExec exec;
	CUevent event;
	size_t count = 0;
	uint32_t got;
	int status;

	words_clear();
	assert_ok(CU(cuStreamCreate)(&first, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuStreamCreate)(&second, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	assert_int_equal(CU(cuStreamEndCapture)(first, &graph), CUDA_ERROR_ILLEGAL_STATE);
	assert_int_equal(CU(cuStreamBeginCapture_v2)(NULL, 2), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_ok(CU(cuStreamBeginCapture_v2)(first, 2));
	assert_int_equal(CU(cuStreamBeginCapture_v2)(first, 2), CUDA_ERROR_ILLEGAL_STATE);
	assert_ok(CU(cuMemsetD32Async)(word(0), 4, 1, first));
	step_on(first, 3);
	assert_ok(CU(cuEventRecord)(event, first));
	assert_ok(CU(cuStreamWaitEvent)(second, event, 0));
	assert_ok(CU(cuStreamIsCapturing)(second, &status));
	assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_ok(CU(cuMemcpyDtoDAsync_v2)(word(8), word(0), 4, second));
	assert_ok(CU(cuLaunchHostFunc)(second, host_node, (void *)7));
	assert_ok(CU(cuEventRecord)(event, second));
	assert_ok(CU(cuStreamWaitEvent)(first, event, 0));
	step_on(first, 2);
	assert_ok(CU(cuStreamEndCapture)(first, &graph));
	assert_ok(CU(cuGraphGetNodes)(graph, NULL, &count));
	assert_int_equal(count, 5);
	assert_int_equal(word_read(0), 0);
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_ok(CU(cuGraphLaunch)(exec, first));
	assert_ok(CU(cuStreamSynchronize)(first));
	assert_int_equal(word_read(8), 15);
	assert_int_equal(word_read(1), 22);
	assert_int_equal(word_read(0), 32);
	/* What can't be captured spoils it; so does an end on another stream, and what was not joined. */
	assert_ok(CU(cuStreamBeginCapture_v2)(first, 2));
	assert_int_equal(CU(cuStreamAddCallback)(first, (CUstreamCallback)0x10, NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_int_equal(CU(cuMemsetD32Async)(word(0), 4, 1, first), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(CU(cuStreamEndCapture)(first, &again), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_null(again);
	assert_ok(CU(cuStreamBeginCapture_v2)(first, 2));
	assert_ok(CU(cuEventRecord)(event, first));
	assert_ok(CU(cuStreamWaitEvent)(second, event, 0));
	step_on(second, 1);
	assert_int_equal(CU(cuStreamEndCapture)(first, &again), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	/* Both are ordinary streams again; the event is of a capture that is gone. */
	assert_int_equal(CU(cuStreamWaitEvent)(second, event, 0), CUDA_ERROR_CAPTURED_EVENT);
	assert_ok(CU(cuEventRecord)(event, first));
	assert_ok(CU(cuStreamWaitEvent)(second, event, 0));
	assert_ok(CU(cuMemcpyDtoH_v2)(&got, word(8), 4));
	assert_int_equal(got, 15);
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_ok(CU(cuStreamDestroy_v2)(first));
	assert_ok(CU(cuStreamDestroy_v2)(second));
}

/* A loop that a kernel in it ends, and a handle that is none. */
static void test_conditions(void **state)
{
	static const char text[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
				   ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
				   ".visible .entry down(.param .u64 where, .param .u64 handle)\n"
				   "{\n"
				   "	.reg .b64 %rd<3>;\n	.reg .b32 %r<3>;\n"
				   "	ld.param.u64 %rd1, [where];\n	ld.param.u64 %rd2, [handle];\n"
				   "	ld.global.u32 %r1, [%rd1];\n	add.s32 %r1, %r1, -1;\n	st.global.u32 [%rd1], %r1;\n"
				   "	{ .param .b64 p0; st.param.b64 [p0], %rd2; .param .b32 p1; st.param.b32 [p1], %r1;\n"
				   "	call.uni cudaGraphSetConditional, (p0, p1); }\n	ret;\n"
				   "}\n";
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	CUDA_KERNEL_NODE_PARAMS k = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1 };
	CUdeviceptr where;
	void *params[] = { &where, &p.conditional.handle };
	CUgraphExec exec, second;
	CUgraph graph, clone;
	CUgraphNode node;

	words_clear();
	where = word(2);
	k.func = driver_function(driver_module(text), "down");
	k.kernelParams = params;
	assert_ok(CU(cuGraphCreate)(&graph, 0));
	assert_ok(CU(cuGraphConditionalHandleCreate)(&p.conditional.handle, graph, NULL, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
	assert_int_equal(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
	p.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
	p.conditional.size = 2;
	assert_int_equal(CU(cuGraphAddNode_v2)(&node, graph, NULL, NULL, 0, &p), CUDA_ERROR_INVALID_VALUE);
	p.conditional.size = 1;
	assert_ok(CU(cuGraphAddNode_v2)(&node, graph, NULL, NULL, 0, &p));
	assert_ok(CU(cuGraphAddKernelNode_v2)(&node, p.conditional.phGraph_out[0], NULL, 0, &k));
	assert_int_equal(CU(cuGraphClone)(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
	assert_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
	assert_int_equal(CU(cuGraphInstantiateWithFlags)(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	for (uint32_t turns = 1; turns < 20; turns += 6) {
		words[2] = turns;
		assert_ok(CU(cuGraphLaunch)(exec, NULL));
		assert_ok(CU(cuCtxSynchronize)());
		assert_int_equal(word_read(2), 0);
	}
	assert_ok(CU(cuGraphExecDestroy)(exec));
	assert_ok(CU(cuGraphDestroy)(graph));
	/* The handle has ended with its graph: the kernel faults, and the context is lost. */
	words[2] = 5;
	assert_ok(CU(cuLaunchKernel)(k.func, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	assert_int_equal(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_kind_of_node_runs_in_order),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_branches_do_not_wait_for_each_other),
		cmocka_unit_test(test_parameters_change_between_launches),
		cmocka_unit_test(test_a_wait_node_waits_for_an_event),
		cmocka_unit_test(test_a_large_graph),
		cmocka_unit_test(test_streams_are_captured),
		cmocka_unit_test(test_conditions), /* the last: it loses the context */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
