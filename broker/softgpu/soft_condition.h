/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that conditional nodes look at. The graph that one was made for holds it, and so does every program that was made of
 * that graph: kernels find it by its handle until the last of them is gone.
 */
#ifndef SOFT_CONDITION_H
#define SOFT_CONDITION_H

#include "broker/softgpu/soft_object.h"

struct soft_condition {
	struct soft_object object;
	_Atomic uint32_t holders;
	_Atomic uint32_t value;
	_Atomic bool taken; /* by an executable graph: there can be one at a time */
	uint32_t first;	    /* what it is at each launch, if the flag says so */
	bool assigns;
	CUcontext context; /* as the program named it */
};

/* With one holder. */
CUresult soft_condition_new(CUcontext context, uint32_t first, bool assigns, struct soft_condition **condition_out);
struct soft_condition *soft_condition_hold(struct soft_condition *condition);
void soft_condition_drop(struct soft_condition *condition);

/* A kernel sets it; false: there is none. */
bool soft_condition_set(uint64_t handle, uint32_t value);

#endif
