// SPDX-License-Identifier: Apache-2.0
/*
 * Stream capture; see capture.h. Application threads.
 *
 * A capture has an origin and members: the streams that take part, each with the nodes that its next one comes behind.
 * A stream joins by waiting for an event that was recorded in the capture. After a forbidden call the capture is
 * invalidated: every further use of its streams fails until the origin ends it.
 */
#include "libgleamcuda/capture.h"

#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/stream.h"

/* Nodes of a graph, each with the data of an edge from it. */
struct frontier {
	CUgraphNode *nodes;
	CUgraphEdgeData *data;
	size_t count;
	size_t room;
};

struct capture_member {
	struct capture_member *next;
	struct capture *capture;
	struct stream *stream;
	struct frontier at;
};

struct capture {
	struct capture *next;
	uint64_t id;
	struct graph *graph;
	bool given; /* the graph is the program's: cuStreamBeginCaptureToGraph */
	bool invalid;
	CUstreamCaptureMode mode;
	uint32_t thread;
	struct stream *origin;
	struct capture_member *members;
};

struct capture_mark {
	uint64_t capture; /* id */
	struct frontier at;
};

/* guarded by graph_lock() */
static struct capture *captures;
static uint64_t ids;

/* ---- frontiers ---- */

static void frontier_free(struct frontier *f)
{
	free(f->nodes);
	free(f->data);
	*f = (struct frontier){ .count = 0 };
}

static CUresult frontier_add(struct frontier *f, CUgraphNode node, const CUgraphEdgeData *data)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->nodes[i] == node)
			return CUDA_SUCCESS;
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 4;
		CUgraphNode *nodes = realloc(f->nodes, room * sizeof(CUgraphNode));
		CUgraphEdgeData *all;

		if (!nodes)
			return CUDA_ERROR_OUT_OF_MEMORY;
		f->nodes = nodes;
		all = realloc(f->data, room * sizeof(*all));
		if (!all)
			return CUDA_ERROR_OUT_OF_MEMORY;
		f->data = all;
		f->room = room;
	}
	f->nodes[f->count] = node;
	memset(&f->data[f->count], 0, sizeof(*data));
	if (data)
		f->data[f->count] = *data;
	f->count++;
	return CUDA_SUCCESS;
}

static CUresult frontier_join(struct frontier *to, const struct frontier *from)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t i = 0; i < from->count && !result; i++)
		result = frontier_add(to, from->nodes[i], &from->data[i]);
	return result;
}

/* ---- finding and ending ---- */

static struct capture *capture_of_id(uint64_t id)
{
	struct capture *capture = captures;

	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

static struct capture_member *member_add(struct capture *capture, struct stream *stream)
{
	struct capture_member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->capture = capture;
	member->stream = stream;
	member->next = capture->members;
	capture->members = member;
	stream->capture = member;
	return member;
}

static void capture_free(struct capture *capture, bool keep_graph)
{
	struct capture **link = &captures;

	while (*link != capture)
		link = &(*link)->next;
	*link = capture->next;
	while (capture->members) {
		struct capture_member *member = capture->members;

		capture->members = member->next;
		member->stream->capture = NULL;
		frontier_free(&member->at);
		free(member);
	}
	capture->graph->capturing--;
	if (!keep_graph && !capture->given)
		graph_free(capture->graph);
	free(capture);
	__atomic_sub_fetch(&captures_going, 1, __ATOMIC_RELAXED);
}

/* ---- what is forbidden ---- */

/*
 * Calls that may do something behind the program's back which a capture can't hold (wait, for one). What CUDA calls
 * potentially unsafe is not listed anywhere: these are the ones that programs are known to guard.
 */
static const uint8_t unsafe[API_COUNT] = {
	[API_cuMemAlloc] = 1, [API_cuMemAlloc_v2] = 1, [API_cuMemAllocPitch] = 1, [API_cuMemAllocPitch_v2] = 1,
	[API_cuMemFree] = 1, [API_cuMemFree_v2] = 1, [API_cuMemAllocHost] = 1, [API_cuMemAllocHost_v2] = 1,
	[API_cuMemHostAlloc] = 1, [API_cuMemFreeHost] = 1, [API_cuMemHostRegister] = 1, [API_cuMemHostRegister_v2] = 1,
	[API_cuMemHostUnregister] = 1, [API_cuMemAllocManaged] = 1, [API_cuArrayCreate] = 1, [API_cuArrayCreate_v2] = 1,
	[API_cuArray3DCreate] = 1, [API_cuArray3DCreate_v2] = 1, [API_cuArrayDestroy] = 1,
	[API_cuEventQuery] = 1, [API_cuEventSynchronize] = 1,
	[API_cuMemcpy] = 1, [API_cuMemcpy_ptds] = 1, [API_cuMemcpyHtoD_v2] = 1, [API_cuMemcpyHtoD_v2_ptds] = 1,
	[API_cuMemcpyDtoH_v2] = 1, [API_cuMemcpyDtoH_v2_ptds] = 1, [API_cuMemcpyDtoD_v2] = 1, [API_cuMemcpyDtoD_v2_ptds] = 1,
	[API_cuMemcpy2D_v2] = 1, [API_cuMemcpy2D_v2_ptds] = 1, [API_cuMemcpy2DUnaligned_v2] = 1,
	[API_cuMemcpy2DUnaligned_v2_ptds] = 1, [API_cuMemcpy3D_v2] = 1, [API_cuMemcpy3D_v2_ptds] = 1,
	[API_cuMemcpyPeer] = 1, [API_cuMemcpyPeer_ptds] = 1,
};

static bool synchronises_context(uint16_t api)
{
	return api == API_cuCtxSynchronize || api == API_cuCtxSynchronize_v2;
}

/* By the modes of the calling thread and of whoever captures. */
static bool forbids(const struct capture *capture, const struct thread *thread)
{
	if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED || thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->thread == thread->number)
		return true;
	return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static CUresult gate(struct call *call)
{
	bool whole = synchronises_context(call->api);
	CUresult result = CUDA_SUCCESS;

	if (!whole && !unsafe[call->api])
		return CUDA_SUCCESS;
	graph_lock();
	for (struct capture *capture = captures; capture; capture = capture->next) {
		if (whole ? context_base(capture->origin->context) != call->context : !call->thread || !forbids(capture, call->thread))
			continue;
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	graph_unlock();
	return result;
}

/* The legacy stream waits for every blocking one, and a capturing one can't be waited for. Lock held. */
static CUresult legacy_refuses(const struct context *context)
{
	CUresult result = CUDA_SUCCESS;

	for (struct capture *capture = captures; capture; capture = capture->next)
		for (struct capture_member *member = capture->members; member; member = member->next)
			if (member->stream->context == context && !(member->stream->flags & CU_STREAM_NON_BLOCKING)) {
				capture->invalid = true;
				result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
			}
	return result;
}

CUresult capture_refuses(struct call *call, uint64_t handle)
{
	struct stream *stream;
	CUresult result = CUDA_SUCCESS;

	graph_lock();
	stream = stream_find(call, handle);
	if (handle == WIRE_STREAM_LEGACY) {
		result = legacy_refuses(call->context);
	} else if (stream && stream->capture) {
		result = stream->capture->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED :
							     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		stream->capture->capture->invalid = true;
	}
	graph_unlock();
	return result;
}

CUresult call_stream_captured(struct call *call, CUstream named, uint64_t *handle_out, bool *captured_out)
{
	CUresult result = call_stream_named(call, named, handle_out);
	struct stream *stream;

	*captured_out = false;
	if (__builtin_expect(result != CUDA_SUCCESS, 0) || !capture_going())
		return result;
	graph_lock();
	stream = stream_find(call, *handle_out);
	if (*handle_out == WIRE_STREAM_LEGACY)
		result = legacy_refuses(call->context);
	else if (stream && stream->capture && stream->capture->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		*captured_out = stream && stream->capture;
	graph_unlock();
	return result;
}

/* ---- adding ---- */

CUresult capture_add(struct call *call, uint64_t handle, struct graph_work *work)
{
	struct stream *stream = stream_find(call, handle);
	struct capture_member *member;
	struct graph_node *node;
	CUresult result;

	graph_lock();
	member = stream ? stream->capture : NULL;
	if (!member || member->capture->invalid) {
		/* Another thread has ended or spoilt it since the call asked. */
		graph_work_free(work);
		graph_unlock();
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	result = graph_node_add(member->capture->graph, member->at.nodes, member->at.data, member->at.count, work, &node);
	if (!result) {
		member->at.count = 0;
		result = frontier_add(&member->at, (CUgraphNode)(uintptr_t)node->handle, NULL);
	}
	if (result)
		member->capture->invalid = true;
	graph_unlock();
	return result;
}

/* ---- events ---- */

static void mark_free(struct capture_mark *mark)
{
	if (!mark)
		return;
	frontier_free(&mark->at);
	free(mark);
}

void capture_mark_drop(struct capture_mark **mark)
{
	struct capture_mark *old;

	graph_lock();
	old = *mark;
	__atomic_store_n(mark, NULL, __ATOMIC_RELAXED);
	graph_unlock();
	mark_free(old);
}

CUresult capture_record(struct call *call, uint64_t handle, struct capture_mark **mark)
{
	struct capture_mark *new = calloc(1, sizeof(*new));
	struct stream *stream = stream_find(call, handle);
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph_lock();
	if (stream && stream->capture) {
		new->capture = stream->capture->capture->id;
		result = frontier_join(&new->at, &stream->capture->at);
	}
	if (!result) {
		struct capture_mark *old = *mark;

		__atomic_store_n(mark, new, __ATOMIC_RELAXED);
		new = old;
	}
	graph_unlock();
	mark_free(new);
	return result;
}

CUresult capture_asked(struct capture_mark **mark)
{
	struct capture *capture;

	graph_lock();
	capture = *mark ? capture_of_id((*mark)->capture) : NULL;
	if (capture)
		capture->invalid = true;
	graph_unlock();
	/* Once the capture is over the driver says something else (read off an H200). */
	return capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

CUresult capture_wait(struct call *call, uint64_t handle, struct capture_mark **mark)
{
	struct stream *stream = stream_find(call, handle);
	struct capture_member *member;
	struct capture *capture;
	CUresult result;

	graph_lock();
	member = stream ? stream->capture : NULL;
	capture = *mark ? capture_of_id((*mark)->capture) : NULL;
	if (member && !*mark) {
		/* Work from before the capture, or beside it. */
		member->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	} else if (*mark && !capture) {
		result = CUDA_ERROR_CAPTURED_EVENT;
	} else if (!capture) {
		result = CUDA_SUCCESS; /* the mark went in between */
	} else if (capture->invalid) {
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else if (handle == WIRE_STREAM_LEGACY) {
		/* It would have to be captured itself. */
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	} else if (member && member->capture != capture) {
		capture->invalid = member->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
	} else {
		if (!member)
			member = stream ? member_add(capture, stream) : NULL;
		result = member ? frontier_join(&member->at, &(*mark)->at) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	graph_unlock();
	return result;
}

/* ---- begin and end ---- */

static CUresult begin(struct call *call, CUstream named, CUgraph into, const CUgraphNode *needs,
		      const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode, bool given)
{
	struct capture *capture;
	struct capture_member *member = NULL;
	struct stream *stream;
	uint64_t handle;
	CUresult result = call_stream_named(call, named, &handle);

	if (result)
		return result;
	if (handle == WIRE_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (count && !needs))
		return CUDA_ERROR_INVALID_VALUE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph_lock();
	stream = stream_find(call, handle);
	capture->graph = given ? graph_find(into) : graph_new();
	if (!stream || stream->capture)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (!capture->graph)
		result = given ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
	if (!result) {
		capture->id = ++ids;
		capture->given = given;
		capture->mode = mode;
		capture->thread = call->thread->number;
		capture->origin = stream;
		member = member_add(capture, stream);
		result = member ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (size_t i = 0; i < count && !result; i++) {
		struct graph_node *node = graph_node_find(needs[i]);

		result = node && node->graph == capture->graph ?
				 frontier_add(&member->at, needs[i], data ? &data[i] : NULL) :
				 CUDA_ERROR_INVALID_VALUE;
	}
	if (result) {
		if (member) {
			stream->capture = NULL;
			frontier_free(&member->at);
			free(member);
		}
		if (capture->graph && !given)
			graph_free(capture->graph);
		free(capture);
	} else {
		capture->graph->capturing++;
		capture->next = captures;
		captures = capture;
		__atomic_store_n(&capture_gate, gate, __ATOMIC_RELEASE);
		/* Pairs with the acquire of whoever finds captures going. */
		__atomic_add_fetch(&captures_going, 1, __ATOMIC_RELEASE);
	}
	graph_unlock();
	return result;
}

CUresult do_cuStreamBeginCapture_v2(struct call *call, CUstream hStream, CUstreamCaptureMode mode)
{
	return begin(call, hStream, NULL, NULL, NULL, 0, mode, false);
}

CUresult do_cuStreamBeginCapture(struct call *call, CUstream hStream)
{
	return do_cuStreamBeginCapture_v2(call, hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult do_cuStreamBeginCaptureToGraph(struct call *call, CUstream hStream, CUgraph hGraph,
					const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
					size_t numDependencies, CUstreamCaptureMode mode)
{
	return begin(call, hStream, hGraph, dependencies, dependencyData, numDependencies, mode, true);
}

/* Is everything that other streams have captured before what the origin's next node would come behind? Lock held. */
static bool joined(const struct capture *capture)
{
	struct graph *graph = capture->graph;
	struct graph_node **walk = malloc((graph->node_count + 1u) * sizeof(struct graph_node *));
	const struct capture_member *origin = capture->origin->capture;
	uint32_t count = 0;
	bool all = true;

	if (!walk)
		return true; /* then the graph has loose ends, which are run all the same */
	for (uint32_t i = 0; i < graph->node_count; i++)
		graph->nodes[i]->mark = 0;
	for (size_t i = 0; i < origin->at.count; i++) {
		struct graph_node *node = graph_node_find(origin->at.nodes[i]);

		if (node && !node->mark) {
			node->mark = 1;
			walk[count++] = node;
		}
	}
	for (uint32_t at = 0; at < count; at++)
		for (uint32_t i = 0; i < walk[at]->need_count; i++) {
			struct graph_node *need = walk[at]->needs[i].node;

			if (!need->mark) {
				need->mark = 1;
				walk[count++] = need;
			}
		}
	free(walk);
	for (const struct capture_member *member = capture->members; member; member = member->next)
		for (size_t i = 0; i < member->at.count; i++) {
			const struct graph_node *node = graph_node_find(member->at.nodes[i]);

			all = all && (!node || node->mark);
		}
	return all;
}

CUresult do_cuStreamEndCapture(struct call *call, CUstream hStream, CUgraph *phGraph)
{
	struct capture *capture;
	struct stream *stream;
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!phGraph)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	stream = stream_find(call, handle);
	if (!stream || !stream->capture) {
		graph_unlock();
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	capture = stream->capture->capture;
	*phGraph = NULL;
	if (capture->origin != stream) {
		/* The capture goes on to be ended by its origin, but it is no good any more. */
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
		graph_unlock();
		return result;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != call->thread->number) {
		capture->invalid = true;
		graph_unlock();
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	}
	if (capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	else
		*phGraph = (CUgraph)(uintptr_t)capture->graph->handle;
	capture_free(capture, !result);
	graph_unlock();
	graph_memory_sweep(call);
	graph_objects_sweep();
	return result;
}

void capture_stream_gone(struct stream *stream)
{
	if (!capture_going())
		return;
	graph_lock();
	if (stream->capture)
		capture_free(stream->capture->capture, false);
	graph_unlock();
}

void capture_context_closed(struct context *context)
{
	struct capture *next;

	graph_lock();
	for (struct capture *capture = captures; capture; capture = next) {
		bool part = false;

		next = capture->next;
		for (struct capture_member *member = capture->members; member; member = member->next)
			part = part || member->stream->context == context;
		if (part)
			capture_free(capture, false);
	}
	graph_unlock();
}

/* ---- questions ---- */

static CUresult info(struct call *call, CUstream named, CUstreamCaptureStatus *status_out, cuuint64_t *id_out,
		     CUgraph *graph_out, const CUgraphNode **nodes_out, const CUgraphEdgeData **data_out, size_t *count_out,
		     bool lossy)
{
	struct capture_member *member;
	struct stream *stream;
	uint64_t handle;
	CUresult result = call_stream_named(call, named, &handle);

	if (result)
		return result;
	if (!status_out)
		return CUDA_ERROR_INVALID_VALUE;
	*status_out = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!capture_going())
		return CUDA_SUCCESS;
	graph_lock();
	stream = stream_find(call, handle);
	/* Who asks about the legacy stream while a blocking one is capturing is told that it can't be used. */
	if (handle == WIRE_STREAM_LEGACY)
		result = legacy_refuses(call->context);
	member = !result && stream ? stream->capture : NULL;
	if (member && member->capture->invalid) {
		*status_out = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	} else if (member) {
		*status_out = CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (id_out)
			*id_out = member->capture->id;
		if (graph_out)
			*graph_out = (CUgraph)(uintptr_t)member->capture->graph->handle;
		if (nodes_out)
			*nodes_out = member->at.nodes;
		if (data_out)
			*data_out = member->at.data;
		if (count_out)
			*count_out = member->at.count;
		for (size_t i = 0; lossy && nodes_out && i < member->at.count; i++)
			if (member->at.data[i].type || member->at.data[i].from_port || member->at.data[i].to_port)
				result = CUDA_ERROR_LOSSY_QUERY;
	}
	graph_unlock();
	return result;
}

CUresult do_cuStreamIsCapturing(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	return info(call, hStream, captureStatus, NULL, NULL, NULL, NULL, NULL, false);
}

/* What follows the status is written for capturing streams alone. */
CUresult do_cuStreamGetCaptureInfo(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				   cuuint64_t *id_out)
{
	return info(call, hStream, captureStatus_out, id_out, NULL, NULL, NULL, NULL, false);
}

CUresult do_cuStreamGetCaptureInfo_v2(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      size_t *numDependencies_out)
{
	return info(call, hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL, numDependencies_out, true);
}

CUresult do_cuStreamGetCaptureInfo_v3(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	return info(call, hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
		    numDependencies_out, !edgeData_out);
}

CUresult do_cuStreamUpdateCaptureDependencies_v2(struct call *call, CUstream hStream, CUgraphNode *dependencies,
						 const CUgraphEdgeData *dependencyData, size_t numDependencies,
						 unsigned int flags)
{
	struct frontier at = { .count = 0 };
	struct capture_member *member;
	struct stream *stream;
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies))
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	stream = stream_find(call, handle);
	member = stream ? stream->capture : NULL;
	if (!member)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (member->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
		result = frontier_join(&at, &member->at);
	for (size_t i = 0; i < numDependencies && !result; i++) {
		const struct graph_node *node = graph_node_find(dependencies[i]);

		result = node && node->graph == member->capture->graph ?
				 frontier_add(&at, dependencies[i], dependencyData ? &dependencyData[i] : NULL) :
				 CUDA_ERROR_INVALID_VALUE;
	}
	if (!result) {
		struct frontier old = member->at;

		member->at = at;
		at = old;
	}
	graph_unlock();
	frontier_free(&at);
	return result;
}

CUresult do_cuStreamUpdateCaptureDependencies(struct call *call, CUstream hStream, CUgraphNode *dependencies,
					      size_t numDependencies, unsigned int flags)
{
	return do_cuStreamUpdateCaptureDependencies_v2(call, hStream, dependencies, NULL, numDependencies, flags);
}
