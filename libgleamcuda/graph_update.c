// SPDX-License-Identifier: Apache-2.0
/*
 * Changes of graphs that were made: a whole one from a graph of the same shape, or a single node. What the shape and the
 * types forbid is told here; nobody waits for the rest. Launches that were sent before run as they were. Application
 * threads.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/session.h"

/* ---- a whole one ---- */

static CUgraphExecUpdateResult plan_compare(const struct graph_plan *old, const struct graph_plan *new,
					    uint64_t *error_out);

/* Values and what looks at them go with the new graph: what a node is stays. */
static CUgraphExecUpdateResult branch_compare(const struct graph_step *old, const struct graph_step *new, uint64_t *error_out)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (old->work.branch.kind != new->work.branch.kind || old->work.branch.count != new->work.branch.count ||
	    old->work.context != new->work.context)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	for (uint32_t i = 0; i < new->work.branch.count && !result; i++)
		result = plan_compare(old->bodies[i], new->bodies[i], error_out);
	return result;
}

static CUgraphExecUpdateResult step_compare(const struct graph_step *old, const struct graph_step *new)
{
	if (old->need_count != new->need_count ||
	    memcmp(old->needs, new->needs, old->need_count * sizeof(old->needs[0])))
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	if (old->work.type != new->work.type)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	switch (old->work.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		if (old->work.context != new->work.context)
			return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		/* The driver wants each side to stay on its kind of memory. */
		if (!old->box.src_array.handle != !new->box.src_array.handle || !old->box.dst_array.handle != !new->box.dst_array.handle)
			return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		if (old->box.src_place != new->box.src_place && (old->box.src_place == PLACE_DEVICE || new->box.src_place == PLACE_DEVICE))
			return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		if (old->box.dst_place != new->box.dst_place && (old->box.dst_place == PLACE_DEVICE || new->box.dst_place == PLACE_DEVICE))
			return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	default:
		return CU_GRAPH_EXEC_UPDATE_SUCCESS;
	}
}

static CUgraphExecUpdateResult plan_compare(const struct graph_plan *old, const struct graph_plan *new,
					    uint64_t *error_out)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	*error_out = 0;
	if (old->step_count != new->step_count)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (uint32_t i = 0; i < new->step_count && !result; i++) {
		result = step_compare(&old->steps[i], &new->steps[i]);
		if (!result && new->steps[i].work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			result = branch_compare(&old->steps[i], &new->steps[i], error_out);
		if (result && !*error_out)
			*error_out = new->steps[i].origin;
	}
	return result;
}

/* Same parts: what overlaps decides about cuts too. */
static bool plan_cut_alike(const struct graph_plan *old, const struct graph_plan *new)
{
	if (old->part_count != new->part_count)
		return false;
	for (uint32_t i = 0; i < new->step_count; i++)
		if (old->steps[i].phase != new->steps[i].phase || old->steps[i].place != new->steps[i].place)
			return false;
	return true;
}

/* Nodes go on being named as in the graph that it was made of. */
static void plan_name(struct graph_plan *plan, const struct graph_plan *old)
{
	for (uint32_t i = 0; i < plan->step_count; i++) {
		plan->steps[i].origin = old->steps[i].origin;
		plan->steps[i].enabled = old->steps[i].enabled;
		for (uint32_t j = 0; plan->steps[i].bodies && j < plan->steps[i].work.branch.count; j++)
			plan_name(plan->steps[i].bodies[j], old->steps[i].bodies[j]);
	}
}

static CUresult part_update(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire)
{
	struct msg_gleamGraphUpdate m = { .stream = WIRE_STREAM_LEGACY, .graph = wire };
	CUresult result;

	m.from = handle_new(OBJECT_GRAPHEXEC, plan->context, NULL);
	if (!m.from)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = graph_part_send(call, plan, part, m.from);
	if (!result)
		result = CALL_SEND(call, gleamGraphUpdate, &m);
	/* The description is used up. */
	handle_end(m.from);
	return result;
}

static CUresult update(struct call *call, CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *info)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);
	struct graph_plan *plan = NULL, *old;
	struct graph *graph;
	CUresult result;
	uint64_t error = 0;
	bool unused;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	call_in(call, exec->context);
	old = exec->plan;
	graph_lock();
	graph = graph_find(hGraph);
	result = graph && !graph_is_body(graph) ? graph_plan_new(exec->context, graph, &plan, &error) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = graph_plan_conditions(plan, &unused);
	graph_unlock();
	if (result) {
		graph_plan_put(plan);
		return result;
	}
	info->result = plan_compare(old, plan, &error);
	info->errorNode = (CUgraphNode)(uintptr_t)error;
	if (!info->result && !plan_cut_alike(old, plan))
		info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED; /* the program makes a new one then */
	if (info->result) {
		graph_plan_put(plan);
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	result = graph_plan_stage(call, plan);
	for (uint32_t i = 0; i < plan->part_count && !result; i++) {
		plan->parts[i].wire = old->parts[i].wire;
		if (plan->parts[i].wire)
			result = part_update(call, plan, i, plan->parts[i].wire);
	}
	/* Those of the description: they have ended with it. */
	graph_plan_wires_end(plan);
	if (result) {
		info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
		graph_plan_put(plan);
		return result;
	}
	graph_plan_wires_move(old, plan);
	plan_name(plan, old);
	exec->plan = plan;
	graph_plan_put(old);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphExecUpdate_v2(struct call *call, CUgraphExec hGraphExec, CUgraph hGraph,
				 CUgraphExecUpdateResultInfo *resultInfo)
{
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	CUresult result;

	if (!resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	result = update(call, hGraphExec, hGraph, &info);
	*resultInfo = info;
	return result;
}

CUresult do_cuGraphExecUpdate(struct call *call, CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			      CUgraphExecUpdateResult *updateResult_out)
{
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	CUresult result = update(call, hGraphExec, hGraph, &info);

	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	if (updateResult_out)
		*updateResult_out = info.result;
	return result;
}

/* ---- a single node ---- */

/* Where a node is in what was made: its plan, its step there, and what the worker calls the graph that it is in. */
struct found {
	struct graph_plan *plan;
	struct graph_step *step;
	uint64_t wire;
};

/* @body: the plan's handle at the worker, 0 for the whole, whose parts have theirs. */
static bool step_seek(struct graph_plan *plan, uint64_t body, uint64_t node, struct found *found_out)
{
	for (uint32_t i = 0; node && i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];

		if (step->origin == node) {
			*found_out = (struct found){ plan, step, body ? body : plan->parts[step->phase].wire };
			return true;
		}
		for (uint32_t j = 0; step->bodies && step->wires && j < step->work.branch.count; j++)
			if (step_seek(step->bodies[j], step->wires[j], node, found_out))
				return true;
	}
	return false;
}

static bool step_of(struct graph_exec *exec, CUgraphNode hNode, struct found *found_out)
{
	return exec && step_seek(exec->plan, 0, (uint64_t)(uintptr_t)hNode, found_out);
}

static CUresult step_tell(struct call *call, struct graph_exec *exec, struct graph_step *step, uint64_t wire)
{
	struct msg_gleamGraphSet m = { .stream = WIRE_STREAM_LEGACY, .graph = wire, .place = step->place };
	CUresult result;

	if (step->place == NO_PLACE || step->work.type == CU_GRAPH_NODE_TYPE_EMPTY)
		return CUDA_SUCCESS;
	m.from = handle_new(OBJECT_GRAPHEXEC, exec->context, NULL);
	if (!m.from)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = graph_step_send(call, step, m.from);
	if (!result)
		result = CALL_SEND(call, gleamGraphSet, &m);
	handle_end(m.from);
	return result;
}

static bool is_line(const struct graph_box *box)
{
	return !box->src_array.handle && !box->dst_array.handle && box->rows == 1 && box->depth == 1;
}

/* Boxes of one dimension are all that the driver changes. Others may be said again as they are. */
static CUresult box_change(const struct graph_step *step, const struct graph_work *work, bool *same_out)
{
	struct graph_box box;
	CUresult result = graph_box_of(&work->copy, &box);

	if (result)
		return result;
	*same_out = memcmp(&box, &step->box, sizeof(box)) == 0;
	return *same_out || (is_line(&step->box) && is_line(&box)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A copy's new box: on the same kinds of memory, and with its staging. */
static CUresult step_restage(struct call *call, const struct graph_step *step, struct graph_step *new)
{
	CUresult result = graph_box_of(&new->work.copy, &new->box);

	if (result)
		return result;
	if (step_compare(step, new))
		return CUDA_ERROR_INVALID_VALUE;
	if (new->mapped)
		return new->box.src_place == PLACE_PAGEABLE || new->box.dst_place == PLACE_PAGEABLE ? CUDA_ERROR_NOT_SUPPORTED :
												     graph_step_expose(call, new);
	if (!graph_step_is_up(new) && !graph_step_is_down(new))
		return CUDA_SUCCESS;
	if (new->box.width * new->box.rows * new->box.depth <= step->staging_size)
		return CUDA_SUCCESS;
	new->staging_size = new->box.width * new->box.rows * new->box.depth;
	return memory_take(call, new->staging_size, &new->staging, &new->staging_owner);
}

/* Takes @work. */
static CUresult set(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode, struct graph_work *work)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);
	struct graph_step *step;
	struct graph_work old = *work;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct graph_step new;
	struct found found;
	bool same = false;

	if (!step_of(exec, hNode, &found) || found.step->work.type != work->type)
		goto free_old;
	step = found.step;
	if (work->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		result = box_change(step, work, &same);
		if (result || same)
			goto free_old;
		result = CUDA_ERROR_INVALID_VALUE;
	}
	call_in(call, exec->context);
	if (work->type == CU_GRAPH_NODE_TYPE_KERNEL && work->context != step->work.context)
		goto free_old;
	new = *step;
	new.work = *work;
	if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		/* Attributes stay as they were made. */
		free(new.work.kernel.attrs);
		new.work.kernel.attrs = step->work.kernel.attrs;
		new.work.kernel.attr_count = step->work.kernel.attr_count;
	}
	result = work->type == CU_GRAPH_NODE_TYPE_MEMCPY ? step_restage(call, step, &new) : CUDA_SUCCESS;
	if (!result)
		result = step_tell(call, exec, &new, found.wire);
	if (result) {
		if (new.staging != step->staging)
			memory_give(call, new.staging, new.staging_size, new.staging_owner);
		goto free_old;
	}
	old = step->work;
	if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		old.kernel.attrs = NULL;
		old.kernel.attr_count = 0;
	}
	if (new.staging != step->staging)
		memory_give(call, step->staging, step->staging_size, step->staging_owner);
	*step = new;
free_old:
	graph_lock();
	graph_work_free(&old);
	graph_unlock();
	graph_memory_sweep(call);
	return result;
}

CUresult do_cuGraphExecKernelNodeSetParams_v2(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_kernel(call, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecKernelNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	CUDA_KERNEL_NODE_PARAMS full = { 0 };

	if (!nodeParams)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&full, nodeParams, sizeof(*nodeParams));
	return do_cuGraphExecKernelNodeSetParams_v2(call, hGraphExec, hNode, &full);
}

CUresult do_cuGraphExecMemcpyNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	struct graph_work work;
	CUresult result = copyParams ? graph_work_copy(call, copyParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecMemsetNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					   const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	struct graph_work work;
	CUresult result = memsetParams ? graph_work_fill(call, memsetParams, ctx, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecHostNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					 const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_host(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecEventRecordNodeSetEvent(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &work);

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecEventWaitNodeSetEvent(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
	struct graph_work work;
	CUresult result = graph_work_event(call, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &work);

	return result ? result : set(call, hGraphExec, hNode, &work);
}

CUresult do_cuGraphExecBatchMemOpNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					       const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams)
{
	struct graph_work work;
	CUresult result = nodeParams ? graph_work_words(call, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : set(call, hGraphExec, hNode, &work);
}

/* A child's steps lie between the one before them and the one behind them, in the order of the child's nodes. */
CUresult do_cuGraphExecChildGraphNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
					       CUgraph childGraph)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);
	struct graph_plan *plan = NULL;
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct found found;
	struct graph *graph;
	uint64_t error;
	uint32_t at;

	if (!step_of(exec, hNode, &found) || found.step->work.type != CU_GRAPH_NODE_TYPE_EMPTY)
		return result;
	at = (uint32_t)(found.step - found.plan->steps) + 1;
	graph_lock();
	graph = graph_find(childGraph);
	if (graph)
		result = graph_plan_new(exec->context, graph, &plan, &error);
	graph_unlock();
	if (result)
		return result;
	/* Shape: as many steps, of the same types, behind each other as before. */
	if (plan->step_count > found.plan->step_count - at || graph_plan_branches(plan))
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		const struct graph_step *old = &found.plan->steps[at + i], *new = &plan->steps[i];
		bool root = !new->need_count;

		if (old->work.type != new->work.type ||
		    (root ? old->need_count != 1 || old->needs[0] != at - 1 : old->need_count != new->need_count))
			result = CUDA_ERROR_INVALID_VALUE;
		for (uint32_t j = 0; !root && j < new->need_count && !result; j++)
			if (old->needs[j] != new->needs[j] + at)
				result = CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		struct graph_work work;

		if (plan->steps[i].work.type == CU_GRAPH_NODE_TYPE_EMPTY)
			continue;
		graph_lock();
		result = graph_work_clone(&plan->steps[i].work, &work);
		graph_unlock();
		if (!result)
			result = set(call, hGraphExec, (CUgraphNode)(uintptr_t)found.plan->steps[at + i].origin, &work);
	}
	graph_plan_put(plan);
	return result;
}

CUresult do_cuGraphExecNodeSetParams(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode,
				     CUgraphNodeParams *nodeParams)
{
	struct graph_work work;
	CUresult result;

	if (!nodeParams || nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || nodeParams->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return CUDA_ERROR_INVALID_VALUE;
	if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return do_cuGraphExecChildGraphNodeSetParams(call, hGraphExec, hNode, nodeParams->graph.graph);
	result = graph_work_of(call, nodeParams, &work);
	return result ? result : set(call, hGraphExec, hNode, &work);
}

/* ---- on and off ---- */

static bool can_be_off(const struct graph_step *step)
{
	return step->work.type == CU_GRAPH_NODE_TYPE_KERNEL || step->work.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
	       step->work.type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult do_cuGraphNodeSetEnabled(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);
	CUresult result = CUDA_SUCCESS;
	struct graph_step *step;
	struct found found;

	if (!step_of(exec, hNode, &found) || !can_be_off(found.step))
		return CUDA_ERROR_INVALID_VALUE;
	step = found.step;
	call_in(call, exec->context);
	if (step->place != NO_PLACE) {
		struct msg_gleamGraphSwitch m = { .stream = WIRE_STREAM_LEGACY, .place = step->place,
						  .graph = found.wire, .on = isEnabled != 0 };

		result = CALL_SEND(call, gleamGraphSwitch, &m);
		if (result)
			return result;
	}
	step->enabled = isEnabled != 0;
	return result;
}

CUresult do_cuGraphNodeGetEnabled(struct call *call, CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);
	struct found found;

	if (!step_of(exec, hNode, &found) || !can_be_off(found.step) || !isEnabled)
		return CUDA_ERROR_INVALID_VALUE;
	*isEnabled = found.step->enabled;
	return CUDA_SUCCESS;
}
