/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools and stream-ordered allocation: all ours, over the memory of memory.h. Any thread.
 */
#ifndef GLEAM_POOL_H
#define GLEAM_POOL_H

#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct stream;

/* Free what cuMemAllocAsync gave, behind @stream; NULL: cuMemFree, which waits. INVALID_VALUE for anything else. */
CUresult pool_free(struct call *call, uint64_t address, struct stream *stream);
/* A wait of the call's context has succeeded: what pools keep beyond their thresholds goes back. */
void pool_synchronised(struct call *call);

/* memory_give()'s name of what a pool's allocation lies in; @owner is the range's. */
void *pool_owner(const void *owner);

#endif
