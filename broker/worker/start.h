/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Birth and end of a worker in a process: for main.c and for tests, which play its executor themselves.
 */
#ifndef GLEAM_WORKER_START_H
#define GLEAM_WORKER_START_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "broker/worker/state.h"

/*
 * @w is zero but for its settings and doorbell. Takes @session_fd. Loads the driver, counts devices, reserves addresses,
 * registers memory, starts the completion thread. -errno, and the reason in @why. After a failure, and after the
 * session, worker_stop() gives back what there is.
 */
int worker_start(struct worker *w, int session_fd, const uint8_t *protocol_hash, const char *driver, char *why, size_t size);
void worker_stop(struct worker *w);

#endif
