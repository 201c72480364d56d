/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that kernels can reach: page-locked ranges whose device pointer was asked for. The worker has a mirror of
 * each at its address, and so has every other worker of the process; changed bytes are exchanged, those of the host before a
 * launch, those of the device before a wait or a query says that work is done. Any thread.
 */
#ifndef GLEAM_EXPOSED_H
#define GLEAM_EXPOSED_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/codec.h"
#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/host.h"

struct session;

/* Kernels and host look at it while work runs, without a CUDA call: changes travel after at most this long. */
#define EXPOSED_EXCHANGE_NS (5 * 1000000ll)

extern uint32_t exposed_count; /* atomic */
/* Of those, ranges that any kernel may reach without their address among its parameters' words of Gleam's own range. */
extern uint32_t exposed_everywhere; /* atomic */

static inline bool exposed_any(void)
{
	return __builtin_expect(__atomic_load_n(&exposed_count, __ATOMIC_RELAXED) != 0, 0);
}

/* @start, @size: what the program has; one trip a server. Harmless for a range that is exposed already. */
CUresult exposed_open(struct call *call, uint64_t start, uint64_t size);
/* The range is going away; the work that uses it has been waited for. */
void exposed_close(struct call *call, uint64_t start);
bool exposed_is(uint64_t start);
/*
 * The address by which devices reach @address of host memory: the same, but for registered memory whose addresses are taken in a
 * worker. Any other address is itself.
 */
extern uint32_t exposed_moved; /* atomic: ranges for which it differs */
uint64_t exposed_device_slow(uint64_t address);
static inline uint64_t exposed_device(uint64_t address)
{
	return __builtin_expect(__atomic_load_n(&exposed_moved, __ATOMIC_RELAXED) != 0, 0) ? exposed_device_slow(address) : address;
}
/* Operations of streams with words in such memory, with the devices' addresses: a copy to be freed, or NULL where @ops will do. */
CUresult exposed_ops(const CUstreamBatchMemOpParams *ops, uint32_t count, CUstreamBatchMemOpParams **ops_out);
/* Does any exposed range hold @address? */
bool exposed_holds(uint64_t address);

/* A kernel or a memset is about to get @address, which lies in page-locked memory: expose its range. */
CUresult exposed_need(struct call *call, uint64_t address);

CUresult exposed_params_slow(struct call *call, const void *params, uint32_t size);

/*
 * Addresses in a block of parameters of memory that Gleam made are exposed: the host's range is a TiB of its own, so
 * looking for them costs a comparison per word. Registered memory counts from when its device pointer is asked for.
 */
static inline CUresult exposed_params(struct call *call, const void *params, uint32_t size)
{
	const char *at = params;
	uint64_t found = 0;

	for (uint32_t i = 0; i + 8 <= size; i += 8) {
		uint64_t word;

		__builtin_memcpy(&word, at + i, sizeof(word));
		found |= host_is_made_at(word);
	}
	if (__builtin_expect(__atomic_load_n(&exposed_everywhere, __ATOMIC_RELAXED) != 0, 0))
		call->touches = true;
	return __builtin_expect(found != 0, 0) ? exposed_params_slow(call, params, size) : CUDA_SUCCESS;
}

/*
 * A stream waits for the word at @address (the host's), of 4 or 8 bytes at a multiple of that. Words that are waited for travel whole, and
 * after all that the host had written before them: what a stream finds behind the wait is what the host put there first.
 */
void exposed_watch(uint64_t address, uint32_t size);

/* Send what the host has changed. */
void exposed_push(struct call *call);
/* Service thread: NOTICE_HOST_BYTES. */
void exposed_apply(struct session *s, struct reader *r);

#endif
