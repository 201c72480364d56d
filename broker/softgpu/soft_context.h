/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: whose memory, streams and modules live and die together, and which one a thread works in.
 *
 * A primary context is one object for the process's life, so that its handle outlives releases and resets; between
 * them it is not alive. An error of the device is kept in the context and answered by every later call.
 */
#ifndef SOFT_CONTEXT_H
#define SOFT_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "broker/softgpu/soft_device.h"
#include "broker/softgpu/soft_object.h"

/* Contexts a thread may have pushed. */
#define SOFT_STACK_DEPTH 64

struct soft_green;
struct soft_stream;

struct soft_context {
	struct soft_object object;

	/* set when it is made, then only read */
	struct soft_device *device;
	bool primary;
	struct soft_context *base; /* of a green context: the primary one that it is a part of; NULL for others */
	struct soft_green *green;  /* its own; it lives as long */

	_Atomic uint64_t id;
	_Atomic bool alive;
	_Atomic unsigned int error; /* first device error, a CUresult */
	_Atomic bool ending;	    /* nothing more is run */
	_Atomic uint32_t abort;	    /* nonzero stops running kernels: after an error, or at the end */
	_Atomic uint64_t heap_used; /* by malloc in kernels */
	_Atomic unsigned int flags;
	/* Devices whose memory was opened to this context, one bit each. */
	_Atomic uint32_t peers;

	/* guarded by the scheduler's lock */
	struct soft_stream *streams;
	struct soft_stream *legacy;

	pthread_mutex_t lock;
	/* guarded by lock */
	size_t limits[CU_LIMIT_MAX];
	int cache_config;
	int shared_config;
	unsigned int api_version;
};

/* The current context, counted, if there is one that works: alive and without an error. */
CUresult soft_context_enter(struct soft_context **context_out);

/* As above, but also where the device has failed: for what still answers then. */
CUresult soft_context_enter_failed(struct soft_context **context_out);

/* The context a handle names, alive; INVALID_CONTEXT or CONTEXT_IS_DESTROYED otherwise. */
CUresult soft_context_find(CUcontext handle, struct soft_context **context_out);

#define SOFT_ENTER(name)                            \
	SOFT_HELD struct soft_context *name = NULL; \
	TRY(soft_context_enter(&name))

/* Whose memory, modules and events those of @context are. */
static inline struct soft_context *soft_context_home(struct soft_context *context)
{
	return context->base ? context->base : context;
}

/* A part of a device's primary context, which is retained, and its end. */
CUresult soft_context_green_new(struct soft_device *device, struct soft_context **context_out);
void soft_context_green_end(struct soft_context *context);

CUcontext soft_context_handle(const struct soft_context *context);

/* Remembers the context's first device error. */
void soft_context_fail(struct soft_context *context, CUresult error);

/* Makes the primary contexts, none of them alive. */
CUresult soft_context_setup(void);

#endif
