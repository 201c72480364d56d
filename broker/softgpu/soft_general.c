// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes of any kind by one call: the general forms of adding and changing. Any thread.
 */
#include <string.h>

#include "broker/softgpu/soft_graph.h"
#include "gen/softgpu/soft_api.h"

static bool is_clean(const CUgraphNodeParams *params)
{
	return params && !params->reserved0[0] && !params->reserved0[1] && !params->reserved0[2] && !params->reserved2;
}

/* ---- the older forms of what a node has: the same fields, or the first of them ---- */

static const CUDA_KERNEL_NODE_PARAMS *kernel_of(const CUgraphNodeParams *p)
{
	return (const CUDA_KERNEL_NODE_PARAMS *)(const void *)&p->kernel;
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams *p)
{
	CUDA_MEMSET_NODE_PARAMS fill;

	memcpy(&fill, &p->memset, sizeof(fill));
	return fill;
}

static CUDA_HOST_NODE_PARAMS host_of(const CUgraphNodeParams *p)
{
	return (CUDA_HOST_NODE_PARAMS){ p->host.fn, p->host.userData };
}

static CUDA_BATCH_MEM_OP_NODE_PARAMS words_of(const CUgraphNodeParams *p)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS words;

	memcpy(&words, &p->memOp, sizeof(words));
	return words;
}

/* ---- adding and changing ---- */

static CUresult branch_add(CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count,
			   CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	struct soft_work work;
	CUgraph *bodies;

	TRY(soft_work_branch(&work, graph, params));
	bodies = work.branch.handles;
	TRY(soft_node_add(node, graph, needs, count, &work));
	params->phGraph_out = bodies;
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphAddNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *data,
	 size_t count, CUgraphNodeParams *p)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS words;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_HOST_NODE_PARAMS host;

	TRY(soft_ready());
	if (!is_clean(p))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; data && i < count; i++)
		if (data[i].from_port || data[i].to_port || data[i].type)
			return CUDA_ERROR_NOT_SUPPORTED;
	switch ((int)p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cuGraphAddKernelNode_v2(node, graph, needs, count, kernel_of(p));
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(node, graph, needs, count, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		fill = fill_of(p);
		return cuGraphAddMemsetNode(node, graph, needs, count, &fill, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = host_of(p);
		return cuGraphAddHostNode(node, graph, needs, count, &host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (p->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
			return CUDA_ERROR_NOT_SUPPORTED;
		return cuGraphAddChildGraphNode(node, graph, needs, count, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(node, graph, needs, count);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(node, graph, needs, count, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(node, graph, needs, count, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		words = words_of(p);
		return cuGraphAddBatchMemOpNode(node, graph, needs, count, &words);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return branch_add(node, graph, needs, count, &p->conditional);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuGraphAddNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *needs, size_t count, CUgraphNodeParams *p)
{
	return cuGraphAddNode_v2(node, graph, needs, NULL, count, p);
}

/* Of the made graph *@exec, or of the node itself where @exec is NULL. */
static CUresult params_set(const CUgraphExec *exec, CUgraphNode node, CUgraphNodeParams *p)
{
	const CUDA_KERNEL_NODE_PARAMS *kernel;
	CUDA_BATCH_MEM_OP_NODE_PARAMS words;
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_HOST_NODE_PARAMS host;

	TRY(soft_ready());
	if (!is_clean(p))
		return CUDA_ERROR_INVALID_VALUE;
	switch ((int)p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		kernel = kernel_of(p);
		return exec ? cuGraphExecKernelNodeSetParams_v2(*exec, node, kernel) : cuGraphKernelNodeSetParams_v2(node, kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return exec ? cuGraphExecMemcpyNodeSetParams(*exec, node, &p->memcpy.copyParams, p->memcpy.copyCtx) :
			      cuGraphMemcpyNodeSetParams(node, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		fill = fill_of(p);
		return exec ? cuGraphExecMemsetNodeSetParams(*exec, node, &fill, p->memset.ctx) :
			      cuGraphMemsetNodeSetParams(node, &fill);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = host_of(p);
		return exec ? cuGraphExecHostNodeSetParams(*exec, node, &host) : cuGraphHostNodeSetParams(node, &host);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return exec ? cuGraphExecEventWaitNodeSetEvent(*exec, node, p->eventWait.event) :
			      cuGraphEventWaitNodeSetEvent(node, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return exec ? cuGraphExecEventRecordNodeSetEvent(*exec, node, p->eventRecord.event) :
			      cuGraphEventRecordNodeSetEvent(node, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		words = words_of(p);
		return exec ? cuGraphExecBatchMemOpNodeSetParams(*exec, node, &words) : cuGraphBatchMemOpNodeSetParams(node, &words);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuGraphNodeSetParams, CUgraphNode node, CUgraphNodeParams *p)
{
	return params_set(NULL, node, p);
}

SOFT_API(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *p)
{
	return params_set(&exec, node, p);
}
