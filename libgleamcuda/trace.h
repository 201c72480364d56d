/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLEAM_TRACE=file: every call of the program, with arguments, result and times, into a file that `gleamctl trace` reads.
 * Each thread fills a chunk of its own and writes it when it is full; the service thread writes what is begun a few times a
 * second, and the end of the process writes the rest. Any thread; a forked child records nothing.
 */
#ifndef GLEAM_TRACE_H
#define GLEAM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "libgleamcuda/call.h"

extern bool trace_on; /* set before the first call is recorded; false again when the file can't be written */

/* As call->entered_ns. */
uint64_t trace_now(void);

/* Reads GLEAM_TRACE; %p in it is the process's number; a file that can't be made is told on GLEAM_LOG, and nothing is recorded. Once, by cuInit. */
void trace_start(void);
/* Service thread: what is recorded so far goes to the file. */
void trace_flush(void);

static inline uint64_t trace_f32(float value)
{
	uint32_t bits;

	__builtin_memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Service thread: NOTICE_TRACE. */
void trace_spans(struct reader *r);

/* Generated code: a call that was entered while trace_on has returned @result. */
void trace_call(const struct call *call, CUresult result, const uint64_t *args, uint32_t count);

#endif
