/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look ahead of the executor. Some calls of a driver wait for the device (an H200's cuStreamCreateWithPriority does at times, and
 * loads do), and the device may be waiting for a host function whose end lies in the command ring behind the command at hand. While the
 * executor gets nowhere the completion thread looks for such ends itself, and lets the streams go on.
 */
#ifndef GLEAM_WORKER_AHEAD_H
#define GLEAM_WORKER_AHEAD_H

#include "broker/worker/state.h"

#define AHEAD_NS 1000000u /* an executor that has released nothing for so long may be waiting in the driver */

/* Completion thread, as often as it likes. True: a stream goes on. */
bool ahead_look(struct worker *w, uint64_t now_ns);
/* Executor: frames before @position of the client's ring may be overwritten from now on. Before ring_release(), whose store comes after. */
static inline void ahead_released(struct worker *w, uint64_t position)
{
	__atomic_store_n(&w->ahead.released, position, __ATOMIC_RELEASE);
}

#endif
