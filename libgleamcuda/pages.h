/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked memory that the worker of this machine has mapped, too: the copy engine reads and writes the program's pages themselves, when
 * the stream comes to the copy, as natively. It lies in a file that both have, at its address. What is copied by rows, is small, or can be
 * reached by kernels goes as any other memory does; so does everything once the program has moved to a worker elsewhere. Any thread.
 */
#ifndef GLEAM_PAGES_H
#define GLEAM_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/copy.h"

struct call;

extern uint32_t pages_count; /* atomic: ranges */

static inline bool pages_any(void)
{
	return __builtin_expect(__atomic_load_n(&pages_count, __ATOMIC_RELAXED) != 0, 0);
}

/* Memory for whole pages of Gleam's range; one trip. False: there is none of this kind, and nothing is mapped. */
bool pages_make(struct call *call, uint64_t address, uint64_t size);
/* The worker lets go of it, when what was sent before has been done. It stays mapped here, empty. */
void pages_end(struct call *call, uint64_t address, uint64_t size);

/* The copy is made by pages: its result. False: it is to go another way. */
bool pages_copy(struct call *call, const struct copy *c, CUresult *result_out);

/* Host memory is about to be read here: what copies of pages write to it has to be there. */
CUresult pages_wait(struct call *call, uint64_t address, uint64_t size);

#endif
