// SPDX-License-Identifier: Apache-2.0
/*
 * Copies with an array on one side or on both. An array has no address: its side is a box, and bytes travel packed, row
 * after row and slice after slice, through up pieces and cells as those of other copies do (copy.c), in pieces that are
 * boxes themselves. Application threads.
 */
#include <stddef.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/array.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/streamword.h"

/* One side: in an array, or in memory with the first byte at @address. */
struct end {
	struct array *array; /* NULL: memory */
	uint64_t x, y, z;    /* in the array */
	uint64_t address, pitch, slice;
	uint64_t height; /* rows from slice to slice */
	enum place place;
};

struct box {
	struct end dst, src;
	uint64_t width, rows, depth;
	uint64_t stream;
	bool async;
};

/* A part of a box: from where on in it, and how much. */
struct part {
	uint64_t x, y, z;
	uint64_t width, rows, depth;
};

/* ---- checks ---- */

static bool inside(uint64_t at, uint64_t size, uint64_t all)
{
	return at <= all && size <= all - at;
}

static CUresult end_array(struct call *call, CUarray handle, const struct copy_side *side, const struct box *box,
			  struct end *end_out)
{
	struct array *array;
	CUresult result = array_find(call, handle, &array);

	if (result)
		return result;
	if (!inside(side->x, box->width, array->width) || !inside(side->y, box->rows, array->rows) ||
	    !inside(side->z, box->depth, array->layers))
		return CUDA_ERROR_INVALID_VALUE;
	if (side->x % array->element || box->width % array->element)
		return CUDA_ERROR_INVALID_VALUE;
	if (array->context != context_base(call->context))
		return call_refuse(call, "arrays are copied while their own context is current");
	*end_out = (struct end){ .array = array, .x = side->x, .y = side->y, .z = side->z, .place = PLACE_DEVICE };
	return CUDA_SUCCESS;
}

static CUresult end_memory(const struct copy_side *side, const struct box *box, struct end *end_out)
{
	uint64_t left, span, rows;
	CUresult result = copy_side_find(side, box->width, &end_out->pitch, &end_out->address, &end_out->place, &left);

	if (result)
		return result;
	end_out->height = side->height ? side->height : box->rows;
	if (box->depth > 1 && side->height < box->rows)
		return CUDA_ERROR_INVALID_VALUE;
	/* The last byte of the last row of the last slice has to be inside. */
	if (__builtin_mul_overflow(end_out->height, end_out->pitch, &end_out->slice) ||
	    __builtin_mul_overflow(end_out->slice, box->depth - 1, &span) ||
	    __builtin_mul_overflow(end_out->pitch, box->rows - 1, &rows) || __builtin_add_overflow(span, rows, &span) ||
	    __builtin_add_overflow(span, box->width, &span) || span > left || span > UINT64_MAX - end_out->address)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* ---- to an array ---- */

/* A part of the source's rows, one after the other. */
static void gather(uint8_t *to, const struct end *src, const struct part *p)
{
	for (uint64_t z = 0; z < p->depth; z++)
		for (uint64_t y = 0; y < p->rows; y++) {
			memcpy(to, (const void *)(uintptr_t)(src->address + (p->z + z) * src->slice +
							     (p->y + y) * src->pitch + p->x), p->width);
			to += p->width;
		}
}

static CUresult part_up(struct call *call, const struct box *box, const struct part *p)
{
	struct msg_gleamArrayUp m = { .stream = box->stream, .array = box->dst.array->handle,
				      .x = box->dst.x + p->x, .y = box->dst.y + p->y, .z = box->dst.z + p->z,
				      .width = p->width, .rows = p->rows, .depth = p->depth };
	uint32_t size = (uint32_t)(p->width * p->rows * p->depth);
	void *bytes;
	CUresult result = session_up_take(call->session, size, &m.data, &bytes);

	if (result)
		return result;
	gather(bytes, &box->src, p);
	result = call_open_bulk(call, OP_gleamArrayUp, msg_gleamArrayUp_size(&m), FRAME_BULK_UP, &m.data);
	if (result)
		return result; /* the session has ended: the piece is nobody's any more */
	msg_gleamArrayUp_put(&call->w, &m);
	stream_note(call, box->stream, call_post(call));
	call_count_bytes(call, size);
	return CUDA_SUCCESS;
}

/* ---- from an array ---- */

static CUresult part_down(struct call *call, const struct box *box, const struct part *p)
{
	const struct end *dst = &box->dst;
	struct late_target target = {
		.bytes = (void *)(uintptr_t)(dst->address + p->z * dst->slice + p->y * dst->pitch + p->x),
		.width = p->width,
		.pitch = dst->pitch,
		.context = call->context->index,
		.rows = p->rows * p->depth, /* several slices only where they touch */
	};
	struct msg_gleamArrayDown m = { .stream = box->stream, .array = box->src.array->handle,
					.x = box->src.x + p->x, .y = box->src.y + p->y, .z = box->src.z + p->z,
					.width = p->width, .rows = p->rows, .depth = p->depth };
	uint32_t size = (uint32_t)(p->width * p->rows * p->depth);
	void *bytes;
	uint64_t seq;
	CUresult result = session_cells_take(call->session, size, &m.cells, &bytes);

	if (result)
		return result;
	result = late_add(call->session, &stream_find(call, box->stream)->late, &m.cells, &target);
	if (result) {
		session_cells_give(call->session, &m.cells);
		return result;
	}
	result = call_open_bulk(call, OP_gleamArrayDown, msg_gleamArrayDown_size(&m), FRAME_BULK_DOWN, &m.cells);
	if (result) {
		late_cancel(call->session, &m.cells);
		return result;
	}
	msg_gleamArrayDown_put(&call->w, &m);
	seq = call_post(call);
	late_posted(call->session, &m.cells, seq);
	stream_note(call, box->stream, seq);
	call_count_bytes(call, size);
	return CUDA_SUCCESS;
}

/* ---- pieces ---- */

/* The box in parts of one piece's size at most: whole slices, or rows, or what fits of one row. */
static CUresult parts(struct call *call, const struct box *box, bool slices,
		      CUresult (*each)(struct call *call, const struct box *box, const struct part *part))
{
	uint64_t width = box->width < SESSION_CELL_SIZE ? box->width : SESSION_CELL_SIZE; /* elements divide it */
	uint64_t rows_fit = SESSION_CELL_SIZE / width;
	uint64_t rows = rows_fit < box->rows ? rows_fit : box->rows;
	uint64_t depth = slices && rows == box->rows && width == box->width ? rows_fit / rows : 1;
	CUresult result = CUDA_SUCCESS;

	for (uint64_t z = 0; z < box->depth && !result; z += depth)
		for (uint64_t y = 0; y < box->rows && !result; y += rows)
			for (uint64_t x = 0; x < box->width && !result; x += width) {
				struct part part = { .x = x, .y = y, .z = z };

				part.width = box->width - x < width ? box->width - x : width;
				part.rows = box->rows - y < rows ? box->rows - y : rows;
				part.depth = box->depth - z < depth ? box->depth - z : depth;
				result = each(call, box, &part);
			}
	return result;
}

static CUresult box_up(struct call *call, const struct box *box)
{
	const struct end *src = &box->src;
	struct stream *stream = stream_find(call, box->stream);
	CUresult result;

	/* The source may be filled after this call, when the stream's wait for the host has ended. */
	if (src->place == PLACE_PINNED && streamword_waiting()) {
		if (box->async)
			return call_refuse(call, "page-locked memory goes to an array only while no stream waits for the host");
		result = stream_wait(call, stream);
	} else {
		result = copy_source_wait(call, src->place, src->address,
					  (box->depth - 1) * src->slice + (box->rows - 1) * src->pitch + box->width);
	}
	if (!result)
		result = parts(call, box, true, part_up);
	if (result || box->async)
		return result;
	/* As in copy_run(). */
	if (stream_shows(call, stream))
		return stream_wait(call, stream);
	return fence_raise(call, box->stream);
}

static CUresult box_down(struct call *call, const struct box *box)
{
	bool touching = box->dst.slice == box->rows * box->dst.pitch;
	CUresult result = parts(call, box, touching, part_down);

	if (!result && !(box->async && box->dst.place == PLACE_PINNED))
		result = stream_wait(call, stream_find(call, box->stream));
	return result;
}

static CUresult box_device(struct call *call, const struct box *box)
{
	const struct end *dst = &box->dst, *src = &box->src;
	struct msg_gleamArrayCopy m = {
		.stream = box->stream,
		.dst_array = dst->array ? dst->array->handle : 0, .dst = dst->address, .dst_pitch = dst->pitch,
		.dst_height = dst->height, .dst_x = dst->x, .dst_y = dst->y, .dst_z = dst->z,
		.src_array = src->array ? src->array->handle : 0, .src = src->address, .src_pitch = src->pitch,
		.src_height = src->height, .src_x = src->x, .src_y = src->y, .src_z = src->z,
		.width = box->width, .rows = box->rows, .depth = box->depth,
	};
	CUresult result = call_open(call, OP_gleamArrayCopy, msg_gleamArrayCopy_size(&m));

	if (result)
		return result;
	msg_gleamArrayCopy_put(&call->w, &m);
	stream_note(call, box->stream, call_post(call));
	return CUDA_SUCCESS;
}

/* As in copy.c: the side that is no array may be managed. */
static CUresult regions_use(struct call *call, const struct box *box)
{
	const struct end *end = box->dst.array ? &box->src : &box->dst;
	uint64_t span = (box->depth - 1) * end->slice + (box->rows - 1) * end->pitch + box->width;

	if (end->array || end->place != PLACE_DEVICE)
		return CUDA_SUCCESS;
	return region_use(call, box->stream, end->address, span, !box->dst.array);
}

CUresult copy_array_box(struct call *call, const CUDA_MEMCPY3D *copy, CUstream hStream, bool async)
{
	const struct copy_side dst = { copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstPitch,
				       copy->dstHeight, copy->dstXInBytes, copy->dstY, copy->dstZ };
	const struct copy_side src = { copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcPitch,
				       copy->srcHeight, copy->srcXInBytes, copy->srcY, copy->srcZ };
	struct box box = { .width = copy->WidthInBytes, .rows = copy->Height, .depth = copy->Depth, .async = async };
	bool captured;
	CUresult result = copy_stream(call, hStream, async, &box.stream, &captured);

	if (result)
		return result;
	if (copy->srcLOD || copy->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	if (!box.width || !box.rows || !box.depth)
		return CUDA_SUCCESS;
	/* Arrays first: their extents bound what is multiplied for the other side. */
	if (dst.type == CU_MEMORYTYPE_ARRAY)
		result = end_array(call, copy->dstArray, &dst, &box, &box.dst);
	if (!result && src.type == CU_MEMORYTYPE_ARRAY)
		result = end_array(call, copy->srcArray, &src, &box, &box.src);
	if (!result && dst.type != CU_MEMORYTYPE_ARRAY)
		result = end_memory(&dst, &box, &box.dst);
	if (!result && src.type != CU_MEMORYTYPE_ARRAY)
		result = end_memory(&src, &box, &box.src);
	if (result)
		return result;
	if (captured) {
		struct graph_work work;

		result = graph_work_copy(call, copy, NULL, &work);
		return result ? result : capture_add(call, box.stream, &work);
	}
	if ((dst.type != CU_MEMORYTYPE_ARRAY && across_owner(call, box.dst.address)) ||
	    (src.type != CU_MEMORYTYPE_ARRAY && across_owner(call, box.src.address)))
		return call_refuse(call, "an array is copied to and from memory of its own server's GPUs, or of the host");
	if (region_any())
		result = regions_use(call, &box);
	if (result)
		return result;
	if (box.src.place != PLACE_DEVICE)
		return box_up(call, &box);
	if (box.dst.place != PLACE_DEVICE)
		return box_down(call, &box);
	return box_device(call, &box);
}

/* ---- the first row of an array ---- */

/* Bytes from @offset on of an array's first row, on either side or on both. */
static CUresult line(struct call *call, CUDA_MEMCPY3D *copy, size_t size, CUstream hStream, bool async)
{
	copy->WidthInBytes = size;
	copy->Height = 1;
	copy->Depth = 1;
	return copy_array_box(call, copy, hStream, async);
}

#define TO_ARRAY(array, offset) \
	.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = (array), .dstXInBytes = (offset)
#define FROM_ARRAY(array, offset) \
	.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = (array), .srcXInBytes = (offset)

CUresult do_cuMemcpyAtoA_v2(struct call *call, CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
			    size_t ByteCount)
{
	CUDA_MEMCPY3D copy = { TO_ARRAY(dstArray, dstOffset), FROM_ARRAY(srcArray, srcOffset) };

	return line(call, &copy, ByteCount, NULL, false);
}

CUresult do_cuMemcpyAtoD_v2(struct call *call, CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	CUDA_MEMCPY3D copy = { .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dstDevice,
			       FROM_ARRAY(srcArray, srcOffset) };

	return line(call, &copy, ByteCount, NULL, false);
}

CUresult do_cuMemcpyDtoA_v2(struct call *call, CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
	CUDA_MEMCPY3D copy = { TO_ARRAY(dstArray, dstOffset), .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = srcDevice };

	return line(call, &copy, ByteCount, NULL, false);
}

static CUresult array_to_host(struct call *call, void *dst, CUarray array, size_t offset, size_t size, CUstream hStream,
			      bool async)
{
	CUDA_MEMCPY3D copy = { .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = dst, FROM_ARRAY(array, offset) };

	return line(call, &copy, size, hStream, async);
}

static CUresult host_to_array(struct call *call, CUarray array, size_t offset, const void *src, size_t size,
			      CUstream hStream, bool async)
{
	CUDA_MEMCPY3D copy = { TO_ARRAY(array, offset), .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = src };

	return line(call, &copy, size, hStream, async);
}

CUresult do_cuMemcpyAtoH_v2(struct call *call, void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
	return array_to_host(call, dstHost, srcArray, srcOffset, ByteCount, NULL, false);
}

CUresult do_cuMemcpyAtoHAsync_v2(struct call *call, void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
				 CUstream hStream)
{
	return array_to_host(call, dstHost, srcArray, srcOffset, ByteCount, hStream, true);
}

CUresult do_cuMemcpyHtoA_v2(struct call *call, CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount)
{
	return host_to_array(call, dstArray, dstOffset, srcHost, ByteCount, NULL, false);
}

CUresult do_cuMemcpyHtoAAsync_v2(struct call *call, CUarray dstArray, size_t dstOffset, const void *srcHost,
				 size_t ByteCount, CUstream hStream)
{
	return host_to_array(call, dstArray, dstOffset, srcHost, ByteCount, hStream, true);
}

/* The first API's sizes and addresses had 32 bits. */

CUresult do_cuMemcpyAtoA(struct call *call, CUarray dstArray, unsigned int dstOffset, CUarray srcArray,
			 unsigned int srcOffset, unsigned int ByteCount)
{
	return do_cuMemcpyAtoA_v2(call, dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult do_cuMemcpyAtoD(struct call *call, CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
			 unsigned int ByteCount)
{
	return do_cuMemcpyAtoD_v2(call, dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult do_cuMemcpyDtoA(struct call *call, CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
			 unsigned int ByteCount)
{
	return do_cuMemcpyDtoA_v2(call, dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult do_cuMemcpyAtoH(struct call *call, void *dstHost, CUarray srcArray, unsigned int srcOffset,
			 unsigned int ByteCount)
{
	return array_to_host(call, dstHost, srcArray, srcOffset, ByteCount, NULL, false);
}

CUresult do_cuMemcpyAtoHAsync(struct call *call, void *dstHost, CUarray srcArray, unsigned int srcOffset,
			      unsigned int ByteCount, CUstream hStream)
{
	return array_to_host(call, dstHost, srcArray, srcOffset, ByteCount, hStream, true);
}

CUresult do_cuMemcpyHtoA(struct call *call, CUarray dstArray, unsigned int dstOffset, const void *srcHost,
			 unsigned int ByteCount)
{
	return host_to_array(call, dstArray, dstOffset, srcHost, ByteCount, NULL, false);
}

CUresult do_cuMemcpyHtoAAsync(struct call *call, CUarray dstArray, unsigned int dstOffset, const void *srcHost,
			      unsigned int ByteCount, CUstream hStream)
{
	return host_to_array(call, dstArray, dstOffset, srcHost, ByteCount, hStream, true);
}
