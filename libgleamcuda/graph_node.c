// SPDX-License-Identifier: Apache-2.0
/*
 * The program's calls that add nodes to a graph, and that ask for or change what a node does. Application threads.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/program.h"

/* Version 1 of a kernel's parameters ends before the kernel and the context. */
#define KERNEL_V1_SIZE sizeof(CUDA_KERNEL_NODE_PARAMS_v1)
static_assert(KERNEL_V1_SIZE == offsetof(CUDA_KERNEL_NODE_PARAMS, kern), "version 1 is the beginning of version 2");

#define NO_SEMAPHORES "semaphores of other APIs are this machine's, and the GPU is not"

/* ---- adding ---- */

/* Takes @work. */
static CUresult add(struct call *call, CUgraphNode *node_out, CUgraph hGraph, const CUgraphNode *needs,
		    const CUgraphEdgeData *data, size_t count, struct graph_work *work)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct graph_node *node = NULL;
	struct graph *graph;

	graph_lock();
	graph = graph_find(hGraph);
	if (!graph || !node_out || (count && !needs))
		graph_work_free(work);
	else
		result = graph_node_add(graph, needs, data, count, work, &node);
	if (!result)
		*node_out = (CUgraphNode)(uintptr_t)node->handle;
	graph_unlock();
	graph_memory_sweep(call);
	return result;
}

static CUresult kernel_read(const void *params, size_t size, CUDA_KERNEL_NODE_PARAMS *params_out)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memset(params_out, 0, sizeof(*params_out));
	memcpy(params_out, params, size);
	return CUDA_SUCCESS;
}

static CUresult kernel_work(struct call *call, const void *params, size_t size, struct graph_work *work_out)
{
	CUDA_KERNEL_NODE_PARAMS full;
	CUresult result = kernel_read(params, size, &full);

	return result ? result : graph_work_kernel(call, &full, work_out);
}

CUresult do_cuGraphAddKernelNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	struct graph_work work;
	CUresult result = kernel_work(call, nodeParams, KERNEL_V1_SIZE, &work);

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddKernelNode_v2(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				    const CUgraphNode *dependencies, size_t numDependencies,
				    const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = kernel_work(call, nodeParams, sizeof(*nodeParams), &work);

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddMemcpyNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies, const CUDA_MEMCPY3D *copyParams,
				 CUcontext ctx)
{
	struct graph_work work;
	CUresult result = copyParams ? graph_work_copy(call, copyParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddMemsetNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				 const CUgraphNode *dependencies, size_t numDependencies,
				 const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct graph_work work;
	CUresult result = memsetParams ? graph_work_fill(call, memsetParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddHostNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
			       const CUgraphNode *dependencies, size_t numDependencies,
			       const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_host(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddEmptyNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

/* A copy of the node's own, or the graph itself where it moves in. */
static CUresult child_work(CUgraph hChild, bool moves, struct graph_work *work_out)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUresult result = CUDA_SUCCESS;
	struct graph *child;

	graph_lock();
	child = graph_find(hChild);
	if (!child || graph_depth(child) >= GRAPH_DEPTH_MAX || (moves && (child->owner || child->capturing)))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (graph_branches(child))
		result = CUDA_ERROR_NOT_SUPPORTED;
	else
		work.child = moves ? child : graph_clone(child);
	if (!result && !work.child)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	graph_unlock();
	if (!result)
		*work_out = work;
	return result;
}

CUresult do_cuGraphAddChildGraphNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				     const CUgraphNode *dependencies, size_t numDependencies, CUgraph childGraph)
{
	struct graph_work work;
	CUresult result = child_work(childGraph, false, &work);

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddEventRecordNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				      const CUgraphNode *dependencies, size_t numDependencies, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddEventWaitNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				    const CUgraphNode *dependencies, size_t numDependencies, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddBatchMemOpNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				     const CUgraphNode *dependencies, size_t numDependencies,
				     const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_words(call, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

static CUresult alloc_work(struct call *call, CUDA_MEM_ALLOC_NODE_PARAMS *params, struct graph_work *work_out)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc.params = *params };
	CUresult result;

	if (params->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    params->poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE || (params->accessDescCount && !params->accessDescs))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < params->accessDescCount; i++)
		if (params->accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    params->accessDescs[i].location.id != params->poolProps.location.id)
			return call_refuse(call, "peer access is not built yet");
	result = graph_memory_new(call, params->poolProps.location.id, params->bytesize, &work.alloc.memory);
	if (result)
		return result;
	work.alloc.params.accessDescs = NULL;
	work.alloc.params.accessDescCount = 0;
	params->dptr = work.alloc.params.dptr = graph_memory_address(work.alloc.memory);
	*work_out = work;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphAddMemAllocNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				   const CUgraphNode *dependencies, size_t numDependencies,
				   CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? alloc_work(call, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work);
}

CUresult do_cuGraphAddMemFreeNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
				  const CUgraphNode *dependencies, size_t numDependencies, CUdeviceptr dptr)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .freed = dptr };

	return graph_memory_has(dptr) ? add(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, &work) :
					CUDA_ERROR_INVALID_VALUE;
}

/* What the general calls describe; a union for all types. */
CUresult graph_work_of(struct call *call, CUgraphNodeParams *p, struct graph_work *work_out)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS words;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_HOST_NODE_PARAMS host;

	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(call, &p->kernel, sizeof(CUDA_KERNEL_NODE_PARAMS), work_out);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return graph_work_copy(call, &p->memcpy.copyParams, p->memcpy.copyCtx, work_out);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&fill, &p->memset, sizeof(fill));
		return graph_work_fill(call, &fill, p->memset.ctx, work_out);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){ p->host.fn, p->host.userData };
		return graph_work_host(&host, work_out);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_work(p->graph.graph, p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE, work_out);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		*work_out = (struct graph_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return graph_work_event(call, p->type, p->eventWait.event, work_out);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return graph_work_event(call, p->type, p->eventRecord.event, work_out);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return alloc_work(call, (CUDA_MEM_ALLOC_NODE_PARAMS *)(void *)&p->alloc, work_out);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		if (!graph_memory_has(p->free.dptr))
			return CUDA_ERROR_INVALID_VALUE;
		*work_out = (struct graph_work){ .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .freed = p->free.dptr };
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		memcpy(&words, &p->memOp, sizeof(words));
		return graph_work_words(call, &words, work_out);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		break; /* can't be changed; and to be made it has to know its graph */
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return call_refuse(call, NO_SEMAPHORES);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static bool is_zero(const void *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (((const uint8_t *)bytes)[i])
			return false;
	return true;
}

CUresult do_cuGraphAddNode_v2(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph,
			      const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
			      size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	struct graph_work work;
	CUgraph *bodies = NULL;
	CUresult result;

	if (!nodeParams || !is_zero(nodeParams->reserved0, sizeof(nodeParams->reserved0)) || nodeParams->reserved2)
		return CUDA_ERROR_INVALID_VALUE;
	if (nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		result = graph_work_branch(call, hGraph, &nodeParams->conditional, &work);
		bodies = result ? NULL : work.branch.handles;
	} else {
		result = graph_work_of(call, nodeParams, &work);
	}
	if (!result)
		result = add(call, phGraphNode, hGraph, dependencies, dependencyData, numDependencies, &work);
	if (!result && bodies)
		nodeParams->conditional.phGraph_out = bodies;
	return result;
}

CUresult do_cuGraphAddNode(struct call *call, CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			   size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	return do_cuGraphAddNode_v2(call, phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

/* ---- asking ---- */

/* The lock is taken when a node comes back. */
static const struct graph_node *node_of_locked(CUgraphNode hNode, CUgraphNodeType type, const void *out)
{
	const struct graph_node *node;

	if (!out)
		return NULL;
	graph_lock();
	node = graph_node_find(hNode);
	if (node && node->work.type == type)
		return node;
	graph_unlock();
	return NULL;
}

static CUresult kernel_get(CUgraphNode hNode, void *params, size_t size)
{
	const struct graph_node *node = node_of_locked(hNode, CU_GRAPH_NODE_TYPE_KERNEL, params);
	CUDA_KERNEL_NODE_PARAMS full = { 0 };

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;

	const struct graph_work *w = &node->work;

	full.func = w->kernel.given;
	full.kern = w->kernel.kern;
	/* The older form has no room for a kernel, and takes one in place of a function. */
	if (size == KERNEL_V1_SIZE && !full.func)
		full.func = (CUfunction)w->kernel.kern;
	memcpy(&full.gridDimX, w->kernel.grid, sizeof(w->kernel.grid));
	memcpy(&full.blockDimX, w->kernel.block, sizeof(w->kernel.block));
	full.sharedMemBytes = w->kernel.shared_size;
	full.kernelParams = w->kernel.pointers;
	full.ctx = w->context->handle;
	graph_unlock();
	memcpy(params, &full, size);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeGetParams(struct call *call, CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	return kernel_get(hNode, nodeParams, KERNEL_V1_SIZE);
}

CUresult do_cuGraphKernelNodeGetParams_v2(struct call *call, CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	return kernel_get(hNode, nodeParams, sizeof(*nodeParams));
}

#define GETTER(function, type_name, out_type, out, field)                                                      \
	CUresult do_##function(struct call *call, CUgraphNode hNode, out_type *out)                            \
	{                                                                                                      \
		const struct graph_node *node = node_of_locked(hNode, CU_GRAPH_NODE_TYPE_##type_name, out);    \
                                                                                                               \
		if (!node)                                                                                     \
			return CUDA_ERROR_INVALID_VALUE;                                                       \
		*out = field;                                                                                  \
		graph_unlock();                                                                                \
		return CUDA_SUCCESS;                                                                           \
	}

GETTER(cuGraphMemcpyNodeGetParams, MEMCPY, CUDA_MEMCPY3D, nodeParams, node->work.copy)
GETTER(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, nodeParams, node->work.fill)
GETTER(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS, nodeParams, node->work.host)
GETTER(cuGraphChildGraphNodeGetGraph, GRAPH, CUgraph, phGraph, (CUgraph)(uintptr_t)node->work.child->handle)
GETTER(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, event_out, (CUevent)(uintptr_t)node->work.event)
GETTER(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, event_out, (CUevent)(uintptr_t)node->work.event)
GETTER(cuGraphMemAllocNodeGetParams, MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, params_out, node->work.alloc.params)
GETTER(cuGraphMemFreeNodeGetParams, MEM_FREE, CUdeviceptr, dptr_out, node->work.freed)

CUresult do_cuGraphBatchMemOpNodeGetParams(struct call *call, CUgraphNode hNode,
					   CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out)
{
	const struct graph_node *node = node_of_locked(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out);

	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	*nodeParams_out = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
		.ctx = node->work.context->handle, .count = node->work.words.count,
		.paramArray = node->work.words.ops, .flags = node->work.words.flags,
	};
	graph_unlock();
	return CUDA_SUCCESS;
}

/* ---- changing ---- */

/* Takes @work. A kernel keeps its attributes. */
static CUresult change(struct call *call, CUgraphNode hNode, struct graph_work *work)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct graph_work old = *work;
	struct graph_node *node;

	graph_lock();
	node = graph_node_find(hNode);
	if (node && node->work.type == work->type && work->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
	    work->type != CU_GRAPH_NODE_TYPE_MEM_FREE && work->type != CU_GRAPH_NODE_TYPE_GRAPH) {
		old = node->work;
		node->work = *work;
		if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
			node->work.kernel.attrs = old.kernel.attrs;
			node->work.kernel.attr_count = old.kernel.attr_count;
			old.kernel.attrs = NULL;
		}
		result = CUDA_SUCCESS;
	}
	graph_work_free(&old);
	graph_unlock();
	graph_memory_sweep(call);
	return result;
}

CUresult do_cuGraphKernelNodeSetParams(struct call *call, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	struct graph_work work;
	CUresult result = kernel_work(call, nodeParams, KERNEL_V1_SIZE, &work);

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphKernelNodeSetParams_v2(struct call *call, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = kernel_work(call, nodeParams, sizeof(*nodeParams), &work);

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphMemcpyNodeSetParams(struct call *call, CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_copy(call, nodeParams, NULL, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphMemsetNodeSetParams(struct call *call, CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_fill(call, nodeParams, NULL, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphHostNodeSetParams(struct call *call, CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_host(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphEventRecordNodeSetEvent(struct call *call, CUgraphNode hNode, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphEventWaitNodeSetEvent(struct call *call, CUgraphNode hNode, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphBatchMemOpNodeSetParams(struct call *call, CUgraphNode hNode,
					   const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_words(call, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : change(call, hNode, &work);
}

CUresult do_cuGraphNodeSetParams(struct call *call, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	struct graph_work work;
	CUresult result;

	if (!nodeParams || nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE || nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	result = graph_work_of(call, nodeParams, &work);
	return result ? result : change(call, hNode, &work);
}

/* ---- attributes of kernel nodes ---- */

CUresult do_cuGraphKernelNodeGetAttribute(struct call *call, CUgraphNode hNode, CUkernelNodeAttrID attr,
					  CUkernelNodeAttrValue *value_out)
{
	const struct graph_node *node;
	CUkernelNodeAttrValue value;

	if (attr <= CU_LAUNCH_ATTRIBUTE_IGNORE || attr >= CU_LAUNCH_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	node = node_of_locked(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value_out);
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	memset(&value, 0, sizeof(value));
	for (uint32_t i = 0; i < node->work.kernel.attr_count; i++)
		if (node->work.kernel.attrs[i].id == attr)
			value = node->work.kernel.attrs[i].value;
	graph_unlock();
	*value_out = value;
	return CUDA_SUCCESS;
}

/* Lock held. The room grows by one; ids stay apart. */
static CUresult attribute_put(struct graph_work *work, const CUlaunchAttribute *attribute)
{
	CUlaunchAttribute *attrs;

	for (uint32_t i = 0; i < work->kernel.attr_count; i++)
		if (work->kernel.attrs[i].id == attribute->id) {
			work->kernel.attrs[i] = *attribute;
			return CUDA_SUCCESS;
		}
	attrs = realloc(work->kernel.attrs, (work->kernel.attr_count + 1u) * sizeof(*attrs));
	if (!attrs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	attrs[work->kernel.attr_count] = *attribute;
	work->kernel.attrs = attrs;
	work->kernel.attr_count++;
	return CUDA_SUCCESS;
}

CUresult do_cuGraphKernelNodeSetAttribute(struct call *call, CUgraphNode hNode, CUkernelNodeAttrID attr,
					  const CUkernelNodeAttrValue *value)
{
	CUlaunchAttribute given = { .id = attr };
	struct launch launch = { .attr_count = 0 };
	struct graph_node *node;
	CUresult result;

	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
		return call_refuse(call, "nodes that kernels change would be changed behind the library's back");
	given.value = *value;
	result = launch_attributes(call, &launch, &given, 1);
	if (result)
		return result;
	graph_lock();
	node = graph_node_find(hNode);
	if (!node || node->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (launch.attr_count)
		result = attribute_put(&node->work, &launch.attrs[0]);
	graph_unlock();
	return result;
}

CUresult do_cuGraphKernelNodeCopyAttributes(struct call *call, CUgraphNode dst, CUgraphNode src)
{
	CUresult result = CUDA_SUCCESS;
	struct graph_node *to;
	const struct graph_node *from;

	graph_lock();
	to = graph_node_find(dst);
	from = graph_node_find(src);
	if (!to || !from || to->work.type != CU_GRAPH_NODE_TYPE_KERNEL || from->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; !result && to != from && i < from->work.kernel.attr_count; i++)
		result = attribute_put(&to->work, &from->work.kernel.attrs[i]);
	graph_unlock();
	return result;
}
