/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches: what the driver refuses at once is refused here, from remembered limits; parameters are packed by the layout
 * that came with the load. Graph nodes use the same checks. Application threads.
 */
#ifndef GLEAM_LAUNCH_H
#define GLEAM_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "libgleamcuda/answer.h"

struct call;
struct function;

/* A launch attribute on the wire is one CUlaunchAttribute with what it doesn't use zeroed; each id once. */
#define LAUNCH_ATTRIBUTES CU_LAUNCH_ATTRIBUTE_MAX

struct launch {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_size;
	uint64_t captured; /* the stream is capturing: the function as the program named it; else 0 */

	/* filled by launch_attributes() */
	bool cooperative;
	uint32_t cluster[3]; /* all 0: none given */
	uint64_t event;	     /* recorded by attribute 7 or 12; 0: none */
	uint64_t event_too;
	uint32_t attr_count;
	CUlaunchAttribute attrs[LAUNCH_ATTRIBUTES];
};

/* Take over the attributes of a launch. INVALID_VALUE for unknown ids, INVALID_HANDLE for events. */
CUresult launch_attributes(struct call *call, struct launch *launch, const CUlaunchAttribute *attrs, uint32_t count);
/* Dimensions, shared memory, clusters, cooperation, against device and function (which is ready). */
CUresult launch_check(const struct function *function, const struct launch *launch);

/* Where the packed parameters come from. */
struct launch_params {
	void **pointers;     /* NULL: block is given */
	const void *block;
	uint32_t size;
};

/* Exactly one of @params and @extra, or neither for a function without parameters. */
CUresult launch_params_of(const struct function *function, void **params, void **extra,
			  struct launch_params *params_out);
/* @to has room for @from->size bytes. */
void launch_params_pack(const struct function *function, const struct launch_params *from, uint8_t *to);

/* CUDA_LAUNCH_BLOCKING: every launch waits. */
bool launches_block(void);

#endif
