/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a driver does when something of a module is used for the first time: a lazy one loads it then, and places its module's variables. The
 * first uses are remembered in their order, so that another worker, which the session moves to, can have its driver do the same. Executor thread.
 */
#ifndef GLEAM_WORKER_TOUCH_H
#define GLEAM_WORKER_TOUCH_H

#include "broker/worker/state.h"

/* What is used of an object; in commands of moves. */
enum touch {
	TOUCH_FUNCTION = 0, /* it: a function or a kernel, which was launched */
	TOUCH_ALL = 1,	    /* what a load's verdict asks about all functions of a module or library */
	TOUCH_NAMED = 2,    /* what is asked about the function of that name */
	TOUCH_VARIABLE = 3, /* the variable of that name: and the program knows where it lies */
	TOUCH_ASKED = 4,    /* it: a function or a kernel, which was asked about */
};

/* The bit of a context in object.used. */
static inline uint64_t touch_bit(uint16_t ctx)
{
	return ctx < SESSION_CONTEXTS ? 1ull << ctx : 1;
}

/* A function or kernel is about to be launched. */
void touch_function(struct worker *w, uint16_t ctx, uint64_t handle, struct object *o);
/* A context is closed: another one may have its index, and kernels of libraries haven't been used in that. */
void touch_closed(struct worker *w, uint16_t ctx);
/* After any other command that succeeded: if it uses a function for the first time. */
void touch_frame(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame);

#endif
