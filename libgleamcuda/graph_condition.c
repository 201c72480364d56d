// SPDX-License-Identifier: Apache-2.0
/*
 * Conditional nodes: values that kernels set, and bodies that run by them. A handle is the library's; at the worker each graph that is
 * made has conditions of its own, and kernels of it get the driver's handles where the program has put ours. Any thread; see graph.h
 * for the lock.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/log.h"

/* ---- handles ---- */

CUresult do_cuGraphConditionalHandleCreate(struct call *call, CUgraphConditionalHandle *pHandle_out, CUgraph hGraph,
					   CUcontext ctx, unsigned int defaultLaunchValue, unsigned int flags)
{
	struct context *context = ctx ? context_find(ctx) : call->context;
	struct graph_condition *condition;
	struct graph *graph;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	if (!pHandle_out || (flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT))
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	condition = calloc(1, sizeof(*condition));
	if (!condition)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph_lock();
	graph = graph_find(hGraph);
	if (graph) {
		struct graph_condition **all = realloc(graph->conditions, (graph->condition_count + 1u) * sizeof(struct graph_condition *));

		if (all)
			graph->conditions = all;
		condition->handle = all ? handle_new(OBJECT_CONDITION, NULL, condition) : 0;
	}
	if (!graph) {
		result = CUDA_ERROR_INVALID_VALUE;
	} else if (condition->handle) {
		condition->graph = graph;
		condition->context = context;
		condition->value = defaultLaunchValue;
		condition->flags = flags;
		graph->conditions[graph->condition_count++] = condition;
		*pHandle_out = condition->handle;
		result = CUDA_SUCCESS;
	}
	graph_unlock();
	if (result)
		free(condition);
	return result;
}

void graph_conditions_free(struct graph *graph)
{
	for (uint32_t i = 0; i < graph->condition_count; i++) {
		handle_end(graph->conditions[i]->handle);
		free(graph->conditions[i]);
	}
	free(graph->conditions);
	graph->conditions = NULL;
	graph->condition_count = 0;
}

/* ---- nodes ---- */

/* Children can't have any. */
bool graph_branches(const struct graph *graph)
{
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			return true;
	return false;
}

bool graph_is_body(const struct graph *graph)
{
	return graph->owner && graph->owner->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

void graph_branch_free(struct graph_work *work)
{
	for (uint32_t i = 0; work->branch.bodies && i < work->branch.count; i++)
		if (work->branch.bodies[i])
			graph_free(work->branch.bodies[i]);
	free(work->branch.bodies);
	free(work->branch.handles);
	work->branch.bodies = NULL;
	work->branch.handles = NULL;
}

static bool shape_is_good(const CUDA_CONDITIONAL_NODE_PARAMS *p)
{
	switch ((int)p->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return p->size == 1 || p->size == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return p->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return p->size > 0;
	default:
		return false;
	}
}

/* A condition is for nodes of its graph, and of bodies in it. */
static bool is_for(const struct graph_condition *condition, const struct graph *graph)
{
	while (graph && graph != condition->graph)
		graph = graph->owner ? graph->owner->graph : NULL;
	return graph != NULL;
}

CUresult graph_work_branch(struct call *call, CUgraph hGraph, const CUDA_CONDITIONAL_NODE_PARAMS *p, struct graph_work *work_out)
{
	struct graph_work w = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	const struct graph_condition *condition;
	const struct graph *graph;
	CUresult result = CUDA_SUCCESS;
	unsigned int depth = 0;

	if (!shape_is_good(p))
		return CUDA_ERROR_INVALID_VALUE;
	if (p->size > GRAPH_BODIES_MAX)
		return call_refuse(call, "a conditional node of more than 1024 bodies is more than a message holds");
	w.branch.condition = p->handle;
	w.branch.kind = p->type;
	w.branch.count = p->size;
	w.branch.bodies = calloc(p->size, sizeof(struct graph *));
	w.branch.handles = calloc(p->size, sizeof(CUgraph));
	graph_lock();
	if (!w.branch.bodies || !w.branch.handles)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	condition = handle_data(OBJECT_CONDITION, p->handle);
	graph = graph_find(hGraph);
	for (const struct graph *at = graph; at; at = at->owner ? at->owner->graph : NULL)
		depth++;
	if (!condition || !graph || !is_for(condition, graph) || depth >= GRAPH_DEPTH_MAX ||
	    (p->ctx && context_find(p->ctx) != condition->context))
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < p->size && !result; i++) {
		w.branch.bodies[i] = graph_new();
		if (w.branch.bodies[i])
			w.branch.handles[i] = (CUgraph)(uintptr_t)w.branch.bodies[i]->handle;
		else
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result)
		graph_branch_free(&w);
	else
		w.context = condition->context;
	graph_unlock();
	if (!result)
		*work_out = w;
	return result;
}

/* ---- plans ---- */

static bool is_branch(const struct graph_step *step)
{
	return step->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool graph_plan_branches(const struct graph_plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++)
		if (is_branch(&plan->steps[i]))
			return true;
	return false;
}

static struct graph_plan_condition *condition_of(struct graph_plan *plan, uint64_t handle)
{
	for (uint32_t i = 0; i < plan->condition_count; i++)
		if (plan->conditions[i].handle == handle)
			return &plan->conditions[i];
	return NULL;
}

/* The plan of those in @plan, itself included, whose graph the condition was made for. */
static struct graph_plan *home_of(struct graph_plan *plan, uint64_t handle)
{
	struct graph_plan *home = condition_of(plan, handle) ? plan : NULL;

	for (uint32_t i = 0; i < plan->step_count && !home; i++)
		for (uint32_t j = 0; is_branch(&plan->steps[i]) && j < plan->steps[i].work.branch.count && !home; j++)
			home = home_of(plan->steps[i].bodies[j], handle);
	return home;
}

/* A use outside of the body that a condition was made for: it becomes the whole graph's, which comes to the same. */
static CUresult condition_rise(struct graph_plan *home, struct graph_plan *root, uint64_t handle)
{
	struct graph_plan_condition *all = realloc(root->conditions, (root->condition_count + 1u) * sizeof(*all));
	struct graph_plan_condition *c;

	if (!all)
		return CUDA_ERROR_OUT_OF_MEMORY;
	root->conditions = all;
	c = condition_of(home, handle);
	all[root->condition_count++] = *c;
	*c = home->conditions[--home->condition_count];
	return CUDA_SUCCESS;
}

static CUresult condition_use(struct graph_plan *root, struct graph_plan *plan, uint32_t phase, uint64_t handle, bool looks)
{
	struct graph_plan_condition *c;
	struct graph_plan *home = plan;

	while (home && !condition_of(home, handle))
		home = home->parent;
	if (!home) {
		CUresult result;

		home = home_of(root, handle);
		if (!home)
			return CUDA_SUCCESS; /* another graph's; or a number that looks like one */
		result = condition_rise(home, root, handle);
		if (result)
			return result;
		home = root;
	}
	c = condition_of(home, handle);
	if (c->used && c->phase != phase) {
		gleam_log("a conditional node and the kernels that set its value can't have host functions, event waits or uploads of "
			  "downloaded bytes between them");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	c->used = true;
	c->phase = phase;
	c->looked_at |= looks;
	return CUDA_SUCCESS;
}

static CUresult uses_look(struct graph_plan *root, struct graph_plan *plan, uint32_t outer)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		struct graph_step *step = &plan->steps[i];
		uint32_t phase = plan == root ? step->phase : outer;

		for (uint32_t at = 0; step->work.type == CU_GRAPH_NODE_TYPE_KERNEL && !result && at + 8 <= step->work.kernel.params_size;
		     at += 8) {
			uint64_t word;

			memcpy(&word, step->work.kernel.params + at, sizeof(word));
			if (handle_type(word) == OBJECT_CONDITION)
				result = condition_use(root, plan, phase, word, false);
		}
		if (is_branch(step) && !result)
			result = condition_use(root, plan, phase, step->work.branch.condition, true);
		for (uint32_t j = 0; is_branch(step) && j < step->work.branch.count && !result; j++)
			result = uses_look(root, step->bodies[j], phase);
	}
	return result;
}

static bool all_looked_at(const struct graph_plan *plan)
{
	bool all = true;

	for (uint32_t i = 0; i < plan->condition_count; i++)
		all = all && plan->conditions[i].looked_at;
	for (uint32_t i = 0; i < plan->step_count; i++)
		for (uint32_t j = 0; is_branch(&plan->steps[i]) && j < plan->steps[i].work.branch.count; j++)
			all = all && all_looked_at(plan->steps[i].bodies[j]);
	return all;
}

CUresult graph_plan_conditions(struct graph_plan *plan, bool *unused_out)
{
	CUresult result;

	*unused_out = false;
	if (!plan->condition_count && !graph_plan_branches(plan))
		return CUDA_SUCCESS;
	result = uses_look(plan, plan, 0);
	if (!result && !all_looked_at(plan)) {
		*unused_out = true;
		result = CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

void graph_plan_wires_end(struct graph_plan *plan)
{
	for (uint32_t i = 0; i < plan->step_count; i++) {
		struct graph_step *step = &plan->steps[i];

		for (uint32_t j = 0; is_branch(step) && j < step->work.branch.count; j++) {
			if (step->wires && step->wires[j])
				handle_end(step->wires[j]);
			graph_plan_wires_end(step->bodies[j]);
		}
		free(step->wires);
		step->wires = NULL;
	}
}

void graph_plan_wires_move(struct graph_plan *from, struct graph_plan *to)
{
	for (uint32_t i = 0; i < to->step_count; i++) {
		if (!is_branch(&to->steps[i]))
			continue;
		to->steps[i].wires = from->steps[i].wires;
		from->steps[i].wires = NULL;
		for (uint32_t j = 0; j < to->steps[i].work.branch.count; j++)
			graph_plan_wires_move(from->steps[i].bodies[j], to->steps[i].bodies[j]);
	}
}
