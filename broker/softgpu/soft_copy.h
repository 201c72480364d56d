/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills of memory in up to three dimensions, as descriptions that a stream or a graph carries out.
 */
#ifndef SOFT_COPY_H
#define SOFT_COPY_H

#include "broker/softgpu/soft_stream.h"

/* One end of a copy: @size and pitches in bytes. */
struct soft_plane {
	uint64_t address;
	uint64_t pitch; /* from row to row */
	uint64_t slice; /* from layer to layer */
	bool known;	/* in the map: memory the device may reach at any time; else the program's own */
};

struct soft_transfer {
	struct soft_plane to, from;
	uint64_t width, height, depth;
};

struct soft_fill {
	struct soft_plane to;
	uint32_t value;
	unsigned int element; /* 1, 2 or 4 bytes */
	uint64_t width;	      /* bytes */
	uint64_t height;
};

/* Checks ends and sizes: INVALID_VALUE for a range that is no device memory. A size of nothing is a good transfer. */
CUresult soft_transfer_linear(struct soft_transfer *transfer, uint64_t to, bool to_device, uint64_t from,
			      bool from_device, uint64_t size);
CUresult soft_transfer_box(struct soft_transfer *transfer, const CUDA_MEMCPY3D *copy);
CUresult soft_fill_plane(struct soft_fill *fill, uint64_t to, uint64_t pitch, uint32_t value, unsigned int element,
			 uint64_t width, uint64_t height);

/* Carries it out here and now: ILLEGAL_ADDRESS where the memory has gone meanwhile. */
CUresult soft_transfer_run(const struct soft_transfer *transfer);
CUresult soft_fill_run(const struct soft_fill *fill);

#endif
