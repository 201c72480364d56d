/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs as the worker has them: described node by node, then made, launched, changed. Executor thread.
 */
#ifndef GLEAM_WORKER_GRAPH_H
#define GLEAM_WORKER_GRAPH_H

#include "broker/worker/state.h"

/* What an object of type OBJECT_GRAPHEXEC owns. @well: its context can still be asked to free what is in it. */
void graph_own_free(struct worker *w, void *own, bool well);
/* The handle of the graph that a body is in; the graph's own; @handle where there is none. */
uint64_t graph_root(struct worker *w, uint64_t handle);
/* Orders frames of different streams that name one graph: launches and changes happen in the order they came in. */
struct event *graph_gate(struct worker *w, uint64_t handle);

#endif
