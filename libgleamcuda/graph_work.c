// SPDX-License-Identifier: Apache-2.0
/*
 * What nodes do: checked and copied when a node is made, as the driver does. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "libgleamcuda/array.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/program.h"

#define WORDS_MAX 256u /* operations of a batch: the driver's own limit */

/* NULL is the current context. */
static CUresult context_of(struct call *call, CUcontext handle, struct context **context_out)
{
	struct context *context = handle ? context_find(handle) : call->context;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*context_out = context;
	return CUDA_SUCCESS;
}

/* ---- kernels ---- */

CUresult graph_work_launch(const struct function *function, CUfunction given, const struct launch *launch,
			   const struct launch_params *params, struct graph_work *work_out)
{
	struct graph_work w = { .type = CU_GRAPH_NODE_TYPE_KERNEL, .context = function->context };
	size_t block = (params->size + 15u) & ~15u;
	size_t pointers = params->pointers ? function->param_count * sizeof(void *) : 0;

	w.kernel.function = (struct function *)function;
	if (handle_type((uint64_t)(uintptr_t)given) == OBJECT_KERNEL)
		w.kernel.kern = (CUkernel)given;
	else
		w.kernel.given = given;
	memcpy(w.kernel.grid, launch->grid, sizeof(w.kernel.grid));
	memcpy(w.kernel.block, launch->block, sizeof(w.kernel.block));
	w.kernel.shared_size = launch->shared_size;
	w.kernel.params_size = params->size;
	w.kernel.params = calloc(1, block + pointers + 1);
	if (!w.kernel.params)
		return CUDA_ERROR_OUT_OF_MEMORY;
	launch_params_pack(function, params, w.kernel.params);
	if (pointers) {
		w.kernel.pointers = (void **)(void *)(w.kernel.params + block);
		for (uint32_t i = 0; i < function->param_count; i++)
			w.kernel.pointers[i] = w.kernel.params + function->params[i].offset;
	}
	if (launch->attr_count) {
		w.kernel.attrs = malloc(launch->attr_count * sizeof(w.kernel.attrs[0]));
		if (!w.kernel.attrs) {
			free(w.kernel.params);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memcpy(w.kernel.attrs, launch->attrs, launch->attr_count * sizeof(w.kernel.attrs[0]));
		w.kernel.attr_count = launch->attr_count;
	}
	*work_out = w;
	return CUDA_SUCCESS;
}

CUresult graph_work_kernel(struct call *call, const CUDA_KERNEL_NODE_PARAMS *p, struct graph_work *work_out)
{
	struct launch launch = { .grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
				 .block = { p->blockDimX, p->blockDimY, p->blockDimZ },
				 .shared_size = p->sharedMemBytes };
	CUfunction given = p->func ? p->func : (CUfunction)p->kern;
	struct launch_params params;
	struct function *function;
	struct context *context;
	CUresult result;

	if (!given)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_of(call, p->func ? NULL : p->ctx, &context);
	if (!result)
		result = function_in(call, given, context, &function);
	if (!result)
		result = function_ready(call, function);
	if (!result)
		result = launch_check(function, &launch);
	if (!result)
		result = launch_params_of(function, p->kernelParams, p->extra, &params);
	return result ? result : graph_work_launch(function, given, &launch, &params, work_out);
}

/* ---- copies ---- */

struct side {
	CUmemorytype type;
	CUarray array;
	const void *host;
	uint64_t device;
	uint64_t pitch, height, x, y, z;
};

static bool inside(uint64_t at, uint64_t size, uint64_t all)
{
	return at <= all && size <= all - at;
}

static CUresult side_in_array(const struct side *s, const struct graph_box *box, struct graph_box_array *array_out)
{
	const struct array *array = handle_data(OBJECT_ARRAY, (uint64_t)(uintptr_t)s->array);

	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!inside(s->x, box->width, array->width) || !inside(s->y, box->rows, array->rows) ||
	    !inside(s->z, box->depth, array->layers) || s->x % array->element || box->width % array->element)
		return CUDA_ERROR_INVALID_VALUE;
	*array_out = (struct graph_box_array){ array->handle, s->x, s->y, s->z };
	return CUDA_SUCCESS;
}

static CUresult side_of(const struct side *s, const struct graph_box *box, uint64_t *address_out, uint64_t *pitch_out,
			uint64_t *height_out, enum place *place_out)
{
	uint64_t base = s->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)s->host : s->device;
	uint64_t pitch = s->pitch ? s->pitch : box->width + s->x;
	uint64_t height = s->height ? s->height : box->rows + s->y;
	uint64_t left, span;

	if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE && s->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	/* Checked so that nothing below can wrap. */
	if (!base || pitch > DEVICE_SPAN_MAX || height > DEVICE_SPAN_MAX / pitch || s->x > pitch || box->width > pitch - s->x)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->y > DEVICE_SPAN_MAX / pitch || s->z > DEVICE_SPAN_MAX / pitch / height ||
	    box->depth > DEVICE_SPAN_MAX / pitch / height || (box->depth > 1 && height < box->rows))
		return CUDA_ERROR_INVALID_VALUE;
	*address_out = base + s->x + s->y * pitch + s->z * height * pitch;
	*pitch_out = pitch;
	*height_out = height;
	*place_out = place_host(address_out, &left);
	if (s->type == CU_MEMORYTYPE_DEVICE && *place_out == PLACE_PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	span = (box->depth - 1) * height * pitch + (box->rows - 1) * pitch + box->width;
	return span > left ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult graph_box_of(const CUDA_MEMCPY3D *p, struct graph_box *box_out)
{
	struct graph_box box = { .width = p->WidthInBytes, .rows = p->Height, .depth = p->Depth };
	struct side dst = { p->dstMemoryType, p->dstArray, p->dstHost, p->dstDevice, p->dstPitch, p->dstHeight, p->dstXInBytes,
			    p->dstY, p->dstZ };
	struct side src = { p->srcMemoryType, p->srcArray, p->srcHost, p->srcDevice, p->srcPitch, p->srcHeight, p->srcXInBytes,
			    p->srcY, p->srcZ };
	CUresult result;

	if (!box.width || !box.rows || !box.depth || box.width > DEVICE_SPAN_MAX || box.rows > DEVICE_SPAN_MAX ||
	    box.depth > DEVICE_SPAN_MAX || p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	box.dst_place = box.src_place = PLACE_DEVICE;
	if (dst.type == CU_MEMORYTYPE_ARRAY)
		result = side_in_array(&dst, &box, &box.dst_array);
	else
		result = side_of(&dst, &box, &box.dst, &box.dst_pitch, &box.dst_height, &box.dst_place);
	if (!result && src.type == CU_MEMORYTYPE_ARRAY)
		result = side_in_array(&src, &box, &box.src_array);
	else if (!result)
		result = side_of(&src, &box, &box.src, &box.src_pitch, &box.src_height, &box.src_place);
	if (!result)
		*box_out = box;
	return result;
}

uint64_t graph_box_span(const struct graph_box *box, bool dst)
{
	uint64_t pitch = dst ? box->dst_pitch : box->src_pitch, height = dst ? box->dst_height : box->src_height;

	return (box->depth - 1) * height * pitch + (box->rows - 1) * pitch + box->width;
}

CUDA_MEMCPY3D graph_box_params(const struct graph_box *box)
{
	CUDA_MEMCPY3D p = { .WidthInBytes = box->width, .Height = box->rows, .Depth = box->depth,
			    .srcPitch = box->src_pitch, .srcHeight = box->src_height,
			    .dstPitch = box->dst_pitch, .dstHeight = box->dst_height };

	if (box->src_place == PLACE_DEVICE) {
		p.srcMemoryType = CU_MEMORYTYPE_DEVICE;
		p.srcDevice = box->src;
	} else {
		p.srcMemoryType = CU_MEMORYTYPE_HOST;
		p.srcHost = (const void *)(uintptr_t)box->src;
	}
	if (box->dst_place == PLACE_DEVICE) {
		p.dstMemoryType = CU_MEMORYTYPE_DEVICE;
		p.dstDevice = box->dst;
	} else {
		p.dstMemoryType = CU_MEMORYTYPE_HOST;
		p.dstHost = (void *)(uintptr_t)box->dst;
	}
	return p;
}

CUresult graph_work_copy(struct call *call, const CUDA_MEMCPY3D *params, CUcontext context, struct graph_work *work_out)
{
	struct graph_work w = { .type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *params };
	struct graph_box box;
	CUresult result = context_of(call, context, &w.context);

	if (!result)
		result = graph_box_of(params, &box);
	if (!result)
		*work_out = w;
	return result;
}

/* ---- fills ---- */

CUresult graph_work_fill(struct call *call, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
			 struct graph_work *work_out)
{
	struct graph_work w = { .type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = *params };
	CUDA_MEMSET_NODE_PARAMS *p = &w.fill;
	uint64_t left, width;
	enum place place;
	CUresult result = context_of(call, context, &w.context);

	if (result)
		return result;
	if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->width || !p->height ||
	    p->width > DEVICE_SPAN_MAX || p->height > DEVICE_SPAN_MAX || p->pitch > DEVICE_SPAN_MAX ||
	    p->dst % p->elementSize)
		return CUDA_ERROR_INVALID_VALUE;
	width = p->width * p->elementSize;
	place = place_of(p->dst, &left);
	if (place == PLACE_PAGEABLE || width > left)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->height > 1 && (p->pitch < width || p->height - 1 > (left - width) / p->pitch))
		return CUDA_ERROR_INVALID_VALUE;
	result = place == PLACE_PINNED ? exposed_need(call, p->dst) : CUDA_SUCCESS;
	if (!result)
		*work_out = w;
	return result;
}

/* ---- the rest ---- */

CUresult graph_work_host(const CUDA_HOST_NODE_PARAMS *params, struct graph_work *work_out)
{
	if (!params->fn)
		return CUDA_ERROR_INVALID_VALUE;
	*work_out = (struct graph_work){ .type = CU_GRAPH_NODE_TYPE_HOST, .host = *params };
	return CUDA_SUCCESS;
}

CUresult graph_work_event(struct call *call, CUgraphNodeType type, CUevent event, struct graph_work *work_out)
{
	struct graph_work w = { .type = type };
	CUresult result = call_handle(call, OBJECT_EVENT, event, 0, &w.event);

	if (!result)
		*work_out = w;
	return result;
}

/* 0 for operations without one. */
static uint64_t words_address(const CUstreamBatchMemOpParams *op)
{
	switch ((int)op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return op->waitValue.address;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return op->writeValue.address;
	default:
		return 0;
	}
}

CUresult graph_work_words(struct call *call, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct graph_work *work_out)
{
	struct graph_work w = { .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP };
	CUresult result = context_of(call, params->ctx, &w.context);

	if (result)
		return result;
	if (!params->count || params->count > WORDS_MAX || !params->paramArray || params->flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < params->count; i++)
		if ((unsigned int)params->paramArray[i].operation > CU_STREAM_MEM_OP_BARRIER ||
		    !params->paramArray[i].operation)
			return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < params->count && !result; i++) {
		uint64_t address = words_address(&params->paramArray[i]), left;

		if (address && place_of(address, &left) == PLACE_PINNED)
			result = exposed_need(call, address);
	}
	if (result)
		return result;
	w.words.count = params->count;
	w.words.flags = params->flags;
	w.words.ops = malloc(params->count * sizeof(w.words.ops[0]));
	if (!w.words.ops)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(w.words.ops, params->paramArray, params->count * sizeof(w.words.ops[0]));
	*work_out = w;
	return CUDA_SUCCESS;
}

/* ---- copies of works ---- */

static void *block_clone(const void *from, size_t size)
{
	void *to = malloc(size + 1);

	if (to && size)
		memcpy(to, from, size);
	return to;
}

static CUresult kernel_clone(const struct graph_work *work, struct graph_work *clone)
{
	size_t block = (work->kernel.params_size + 15u) & ~15u;
	uint32_t count = work->kernel.pointers ? work->kernel.function->param_count : 0;

	clone->kernel.attrs = NULL;
	clone->kernel.params = block_clone(work->kernel.params, block + count * sizeof(void *));
	if (work->kernel.attr_count)
		clone->kernel.attrs = block_clone(work->kernel.attrs, work->kernel.attr_count * sizeof(CUlaunchAttribute));
	if (!clone->kernel.params || (work->kernel.attr_count && !clone->kernel.attrs)) {
		free(clone->kernel.params);
		free(clone->kernel.attrs);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (count) {
		clone->kernel.pointers = (void **)(void *)(clone->kernel.params + block);
		for (uint32_t i = 0; i < count; i++)
			clone->kernel.pointers[i] =
				clone->kernel.params + ((uint8_t *)work->kernel.pointers[i] - work->kernel.params);
	}
	return CUDA_SUCCESS;
}

CUresult graph_work_clone(const struct graph_work *work, struct graph_work *clone_out)
{
	*clone_out = *work;
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_clone(work, clone_out);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		clone_out->child = graph_clone(work->child);
		return clone_out->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		clone_out->words.ops = block_clone(work->words.ops, work->words.count * sizeof(work->words.ops[0]));
		return clone_out->words.ops ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		graph_memory_get(work->alloc.memory);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		clone_out->branch.bodies = NULL;
		clone_out->branch.handles = NULL;
		return CUDA_SUCCESS;
	default:
		return CUDA_SUCCESS;
	}
}

void graph_work_free(struct graph_work *work)
{
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		free(work->kernel.params);
		free(work->kernel.attrs);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		graph_free(work->child);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		free(work->words.ops);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		graph_memory_put(work->alloc.memory);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		graph_branch_free(work);
		break;
	default:
		break;
	}
	work->type = CU_GRAPH_NODE_TYPE_EMPTY;
}
