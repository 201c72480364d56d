// SPDX-License-Identifier: Apache-2.0
/*
 * Graphs and nodes as objects: birth, death, copies. Any thread; see graph.h for the lock.
 */
#include "libgleamcuda/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/handle.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void graph_lock(void)
{
	pthread_mutex_lock(&lock);
}

void graph_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

struct graph *graph_find(CUgraph handle)
{
	return handle_data(OBJECT_GRAPH, (uint64_t)(uintptr_t)handle);
}

struct graph_node *graph_node_find(CUgraphNode handle)
{
	return handle_data(OBJECT_GRAPHNODE, (uint64_t)(uintptr_t)handle);
}

/* ---- birth and death ---- */

struct graph *graph_new(void)
{
	struct graph *graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	/* Graphs belong to no context: they outlive those of their nodes. */
	graph->handle = handle_new(OBJECT_GRAPH, NULL, graph);
	if (!graph->handle) {
		free(graph);
		return NULL;
	}
	return graph;
}

static void node_free(struct graph_node *node)
{
	handle_end(node->handle);
	graph_work_free(&node->work);
	free(node->needs);
	free(node);
}

void graph_free(struct graph *graph)
{
	handle_end(graph->handle);
	for (uint32_t i = 0; i < graph->node_count; i++)
		node_free(graph->nodes[i]);
	graph_holds_free(graph);
	graph_conditions_free(graph);
	free(graph->nodes);
	free(graph);
}

static CUresult need_add(struct graph_node *node, struct graph_node *need, const CUgraphEdgeData *data)
{
	if (need == node || need->graph != node->graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (node->need_count == node->need_room) {
		uint32_t room = node->need_room ? node->need_room * 2 : 2;
		struct graph_need *needs = realloc(node->needs, room * sizeof(*needs));

		if (!needs)
			return CUDA_ERROR_OUT_OF_MEMORY;
		node->needs = needs;
		node->need_room = room;
	}
	node->needs[node->need_count].node = need;
	memset(&node->needs[node->need_count].data, 0, sizeof(node->needs[0].data));
	if (data)
		node->needs[node->need_count].data = *data;
	node->need_count++;
	return CUDA_SUCCESS;
}

static bool node_needs(const struct graph_node *node, const struct graph_node *need)
{
	for (uint32_t i = 0; i < node->need_count; i++)
		if (node->needs[i].node == need)
			return true;
	return false;
}

/* The last node of its graph. */
static void node_unlink_last(struct graph_node *node)
{
	node->graph->node_count--;
	node_free(node);
}

CUresult graph_node_add(struct graph *graph, const CUgraphNode *needs, const CUgraphEdgeData *data, size_t count,
			struct graph_work *work, struct graph_node **node_out)
{
	struct graph_node *node = calloc(1, sizeof(*node));
	CUresult result = CUDA_SUCCESS;

	if (!node || graph->node_count == GRAPH_NODES_MAX)
		goto no_memory;
	if (graph->node_count == graph->node_room) {
		uint32_t room = graph->node_room ? graph->node_room * 2 : 16;
		struct graph_node **nodes = realloc(graph->nodes, room * sizeof(struct graph_node *));

		if (!nodes)
			goto no_memory;
		graph->nodes = nodes;
		graph->node_room = room;
	}
	node->handle = handle_new(OBJECT_GRAPHNODE, NULL, node);
	if (!node->handle)
		goto no_memory;
	node->graph = graph;
	node->work = *work;
	node->index = graph->node_count;
	graph->nodes[graph->node_count++] = node;
	if (work->type == CU_GRAPH_NODE_TYPE_GRAPH)
		work->child->owner = node;
	for (uint32_t i = 0; work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < work->branch.count; i++)
		work->branch.bodies[i]->owner = node;
	for (size_t i = 0; i < count && !result; i++) {
		struct graph_node *need = graph_node_find(needs[i]);

		result = need && !node_needs(node, need) ? need_add(node, need, data ? &data[i] : NULL) :
							   CUDA_ERROR_INVALID_VALUE;
	}
	if (result) {
		node_unlink_last(node);
		return result;
	}
	*node_out = node;
	return CUDA_SUCCESS;

no_memory:
	free(node);
	graph_work_free(work);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

struct graph *graph_clone(const struct graph *graph)
{
	struct graph *clone = graph_new();

	if (!clone)
		return NULL;
	clone->origin = graph->handle;
	for (uint32_t i = 0; i < graph->node_count; i++) {
		struct graph_work work;
		struct graph_node *node;

		if (graph_work_clone(&graph->nodes[i]->work, &work) ||
		    graph_node_add(clone, NULL, NULL, 0, &work, &node))
			goto free_clone;
		node->origin = graph->nodes[i]->handle;
	}
	for (uint32_t i = 0; i < graph->node_count; i++)
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++) {
			const struct graph_need *need = &graph->nodes[i]->needs[j];

			if (need_add(clone->nodes[i], clone->nodes[need->node->index], &need->data))
				goto free_clone;
		}
	if (graph_holds_clone(graph, clone))
		goto free_clone;
	return clone;

free_clone:
	graph_free(clone);
	return NULL;
}

unsigned int graph_depth(const struct graph *graph)
{
	unsigned int depth = 0;

	/* Bodies are looked at where they are made: a graph with conditional nodes goes into no other. */
	for (uint32_t i = 0; i < graph->node_count; i++)
		if (graph->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			unsigned int below = graph_depth(graph->nodes[i]->work.child);

			depth = below > depth ? below : depth;
		}
	return depth + 1;
}

bool graph_order(const struct graph *graph, uint32_t *order)
{
	uint32_t count = graph->node_count, edges = 0, done = 0;
	uint32_t *starts = calloc(count + 2u, sizeof(*starts));
	uint32_t *dependents = NULL;

	for (uint32_t i = 0; i < count; i++) {
		graph->nodes[i]->mark = graph->nodes[i]->need_count;
		edges += graph->nodes[i]->need_count;
	}
	dependents = malloc((edges + 1u) * sizeof(*dependents));
	if (!starts || !dependents)
		goto free_lists;
	/* Edges sorted by where they come from: counted, summed, filled in. */
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++)
			starts[graph->nodes[i]->needs[j].node->index + 2]++;
	for (uint32_t i = 2; i < count + 2; i++)
		starts[i] += starts[i - 1];
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t j = 0; j < graph->nodes[i]->need_count; j++)
			dependents[starts[graph->nodes[i]->needs[j].node->index + 1]++] = i;
	for (uint32_t i = 0; i < count; i++)
		if (!graph->nodes[i]->mark)
			order[done++] = i;
	for (uint32_t at = 0; at < done; at++)
		for (uint32_t i = starts[order[at]]; i < starts[order[at] + 1]; i++)
			if (--graph->nodes[dependents[i]]->mark == 0)
				order[done++] = dependents[i];
free_lists:
	free(starts);
	free(dependents);
	return done == count;
}

/* ---- the program's calls ---- */

CUresult do_cuGraphCreate(struct call *call, CUgraph *phGraph, unsigned int flags)
{
	struct graph *graph;

	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	graph = graph_new();
	if (graph)
		*phGraph = (CUgraph)(uintptr_t)graph->handle;
	graph_unlock();
	return graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult do_cuGraphDestroy(struct call *call, CUgraph hGraph)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct graph *graph;

	graph_lock();
	graph = graph_find(hGraph);
	/* One that a capture still adds to goes with that capture. */
	if (graph && !graph->owner && !graph->capturing) {
		graph_free(graph);
		result = CUDA_SUCCESS;
	}
	graph_unlock();
	graph_memory_sweep(call);
	graph_objects_sweep();
	return result;
}

CUresult do_cuGraphClone(struct call *call, CUgraph *phGraphClone, CUgraph originalGraph)
{
	struct graph *graph, *clone = NULL;
	bool branches;

	if (!phGraphClone)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	graph = graph_find(originalGraph);
	branches = graph && graph_branches(graph);
	if (graph && !branches)
		clone = graph_clone(graph);
	if (clone)
		*phGraphClone = (CUgraph)(uintptr_t)clone->handle;
	graph_unlock();
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	if (branches)
		return CUDA_ERROR_NOT_SUPPORTED;
	return clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult do_cuGraphNodeFindInClone(struct call *call, CUgraphNode *phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	const struct graph_node *node;
	const struct graph *clone;

	if (!phNode)
		return result;
	graph_lock();
	node = graph_node_find(hOriginalNode);
	clone = graph_find(hClonedGraph);
	for (uint32_t i = 0; node && clone && i < clone->node_count; i++)
		if (clone->nodes[i]->origin == node->handle) {
			*phNode = (CUgraphNode)(uintptr_t)clone->nodes[i]->handle;
			result = CUDA_SUCCESS;
			break;
		}
	graph_unlock();
	return result;
}

static void need_remove_at(struct graph_node *node, uint32_t at)
{
	/* In order: the order of edges tells shapes apart when a made graph is updated. */
	memmove(&node->needs[at], &node->needs[at + 1], (node->need_count - at - 1) * sizeof(node->needs[0]));
	node->need_count--;
}

CUresult do_cuGraphDestroyNode(struct call *call, CUgraphNode hNode)
{
	struct graph_node *node;
	struct graph *graph;

	graph_lock();
	node = graph_node_find(hNode);
	if (!node || node->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
		/* As natively: what allocates and frees can't be taken out. */
		CUresult result = node ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;

		graph_unlock();
		return result;
	}
	graph = node->graph;
	for (uint32_t i = 0; i < graph->node_count; i++)
		for (uint32_t j = graph->nodes[i]->need_count; j-- > 0;)
			if (graph->nodes[i]->needs[j].node == node)
				need_remove_at(graph->nodes[i], j);
	memmove(&graph->nodes[node->index], &graph->nodes[node->index + 1],
		(graph->node_count - node->index - 1) * sizeof(struct graph_node *));
	graph->node_count--;
	for (uint32_t i = node->index; i < graph->node_count; i++)
		graph->nodes[i]->index = i;
	node_free(node);
	graph_unlock();
	graph_memory_sweep(call);
	graph_objects_sweep();
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetType(struct call *call, CUgraphNode hNode, CUgraphNodeType *type)
{
	const struct graph_node *node;

	if (!type)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	node = graph_node_find(hNode);
	if (node)
		*type = node->work.type;
	graph_unlock();
	return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- edges ---- */

/*
 * The form of all lists: @count says how many there are where @nodes is NULL; otherwise how many fit, places beyond the
 * end are filled with NULL, and the number written comes back.
 */
struct listing {
	CUgraphNode *nodes;
	size_t room;
	size_t count;
};

static void listing_add(struct listing *list, const struct graph_node *node)
{
	if (list->nodes && list->count < list->room)
		list->nodes[list->count] = (CUgraphNode)(uintptr_t)node->handle;
	list->count++;
}

static void listing_end(struct listing *list, size_t *count)
{
	for (size_t i = list->count; list->nodes && i < list->room; i++)
		list->nodes[i] = NULL;
	*count = list->nodes && list->room < list->count ? list->room : list->count;
}

static CUresult nodes_list(CUgraph hGraph, CUgraphNode *nodes, size_t *count, bool roots)
{
	struct listing list = { .nodes = nodes, .room = count ? *count : 0 };
	const struct graph *graph;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	graph = graph_find(hGraph);
	for (uint32_t i = 0; graph && i < graph->node_count; i++)
		if (!roots || !graph->nodes[i]->need_count)
			listing_add(&list, graph->nodes[i]);
	graph_unlock();
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetNodes(struct call *call, CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
	return nodes_list(hGraph, nodes, numNodes, false);
}

CUresult do_cuGraphGetRootNodes(struct call *call, CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
	return nodes_list(hGraph, rootNodes, numRootNodes, true);
}

static bool data_is_plain(const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData plain;

	return !memcmp(data, &plain, sizeof(plain));
}

/* Where the caller has no place for edge data, an edge that has some is lost to it: the driver's own code for that. */
static CUresult data_list(CUgraphEdgeData *data_out, size_t at, size_t room, const CUgraphEdgeData *data, bool wanted)
{
	if (data_out && at < room)
		data_out[at] = *data;
	return wanted && !data_out && !data_is_plain(data) ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

static CUresult edges_list(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData, size_t *count)
{
	struct listing first = { .nodes = from, .room = count ? *count : 0 };
	struct listing second = { .nodes = to, .room = count ? *count : 0 };
	CUresult result = CUDA_SUCCESS;
	const struct graph *graph;

	if (!count || !from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	graph = graph_find(hGraph);
	if (!graph)
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; !result && i < graph->node_count; i++)
		for (uint32_t j = 0; !result && j < graph->nodes[i]->need_count; j++) {
			const struct graph_need *need = &graph->nodes[i]->needs[j];

			result = data_list(edgeData, first.count, first.room, &need->data, from != NULL);
			listing_add(&first, need->node);
			listing_add(&second, graph->nodes[i]);
		}
	graph_unlock();
	if (result)
		return result;
	listing_end(&second, count);
	listing_end(&first, count);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphGetEdges(struct call *call, CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
	return edges_list(hGraph, from, to, NULL, numEdges);
}

CUresult do_cuGraphGetEdges_v2(struct call *call, CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
			       CUgraphEdgeData *edgeData, size_t *numEdges)
{
	return edges_list(hGraph, from, to, edgeData, numEdges);
}

static CUresult neighbours_list(CUgraphNode hNode, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count, bool after)
{
	struct listing list = { .nodes = nodes, .room = count ? *count : 0 };
	CUresult result = CUDA_SUCCESS;
	const struct graph_node *node;

	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	node = graph_node_find(hNode);
	if (!node)
		result = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; !result && !after && i < node->need_count; i++) {
		result = data_list(data, list.count, list.room, &node->needs[i].data, nodes != NULL);
		listing_add(&list, node->needs[i].node);
	}
	for (uint32_t i = 0; !result && after && i < node->graph->node_count; i++) {
		const struct graph_node *other = node->graph->nodes[i];

		for (uint32_t j = 0; !result && j < other->need_count; j++)
			if (other->needs[j].node == node) {
				result = data_list(data, list.count, list.room, &other->needs[j].data, nodes != NULL);
				listing_add(&list, other);
			}
	}
	graph_unlock();
	if (result)
		return result;
	listing_end(&list, count);
	return CUDA_SUCCESS;
}

CUresult do_cuGraphNodeGetDependencies(struct call *call, CUgraphNode hNode, CUgraphNode *dependencies,
				       size_t *numDependencies)
{
	return neighbours_list(hNode, dependencies, NULL, numDependencies, false);
}

CUresult do_cuGraphNodeGetDependencies_v2(struct call *call, CUgraphNode hNode, CUgraphNode *dependencies,
					  CUgraphEdgeData *edgeData, size_t *numDependencies)
{
	return neighbours_list(hNode, dependencies, edgeData, numDependencies, false);
}

CUresult do_cuGraphNodeGetDependentNodes(struct call *call, CUgraphNode hNode, CUgraphNode *dependentNodes,
					 size_t *numDependentNodes)
{
	return neighbours_list(hNode, dependentNodes, NULL, numDependentNodes, true);
}

CUresult do_cuGraphNodeGetDependentNodes_v2(struct call *call, CUgraphNode hNode, CUgraphNode *dependentNodes,
					    CUgraphEdgeData *edgeData, size_t *numDependentNodes)
{
	return neighbours_list(hNode, dependentNodes, edgeData, numDependentNodes, true);
}

static bool data_same(const CUgraphEdgeData *a, const CUgraphEdgeData *b)
{
	return b ? !memcmp(a, b, sizeof(*a)) : data_is_plain(a);
}

/* All or nothing as far as the arguments decide; what was added before a failure is taken back. */
static CUresult edges_change(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
			     size_t count, bool add)
{
	CUresult result = CUDA_SUCCESS;
	struct graph *graph;
	size_t done = 0;

	if (count && (!from || !to))
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	graph = graph_find(hGraph);
	if (!graph)
		result = CUDA_ERROR_INVALID_VALUE;
	for (; !result && done < count; done++) {
		struct graph_node *first = graph_node_find(from[done]), *second = graph_node_find(to[done]);
		const CUgraphEdgeData *edge = data ? &data[done] : NULL;

		if (!first || !second || first->graph != graph || second->graph != graph ||
		    add == node_needs(second, first)) {
			result = CUDA_ERROR_INVALID_VALUE;
			break;
		}
		if (add) {
			result = need_add(second, first, edge);
			if (result)
				break;
			continue;
		}
		for (uint32_t j = 0; j < second->need_count; j++)
			if (second->needs[j].node == first) {
				if (!data_same(&second->needs[j].data, edge))
					result = CUDA_ERROR_INVALID_VALUE;
				else
					need_remove_at(second, j);
				break;
			}
	}
	while (result && add && done-- > 0)
		graph_node_find(to[done])->need_count--;
	graph_unlock();
	return result;
}

CUresult do_cuGraphAddDependencies(struct call *call, CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				   size_t numDependencies)
{
	return edges_change(hGraph, from, to, NULL, numDependencies, true);
}

CUresult do_cuGraphAddDependencies_v2(struct call *call, CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return edges_change(hGraph, from, to, edgeData, numDependencies, true);
}

CUresult do_cuGraphRemoveDependencies(struct call *call, CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
				      size_t numDependencies)
{
	return edges_change(hGraph, from, to, NULL, numDependencies, false);
}

CUresult do_cuGraphRemoveDependencies_v2(struct call *call, CUgraph hGraph, const CUgraphNode *from,
					 const CUgraphNode *to, const CUgraphEdgeData *edgeData, size_t numDependencies)
{
	return edges_change(hGraph, from, to, edgeData, numDependencies, false);
}
