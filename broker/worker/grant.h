/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical device memory in pieces: granted to the client, mapped at its addresses, unmapped after a quarantine.
 * Executor thread.
 */
#ifndef GLEAM_WORKER_GRANT_H
#define GLEAM_WORKER_GRANT_H

#include "broker/worker/state.h"

void grants_stop(struct worker *w);
/* The worker's own context of a device is about to be reset: the stream that wipes there is given up. */
void grants_context_lost(struct worker *w, uint32_t device);

#endif
