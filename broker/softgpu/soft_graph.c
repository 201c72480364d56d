// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs: making, connecting, taking apart and asking. Any thread.
 */
#include "broker/softgpu/soft_graph.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;

void soft_graph_lock(void)
{
	pthread_mutex_lock(&graph_lock);
}

void soft_graph_unlock(void)
{
	pthread_mutex_unlock(&graph_lock);
}

static void graph_free(struct soft_object *object)
{
	struct soft_graph *graph = (struct soft_graph *)object;

	free(graph->nodes);
	free(graph->conditions);
	free(graph);
}

static void node_free(struct soft_object *object)
{
	struct soft_node *node = (struct soft_node *)object;

	soft_work_free(&node->work);
	free(node->needs);
	free(node);
}

CUresult soft_graph_new(struct soft_graph **graph_out)
{
	struct soft_graph *graph = calloc(1, sizeof(*graph));
	CUresult result;

	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&graph->object, SOFT_GRAPH, NULL, graph_free);
	result = soft_object_publish(&graph->object);
	if (result != CUDA_SUCCESS)
		soft_object_put(&graph->object);
	else
		*graph_out = graph;
	return result;
}

static void body_close(uint64_t handle)
{
	struct soft_object *body = soft_object_retire(handle, SOFT_GRAPH);

	if (body) {
		((struct soft_graph *)body)->owner = NULL;
		soft_graph_close((struct soft_graph *)body);
	}
}

void soft_bodies_close(const struct soft_work *work)
{
	if (work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		for (unsigned int i = 0; i < work->branch.count; i++)
			body_close((uint64_t)(uintptr_t)work->branch.handles[i]);
}

/* Takes the node's handle away and lets go of it; a child's graph and bodies go with it. */
static void node_close(struct soft_node *node)
{
	struct soft_object *object = soft_object_retire(atomic_load(&node->object.handle), SOFT_NODE);

	if (node->work.type == CU_GRAPH_NODE_TYPE_GRAPH && node->work.child)
		body_close(atomic_load(&node->work.child->object.handle));
	soft_bodies_close(&node->work);
	soft_object_put(object);
}

void soft_graph_close(struct soft_graph *graph)
{
	for (uint32_t i = 0; i < graph->node_count; i++) {
		graph->nodes[i]->graph = NULL;
		graph->nodes[i]->need_count = 0;
		node_close(graph->nodes[i]);
	}
	graph->node_count = 0;
	for (uint32_t i = 0; i < graph->condition_count; i++)
		soft_condition_drop(graph->conditions[i]);
	graph->condition_count = 0;
	soft_object_put(&graph->object);
}

CUresult soft_graph_find(CUgraph handle, struct soft_graph **graph_out)
{
	TRY(soft_ready());
	*graph_out = (struct soft_graph *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_GRAPH);
	return *graph_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult soft_node_find(CUgraphNode handle, struct soft_node **node_out)
{
	TRY(soft_ready());
	*node_out = (struct soft_node *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_NODE);
	return *node_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool node_needs(const struct soft_node *node, const struct soft_node *other)
{
	for (uint32_t i = 0; i < node->need_count; i++)
		if (node->needs[i] == other)
			return true;
	return false;
}

static CUresult need_add_locked(struct soft_node *node, struct soft_node *need)
{
	struct soft_node **grown;

	if (need == node || need->graph != node->graph || !node->graph || node_needs(node, need))
		return CUDA_ERROR_INVALID_VALUE;
	grown = realloc(node->needs, (node->need_count + 1u) * sizeof(*grown));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->needs = grown;
	node->needs[node->need_count++] = need;
	return CUDA_SUCCESS;
}

static void need_remove_locked(struct soft_node *node, const struct soft_node *need)
{
	for (uint32_t i = 0; i < node->need_count; i++) {
		if (node->needs[i] == need) {
			node->needs[i] = node->needs[--node->need_count];
			return;
		}
	}
}

static CUresult node_new_locked(struct soft_graph *graph, struct soft_work *work, struct soft_node **node_out)
{
	struct soft_node *node = calloc(1, sizeof(*node));
	CUresult result;

	if (!node) {
		soft_bodies_close(work);
		soft_work_free(work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	soft_object_init(&node->object, SOFT_NODE, NULL, node_free);
	node->work = *work;
	if (graph->node_count == graph->node_room) {
		uint32_t room = graph->node_room ? graph->node_room * 2 : 16;
		struct soft_node **grown = realloc(graph->nodes, room * sizeof(*grown));

		result = CUDA_ERROR_OUT_OF_MEMORY;
		if (!grown)
			goto put_node;
		graph->nodes = grown;
		graph->node_room = room;
	}
	result = soft_object_publish(&node->object);
	if (result != CUDA_SUCCESS)
		goto put_node;
	node->graph = graph;
	for (unsigned int i = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < work->branch.count; i++)
		work->branch.bodies[i]->owner = node;
	node->index = graph->node_count;
	graph->nodes[graph->node_count++] = node;
	*node_out = node;
	return CUDA_SUCCESS;
put_node:
	soft_bodies_close(work);
	soft_object_put(&node->object);
	return result;
}

/* Takes @node out of its graph; others no longer need it. */
static void node_remove_locked(struct soft_node *node)
{
	struct soft_graph *graph = node->graph;

	for (uint32_t i = 0; i < graph->node_count; i++)
		need_remove_locked(graph->nodes[i], node);
	memmove(graph->nodes + node->index, graph->nodes + node->index + 1,
		(graph->node_count - node->index - 1) * sizeof(struct soft_node *));
	graph->node_count--;
	for (uint32_t i = node->index; i < graph->node_count; i++)
		graph->nodes[i]->index = i;
	node->graph = NULL;
	node->need_count = 0;
}

CUresult soft_node_add(CUgraphNode *node_out, CUgraph graph_handle, const CUgraphNode *needs, size_t need_count,
		       struct soft_work *work)
{
	SOFT_HELD struct soft_graph *graph = NULL;
	struct soft_node *node;
	CUresult result = soft_graph_find(graph_handle, &graph);

	if (result == CUDA_SUCCESS && (!node_out || (need_count && !needs)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS) {
		soft_bodies_close(work);
		soft_work_free(work);
		return result;
	}
	soft_graph_lock();
	result = node_new_locked(graph, work, &node);
	for (size_t i = 0; result == CUDA_SUCCESS && i < need_count; i++) {
		SOFT_HELD struct soft_node *need = NULL;

		result = soft_node_find(needs[i], &need);
		if (result == CUDA_SUCCESS)
			result = need_add_locked(node, need);
		if (result != CUDA_SUCCESS) {
			node_remove_locked(node);
			node_close(node);
		}
	}
	if (result == CUDA_SUCCESS)
		*node_out = (CUgraphNode)(uintptr_t)atomic_load(&node->object.handle);
	soft_graph_unlock();
	return result;
}

unsigned int soft_graph_depth_locked(const struct soft_graph *graph)
{
	unsigned int depth = 0;

	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
			depth = MAX(depth, soft_graph_depth_locked(graph->nodes[i]->work.child));
	return depth + 1;
}

/* Children have none: they could not have become children. */
bool soft_graph_branches_locked(const struct soft_graph *graph)
{
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			return true;
	return false;
}

CUresult soft_graph_clone_locked(const struct soft_graph *graph, struct soft_graph **clone_out)
{
	struct soft_object *object;
	struct soft_graph *clone;
	CUresult result;

	if (soft_graph_branches_locked(graph))
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(soft_graph_new(&clone));
	for (uint32_t i = 0; i < graph->node_count; i++) {
		const struct soft_work *from = &graph->nodes[i]->work;
		struct soft_work work;
		struct soft_node *node;

		if (from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
			work = *from;
			result = soft_graph_clone_locked(from->child, &work.child);
			if (result != CUDA_SUCCESS)
				goto close_clone;
			work.child->owned = true;
			soft_object_get(&work.child->object);
		} else {
			result = soft_work_clone(from, &work);
			if (result != CUDA_SUCCESS)
				goto close_clone;
		}
		result = node_new_locked(clone, &work, &node);
		if (result != CUDA_SUCCESS)
			goto close_clone;
		node->origin = graph->nodes[i];
	}
	for (uint32_t i = 0; i < graph->node_count; i++) {
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++) {
			result = need_add_locked(clone->nodes[i], clone->nodes[graph->nodes[i]->needs[j]->index]);
			if (result != CUDA_SUCCESS)
				goto close_clone;
		}
	}
	*clone_out = clone;
	return CUDA_SUCCESS;
close_clone:
	object = soft_object_retire(atomic_load(&clone->object.handle), SOFT_GRAPH);
	soft_graph_close((struct soft_graph *)object);
	return result;
}

/* ---- entry points ---- */

SOFT_API(cuGraphCreate, CUgraph *graph_out, unsigned int flags)
{
	struct soft_graph *graph;

	TRY(soft_ready());
	if (!graph_out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_graph_new(&graph));
	*graph_out = (CUgraph)(uintptr_t)atomic_load(&graph->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphDestroy, CUgraph handle)
{
	struct soft_object *object = NULL;

	SOFT_GRAPH_ARG(graph, handle);
	soft_graph_lock();
	if (!graph->owned)
		object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_GRAPH);
	if (object)
		soft_graph_close((struct soft_graph *)object);
	soft_graph_unlock();
	return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuGraphClone, CUgraph *clone_out, CUgraph handle)
{
	struct soft_graph *clone;
	CUresult result;

	SOFT_GRAPH_ARG(graph, handle);
	if (!clone_out)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	result = soft_graph_clone_locked(graph, &clone);
	if (result == CUDA_SUCCESS)
		*clone_out = (CUgraph)(uintptr_t)atomic_load(&clone->object.handle);
	soft_graph_unlock();
	return result;
}

SOFT_API(cuGraphNodeFindInClone, CUgraphNode *node_out, CUgraphNode original, CUgraph clone_handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	SOFT_NODE_ARG(node, original);
	SOFT_GRAPH_ARG(clone, clone_handle);
	if (!node_out)
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	for (uint32_t i = 0; i < clone->node_count; i++) {
		if (clone->nodes[i]->origin == node) {
			*node_out = (CUgraphNode)(uintptr_t)atomic_load(&clone->nodes[i]->object.handle);
			result = CUDA_SUCCESS;
		}
	}
	soft_graph_unlock();
	return result;
}

SOFT_API(cuGraphDestroyNode, CUgraphNode handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	SOFT_NODE_ARG(node, handle);
	soft_graph_lock();
	if (node->graph) {
		node_remove_locked(node);
		node_close(node);
		result = CUDA_SUCCESS;
	}
	soft_graph_unlock();
	return result;
}

SOFT_API(cuGraphNodeGetType, CUgraphNode handle, int *type)
{
	SOFT_NODE_ARG(node, handle);
	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->work.type;
	return CUDA_SUCCESS;
}

/*
 * The form of all lists: @count says how many there are where @nodes is NULL; otherwise how many fit, places beyond
 * the end are filled with NULL, and the number written comes back.
 */
struct listing {
	CUgraphNode *nodes;
	size_t room;
	size_t count;
};

static void listing_add(struct listing *list, const struct soft_node *node)
{
	if (list->nodes && list->count < list->room)
		list->nodes[list->count] = (CUgraphNode)(uintptr_t)atomic_load(&node->object.handle);
	list->count++;
}

static void listing_end(struct listing *list, size_t *count)
{
	for (size_t i = list->count; list->nodes && i < list->room; i++)
		list->nodes[i] = NULL;
	*count = list->nodes ? MIN(list->count, list->room) : list->count;
}

SOFT_API(cuGraphGetNodes, CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	SOFT_GRAPH_ARG(graph, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing list = { .nodes = nodes, .room = *count };

	soft_graph_lock();
	for (uint32_t i = 0; i < graph->node_count; i++)
		listing_add(&list, graph->nodes[i]);
	soft_graph_unlock();
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphGetRootNodes, CUgraph handle, CUgraphNode *nodes, size_t *count)
{
	SOFT_GRAPH_ARG(graph, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing list = { .nodes = nodes, .room = *count };

	soft_graph_lock();
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (!graph->nodes[i]->need_count)
			listing_add(&list, graph->nodes[i]);
	soft_graph_unlock();
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphGetEdges_v2, CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	SOFT_GRAPH_ARG(graph, handle);
	if (!count || (!from) != (!to))
		return CUDA_ERROR_INVALID_VALUE;
	struct listing first = { .nodes = from, .room = *count }, second = { .nodes = to, .room = *count };

	soft_graph_lock();
	for (uint32_t i = 0; i < graph->node_count; i++) {
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++) {
			listing_add(&first, graph->nodes[i]->needs[j]);
			listing_add(&second, graph->nodes[i]);
		}
	}
	soft_graph_unlock();
	/* Every edge here is an ordinary one. */
	if (data && from)
		memset(data, 0, MIN(first.count, first.room) * sizeof(*data));
	listing_end(&second, count);
	listing_end(&first, count);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphGetEdges, CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

SOFT_API(cuGraphNodeGetDependencies_v2, CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	SOFT_NODE_ARG(node, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing list = { .nodes = nodes, .room = *count };

	soft_graph_lock();
	for (uint32_t i = 0; i < node->need_count; i++)
		listing_add(&list, node->needs[i]);
	soft_graph_unlock();
	if (data && nodes)
		memset(data, 0, MIN(list.count, list.room) * sizeof(*data));
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetDependencies, CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

SOFT_API(cuGraphNodeGetDependentNodes_v2, CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	SOFT_NODE_ARG(node, handle);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	struct listing list = { .nodes = nodes, .room = *count };

	soft_graph_lock();
	for (uint32_t i = 0; node->graph && i < node->graph->node_count; i++)
		if (node_needs(node->graph->nodes[i], node))
			listing_add(&list, node->graph->nodes[i]);
	soft_graph_unlock();
	if (data && nodes)
		memset(data, 0, MIN(list.count, list.room) * sizeof(*data));
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

SOFT_API(cuGraphNodeGetDependentNodes, CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

/* Ordinary edges only: ports and programmatic ones need a device that starts early. */
static CUresult edges_check(const CUgraphEdgeData *data, size_t count)
{
	for (size_t i = 0; data && i < count; i++)
		if (data[i].from_port || data[i].to_port || data[i].type)
			return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult edges_change(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count, bool add)
{
	CUresult result = CUDA_SUCCESS;
	size_t done = 0;

	SOFT_GRAPH_ARG(graph, handle);
	if (count && (!from || !to))
		return CUDA_ERROR_INVALID_VALUE;
	soft_graph_lock();
	for (; done < count && result == CUDA_SUCCESS; done++) {
		SOFT_HELD struct soft_node *first = NULL;
		SOFT_HELD struct soft_node *second = NULL;

		result = soft_node_find(from[done], &first);
		if (result == CUDA_SUCCESS)
			result = soft_node_find(to[done], &second);
		if (result != CUDA_SUCCESS)
			break;
		if (second->graph != graph || first->graph != graph || (!add && !node_needs(second, first)))
			result = CUDA_ERROR_INVALID_VALUE;
		else if (add)
			result = need_add_locked(second, first);
		else
			need_remove_locked(second, first);
		if (result != CUDA_SUCCESS)
			break;
	}
	soft_graph_unlock();
	return result;
}

SOFT_API(cuGraphAddDependencies_v2, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	 const CUgraphEdgeData *data, size_t count)
{
	TRY(edges_check(data, count));
	return edges_change(graph, from, to, count, true);
}

SOFT_API(cuGraphAddDependencies, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return edges_change(graph, from, to, count, true);
}

SOFT_API(cuGraphRemoveDependencies_v2, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	 const CUgraphEdgeData *data, size_t count)
{
	TRY(edges_check(data, count));
	return edges_change(graph, from, to, count, false);
}

SOFT_API(cuGraphRemoveDependencies, CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return edges_change(graph, from, to, count, false);
}
