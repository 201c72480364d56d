// SPDX-License-Identifier: Apache-2.0
/*
 * What a copy or fill touches, and doing it. Checks run on the caller's thread, the work on a stream's.
 */
#include "broker/softgpu/soft_copy.h"

#include <string.h>

#include "broker/lib/tsan.h"
#include "broker/proto/space.h"
#include "broker/softgpu/soft_array.h"
#include "broker/softgpu/soft_map.h"

/* The last byte of a box lies this far from its first; false where that does not fit in an address. */
static bool plane_extent(const struct soft_plane *plane, uint64_t width, uint64_t height, uint64_t depth,
			 uint64_t *extent_out)
{
	uint64_t rows, layers, extent;

	if (__builtin_mul_overflow(plane->pitch, height - 1, &rows) ||
	    __builtin_mul_overflow(plane->slice, depth - 1, &layers) || __builtin_add_overflow(rows, layers, &extent) ||
	    __builtin_add_overflow(extent, width, &extent) || extent > UINT64_MAX - plane->address)
		return false;
	*extent_out = extent;
	return true;
}

/* Whether the map has all the bytes of a box; gaps between rows need not be there. */
static bool plane_covered(const struct soft_plane *plane, uint64_t width, uint64_t height, uint64_t depth, bool write)
{
	uint64_t extent;

	if (!plane_extent(plane, width, height, depth, &extent))
		return false;
	if (soft_map_covers(plane->address, extent, write))
		return true;
	for (uint64_t z = 0; z < depth; z++)
		for (uint64_t y = 0; y < height; y++)
			if (!soft_map_covers(plane->address + z * plane->slice + y * plane->pitch, width, write))
				return false;
	return true;
}

/* Finds out whether one end is the device's to reach; INVALID_VALUE where it should be and is not. */
static CUresult plane_check(struct soft_plane *plane, bool device, const struct soft_transfer *box, bool write)
{
	struct soft_range range;

	if (!box->width || !box->height || !box->depth)
		return CUDA_SUCCESS;
	if (!device && !soft_map_find(plane->address, &range)) {
		uint64_t extent;

		plane->known = false;
		if (!plane->address || !plane_extent(plane, box->width, box->height, box->depth, &extent))
			return CUDA_ERROR_INVALID_VALUE;
		return CUDA_SUCCESS;
	}
	plane->known = plane_covered(plane, box->width, box->height, box->depth, write);
	/* Host memory that begins in a registered range and ends outside of it is ordinary memory. */
	if (!plane->known && (device || !soft_range_on_host(&range)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult soft_transfer_linear(struct soft_transfer *transfer, uint64_t to, bool to_device, uint64_t from,
			      bool from_device, uint64_t size)
{
	*transfer = (struct soft_transfer){
		.to = { .address = to },
		.from = { .address = from },
		.width = size,
		.height = 1,
		.depth = 1,
	};
	TRY(plane_check(&transfer->to, to_device, transfer, true));
	return plane_check(&transfer->from, from_device, transfer, false);
}

/* One end that is an array: @x in bytes, as for the others. */
static CUresult box_array(struct soft_plane *plane, CUarray handle, size_t x, size_t y, size_t z,
			  const CUDA_MEMCPY3D *copy)
{
	SOFT_ARRAY_ARG(array, handle);
	if (x > array->pitch || copy->WidthInBytes > array->pitch - x || y > array->rows ||
	    copy->Height > array->rows - y || z > array->layers || copy->Depth > array->layers - z)
		return CUDA_ERROR_INVALID_VALUE;
	/* Only whole elements. */
	if (x % array->element_size || copy->WidthInBytes % array->element_size)
		return CUDA_ERROR_INVALID_VALUE;
	plane->pitch = array->pitch;
	plane->slice = array->pitch * array->rows;
	plane->address = array->base + z * plane->slice + y * plane->pitch + x;
	return CUDA_SUCCESS;
}

/* One end of a 3D copy as the API describes it. */
static CUresult box_end(struct soft_plane *plane, bool *device_out, CUmemorytype type, const void *host,
			CUdeviceptr device, CUarray array, size_t x, size_t y, size_t z, size_t pitch, size_t rows,
			const CUDA_MEMCPY3D *copy)
{
	uint64_t start, skip;

	switch (type) {
	case CU_MEMORYTYPE_HOST:
		plane->address = (uint64_t)(uintptr_t)host;
		*device_out = false;
		break;
	case CU_MEMORYTYPE_DEVICE:
		plane->address = device;
		*device_out = true;
		break;
	case CU_MEMORYTYPE_UNIFIED:
		plane->address = device;
		*device_out = false;
		break;
	case CU_MEMORYTYPE_ARRAY:
		*device_out = true;
		return box_array(plane, array, x, y, z, copy);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	/* Pitch and rows of 0 mean tight. */
	if (!pitch)
		pitch = x + copy->WidthInBytes;
	if (!rows)
		rows = y + copy->Height;
	if (x > SIZE_MAX - copy->WidthInBytes || y > SIZE_MAX - copy->Height)
		return CUDA_ERROR_INVALID_VALUE;
	if ((copy->Height > 1 || copy->Depth > 1) && pitch < x + copy->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (copy->Depth > 1 && rows < y + copy->Height)
		return CUDA_ERROR_INVALID_VALUE;
	plane->pitch = pitch;
	if (__builtin_mul_overflow(pitch, rows, &plane->slice) || __builtin_mul_overflow(plane->slice, z, &skip) ||
	    __builtin_mul_overflow(pitch, y, &start) || __builtin_add_overflow(start, skip, &start) ||
	    __builtin_add_overflow(start, x, &start) || __builtin_add_overflow(plane->address, start, &plane->address))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult soft_transfer_box(struct soft_transfer *transfer, const CUDA_MEMCPY3D *copy)
{
	bool to_device, from_device;

	*transfer = (struct soft_transfer){
		.width = copy->WidthInBytes,
		.height = copy->Height,
		.depth = copy->Depth,
	};
	if (copy->srcLOD || copy->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(box_end(&transfer->from, &from_device, copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray,
		    copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight, copy));
	TRY(box_end(&transfer->to, &to_device, copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray, copy->dstXInBytes,
		    copy->dstY, copy->dstZ, copy->dstPitch, copy->dstHeight, copy));
	TRY(plane_check(&transfer->to, to_device, transfer, true));
	return plane_check(&transfer->from, from_device, transfer, false);
}

CUresult soft_fill_plane(struct soft_fill *fill, uint64_t to, uint64_t pitch, uint32_t value, unsigned int element,
			 uint64_t width, uint64_t height)
{
	struct soft_transfer box = { .height = height, .depth = 1 };

	if ((element != 1 && element != 2 && element != 4) || to % element || pitch % element)
		return CUDA_ERROR_INVALID_VALUE;
	if (width > UINT64_MAX / element)
		return CUDA_ERROR_INVALID_VALUE;
	*fill = (struct soft_fill){
		.to = { .address = to, .pitch = pitch },
		.value = value,
		.element = element,
		.width = width * element,
		.height = height,
	};
	box.width = fill->width;
	if (height > 1 && pitch < fill->width)
		return CUDA_ERROR_INVALID_VALUE;
	return plane_check(&fill->to, true, &box, true);
}

static bool plane_still(const struct soft_plane *plane, uint64_t width, uint64_t height, uint64_t depth, bool write)
{
	return !plane->known || plane_covered(plane, width, height, depth, write);
}

static CUresult gone(const char *what, uint64_t address)
{
	soft_log("%s at %#llx: the memory was freed before its turn came", what, (unsigned long long)address);
	return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Of a device, which kernels may be writing to: whoever moves a program reads it all the same, and again when it has changed. */
static bool on_device(uint64_t address)
{
	return address >= SPACE_DEVICE && address < SPACE_HOST;
}

static void row_copy(uint64_t to, uint64_t from, uint64_t width)
{
	bool foreign = on_device(from);

	if (foreign)
		foreign_begin();
	memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, width);
	if (foreign)
		foreign_end();
}

CUresult soft_transfer_run(const struct soft_transfer *transfer)
{
	CUresult result = CUDA_SUCCESS;
	struct soft_visit visit;

	if (!transfer->width || !transfer->height || !transfer->depth)
		return CUDA_SUCCESS;
	soft_visit_begin(&visit);
	if (!plane_still(&transfer->to, transfer->width, transfer->height, transfer->depth, true)) {
		result = gone("copy to", transfer->to.address);
		goto end;
	}
	if (!plane_still(&transfer->from, transfer->width, transfer->height, transfer->depth, false)) {
		result = gone("copy from", transfer->from.address);
		goto end;
	}
	for (uint64_t z = 0; z < transfer->depth; z++) {
		for (uint64_t y = 0; y < transfer->height; y++) {
			uint64_t to = transfer->to.address + z * transfer->to.slice + y * transfer->to.pitch;
			uint64_t from = transfer->from.address + z * transfer->from.slice + y * transfer->from.pitch;

			row_copy(to, from, transfer->width);
		}
	}
end:
	soft_visit_end(&visit);
	return result;
}

static void fill_row(const struct soft_fill *fill, uint64_t to)
{
	uint64_t count = fill->width / fill->element;
	uint16_t *halves = (uint16_t *)(uintptr_t)to;
	uint32_t *words = (uint32_t *)(uintptr_t)to;

	switch (fill->element) {
	case 1:
		memset((void *)(uintptr_t)to, (int)(fill->value & 0xff), count);
		break;
	case 2:
		for (uint64_t i = 0; i < count; i++)
			halves[i] = (uint16_t)fill->value;
		break;
	default:
		for (uint64_t i = 0; i < count; i++)
			words[i] = fill->value;
		break;
	}
}

CUresult soft_fill_run(const struct soft_fill *fill)
{
	CUresult result = CUDA_SUCCESS;
	struct soft_visit visit;

	if (!fill->width || !fill->height)
		return CUDA_SUCCESS;
	soft_visit_begin(&visit);
	if (!plane_still(&fill->to, fill->width, fill->height, 1, true))
		result = gone("fill", fill->to.address);
	for (uint64_t y = 0; result == CUDA_SUCCESS && y < fill->height; y++)
		fill_row(fill, fill->to.address + y * fill->to.pitch);
	soft_visit_end(&visit);
	return result;
}
