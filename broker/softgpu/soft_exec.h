/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs: steps in an order that respects every edge, child graphs folded in.
 */
#ifndef SOFT_EXEC_H
#define SOFT_EXEC_H

#include "broker/softgpu/soft_graph.h"

/* Steps in one executable graph, children included: a bound on what nesting can multiply. */
#define SOFT_STEPS_MAX (1u << 20)

struct soft_step {
	uint64_t node; /* the handle of the node it came from: how a program names it */
	bool enabled;
	struct soft_work work;
	uint32_t need_count;
	uint32_t *needs; /* earlier steps */
};

/* Immutable while more than its executable graph holds it: a launch on its way. */
struct soft_program {
	_Atomic uint32_t refs;
	bool body; /* of a conditional node */
	uint32_t step_count, step_room;
	struct soft_step *steps;
	uint32_t condition_count;
	struct soft_condition **conditions; /* made for its graph, held; those of bodies are theirs */
};

struct soft_exec {
	struct soft_object object;
	uint64_t flags;
	pthread_mutex_t lock;
	/* guarded by lock */
	struct soft_program *program;
	struct soft_ticket *last; /* of its last launch: launches of one graph do not overlap */
	/* set when it is made: what no other may have meanwhile, held */
	uint32_t taken_count;
	struct soft_condition **taken;
};

/* CUDA_GRAPH_INSTANTIATE_* of what went wrong, and at which node. */
struct soft_exec_fault {
	int result;
	uint64_t node;
};

/* Lays out @graph; INVALID_VALUE for a cycle. The graph lock is held. */
CUresult soft_program_new_locked(const struct soft_graph *graph, struct soft_program **program_out,
				 struct soft_exec_fault *fault);
struct soft_program *soft_program_get(struct soft_program *program);
struct soft_program *soft_program_clone(const struct soft_program *program);
void soft_program_put(struct soft_program *program);

/* Adds the conditions of it and of its bodies to a list, each once, held for the caller. */
CUresult soft_program_conditions(const struct soft_program *program, struct soft_condition ***list, uint32_t *count);
/* Values are what they are at a launch. */
void soft_program_assign(const struct soft_program *program);

/* Runs it on a stream's thread. @tickets has one place for each step, with what an event record tears; NULL for a body. */
CUresult soft_program_run(const struct soft_program *program, struct soft_ticket *const *tickets,
			  const struct soft_stream *stream);

#endif
