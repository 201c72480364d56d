// SPDX-License-Identifier: Apache-2.0
/*
 * The copy and fill entry points. A copy that involves memory the device can't reach by itself has used it when the
 * call returns; all else is only queued by the asynchronous forms. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_array.h"
#include "broker/softgpu/soft_capture.h"
#include "broker/softgpu/soft_copy.h"
#include "broker/softgpu/soft_map.h"
#include "broker/softgpu/soft_work.h"

/* A pageable source up to this size is put aside, so that an asynchronous copy of it need not be waited for. */
#define STAGE_MAX ((uint64_t)64 << 10)

struct copy_command {
	struct soft_command command;
	struct soft_transfer transfer;
	uint8_t staged[];
};

struct fill_command {
	struct soft_command command;
	struct soft_fill fill;
};

static CUresult copy_run(struct soft_command *command, struct soft_stream *stream)
{
	return soft_transfer_run(&((struct copy_command *)command)->transfer);
}

static CUresult fill_run(struct soft_command *command, struct soft_stream *stream)
{
	return soft_fill_run(&((struct fill_command *)command)->fill);
}

static void plain_free(struct soft_command *command)
{
	free(command);
}

/* Device memory at both ends: even the synchronous forms only queue such copies. */
static bool copy_on_device(const struct soft_transfer *transfer)
{
	struct soft_range to, from;

	return transfer->to.known && transfer->from.known && soft_map_find(transfer->to.address, &to) &&
	       soft_map_find(transfer->from.address, &from) && !soft_range_on_host(&to) && !soft_range_on_host(&from);
}

static CUresult copy_submit(CUstream handle, const struct soft_transfer *transfer, bool async)
{
	bool nothing = !transfer->width || !transfer->height || !transfer->depth;
	bool stage = async && !transfer->from.known && transfer->width <= STAGE_MAX && transfer->height == 1 &&
		     transfer->depth == 1;
	bool wait = async ? !transfer->to.known || (!transfer->from.known && !stage) : !copy_on_device(transfer);
	struct soft_ticket *ticket = NULL;
	struct copy_command *copy;

	SOFT_STREAM_ARG(stream, handle);
	if (nothing)
		return CUDA_SUCCESS;
	if (soft_capturing(stream)) {
		struct soft_work work = { .type = CU_GRAPH_NODE_TYPE_MEMCPY };

		if (!async)
			return soft_capture_refuse(stream);
		work.copy.transfer = *transfer;
		work.copy.box = (CUDA_MEMCPY3D){
			.srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = transfer->from.address, .srcPitch = transfer->from.pitch,
			.dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = transfer->to.address, .dstPitch = transfer->to.pitch,
			.WidthInBytes = transfer->width, .Height = transfer->height, .Depth = transfer->depth,
		};
		return soft_capture_add(stream, &work);
	}
	copy = calloc(1, sizeof(*copy) + (stage ? transfer->width : 0));
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	copy->command.run = copy_run;
	copy->command.free = plain_free;
	copy->transfer = *transfer;
	if (stage) {
		memcpy(copy->staged, (const void *)(uintptr_t)transfer->from.address, transfer->width);
		copy->transfer.from.address = (uint64_t)(uintptr_t)copy->staged;
	}
	TRY(soft_stream_submit(stream, &copy->command, wait ? &ticket : NULL));
	if (!wait)
		return CUDA_SUCCESS;
	soft_ticket_wait(ticket);
	soft_ticket_put(ticket);
	return (CUresult)atomic_load(&soft_stream_context(stream)->error);
}

/* The device at which an address lies, where that isn't @context's; NULL otherwise. */
static struct soft_device *device_beyond(const struct soft_context *context, uint64_t address)
{
	struct soft_range range;

	if (!soft_map_find(address, &range) || soft_range_on_host(&range) || range.device == context->device->ordinal)
		return NULL;
	return soft_device_find(range.device);
}

/* A synchronous copy to or from another device comes behind that one's work, and before what it is given later. */
static CUresult copy_across(struct soft_context *context, uint64_t to, uint64_t from, bool *across_out)
{
	struct soft_device *devices[] = { device_beyond(context, to), device_beyond(context, from) };

	*across_out = false;
	for (int i = 0; i < 2; i++) {
		if (!devices[i])
			continue;
		*across_out = true;
		if (atomic_load(&devices[i]->primary->alive))
			TRY(soft_context_sync(devices[i]->primary));
	}
	return CUDA_SUCCESS;
}

static CUresult copy_linear(CUstream stream, uint64_t to, bool to_device, uint64_t from, bool from_device,
			    uint64_t size, bool async)
{
	struct soft_transfer transfer;
	bool across = false;

	SOFT_ENTER(context);
	TRY(soft_transfer_linear(&transfer, to, to_device, from, from_device, size));
	if (!async)
		TRY(copy_across(context, to, from, &across));
	TRY(copy_submit(stream, &transfer, async));
	return across ? soft_context_sync(context) : CUDA_SUCCESS;
}

#define HOST(pointer) ((uint64_t)(uintptr_t)(pointer))

SOFT_API(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_linear(NULL, to, false, from, false, size, false);
}

SOFT_API(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_linear(stream, to, false, from, false, size, true);
}

SOFT_API(cuMemcpyHtoD_v2, CUdeviceptr to, const void *from, size_t size)
{
	return copy_linear(NULL, to, true, HOST(from), false, size, false);
}

SOFT_API(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	return copy_linear(stream, to, true, HOST(from), false, size, true);
}

SOFT_API(cuMemcpyDtoH_v2, void *to, CUdeviceptr from, size_t size)
{
	return copy_linear(NULL, HOST(to), false, from, true, size, false);
}

SOFT_API(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_linear(stream, HOST(to), false, from, true, size, true);
}

SOFT_API(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_linear(NULL, to, true, from, true, size, false);
}

SOFT_API(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_linear(stream, to, true, from, true, size, true);
}

static CUresult copy_peer(CUstream stream, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
			  CUcontext from_context, size_t size, bool async)
{
	SOFT_HELD struct soft_context *first = NULL, *second = NULL;

	TRY(soft_ready());
	TRY(soft_context_find(to_context, &first));
	TRY(soft_context_find(from_context, &second));
	return copy_linear(stream, to, true, from, true, size, async);
}

SOFT_API(cuMemcpyPeer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size)
{
	return copy_peer(NULL, to, to_context, from, from_context, size, false);
}

SOFT_API(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
	 size_t size, CUstream stream)
{
	return copy_peer(stream, to, to_context, from, from_context, size, true);
}

static CUresult copy_box(CUstream stream, const CUDA_MEMCPY3D *copy, bool async)
{
	struct soft_transfer transfer;
	bool across = false;

	SOFT_ENTER(context);
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(soft_transfer_box(&transfer, copy));
	if (!async)
		TRY(copy_across(context, transfer.to.address, transfer.from.address, &across));
	TRY(copy_submit(stream, &transfer, async));
	return across ? soft_context_sync(context) : CUDA_SUCCESS;
}

static CUresult copy_flat(CUstream stream, const CUDA_MEMCPY2D *flat, bool async)
{
	CUDA_MEMCPY3D box;

	TRY(soft_ready());
	if (!flat)
		return CUDA_ERROR_INVALID_VALUE;
	box = (CUDA_MEMCPY3D){
		.srcXInBytes = flat->srcXInBytes,
		.srcY = flat->srcY,
		.srcMemoryType = flat->srcMemoryType,
		.srcHost = flat->srcHost,
		.srcDevice = flat->srcDevice,
		.srcArray = flat->srcArray,
		.srcPitch = flat->srcPitch,
		.dstXInBytes = flat->dstXInBytes,
		.dstY = flat->dstY,
		.dstMemoryType = flat->dstMemoryType,
		.dstHost = flat->dstHost,
		.dstDevice = flat->dstDevice,
		.dstArray = flat->dstArray,
		.dstPitch = flat->dstPitch,
		.WidthInBytes = flat->WidthInBytes,
		.Height = flat->Height,
		.Depth = 1,
	};
	return copy_box(stream, &box, async);
}

SOFT_API(cuMemcpy2D_v2, const CUDA_MEMCPY2D *copy)
{
	return copy_flat(NULL, copy, false);
}

SOFT_API(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *copy)
{
	return copy_flat(NULL, copy, false);
}

SOFT_API(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *copy, CUstream stream)
{
	return copy_flat(stream, copy, true);
}

SOFT_API(cuMemcpy3D_v2, const CUDA_MEMCPY3D *copy)
{
	return copy_box(NULL, copy, false);
}

SOFT_API(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *copy, CUstream stream)
{
	return copy_box(stream, copy, true);
}

static CUresult copy_box_peer(CUstream stream, const CUDA_MEMCPY3D *copy, bool async)
{
	SOFT_HELD struct soft_context *first = NULL, *second = NULL;

	TRY(soft_ready());
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	if (copy->srcMemoryType != CU_MEMORYTYPE_HOST)
		TRY(soft_context_find(copy->reserved0, &first));
	if (copy->dstMemoryType != CU_MEMORYTYPE_HOST)
		TRY(soft_context_find(copy->reserved1, &second));
	return copy_box(stream, copy, async);
}

SOFT_API(cuMemcpy3DPeer, const CUDA_MEMCPY3D *copy)
{
	return copy_box_peer(NULL, copy, false);
}

SOFT_API(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D *copy, CUstream stream)
{
	return copy_box_peer(stream, copy, true);
}

/* ---- arrays as rows of bytes: what the one-dimensional forms see ---- */

/* The address of @size bytes at @offset of an array's first row. */
static CUresult array_row(CUarray handle, size_t offset, size_t size, uint64_t *address_out)
{
	SOFT_ARRAY_ARG(array, handle);
	if (offset > array->pitch || size > array->pitch - offset)
		return CUDA_ERROR_INVALID_VALUE;
	*address_out = array->base + offset;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemcpyHtoA_v2, CUarray to, size_t offset, const void *from, size_t size)
{
	uint64_t address;

	TRY(array_row(to, offset, size, &address));
	return copy_linear(NULL, address, true, HOST(from), false, size, false);
}

SOFT_API(cuMemcpyHtoAAsync_v2, CUarray to, size_t offset, const void *from, size_t size, CUstream stream)
{
	uint64_t address;

	TRY(array_row(to, offset, size, &address));
	return copy_linear(stream, address, true, HOST(from), false, size, true);
}

SOFT_API(cuMemcpyAtoH_v2, void *to, CUarray from, size_t offset, size_t size)
{
	uint64_t address;

	TRY(array_row(from, offset, size, &address));
	return copy_linear(NULL, HOST(to), false, address, true, size, false);
}

SOFT_API(cuMemcpyAtoHAsync_v2, void *to, CUarray from, size_t offset, size_t size, CUstream stream)
{
	uint64_t address;

	TRY(array_row(from, offset, size, &address));
	return copy_linear(stream, HOST(to), false, address, true, size, true);
}

SOFT_API(cuMemcpyDtoA_v2, CUarray to, size_t offset, CUdeviceptr from, size_t size)
{
	uint64_t address;

	TRY(array_row(to, offset, size, &address));
	return copy_linear(NULL, address, true, from, true, size, false);
}

SOFT_API(cuMemcpyAtoD_v2, CUdeviceptr to, CUarray from, size_t offset, size_t size)
{
	uint64_t address;

	TRY(array_row(from, offset, size, &address));
	return copy_linear(NULL, to, true, address, true, size, false);
}

SOFT_API(cuMemcpyAtoA_v2, CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size)
{
	uint64_t to_address, from_address;

	TRY(array_row(to, to_offset, size, &to_address));
	TRY(array_row(from, from_offset, size, &from_address));
	return copy_linear(NULL, to_address, true, from_address, true, size, false);
}

/* Attributes only allow what is done in order here; each copy is one of its own, so that the first wrong one tells. */
static CUresult copy_batch(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes, size_t count,
			   const void *attributes, const size_t *indices, size_t attribute_count, CUstream stream,
			   size_t *failed_out)
{
	*failed_out = SIZE_MAX;
	/* A batch can't be put on the legacy stream. */
	if (!to || !from || !sizes || !count || !attributes || !indices || !attribute_count || attribute_count > count ||
	    (!stream && !soft_per_thread_calls) || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = copy_linear(stream, to[i], false, from[i], false, sizes[i], true);

		if (result != CUDA_SUCCESS) {
			*failed_out = i;
			return result;
		}
	}
	return CUDA_SUCCESS;
}

SOFT_API(cuMemcpyBatchAsync_v2, CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes,
	 size_t *indices, size_t attribute_count, CUstream stream)
{
	size_t failed;

	TRY(soft_ready());
	return copy_batch(to, from, sizes, count, attributes, indices, attribute_count, stream, &failed);
}

SOFT_API(cuMemcpyBatchAsync, CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t count, void *attributes,
	 size_t *indices, size_t attribute_count, size_t *failed_out, CUstream stream)
{
	CUresult result;
	size_t failed;

	TRY(soft_ready());
	result = copy_batch(to, from, sizes, count, attributes, indices, attribute_count, stream, &failed);
	if (failed_out && result != CUDA_SUCCESS)
		*failed_out = failed;
	return result;
}

/* ---- fills ---- */

static CUresult fill_submit(CUstream handle, CUdeviceptr to, size_t pitch, uint32_t value, unsigned int element,
			    size_t width, size_t height)
{
	struct fill_command *command;
	struct soft_fill fill;

	SOFT_ENTER(context);
	TRY(soft_fill_plane(&fill, to, pitch, value, element, width, height));
	SOFT_STREAM_ARG(stream, handle);
	if (!width || !height)
		return CUDA_SUCCESS;
	if (soft_capturing(stream)) {
		struct soft_work work = { .type = CU_GRAPH_NODE_TYPE_MEMSET };

		work.fill.fill = fill;
		work.fill.params = (CUDA_MEMSET_NODE_PARAMS){ .dst = to, .pitch = pitch, .value = value, .elementSize = element,
							      .width = width, .height = height };
		return soft_capture_add(stream, &work);
	}
	command = calloc(1, sizeof(*command));
	if (!command)
		return CUDA_ERROR_OUT_OF_MEMORY;
	command->command.run = fill_run;
	command->command.free = plain_free;
	command->fill = fill;
	return soft_stream_submit(stream, &command->command, NULL);
}

/* Host memory is filled when the call returns; device memory need not be. */
static CUresult fill_now(CUdeviceptr to, size_t pitch, uint32_t value, unsigned int element, size_t width,
			 size_t height)
{
	struct soft_range range;

	TRY(fill_submit(NULL, to, pitch, value, element, width, height));
	if (soft_map_find(to, &range) && (soft_range_on_host(&range) || range.kind == SOFT_RANGE_MANAGED)) {
		SOFT_STREAM_ARG(stream, NULL);
		return soft_stream_sync(stream);
	}
	return CUDA_SUCCESS;
}

SOFT_API(cuMemsetD8_v2, CUdeviceptr to, unsigned char value, size_t count)
{
	return fill_now(to, 0, value, 1, count, 1);
}

SOFT_API(cuMemsetD16_v2, CUdeviceptr to, unsigned short value, size_t count)
{
	return fill_now(to, 0, value, 2, count, 1);
}

SOFT_API(cuMemsetD32_v2, CUdeviceptr to, unsigned int value, size_t count)
{
	return fill_now(to, 0, value, 4, count, 1);
}

SOFT_API(cuMemsetD2D8_v2, CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height)
{
	return fill_now(to, pitch, value, 1, width, height);
}

SOFT_API(cuMemsetD2D16_v2, CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height)
{
	return fill_now(to, pitch, value, 2, width, height);
}

SOFT_API(cuMemsetD2D32_v2, CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height)
{
	return fill_now(to, pitch, value, 4, width, height);
}

SOFT_API(cuMemsetD8Async, CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
	return fill_submit(stream, to, 0, value, 1, count, 1);
}

SOFT_API(cuMemsetD16Async, CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
	return fill_submit(stream, to, 0, value, 2, count, 1);
}

SOFT_API(cuMemsetD32Async, CUdeviceptr to, unsigned int value, size_t count, CUstream stream)
{
	return fill_submit(stream, to, 0, value, 4, count, 1);
}

SOFT_API(cuMemsetD2D8Async, CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
	 CUstream stream)
{
	return fill_submit(stream, to, pitch, value, 1, width, height);
}

SOFT_API(cuMemsetD2D16Async, CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
	 CUstream stream)
{
	return fill_submit(stream, to, pitch, value, 2, width, height);
}

SOFT_API(cuMemsetD2D32Async, CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height,
	 CUstream stream)
{
	return fill_submit(stream, to, pitch, value, 4, width, height);
}
