// SPDX-License-Identifier: Apache-2.0
/*
 * Plans described to the worker: conditions, nodes, bodies, edges; see graph_exec.h. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/launch.h"
#include "libgleamcuda/program.h"

#define NEEDS_INLINE 1024u /* of a node's own message */
#define EDGES_MESSAGE 2048u
#define RECORDS_DEEP 256u /* event records one behind the other: what is deeper is nonsense, and the stack is finite */

static CUresult nodes_send(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire);

/* Needs of a step in its part, as places. Those of earlier parts are kept by the order of the stream. */
struct needed {
	uint32_t *places;
	CUgraphEdgeData *data; /* NULL: all are ordinary */
	uint32_t count;
};

static int place_add(struct needed *needs, uint32_t *room, uint32_t place, const CUgraphEdgeData *data)
{
	for (uint32_t i = 0; i < needs->count; i++)
		if (needs->places[i] == place)
			return 0;
	if (needs->count == *room) {
		uint32_t more = *room ? *room * 2 : 16;
		uint32_t *places = realloc(needs->places, more * sizeof(*places));
		CUgraphEdgeData *all;

		if (!places)
			return -1;
		needs->places = places;
		all = realloc(needs->data, more * sizeof(*all));
		if (!all)
			return -1;
		needs->data = all;
		*room = more;
	}
	needs->places[needs->count] = place;
	memset(&needs->data[needs->count], 0, sizeof(*data));
	if (data)
		needs->data[needs->count] = *data;
	needs->count++;
	return 0;
}

/* Steps of the host's in the same part (records, functions before the part's end) are seen through. */
static int needs_gather(const struct graph_plan *plan, const struct graph_step *step, struct needed *needs, uint32_t *room,
			uint32_t depth)
{
	for (uint32_t i = 0; i < step->need_count; i++) {
		const struct graph_step *need = &plan->steps[step->needs[i]];

		if (need->phase != step->phase)
			continue;
		if (need->place != NO_PLACE) {
			if (place_add(needs, room, need->place, step->data ? &step->data[i] : NULL))
				return -1;
		} else if (depth && needs_gather(plan, need, needs, room, depth - 1)) {
			return -1;
		}
	}
	return 0;
}

static CUresult kernel_send(struct call *call, const struct graph_step *step, uint64_t wire, const uint32_t *needs,
			    uint32_t need_count)
{
	const struct graph_work *w = &step->work;
	struct msg_gleamGraphKernel m = {
		.graph = wire, .index = w->context->index, .function = w->kernel.function->wire,
		.grid_x = w->kernel.grid[0], .grid_y = w->kernel.grid[1], .grid_z = w->kernel.grid[2],
		.block_x = w->kernel.block[0], .block_y = w->kernel.block[1], .block_z = w->kernel.block[2],
		.shared_size = w->kernel.shared_size, .needs = needs, .needs_count = need_count,
		.attrs = w->kernel.attrs, .attrs_size = w->kernel.attr_count * (uint32_t)sizeof(CUlaunchAttribute),
		.params = w->kernel.params, .params_size = w->kernel.params_size,
	};
	CUlaunchAttribute attrs[LAUNCH_ATTRIBUTES]; /* each id once */
	/* Host memory that the kernel is given has to be where it looks for it, as at any launch. */
	CUresult result = exposed_params(call, w->kernel.params, w->kernel.params_size);

	if (function_cluster(w->kernel.function, w->kernel.attrs, w->kernel.attr_count, &attrs[w->kernel.attr_count])) {
		if (w->kernel.attr_count)
			memcpy(attrs, w->kernel.attrs, w->kernel.attr_count * sizeof(attrs[0]));
		m.attrs = attrs;
		m.attrs_size += (uint32_t)sizeof(attrs[0]);
	}
	return result ? result : CALL_SEND(call, gleamGraphKernel, &m);
}

static CUresult box_send(struct call *call, const struct graph_box *box, uint32_t index, uint64_t wire, const uint32_t *needs,
			 uint32_t need_count)
{
	const struct graph_box_array *dst = &box->dst_array, *src = &box->src_array;
	struct msg_gleamGraphBox m = {
		.graph = wire, .index = index, .needs = needs, .needs_count = need_count,
		.dst_array = dst->handle, .dst = box->dst, .dst_pitch = box->dst_pitch, .dst_height = box->dst_height,
		.dst_x = dst->x, .dst_y = dst->y, .dst_z = dst->z,
		.src_array = src->handle, .src = box->src, .src_pitch = box->src_pitch, .src_height = box->src_height,
		.src_x = src->x, .src_y = src->y, .src_z = src->z,
		.width = box->width, .rows = box->rows, .depth = box->depth,
	};

	return CALL_SEND(call, gleamGraphBox, &m);
}

static CUresult copy_send(struct call *call, const struct graph_step *step, uint64_t wire, const uint32_t *needs,
			  uint32_t need_count)
{
	struct graph_box box;

	graph_step_device(step, &box);
	if (box.dst_array.handle || box.src_array.handle)
		return box_send(call, &box, step->work.context->index, wire, needs, need_count);

	struct msg_gleamGraphCopy m = {
		.graph = wire, .index = step->work.context->index, .needs = needs, .needs_count = need_count,
		.dst = box.dst, .dst_pitch = box.dst_pitch, .dst_height = box.dst_height,
		.src = box.src, .src_pitch = box.src_pitch, .src_height = box.src_height,
		.width = box.width, .rows = box.rows, .depth = box.depth,
	};

	return CALL_SEND(call, gleamGraphCopy, &m);
}

static CUresult fill_send(struct call *call, const struct graph_step *step, uint64_t wire, const uint32_t *needs,
			  uint32_t need_count)
{
	const CUDA_MEMSET_NODE_PARAMS *p = &step->work.fill;
	struct msg_gleamGraphFill m = {
		.graph = wire, .index = step->work.context->index, .needs = needs, .needs_count = need_count,
		.dst = exposed_device(p->dst), .pitch = p->pitch, .value = p->value, .element = p->elementSize, .width = p->width,
		.rows = p->height,
	};

	return CALL_SEND(call, gleamGraphFill, &m);
}

static CUresult words_send(struct call *call, const struct graph_step *step, uint64_t wire, const uint32_t *needs,
			   uint32_t need_count)
{
	const struct graph_work *w = &step->work;
	struct msg_gleamGraphWords m = {
		.graph = wire, .index = w->context->index, .needs = needs, .needs_count = need_count,
		.flags = w->words.flags,
		.ops_size = w->words.count * (uint32_t)sizeof(w->words.ops[0]),
	};
	CUstreamBatchMemOpParams *moved = NULL;
	CUresult result = exposed_ops(w->words.ops, w->words.count, &moved);

	m.ops = moved ? moved : w->words.ops;
	if (!result)
		result = CALL_SEND(call, gleamGraphWords, &m);
	free(moved);
	return result;
}

static CUresult empty_send(struct call *call, uint64_t wire, const uint32_t *needs, uint32_t need_count)
{
	struct msg_gleamGraphEmpty m = { .graph = wire, .needs = needs, .needs_count = need_count };

	return CALL_SEND(call, gleamGraphEmpty, &m);
}

static CUresult condition_send(struct call *call, const struct graph_plan_condition *c, uint64_t wire)
{
	struct msg_gleamGraphCondition m = { .graph = wire, .index = c->context->index, .handle = c->handle, .value = c->value,
					     .flags = c->flags };

	return CALL_SEND(call, gleamGraphCondition, &m);
}

/* The bodies get handles that have no data: none of the program's. */
static CUresult branch_send(struct call *call, struct graph_step *step, uint64_t wire, const uint32_t *needs,
			    uint32_t need_count)
{
	uint32_t count = step->work.branch.count;
	struct msg_gleamGraphBranch m = {
		.graph = wire, .index = step->work.context->index, .needs = needs, .needs_count = need_count,
		.handle = step->work.branch.condition, .kind = (uint32_t)step->work.branch.kind, .bodies_count = count,
	};
	CUresult result = CUDA_SUCCESS;

	step->wires = calloc(count, sizeof(step->wires[0]));
	if (!step->wires)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count; i++) {
		step->wires[i] = handle_new(OBJECT_GRAPHEXEC, step->bodies[i]->context, NULL);
		if (!step->wires[i])
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m.bodies = step->wires;
	result = CALL_SEND(call, gleamGraphBranch, &m);
	for (uint32_t i = 0; i < count && !result; i++)
		result = nodes_send(call, step->bodies[i], 0, step->wires[i]);
	return result;
}

static CUresult node_send(struct call *call, struct graph_step *step, uint64_t wire, const uint32_t *needs,
			  uint32_t need_count)
{
	switch (step->work.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_send(call, step, wire, needs, need_count);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return copy_send(call, step, wire, needs, need_count);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return fill_send(call, step, wire, needs, need_count);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return words_send(call, step, wire, needs, need_count);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return branch_send(call, step, wire, needs, need_count);
	default:
		/* Allocations and frees too: their memory is there in any case. */
		return empty_send(call, wire, needs, need_count);
	}
}

static CUresult edges_send(struct call *call, uint64_t wire, uint32_t place, const struct needed *needs, uint32_t from,
			   bool with_data)
{
	uint32_t to[EDGES_MESSAGE];
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < EDGES_MESSAGE; i++)
		to[i] = place;
	while (from < needs->count && !result) {
		uint32_t count = needs->count - from < EDGES_MESSAGE ? needs->count - from : EDGES_MESSAGE;
		struct msg_gleamGraphEdges m = {
			.graph = wire, .from = needs->places + from, .from_count = count, .to = to, .to_count = count,
			.data = needs->data + from, .data_size = with_data ? count * (uint32_t)sizeof(CUgraphEdgeData) : 0,
		};

		result = CALL_SEND(call, gleamGraphEdges, &m);
		from += count;
	}
	return result;
}

static CUresult begin_send(struct call *call, uint64_t wire)
{
	struct msg_gleamGraphBegin m = { .graph = wire };

	return CALL_SEND(call, gleamGraphBegin, &m);
}

static CUresult nodes_send(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire)
{
	struct needed needs = { .count = 0 };
	uint32_t room = 0;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < plan->condition_count && !result; i++)
		if (plan->parent || plan->conditions[i].phase == part)
			result = condition_send(call, &plan->conditions[i], wire);
	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		struct graph_step *step = &plan->steps[i];
		uint32_t inlined;

		if (step->phase != part || step->place == NO_PLACE)
			continue;
		needs.count = 0;
		if (needs_gather(plan, step, &needs, &room, RECORDS_DEEP)) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		/* Edges with data come in messages of their own, all of the node's. */
		inlined = step->data ? 0 : needs.count < NEEDS_INLINE ? needs.count : NEEDS_INLINE;
		result = node_send(call, step, wire, needs.places, inlined);
		if (!result && inlined < needs.count)
			result = edges_send(call, wire, step->place, &needs, inlined, step->data != NULL);
	}
	free(needs.places);
	free(needs.data);
	return result;
}

CUresult graph_part_send(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire)
{
	CUresult result = begin_send(call, wire);

	return result ? result : nodes_send(call, plan, part, wire);
}

CUresult graph_step_send(struct call *call, struct graph_step *step, uint64_t wire)
{
	CUresult result = begin_send(call, wire);

	return result ? result : node_send(call, step, wire, NULL, 0);
}
