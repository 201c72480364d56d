/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts by the client's index, and the worker's own. Executor thread; a context's latched failure is shared.
 */
#ifndef GLEAM_WORKER_CONTEXT_H
#define GLEAM_WORKER_CONTEXT_H

#include "broker/worker/state.h"

/* A context of the worker's own on device @index, retained at the first use; NULL where the driver refuses. */
struct context *context_own(struct worker *w, uint32_t index);
void contexts_close(struct worker *w);

#endif
