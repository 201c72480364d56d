// SPDX-License-Identifier: Apache-2.0
/*
 * Stream capture. Nothing is ever captured at the worker; until graphs are built here a capture can't begin, so no
 * stream is capturing, and that is what the questions answer. Application threads.
 */
#include <stddef.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"

CUresult do_cuStreamIsCapturing(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	uint64_t handle;
	CUresult result = call_stream(call, hStream, &handle);

	if (result)
		return result;
	if (!captureStatus)
		return CUDA_ERROR_INVALID_VALUE;
	*captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
	return CUDA_SUCCESS;
}

/* What follows the status is written for capturing streams alone. */
CUresult do_cuStreamGetCaptureInfo(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				   cuuint64_t *id_out)
{
	return do_cuStreamIsCapturing(call, hStream, captureStatus_out);
}

CUresult do_cuStreamGetCaptureInfo_v2(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      size_t *numDependencies_out)
{
	return do_cuStreamIsCapturing(call, hStream, captureStatus_out);
}

CUresult do_cuStreamGetCaptureInfo_v3(struct call *call, CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
				      cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out,
				      const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
	return do_cuStreamIsCapturing(call, hStream, captureStatus_out);
}
