/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session arrives: this worker becomes another one. Between gleamMoveBegin and gleamMoveEnd commands come with the sequence numbers
 * that they once had, or 0, in any order, and a failure is kept for gleamMoveEnd instead of being told to the client. Executor thread.
 */
#ifndef GLEAM_WORKER_MOVE_IN_H
#define GLEAM_WORKER_MOVE_IN_H

#include "broker/worker/state.h"

/* What a program sees of a device, except which one it is. */
void move_device_put(struct worker *w, uint32_t index, struct writer *out);
/* A command of the move has failed. The first counts. */
void move_in_failed(struct worker *w, uint16_t op, CUresult code, const char *why);
/* What has been written so far is there, so that it can be unmapped: the driver's unmap waits for nothing. */
void move_in_settle(struct worker *w);

#endif
