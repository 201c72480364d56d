// SPDX-License-Identifier: Apache-2.0
/*
 * The many forms of cuMemcpy and cuMemset, brought down to copy_run() and to one message per kind of memset. Here the
 * driver's own checks are made. Application threads.
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
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/stream.h"

/* ---- capture ---- */

CUresult copy_stream(struct call *call, CUstream hStream, bool async, uint64_t *stream_out, bool *captured_out)
{
	*captured_out = false;
	return async ? call_stream_captured(call, hStream, stream_out, captured_out) :
		       call_stream(call, hStream, stream_out);
}

static CUresult copy_captured(struct call *call, uint64_t stream, const struct graph_box *box)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEMCPY, .context = call->context,
				   .copy = graph_box_params(box) };

	return capture_add(call, stream, &work);
}

static CUresult fill_captured(struct call *call, uint64_t stream, CUdeviceptr dst, uint64_t pitch, uint32_t value,
			      uint32_t element, uint64_t width, uint64_t rows)
{
	struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_MEMSET, .context = call->context,
				   .fill = { .dst = dst, .pitch = pitch, .value = value, .elementSize = element,
					     .width = width, .height = rows } };

	return capture_add(call, stream, &work);
}

/* ---- linear ---- */

/* @want_dst, @want_src: PLACE_DEVICE if the function's name says so, PLACE_PAGEABLE for a host side; -1: by address. */
static CUresult linear(struct call *call, uint64_t dst, int want_dst, uint64_t src, int want_src, size_t size,
		       CUstream hStream, bool async)
{
	struct copy c = { .dst = dst, .src = src, .width = size, .rows = 1, .async = async };
	uint64_t dst_left, src_left;
	bool captured;
	CUresult result = copy_stream(call, hStream, async, &c.stream, &captured);

	if (result)
		return result;
	if (!size)
		return CUDA_SUCCESS;
	c.dst_place = place_host(&c.dst, &dst_left);
	c.src_place = place_host(&c.src, &src_left);
	/* Host memory that is page-locked counts as a device address too: addresses are unified. */
	if (want_dst == PLACE_DEVICE && c.dst_place == PLACE_PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (want_src == PLACE_DEVICE && c.src_place == PLACE_PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!dst || !src)
		return CUDA_ERROR_INVALID_VALUE;
	if ((size > dst_left && !place_holds(dst, size)) || (size > src_left && !place_holds(src, size)))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_expect(captured, 0)) {
		struct graph_box box = { .dst = c.dst, .dst_pitch = size, .dst_height = 1, .src = c.src, .src_pitch = size,
					 .src_height = 1, .width = size, .rows = 1, .depth = 1,
					 .dst_place = c.dst_place, .src_place = c.src_place };

		return copy_captured(call, c.stream, &box);
	}
	if (!async)
		result = peer_copy_order(call, dst, src, false);
	if (!result)
		result = copy_run(call, &c);
	return result || async ? result : peer_copy_order(call, dst, src, true);
}

#define HOST(pointer) ((uint64_t)(uintptr_t)(pointer))

CUresult do_cuMemcpy(struct call *call, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
	return linear(call, dst, -1, src, -1, ByteCount, NULL, false);
}

CUresult do_cuMemcpyAsync(struct call *call, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
	return linear(call, dst, -1, src, -1, ByteCount, hStream, true);
}

CUresult do_cuMemcpyHtoD_v2(struct call *call, CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return linear(call, dstDevice, PLACE_DEVICE, HOST(srcHost), PLACE_PAGEABLE, ByteCount, NULL, false);
}

CUresult do_cuMemcpyHtoDAsync_v2(struct call *call, CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
				 CUstream hStream)
{
	return linear(call, dstDevice, PLACE_DEVICE, HOST(srcHost), PLACE_PAGEABLE, ByteCount, hStream, true);
}

CUresult do_cuMemcpyDtoH_v2(struct call *call, void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear(call, HOST(dstHost), PLACE_PAGEABLE, srcDevice, PLACE_DEVICE, ByteCount, NULL, false);
}

CUresult do_cuMemcpyDtoHAsync_v2(struct call *call, void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
				 CUstream hStream)
{
	return linear(call, HOST(dstHost), PLACE_PAGEABLE, srcDevice, PLACE_DEVICE, ByteCount, hStream, true);
}

CUresult do_cuMemcpyDtoD_v2(struct call *call, CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
	return linear(call, dstDevice, PLACE_DEVICE, srcDevice, PLACE_DEVICE, ByteCount, NULL, false);
}

CUresult do_cuMemcpyDtoDAsync_v2(struct call *call, CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
				 CUstream hStream)
{
	return linear(call, dstDevice, PLACE_DEVICE, srcDevice, PLACE_DEVICE, ByteCount, hStream, true);
}

static CUresult peer_check(CUcontext dst, CUcontext src)
{
	struct context *a = context_find(dst), *b = context_find(src);

	if (!a || !b)
		return CUDA_ERROR_INVALID_CONTEXT;
	return a->active && b->active ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult do_cuMemcpyPeer(struct call *call, CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			 CUcontext srcContext, size_t ByteCount)
{
	CUresult result = peer_check(dstContext, srcContext);

	return result ? result : linear(call, dstDevice, PLACE_DEVICE, srcDevice, PLACE_DEVICE, ByteCount, NULL, false);
}

CUresult do_cuMemcpyPeerAsync(struct call *call, CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
			      CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
	CUresult result = peer_check(dstContext, srcContext);

	return result ? result :
			linear(call, dstDevice, PLACE_DEVICE, srcDevice, PLACE_DEVICE, ByteCount, hStream, true);
}

/* The first API's addresses had 32 bits; ours never do, so none of them can be one of ours. */

CUresult do_cuMemcpyHtoD(struct call *call, CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount)
{
	return do_cuMemcpyHtoD_v2(call, dstDevice, srcHost, ByteCount);
}

CUresult do_cuMemcpyHtoDAsync(struct call *call, CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount,
			      CUstream hStream)
{
	return do_cuMemcpyHtoDAsync_v2(call, dstDevice, srcHost, ByteCount, hStream);
}

CUresult do_cuMemcpyDtoH(struct call *call, void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return do_cuMemcpyDtoH_v2(call, dstHost, srcDevice, ByteCount);
}

CUresult do_cuMemcpyDtoHAsync(struct call *call, void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
			      CUstream hStream)
{
	return do_cuMemcpyDtoHAsync_v2(call, dstHost, srcDevice, ByteCount, hStream);
}

CUresult do_cuMemcpyDtoD(struct call *call, CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return do_cuMemcpyDtoD_v2(call, dstDevice, srcDevice, ByteCount);
}

CUresult do_cuMemcpyDtoDAsync(struct call *call, CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
			      unsigned int ByteCount, CUstream hStream)
{
	return do_cuMemcpyDtoDAsync_v2(call, dstDevice, srcDevice, ByteCount, hStream);
}

/* ---- 2D and 3D ---- */

CUresult copy_side_find(const struct copy_side *s, uint64_t width, uint64_t *pitch_out, uint64_t *address_out,
			enum place *place_out, uint64_t *left_out)
{
	uint64_t base;

	if (s->type == CU_MEMORYTYPE_HOST)
		base = HOST(s->host);
	else if (s->type == CU_MEMORYTYPE_DEVICE || s->type == CU_MEMORYTYPE_UNIFIED)
		base = s->device;
	else
		return CUDA_ERROR_INVALID_VALUE;
	*pitch_out = s->pitch ? s->pitch : width + s->x;
	if (s->x > *pitch_out || width > *pitch_out - s->x)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->y > DEVICE_SPAN_MAX / *pitch_out || (s->height && s->z > DEVICE_SPAN_MAX / *pitch_out / s->height))
		return CUDA_ERROR_INVALID_VALUE;
	*address_out = base + s->x + s->y * *pitch_out + s->z * s->height * *pitch_out;
	*place_out = place_host(address_out, left_out);
	if (!base || (s->type == CU_MEMORYTYPE_DEVICE && *place_out == PLACE_PAGEABLE))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult boxes(struct call *call, const struct copy_side *dst, const struct copy_side *src, uint64_t width, uint64_t height,
		      uint64_t depth, CUstream hStream, bool async)
{
	struct copy c = { .width = width, .rows = height, .async = async };
	uint64_t dst_left, src_left;
	bool captured;
	CUresult result = copy_stream(call, hStream, async, &c.stream, &captured);

	if (result)
		return result;
	if (!width || !height || !depth)
		return CUDA_SUCCESS;
	if (width > DEVICE_SPAN_MAX || height > DEVICE_SPAN_MAX || depth > DEVICE_SPAN_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	result = copy_side_find(dst, width, &c.dst_pitch, &c.dst, &c.dst_place, &dst_left);
	if (!result)
		result = copy_side_find(src, width, &c.src_pitch, &c.src, &c.src_place, &src_left);
	if (result)
		return result;

	/* The last byte of the last row of the last slice has to be inside. */
	uint64_t dst_slice = dst->height * c.dst_pitch, src_slice = src->height * c.src_pitch;

	if (depth > 1 && (dst->height < height || src->height < height))
		return CUDA_ERROR_INVALID_VALUE;

	uint64_t dst_span = (depth - 1) * dst_slice + (height - 1) * c.dst_pitch + width;
	uint64_t src_span = (depth - 1) * src_slice + (height - 1) * c.src_pitch + width;

	if ((dst_span > dst_left && !place_holds(c.dst, dst_span)) || (src_span > src_left && !place_holds(c.src, src_span)))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_expect(captured, 0)) {
		struct graph_box box = { .dst = c.dst, .dst_pitch = c.dst_pitch,
					 .dst_height = dst->height ? dst->height : height,
					 .src = c.src, .src_pitch = c.src_pitch,
					 .src_height = src->height ? src->height : height,
					 .width = width, .rows = height, .depth = depth,
					 .dst_place = c.dst_place, .src_place = c.src_place };

		return copy_captured(call, c.stream, &box);
	}
	for (uint64_t z = 0; z < depth && !result; z++) {
		result = copy_run(call, &c);
		c.dst += dst_slice;
		c.src += src_slice;
	}
	return result;
}

static CUresult run_2d(struct call *call, const CUDA_MEMCPY2D *p, CUstream hStream, bool async)
{
	struct copy_side dst, src;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		CUDA_MEMCPY3D box = {
			.srcXInBytes = p->srcXInBytes, .srcY = p->srcY, .srcMemoryType = p->srcMemoryType,
			.srcHost = p->srcHost, .srcDevice = p->srcDevice, .srcArray = p->srcArray, .srcPitch = p->srcPitch,
			.dstXInBytes = p->dstXInBytes, .dstY = p->dstY, .dstMemoryType = p->dstMemoryType,
			.dstHost = p->dstHost, .dstDevice = p->dstDevice, .dstArray = p->dstArray, .dstPitch = p->dstPitch,
			.WidthInBytes = p->WidthInBytes, .Height = p->Height, .Depth = 1,
		};

		return copy_array_box(call, &box, hStream, async);
	}
	src = (struct copy_side){ p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, 0, p->srcXInBytes, p->srcY, 0 };
	dst = (struct copy_side){ p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, 0, p->dstXInBytes, p->dstY, 0 };
	return boxes(call, &dst, &src, p->WidthInBytes, p->Height, 1, hStream, async);
}

static CUresult run_3d(struct call *call, const CUDA_MEMCPY3D *p, CUstream hStream, bool async)
{
	struct copy_side dst, src;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return copy_array_box(call, p, hStream, async);
	src = (struct copy_side){ p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, p->srcHeight, p->srcXInBytes,
			     p->srcY, p->srcZ };
	dst = (struct copy_side){ p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, p->dstHeight, p->dstXInBytes,
			     p->dstY, p->dstZ };
	if (p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	return boxes(call, &dst, &src, p->WidthInBytes, p->Height, p->Depth, hStream, async);
}

CUresult do_cuMemcpy2D_v2(struct call *call, const CUDA_MEMCPY2D *pCopy)
{
	return run_2d(call, pCopy, NULL, false);
}

CUresult do_cuMemcpy2DUnaligned_v2(struct call *call, const CUDA_MEMCPY2D *pCopy)
{
	return run_2d(call, pCopy, NULL, false);
}

CUresult do_cuMemcpy2DAsync_v2(struct call *call, const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
	return run_2d(call, pCopy, hStream, true);
}

CUresult do_cuMemcpy3D_v2(struct call *call, const CUDA_MEMCPY3D *pCopy)
{
	return run_3d(call, pCopy, NULL, false);
}

CUresult do_cuMemcpy3DAsync_v2(struct call *call, const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
	return run_3d(call, pCopy, hStream, true);
}

static CUresult run_3d_peer(struct call *call, const CUDA_MEMCPY3D_PEER *p, CUstream hStream, bool async)
{
	struct copy_side dst, src;
	CUresult result;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	result = peer_check(p->dstContext, p->srcContext);
	if (result)
		return result;
	if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
		CUDA_MEMCPY3D box;

		/* The same but for the words that name the contexts. */
		static_assert(sizeof(box) == sizeof(*p), "both forms have one layout");
		memcpy(&box, p, sizeof(box));
		return copy_array_box(call, &box, hStream, async);
	}
	src = (struct copy_side){ p->srcMemoryType, p->srcHost, p->srcDevice, p->srcPitch, p->srcHeight, p->srcXInBytes,
			     p->srcY, p->srcZ };
	dst = (struct copy_side){ p->dstMemoryType, p->dstHost, p->dstDevice, p->dstPitch, p->dstHeight, p->dstXInBytes,
			     p->dstY, p->dstZ };
	if (!async)
		result = peer_copy_order(call, p->dstDevice, p->srcDevice, false);
	if (!result)
		result = boxes(call, &dst, &src, p->WidthInBytes, p->Height, p->Depth, hStream, async);
	return result || async ? result : peer_copy_order(call, p->dstDevice, p->srcDevice, true);
}

CUresult do_cuMemcpy3DPeer(struct call *call, const CUDA_MEMCPY3D_PEER *pCopy)
{
	return run_3d_peer(call, pCopy, NULL, false);
}

CUresult do_cuMemcpy3DPeerAsync(struct call *call, const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
	return run_3d_peer(call, pCopy, hStream, true);
}

/* ---- batches ---- */

CUresult do_cuMemcpyBatchAsync_v2(struct call *call, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
				  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream)
{
	CUresult result = CUDA_SUCCESS;

	/* The driver wants a real stream here, and attributes that begin with the first copy. */
	if (!dsts || !srcs || !sizes || !count || !attrs || !attrsIdxs || !numAttrs || numAttrs > count || attrsIdxs[0] ||
	    !hStream || hStream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	/* Sources are read before the call returns, which every access order allows. */
	for (size_t i = 0; i < count && !result; i++)
		result = linear(call, dsts[i], -1, srcs[i], -1, sizes[i], hStream, true);
	return result;
}

CUresult do_cuMemcpyBatchAsync(struct call *call, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			       CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
			       CUstream hStream)
{
	CUresult result = do_cuMemcpyBatchAsync_v2(call, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);

	if (result && failIdx)
		*failIdx = SIZE_MAX;
	return result;
}

/* One side of a box of a batch; sizes are in elements of the array, or bytes where there is none. */
static CUresult operand_check(struct call *call, const CUmemcpy3DOperand *operand, struct array **array_out)
{
	*array_out = NULL;
	if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
		return operand->op.ptr.ptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	return array_find(call, operand->op.array.array, array_out);
}

static CUresult batch_box(struct call *call, const CUDA_MEMCPY3D_BATCH_OP *op, CUstream hStream)
{
	struct array *src_array, *dst_array;
	const CUmemcpy3DOperand *src = &op->src, *dst = &op->dst;
	size_t element = 1, width = op->extent.width, height = op->extent.height;
	CUDA_MEMCPY3D box = { .Height = height, .Depth = op->extent.depth };
	CUresult result = operand_check(call, src, &src_array);

	if (!result)
		result = operand_check(call, dst, &dst_array);
	if (result)
		return result;
	if (op->srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || op->srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
		return CUDA_ERROR_INVALID_VALUE;
	if (src_array || dst_array)
		element = (src_array ? src_array : dst_array)->element;
	if (width > DEVICE_SPAN_MAX || height > DEVICE_SPAN_MAX || op->extent.depth > DEVICE_SPAN_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	box.WidthInBytes = width * element;
	if (src_array) {
		box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		box.srcArray = src->op.array.array;
		box.srcXInBytes = src->op.array.offset.x * element;
		box.srcY = src->op.array.offset.y;
		box.srcZ = src->op.array.offset.z;
	} else {
		if ((src->op.ptr.rowLength && src->op.ptr.rowLength < width) || src->op.ptr.rowLength > DEVICE_SPAN_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		box.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		box.srcDevice = src->op.ptr.ptr;
		box.srcPitch = (src->op.ptr.rowLength ? src->op.ptr.rowLength : width) * element;
		box.srcHeight = src->op.ptr.layerHeight ? src->op.ptr.layerHeight : height;
	}
	if (dst_array) {
		box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		box.dstArray = dst->op.array.array;
		box.dstXInBytes = dst->op.array.offset.x * element;
		box.dstY = dst->op.array.offset.y;
		box.dstZ = dst->op.array.offset.z;
	} else {
		if ((dst->op.ptr.rowLength && dst->op.ptr.rowLength < width) || dst->op.ptr.rowLength > DEVICE_SPAN_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		box.dstDevice = dst->op.ptr.ptr;
		box.dstPitch = (dst->op.ptr.rowLength ? dst->op.ptr.rowLength : width) * element;
		box.dstHeight = dst->op.ptr.layerHeight ? dst->op.ptr.layerHeight : height;
	}
	return run_3d(call, &box, hStream, true);
}

CUresult do_cuMemcpy3DBatchAsync_v2(struct call *call, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
				    unsigned long long flags, CUstream hStream)
{
	CUresult result = CUDA_SUCCESS;

	if (!numOps || !opList || flags || !hStream || hStream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < numOps && !result; i++)
		result = batch_box(call, &opList[i], hStream);
	return result;
}

CUresult do_cuMemcpy3DBatchAsync(struct call *call, size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
				 unsigned long long flags, CUstream hStream)
{
	CUresult result = do_cuMemcpy3DBatchAsync_v2(call, numOps, opList, flags, hStream);

	if (result && failIdx)
		*failIdx = SIZE_MAX;
	return result;
}

/* ---- memset ---- */

static CUresult set_check(struct call *call, CUdeviceptr dst, uint64_t pitch, uint64_t width, uint64_t rows)
{
	uint64_t left;

	enum place place = place_of(dst, &left);
	CUresult result;

	if (place == PLACE_PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	if (width > DEVICE_SPAN_MAX || (rows > 1 && (pitch < width || rows - 1 > DEVICE_SPAN_MAX / pitch)))
		return CUDA_ERROR_INVALID_VALUE;
	if (width > left || (rows - 1) * pitch > left - width)
		if (!place_holds(dst, (rows - 1) * pitch + width))
			return CUDA_ERROR_INVALID_VALUE;
	if (place != PLACE_PINNED)
		return CUDA_SUCCESS;
	/* The device writes to host memory: to the worker's mirror of it. What the host has written there is older. */
	result = exposed_need(call, dst);
	if (!result)
		exposed_push(call);
	return result;
}

/* Memory of the host is filled when a synchronous fill returns. */
static CUresult set_end(struct call *call, CUdeviceptr dst, CUresult result)
{
	uint64_t left, stream;

	if (result || place_of(dst, &left) != PLACE_PINNED)
		return result;
	result = call_stream(call, NULL, &stream);
	return result ? result : stream_wait(call, stream_find(call, stream));
}

#define MEMSET(bits, value_type, value)                                                                         \
	static CUresult cuMemsetD##bits##Async_there(struct call *call, uint64_t stream, const void *message)\
	{                                                                                                \
		struct msg_cuMemsetD##bits##Async m;                                                     \
		CUresult result;                                                                         \
                                                                                                         \
		memcpy(&m, message, sizeof(m));                                                          \
		m.hStream = stream;                                                                      \
		result = call_open(call, OP_cuMemsetD##bits##Async, msg_cuMemsetD##bits##Async_size(&m));\
		if (result)                                                                              \
			return result;                                                                   \
		msg_cuMemsetD##bits##Async_put(&call->w, &m);                                            \
		stream_note(call, stream, call_post(call));                                              \
		return CUDA_SUCCESS;                                                                     \
	}                                                                                                \
	static CUresult cuMemsetD2D##bits##Async_there(struct call *call, uint64_t stream, const void *message)\
	{                                                                                                \
		struct msg_cuMemsetD2D##bits##Async m;                                                   \
		CUresult result;                                                                         \
                                                                                                         \
		memcpy(&m, message, sizeof(m));                                                          \
		m.hStream = stream;                                                                      \
		result = call_open(call, OP_cuMemsetD2D##bits##Async, msg_cuMemsetD2D##bits##Async_size(&m));\
		if (result)                                                                              \
			return result;                                                                   \
		msg_cuMemsetD2D##bits##Async_put(&call->w, &m);                                          \
		stream_note(call, stream, call_post(call));                                              \
		return CUDA_SUCCESS;                                                                     \
	}                                                                                                \
	CUresult do_cuMemsetD##bits##Async(struct call *call, CUdeviceptr dstDevice, value_type value, size_t N, \
					   CUstream hStream)                                                     \
	{                                                                                                        \
		struct msg_cuMemsetD##bits##Async m = { .dstDevice = dstDevice, .value = value, .N = N };        \
		bool captured;                                                                                   \
		CUresult result = call_stream_captured(call, hStream, &m.hStream, &captured);                    \
                                                                                                                 \
		if (result || !N)                                                                                \
			return result;                                                                           \
		if (N > DEVICE_SPAN_MAX || dstDevice % (bits / 8))                                               \
			return CUDA_ERROR_INVALID_VALUE;                                                         \
		result = set_check(call, dstDevice, 0, N * (bits / 8), 1);                                             \
		if (!result && __builtin_expect(captured, 0))                                                    \
			return fill_captured(call, m.hStream, dstDevice, N * (bits / 8), value, bits / 8, N, 1); \
		if (!result && across_any() && across_owner(call, dstDevice))                            \
			return across_run(call, m.hStream, across_owner(call, dstDevice),                \
					  cuMemsetD##bits##Async_there, &m, sizeof(m), true);            \
		if (!result && region_any())                                                                     \
			result = region_use(call, m.hStream, dstDevice, N * (bits / 8), true);                           \
		m.dstDevice = exposed_device(m.dstDevice);                                               \
		if (!result)                                                                                     \
			result = call_open(call, OP_cuMemsetD##bits##Async, msg_cuMemsetD##bits##Async_size(&m)); \
		if (result)                                                                                      \
			return result;                                                                           \
		msg_cuMemsetD##bits##Async_put(&call->w, &m);                                                    \
		stream_note(call, m.hStream, call_post(call));                                                   \
		return CUDA_SUCCESS;                                                                             \
	}                                                                                                        \
	CUresult do_cuMemsetD##bits##_v2(struct call *call, CUdeviceptr dstDevice, value_type value, size_t N)   \
	{                                                                                                        \
		return set_end(call, dstDevice, do_cuMemsetD##bits##Async(call, dstDevice, value, N, NULL));     \
	}                                                                                                        \
	CUresult do_cuMemsetD##bits(struct call *call, CUdeviceptr_v1 dstDevice, value_type value, unsigned int N) \
	{                                                                                                        \
		return do_cuMemsetD##bits##Async(call, dstDevice, value, N, NULL);                               \
	}                                                                                                        \
	CUresult do_cuMemsetD2D##bits##Async(struct call *call, CUdeviceptr dstDevice, size_t dstPitch,          \
					     value_type value, size_t Width, size_t Height, CUstream hStream)    \
	{                                                                                                        \
		struct msg_cuMemsetD2D##bits##Async m = { .dstDevice = dstDevice, .dstPitch = dstPitch,          \
							  .value = value, .Width = Width, .Height = Height };    \
		bool captured;                                                                                   \
		CUresult result = call_stream_captured(call, hStream, &m.hStream, &captured);                    \
                                                                                                                 \
		if (result || !Width || !Height)                                                                 \
			return result;                                                                           \
		if (Width > DEVICE_SPAN_MAX || Height > DEVICE_SPAN_MAX || dstPitch > DEVICE_SPAN_MAX ||         \
		    dstDevice % (bits / 8) || dstPitch % (bits / 8))                                             \
			return CUDA_ERROR_INVALID_VALUE;                                                         \
		result = set_check(call, dstDevice, dstPitch, Width * (bits / 8), Height);                             \
		if (!result && __builtin_expect(captured, 0))                                                    \
			return fill_captured(call, m.hStream, dstDevice, dstPitch, value, bits / 8, Width,       \
					     Height);                                                            \
		if (!result && across_any() && across_owner(call, dstDevice))                            \
			return across_run(call, m.hStream, across_owner(call, dstDevice),                \
					  cuMemsetD2D##bits##Async_there, &m, sizeof(m), true);          \
		if (!result && region_any())                                                                     \
			result = region_use(call, m.hStream, dstDevice, (Height - 1) * dstPitch + Width * (bits / 8),    \
					    true);                                                               \
		m.dstDevice = exposed_device(m.dstDevice);                                               \
		if (!result)                                                                                     \
			result = call_open(call, OP_cuMemsetD2D##bits##Async,                                    \
					   msg_cuMemsetD2D##bits##Async_size(&m));                               \
		if (result)                                                                                      \
			return result;                                                                           \
		msg_cuMemsetD2D##bits##Async_put(&call->w, &m);                                                  \
		stream_note(call, m.hStream, call_post(call));                                                   \
		return CUDA_SUCCESS;                                                                             \
	}                                                                                                        \
	CUresult do_cuMemsetD2D##bits##_v2(struct call *call, CUdeviceptr dstDevice, size_t dstPitch,            \
					   value_type value, size_t Width, size_t Height)                        \
	{                                                                                                        \
		return set_end(call, dstDevice, do_cuMemsetD2D##bits##Async(call, dstDevice, dstPitch, value, Width, \
									    Height, NULL));                  \
	}                                                                                                        \
	CUresult do_cuMemsetD2D##bits(struct call *call, CUdeviceptr_v1 dstDevice, unsigned int dstPitch,        \
				      value_type value, unsigned int Width, unsigned int Height)                 \
	{                                                                                                        \
		return do_cuMemsetD2D##bits##Async(call, dstDevice, dstPitch, value, Width, Height, NULL);       \
	}

MEMSET(8, unsigned char, uc)
MEMSET(16, unsigned short, us)
MEMSET(32, unsigned int, ui)
