/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts: contexts of a part of a GPU's multiprocessors. Memory, modules and events are the primary context's, streams their
 * own; a call's context is the primary one, and call->green the green one that is current (context.h). Application threads.
 */
#ifndef GLEAM_GREEN_H
#define GLEAM_GREEN_H

#include "broker/proto/cuda_abi.h"

struct context;

/* The handle of a green context whose context is @context; NULL for an ordinary one. */
CUgreenCtx green_of(const struct context *context);
/* NULL: no handle of one. */
struct context *green_context(CUgreenCtx handle);

#endif
