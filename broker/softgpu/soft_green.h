/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts: parts of a device's multiprocessors with streams of their own. Memory, modules and events are the primary
 * context's. A processor runs all kernels alike, so parts have sizes and nothing else.
 */
#ifndef SOFT_GREEN_H
#define SOFT_GREEN_H

#include "broker/softgpu/soft_context.h"

/* Waits for green contexts that are parts of @context, which may have none. */
CUresult soft_green_sync(struct soft_context *context);

#endif
