/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLEAM_OFF: techniques that are switched off in this process, to measure them (broker/proto/off.h). Set before the session
 * opens, then only read. Any thread.
 */
#ifndef GLEAM_OFF_H
#define GLEAM_OFF_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/off.h"

struct call;

extern uint32_t techniques_off; /* enum off */

static inline bool is_off(uint32_t techniques)
{
	return __builtin_expect(techniques_off & techniques, 0);
}

/* Reads GLEAM_OFF; a word that isn't known is told on GLEAM_LOG and otherwise ignored. */
void off_start(void);
/* Does a technique that is off make the server answer a command that nobody would wait for? */
bool off_awaits(const struct call *call, uint16_t op);
/*
 * For a function whose answer is known here only by a technique that is off: one round trip, in which the worker asks its
 * driver. What it says is what is known already.
 */
CUresult off_ask(struct call *call);
/* One such trip, for what is no function of its own. */
CUresult off_trip(struct call *call);

#endif
