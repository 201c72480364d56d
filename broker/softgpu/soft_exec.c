// SPDX-License-Identifier: Apache-2.0
/*
 * Executable graphs: instantiation, launch, and changes between launches. Any thread.
 */
#include "broker/softgpu/soft_exec.h"

#include <stdlib.h>
#include <string.h>

#define INSTANTIATE_AUTO_FREE 1u
#define INSTANTIATE_UPLOAD 2u
#define INSTANTIATE_DEVICE_LAUNCH 4u
#define INSTANTIATE_FLAGS 15u

/* Results of an update, in cuda.h's numbers. */
enum {
	UPDATE_SUCCESS = 0,
	UPDATE_ERROR = 1,
	UPDATE_TOPOLOGY = 2,
	UPDATE_TYPE = 3,
	UPDATE_FUNCTION = 4,
	UPDATE_PARAMETERS = 5,
};

static void exec_free(struct soft_object *object)
{
	struct soft_exec *exec = (struct soft_exec *)object;

	soft_program_put(exec->program);
	soft_ticket_put(exec->last);
	for (uint32_t i = 0; i < exec->taken_count; i++) {
		atomic_store(&exec->taken[i]->taken, false);
		soft_condition_drop(exec->taken[i]);
	}
	free(exec->taken);
	pthread_mutex_destroy(&exec->lock);
	free(exec);
}

static CUresult exec_find(CUgraphExec handle, struct soft_exec **exec_out)
{
	TRY(soft_ready());
	*exec_out = (struct soft_exec *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_EXEC);
	return *exec_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define EXEC_ARG(name, handle)                   \
	SOFT_HELD struct soft_exec *name = NULL; \
	TRY(exec_find(handle, &name))

/* Its conditions are nobody else's while it lives: their values are there once. */
static CUresult conditions_take(struct soft_exec *exec)
{
	struct soft_condition **list = NULL;
	uint32_t count = 0;
	CUresult result = soft_program_conditions(exec->program, &list, &count);

	exec->taken = calloc(count + 1u, sizeof(struct soft_condition *));
	if (!exec->taken)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < count; i++) {
		if (result == CUDA_SUCCESS && atomic_exchange(&list[i]->taken, true))
			result = CUDA_ERROR_NOT_SUPPORTED;
		if (result == CUDA_SUCCESS)
			exec->taken[exec->taken_count++] = list[i];
		else
			soft_condition_drop(list[i]);
	}
	free(list);
	return result;
}

static CUresult exec_new(CUgraphExec *exec_out, CUgraph handle, uint64_t flags, struct soft_exec_fault *fault)
{
	struct soft_exec *exec;
	CUresult result;

	*fault = (struct soft_exec_fault){ .result = 1 };
	SOFT_GRAPH_ARG(graph, handle);
	if (!exec_out || flags & ~(uint64_t)INSTANTIATE_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & INSTANTIATE_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&exec->object, SOFT_EXEC, NULL, exec_free);
	pthread_mutex_init(&exec->lock, NULL);
	exec->flags = flags;
	soft_graph_lock();
	result = soft_program_new_locked(graph, &exec->program, fault);
	soft_graph_unlock();
	if (result == CUDA_SUCCESS)
		result = conditions_take(exec);
	if (result == CUDA_SUCCESS)
		result = soft_object_publish(&exec->object);
	if (result != CUDA_SUCCESS) {
		soft_object_put(&exec->object);
		return result;
	}
	*exec_out = (CUgraphExec)(uintptr_t)atomic_load(&exec->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphInstantiateWithFlags, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	SOFT_WAITS();

	struct soft_exec_fault fault;

	return exec_new(exec, graph, flags, &fault);
}

SOFT_API(cuGraphInstantiateWithParams, CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct soft_exec_fault fault;
	CUresult result;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	result = exec_new(exec, graph, params->flags, &fault);
	params->result_out = result == CUDA_SUCCESS ? 0 : fault.result;
	params->hErrNode_out = (CUgraphNode)(uintptr_t)fault.node;
	return result;
}

SOFT_API(cuGraphInstantiate_v2, CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t size)
{
	struct soft_exec_fault fault;
	CUresult result = exec_new(exec, graph, 0, &fault);

	if (error_node)
		*error_node = (CUgraphNode)(uintptr_t)fault.node;
	if (log && size)
		log[0] = 0;
	return result;
}

SOFT_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2);

SOFT_API(cuGraphExecDestroy, CUgraphExec handle)
{
	SOFT_WAITS();

	struct soft_object *object;

	TRY(soft_ready());
	/* A launch on its way keeps its program. */
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_EXEC);
	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	soft_object_put(object);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphExecGetFlags, CUgraphExec handle, uint64_t *flags)
{
	EXEC_ARG(exec, handle);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	/* Uploading is done at once and not a property of the graph. */
	*flags = exec->flags & ~(uint64_t)INSTANTIATE_UPLOAD;
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphUpload, CUgraphExec handle, CUstream stream_handle)
{
	EXEC_ARG(exec, handle);
	SOFT_STREAM_ARG(stream, stream_handle);
	return CUDA_SUCCESS;
}

/* ---- launch ---- */

struct graph_command {
	struct soft_command command;
	struct soft_program *program;
	struct soft_ticket *tickets[]; /* one a step: of an event recorded or waited for */
};

static CUresult graph_run(struct soft_command *command, struct soft_stream *stream)
{
	struct graph_command *graph = (struct graph_command *)command;

	soft_program_assign(graph->program);
	return soft_program_run(graph->program, graph->tickets, stream);
}

static void graph_command_free(struct soft_command *command)
{
	struct graph_command *graph = (struct graph_command *)command;

	for (uint32_t i = 0; i < graph->program->step_count; i++) {
		if (!graph->tickets[i])
			continue;
		/* Records that were never reached, after an error: nobody may wait for them for ever. */
		if (graph->program->steps[i].work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
		    !soft_ticket_done(graph->tickets[i]))
			soft_ticket_tear(graph->tickets[i]);
		soft_ticket_put(graph->tickets[i]);
	}
	soft_program_put(graph->program);
	free(graph);
}

/* What an event stands for is settled when the graph is launched, as for a stream's own records and waits. */
static CUresult graph_events(struct graph_command *graph)
{
	for (uint32_t i = 0; i < graph->program->step_count; i++) {
		const struct soft_step *step = &graph->program->steps[i];

		if (!step->enabled)
			continue;
		if (step->work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
			graph->tickets[i] = soft_ticket_new();
			if (!graph->tickets[i])
				return CUDA_ERROR_OUT_OF_MEMORY;
		} else if (step->work.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
			graph->tickets[i] = soft_event_ticket(step->work.event);
			if (!graph->tickets[i]) {
				/* Never recorded: nothing to wait for. */
				graph->tickets[i] = soft_ticket_new();
				if (!graph->tickets[i])
					return CUDA_ERROR_OUT_OF_MEMORY;
				soft_ticket_tear(graph->tickets[i]);
			}
		}
	}
	for (uint32_t i = 0; i < graph->program->step_count; i++)
		if (graph->tickets[i] && graph->program->steps[i].work.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
			soft_event_set(graph->program->steps[i].work.event, graph->tickets[i]);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphLaunch, CUgraphExec handle, CUstream stream_handle)
{
	SOFT_WAITS();

	struct graph_command *graph;
	struct soft_ticket *ticket;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	EXEC_ARG(exec, handle);
	SOFT_STREAM_ARG(stream, stream_handle);
	pthread_mutex_lock(&exec->lock);
	graph = calloc(1, sizeof(*graph) + exec->program->step_count * sizeof(graph->tickets[0]));
	if (!graph)
		goto unlock;
	graph->command.run = graph_run;
	graph->command.free = graph_command_free;
	graph->program = exec->program;
	atomic_fetch_add(&graph->program->refs, 1);
	result = graph_events(graph);
	if (result == CUDA_SUCCESS)
		result = soft_command_wait(&graph->command, exec->last);
	if (result != CUDA_SUCCESS) {
		graph_command_free(&graph->command);
		goto unlock;
	}
	result = soft_stream_submit(stream, &graph->command, &ticket);
	if (result == CUDA_SUCCESS) {
		soft_ticket_put(exec->last);
		exec->last = ticket;
	}
unlock:
	pthread_mutex_unlock(&exec->lock);
	return result;
}

/* ---- changes ---- */

/* The step of a node; those of bodies are looked through too. NULL: none. */
static const struct soft_step *step_find(const struct soft_program *program, uint64_t node)
{
	const struct soft_step *found = NULL;

	for (uint32_t i = 0; node && i < program->step_count && !found; i++) {
		const struct soft_work *work = &program->steps[i].work;

		if (program->steps[i].node == node)
			return &program->steps[i];
		for (unsigned int j = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < work->branch.count && !found; j++)
			found = step_find(work->branch.programs[j], node);
	}
	return found;
}

/* The same in a program that may be changed: it and what lies around the step are copied where a launch has them. */
static struct soft_step *step_own(struct soft_program **program, uint64_t node, CUresult *result)
{
	if (atomic_load(&(*program)->refs) > 1) {
		struct soft_program *copy = soft_program_clone(*program);

		*result = CUDA_ERROR_OUT_OF_MEMORY;
		if (!copy)
			return NULL;
		soft_program_put(*program);
		*program = copy;
	}
	*result = CUDA_SUCCESS;
	for (uint32_t i = 0; i < (*program)->step_count; i++) {
		struct soft_work *work = &(*program)->steps[i].work;

		if ((*program)->steps[i].node == node)
			return &(*program)->steps[i];
		for (unsigned int j = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < work->branch.count; j++)
			if (step_find(work->branch.programs[j], node))
				return step_own(&work->branch.programs[j], node, result);
	}
	return NULL; /* not reached: the caller has found it */
}

static struct soft_step *step_to_change_locked(struct soft_exec *exec, uint64_t node, CUresult *result)
{
	*result = CUDA_ERROR_INVALID_VALUE;
	return step_find(exec->program, node) ? step_own(&exec->program, node, result) : NULL;
}

/* Takes @work. */
static bool is_line(const CUDA_MEMCPY3D *box)
{
	return box->srcMemoryType != CU_MEMORYTYPE_ARRAY && box->dstMemoryType != CU_MEMORYTYPE_ARRAY && box->Height <= 1 && box->Depth <= 1;
}

/* Copies of one dimension alone are changed, as by a real driver; others may be said again. */
static bool can_be(const struct soft_work *old, const struct soft_work *new)
{
	if (old->type != new->type)
		return false;
	return new->type != CU_GRAPH_NODE_TYPE_MEMCPY || (is_line(&old->copy.box) && is_line(&new->copy.box)) ||
	       memcmp(&old->copy.box, &new->copy.box, sizeof(new->copy.box)) == 0;
}

static CUresult exec_change(CUgraphExec handle, CUgraphNode node, struct soft_work *work)
{
	SOFT_HELD struct soft_exec *exec = NULL;
	struct soft_work old = *work;
	struct soft_step *step;
	CUresult result = exec_find(handle, &exec);

	if (result == CUDA_SUCCESS) {
		pthread_mutex_lock(&exec->lock);
		step = step_to_change_locked(exec, (uint64_t)(uintptr_t)node, &result);
		if (step && !can_be(&step->work, work)) {
			result = CUDA_ERROR_INVALID_VALUE;
		} else if (step) {
			old = step->work;
			step->work = *work;
		}
		pthread_mutex_unlock(&exec->lock);
	}
	soft_work_free(&old);
	return result;
}

static CUresult exec_kernel(CUgraphExec exec, CUgraphNode node, const void *params, size_t size)
{
	SOFT_HELD struct soft_context *named = NULL;
	CUDA_KERNEL_NODE_PARAMS full = { 0 };
	struct soft_work work;

	SOFT_ENTER(context);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&full, params, size);
	if (full.ctx)
		TRY(soft_context_find(full.ctx, &named));
	TRY(soft_work_kernel(&work, named ? named : context, &full));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecKernelNodeSetParams_v2, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return exec_kernel(exec, node, params, sizeof(*params));
}

SOFT_API(cuGraphExecKernelNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return exec_kernel(exec, node, params, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
}

SOFT_API(cuGraphExecMemcpyNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
	 CUcontext context)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_copy(&work, params));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecMemsetNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params,
	 CUcontext context)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_fill(&work, params));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecHostNodeSetParams, CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_host(&work, params));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecEventRecordNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct soft_work work;

	TRY(soft_work_event(&work, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecEventWaitNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event)
{
	struct soft_work work;

	TRY(soft_work_event(&work, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphExecBatchMemOpNodeSetParams, CUgraphExec exec, CUgraphNode node,
	 const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	struct soft_work work;

	TRY(soft_ready());
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_work_memop(&work, params));
	return exec_change(exec, node, &work);
}

SOFT_API(cuGraphNodeSetEnabled, CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
	struct soft_step *step;
	CUresult result;

	EXEC_ARG(exec, handle);
	pthread_mutex_lock(&exec->lock);
	step = step_to_change_locked(exec, (uint64_t)(uintptr_t)node, &result);
	/* Only these three kinds can be switched off. */
	if (step && step->work.type != CU_GRAPH_NODE_TYPE_KERNEL && step->work.type != CU_GRAPH_NODE_TYPE_MEMCPY &&
	    step->work.type != CU_GRAPH_NODE_TYPE_MEMSET)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (step)
		step->enabled = enabled != 0;
	pthread_mutex_unlock(&exec->lock);
	return result;
}

SOFT_API(cuGraphNodeGetEnabled, CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct soft_step *step;

	EXEC_ARG(exec, handle);
	if (!enabled)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&exec->lock);
	step = step_find(exec->program, (uint64_t)(uintptr_t)node);
	if (step) {
		*enabled = step->enabled;
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&exec->lock);
	return result;
}

/* Whether @now can take the place of @old: the same steps in the same shape, doing other things of the same kinds. */
static int program_compare(const struct soft_program *old, const struct soft_program *now, uint64_t *node_out)
{
	if (old->step_count != now->step_count)
		return UPDATE_TOPOLOGY;
	for (uint32_t i = 0; i < now->step_count; i++) {
		const struct soft_step *first = &old->steps[i], *second = &now->steps[i];

		*node_out = second->node;
		if (first->work.type != second->work.type)
			return UPDATE_TYPE;
		if (first->need_count != second->need_count ||
		    memcmp(first->needs, second->needs, first->need_count * sizeof(*first->needs)) != 0)
			return UPDATE_TOPOLOGY;
		if (first->work.type == CU_GRAPH_NODE_TYPE_KERNEL &&
		    first->work.kernel.launch->function->object.owner != second->work.kernel.launch->function->object.owner)
			return UPDATE_FUNCTION;
		if (first->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		if (first->work.branch.kind != second->work.branch.kind || first->work.branch.count != second->work.branch.count)
			return UPDATE_PARAMETERS;
		for (unsigned int j = 0; j < first->work.branch.count; j++) {
			int below = program_compare(first->work.branch.programs[j], second->work.branch.programs[j], node_out);

			if (below != UPDATE_SUCCESS)
				return below;
		}
	}
	*node_out = 0;
	return UPDATE_SUCCESS;
}

/* Nodes go on being named as they were when the graph was made executable. */
static void program_name(struct soft_program *program, const struct soft_program *old)
{
	for (uint32_t i = 0; i < program->step_count; i++) {
		struct soft_work *work = &program->steps[i].work;

		program->steps[i].node = old->steps[i].node;
		for (unsigned int j = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && j < work->branch.count; j++)
			program_name(work->branch.programs[j], old->steps[i].work.branch.programs[j]);
	}
}

static CUresult exec_update(CUgraphExec handle, CUgraph graph_handle, int *update_out, uint64_t *node_out)
{
	struct soft_program *program;
	struct soft_exec_fault fault;
	CUresult result;

	*update_out = UPDATE_ERROR;
	*node_out = 0;
	EXEC_ARG(exec, handle);
	SOFT_GRAPH_ARG(graph, graph_handle);
	soft_graph_lock();
	result = soft_program_new_locked(graph, &program, &fault);
	soft_graph_unlock();
	if (result != CUDA_SUCCESS)
		return result;
	pthread_mutex_lock(&exec->lock);
	*update_out = program_compare(exec->program, program, node_out);
	if (*update_out == UPDATE_SUCCESS) {
		struct soft_program *old = exec->program;

		program_name(program, old);
		exec->program = program;
		program = old;
	}
	pthread_mutex_unlock(&exec->lock);
	soft_program_put(program);
	return *update_out == UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

SOFT_API(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	CUresult result;
	uint64_t node;
	int update;

	TRY(soft_ready());
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	result = exec_update(exec, graph, &update, &node);
	*info = (CUgraphExecUpdateResultInfo){ .result = update, .errorNode = (CUgraphNode)(uintptr_t)node };
	return result;
}

SOFT_API(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, int *update_out)
{
	CUresult result;
	uint64_t node;
	int update;

	TRY(soft_ready());
	result = exec_update(exec, graph, &update, &node);
	if (error_node)
		*error_node = (CUgraphNode)(uintptr_t)node;
	if (update_out)
		*update_out = update;
	return result;
}
