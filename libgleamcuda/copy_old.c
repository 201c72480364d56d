// SPDX-License-Identifier: Apache-2.0
/*
 * The first API's copies of rows and boxes, whose sizes and device addresses had 32 bits, brought to today's forms. No
 * device memory of ours lies that low; host memory and arrays they copy as well as ever. Application threads.
 */
#include <stddef.h>

#include "gen/bodies.h"

/* The fields of both forms have the same names. */
#define FLAT(p)                                                                                                \
	{                                                                                                      \
		.srcXInBytes = (p)->srcXInBytes, .srcY = (p)->srcY, .srcMemoryType = (p)->srcMemoryType,       \
		.srcHost = (p)->srcHost, .srcDevice = (p)->srcDevice, .srcArray = (p)->srcArray,               \
		.srcPitch = (p)->srcPitch, .dstXInBytes = (p)->dstXInBytes, .dstY = (p)->dstY,                 \
		.dstMemoryType = (p)->dstMemoryType, .dstHost = (p)->dstHost, .dstDevice = (p)->dstDevice,     \
		.dstArray = (p)->dstArray, .dstPitch = (p)->dstPitch, .WidthInBytes = (p)->WidthInBytes,       \
		.Height = (p)->Height                                                                          \
	}

static CUDA_MEMCPY3D box(const CUDA_MEMCPY3D_v1 *p)
{
	CUDA_MEMCPY3D copy = FLAT(p);

	copy.srcZ = p->srcZ;
	copy.srcLOD = p->srcLOD;
	copy.srcHeight = p->srcHeight;
	copy.dstZ = p->dstZ;
	copy.dstLOD = p->dstLOD;
	copy.dstHeight = p->dstHeight;
	copy.Depth = p->Depth;
	return copy;
}

CUresult do_cuMemcpy2D(struct call *call, const CUDA_MEMCPY2D_v1 *pCopy)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;

	CUDA_MEMCPY2D copy = FLAT(pCopy);

	return do_cuMemcpy2D_v2(call, &copy);
}

CUresult do_cuMemcpy2DUnaligned(struct call *call, const CUDA_MEMCPY2D_v1 *pCopy)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;

	CUDA_MEMCPY2D copy = FLAT(pCopy);

	return do_cuMemcpy2DUnaligned_v2(call, &copy);
}

CUresult do_cuMemcpy2DAsync(struct call *call, const CUDA_MEMCPY2D_v1 *pCopy, CUstream hStream)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;

	CUDA_MEMCPY2D copy = FLAT(pCopy);

	return do_cuMemcpy2DAsync_v2(call, &copy, hStream);
}

CUresult do_cuMemcpy3D(struct call *call, const CUDA_MEMCPY3D_v1 *pCopy)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;

	CUDA_MEMCPY3D copy = box(pCopy);

	return do_cuMemcpy3D_v2(call, &copy);
}

CUresult do_cuMemcpy3DAsync(struct call *call, const CUDA_MEMCPY3D_v1 *pCopy, CUstream hStream)
{
	if (!pCopy)
		return CUDA_ERROR_INVALID_VALUE;

	CUDA_MEMCPY3D copy = box(pCopy);

	return do_cuMemcpy3DAsync_v2(call, &copy, hStream);
}
