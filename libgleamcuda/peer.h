/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access from one GPU of the node to another's memory: which contexts were let into which, and which devices' memory is open
 * to whom because of it. Any thread.
 */
#ifndef GLEAM_PEER_H
#define GLEAM_PEER_H

#include <stdbool.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct context;

/* Devices as the program counts them: can @device reach the memory of @owner? Not of itself. */
bool peer_possible(const struct call *call, int device, int owner);
/*
 * One more reason (or one less) why kernels of @device reach all memory of @owner: pools that were opened to it. The worker
 * is told of the first and of the last.
 */
CUresult peer_device(struct call *call, int device, int owner, bool on);
/* Do kernels of @device reach all memory of @owner now? */
bool peer_reaches(int device, int owner);
/*
 * A copy that isn't asynchronous and touches memory of another device than the current context's comes behind all work of that
 * device, and before all later work: called before and, with @after, behind it.
 */
CUresult peer_copy_order(struct call *call, uint64_t dst, uint64_t src, bool after);
/* A context ends: nobody is let into it, nor it into others. */
void peer_context_closed(struct context *context);

#endif
