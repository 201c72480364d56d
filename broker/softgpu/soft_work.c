// SPDX-License-Identifier: Apache-2.0
/*
 * The payloads of graph nodes. Any thread.
 */
#include "broker/softgpu/soft_work.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_exec.h"

static CUresult pointers_make(struct soft_launch *launch, void ***pointers_out)
{
	const struct ptx_entry *entry = launch->function->entry;
	void **pointers = calloc(entry->param_count + 1u, sizeof(*pointers));

	if (!pointers)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < entry->param_count; i++)
		pointers[i] = launch->params + entry->params[i].offset;
	*pointers_out = pointers;
	return CUDA_SUCCESS;
}

CUresult soft_work_kernel(struct soft_work *work, struct soft_context *context, const CUDA_KERNEL_NODE_PARAMS *params)
{
	SOFT_HELD struct soft_function *function = NULL;
	uint32_t grid[3], block[3];
	const struct soft_launch_ask ask = {
		.grid = grid,
		.block = block,
		.shared_dynamic = params->sharedMemBytes,
		.params = params->kernelParams,
		.extra = params->extra,
	};
	CUfunction handle = params->func ? params->func : (CUfunction)params->kern;
	struct soft_launch *launch;

	memcpy(grid, &params->gridDimX, sizeof(grid));
	memcpy(block, &params->blockDimX, sizeof(block));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_function_find(handle, context, &function));
	TRY(soft_launch_new(function, &ask, &launch));
	return soft_work_launch(work, handle, launch);
}

CUresult soft_work_launch(struct soft_work *work, CUfunction handle, struct soft_launch *launch)
{
	CUresult result;

	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_KERNEL };
	result = pointers_make(launch, &work->kernel.pointers);
	if (result != CUDA_SUCCESS) {
		soft_launch_free(launch);
		return result;
	}
	work->kernel.launch = launch;
	work->kernel.handle = handle;
	return CUDA_SUCCESS;
}

CUresult soft_work_copy(struct soft_work *work, const CUDA_MEMCPY3D *box)
{
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_MEMCPY };
	work->copy.box = *box;
	return soft_transfer_box(&work->copy.transfer, box);
}

CUresult soft_work_fill(struct soft_work *work, const CUDA_MEMSET_NODE_PARAMS *params)
{
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_MEMSET };
	work->fill.params = *params;
	return soft_fill_plane(&work->fill.fill, params->dst, params->height > 1 ? params->pitch : 0, params->value,
			       params->elementSize, params->width, params->height);
}

CUresult soft_work_host(struct soft_work *work, const CUDA_HOST_NODE_PARAMS *params)
{
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_HOST };
	work->host = *params;
	return params->fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_work_event(struct soft_work *work, int type, CUevent event)
{
	*work = (struct soft_work){ .type = type };
	return soft_event_find(event, &work->event);
}

CUresult soft_work_memop(struct soft_work *work, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	if (!params->count || params->count > SOFT_MEMOPS_MAX || !params->paramArray || params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_memop_check(params->paramArray, params->count));
	work->memop.ops = malloc(params->count * sizeof(*work->memop.ops));
	if (!work->memop.ops)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(work->memop.ops, params->paramArray, params->count * sizeof(*work->memop.ops));
	work->memop.count = params->count;
	work->memop.context = params->ctx;
	return CUDA_SUCCESS;
}

static void branch_free(struct soft_work *work)
{
	for (unsigned int i = 0; work->branch.bodies && i < work->branch.count; i++)
		if (work->branch.bodies[i])
			soft_object_put(&work->branch.bodies[i]->object);
	for (unsigned int i = 0; work->branch.programs && i < work->branch.count; i++)
		soft_program_put(work->branch.programs[i]);
	free(work->branch.bodies);
	free(work->branch.handles);
	free(work->branch.programs);
	soft_condition_drop(work->branch.condition);
}

/* A condition is for nodes of its own graph and of those in it. */
static bool condition_is_for(const struct soft_condition *condition, const struct soft_graph *graph)
{
	for (; graph; graph = graph->owner ? graph->owner->graph : NULL)
		for (uint32_t i = 0; i < graph->condition_count; i++)
			if (graph->conditions[i] == condition)
				return true;
	return false;
}

static bool branch_shape(const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	switch ((int)params->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return params->size == 1 || params->size == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return params->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return params->size > 0;
	default:
		return false;
	}
}

CUresult soft_work_branch(struct soft_work *work, CUgraph graph_handle, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	SOFT_HELD struct soft_condition *condition =
		(struct soft_condition *)soft_object_find(params->handle, SOFT_CONDITION);
	CUresult result = CUDA_SUCCESS;
	unsigned int depth = 0;
	bool is_for;

	SOFT_GRAPH_ARG(graph, graph_handle);
	if (!condition || !branch_shape(params) || (params->ctx && params->ctx != condition->context))
		return CUDA_ERROR_INVALID_VALUE;
	if (params->size > SOFT_BODIES_MAX)
		return CUDA_ERROR_NOT_SUPPORTED;
	soft_graph_lock();
	is_for = condition_is_for(condition, graph);
	for (const struct soft_graph *at = graph; at; at = at->owner ? at->owner->graph : NULL)
		depth++;
	soft_graph_unlock();
	if (!is_for || depth >= SOFT_GRAPH_DEPTH_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	work->branch.condition = soft_condition_hold(condition);
	work->branch.kind = (int)params->type;
	work->branch.count = params->size;
	work->branch.bodies = calloc(params->size, sizeof(struct soft_graph *));
	work->branch.handles = calloc(params->size, sizeof(CUgraph));
	if (!work->branch.bodies || !work->branch.handles)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < params->size && result == CUDA_SUCCESS; i++) {
		result = soft_graph_new(&work->branch.bodies[i]);
		if (result != CUDA_SUCCESS)
			break;
		/* The table's reference, and the node's. */
		soft_object_get(&work->branch.bodies[i]->object);
		work->branch.bodies[i]->owned = true;
		work->branch.handles[i] =
			(CUgraph)(uintptr_t)atomic_load(&work->branch.bodies[i]->object.handle);
	}
	if (result != CUDA_SUCCESS) {
		if (work->branch.handles)
			soft_bodies_close(work);
		soft_work_free(work);
	}
	return result;
}

static CUresult branch_clone(const struct soft_work *work, struct soft_work *clone)
{
	clone->branch.bodies = NULL;
	clone->branch.handles = NULL;
	if (work->branch.programs) {
		clone->branch.programs = calloc(work->branch.count, sizeof(struct soft_program *));
		if (!clone->branch.programs)
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (unsigned int i = 0; i < work->branch.count; i++)
			clone->branch.programs[i] = soft_program_get(work->branch.programs[i]);
	}
	soft_condition_hold(work->branch.condition);
	return CUDA_SUCCESS;
}

static CUresult kernel_clone(const struct soft_work *work, struct soft_work *clone)
{
	const struct soft_launch *from = work->kernel.launch;
	size_t size = sizeof(*from) + from->params_size;
	struct soft_launch *launch = malloc(size);
	CUresult result;

	if (!launch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(launch, from, size);
	soft_object_get(&launch->function->object);
	result = pointers_make(launch, &clone->kernel.pointers);
	if (result != CUDA_SUCCESS)
		soft_launch_free(launch);
	else
		clone->kernel.launch = launch;
	return result;
}

CUresult soft_work_clone(const struct soft_work *work, struct soft_work *clone_out)
{
	*clone_out = *work;
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_clone(work, clone_out);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		soft_object_get(&work->event->object);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		soft_object_get(&work->child->object);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return branch_clone(work, clone_out);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		clone_out->memop.ops = malloc(work->memop.count * sizeof(*work->memop.ops));
		if (!clone_out->memop.ops)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(clone_out->memop.ops, work->memop.ops, work->memop.count * sizeof(*work->memop.ops));
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

void soft_work_free(struct soft_work *work)
{
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		soft_launch_free(work->kernel.launch);
		free(work->kernel.pointers);
		break;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		if (work->event)
			soft_object_put(&work->event->object);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (work->child)
			soft_object_put(&work->child->object);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		free(work->memop.ops);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		branch_free(work);
		break;
	default:
		break;
	}
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
}
