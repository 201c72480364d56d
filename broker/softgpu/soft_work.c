// SPDX-License-Identifier: Apache-2.0
/*
 * The payloads of graph nodes. Any thread.
 */
#include "broker/softgpu/soft_work.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_graph.h"

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
	CUresult result;

	memcpy(grid, &params->gridDimX, sizeof(grid));
	memcpy(block, &params->blockDimX, sizeof(block));
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_function_find(handle, context, &function));
	TRY(soft_launch_new(function, &ask, &launch));
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
	default:
		break;
	}
	*work = (struct soft_work){ .type = CU_GRAPH_NODE_TYPE_EMPTY };
}
