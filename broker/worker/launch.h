/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches, and what their attributes name. Executor thread.
 */
#ifndef GLEAM_WORKER_LAUNCH_H
#define GLEAM_WORKER_LAUNCH_H

#include "broker/worker/state.h"

#define LAUNCH_ATTRIBUTES 32u /* CUDA 13.0 knows 17 */

/* @bytes are CUlaunchAttribute entries whose handles are Gleam's; the copies have the driver's. */
CUresult launch_attributes(struct worker *w, const void *bytes, uint32_t size, CUlaunchAttribute out[LAUNCH_ATTRIBUTES],
			   unsigned int *count_out);
/* The first event that the attributes of a gleamLaunch frame name; 0 without. For the order of events. */
uint64_t launch_event(const struct frame_hdr *hdr, const uint8_t *frame);

#endif
