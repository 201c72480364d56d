/* SPDX-License-Identifier: Apache-2.0 */
/* Small pieces that programs about streams and graphs share; each fails the program where the driver does. */
#ifndef TESTS_CUDA_PIECES_H
#define TESTS_CUDA_PIECES_H

#include "tests/cuda/prog.h"

/* Of device memory; waits for the legacy stream and those that it waits for. */
static inline unsigned int word(CUdeviceptr at)
{
	unsigned int value;

	MUST(cuMemcpyDtoH(&value, at, sizeof(value)));
	return value;
}

/* Before work on streams that don't wait for the legacy one: a copy from pageable memory may return early. */
static inline void word_set(CUdeviceptr at, unsigned int value)
{
	MUST(cuMemcpyHtoD(at, &value, sizeof(value)));
	MUST(cuCtxSynchronize());
}

/* One that doesn't wait for the legacy stream. */
static inline CUstream stream_new(void)
{
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

/* The graph, ready to be launched. */
static inline CUgraphExec made(CUgraph graph)
{
	CUgraphExec exec;

	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

#endif
