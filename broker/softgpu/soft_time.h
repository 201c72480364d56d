/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modelled time: with GLEAM_SOFTGPU_LAUNCH_US each kernel occupies its device for so long, however soon the processor has run it. So several
 * GPUs, fast and slow, can be had on a machine with few cores. A device runs one kernel at a time, in the order in which they ask, those of
 * other processes too if they have one ledger (soft_ledger.h): who shares it gets on half as fast.
 */
#ifndef SOFT_TIME_H
#define SOFT_TIME_H

#include "broker/softgpu/soft_context.h"

/* Reads the setting, after soft_ledger_setup(). */
void soft_time_setup(void);

/* A kernel that began at @began_ns (soft_now_ns()) has been run: waits until its modelled end, or its context's. */
void soft_time_spend(struct soft_context *context, uint64_t began_ns);

#endif
