/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmapped arrays, as the library remembers them: shape, format, and whose levels they are. Any thread.
 */
#ifndef GLEAM_ARRAY_H
#define GLEAM_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct context;

struct array {
	/* set at birth */
	struct context *context;
	uint64_t handle;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	uint32_t element;	      /* bytes of one */
	uint64_t width, rows, layers; /* bytes of a row; 1 for a dimension that it does not have */
	uint64_t mipmap;	      /* handle of what it is a level of; 0: it stands alone */
};

/* INVALID_HANDLE for what is no array, CONTEXT_IS_DESTROYED as for all objects. */
CUresult array_find(struct call *call, CUarray handle, struct array **array_out);
CUresult mipmap_find(struct call *call, CUmipmappedArray handle, uint64_t *handle_out);

/* Bytes of a channel, the channels that the format has by its name (0: any), and 0 for what no array of ours has. */
uint32_t array_channel_size(CUarray_format format, uint32_t *channels_out);

void array_context_closed(struct context *context);

#endif
