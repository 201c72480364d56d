/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands cost the worker, for who looks for lost time: GLEAM_WORKER_COSTS=1 in gleamd's environment makes each worker measure every
 * call of the driver by thread, and what the executor does around them, and write both to its standard error stream when its session
 * ends. Without it nothing is measured, and the executor asks one variable a frame.
 */
#ifndef GLEAM_WORKER_COST_H
#define GLEAM_WORKER_COST_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "gen/drv.h"

/* set before the threads start, then only read */
extern bool cost_on;

/* Ticks of this processor; how long one is comes out at the end. */
static inline uint64_t cost_now(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

/* Measures from here on, if the environment asks for it: @drv's functions are replaced. Before any other thread calls them. */
void cost_start(struct drv *drv);

/* The driver's function @call has returned to this thread; it began at @from. */
void cost_called(enum drv_call call, uint64_t from);

/*
 * The executor, of a frame: it looks for one, has it in its own memory, is done with it. What lies between done and the next look counts as
 * well, unless it found nothing (cost_idle()).
 */
void cost_looks(void);
void cost_fetched(void);
void cost_done(uint16_t op);
void cost_idle(void);

/* The lines. At the end, from the executor. */
void cost_report(void);

#endif
