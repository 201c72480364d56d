// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes by kind: making them, reading and changing what they do. Any thread.
 */
#include <string.h>

#include "broker/softgpu/soft_graph.h"

/* Version 1 kernel parameters end before the kernel and the context. */
#define KERNEL_PARAMS_V1_SIZE offsetof(CUDA_KERNEL_NODE_PARAMS, kern)

/* Puts @work in the place of what @handle does, which must be of the same kind. Takes @work. */
static CUresult node_change(CUgraphNode handle, struct soft_work *work)
{
	SOFT_HELD struct soft_node *node = NULL;
	struct soft_work old = *work;
	CUresult result = soft_node_find(handle, &node);

	if (result == CUDA_SUCCESS) {
		soft_graph_lock();
		if (node->work.type != work->type) {
			result = CUDA_ERROR_INVALID_VALUE;
		} else {
			old = node->work;
			node->work = *work;
		}
		soft_graph_unlock();
	}
	soft_work_free(&old);
	return result;
}

/* The node that @handle names if it is of kind @type, its work stable while the graph lock is held. */
static CUresult node_of(CUgraphNode handle, int type, struct soft_node **node_out)
{
	TRY(soft_node_find(handle, node_out));
	return (*node_out)->work.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- kernels ---- */

static CUresult kernel_params_read(const void *params, size_t size, CUDA_KERNEL_NODE_PARAMS *params_out)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memset(params_out, 0, sizeof(*params_out));
	memcpy(params_out, params, size);
	return CUDA_SUCCESS;
}

/* The context a kernel node is for: the one it names, or the current one. */
static CUresult kernel_work(struct soft_work *work, const void *params, size_t size)
{
	SOFT_HELD struct soft_context *named = NULL;
	CUDA_KERNEL_NODE_PARAMS full;

	SOFT_ENTER(context);
	TRY(kernel_params_read(params, size, &full));
	if (full.ctx)
		TRY(soft_context_find(full.ctx, &named));
	return soft_work_kernel(work, named ? named : context, &full);
}

static CUresult kernel_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, const void *params,
			   size_t size)
{
	struct soft_work work;

	TRY(kernel_work(&work, params, size));
	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphAddKernelNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_KERNEL_NODE_PARAMS *params)
{
	return kernel_add(node, graph, needs, count, params, sizeof(*params));
}

SOFT_API(cuGraphAddKernelNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_KERNEL_NODE_PARAMS *params)
{
	return kernel_add(node, graph, needs, count, params, KERNEL_PARAMS_V1_SIZE);
}

static CUresult kernel_get(CUgraphNode handle, void *params, size_t size)
{
	SOFT_HELD struct soft_node *node = NULL;
	CUDA_KERNEL_NODE_PARAMS full = { 0 };
	const struct soft_launch *launch;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	launch = node->work.kernel.launch;
	full.func = (CUfunction)(uintptr_t)atomic_load(&launch->function->object.handle);
	memcpy(&full.gridDimX, launch->grid, sizeof(launch->grid));
	memcpy(&full.blockDimX, launch->block, sizeof(launch->block));
	full.sharedMemBytes = launch->shared_dynamic;
	full.kernelParams = launch->function->entry->param_count ? node->work.kernel.pointers : NULL;
	full.ctx = soft_context_handle(launch->function->object.owner);
	soft_graph_unlock();
	memcpy(params, &full, size);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphKernelNodeGetParams_v2, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
	return kernel_get(node, params, sizeof(*params));
}

SOFT_API(cuGraphKernelNodeGetParams, CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
	return kernel_get(node, params, KERNEL_PARAMS_V1_SIZE);
}

SOFT_API(cuGraphKernelNodeSetParams_v2, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(kernel_work(&work, params, sizeof(*params)));
	return node_change(node, &work);
}

SOFT_API(cuGraphKernelNodeSetParams, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(kernel_work(&work, params, KERNEL_PARAMS_V1_SIZE));
	return node_change(node, &work);
}

SOFT_API(cuGraphKernelNodeSetAttribute, CUgraphNode handle, int attribute, const CUlaunchAttributeValue *value)
{
	SOFT_HELD struct soft_node *node = NULL;
	CUresult result = CUDA_SUCCESS;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	switch (attribute) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		node->work.kernel.launch->cooperative = value->cooperative != 0;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		result = soft_launch_cluster(node->work.kernel.launch,
					     (uint32_t[]){ value->clusterDim.x, value->clusterDim.y, value->clusterDim.z });
		break;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		soft_graph_unlock();
		return CUDA_ERROR_NOT_SUPPORTED;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		break; /* hints */
	default:
		soft_graph_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	soft_graph_unlock();
	return result;
}

SOFT_API(cuGraphKernelNodeGetAttribute, CUgraphNode handle, int attribute, CUlaunchAttributeValue *value)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_KERNEL, &node));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute != CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		return CUDA_ERROR_NOT_SUPPORTED;
	memset(value, 0, sizeof(*value));
	soft_graph_lock();
	value->cooperative = node->work.kernel.launch->cooperative;
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

/* ---- copies, fills, host functions ---- */

static CUresult context_check(CUcontext handle)
{
	SOFT_HELD struct soft_context *context = NULL;

	return handle ? soft_context_find(handle, &context) : CUDA_SUCCESS;
}

SOFT_API(cuGraphAddMemcpyNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_MEMCPY3D *params, CUcontext context)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(context_check(context));
	TRY(soft_work_copy(&work, params));
	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphMemcpyNodeGetParams, CUgraphNode handle, CUDA_MEMCPY3D *params)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMCPY, &node));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*params = node->work.copy.box;
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphMemcpyNodeSetParams, CUgraphNode node, const CUDA_MEMCPY3D *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_copy(&work, params));
	return node_change(node, &work);
}

SOFT_API(cuGraphAddMemsetNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(context_check(context));
	TRY(soft_work_fill(&work, params));
	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphMemsetNodeGetParams, CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *params)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_MEMSET, &node));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*params = node->work.fill.params;
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphMemsetNodeSetParams, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_fill(&work, params));
	return node_change(node, &work);
}

SOFT_API(cuGraphAddHostNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_HOST_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_host(&work, params));
	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphHostNodeGetParams, CUgraphNode handle, CUDA_HOST_NODE_PARAMS *params)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_HOST, &node));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*params = node->work.host;
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphHostNodeSetParams, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_host(&work, params));
	return node_change(node, &work);
}

/* ---- empty, child, event and memory operation nodes ---- */

SOFT_API(cuGraphAddEmptyNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count)
{
	struct soft_work work = { .type = CU_GRAPH_NODE_TYPE_EMPTY };

	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphAddChildGraphNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 CUgraph child_handle)
{
	struct soft_work work = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	struct soft_object *object;
	CUresult result;
	uint64_t handle;

	SOFT_GRAPH_ARG(child, child_handle);
	soft_graph_lock();
	result = soft_graph_depth_locked(child) >= SOFT_GRAPH_DEPTH_MAX ? CUDA_ERROR_INVALID_VALUE
									 : soft_graph_clone_locked(child, &work.child);
	if (result == CUDA_SUCCESS) {
		/* The node's own copy, which it keeps while it lives. */
		work.child->owned = true;
		soft_object_get(&work.child->object);
		handle = atomic_load(&work.child->object.handle);
	}
	soft_graph_unlock();
	if (result != CUDA_SUCCESS)
		return result;
	result = soft_node_add(node, graph, needs, count, &work);
	if (result != CUDA_SUCCESS) {
		object = soft_object_retire(handle, SOFT_GRAPH);
		if (object)
			soft_graph_close((struct soft_graph *)object);
	}
	return result;
}

SOFT_API(cuGraphChildGraphNodeGetGraph, CUgraphNode handle, CUgraph *graph)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_GRAPH, &node));
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*graph = (CUgraph)(uintptr_t)atomic_load(&node->work.child->object.handle);
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

static CUresult event_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, int type,
			  CUevent event)
{
	struct soft_work work;

	TRY(soft_work_event(&work, type, event));
	return soft_node_add(node, graph, needs, count, &work);
}

static CUresult event_get(CUgraphNode handle, int type, CUevent *event)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, type, &node));
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*event = (CUevent)(uintptr_t)atomic_load(&node->work.event->object.handle);
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

static CUresult event_set(CUgraphNode node, int type, CUevent event)
{
	struct soft_work work;

	TRY(soft_work_event(&work, type, event));
	return node_change(node, &work);
}

SOFT_API(cuGraphAddEventRecordNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 CUevent event)
{
	return event_add(node, graph, needs, count, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SOFT_API(cuGraphEventRecordNodeGetEvent, CUgraphNode node, CUevent *event)
{
	return event_get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SOFT_API(cuGraphEventRecordNodeSetEvent, CUgraphNode node, CUevent event)
{
	return event_set(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

SOFT_API(cuGraphAddEventWaitNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 CUevent event)
{
	return event_add(node, graph, needs, count, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SOFT_API(cuGraphEventWaitNodeGetEvent, CUgraphNode node, CUevent *event)
{
	return event_get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SOFT_API(cuGraphEventWaitNodeSetEvent, CUgraphNode node, CUevent event)
{
	return event_set(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

SOFT_API(cuGraphAddBatchMemOpNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
	 const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(context_check(params->ctx));
	TRY(soft_work_memop(&work, params));
	return soft_node_add(node, graph, needs, count, &work);
}

SOFT_API(cuGraphBatchMemOpNodeGetParams, CUgraphNode handle, CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	SOFT_HELD struct soft_node *node = NULL;

	TRY(node_of(handle, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &node));
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	*params = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
		.ctx = node->work.memop.context,
		.count = node->work.memop.count,
		.paramArray = node->work.memop.ops,
		.flags = node->work.memop.flags,
	};
	soft_graph_unlock();
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphBatchMemOpNodeSetParams, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_memop(&work, params));
	return node_change(node, &work);
}
