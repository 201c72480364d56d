/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a synchronous copy, as other streams see it. Natively the call returns when the copy is done, so whatever
 * is called afterwards comes after it, on any stream. Here the call returns early, and the order is kept at the server:
 * an event behind the copy, and a wait for it before the next command of each stream that isn't ordered by itself.
 */
#ifndef GLEAM_FENCE_H
#define GLEAM_FENCE_H

#include <stdint.h>

#include "libgleamcuda/call.h"

/* A copy that natively would be done by now has been sent on @stream, a wire handle of the call's context. */
CUresult fence_raise(struct call *call, uint64_t stream);
/* A command for @stream comes next. */
CUresult fence_pass(struct call *call, uint64_t stream);

#endif
