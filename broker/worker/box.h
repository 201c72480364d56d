/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes between arrays and device memory, as messages describe them: pitches, widths and places along x in bytes, the rest in elements.
 * Executor thread. What a box says is checked by the driver.
 */
#ifndef GLEAM_WORKER_BOX_H
#define GLEAM_WORKER_BOX_H

#include "broker/worker/state.h"

/*
 * The driver's form of @m: gleamArrayCopy, gleamGraphBox, or another message that has their fields. A macro, for each message has a
 * type of its own. Its arrays are set by box_arrays().
 */
#define BOX_OF(m)                                                                                                          \
	(CUDA_MEMCPY3D)                                                                                                    \
	{                                                                                                                  \
		.srcMemoryType = (m)->src_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE, .srcDevice = (m)->src,       \
		.srcPitch = (m)->src_pitch, .srcHeight = (m)->src_height, .srcXInBytes = (m)->src_x, .srcY = (m)->src_y,   \
		.srcZ = (m)->src_z,                                                                                        \
		.dstMemoryType = (m)->dst_array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE, .dstDevice = (m)->dst,       \
		.dstPitch = (m)->dst_pitch, .dstHeight = (m)->dst_height, .dstXInBytes = (m)->dst_x, .dstY = (m)->dst_y,   \
		.dstZ = (m)->dst_z, .WidthInBytes = (m)->width, .Height = (m)->rows, .Depth = (m)->depth,                  \
	}

/* Puts the arrays that the client calls @src and @dst into @copy, 0 being none. False: there is no such array. */
static inline bool box_arrays(struct worker *w, uint64_t src, uint64_t dst, CUDA_MEMCPY3D *copy)
{
	void *from, *to;

	if (!object_get(w, OBJECT_ARRAY, src, true, &from) || !object_get(w, OBJECT_ARRAY, dst, true, &to))
		return false;
	copy->srcArray = from;
	copy->dstArray = to;
	return true;
}

#endif
