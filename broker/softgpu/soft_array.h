/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: device memory that is named by element, not by address. Stored row after row; in the map like all memory,
 * so that copies check it, but closed to kernels.
 */
#ifndef SOFT_ARRAY_H
#define SOFT_ARRAY_H

#include "broker/softgpu/soft_context.h"

struct soft_array {
	struct soft_object object;
	uint64_t base;
	uint64_t width, height, depth; /* as asked: 0 for a dimension that it does not have */
	int format;
	unsigned int channels, flags;
	uint32_t element_size;
	uint64_t pitch, rows, layers, size; /* bytes a row; rows a layer; bytes in all */
};

/* Counted; INVALID_HANDLE for a stale one. */
CUresult soft_array_find(CUarray handle, struct soft_array **array_out);

#define SOFT_ARRAY_ARG(name, handle)              \
	SOFT_HELD struct soft_array *name = NULL; \
	TRY(soft_array_find(handle, &name))

#endif
