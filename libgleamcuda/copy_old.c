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

/* @bring gives today's form @now of the old one @before. */
#define OLD(name, before, now, bring)                                                                          \
	CUresult do_##name(struct call *call, const before *pCopy)                                             \
	{                                                                                                      \
		if (!pCopy)                                                                                    \
			return CUDA_ERROR_INVALID_VALUE;                                                       \
                                                                                                               \
		now copy = bring(pCopy);                                                                       \
                                                                                                               \
		return do_##name##_v2(call, &copy);                                                            \
	}
#define OLD_ASYNC(name, before, now, bring)                                                                    \
	CUresult do_##name(struct call *call, const before *pCopy, CUstream hStream)                           \
	{                                                                                                      \
		if (!pCopy)                                                                                    \
			return CUDA_ERROR_INVALID_VALUE;                                                       \
                                                                                                               \
		now copy = bring(pCopy);                                                                       \
                                                                                                               \
		return do_##name##_v2(call, &copy, hStream);                                                   \
	}

OLD(cuMemcpy2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D, FLAT)
OLD(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D, FLAT)
OLD_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, CUDA_MEMCPY2D, FLAT)
OLD(cuMemcpy3D, CUDA_MEMCPY3D_v1, CUDA_MEMCPY3D, box)
OLD_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, CUDA_MEMCPY3D, box)
