/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs as a program builds them: nodes and what each depends on. One lock for all graphs: building is rare.
 */
#ifndef SOFT_GRAPH_H
#define SOFT_GRAPH_H

#include "broker/softgpu/soft_condition.h"
#include "broker/softgpu/soft_work.h"

/* A graph in a graph in a graph: deeper than anyone nests, shallow enough for the stack. */
#define SOFT_GRAPH_DEPTH_MAX 16
#define SOFT_BODIES_MAX 1024u /* of a switch */

struct soft_node {
	struct soft_object object;
	struct soft_graph *graph; /* NULL once it was taken out */
	struct soft_node *origin; /* in the graph this one was cloned from; compared only */
	struct soft_work work;
	uint32_t index; /* among the graph's nodes */
	uint32_t need_count;
	struct soft_node **needs; /* what must be through before; all of the same graph */
};

struct soft_graph {
	struct soft_object object;
	uint32_t node_count, node_room;
	struct soft_node **nodes;
	bool owned; /* a child's or a body's: the program can't destroy it */
	struct soft_node *owner; /* whose body it is; cleared with the node */
	uint32_t condition_count;
	struct soft_condition **conditions; /* made for it, held */
};

void soft_graph_lock(void);
void soft_graph_unlock(void);

CUresult soft_graph_new(struct soft_graph **graph_out);

/* Takes the graph out of the program's sight. Takes the table's reference. */
void soft_graph_close(struct soft_graph *graph);

/* An unconnected copy, with copies of child graphs; NOT_SUPPORTED with conditional nodes in it. The lock is held. */
CUresult soft_graph_clone_locked(const struct soft_graph *graph, struct soft_graph **clone_out);

/* Nesting from @graph on, itself included. The lock is held. */
unsigned int soft_graph_depth_locked(const struct soft_graph *graph);

/* Counted, or INVALID_VALUE, which is the driver's answer to a bad graph or node. */
CUresult soft_graph_find(CUgraph handle, struct soft_graph **graph_out);
CUresult soft_node_find(CUgraphNode handle, struct soft_node **node_out);

#define SOFT_GRAPH_ARG(name, handle)              \
	SOFT_HELD struct soft_graph *name = NULL; \
	TRY(soft_graph_find(handle, &name))

#define SOFT_NODE_ARG(name, handle)              \
	SOFT_HELD struct soft_node *name = NULL; \
	TRY(soft_node_find(handle, &name))

/* Does it have conditional nodes, in children too? The lock is held. */
bool soft_graph_branches_locked(const struct soft_graph *graph);

/* The bodies of a branch, if it is one, lose their handles. */
void soft_bodies_close(const struct soft_work *work);

/* Takes @work, also on failure. */
CUresult soft_node_add(CUgraphNode *node_out, CUgraph graph, const CUgraphNode *needs, size_t need_count,
		       struct soft_work *work);

#endif
