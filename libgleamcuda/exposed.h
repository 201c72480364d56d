/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that kernels can reach: page-locked ranges whose device pointer was asked for. The worker has a mirror of
 * each at its address; changed bytes are exchanged, those of the host before a launch, those of the device before a
 * wait or a query says that work is done. Any thread.
 */
#ifndef GLEAM_EXPOSED_H
#define GLEAM_EXPOSED_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/codec.h"
#include "broker/proto/cuda_abi.h"

struct call;
struct session;

/* Kernels and host look at it while work runs, without a CUDA call: changes travel after at most this long. */
#define EXPOSED_EXCHANGE_NS (5 * 1000000ll)

extern uint32_t exposed_count; /* atomic */

static inline bool exposed_any(void)
{
	return __builtin_expect(__atomic_load_n(&exposed_count, __ATOMIC_RELAXED) != 0, 0);
}

/* @start, @size: what the program has; one trip. Harmless for a range that is exposed already. */
CUresult exposed_open(struct call *call, uint64_t start, uint64_t size);
/* The range is going away; the work that uses it has been waited for. */
void exposed_close(struct call *call, uint64_t start);
bool exposed_is(uint64_t start);
/* Does any exposed range hold @address? */
bool exposed_holds(uint64_t address);

/* Send what the host has changed. */
void exposed_push(struct call *call);
/* Work is known to be done: wait until what it wrote is here. Not on the service thread. */
void exposed_settle(struct session *s);
/* Service thread: NOTICE_HOST_BYTES. */
void exposed_apply(struct reader *r);

#endif
