/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of commands that nobody waits for: kept per context until they have been told. Any thread of the worker.
 */
#ifndef GLEAM_WORKER_FAULT_H
#define GLEAM_WORKER_FAULT_H

#include "broker/worker/state.h"

/* After such a code every further call in the context fails with it, as CUDA documents it. */
bool fault_is_sticky(CUresult code);

/* Keeps @code if the context has none, and tells the node (NOTICE_ERROR). @index may be CTX_NONE: then it is only logged. */
void fault_latch(struct worker *w, uint32_t index, CUresult code, uint32_t op, uint64_t seq);

/* What a reply of context @index has to carry instead of success; one that is not sticky has been told with that. */
CUresult fault_take(struct worker *w, uint32_t index);
CUresult fault_peek(struct worker *w, uint32_t index);

/* The client has told its program by itself. */
void fault_told(struct worker *w, uint32_t index);

#endif
