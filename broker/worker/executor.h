/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor: takes frames from ring c2n in order and plays them. It never blocks in the driver: a command whose
 * stream is full, or that depends on one that waits, is copied into that stream's queue, and the next is taken.
 */
#ifndef GLEAM_WORKER_EXECUTOR_H
#define GLEAM_WORKER_EXECUTOR_H

#include "broker/worker/state.h"

/* Until the session ends; enum worker_exit. */
int executor_run(struct worker *w);

/* One round: what has been parked, then what is in the ring. True if anything was done. For tests too. */
bool executor_round(struct worker *w);

/* There is something to look at beside the ring. Any thread. */
void executor_wake(struct worker *w);

#endif
