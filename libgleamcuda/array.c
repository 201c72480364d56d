// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays and mipmapped arrays. Making one asks, for the device may be short of memory; what it is like is remembered
 * here, so that questions and the checks of copies need nobody. Destroying one first waits for what may still use it, as
 * the driver does. Application threads.
 */
#include "libgleamcuda/array.h"

#include <pthread.h>
#include <stddef.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/stream.h"

#define LEVELS_MAX 32u /* more than any size of a dimension has bits that a device can hold */
#define CUBE_FACES 6u

#define FLAGS_SERVED                                                                                           \
	(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER | \
	 CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT)
#define FLAGS_KNOWN \
	(FLAGS_SERVED | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)

struct mipmap {
	/* set at birth */
	struct context *context;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	uint32_t level_count;
	/* guarded by levels_lock */
	struct array *levels[LEVELS_MAX]; /* those that were asked for */
};

static pthread_mutex_t levels_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stable arrays = STABLE(struct array);
static struct stable mipmaps = STABLE(struct mipmap);

/* ---- what may be made ---- */

uint32_t array_channel_size(CUarray_format format, uint32_t *channels_out)
{
	*channels_out = 0;
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	case CU_AD_FORMAT_UNORM_INT8X1:
	case CU_AD_FORMAT_SNORM_INT8X1:
		*channels_out = 1;
		return 1;
	case CU_AD_FORMAT_UNORM_INT8X2:
	case CU_AD_FORMAT_SNORM_INT8X2:
		*channels_out = 2;
		return 1;
	case CU_AD_FORMAT_UNORM_INT8X4:
	case CU_AD_FORMAT_SNORM_INT8X4:
		*channels_out = 4;
		return 1;
	case CU_AD_FORMAT_UNORM_INT16X1:
	case CU_AD_FORMAT_SNORM_INT16X1:
		*channels_out = 1;
		return 2;
	case CU_AD_FORMAT_UNORM_INT16X2:
	case CU_AD_FORMAT_SNORM_INT16X2:
		*channels_out = 2;
		return 2;
	case CU_AD_FORMAT_UNORM_INT16X4:
	case CU_AD_FORMAT_SNORM_INT16X4:
		*channels_out = 4;
		return 2;
	default:
		return 0;
	}
}

static bool fits(struct call *call, uint64_t size, CUdevice_attribute attribute)
{
	int32_t most = device_at(call->context->device)->attributes[attribute];

	return size && most > 0 && size <= (uint64_t)most;
}

#define FITS(size, attribute) fits(call, size, CU_DEVICE_ATTRIBUTE_MAXIMUM_##attribute)

/* A surface has limits of its own. */
static bool shape_fits_surface(struct call *call, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;

	if (d->Flags & CUDA_ARRAY3D_CUBEMAP)
		return layered ? FITS(d->Width, SURFACECUBEMAP_LAYERED_WIDTH) &&
					 FITS(d->Depth, SURFACECUBEMAP_LAYERED_LAYERS) :
				 FITS(d->Width, SURFACECUBEMAP_WIDTH);
	if (layered && !d->Height)
		return FITS(d->Width, SURFACE1D_LAYERED_WIDTH) && FITS(d->Depth, SURFACE1D_LAYERED_LAYERS);
	if (layered)
		return FITS(d->Width, SURFACE2D_LAYERED_WIDTH) && FITS(d->Height, SURFACE2D_LAYERED_HEIGHT) &&
		       FITS(d->Depth, SURFACE2D_LAYERED_LAYERS);
	if (d->Depth)
		return FITS(d->Width, SURFACE3D_WIDTH) && FITS(d->Height, SURFACE3D_HEIGHT) &&
		       FITS(d->Depth, SURFACE3D_DEPTH);
	if (d->Height)
		return FITS(d->Width, SURFACE2D_WIDTH) && FITS(d->Height, SURFACE2D_HEIGHT);
	return FITS(d->Width, SURFACE1D_WIDTH);
}

static bool shape_fits(struct call *call, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED;

	if (!d->Width || (layered && !d->Depth) || (!layered && d->Depth && !d->Height))
		return false;
	if (d->Flags & CUDA_ARRAY3D_CUBEMAP && (d->Width != d->Height || d->Depth % CUBE_FACES || !d->Depth ||
						 (!layered && d->Depth != CUBE_FACES)))
		return false;
	if (d->Flags & CUDA_ARRAY3D_SURFACE_LDST && !shape_fits_surface(call, d))
		return false;
	if (d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER &&
	    (d->Depth || !FITS(d->Width, TEXTURE2D_GATHER_WIDTH) || !FITS(d->Height, TEXTURE2D_GATHER_HEIGHT)))
		return false;
	if (d->Flags & CUDA_ARRAY3D_CUBEMAP)
		return layered ? FITS(d->Width, TEXTURECUBEMAP_LAYERED_WIDTH) &&
					 FITS(d->Depth, TEXTURECUBEMAP_LAYERED_LAYERS) :
				 FITS(d->Width, TEXTURECUBEMAP_WIDTH);
	if (layered && !d->Height)
		return FITS(d->Width, TEXTURE1D_LAYERED_WIDTH) && FITS(d->Depth, TEXTURE1D_LAYERED_LAYERS);
	if (layered)
		return FITS(d->Width, TEXTURE2D_LAYERED_WIDTH) && FITS(d->Height, TEXTURE2D_LAYERED_HEIGHT) &&
		       FITS(d->Depth, TEXTURE2D_LAYERED_LAYERS);
	if (d->Depth)
		return (FITS(d->Width, TEXTURE3D_WIDTH) && FITS(d->Height, TEXTURE3D_HEIGHT) &&
			FITS(d->Depth, TEXTURE3D_DEPTH)) ||
		       (FITS(d->Width, TEXTURE3D_WIDTH_ALTERNATE) && FITS(d->Height, TEXTURE3D_HEIGHT_ALTERNATE) &&
			FITS(d->Depth, TEXTURE3D_DEPTH_ALTERNATE));
	if (d->Height)
		return FITS(d->Width, TEXTURE2D_WIDTH) && FITS(d->Height, TEXTURE2D_HEIGHT);
	return FITS(d->Width, TEXTURE1D_WIDTH);
}

static bool format_is_known(CUarray_format format)
{
	return (format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_YUV444_16bit_SemiPlanar) ||
	       format == CU_AD_FORMAT_NV12 || format == CU_AD_FORMAT_UNORM_INT_101010_2;
}

static CUresult desc_check(struct call *call, const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t *element_out)
{
	uint32_t channels, size;

	if (!desc || desc->Flags & ~(unsigned int)FLAGS_KNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	size = array_channel_size(desc->Format, &channels);
	if (!size && !format_is_known(desc->Format))
		return CUDA_ERROR_INVALID_VALUE;
	if (size && ((desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4) ||
		     (channels && channels != desc->NumChannels)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!shape_fits(call, desc))
		return CUDA_ERROR_INVALID_VALUE;
	if (!size)
		return call_refuse(call, "arrays of planes or compressed blocks are not made");
	if (desc->Flags & ~(unsigned int)FLAGS_SERVED)
		return call_refuse(call, "sparse and deferred arrays, and those of video coders, are not made");
	*element_out = size * desc->NumChannels;
	return CUDA_SUCCESS;
}

/* ---- arrays ---- */

/* Not known to the worker yet. */
static struct array *array_new(struct context *context, const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t element,
			       uint64_t mipmap)
{
	struct array *array = stable_take(&arrays);

	if (!array)
		return NULL;
	array->context = context;
	array->desc = *desc;
	array->element = element;
	array->width = desc->Width * element;
	array->rows = desc->Height ? desc->Height : 1;
	array->layers = desc->Depth ? desc->Depth : 1;
	array->mipmap = mipmap;
	array->handle = handle_new(OBJECT_ARRAY, context, array);
	if (array->handle)
		return array;
	stable_give(&arrays, array);
	return NULL;
}

static void array_end(struct array *array)
{
	stable_give(&arrays, handle_end(array->handle));
}

CUresult array_find(struct call *call, CUarray handle, struct array **array_out)
{
	uint64_t wire;
	CUresult result = call_handle(call, OBJECT_ARRAY, handle, 0, &wire);

	if (result)
		return result;
	*array_out = handle_data(OBJECT_ARRAY, wire);
	return *array_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult do_cuArray3DCreate_v2(struct call *call, CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct msg_gleamArrayCreate m;
	struct array *array;
	uint32_t element;
	CUresult result;

	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	result = desc_check(call, desc, &element);
	if (result)
		return result;
	array = array_new(call->context, desc, element, 0);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m = (struct msg_gleamArrayCreate){ .array = array->handle, .width = desc->Width, .height = desc->Height,
					   .depth = desc->Depth, .format = desc->Format,
					   .channels = desc->NumChannels, .flags = desc->Flags };
	result = CALL_ASK(call, gleamArrayCreate, &m);
	if (result)
		array_end(array);
	else
		*pHandle = (CUarray)(uintptr_t)array->handle;
	return result;
}

CUresult do_cuArrayCreate_v2(struct call *call, CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *flat)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!flat)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = flat->Width, .Height = flat->Height, .Format = flat->Format,
					  .NumChannels = flat->NumChannels };
	return do_cuArray3DCreate_v2(call, pHandle, &desc);
}

/* The first API's sizes had 32 bits. */
CUresult do_cuArray3DCreate(struct call *call, CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *old)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!old)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = old->Width, .Height = old->Height, .Depth = old->Depth,
					  .Format = old->Format, .NumChannels = old->NumChannels, .Flags = old->Flags };
	return do_cuArray3DCreate_v2(call, pHandle, &desc);
}

CUresult do_cuArrayCreate(struct call *call, CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *old)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;

	if (!old)
		return CUDA_ERROR_INVALID_VALUE;
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = old->Width, .Height = old->Height, .Format = old->Format,
					  .NumChannels = old->NumChannels };
	return do_cuArray3DCreate_v2(call, pHandle, &desc);
}

CUresult do_cuArrayDestroy(struct call *call, CUarray hArray)
{
	struct msg_gleamArrayEnd m;
	struct array *array;
	CUresult told, result = array_find(call, hArray, &array);

	if (result)
		return result;
	/* A level goes with the whole. */
	if (array->mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	call_in(call, array->context);
	m.array = array->handle;
	/* An earlier failure is told, and the array goes all the same. */
	told = context_wait(call);
	result = CALL_SEND(call, gleamArrayEnd, &m);
	if (result)
		return result;
	stable_give(&arrays, handle_end(m.array));
	return told;
}

/* ---- questions about arrays ---- */

CUresult do_cuArray3DGetDescriptor_v2(struct call *call, CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray hArray)
{
	struct array *array;
	CUresult result;

	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	result = array_find(call, hArray, &array);
	if (!result)
		*desc = array->desc;
	return result;
}

CUresult do_cuArrayGetDescriptor_v2(struct call *call, CUDA_ARRAY_DESCRIPTOR *desc, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUresult result = desc ? do_cuArray3DGetDescriptor_v2(call, &d, hArray) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*desc = (CUDA_ARRAY_DESCRIPTOR){ .Width = d.Width, .Height = d.Height, .Format = d.Format,
						 .NumChannels = d.NumChannels };
	return result;
}

CUresult do_cuArray3DGetDescriptor(struct call *call, CUDA_ARRAY3D_DESCRIPTOR_v1 *desc, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUresult result = desc ? do_cuArray3DGetDescriptor_v2(call, &d, hArray) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*desc = (CUDA_ARRAY3D_DESCRIPTOR_v1){ .Width = (unsigned int)d.Width, .Height = (unsigned int)d.Height,
						      .Depth = (unsigned int)d.Depth, .Format = d.Format,
						      .NumChannels = d.NumChannels, .Flags = d.Flags };
	return result;
}

CUresult do_cuArrayGetDescriptor(struct call *call, CUDA_ARRAY_DESCRIPTOR_v1 *desc, CUarray hArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	CUresult result = desc ? do_cuArray3DGetDescriptor_v2(call, &d, hArray) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*desc = (CUDA_ARRAY_DESCRIPTOR_v1){ .Width = (unsigned int)d.Width, .Height = (unsigned int)d.Height,
						    .Format = d.Format, .NumChannels = d.NumChannels };
	return result;
}

/* What the driver answers for sparse, deferred and planar arrays only, which are not made: for all others it says so. */

static CUresult plain_array(struct call *call, const void *out, CUarray handle)
{
	struct array *array;
	CUresult result = out ? array_find(call, handle, &array) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuArrayGetSparseProperties(struct call *call, CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties, CUarray array)
{
	return plain_array(call, sparseProperties, array);
}

CUresult do_cuArrayGetMemoryRequirements(struct call *call, CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
					 CUarray array, CUdevice device)
{
	return device_at(device) ? plain_array(call, memoryRequirements, array) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult do_cuArrayGetPlane(struct call *call, CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
	return plain_array(call, pPlaneArray, hArray);
}

/* ---- mipmapped arrays ---- */

CUresult mipmap_find(struct call *call, CUmipmappedArray handle, uint64_t *handle_out)
{
	return call_handle(call, OBJECT_MIPMAP, handle, 0, handle_out);
}

/* Down to one element in each direction; layers stay as many as they are. */
static uint32_t levels_most(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	size_t largest = desc->Width > desc->Height ? desc->Width : desc->Height;
	uint32_t count = 1;

	if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && desc->Depth > largest)
		largest = desc->Depth;
	while (largest >>= 1)
		count++;
	return count < LEVELS_MAX ? count : LEVELS_MAX;
}

static size_t level_size(size_t size, uint32_t level)
{
	return size && !(size >> level) ? 1 : size >> level;
}

CUresult do_cuMipmappedArrayCreate(struct call *call, CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				   unsigned int numMipmapLevels)
{
	struct msg_gleamMipmapCreate m;
	struct mipmap *mipmap;
	uint32_t element;
	CUresult result;

	if (!pHandle)
		return CUDA_ERROR_INVALID_VALUE;
	result = desc_check(call, desc, &element);
	if (result)
		return result;
	mipmap = stable_take(&mipmaps);
	if (!mipmap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mipmap->context = call->context;
	mipmap->desc = *desc;
	mipmap->level_count = levels_most(desc);
	if (numMipmapLevels < mipmap->level_count)
		mipmap->level_count = numMipmapLevels ? numMipmapLevels : 1;
	m = (struct msg_gleamMipmapCreate){ .width = desc->Width, .height = desc->Height, .depth = desc->Depth,
					    .format = desc->Format, .channels = desc->NumChannels,
					    .flags = desc->Flags, .levels = mipmap->level_count };
	m.mipmap = handle_new(OBJECT_MIPMAP, call->context, mipmap);
	if (!m.mipmap) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto give_mipmap;
	}
	result = CALL_ASK(call, gleamMipmapCreate, &m);
	if (result)
		goto end_handle;
	*pHandle = (CUmipmappedArray)(uintptr_t)m.mipmap;
	return CUDA_SUCCESS;

end_handle:
	handle_end(m.mipmap);
give_mipmap:
	stable_give(&mipmaps, mipmap);
	return result;
}

/* The level's handle is made when it is first asked for. */
static CUresult level_open_locked(struct call *call, struct mipmap *mipmap, uint64_t handle, uint32_t level)
{
	struct msg_gleamMipmapLevel m = { .mipmap = handle, .level = level };
	CUDA_ARRAY3D_DESCRIPTOR desc = mipmap->desc;
	uint32_t channels;
	struct array *array;
	CUresult result;

	desc.Width = level_size(desc.Width, level);
	desc.Height = level_size(desc.Height, level);
	if (!(desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		desc.Depth = level_size(desc.Depth, level);
	array = array_new(mipmap->context, &desc, array_channel_size(desc.Format, &channels) * desc.NumChannels, handle);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.array = array->handle;
	result = CALL_SEND(call, gleamMipmapLevel, &m);
	if (result) {
		array_end(array);
		return result;
	}
	mipmap->levels[level] = array;
	return CUDA_SUCCESS;
}

CUresult do_cuMipmappedArrayGetLevel(struct call *call, CUarray *pLevelArray, CUmipmappedArray hMipmappedArray,
				     unsigned int level)
{
	struct mipmap *mipmap;
	uint64_t handle;
	CUresult result;

	if (!pLevelArray)
		return CUDA_ERROR_INVALID_VALUE;
	result = mipmap_find(call, hMipmappedArray, &handle);
	if (result)
		return result;
	mipmap = handle_data(OBJECT_MIPMAP, handle);
	if (!mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	if (level >= mipmap->level_count)
		return CUDA_ERROR_INVALID_VALUE;
	call_in(call, mipmap->context);
	pthread_mutex_lock(&levels_lock);
	if (!mipmap->levels[level])
		result = level_open_locked(call, mipmap, handle, level);
	if (!result)
		*pLevelArray = (CUarray)(uintptr_t)mipmap->levels[level]->handle;
	pthread_mutex_unlock(&levels_lock);
	return result;
}

static void mipmap_end(uint64_t handle)
{
	struct mipmap *mipmap = handle_end(handle);

	if (!mipmap)
		return;
	pthread_mutex_lock(&levels_lock);
	for (uint32_t i = 0; i < mipmap->level_count; i++)
		if (mipmap->levels[i])
			array_end(mipmap->levels[i]);
	pthread_mutex_unlock(&levels_lock);
	stable_give(&mipmaps, mipmap);
}

CUresult do_cuMipmappedArrayDestroy(struct call *call, CUmipmappedArray hMipmappedArray)
{
	struct msg_gleamMipmapEnd m;
	struct mipmap *mipmap;
	CUresult told, result = mipmap_find(call, hMipmappedArray, &m.mipmap);

	if (result)
		return result;
	mipmap = handle_data(OBJECT_MIPMAP, m.mipmap);
	if (!mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	call_in(call, mipmap->context);
	told = context_wait(call);
	result = CALL_SEND(call, gleamMipmapEnd, &m);
	if (result)
		return result;
	mipmap_end(m.mipmap);
	return told;
}

static CUresult plain_mipmap(struct call *call, const void *out, CUmipmappedArray handle)
{
	uint64_t wire;
	CUresult result = out ? mipmap_find(call, handle, &wire) : CUDA_ERROR_INVALID_VALUE;

	return result ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMipmappedArrayGetSparseProperties(struct call *call, CUDA_ARRAY_SPARSE_PROPERTIES *sparseProperties,
						CUmipmappedArray mipmap)
{
	return plain_mipmap(call, sparseProperties, mipmap);
}

CUresult do_cuMipmappedArrayGetMemoryRequirements(struct call *call, CUDA_ARRAY_MEMORY_REQUIREMENTS *memoryRequirements,
						  CUmipmappedArray mipmap, CUdevice device)
{
	return device_at(device) ? plain_mipmap(call, memoryRequirements, mipmap) : CUDA_ERROR_INVALID_DEVICE;
}

/* ---- the end of a context ---- */

static void closed_mipmap(uint64_t handle, void *data)
{
	mipmap_end(handle);
}

static void closed_array(uint64_t handle, void *data)
{
	stable_give(&arrays, handle_end(handle));
}

void array_context_closed(struct context *context)
{
	/* Levels go with theirs. */
	handle_each(OBJECT_MIPMAP, context, closed_mipmap);
	handle_each(OBJECT_ARRAY, context, closed_array);
}
