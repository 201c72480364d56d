// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: parameters of nodes of every kind read back, changed in the graph and in what was made of it, with the result that a
 * launch then has; user objects; memory nodes.
 */
#include "tests/cuda/pieces.h"

static CUcontext context;
static CUdevice device;
static CUstream stream;
static CUfunction fill;

/* When the stream has come to its end. */
static unsigned int last_word(CUdeviceptr at)
{
	MUST(cuStreamSynchronize(stream));
	return word(at);
}

static void launch(CUgraphExec exec)
{
	MUST(cuGraphLaunch(exec, stream));
	MUST(cuStreamSynchronize(stream));
}

/* Make, launch once, and take away. */
static void once(CUgraph graph)
{
	CUgraphExec exec = made(graph);

	launch(exec);
	MUST(cuGraphExecDestroy(exec));
}

static CUDA_MEMCPY3D line(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = from, .srcPitch = size, .srcHeight = 1,
				.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = to, .dstPitch = size, .dstHeight = 1,
				.WidthInBytes = size, .Height = 1, .Depth = 1 };
}

/* A fill of @a, then a copy of it to @b: both are changed in the graph. */
static void fills_and_copies(CUdeviceptr a, CUdeviceptr b)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = a, .value = 11, .elementSize = 4, .width = 4, .height = 1 }, set_back;
	CUDA_MEMCPY3D copy = line(b, a, 16), copy_back;
	CUgraphNodeParams any;
	CUgraphNode setter, copier;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemsetNode(&setter, graph, NULL, 0, &set, context));
	MUST(cuGraphAddMemcpyNode(&copier, graph, &setter, 1, &copy, context));
	once(graph);
	CHECK(last_word(a) == 11 && last_word(b + 12) == 11, "a fill and a copy: %u %u", last_word(a), last_word(b + 12));
	set.value = 22;
	EXPECT(cuGraphMemsetNodeSetParams(setter, &set), CUDA_SUCCESS);
	EXPECT(cuGraphMemsetNodeGetParams(setter, &set_back), CUDA_SUCCESS);
	CHECK(set_back.value == 22 && set_back.dst == a && set_back.elementSize == 4, "a fill of %u", set_back.value);
	copy = line(b + 16, a, 16);
	EXPECT(cuGraphMemcpyNodeSetParams(copier, &copy), CUDA_SUCCESS);
	EXPECT(cuGraphMemcpyNodeGetParams(copier, &copy_back), CUDA_SUCCESS);
	CHECK(copy_back.dstDevice == b + 16 && copy_back.WidthInBytes == 16, "a copy to %#llx", copy_back.dstDevice);
	once(graph);
	CHECK(last_word(a) == 22 && last_word(b + 16) == 22 && last_word(b) == 11, "after the change: %u %u", last_word(a), last_word(b + 16));
	memset(&any, 0, sizeof(any));
	any.type = CU_GRAPH_NODE_TYPE_MEMSET;
	any.memset.dst = a;
	any.memset.value = 33;
	any.memset.elementSize = 4;
	any.memset.width = 4;
	any.memset.height = 1;
	any.memset.ctx = context;
	EXPECT(cuGraphNodeSetParams(setter, &any), CUDA_SUCCESS);
	once(graph);
	CHECK(last_word(a) == 33, "after the change by the general form: %u", last_word(a));
	EXPECT(cuGraphMemsetNodeSetParams(copier, &set), CUDA_ERROR_INVALID_VALUE);
	MUST(cuGraphDestroy(graph));
}

static int host_calls;

static void host_called(void *user)
{
	host_calls += *(int *)user;
}

static void hosts(void)
{
	int one = 1, ten = 10;
	CUDA_HOST_NODE_PARAMS params = { host_called, &one }, back;
	CUgraphNode node;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
	once(graph);
	params.userData = &ten;
	EXPECT(cuGraphHostNodeSetParams(node, &params), CUDA_SUCCESS);
	EXPECT(cuGraphHostNodeGetParams(node, &back), CUDA_SUCCESS);
	CHECK(back.userData == &ten && back.fn == host_called, "the parameters of a host node");
	once(graph);
	CHECK(host_calls == 11, "host functions: %d", host_calls);
	MUST(cuGraphDestroy(graph));
}

static void kernels(CUdeviceptr a)
{
	unsigned int value = 5, other = 6;
	unsigned long long count = 4;
	void *params[] = { &a, &value, &count }, *others[] = { &a, &other, &count };
	CUDA_KERNEL_NODE_PARAMS_v2 kernel = { .func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					      .blockDimY = 1, .blockDimZ = 1, .kernelParams = params }, back;
	CUkernelNodeAttrValue priority, got;
	CUgraphNode one, two;
	CUgraph graph;
	int least, greatest;

	MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddKernelNode_v2(&one, graph, NULL, 0, &kernel));
	MUST(cuGraphAddKernelNode_v2(&two, graph, &one, 1, &kernel));
	kernel.kernelParams = others;
	EXPECT(cuGraphKernelNodeSetParams_v2(two, &kernel), CUDA_SUCCESS);
	EXPECT(cuGraphKernelNodeGetParams_v2(two, &back), CUDA_SUCCESS);
	CHECK(back.func == fill && back.blockDimX == 32, "the parameters of a kernel node");
	memset(&priority, 0, sizeof(priority));
	memset(&got, 0, sizeof(got));
	priority.priority = greatest;
	EXPECT(cuGraphKernelNodeSetAttribute(one, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &priority), CUDA_SUCCESS);
	EXPECT(cuGraphKernelNodeCopyAttributes(two, one), CUDA_SUCCESS);
	EXPECT(cuGraphKernelNodeGetAttribute(two, CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &got), CUDA_SUCCESS);
	CHECK(got.priority == greatest, "a copied priority of %d", got.priority);
	once(graph);
	CHECK(last_word(a) == 6, "two kernels: %u", last_word(a));
	MUST(cuGraphDestroy(graph));
}

static void events_and_children(CUdeviceptr a)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = a, .value = 1, .elementSize = 4, .width = 4, .height = 1 };
	CUgraphNode setter, recorder, waiter, child_node, child_setter;
	CUgraph graph, child;
	CUevent one, two, got = NULL;
	CUgraphExec exec;
	cuuint64_t flags = 77;

	MUST(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
	MUST(cuEventCreate(&two, CU_EVENT_DISABLE_TIMING));
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphCreate(&child, 0));
	MUST(cuGraphAddMemsetNode(&child_setter, child, NULL, 0, &set, context));
	MUST(cuGraphAddMemsetNode(&setter, graph, NULL, 0, &set, context));
	MUST(cuGraphAddEventWaitNode(&waiter, graph, &setter, 1, one));
	MUST(cuGraphAddChildGraphNode(&child_node, graph, &waiter, 1, child));
	MUST(cuGraphAddEventRecordNode(&recorder, graph, &child_node, 1, one));
	EXPECT(cuGraphEventRecordNodeSetEvent(recorder, two), CUDA_SUCCESS);
	EXPECT(cuGraphEventRecordNodeGetEvent(recorder, &got), CUDA_SUCCESS);
	CHECK(got == two, "the event of a record");
	EXPECT(cuGraphEventWaitNodeSetEvent(waiter, two), CUDA_SUCCESS);
	EXPECT(cuGraphEventWaitNodeGetEvent(waiter, &got), CUDA_SUCCESS);
	CHECK(got == two, "the event of a wait");
	exec = made(graph);
	EXPECT(cuGraphExecGetFlags(exec, &flags), CUDA_SUCCESS);
	CHECK(flags == 0, "flags %llu", (unsigned long long)flags);
	launch(exec);
	CHECK(last_word(a) == 1 && cuEventQuery(two) == CUDA_SUCCESS, "events and a child: %u", last_word(a));
	/* In what was made: another event, another child of the same form. */
	EXPECT(cuGraphExecEventRecordNodeSetEvent(exec, recorder, one), CUDA_SUCCESS);
	EXPECT(cuGraphExecEventWaitNodeSetEvent(exec, waiter, one), CUDA_SUCCESS);
	set.value = 9;
	MUST(cuGraphMemsetNodeSetParams(child_setter, &set));
	EXPECT(cuGraphExecChildGraphNodeSetParams(exec, child_node, child), CUDA_SUCCESS);
	launch(exec);
	CHECK(last_word(a) == 9, "another child: %u", last_word(a));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuGraphDestroy(child));
	MUST(cuEventDestroy(one));
	MUST(cuEventDestroy(two));
}

static void words(CUdeviceptr a)
{
	CUstreamBatchMemOpParams op;
	CUDA_BATCH_MEM_OP_NODE_PARAMS params = { .ctx = context, .count = 1, .paramArray = &op }, back;
	CUgraphExec exec;
	CUgraphNode node;
	CUgraph graph;

	memset(&op, 0, sizeof(op));
	op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	op.writeValue.address = a;
	op.writeValue.value = 41;
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &params));
	op.writeValue.value = 42;
	EXPECT(cuGraphBatchMemOpNodeSetParams(node, &params), CUDA_SUCCESS);
	EXPECT(cuGraphBatchMemOpNodeGetParams(node, &back), CUDA_SUCCESS);
	CHECK(back.count == 1, "%u words", back.count);
	exec = made(graph);
	launch(exec);
	CHECK(last_word(a) == 42, "a word: %u", last_word(a));
	op.writeValue.value = 43;
	EXPECT(cuGraphExecBatchMemOpNodeSetParams(exec, node, &params), CUDA_SUCCESS);
	launch(exec);
	CHECK(last_word(a) == 43, "a word after the change: %u", last_word(a));
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

static void memory_nodes(void)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = { CU_MEM_LOCATION_TYPE_DEVICE, device } },
					     .bytesize = 1 << 16 }, back;
	CUDA_MEMSET_NODE_PARAMS set = { .value = 3, .elementSize = 4, .width = 16, .height = 1 };
	CUgraphNode allocator, setter, freer;
	CUdeviceptr freed = 0;
	cuuint64_t reserved = 0, zero = 0;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemAllocNode(&allocator, graph, NULL, 0, &alloc));
	CHECK(alloc.dptr != 0, "no address");
	set.dst = alloc.dptr;
	MUST(cuGraphAddMemsetNode(&setter, graph, &allocator, 1, &set, context));
	MUST(cuGraphAddMemFreeNode(&freer, graph, &setter, 1, alloc.dptr));
	EXPECT(cuGraphMemAllocNodeGetParams(allocator, &back), CUDA_SUCCESS);
	CHECK(back.dptr == alloc.dptr && back.bytesize == alloc.bytesize, "the parameters of an allocation");
	EXPECT(cuGraphMemFreeNodeGetParams(freer, &freed), CUDA_SUCCESS);
	CHECK(freed == alloc.dptr, "the address of a free");
	once(graph);
	EXPECT(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &reserved), CUDA_SUCCESS);
	CHECK(reserved >= alloc.bytesize, "%llu bytes were reserved at most", (unsigned long long)reserved);
	EXPECT(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero), CUDA_SUCCESS);
	EXPECT(cuDeviceGraphMemTrim(device), CUDA_SUCCESS);
	MUST(cuGraphDestroy(graph));
	EXPECT(cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero), CUDA_ERROR_INVALID_VALUE);
}

static int destroyed;

static void destroy(void *user)
{
	*(int *)user += 1;
}

static void user_objects(void)
{
	CUuserObject object;
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	EXPECT(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), CUDA_SUCCESS);
	EXPECT(cuUserObjectRetain(object, 2), CUDA_SUCCESS);
	EXPECT(cuGraphRetainUserObject(graph, object, 1, 0), CUDA_SUCCESS);
	EXPECT(cuUserObjectRelease(object, 2), CUDA_SUCCESS);
	EXPECT(cuGraphReleaseUserObject(graph, object, 1), CUDA_SUCCESS);
	CHECK(destroyed == 0, "an object that is held was destroyed");
	EXPECT(cuUserObjectRelease(object, 1), CUDA_SUCCESS);
	for (int i = 0; i < 200 && !destroyed; i++)
		usleep(10000);
	CHECK(destroyed == 1, "destroyed %d times", destroyed);
	MUST(cuGraphDestroy(graph));
}

static void instantiate_forms(CUdeviceptr a)
{
	CUDA_MEMSET_NODE_PARAMS set = { .dst = a, .value = 77, .elementSize = 4, .width = 4, .height = 1 };
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = 0 };
	CUgraphNode node, error = NULL;
	CUgraphExec one, two;
	char log[128] = "";
	CUgraph graph;

	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemsetNode(&node, graph, NULL, 0, &set, context));
	EXPECT(cuGraphInstantiate_v2(&one, graph, &error, log, sizeof(log)), CUDA_SUCCESS);
	EXPECT(cuGraphInstantiateWithParams(&two, graph, &params), CUDA_SUCCESS);
	CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS, "result %d", (int)params.result_out);
	launch(two);
	CHECK(last_word(a) == 77, "made with parameters: %u", last_word(a));
	launch(one);
	EXPECT(cuGraphExecDestroy(one), CUDA_SUCCESS);
	EXPECT(cuGraphExecDestroy(two), CUDA_SUCCESS);
	MUST(cuGraphDestroy(graph));
}

int main(void)
{
	CUdeviceptr a, b;

	context = prog_context(&device);
	fill = prog_function("util", "fill");
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&a, 256));
	MUST(cuMemAlloc(&b, 256));
	MUST(cuMemsetD8(a, 0, 256));
	MUST(cuMemsetD8(b, 0, 256));
	MUST(cuCtxSynchronize());
	fills_and_copies(a, b);
	hosts();
	kernels(a);
	events_and_children(a);
	words(a);
	memory_nodes();
	user_objects();
	instantiate_forms(a);
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(a));
	MUST(cuMemFree(b));
	return prog_end();
}
