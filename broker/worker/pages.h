/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked memory of a client of this machine that both processes have mapped: copies read and write it where it lies. It is mapped here
 * at an address of the worker's own; kernels reach the client's memory by its mirror, as anybody's (host.h). Executor thread.
 */
#ifndef GLEAM_WORKER_PAGES_H
#define GLEAM_WORKER_PAGES_H

#include "broker/worker/state.h"

/* @fd: of a file of SESSION_PAGES_SIZE bytes, in which the client's memory lies by its address. 0 or -ENOMEM. */
int pages_start(struct worker *w, int fd);
/* Unregisters and unmaps all; the client isn't of this machine, or the worker ends. Harmless without pages_start(). */
void pages_stop(struct worker *w);

#endif
