/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between host and device memory. Any thread.
 */
#ifndef GLEAM_COPY_H
#define GLEAM_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;

/* More than any device has: sizes above it are refused before they are multiplied. */
#define DEVICE_SPAN_MAX (1ull << 40)

enum place {
	PLACE_PAGEABLE, /* host memory that CUDA does not know */
	PLACE_PINNED,	/* page-locked host memory */
	PLACE_DEVICE,
};

/* Where @address lies. @left_out: bytes from there to the end of its range; UINT64_MAX for pageable memory. */
enum place place_of(uint64_t address, uint64_t *left_out);

/*
 * Some rows of @width bytes. @async: as the ...Async functions mean it (page-locked memory may be read and written
 * later); otherwise the call returns when the copy is done as far as the program can see.
 */
struct copy {
	uint64_t dst, dst_pitch;
	uint64_t src, src_pitch;
	uint64_t width, rows;
	enum place dst_place, src_place;
	uint64_t stream; /* wire handle */
	bool async;
};
CUresult copy_run(struct call *call, const struct copy *copy);

#endif
