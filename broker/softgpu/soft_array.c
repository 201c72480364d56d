// SPDX-License-Identifier: Apache-2.0
/*
 * Making, describing and destroying arrays. Any thread.
 */
#include "broker/softgpu/soft_array.h"

#include <stdlib.h>

#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_stream.h"

#define ARRAY_LAYERED 0x01u
#define ARRAY_SURFACE 0x02u
#define ARRAY_CUBEMAP 0x04u
#define ARRAY_GATHER 0x08u
#define ARRAY_FLAGS (ARRAY_LAYERED | ARRAY_SURFACE | ARRAY_CUBEMAP | ARRAY_GATHER)

/* What the device's attributes say of sizes. */
#define ARRAY_1D_MAX 131072u
#define ARRAY_2D_WIDTH_MAX 131072u
#define ARRAY_2D_HEIGHT_MAX 65536u
#define ARRAY_3D_MAX 16384u
#define ARRAY_LAYERED_MAX 32768u
#define ARRAY_LAYERS_MAX 2048u
#define CUBE_FACES 6u

/* Bytes of one channel; 0 for a format that is none of the plain ones. */
static uint32_t format_size(int format)
{
	switch (format) {
	case 0x01: /* unsigned and signed 8 */
	case 0x08:
		return 1;
	case 0x02: /* 16, and half */
	case 0x09:
	case 0x10:
		return 2;
	case 0x03: /* 32, and float */
	case 0x0a:
	case 0x20:
		return 4;
	default:
		return 0;
	}
}

static void array_free(struct soft_object *object)
{
	struct soft_array *array = (struct soft_array *)object;

	/* Its memory went when it was destroyed or its context ended. */
	free(array);
}

static bool shape_valid(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	if (!desc->Width || desc->Flags & ~ARRAY_FLAGS ||
	    (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4))
		return false;
	if (desc->Flags & ARRAY_CUBEMAP)
		return desc->Width == desc->Height && desc->Width <= ARRAY_LAYERED_MAX &&
		       (desc->Flags & ARRAY_LAYERED ? desc->Depth && desc->Depth % CUBE_FACES == 0 &&
							      desc->Depth <= ARRAY_LAYERS_MAX
						    : desc->Depth == CUBE_FACES);
	if (desc->Flags & ARRAY_LAYERED)
		return desc->Depth && desc->Depth <= ARRAY_LAYERS_MAX && desc->Width <= ARRAY_LAYERED_MAX &&
		       desc->Height <= ARRAY_LAYERED_MAX;
	if (desc->Depth)
		return desc->Height && desc->Width <= ARRAY_3D_MAX && desc->Height <= ARRAY_3D_MAX &&
		       desc->Depth <= ARRAY_3D_MAX;
	if (desc->Height)
		return desc->Width <= ARRAY_2D_WIDTH_MAX && desc->Height <= ARRAY_2D_HEIGHT_MAX;
	return desc->Width <= ARRAY_1D_MAX;
}

SOFT_API(cuArray3DCreate_v2, CUarray *array_out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct soft_array *array;
	CUresult result;

	SOFT_ENTER(context);
	if (!array_out || !desc || !shape_valid(desc))
		return CUDA_ERROR_INVALID_VALUE;
	if (!format_size(desc->Format)) {
		soft_log("array of format %#x: only plain integers, halves and floats", (unsigned int)desc->Format);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->width = desc->Width;
	array->height = desc->Height;
	array->depth = desc->Depth;
	array->format = desc->Format;
	array->channels = desc->NumChannels;
	array->flags = desc->Flags;
	array->element_size = format_size(desc->Format) * desc->NumChannels;
	/* The limits above keep all of this far from 64 bits. */
	array->pitch = array->width * array->element_size;
	array->rows = MAX(array->height, 1);
	array->layers = MAX(array->depth, 1);
	array->size = array->pitch * array->rows * array->layers;
	result = soft_memory_new(context, array->size, SOFT_RANGE_ARRAY, 0, &array->base);
	if (result != CUDA_SUCCESS) {
		free(array);
		return result;
	}
	soft_object_init(&array->object, SOFT_ARRAY, context, array_free);
	result = soft_object_publish(&array->object);
	if (result != CUDA_SUCCESS) {
		soft_memory_delete(array->base, 1u << SOFT_RANGE_ARRAY);
		soft_object_put(&array->object);
		return result;
	}
	*array_out = (CUarray)(uintptr_t)atomic_load(&array->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuArrayCreate_v2, CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR full;

	TRY(soft_ready());
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	full = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = desc->Width,
		.Height = desc->Height,
		.Format = desc->Format,
		.NumChannels = desc->NumChannels,
	};
	return cuArray3DCreate_v2(array, &full);
}

CUresult soft_array_find(CUarray handle, struct soft_array **array_out)
{
	TRY(soft_ready());
	*array_out = (struct soft_array *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_ARRAY);
	return *array_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFT_API(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray handle)
{
	SOFT_ARRAY_ARG(array, handle);
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	*desc = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = array->width,
		.Height = array->height,
		.Depth = array->depth,
		.Format = array->format,
		.NumChannels = array->channels,
		.Flags = array->flags,
	};
	return CUDA_SUCCESS;
}

SOFT_API(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR *desc, CUarray handle)
{
	SOFT_ARRAY_ARG(array, handle);
	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	*desc = (CUDA_ARRAY_DESCRIPTOR){
		.Width = array->width,
		.Height = array->height,
		.Format = array->format,
		.NumChannels = array->channels,
	};
	return CUDA_SUCCESS;
}

SOFT_API(cuArrayDestroy, CUarray handle)
{
	struct soft_object *object;

	SOFT_ARRAY_ARG(array, handle);
	/* Waits for what may still use it. */
	TRY(soft_context_sync(array->object.owner));
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_ARRAY);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_memory_delete(((struct soft_array *)object)->base, 1u << SOFT_RANGE_ARRAY);
	soft_object_put(object);
	return CUDA_SUCCESS;
}
