/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked host memory: made by Gleam, or registered where it lies. Any thread.
 */
#ifndef GLEAM_HOST_H
#define GLEAM_HOST_H

#include <stdint.h>

#include "broker/proto/cuda_abi.h"

#define HOST_BASE 0x300000000000ull /* host memory that Gleam makes lies here, in the client and in the worker */
#define HOST_SPAN (1ull << 40)

extern uint32_t host_made; /* atomic: allocations that are alive, or went with their context */

/* Reserve the addresses; called once by cuInit. */
CUresult host_start(void);
/* Whole pages of them for something that is only at the workers; 0: none are left. */
uint64_t host_space_take(uint64_t size);
void host_space_give(uint64_t address, uint64_t size);

#endif
