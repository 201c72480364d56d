// SPDX-License-Identifier: Apache-2.0
/*
 * Making, describing and destroying arrays and mipmapped ones. Any thread.
 */
#include "broker/softgpu/soft_array.h"

#include <stdlib.h>

#include "broker/softgpu/soft_memory.h"
#include "broker/softgpu/soft_stream.h"

#define ARRAY_FLAGS (ARRAY_LAYERED | ARRAY_SURFACE | ARRAY_CUBEMAP | ARRAY_GATHER)

/* What the device's attributes say of sizes. */
#define ARRAY_1D_MAX 131072u
#define ARRAY_2D_WIDTH_MAX 131072u
#define ARRAY_2D_HEIGHT_MAX 65536u
#define ARRAY_3D_MAX 16384u
#define ARRAY_LAYERED_MAX 32768u
#define ARRAY_LAYERS_MAX 2048u

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

static CUresult format_check(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct sampler_format *format_out)
{
	if (sampler_format_of(desc->Format, desc->NumChannels, format_out))
		return CUDA_SUCCESS;
	/* What CUDA 13.0 knows beside the plain ones: planes, blocks. */
	if (desc->Format < 0x50 || desc->Format > 0xcb)
		return CUDA_ERROR_INVALID_VALUE;
	soft_log("array of format %#x with %u channels: only plain integers, halves and floats",
		 (unsigned int)desc->Format, desc->NumChannels);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* @desc was checked. The reference is the table's. */
static CUresult array_new(struct soft_context *context, const CUDA_ARRAY3D_DESCRIPTOR *desc, bool level,
			  struct soft_array **array_out)
{
	struct soft_array *array;
	CUresult result;

	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->width = desc->Width;
	array->height = desc->Height;
	array->depth = desc->Depth;
	array->format = desc->Format;
	array->channels = desc->NumChannels;
	array->flags = desc->Flags;
	array->level = level;
	sampler_format_of(desc->Format, desc->NumChannels, &array->texel);
	array->element_size = sampler_texel_size(&array->texel);
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
	*array_out = array;
	return CUDA_SUCCESS;
}

static CUarray array_handle(const struct soft_array *array)
{
	return (CUarray)(uintptr_t)atomic_load(&array->object.handle);
}

SOFT_API(cuArray3DCreate_v2, CUarray *array_out, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct sampler_format format;
	struct soft_array *array;

	SOFT_ENTER(context);
	if (!array_out || !desc || !shape_valid(desc))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(format_check(desc, &format));
	TRY(array_new(context, desc, false, &array));
	*array_out = array_handle(array);
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
	/* A level ends with the mipmapped array. */
	if (array->level)
		return CUDA_ERROR_INVALID_HANDLE;
	/* Waits for what may still use it. */
	TRY(soft_context_sync(array->object.owner));
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_ARRAY);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	soft_memory_delete(((struct soft_array *)object)->base, 1u << SOFT_RANGE_ARRAY);
	soft_object_put(object);
	return CUDA_SUCCESS;
}

static CUresult plain_only(CUarray handle, const void *out)
{
	SOFT_ARRAY_ARG(array, handle);
	/* Answered for sparse and deferred ones only, which there are none of. */
	return CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuArrayGetSparseProperties, void *properties, CUarray handle)
{
	return plain_only(handle, properties);
}

SOFT_API(cuArrayGetMemoryRequirements, void *requirements, CUarray handle, CUdevice device)
{
	return plain_only(handle, requirements);
}

SOFT_API(cuArrayGetPlane, CUarray *plane, CUarray handle, unsigned int index)
{
	return plain_only(handle, plane);
}

/* ---- mipmapped arrays ---- */

static void mipmap_free(struct soft_object *object)
{
	struct soft_mipmap *mipmap = (struct soft_mipmap *)object;

	for (unsigned int i = 0; i < mipmap->level_count; i++)
		soft_object_put(&mipmap->levels[i]->object);
	free(mipmap);
}

/* Levels may be gone by themselves where their context has ended. */
static void levels_end(struct soft_mipmap *mipmap)
{
	for (unsigned int i = 0; i < mipmap->level_count; i++) {
		uint64_t handle = atomic_load(&mipmap->levels[i]->object.handle);
		struct soft_object *object = soft_object_retire(handle, SOFT_ARRAY);

		if (!object)
			continue;
		soft_memory_delete(mipmap->levels[i]->base, 1u << SOFT_RANGE_ARRAY);
		soft_object_put(object);
	}
}

static unsigned int levels_most(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t largest = MAX(desc->Width, desc->Height);
	unsigned int count = 1;

	if (!(desc->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)))
		largest = MAX(largest, desc->Depth);
	while (largest >>= 1)
		count++;
	return count;
}

static CUresult level_new(struct soft_mipmap *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int level)
{
	CUDA_ARRAY3D_DESCRIPTOR part = *desc;
	struct soft_array *array;

	part.Width = MAX(desc->Width >> level, 1);
	part.Height = desc->Height ? MAX(desc->Height >> level, 1) : 0;
	if (!(desc->Flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)))
		part.Depth = desc->Depth ? MAX(desc->Depth >> level, 1) : 0;
	TRY(array_new(mipmap->object.owner, &part, true, &array));
	soft_object_get(&array->object);
	mipmap->levels[mipmap->level_count++] = array;
	return CUDA_SUCCESS;
}

SOFT_API(cuMipmappedArrayCreate, CUmipmappedArray *mipmap_out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int count)
{
	struct sampler_format format;
	struct soft_mipmap *mipmap;
	CUresult result = CUDA_SUCCESS;

	SOFT_ENTER(context);
	if (!mipmap_out || !desc || !shape_valid(desc))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(format_check(desc, &format));
	count = MIN(MAX(count, 1), levels_most(desc));
	mipmap = calloc(1, sizeof(*mipmap));
	if (!mipmap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&mipmap->object, SOFT_MIPMAP, context, mipmap_free);
	for (unsigned int i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = level_new(mipmap, desc, i);
	if (result == CUDA_SUCCESS)
		result = soft_object_publish(&mipmap->object);
	if (result != CUDA_SUCCESS) {
		levels_end(mipmap);
		soft_object_put(&mipmap->object);
		return result;
	}
	*mipmap_out = (CUmipmappedArray)(uintptr_t)atomic_load(&mipmap->object.handle);
	return CUDA_SUCCESS;
}

CUresult soft_mipmap_find(CUmipmappedArray handle, struct soft_mipmap **mipmap_out)
{
	TRY(soft_ready());
	*mipmap_out = (struct soft_mipmap *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_MIPMAP);
	return *mipmap_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

SOFT_API(cuMipmappedArrayGetLevel, CUarray *array_out, CUmipmappedArray handle, unsigned int level)
{
	SOFT_HELD struct soft_mipmap *mipmap = NULL;

	TRY(soft_mipmap_find(handle, &mipmap));
	if (!array_out || level >= mipmap->level_count)
		return CUDA_ERROR_INVALID_VALUE;
	*array_out = array_handle(mipmap->levels[level]);
	return CUDA_SUCCESS;
}

SOFT_API(cuMipmappedArrayDestroy, CUmipmappedArray handle)
{
	SOFT_HELD struct soft_mipmap *mipmap = NULL;
	struct soft_object *object;

	TRY(soft_mipmap_find(handle, &mipmap));
	TRY(soft_context_sync(mipmap->object.owner));
	object = soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_MIPMAP);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	levels_end(mipmap);
	soft_object_put(object);
	return CUDA_SUCCESS;
}

static CUresult mipmap_plain_only(CUmipmappedArray handle)
{
	SOFT_HELD struct soft_mipmap *mipmap = NULL;

	TRY(soft_mipmap_find(handle, &mipmap));
	return CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuMipmappedArrayGetSparseProperties, void *properties, CUmipmappedArray handle)
{
	return mipmap_plain_only(handle);
}

SOFT_API(cuMipmappedArrayGetMemoryRequirements, void *requirements, CUmipmappedArray handle, CUdevice device)
{
	return mipmap_plain_only(handle);
}
