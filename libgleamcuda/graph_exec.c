// SPDX-License-Identifier: Apache-2.0
/*
 * Making, ending and launching of graphs; see graph_exec.h. Any thread.
 */
#include "libgleamcuda/graph_exec.h"

#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/stream.h"

/* Type-stable: a launch reads one without the lock. */
static struct stable execs = STABLE(struct graph_exec);

struct graph_exec *graph_exec_find(CUgraphExec handle)
{
	return handle_data(OBJECT_GRAPHEXEC, (uint64_t)(uintptr_t)handle);
}

/* ---- making ---- */

static void part_end(struct call *call, uint64_t wire)
{
	struct msg_gleamGraphEnd m = { .graph = wire };

	/* Where it fails the session has ended, and everything with it. */
	(void)CALL_SEND(call, gleamGraphEnd, &m);
}

/* The parts' handles are ended with them, and those of bodies with their part's. */
static void parts_end(struct call *call, struct graph_plan *plan)
{
	graph_plan_wires_end(plan);
	for (uint32_t i = 0; i < plan->part_count; i++) {
		if (!plan->parts[i].wire)
			continue;
		part_end(call, plan->parts[i].wire);
		handle_end(plan->parts[i].wire);
		plan->parts[i].wire = 0;
	}
}

/* One trip a part: what only the driver knows of it has to come back from this very call. */
static CUresult part_make(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire, uint64_t flags)
{
	struct msg_gleamGraphMake m = { .graph = wire, .flags = flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY };
	CUresult result = graph_part_send(call, plan, part, wire);

	return result ? result : CALL_ASK(call, gleamGraphMake, &m);
}

static CUresult parts_make(struct call *call, struct graph_plan *plan, uint64_t flags)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < plan->part_count && !result; i++) {
		struct graph_part *part = &plan->parts[i];

		if (!part->count)
			continue;
		/* Without data: no handle of the program's. */
		part->wire = handle_new(OBJECT_GRAPHEXEC, plan->context, NULL);
		result = part->wire ? part_make(call, plan, i, part->wire, flags) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result)
		parts_end(call, plan);
	return result;
}

/* The context that a graph's work is for: that of its first kernel; the current one for a graph without. */
static struct context *graph_context(const struct call *call, const struct graph *graph)
{
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_KERNEL)
			return graph->nodes[i]->work.context;
	return call->context;
}

static CUresult instantiate(struct call *call, CUgraphExec *exec_out, CUgraph hGraph, uint64_t flags, uint64_t *error_out,
			    bool *unused_out)
{
	struct graph_exec *exec;
	struct graph *graph;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	*error_out = 0;
	*unused_out = false;
	if (!exec_out || (flags & ~15ull))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return call_refuse(call, "graphs that kernels launch are launched past the library, which has to stage their memory");
	exec = stable_take(&execs);
	if (!exec)
		return result;
	graph_lock();
	graph = graph_find(hGraph);
	if (!graph || graph_is_body(graph)) {
		result = CUDA_ERROR_INVALID_VALUE;
		goto unlock;
	}
	/* The values of conditions are there once. */
	if (graph->made && handle_live(OBJECT_GRAPHEXEC, graph->made)) {
		result = CUDA_ERROR_NOT_SUPPORTED;
		goto unlock;
	}
	exec->context = graph_context(call, graph);
	exec->flags = flags;
	result = graph_plan_new(exec->context, graph, &exec->plan, error_out);
	if (result)
		goto unlock;
	exec->holder = graph_new();
	if (!exec->holder || graph_holds_clone(graph, exec->holder))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		result = graph_plan_conditions(exec->plan, unused_out);
	graph_unlock();
	call_in(call, exec->context);
	if (!result)
		result = graph_plan_stage(call, exec->plan);
	if (!result && exec->plan->stages)
		result = do_cuEventCreate(call, &exec->done, CU_EVENT_DISABLE_TIMING);
	if (!result)
		result = parts_make(call, exec->plan, flags);
	if (result)
		goto put_plan;
	exec->handle = handle_new(OBJECT_GRAPHEXEC, exec->context, exec);
	if (!exec->handle) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		parts_end(call, exec->plan);
		goto put_plan;
	}
	if (graph_plan_branches(exec->plan)) {
		graph_lock();
		graph = graph_find(hGraph);
		if (graph)
			graph->made = exec->handle;
		graph_unlock();
	}
	*exec_out = (CUgraphExec)(uintptr_t)exec->handle;
	return CUDA_SUCCESS;

put_plan:
	if (exec->done)
		do_cuEventDestroy_v2(call, exec->done);
	graph_plan_put(exec->plan);
	graph_lock();
	if (exec->holder)
		graph_free(exec->holder);
unlock:
	graph_unlock();
	stable_give(&execs, exec);
	graph_memory_sweep(call);
	return result;
}

CUresult do_cuGraphInstantiateWithFlags(struct call *call, CUgraphExec *phGraphExec, CUgraph hGraph,
					unsigned long long flags)
{
	uint64_t error;
	bool unused;

	return instantiate(call, phGraphExec, hGraph, flags, &error, &unused);
}

CUresult do_cuGraphInstantiate_v2(struct call *call, CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
				  char *logBuffer, size_t bufferSize)
{
	uint64_t error;
	bool unused;
	CUresult result = instantiate(call, phGraphExec, hGraph, 0, &error, &unused);

	if (phErrorNode)
		*phErrorNode = (CUgraphNode)(uintptr_t)error;
	if (logBuffer && bufferSize)
		logBuffer[0] = '\0';
	return result;
}

CUresult do_cuGraphInstantiate(struct call *call, CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	return do_cuGraphInstantiate_v2(call, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult do_cuGraphInstantiateWithParams(struct call *call, CUgraphExec *phGraphExec, CUgraph hGraph,
					 CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	uint64_t error;
	CUresult result;
	bool unused;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	result = instantiate(call, phGraphExec, hGraph, p->flags, &error, &unused);
	p->hErrNode_out = (CUgraphNode)(uintptr_t)error;
	p->result_out = !result ? CUDA_GRAPH_INSTANTIATE_SUCCESS :
		unused ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED :
		error && result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE :
							      CUDA_GRAPH_INSTANTIATE_ERROR;
	if (!result && (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
		result = do_cuGraphUpload(call, *phGraphExec, p->hUploadStream);
	return result;
}

/* ---- end ---- */

/* Takes the exec's handle; what was launched goes on. @tell: the worker has to hear of it. */
static void exec_end(struct call *call, struct graph_exec *exec, bool tell)
{
	if (!handle_end(exec->handle))
		return; /* another thread had it */
	call_in(call, exec->context);
	if (tell) {
		parts_end(call, exec->plan);
		if (exec->done)
			do_cuEventDestroy_v2(call, exec->done);
	} else {
		graph_plan_wires_end(exec->plan);
		for (uint32_t i = 0; i < exec->plan->part_count; i++)
			if (exec->plan->parts[i].wire)
				handle_end(exec->plan->parts[i].wire);
	}
	graph_plan_put(exec->plan);
	graph_lock();
	graph_free(exec->holder);
	graph_unlock();
	stable_give(&execs, exec);
}

CUresult do_cuGraphExecDestroy(struct call *call, CUgraphExec hGraphExec)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	exec_end(call, exec, __atomic_load_n(&exec->context->active, __ATOMIC_ACQUIRE));
	graph_memory_sweep(call);
	graph_objects_sweep();
	return CUDA_SUCCESS;
}

static void closed_end(uint64_t handle, void *data)
{
	struct graph_exec *exec = data;
	struct call call;

	(void)handle;
	if (!exec)
		return; /* a part's: ended with its exec */
	call_start(&call, exec->context->session, exec->context);
	exec_end(&call, exec, false);
	call_leave(&call, CUDA_SUCCESS);
}

void graph_context_closed(struct context *context)
{
	handle_each(OBJECT_GRAPHEXEC, context, closed_end);
}

CUresult do_cuGraphExecGetFlags(struct call *call, CUgraphExec hGraphExec, cuuint64_t *flags)
{
	struct graph_exec *exec = graph_exec_find(hGraphExec);

	if (!exec || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = exec->flags;
	return CUDA_SUCCESS;
}

/* ---- launching ---- */

static CUresult part_launch(struct call *call, uint64_t wire, uint64_t stream)
{
	struct msg_gleamGraphLaunch m = { .stream = stream, .graph = wire };
	CUresult result;

	if (exposed_any()) {
		exposed_push(call);
		call->touches = true;
	}
	result = region_any() ? region_give(call, stream) : CUDA_SUCCESS;
	if (result)
		return result;
	result = call_open(call, OP_gleamGraphLaunch, msg_gleamGraphLaunch_size(&m));
	if (result)
		return result;
	msg_gleamGraphLaunch_put(&call->w, &m);
	stream_note(call, stream, call_post(call));
	return CUDA_SUCCESS;
}

/* One side of a copy in its staging, slice by slice. @at_once: host memory is read without waiting for anything. */
static CUresult box_move(struct call *call, const struct graph_step *step, uint64_t stream, bool at_once)
{
	const struct graph_box *box = &step->box;
	uint64_t slice = box->width * box->rows;
	bool up = graph_step_is_up(step);
	CUresult result = CUDA_SUCCESS;

	for (uint64_t z = 0; z < box->depth && !result; z++) {
		struct copy c = { .width = box->width, .rows = box->rows, .stream = stream, .async = true };

		if (up) {
			c.dst = step->staging + z * slice;
			c.dst_pitch = box->width;
			c.dst_place = PLACE_DEVICE;
			c.src = box->src + z * box->src_height * box->src_pitch;
			c.src_pitch = box->src_pitch;
			/* Of all kinds: a graph's sources obey the rule of page-locked ones. */
			c.src_place = at_once ? PLACE_PAGEABLE : PLACE_PINNED;
		} else {
			c.src = step->staging + z * slice;
			c.src_pitch = box->width;
			c.src_place = PLACE_DEVICE;
			c.dst = box->dst + z * box->dst_height * box->dst_pitch;
			c.dst_pitch = box->dst_pitch;
			/* Also into pageable memory a graph's copy arrives later. */
			c.dst_place = PLACE_PINNED;
		}
		result = copy_run(call, &c);
	}
	return result;
}

/* What the host does between two parts: as it stood when the graph was launched. */
struct stop {
	struct graph_plan *plan; /* counted: it owns the staging */
	uint32_t count;
	struct stop_item {
		CUhostFn function; /* or a copy */
		void *user;
		struct graph_step step; /* works of it are not looked at */
	} items[];
};

static void host_copy(const struct graph_box *box)
{
	for (uint64_t z = 0; z < box->depth; z++)
		for (uint64_t row = 0; row < box->rows; row++)
			memmove((uint8_t *)(uintptr_t)box->dst + (z * box->dst_height + row) * box->dst_pitch,
				(const uint8_t *)(uintptr_t)box->src + (z * box->src_height + row) * box->src_pitch,
				box->width);
}

/* On the thread of host functions; the stream stands still. */
static void stop_run(void *arg)
{
	struct stop *stop = arg;
	struct stream *side = NULL;
	struct call call;

	call_start(&call, stop->plan->context->session, stop->plan->context);
	for (uint32_t i = 0; i < stop->count; i++) {
		struct stop_item *item = &stop->items[i];

		if (item->function) {
			item->function(item->user);
		} else if (graph_step_is_up(&item->step)) {
			/* Not on the stream, which waits for us: beside it, and it has to be there when the stream goes on. */
			if (!side)
				side = stream_side(&call);
			if (!side || box_move(&call, &item->step, side->handle, true))
				break; /* latched, or the session's end */
		} else {
			host_copy(&item->step.box);
		}
	}
	if (side)
		stream_wait(&call, side);
	call_leave(&call, CUDA_SUCCESS);
	graph_plan_put(stop->plan);
	free(stop);
}

/* Is a step the host's at the stop behind @part? First functions and copies of the host's, then what the next part reads. */
static bool stop_has(const struct graph_step *step, uint32_t part, bool ups)
{
	if (!step->enabled)
		return false;
	return ups ? step->phase == part + 1 && graph_step_is_up(step) : step->phase == part && graph_step_is_host(step);
}

static CUresult stop_send(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t stream)
{
	struct stop *stop;
	uint32_t count = 0;
	CUresult result;

	for (uint32_t i = 0; i < plan->step_count; i++)
		count += stop_has(&plan->steps[i], part, false) || stop_has(&plan->steps[i], part, true);
	stop = calloc(1, sizeof(*stop) + count * sizeof(stop->items[0]));
	if (!stop)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stop->plan = plan;
	for (int ups = 0; ups < 2; ups++)
		for (uint32_t i = 0; i < plan->step_count; i++) {
			const struct graph_step *step = &plan->steps[i];

			if (!stop_has(step, part, ups))
				continue;
			stop->items[stop->count].step = *step;
			if (step->work.type == CU_GRAPH_NODE_TYPE_HOST) {
				stop->items[stop->count].function = step->work.host.fn;
				stop->items[stop->count].user = step->work.host.userData;
			}
			stop->count++;
		}
	__atomic_add_fetch(&plan->refs, 1, __ATOMIC_RELAXED);
	result = hostfunc_stop(call, stream, stop_run, stop);
	if (result) {
		graph_plan_put(plan);
		free(stop);
	}
	return result;
}

static CUresult event_steps(struct call *call, const struct graph_plan *plan, uint32_t part, CUstream stream,
			    CUgraphNodeType type)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		const struct graph_step *step = &plan->steps[i];

		if (step->phase != part || step->work.type != type)
			continue;
		if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
			result = do_cuEventRecord(call, (CUevent)(uintptr_t)step->work.event, stream);
		else
			result = do_cuStreamWaitEvent(call, stream, (CUevent)(uintptr_t)step->work.event, 0);
	}
	return result;
}

static CUresult moves(struct call *call, const struct graph_plan *plan, uint32_t part, uint64_t stream, bool up)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; plan->stages && i < plan->step_count && !result; i++) {
		const struct graph_step *step = &plan->steps[i];

		if (step->phase == part && step->enabled && (up ? graph_step_is_up(step) : graph_step_is_down(step)))
			result = box_move(call, step, stream, false);
	}
	return result;
}

/* Everything around the parts: not the path of ordinary graphs. */
static __attribute__((noinline)) CUresult launch_slowly(struct call *call, struct graph_exec *exec, CUstream hStream,
							uint64_t stream)
{
	struct graph_plan *plan = exec->plan;
	CUresult result = CUDA_SUCCESS;

	if (exec->done && exec->launched && exec->last_stream != stream)
		result = do_cuStreamWaitEvent(call, hStream, exec->done, 0);
	for (uint32_t i = 0; i < plan->part_count && !result; i++) {
		const struct graph_part *part = &plan->parts[i];

		if (i == 0 || !plan->parts[i - 1].stops)
			result = moves(call, plan, i, stream, true);
		if (!result && part->wire)
			result = part_launch(call, part->wire, stream);
		if (!result)
			result = moves(call, plan, i, stream, false);
		if (!result)
			result = event_steps(call, plan, i, hStream, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
		if (!result)
			result = event_steps(call, plan, i, hStream, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
		if (!result && part->stops)
			result = stop_send(call, plan, i, stream);
	}
	if (!result && exec->done)
		result = do_cuEventRecord(call, exec->done, hStream);
	exec->launched = true;
	exec->last_stream = stream;
	return result;
}

/* Allocations that this launch makes and frees, in the books. */
static CUresult memory_steps(struct graph_exec *exec)
{
	struct graph_plan *plan = exec->plan;
	bool frees = exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	CUresult result = CUDA_SUCCESS;

	graph_lock();
	for (uint32_t i = 0; i < plan->step_count && !result; i++)
		if (plan->steps[i].work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !frees &&
		    graph_memory_is_live(plan->steps[i].work.alloc.memory))
			result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < plan->step_count && !result; i++) {
		const struct graph_work *work = &plan->steps[i].work;

		if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
			graph_memory_set_live(work->alloc.memory, true);
		} else if (work->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
			struct graph_memory *memory = graph_memory_find(work->freed);

			if (memory)
				graph_memory_set_live(memory, false);
		}
	}
	graph_unlock();
	return result;
}

/* A launch into a capture: what the graph does becomes a child of the captured one. */
static CUresult launch_capture(struct call *call, struct graph_exec *exec, uint64_t stream)
{
	struct graph_plan *plan = exec->plan;
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_GRAPH };
	CUgraphNode *handles;
	CUgraphNode *needs;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	/* It would be a child. */
	if (graph_plan_branches(plan))
		return CUDA_ERROR_NOT_SUPPORTED;
	handles = malloc((plan->step_count + 1u) * sizeof(CUgraphNode));
	needs = malloc((plan->step_count + 1u) * sizeof(CUgraphNode));
	graph_lock();
	work.child = graph_new();
	if (!work.child || !handles || !needs)
		goto end;
	for (uint32_t i = 0; i < plan->step_count; i++) {
		const struct graph_step *step = &plan->steps[i];
		struct graph_node *node;
		struct graph_work copy;

		result = graph_work_clone(&step->work, &copy);
		for (uint32_t j = 0; j < step->need_count; j++)
			needs[j] = handles[step->needs[j]];
		if (!result)
			result = graph_node_add(work.child, needs, step->data, step->need_count, &copy, &node);
		if (result)
			goto end;
		handles[i] = (CUgraphNode)(uintptr_t)node->handle;
	}
end:
	if (result && work.child)
		graph_free(work.child);
	graph_unlock();
	free(handles);
	free(needs);
	return result ? result : capture_add(call, stream, &work);
}

CUresult do_cuGraphLaunch(struct call *call, CUgraphExec hGraph, CUstream hStream)
{
	struct graph_exec *exec = graph_exec_find(hGraph);
	bool captured = false;
	uint64_t stream;
	CUresult result;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream_captured(call, hStream, &stream, &captured);
	if (result)
		return result;
	if (captured)
		return launch_capture(call, exec, stream);
	if (call->session != exec->context->session)
		return call_refuse(call, "a graph of one server's GPUs can't run in a stream of another's");
	if (exec->plan->allocates) {
		result = memory_steps(exec);
		if (result)
			return result;
	}
	if (__builtin_expect(exec->plan->plain, 1))
		return exec->plan->parts[0].wire ? part_launch(call, exec->plan->parts[0].wire, stream) : CUDA_SUCCESS;
	/* A graph over several devices may be launched on a stream of any; its staging is in the context of one. */
	if (call->context != exec->context)
		return CUDA_ERROR_INVALID_CONTEXT;
	return launch_slowly(call, exec, hStream, stream);
}

CUresult do_cuGraphUpload(struct call *call, CUgraphExec hGraph, CUstream hStream)
{
	struct graph_exec *exec = graph_exec_find(hGraph);
	struct msg_gleamGraphUpload m;
	CUresult result;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream(call, hStream, &m.stream);
	for (uint32_t i = 0; i < exec->plan->part_count && !result; i++) {
		m.graph = exec->plan->parts[i].wire;
		if (!m.graph)
			continue;
		result = call_open(call, OP_gleamGraphUpload, msg_gleamGraphUpload_size(&m));
		if (result)
			break;
		msg_gleamGraphUpload_put(&call->w, &m);
		stream_note(call, m.stream, call_post(call));
	}
	return result;
}
