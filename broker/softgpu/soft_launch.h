/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches: their checks, and running a grid on a stream's thread.
 */
#ifndef SOFT_LAUNCH_H
#define SOFT_LAUNCH_H

#include "broker/softgpu/soft_module.h"
#include "broker/softgpu/soft_stream.h"

/* A launch that passed its checks, with its own copy of the parameters. */
struct soft_launch {
	struct soft_function *function; /* counted */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster[3]; /* 0: none */
	uint32_t shared_dynamic;
	bool cooperative;
	uint32_t params_size;
	uint8_t params[];
};

/* What a caller says of a launch, before it is checked. */
struct soft_launch_ask {
	const uint32_t *grid;
	const uint32_t *block;
	uint32_t cluster[3];
	uint32_t shared_dynamic;
	bool cooperative;
	void **params;
	void **extra;
};

/* Checks as the driver does when the call is made. The launch is the caller's to free. */
CUresult soft_launch_new(struct soft_function *function, const struct soft_launch_ask *ask,
			 struct soft_launch **launch_out);
/* Another cluster for it; all 0: what its function requires. As it was on failure. */
CUresult soft_launch_cluster(struct soft_launch *launch, const uint32_t cluster[3]);
void soft_launch_free(struct soft_launch *launch);

/* Runs the grid and returns when it has ended; a fault is logged and returned as the context's error. */
CUresult soft_launch_run(const struct soft_launch *launch);

/* Blocks of @threads threads and @shared_dynamic bytes that a multiprocessor holds at once. */
unsigned int soft_blocks_per_sm(const struct soft_function *function, uint32_t threads, uint64_t shared_dynamic);

#endif
