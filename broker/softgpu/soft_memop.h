/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for words in memory and writing them, in a stream or a graph.
 */
#ifndef SOFT_MEMOP_H
#define SOFT_MEMOP_H

#include "broker/softgpu/soft_stream.h"

/* Operations in one batch, as the real driver limits it. */
#define SOFT_MEMOPS_MAX 256

/* INVALID_VALUE for an unknown operation or flag, or an address that is no such word. */
CUresult soft_memop_check(const CUstreamBatchMemOpParams *ops, unsigned int count);

/* Whether @op does not wait (any more). ILLEGAL_ADDRESS where the word has gone. */
CUresult soft_memop_ready(const CUstreamBatchMemOpParams *op, bool *ready_out);

/* Carries out one operation that is ready. */
CUresult soft_memop_run(const CUstreamBatchMemOpParams *op);

/* Carries out @count operations in order, waiting as they say until the stream is stopped. */
CUresult soft_memop_run_all(const CUstreamBatchMemOpParams *ops, unsigned int count, const struct soft_stream *stream);

#endif
