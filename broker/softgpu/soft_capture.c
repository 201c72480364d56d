// SPDX-License-Identifier: Apache-2.0
/*
 * Stream capture; see soft_capture.h. Any thread; one lock for all captures, taken before that of graphs.
 */
#include "broker/softgpu/soft_capture.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_event.h"
#include "broker/softgpu/soft_graph.h"
#include "gen/softgpu/soft_api.h"

#define MODES 3

struct frontier {
	CUgraphNode *nodes;
	size_t count;
};

struct soft_member {
	struct soft_member *next;
	struct soft_capture *capture;
	struct soft_stream *stream; /* counted */
	struct frontier at;
};

struct soft_capture {
	struct soft_capture *next;
	uint64_t id;
	struct soft_graph *graph; /* counted */
	bool given;		  /* the graph was the program's before */
	bool invalid;
	struct soft_stream *origin;
	struct soft_member *members;
};

struct soft_mark {
	uint64_t capture;
	struct frontier at;
};

/* guarded by capture_lock */
static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_capture *captures;
static uint64_t capture_ids;

static CUresult frontier_add(struct frontier *at, CUgraphNode node)
{
	CUgraphNode *nodes;

	for (size_t i = 0; i < at->count; i++)
		if (at->nodes[i] == node)
			return CUDA_SUCCESS;
	nodes = realloc(at->nodes, (at->count + 1) * sizeof(CUgraphNode));
	if (!nodes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at->nodes = nodes;
	nodes[at->count++] = node;
	return CUDA_SUCCESS;
}

static CUresult frontier_join(struct frontier *at, const struct frontier *from)
{
	for (size_t i = 0; i < from->count; i++)
		TRY(frontier_add(at, from->nodes[i]));
	return CUDA_SUCCESS;
}

static struct soft_member *member_add(struct soft_capture *capture, struct soft_stream *stream)
{
	struct soft_member *member = calloc(1, sizeof(*member));

	if (!member)
		return NULL;
	member->capture = capture;
	member->stream = (struct soft_stream *)soft_object_get(&stream->object);
	member->next = capture->members;
	capture->members = member;
	stream->member = member;
	atomic_store_explicit(&stream->capturing, true, memory_order_release);
	return member;
}

static void capture_free(struct soft_capture *capture, bool keep_graph)
{
	struct soft_capture **link = &captures;

	while (*link && *link != capture)
		link = &(*link)->next;
	if (*link)
		*link = capture->next;
	while (capture->members) {
		struct soft_member *member = capture->members;

		capture->members = member->next;
		member->stream->member = NULL;
		atomic_store_explicit(&member->stream->capturing, false, memory_order_release);
		free(member->at.nodes);
		soft_object_put(&member->stream->object);
		free(member);
	}
	if (capture->graph) {
		if (!keep_graph && !capture->given)
			cuGraphDestroy((CUgraph)(uintptr_t)atomic_load(&capture->graph->object.handle));
		soft_object_put(&capture->graph->object);
	}
	free(capture);
}

static struct soft_capture *capture_of(uint64_t id)
{
	struct soft_capture *capture = captures;

	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

CUresult soft_capture_add(struct soft_stream *stream, struct soft_work *work)
{
	struct soft_member *member;
	CUgraphNode node;
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

	pthread_mutex_lock(&capture_lock);
	member = stream->member;
	if (!member || member->capture->invalid) {
		soft_work_free(work);
	} else {
		result = soft_node_add(&node, (CUgraph)(uintptr_t)atomic_load(&member->capture->graph->object.handle), member->at.nodes,
				       member->at.count, work);
		if (result == CUDA_SUCCESS) {
			member->at.count = 0;
			result = frontier_add(&member->at, node);
		}
		if (result != CUDA_SUCCESS)
			member->capture->invalid = true;
	}
	pthread_mutex_unlock(&capture_lock);
	return result;
}

CUresult soft_capture_refuse(struct soft_stream *stream)
{
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

	pthread_mutex_lock(&capture_lock);
	if (stream->member && stream->member->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (stream->member)
		stream->member->capture->invalid = true;
	pthread_mutex_unlock(&capture_lock);
	return result;
}

/* ---- events ---- */

static void mark_free(struct soft_mark *mark)
{
	if (mark)
		free(mark->at.nodes);
	free(mark);
}

void soft_capture_forget(struct soft_event *event)
{
	struct soft_mark *mark;

	if (!atomic_load_explicit(&event->captured, memory_order_acquire))
		return;
	pthread_mutex_lock(&capture_lock);
	mark = event->mark;
	event->mark = NULL;
	atomic_store_explicit(&event->captured, false, memory_order_release);
	pthread_mutex_unlock(&capture_lock);
	mark_free(mark);
}

CUresult soft_capture_record(struct soft_stream *stream, struct soft_event *event)
{
	struct soft_mark *mark = calloc(1, sizeof(*mark));
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

	if (!mark)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&capture_lock);
	if (stream->member && !stream->member->capture->invalid) {
		mark->capture = stream->member->capture->id;
		result = frontier_join(&mark->at, &stream->member->at);
	}
	if (result == CUDA_SUCCESS) {
		struct soft_mark *old = event->mark;

		event->mark = mark;
		atomic_store_explicit(&event->captured, true, memory_order_release);
		mark = old;
	}
	pthread_mutex_unlock(&capture_lock);
	mark_free(mark);
	return result;
}

CUresult soft_capture_wait(struct soft_stream *stream, struct soft_event *event, bool *captured_out)
{
	struct soft_member *member;
	struct soft_capture *capture;
	CUresult result;

	*captured_out = soft_capturing(stream) || atomic_load_explicit(&event->captured, memory_order_acquire);
	if (!*captured_out)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&capture_lock);
	member = stream->member;
	capture = event->mark ? capture_of(event->mark->capture) : NULL;
	if (member && !event->mark) {
		member->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	} else if (event->mark && !capture) {
		result = CUDA_ERROR_CAPTURED_EVENT;
	} else if (!capture) {
		*captured_out = false; /* both have gone meanwhile */
		result = CUDA_SUCCESS;
	} else if (capture->invalid) {
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else if (stream->kind == SOFT_STREAM_LEGACY) {
		capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	} else if (member && member->capture != capture) {
		capture->invalid = member->capture->invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
	} else {
		if (!member)
			member = member_add(capture, stream);
		result = member ? frontier_join(&member->at, &event->mark->at) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&capture_lock);
	return result;
}

void soft_capture_gone(struct soft_stream *stream)
{
	if (!soft_capturing(stream))
		return;
	pthread_mutex_lock(&capture_lock);
	if (stream->member)
		capture_free(stream->member->capture, false);
	pthread_mutex_unlock(&capture_lock);
}

/* ---- begin and end ---- */

static CUresult begin(CUstream handle, CUgraph into, const CUgraphNode *needs, size_t count, int mode, bool given)
{
	struct soft_capture *capture;
	struct soft_member *member;
	CUresult result;

	SOFT_STREAM_ARG(stream, handle);
	if (stream->kind == SOFT_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (mode < 0 || mode >= MODES || (count && !needs))
		return CUDA_ERROR_INVALID_VALUE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	capture->given = given;
	capture->origin = stream;
	pthread_mutex_lock(&capture_lock);
	if (stream->member) {
		result = CUDA_ERROR_ILLEGAL_STATE;
	} else if (given) {
		result = soft_graph_find(into, &capture->graph);
	} else {
		result = soft_graph_new(&capture->graph);
		if (result == CUDA_SUCCESS)
			soft_object_get(&capture->graph->object);
	}
	member = result == CUDA_SUCCESS ? member_add(capture, stream) : NULL;
	if (result == CUDA_SUCCESS && !member)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		SOFT_HELD struct soft_node *node = NULL;

		result = soft_node_find(needs[i], &node);
		if (result == CUDA_SUCCESS && node->graph != capture->graph)
			result = CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS)
			result = frontier_add(&member->at, needs[i]);
	}
	if (result != CUDA_SUCCESS) {
		capture_free(capture, false);
	} else {
		capture->id = ++capture_ids;
		capture->next = captures;
		captures = capture;
	}
	pthread_mutex_unlock(&capture_lock);
	return result;
}

SOFT_API(cuStreamBeginCapture_v2, CUstream stream, int mode)
{
	return begin(stream, NULL, NULL, 0, mode, false);
}

SOFT_API(cuStreamBeginCapture, CUstream stream)
{
	return begin(stream, NULL, NULL, 0, 0, false);
}

SOFT_API(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *data,
	 size_t count, int mode)
{
	for (size_t i = 0; data && i < count; i++)
		if (data[i].from_port || data[i].to_port || data[i].type)
			return CUDA_ERROR_NOT_SUPPORTED;
	return begin(stream, graph, needs, count, mode, true);
}

/* Marks what @node comes behind. @seen has a place for each node of its graph. The graph lock is held. */
static void behind(const struct soft_node *node, bool *seen)
{
	if (seen[node->index])
		return;
	seen[node->index] = true;
	for (uint32_t i = 0; i < node->need_count; i++)
		behind(node->needs[i], seen);
}

/* Is all that other streams have captured before the origin's next node? */
static bool joined(const struct soft_capture *capture)
{
	bool *seen = calloc(capture->graph->node_count + 1u, sizeof(*seen));
	bool all = true;

	if (!seen)
		return true;
	soft_graph_lock();
	for (int turn = 0; turn < 2; turn++) {
		for (const struct soft_member *member = capture->members; member; member = member->next) {
			if (!turn && member->stream != capture->origin)
				continue;
			for (size_t i = 0; i < member->at.count; i++) {
				SOFT_HELD struct soft_node *node = NULL;

				if (soft_node_find(member->at.nodes[i], &node) != CUDA_SUCCESS || node->graph != capture->graph)
					continue;
				if (!turn)
					behind(node, seen);
				else
					all = all && seen[node->index];
			}
		}
	}
	soft_graph_unlock();
	free(seen);
	return all;
}

SOFT_API(cuStreamEndCapture, CUstream handle, CUgraph *graph)
{
	struct soft_capture *capture;
	CUresult result = CUDA_SUCCESS;

	SOFT_STREAM_ARG(stream, handle);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&capture_lock);
	if (!stream->member) {
		pthread_mutex_unlock(&capture_lock);
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	capture = stream->member->capture;
	*graph = NULL;
	if (capture->origin != stream) {
		capture->invalid = true;
		pthread_mutex_unlock(&capture_lock);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	else
		*graph = (CUgraph)(uintptr_t)atomic_load(&capture->graph->object.handle);
	capture_free(capture, result == CUDA_SUCCESS);
	pthread_mutex_unlock(&capture_lock);
	return result;
}

/* ---- questions ---- */

static CUresult info(CUstream handle, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!soft_capturing(stream))
		return CUDA_SUCCESS;
	pthread_mutex_lock(&capture_lock);
	if (stream->member && stream->member->capture->invalid) {
		*status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	} else if (stream->member) {
		*status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (id)
			*id = stream->member->capture->id;
		if (graph)
			*graph = (CUgraph)(uintptr_t)atomic_load(&stream->member->capture->graph->object.handle);
		if (nodes)
			*nodes = stream->member->at.nodes;
		if (count)
			*count = stream->member->at.count;
	}
	pthread_mutex_unlock(&capture_lock);
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamIsCapturing, CUstream stream, int *status)
{
	return info(stream, status, NULL, NULL, NULL, NULL);
}

SOFT_API(cuStreamGetCaptureInfo, CUstream stream, int *status, uint64_t *id)
{
	return info(stream, status, id, NULL, NULL, NULL);
}

SOFT_API(cuStreamGetCaptureInfo_v2, CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
	 size_t *count)
{
	return info(stream, status, id, graph, nodes, count);
}

SOFT_API(cuStreamUpdateCaptureDependencies, CUstream handle, CUgraphNode *nodes, size_t count, unsigned int flags)
{
	struct frontier at = { .count = 0 };
	CUresult result = CUDA_SUCCESS;

	SOFT_STREAM_ARG(stream, handle);
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !nodes))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&capture_lock);
	if (!stream->member)
		result = CUDA_ERROR_ILLEGAL_STATE;
	else if (stream->member->capture->invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES)
		result = frontier_join(&at, &stream->member->at);
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
		SOFT_HELD struct soft_node *node = NULL;

		result = soft_node_find(nodes[i], &node);
		if (result == CUDA_SUCCESS && node->graph != stream->member->capture->graph)
			result = CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS)
			result = frontier_add(&at, nodes[i]);
	}
	if (result == CUDA_SUCCESS) {
		struct frontier old = stream->member->at;

		stream->member->at = at;
		at = old;
	}
	pthread_mutex_unlock(&capture_lock);
	free(at.nodes);
	return result;
}
