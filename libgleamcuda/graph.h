/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs, built here: nodes, edges and parameters are the library's alone. What is made of a graph (graph_exec.h) is told
 * to the worker. One lock for all graphs and captures: building is rare, and a program that builds from two threads at
 * once has to keep them apart anyway. The lock is never held over a message. Any thread.
 */
#ifndef GLEAM_GRAPH_H
#define GLEAM_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/launch.h"

struct call;
struct context;
struct function;
struct graph;
struct graph_memory;

/* A graph in a graph in a graph: deeper than anyone nests, shallow enough for the stack. */
#define GRAPH_DEPTH_MAX 16
#define GRAPH_BODIES_MAX 1024u /* of a switch: what a message holds */
#define GRAPH_NODES_MAX (1u << 20) /* of a graph that is made, children included: what the worker takes */

/* What a node does. */
struct graph_work {
	CUgraphNodeType type;
	struct context *context; /* kernel, copy, fill, words; NULL for others */
	union {
		struct {
			CUfunction given; /* as the program named it, or NULL where it gave a kernel */
			CUkernel kern;
			struct function *function;
			uint32_t grid[3];
			uint32_t block[3];
			uint32_t shared_size;
			uint8_t *params; /* owned: packed, then the pointers that are handed out */
			uint32_t params_size;
			void **pointers; /* NULL: given as a block */
			CUlaunchAttribute *attrs; /* owned */
			uint32_t attr_count;
		} kernel;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS fill;
		CUDA_HOST_NODE_PARAMS host;
		struct graph *child; /* owned: the node's own copy */
		uint64_t event;	     /* handle */
		struct {
			unsigned int count;
			unsigned int flags;
			CUstreamBatchMemOpParams *ops; /* owned */
		} words;
		struct {
			CUDA_MEM_ALLOC_NODE_PARAMS params; /* dptr filled in */
			struct graph_memory *memory;	   /* counted */
		} alloc;
		CUdeviceptr freed;
		struct {
			uint64_t condition; /* handle */
			CUgraphConditionalNodeType kind;
			uint32_t count;
			struct graph **bodies; /* owned list of owned graphs; NULL in a plan's step */
			CUgraph *handles;      /* owned: what the program is shown */
		} branch;
	};
};

struct graph_need {
	struct graph_node *node;
	CUgraphEdgeData data;
};

struct graph_node {
	uint64_t handle;
	struct graph *graph;
	uint64_t origin; /* handle of the node this one is a copy of; compared only */
	uint32_t index;	 /* among the graph's nodes */
	uint32_t mark;	 /* scratch of walks */
	uint32_t need_count;
	uint32_t need_room;
	struct graph_need *needs;
	struct graph_work work;
};

/* The value that conditional nodes look at: of the graph that it was made for, and ends with it. */
struct graph_condition {
	uint64_t handle;
	struct graph *graph;
	struct context *context;
	uint32_t value;
	uint32_t flags;
};

struct graph {
	uint64_t handle;
	struct graph_node *owner; /* whose child or body it is: the program can't destroy it */
	uint64_t origin;	  /* handle of the graph this is a copy of */
	uint32_t node_count;
	uint32_t node_room;
	struct graph_node **nodes;
	struct graph_hold *holds; /* user objects */
	uint32_t capturing;	  /* captures that add to it */
	uint32_t condition_count;
	struct graph_condition **conditions;
	uint64_t made; /* with conditional nodes: handle of what was made of it last; there may be one at a time */
};

void graph_lock(void);
void graph_unlock(void);

/* ---- graph.c: all with the lock held ---- */

struct graph *graph_find(CUgraph handle);
struct graph_node *graph_node_find(CUgraphNode handle);
struct graph *graph_new(void);
/* With all its nodes and user objects. */
void graph_free(struct graph *graph);
/* A copy with copies of children; not of one that graph_branches(). NULL: no memory. */
struct graph *graph_clone(const struct graph *graph);
unsigned int graph_depth(const struct graph *graph);
/* Takes @work, also on failure. Edge data may be NULL: ordinary edges. */
CUresult graph_node_add(struct graph *graph, const CUgraphNode *needs, const CUgraphEdgeData *data, size_t count,
			struct graph_work *work, struct graph_node **node_out);
/* Order in which each node comes after what it needs: @order has room for all. False: there is a cycle. */
bool graph_order(const struct graph *graph, uint32_t *order);

/* ---- graph_work.c ---- */

/* Each checks as the driver does when a node is made; the result owns what it holds. Without the lock. */
CUresult graph_work_kernel(struct call *call, const CUDA_KERNEL_NODE_PARAMS *params, struct graph_work *work_out);
CUresult graph_work_copy(struct call *call, const CUDA_MEMCPY3D *params, CUcontext context, struct graph_work *work_out);
CUresult graph_work_fill(struct call *call, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context,
			 struct graph_work *work_out);
CUresult graph_work_host(const CUDA_HOST_NODE_PARAMS *params, struct graph_work *work_out);
CUresult graph_work_event(struct call *call, CUgraphNodeType type, CUevent event, struct graph_work *work_out);
CUresult graph_work_words(struct call *call, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params, struct graph_work *work_out);
/* By the type that the parameters name (graph_node.c). */
CUresult graph_work_of(struct call *call, CUgraphNodeParams *params, struct graph_work *work_out);
/* A launch that is captured: checked already. */
CUresult graph_work_launch(const struct function *function, CUfunction given, const struct launch *launch,
			   const struct launch_params *params, struct graph_work *work_out);
/* A deep copy, but for the bodies of a conditional node; the copy of a child needs the lock. */
CUresult graph_work_clone(const struct graph_work *work, struct graph_work *clone_out);
/* A child goes too: the lock is held. */
void graph_work_free(struct graph_work *work);

/* A copy brought to addresses, as the memory lies now: rows of @width bytes, slices of @..._height rows. */
struct graph_box {
	uint64_t dst, dst_pitch, dst_height;
	uint64_t src, src_pitch, src_height;
	uint64_t width, rows, depth;
	enum place dst_place, src_place; /* an array's: the device's */
	/* a side in an array: its handle, and where in it; 0: in memory */
	struct graph_box_array {
		uint64_t handle;
		uint64_t x, y, z;
	} dst_array, src_array;
};
CUresult graph_box_of(const CUDA_MEMCPY3D *copy, struct graph_box *box_out);
/* From the first byte to the last one of a side, gaps included. */
uint64_t graph_box_span(const struct graph_box *box, bool dst);
/* The box of a linear copy or of rows, for what captures. */
CUDA_MEMCPY3D graph_box_params(const struct graph_box *box);

/* ---- graph_condition.c ---- */

/* Has it conditional nodes? Lock held. */
bool graph_branches(const struct graph *graph);
/* Is it the body of a conditional node? Lock held. */
bool graph_is_body(const struct graph *graph);
/* Ends those of @graph. Lock held. */
void graph_conditions_free(struct graph *graph);
/* With bodies that are empty, for a node of @hGraph. Without the lock. */
CUresult graph_work_branch(struct call *call, CUgraph hGraph, const CUDA_CONDITIONAL_NODE_PARAMS *params,
			   struct graph_work *work_out);
void graph_branch_free(struct graph_work *work);

/* ---- graph_memory.c ---- */

/*
 * Memory of allocation nodes: a fixed range, there as long as the graph or anything made of it. Between the launch of its
 * allocation and its free it belongs to the program.
 */
CUresult graph_memory_new(struct call *call, int device, uint64_t size, struct graph_memory **memory_out);
uint64_t graph_memory_address(const struct graph_memory *memory);
void graph_memory_get(struct graph_memory *memory);
/* Lock held; the memory goes back later, without it, by graph_memory_sweep(). */
void graph_memory_put(struct graph_memory *memory);
void graph_memory_sweep(struct call *call);
/* The allocation that begins at @address; NULL. Lock held. */
struct graph_memory *graph_memory_find(uint64_t address);
bool graph_memory_has(uint64_t address); /* takes the lock */
/* cuMemFree and cuMemFreeAsync: true if the address is one of a graph, and then the answer. Takes the lock. */
bool graph_memory_free(uint64_t address, CUresult *result_out);
/* A launch allocates, or frees. Lock held. */
bool graph_memory_is_live(const struct graph_memory *memory);
void graph_memory_set_live(struct graph_memory *memory, bool live);

/* ---- graph_object.c ---- */

/* User objects that @graph holds: let go, or held once more by @clone. Lock held; destructors run when it is free. */
void graph_holds_free(struct graph *graph);
CUresult graph_holds_clone(const struct graph *graph, struct graph *clone);
/* Destructors that have come due. Without the lock. */
void graph_objects_sweep(void);

#endif
