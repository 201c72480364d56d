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
/* The same; the device pointer of host memory becomes the host's own, by which alone it is copied. */
enum place place_host(uint64_t *address, uint64_t *left_out);
/* Are @size bytes from @address on all there? Mappings that lie side by side count as one. */
bool place_holds(uint64_t address, uint64_t size);

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

/*
 * The bytes alone, whatever else may lie there, between device and host: sent when this returns, or there. Both ends of
 * @copy are as their places say.
 */
CUresult copy_bytes_up(struct call *call, const struct copy *copy);
CUresult copy_bytes_down(struct call *call, const struct copy *copy);

/* What may still write to @span bytes of host memory at @src, which are about to be read, is waited for. */
CUresult copy_source_wait(struct call *call, enum place place, uint64_t src, uint64_t span);

/* One side of a copy of rows or boxes that is no array. */
struct copy_side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	uint64_t pitch;
	uint64_t height; /* rows of a slice, 3D only */
	uint64_t x, y, z;
};
/* The address of the side's first byte, and where it lies; bytes from there to the end of its range. */
CUresult copy_side_find(const struct copy_side *side, uint64_t width, uint64_t *pitch_out, uint64_t *address_out,
			enum place *place_out, uint64_t *left_out);
/* Copies that are synchronous can't be captured, though a thread's own stream may be capturing. */
CUresult copy_stream(struct call *call, CUstream hStream, bool async, uint64_t *stream_out, bool *captured_out);

/* copy_array.c: a box with an array on one side or on both. */
CUresult copy_array_box(struct call *call, const CUDA_MEMCPY3D *copy, CUstream hStream, bool async);

#endif
