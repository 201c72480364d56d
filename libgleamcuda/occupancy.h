/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Occupancy: how many blocks of a function a multiprocessor holds, from the function's and the device's numbers, by the
 * rules that the driver was seen to follow. Pure arithmetic. Any thread.
 */
#ifndef GLEAM_OCCUPANCY_H
#define GLEAM_OCCUPANCY_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct function;

/* What of a function matters. */
struct occupancy_kernel {
	int32_t registers;
	int32_t shared_size; /* static */
	int32_t dynamic_max; /* MAX_DYNAMIC_SHARED_SIZE_BYTES */
	int32_t carveout;    /* PREFERRED_SHARED_MEMORY_CARVEOUT */
	uint32_t cache_config;
};

/*
 * @device are the attributes by number. False where the rule for this device or preference isn't known: then the node is
 * asked. @threads is 1 at least.
 */
bool occupancy_compute(const int32_t *device, const struct occupancy_kernel *kernel, int threads, uint64_t dynamic_size,
		       int *blocks_out);
/* Threads that a block can have before the registers run out, as the driver reports it for a function without bounds. */
uint32_t occupancy_threads_by_registers(const int32_t *device, int32_t registers);
/* Dynamic shared memory that @blocks of @threads leave each other. False as above; *size_out is -1 if they never fit. */
bool occupancy_available(const int32_t *device, const struct occupancy_kernel *kernel, int blocks, int threads,
			 int64_t *size_out);

/* The same for a ready function on its context's device. */
bool occupancy_blocks(const struct function *function, int threads, uint64_t dynamic_size, int *blocks_out);
uint32_t occupancy_register_threads(const struct function *function);

#endif
