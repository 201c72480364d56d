/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes, synchronisation and host functions. Executor thread.
 */
#ifndef GLEAM_WORKER_SYNC_H
#define GLEAM_WORKER_SYNC_H

#include "broker/worker/state.h"

/* Host functions of a context that is closed (NULL: of all) will not be called any more: their streams go on. */
void host_calls_release(struct worker *w, struct context *c);
/* Does a stream of @c (NULL: of any) stand still until a host function has returned? */
bool host_calls_pending(const struct worker *w, const struct context *c);

/*
 * What the driver might do only when the context's work is done, while that waits for a host function: @join comes back when what is
 * there now has run. False: there is none, it may be done at once.
 */
bool host_calls_wait(struct worker *w, struct context *c, struct join *join);
void host_calls_end(struct worker *w);
/* Any thread: does any stream stand still? */
bool host_calls_stand(const struct worker *w);
/* Completion thread: function @id has returned, and its command is still to come. False: nobody waits for it. */
bool host_call_ahead(struct worker *w, uint64_t id);

#endif
