// SPDX-License-Identifier: Apache-2.0
/*
 * From a graph to steps, and running them: one after the other on the stream's thread, but never waiting at one step
 * while another could go on.
 */
#include "broker/softgpu/soft_exec.h"

#include <stdlib.h>
#include <string.h>

#define STEP_NONE UINT32_MAX

void soft_program_put(struct soft_program *program)
{
	if (!program || atomic_fetch_sub(&program->refs, 1) != 1)
		return;
	for (uint32_t i = 0; i < program->step_count; i++) {
		soft_work_free(&program->steps[i].work);
		free(program->steps[i].needs);
	}
	for (uint32_t i = 0; i < program->condition_count; i++)
		soft_condition_drop(program->conditions[i]);
	free(program->conditions);
	free(program->steps);
	free(program);
}

struct soft_program *soft_program_get(struct soft_program *program)
{
	atomic_fetch_add(&program->refs, 1);
	return program;
}

static CUresult condition_add(struct soft_condition ***list, uint32_t *count, struct soft_condition *condition)
{
	struct soft_condition **grown;

	for (uint32_t i = 0; i < *count; i++)
		if ((*list)[i] == condition)
			return CUDA_SUCCESS;
	grown = realloc(*list, (*count + 1u) * sizeof(struct soft_condition *));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*list = grown;
	grown[(*count)++] = soft_condition_hold(condition);
	return CUDA_SUCCESS;
}

CUresult soft_program_conditions(const struct soft_program *program, struct soft_condition ***list, uint32_t *count)
{
	for (uint32_t i = 0; i < program->condition_count; i++)
		TRY(condition_add(list, count, program->conditions[i]));
	for (uint32_t i = 0; i < program->step_count; i++) {
		const struct soft_work *work = &program->steps[i].work;

		for (unsigned int j = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < work->branch.count; j++)
			TRY(soft_program_conditions(work->branch.programs[j], list, count));
	}
	return CUDA_SUCCESS;
}

void soft_program_assign(const struct soft_program *program)
{
	for (uint32_t i = 0; i < program->condition_count; i++)
		if (program->conditions[i]->assigns)
			atomic_store(&program->conditions[i]->value, program->conditions[i]->first);
	for (uint32_t i = 0; i < program->step_count; i++) {
		const struct soft_work *work = &program->steps[i].work;

		for (unsigned int j = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < work->branch.count; j++)
			soft_program_assign(work->branch.programs[j]);
	}
}

static CUresult step_add(struct soft_program *program, uint64_t node, const struct soft_work *work,
			 const uint32_t *needs, uint32_t need_count)
{
	struct soft_step *step;
	CUresult result;

	if (program->step_count == program->step_room) {
		uint32_t room = program->step_room ? program->step_room * 2 : 64;
		struct soft_step *grown;

		if (program->step_count >= SOFT_STEPS_MAX)
			return CUDA_ERROR_OUT_OF_MEMORY;
		grown = realloc(program->steps, room * sizeof(*grown));
		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		program->steps = grown;
		program->step_room = room;
	}
	step = &program->steps[program->step_count];
	*step = (struct soft_step){ .node = node, .enabled = true, .need_count = need_count };
	step->needs = malloc((need_count + 1u) * sizeof(*step->needs));
	if (!step->needs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (need_count)
		memcpy(step->needs, needs, need_count * sizeof(*needs));
	result = soft_work_clone(work, &step->work);
	if (result != CUDA_SUCCESS) {
		free(step->needs);
		return result;
	}
	program->step_count++;
	return CUDA_SUCCESS;
}

/*
 * Nodes of @graph in an order in which each comes after what it needs; the rest of a cycle is left out. @waiting has
 * a place for each node: what it still waits for. Returns how many are in order, or STEP_NONE without memory.
 */
static uint32_t order_make(const struct soft_graph *graph, uint32_t *order, uint32_t *waiting)
{
	uint32_t count = 0, edges = 0;
	uint32_t *starts = calloc(graph->node_count + 2u, sizeof(*starts));
	uint32_t *dependents = NULL;

	for (uint32_t i = 0; i < graph->node_count; i++)
		edges += graph->nodes[i]->need_count;
	dependents = malloc((edges + 1u) * sizeof(*dependents));
	if (!starts || !dependents) {
		free(starts);
		free(dependents);
		return STEP_NONE;
	}
	/* Edges sorted by where they come from: counted, summed, filled in. */
	for (uint32_t i = 0; i < graph->node_count; i++)
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++)
			starts[graph->nodes[i]->needs[j]->index + 2]++;
	for (uint32_t i = 2; i < graph->node_count + 2; i++)
		starts[i] += starts[i - 1];
	for (uint32_t i = 0; i < graph->node_count; i++) {
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++)
			dependents[starts[graph->nodes[i]->needs[j]->index + 1]++] = i;
		waiting[i] = graph->nodes[i]->need_count;
		if (!waiting[i])
			order[count++] = i;
	}
	for (uint32_t done = 0; done < count; done++)
		for (uint32_t i = starts[order[done]]; i < starts[order[done] + 1]; i++)
			if (--waiting[dependents[i]] == 0)
				order[count++] = dependents[i];
	free(starts);
	free(dependents);
	return count;
}

static CUresult graph_fold(struct soft_program *program, const struct soft_graph *graph, const uint32_t *before,
			   uint32_t before_count, uint32_t *step_out, struct soft_exec_fault *fault);
static CUresult program_new(const struct soft_graph *graph, bool body, struct soft_program **program_out,
			    struct soft_exec_fault *fault);

/* What a body may hold: what a device can start by itself. */
static bool body_may_hold(const struct soft_work *work)
{
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return true;
	default:
		return false;
	}
}

static CUresult branch_fold(struct soft_program *program, const struct soft_node *node, const uint32_t *needs,
			    uint32_t need_count, struct soft_exec_fault *fault)
{
	const struct soft_work *work = &node->work;
	struct soft_work *made;

	TRY(step_add(program, atomic_load(&node->object.handle), work, needs, need_count));
	made = &program->steps[program->step_count - 1].work;
	made->branch.programs = calloc(work->branch.count, sizeof(struct soft_program *));
	if (!made->branch.programs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < work->branch.count; i++)
		TRY(program_new(work->branch.bodies[i], true, &made->branch.programs[i], fault));
	return CUDA_SUCCESS;
}

/*
 * A node's step. A child graph becomes its nodes between two empty steps: the first waits for what the node needs, the
 * last for all of the child.
 */
static CUresult node_fold(struct soft_program *program, const struct soft_node *node, const uint32_t *needs,
			  uint32_t need_count, uint32_t *step_out, struct soft_exec_fault *fault)
{
	const struct soft_work empty = { .type = CU_GRAPH_NODE_TYPE_EMPTY };
	uint32_t first;

	if (program->body && !body_may_hold(&node->work)) {
		fault->node = atomic_load(&node->object.handle);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		*step_out = program->step_count;
		return branch_fold(program, node, needs, need_count, fault);
	}
	if (node->work.type != CU_GRAPH_NODE_TYPE_GRAPH) {
		*step_out = program->step_count;
		return step_add(program, atomic_load(&node->object.handle), &node->work, needs, need_count);
	}
	first = program->step_count;
	TRY(step_add(program, 0, &empty, needs, need_count));
	return graph_fold(program, node->work.child, &first, 1, step_out, fault);
}

static CUresult graph_fold(struct soft_program *program, const struct soft_graph *graph, const uint32_t *before,
			   uint32_t before_count, uint32_t *step_out, struct soft_exec_fault *fault)
{
	const struct soft_work empty = { .type = CU_GRAPH_NODE_TYPE_EMPTY };
	uint32_t count = graph->node_count;
	uint32_t *order = calloc(4u * (count + 1u), sizeof(*order));
	uint32_t *waiting = order + count + 1;
	uint32_t *steps = waiting + count + 1;
	uint32_t *needs = steps + count + 1;
	CUresult result = CUDA_SUCCESS;

	if (!order)
		return CUDA_ERROR_OUT_OF_MEMORY;
	uint32_t ordered = order_make(graph, order, waiting);

	if (ordered == STEP_NONE) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
	} else if (ordered != count) {
		for (uint32_t i = 0; i < count; i++)
			if (waiting[i])
				fault->node = atomic_load(&graph->nodes[i]->object.handle);
		fault->result = 2; /* INVALID_STRUCTURE */
		result = CUDA_ERROR_INVALID_VALUE;
	}
	for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
		const struct soft_node *node = graph->nodes[order[i]];

		for (uint32_t j = 0; j < node->need_count; j++)
			needs[j] = steps[node->needs[j]->index];
		result = node_fold(program, node, node->need_count ? needs : before,
				   node->need_count ? node->need_count : before_count, &steps[order[i]], fault);
	}
	/* One step after all, so that a child has an end to wait for. */
	if (result == CUDA_SUCCESS && step_out) {
		*step_out = program->step_count;
		result = step_add(program, 0, &empty, count ? steps : before, count ? count : before_count);
	}
	free(order);
	return result;
}

/* How many nodes of it, and of bodies in it, look at @condition. */
static uint32_t program_looks_at(const struct soft_program *program, const struct soft_condition *condition)
{
	uint32_t nodes = 0;

	for (uint32_t i = 0; i < program->step_count; i++) {
		const struct soft_work *work = &program->steps[i].work;

		if (work->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		nodes += work->branch.condition == condition;
		for (unsigned int j = 0; j < work->branch.count; j++)
			nodes += program_looks_at(work->branch.programs[j], condition);
	}
	return nodes;
}

static CUresult program_new(const struct soft_graph *graph, bool body, struct soft_program **program_out,
			    struct soft_exec_fault *fault)
{
	struct soft_program *program = calloc(1, sizeof(*program));
	CUresult result;

	if (!program)
		return CUDA_ERROR_OUT_OF_MEMORY;
	atomic_init(&program->refs, 1);
	program->body = body;
	result = graph_fold(program, graph, NULL, 0, NULL, fault);
	for (uint32_t i = 0; result == CUDA_SUCCESS && i < graph->condition_count; i++) {
		result = condition_add(&program->conditions, &program->condition_count, graph->conditions[i]);
		if (result != CUDA_SUCCESS)
			break;

		uint32_t nodes = program_looks_at(program, graph->conditions[i]);

		if (!nodes)
			fault->result = 5; /* CONDITIONAL_HANDLE_UNUSED */
		/* Nor do two share one. */
		if (nodes != 1)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (result != CUDA_SUCCESS) {
		if (!fault->result)
			fault->result = 1; /* ERROR */
		soft_program_put(program);
		return result;
	}
	*program_out = program;
	return CUDA_SUCCESS;
}

CUresult soft_program_new_locked(const struct soft_graph *graph, struct soft_program **program_out,
				 struct soft_exec_fault *fault)
{
	*fault = (struct soft_exec_fault){ .result = 0 };
	return program_new(graph, graph->owner != NULL, program_out, fault);
}

struct soft_program *soft_program_clone(const struct soft_program *program)
{
	struct soft_program *clone = calloc(1, sizeof(*clone));

	if (!clone)
		return NULL;
	atomic_init(&clone->refs, 1);
	for (uint32_t i = 0; i < program->step_count; i++) {
		const struct soft_step *step = &program->steps[i];

		if (step_add(clone, step->node, &step->work, step->needs, step->need_count) != CUDA_SUCCESS) {
			soft_program_put(clone);
			return NULL;
		}
		clone->steps[i].enabled = step->enabled;
	}
	clone->body = program->body;
	for (uint32_t i = 0; i < program->condition_count; i++)
		if (condition_add(&clone->conditions, &clone->condition_count, program->conditions[i]) != CUDA_SUCCESS) {
			soft_program_put(clone);
			return NULL;
		}
	return clone;
}

/* ---- running ---- */

/* What a step has come to in this launch. */
struct progress {
	bool done;
	unsigned int ops; /* memory operations carried out */
};

/* Bodies never wait: what could is not allowed in them. */
static CUresult branch_run(const struct soft_work *work, const struct soft_stream *stream)
{
	struct soft_program *const *programs = work->branch.programs;
	struct soft_condition *condition = work->branch.condition;
	uint32_t value = atomic_load(&condition->value);

	switch (work->branch.kind) {
	case CU_GRAPH_COND_TYPE_IF:
		if (value)
			return soft_program_run(programs[0], NULL, stream);
		return work->branch.count > 1 ? soft_program_run(programs[1], NULL, stream) : CUDA_SUCCESS;
	case CU_GRAPH_COND_TYPE_WHILE:
		while (atomic_load(&condition->value) && !soft_stream_stopped(stream))
			TRY(soft_program_run(programs[0], NULL, stream));
		return CUDA_SUCCESS;
	default:
		return value < work->branch.count ? soft_program_run(programs[value], NULL, stream) : CUDA_SUCCESS;
	}
}

/* Goes on with a step; @done_out false where it has to wait. */
static CUresult step_advance(const struct soft_step *step, struct progress *progress, struct soft_ticket *ticket,
			     const struct soft_stream *stream, bool *done_out)
{
	const struct soft_work *work = &step->work;

	*done_out = true;
	if (!step->enabled)
		return CUDA_SUCCESS;
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return soft_launch_run(work->kernel.launch);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return soft_transfer_run(&work->copy.transfer);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return soft_fill_run(&work->fill.fill);
	case CU_GRAPH_NODE_TYPE_HOST:
		work->host.fn(work->host.userData);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		soft_ticket_tear(ticket);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		*done_out = soft_ticket_done(ticket);
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		for (; progress->ops < work->memop.count; progress->ops++) {
			TRY(soft_memop_ready(&work->memop.ops[progress->ops], done_out));
			if (!*done_out)
				return CUDA_SUCCESS;
			TRY(soft_memop_run(&work->memop.ops[progress->ops]));
		}
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return branch_run(work, stream);
	default:
		return CUDA_SUCCESS;
	}
}

static bool step_may_run(const struct soft_step *step, const struct progress *progress)
{
	for (uint32_t i = 0; i < step->need_count; i++)
		if (!progress[step->needs[i]].done)
			return false;
	return true;
}

CUresult soft_program_run(const struct soft_program *program, struct soft_ticket *const *tickets,
			  const struct soft_stream *stream)
{
	struct progress *progress = calloc(program->step_count + 1u, sizeof(*progress));
	uint32_t first = 0; /* all before are done */
	CUresult result = CUDA_SUCCESS;
	unsigned int round = 0;

	if (!progress)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (first < program->step_count && result == CUDA_SUCCESS) {
		bool moved = false;

		for (uint32_t i = first; i < program->step_count && result == CUDA_SUCCESS; i++) {
			if (progress[i].done || !step_may_run(&program->steps[i], progress))
				continue;
			result = step_advance(&program->steps[i], &progress[i], tickets ? tickets[i] : NULL, stream,
					      &progress[i].done);
			moved |= progress[i].done;
		}
		while (first < program->step_count && progress[first].done)
			first++;
		if (soft_stream_stopped(stream))
			break;
		if (moved)
			round = 0;
		else
			soft_poll_pause(&round);
	}
	free(progress);
	return result;
}
