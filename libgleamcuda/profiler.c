// SPDX-License-Identifier: Apache-2.0
/*
 * The profiler. None is attached, here or at the node: the driver then does nothing, and says that it went well.
 * Application threads.
 */
#include "gen/bodies.h"
#include "libgleamcuda/call.h"

CUresult do_cuProfilerStart(struct call *call)
{
	return CUDA_SUCCESS;
}

CUresult do_cuProfilerStop(struct call *call)
{
	return CUDA_SUCCESS;
}
