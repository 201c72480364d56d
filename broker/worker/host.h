/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's page-locked memory as the worker's GPU sees it: memory at the same address. Executor thread, where not
 * said otherwise.
 */
#ifndef GLEAM_WORKER_HOST_H
#define GLEAM_WORKER_HOST_H

#include "broker/worker/state.h"

/* Bytes of mirrored ranges that the device has changed go out, before what says that its work is done. Completion thread. */
void host_ranges_tell(struct worker *w);
bool host_ranges_any(void);
void host_ranges_stop(struct worker *w);

/* ---- a move (move_out.h, move_in.h) ---- */

void host_ranges_say(struct worker *w);
bool host_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total);
void host_forget(struct worker *w);
/* Contents of a mirrored range, of which @bytes are no news to the client. */
CUresult host_contents_take(struct worker *w, uint64_t address, const void *bytes, uint64_t size, bool zero);

#endif
