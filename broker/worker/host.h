/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's page-locked memory as the worker's GPU sees it: memory at the same address. Executor thread.
 */
#ifndef GLEAM_WORKER_HOST_H
#define GLEAM_WORKER_HOST_H

#include "broker/worker/state.h"

void host_ranges_stop(struct worker *w);

#endif
