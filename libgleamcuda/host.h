/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked host memory: made by Gleam, or registered where it lies. Any thread.
 */
#ifndef GLEAM_HOST_H
#define GLEAM_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/space.h"

#define HOST_BASE SPACE_HOST
#define HOST_SPAN SPACE_SPAN

extern uint32_t host_made; /* atomic: allocations that are alive, or went with their context */

/* Whether it lies among the addresses of memory that Gleam makes. */
static inline bool host_is_made_at(uint64_t address)
{
	return address >> SPACE_SPAN_BITS == SPACE_HOST >> SPACE_SPAN_BITS;
}

/* Reserve the addresses; called once by cuInit. */
CUresult host_start(void);
/* Whole pages of them for something that is only at the workers; 0: none are left. */
uint64_t host_space_take(uint64_t size);
void host_space_give(uint64_t address, uint64_t size);

#endif
