/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs made to be launched. A plan is a graph flattened into steps, cut into parts:
 *
 *	uploads -> part 0 -> downloads, records, waits -> [stop: host functions, uploads] -> part 1 -> ...
 *
 * Parts are graphs of the driver's at the worker, with device work alone; nearly every plan has one part and nothing else,
 * and its launch is one message. Host memory of copies is staged in device memory that the plan owns: uploads are ordinary
 * copies into the staging that are sent before a part (from host memory as it is then), downloads ordinary late copies out
 * of it behind the part. So nothing at the worker, and no rule about when host bytes are read or have arrived, is new.
 *
 * What a cut serialises: a step behind a host function, a wait node or an upload that reads what a download of the same
 * graph has brought comes after the whole part before it, not only after what it needs. Records of a part are told at its
 * end. Any thread.
 */
#ifndef GLEAM_GRAPH_EXEC_H
#define GLEAM_GRAPH_EXEC_H

#include "libgleamcuda/graph.h"

#define NO_PLACE UINT32_MAX

struct graph_step {
	uint64_t origin; /* handle of the node of the graph that was made */
	struct graph_work work;
	uint32_t need_count;
	uint32_t *needs;       /* earlier steps */
	CUgraphEdgeData *data; /* NULL: ordinary edges */
	uint32_t phase;
	uint32_t place; /* in its part; NO_PLACE: the host's */
	bool enabled;
	/* copies */
	struct graph_box box;
	uint64_t staging; /* device address; 0: no host side */
	uint64_t staging_size;
	void *staging_owner;
	bool mapped; /* in a body: what is page-locked is reached where it lies */
	/* conditional nodes: a plan and a handle at the worker for each body, owned */
	struct graph_plan **bodies;
	uint64_t *wires;
};

/* A condition as it was when the plan was made. */
struct graph_plan_condition {
	uint64_t handle;
	struct context *context;
	uint32_t value;
	uint32_t flags;
	uint32_t phase; /* of all that uses it */
	bool used;
	bool looked_at; /* by a conditional node */
};

struct graph_part {
	uint64_t wire; /* handle at the worker; 0: nothing for the device in it */
	uint32_t count; /* steps */
	bool stops; /* behind it the host has something to do before the next part */
};

struct graph_plan {
	uint32_t refs; /* atomic: the exec's, and of launches that the host still works for */
	struct context *context;
	uint32_t step_count;
	struct graph_step *steps;
	uint32_t part_count;
	struct graph_part *parts;
	bool plain; /* one part, and nothing for the host to do */
	bool stages; /* some host memory */
	bool allocates; /* has steps that allocate or free */
	/* bodies: the plan that they are in, and the context that their kernels have to be of */
	struct graph_plan *parent;
	struct context *body_context;
	uint32_t condition_count;
	struct graph_plan_condition *conditions;
};

struct graph_exec {
	uint64_t handle;
	struct context *context;
	uint64_t flags;
	struct graph_plan *plan;
	struct graph *holder; /* without nodes: it keeps the graph's user objects */
	/* plans with staging: launches on different streams follow each other, as the driver has it for one graph */
	CUevent done;
	uint64_t last_stream;
	bool launched;
};

/* A context ends, and what was made for it. */
void graph_context_closed(struct context *context);

/* The exec of a handle; NULL. */
struct graph_exec *graph_exec_find(CUgraphExec handle);

/* Flatten @graph. With the graph lock; INVALID_VALUE with @error_out for a cycle. */
CUresult graph_plan_new(struct context *context, const struct graph *graph, struct graph_plan **plan_out,
			uint64_t *error_out);
/*
 * Conditions belong to one of the driver's graphs, so all that uses one has to be in one part: NOT_SUPPORTED otherwise, and the log
 * says so. INVALID_VALUE with @unused_out where no node looks at one. With the lock.
 */
CUresult graph_plan_conditions(struct graph_plan *plan, bool *unused_out);
/* Are there any, in bodies too? */
bool graph_plan_branches(const struct graph_plan *plan);
/* Handles of bodies at the worker have ended with the plan's; or go over to one that takes its place. */
void graph_plan_wires_end(struct graph_plan *plan);
void graph_plan_wires_move(struct graph_plan *from, struct graph_plan *to);
/* Staging for what is new in it; without the lock. */
CUresult graph_plan_stage(struct call *call, struct graph_plan *plan);
void graph_plan_put(struct graph_plan *plan);
/* The copy that the device makes of a step: to or from staging where it has a host side. */
void graph_step_device(const struct graph_step *step, struct graph_box *box_out);
bool graph_step_is_up(const struct graph_step *step);
bool graph_step_is_down(const struct graph_step *step);
/* Which steps the host takes, never the device. */
bool graph_step_is_host(const struct graph_step *step);

/* Describe a part of @plan under handle @wire. Without the lock. */
CUresult graph_part_send(struct call *call, struct graph_plan *plan, uint32_t part, uint64_t wire);
/* The same for one step alone, needing nothing; not for a conditional one. */
CUresult graph_step_send(struct call *call, struct graph_step *step, uint64_t wire);
/* A copy of a body: its page-locked sides. */
CUresult graph_step_expose(struct call *call, const struct graph_step *step);

#endif
