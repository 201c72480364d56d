// SPDX-License-Identifier: Apache-2.0
/*
 * Plans: a graph flattened, cut into parts, and staged; see graph_exec.h. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/session.h"

/* ---- what steps are ---- */

bool graph_step_is_up(const struct graph_step *step)
{
	return step->work.type == CU_GRAPH_NODE_TYPE_MEMCPY && !step->mapped && step->box.src_place != PLACE_DEVICE &&
	       step->box.dst_place == PLACE_DEVICE;
}

bool graph_step_is_down(const struct graph_step *step)
{
	return step->work.type == CU_GRAPH_NODE_TYPE_MEMCPY && !step->mapped && step->box.src_place == PLACE_DEVICE &&
	       step->box.dst_place != PLACE_DEVICE;
}

/* A copy between host and host is one that the host makes. */
bool graph_step_is_host(const struct graph_step *step)
{
	return step->work.type == CU_GRAPH_NODE_TYPE_HOST ||
	       (step->work.type == CU_GRAPH_NODE_TYPE_MEMCPY && !step->mapped && step->box.src_place != PLACE_DEVICE &&
		step->box.dst_place != PLACE_DEVICE);
}

static bool is_for_device(const struct graph_step *step)
{
	return !graph_step_is_host(step) && step->work.type != CU_GRAPH_NODE_TYPE_WAIT_EVENT &&
	       step->work.type != CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

void graph_step_device(const struct graph_step *step, struct graph_box *box_out)
{
	struct graph_box box = step->box;

	if (step->mapped) {
		box.src = exposed_device(box.src);
		box.dst = exposed_device(box.dst);
		*box_out = box;
		return;
	}
	/* In staging rows and slices lie without gaps. */
	if (graph_step_is_up(step)) {
		box.src = step->staging;
		box.src_pitch = box.width;
		box.src_height = box.rows;
	} else if (graph_step_is_down(step)) {
		box.dst = step->staging;
		box.dst_pitch = box.width;
		box.dst_height = box.rows;
	}
	*box_out = box;
}

/* ---- flattening ---- */

struct folding {
	struct graph_plan *plan;
	uint32_t room;
	uint64_t error; /* the node that is on a cycle */
};

static bool memory_is_of(uint64_t address, const struct session *s)
{
	const struct session *of = session_of_unit(memory_unit(address));

	return !of || of == s;
}

static bool array_is_of(uint64_t handle, const struct session *s)
{
	const struct context *context = handle ? handle_context(handle) : NULL;

	return !context || context->session == s;
}

/* Does one worker reach all that the step is about? */
static bool step_is_of(const struct graph_step *step, const struct session *s)
{
	const struct graph_work *work = &step->work;
	const struct context *context = work->context;

	switch ((int)work->type) {
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		context = handle_context(work->event);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		if (!memory_is_of(step->box.dst, s) || !memory_is_of(step->box.src, s) || !array_is_of(step->box.dst_array.handle, s) ||
		    !array_is_of(step->box.src_array.handle, s))
			return false;
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		if (!memory_is_of(work->fill.dst, s))
			return false;
		break;
	default:
		break;
	}
	return !context || context->session == s;
}

/*
 * A body holds what a device can start by itself: copies between device memory and page-locked memory that it reaches where it lies.
 * Its kernels are all of the context of the condition.
 */
static CUresult body_step_check(const struct graph_plan *plan, struct graph_step *step)
{
	switch ((int)step->work.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return step->work.context == plan->body_context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		step->mapped = true;
		if (step->box.src_array.handle || step->box.dst_array.handle)
			return CUDA_ERROR_NOT_SUPPORTED;
		return step->box.src_place == PLACE_PAGEABLE || step->box.dst_place == PLACE_PAGEABLE ? CUDA_ERROR_NOT_SUPPORTED :
												       CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

static CUresult step_add(struct folding *f, const struct graph_node *node, const uint32_t *needs,
			 const CUgraphEdgeData *data, uint32_t need_count)
{
	struct graph_plan *plan = f->plan;
	struct graph_step *step;
	CUresult result;

	if (plan->step_count == f->room) {
		uint32_t room = f->room ? f->room * 2 : 64;
		struct graph_step *steps;

		if (plan->step_count == GRAPH_NODES_MAX)
			return CUDA_ERROR_OUT_OF_MEMORY;
		steps = realloc(plan->steps, room * sizeof(*steps));
		if (!steps)
			return CUDA_ERROR_OUT_OF_MEMORY;
		plan->steps = steps;
		f->room = room;
	}
	step = &plan->steps[plan->step_count];
	memset(step, 0, sizeof(*step));
	step->work.type = CU_GRAPH_NODE_TYPE_EMPTY;
	step->enabled = true;
	step->need_count = need_count;
	step->needs = malloc((need_count + 1u) * sizeof(*needs));
	if (!step->needs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (need_count)
		memcpy(step->needs, needs, need_count * sizeof(*needs));
	plan->step_count++;
	for (uint32_t i = 0; data && i < need_count; i++) {
		static const CUgraphEdgeData plain;

		if (!memcmp(&data[i], &plain, sizeof(plain)))
			continue;
		step->data = malloc(need_count * sizeof(*data));
		if (!step->data)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(step->data, data, need_count * sizeof(*data));
		break;
	}
	if (!node)
		return CUDA_SUCCESS;
	step->origin = node->handle;
	if (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
		return CUDA_SUCCESS;
	result = graph_work_clone(&node->work, &step->work);
	if (!result && step->work.type == CU_GRAPH_NODE_TYPE_MEMCPY)
		result = graph_box_of(&step->work.copy, &step->box);
	if (!result && plan->parent)
		result = body_step_check(plan, step);
	if (!result && !step_is_of(step, plan->context->session)) {
		gleam_log("a graph can't span the GPUs of two servers");
		result = CUDA_ERROR_NOT_SUPPORTED;
	}
	return result;
}

static CUresult graph_fold(struct folding *f, const struct graph *graph, const uint32_t *before, uint32_t before_count,
			   uint32_t *last_out);

static CUresult conditions_note(struct graph_plan *plan, const struct graph *graph)
{
	if (!graph->condition_count)
		return CUDA_SUCCESS;
	plan->conditions = calloc(graph->condition_count, sizeof(plan->conditions[0]));
	if (!plan->conditions)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < graph->condition_count; i++) {
		const struct graph_condition *c = graph->conditions[i];

		plan->conditions[plan->condition_count++] = (struct graph_plan_condition){
			.handle = c->handle, .context = c->context, .value = c->value, .flags = c->flags,
		};
	}
	return CUDA_SUCCESS;
}

/* One part, all of it the device's. */
static CUresult body_cut(struct graph_plan *plan)
{
	plan->part_count = 1;
	plan->parts = calloc(1, sizeof(plan->parts[0]));
	if (!plan->parts)
		return CUDA_ERROR_OUT_OF_MEMORY;
	plan->parts[0].count = plan->step_count;
	for (uint32_t i = 0; i < plan->step_count; i++)
		plan->steps[i].place = i;
	return CUDA_SUCCESS;
}

/* Bodies of the conditional node whose step was added last: plans of their own. */
static CUresult bodies_fold(struct folding *f, const struct graph_node *node)
{
	struct graph_step *step = &f->plan->steps[f->plan->step_count - 1];
	uint32_t count = node->work.branch.count;
	CUresult result = CUDA_SUCCESS;

	step->bodies = calloc(count, sizeof(struct graph_plan *));
	if (!step->bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count && !result; i++) {
		struct folding below = { .plan = calloc(1, sizeof(*below.plan)) };

		if (!below.plan)
			return CUDA_ERROR_OUT_OF_MEMORY;
		step->bodies[i] = below.plan;
		below.plan->refs = 1;
		below.plan->context = f->plan->context;
		below.plan->parent = f->plan;
		below.plan->body_context = node->work.context;
		result = conditions_note(below.plan, node->work.branch.bodies[i]);
		if (!result)
			result = graph_fold(&below, node->work.branch.bodies[i], NULL, 0, NULL);
		if (!result)
			result = body_cut(below.plan);
		if (result)
			f->error = below.error;
	}
	return result;
}

static CUresult graph_fold(struct folding *f, const struct graph *graph, const uint32_t *before, uint32_t before_count,
			   uint32_t *last_out)
{
	uint32_t count = graph->node_count, needs_most = 1;
	uint32_t *order = calloc(2u * (count + 1u), sizeof(*order));
	uint32_t *steps = order ? order + count + 1 : NULL;
	CUgraphEdgeData *data = NULL;
	uint32_t *needs = NULL;
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < count; i++)
		if (graph->nodes[i]->need_count > needs_most)
			needs_most = graph->nodes[i]->need_count;
	needs = malloc(needs_most * sizeof(*needs));
	data = malloc(needs_most * sizeof(*data));
	if (!order || !needs || !data) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto free_lists;
	}
	if (!graph_order(graph, order)) {
		for (uint32_t i = 0; i < count; i++)
			if (graph->nodes[i]->mark)
				f->error = graph->nodes[i]->handle;
		result = CUDA_ERROR_INVALID_VALUE;
		goto free_lists;
	}
	for (uint32_t i = 0; i < count && !result; i++) {
		const struct graph_node *node = graph->nodes[order[i]];
		uint32_t first;

		for (uint32_t j = 0; j < node->need_count; j++) {
			needs[j] = steps[node->needs[j].node->index];
			data[j] = node->needs[j].data;
		}
		first = f->plan->step_count;
		if (node->need_count)
			result = step_add(f, node, needs, data, node->need_count);
		else
			result = step_add(f, node, before, NULL, before_count);
		steps[order[i]] = first;
		/* A child's nodes come behind a step of their own, and those that need the child behind their common end. */
		if (!result && node->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = graph_fold(f, node->work.child, &first, 1, &steps[order[i]]);
		if (!result && node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			result = bodies_fold(f, node);
		if (result && !f->error)
			f->error = node->handle;
	}
	if (!result && last_out) {
		*last_out = f->plan->step_count;
		result = step_add(f, NULL, count ? steps : before, NULL, count ? count : before_count);
	}
free_lists:
	free(order);
	free(needs);
	free(data);
	return result;
}

/* ---- cutting ---- */

static bool overlap(const struct graph_step *up, const struct graph_step *down)
{
	uint64_t a = up->box.src, a_size = graph_box_span(&up->box, false);
	uint64_t b = down->box.dst, b_size = graph_box_span(&down->box, true);

	return a < b + b_size && b < a + a_size;
}

static CUresult plan_cut(struct graph_plan *plan)
{
	uint32_t *downs = malloc((plan->step_count + 1u) * sizeof(*downs));
	uint32_t down_count = 0, last = 0;

	if (!downs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	plan->plain = true;
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];
		bool host = graph_step_is_host(step);

		for (uint32_t j = 0; j < step->need_count; j++) {
			const struct graph_step *need = &plan->steps[step->needs[j]];
			uint32_t after = need->phase;

			/* Host functions one after the other run in one stop. */
			if (need->work.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || (graph_step_is_host(need) && !host))
				after++;
			if (after > step->phase)
				step->phase = after;
		}
		if (graph_step_is_up(step)) {
			for (uint32_t j = 0; j < down_count; j++)
				if (plan->steps[downs[j]].phase >= step->phase && overlap(step, &plan->steps[downs[j]]))
					step->phase = plan->steps[downs[j]].phase + 1;
		} else if (graph_step_is_down(step)) {
			downs[down_count++] = i;
		}
		if (step->phase > last)
			last = step->phase;
		step->place = NO_PLACE;
		if (step->box.width && (step->box.src_place != PLACE_DEVICE || step->box.dst_place != PLACE_DEVICE))
			plan->stages = true;
		if (step->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || step->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			plan->allocates = true;
		plan->plain = plan->plain && is_for_device(step) && !plan->stages;
	}
	plan->part_count = last + 1;
	plan->parts = calloc(plan->part_count, sizeof(*plan->parts));
	if (!plan->parts) {
		free(downs);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	plan->plain = plan->plain && plan->part_count == 1;
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];

		if (is_for_device(step))
			step->place = plan->parts[step->phase].count++;
		if (graph_step_is_host(step))
			plan->parts[step->phase].stops = true;
		for (uint32_t j = 0; graph_step_is_up(step) && j < down_count; j++)
			if (plan->steps[downs[j]].phase < step->phase && overlap(step, &plan->steps[downs[j]]))
				plan->parts[step->phase - 1].stops = true;
	}
	free(downs);
	return CUDA_SUCCESS;
}

/* ---- birth and death ---- */

/* What has no staging yet. Lock held. */
static void plan_free_locked(struct graph_plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];

		for (uint32_t j = 0; step->bodies && j < step->work.branch.count; j++)
			if (step->bodies[j])
				plan_free_locked(step->bodies[j]);
		free(step->bodies);
		free(step->wires);
		graph_work_free(&step->work);
		free(step->needs);
		free(step->data);
	}
	free(plan->steps);
	free(plan->parts);
	free(plan->conditions);
	free(plan);
}

CUresult graph_plan_new(struct context *context, const struct graph *graph, struct graph_plan **plan_out,
			uint64_t *error_out)
{
	struct folding f = { .plan = calloc(1, sizeof(*f.plan)) };
	CUresult result;

	*error_out = 0;
	if (!f.plan)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f.plan->refs = 1;
	f.plan->context = context;
	result = conditions_note(f.plan, graph);
	if (!result)
		result = graph_fold(&f, graph, NULL, 0, NULL);
	if (!result)
		result = plan_cut(f.plan);
	if (!result) {
		*plan_out = f.plan;
		return CUDA_SUCCESS;
	}
	*error_out = f.error;
	/* Works of a failed plan may hold memory of allocation nodes, but never a child: the lock that is held will do. */
	plan_free_locked(f.plan);
	return result;
}

/* Page-locked memory in bodies: reached by the device itself. */
static CUresult bodies_expose(struct call *call, const struct graph_plan *plan)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		const struct graph_step *step = &plan->steps[i];

		if (step->mapped)
			result = graph_step_expose(call, step);
		for (uint32_t j = 0; step->bodies && j < step->work.branch.count && !result; j++)
			result = bodies_expose(call, step->bodies[j]);
	}
	return result;
}

CUresult graph_step_expose(struct call *call, const struct graph_step *step)
{
	CUresult result = CUDA_SUCCESS;

	if (step->box.src_place == PLACE_PINNED)
		result = exposed_need(call, step->box.src);
	if (!result && step->box.dst_place == PLACE_PINNED)
		result = exposed_need(call, step->box.dst);
	return result;
}

CUresult graph_plan_stage(struct call *call, struct graph_plan *plan)
{
	CUresult exposed = bodies_expose(call, plan);

	if (exposed)
		return exposed;
	for (uint32_t i = 0; plan->stages && i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];
		CUresult result;

		if (!graph_step_is_up(step) && !graph_step_is_down(step))
			continue;
		step->staging_size = step->box.width * step->box.rows * step->box.depth;
		result = memory_take(call, step->staging_size, &step->staging, &step->staging_owner);
		if (result) {
			step->staging = 0;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

void graph_plan_put(struct graph_plan *plan)
{
	struct call call;

	if (!plan || __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL))
		return;
	/* Bodies have no staging, and no launch holds one by itself. */
	graph_lock();
	for (uint32_t i = 0; i < plan->step_count; i++) {
		for (uint32_t j = 0; plan->steps[i].bodies && j < plan->steps[i].work.branch.count; j++)
			plan_free_locked(plan->steps[i].bodies[j]);
		free(plan->steps[i].bodies);
		free(plan->steps[i].wires);
	}
	graph_unlock();
	free(plan->conditions);
	call_start(&call, plan->context->session, plan->context);
	graph_lock();
	for (uint32_t i = 0; i < plan->step_count; i++)
		graph_work_free(&plan->steps[i].work);
	graph_unlock();
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];

		/* Work that was sent before may still use it: given memory waits for that. */
		if (step->staging)
			memory_give(&call, step->staging, step->staging_size, step->staging_owner);
		free(step->needs);
		free(step->data);
	}
	graph_memory_sweep(&call);
	call_leave(&call, CUDA_SUCCESS);
	free(plan->steps);
	free(plan->parts);
	free(plan);
}
