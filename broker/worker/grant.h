/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical device memory in pieces: granted to the client, mapped at its addresses, unmapped after a quarantine.
 * Executor thread.
 */
#ifndef GLEAM_WORKER_GRANT_H
#define GLEAM_WORKER_GRANT_H

#include "broker/worker/state.h"

void grants_stop(struct worker *w);

#endif
