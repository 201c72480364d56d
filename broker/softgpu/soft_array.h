/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: device memory that is named by element, not by address. Stored row after row; in the map like all memory,
 * so that copies check it, but closed to kernels.
 */
#ifndef SOFT_ARRAY_H
#define SOFT_ARRAY_H

#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_sampler.h"

#define ARRAY_LAYERED 0x01u
#define ARRAY_SURFACE 0x02u
#define ARRAY_CUBEMAP 0x04u
#define ARRAY_GATHER 0x08u

struct soft_array {
	struct soft_object object;
	uint64_t base;
	uint64_t width, height, depth; /* as asked: 0 for a dimension that it does not have */
	int format;
	unsigned int channels, flags;
	bool level; /* of a mipmapped array, which owns it */
	struct sampler_format texel;
	uint32_t element_size;
	uint64_t pitch, rows, layers, size; /* bytes a row; rows a layer; bytes in all */
};

struct soft_mipmap {
	struct soft_object object;
	unsigned int level_count;
	struct soft_array *levels[SAMPLER_LEVELS_MAX]; /* counted */
};

/* Counted; INVALID_HANDLE for a stale one. */
CUresult soft_array_find(CUarray handle, struct soft_array **array_out);
CUresult soft_mipmap_find(CUmipmappedArray handle, struct soft_mipmap **mipmap_out);

#define SOFT_ARRAY_ARG(name, handle)              \
	SOFT_HELD struct soft_array *name = NULL; \
	TRY(soft_array_find(handle, &name))

#endif
