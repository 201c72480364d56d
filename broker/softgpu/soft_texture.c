// SPDX-License-Identifier: Apache-2.0
/*
 * Texture and surface objects: made of a description, sampled by kernels, destroyed. Any thread.
 *
 * Kernels look an object up for every texel. Each thread remembers the last ones together with a count of all objects
 * that were destroyed; what is destroyed is freed only after the launches that began before (as memory is, see
 * soft_map.h), so what a thread remembers of its own launch is there. The memory behind an object is checked against
 * the map whenever the map has lost something since the last look.
 */
#include "broker/softgpu/soft_texture.h"

#include <errno.h>
#include <stdlib.h>

#include "broker/softgpu/soft_array.h"
#include "broker/softgpu/soft_map.h"

#define TEXTURE_AS_INTEGER 0x01u
#define TEXTURE_NORMALIZED 0x02u
#define TEXTURE_SRGB 0x10u
#define TEXTURE_NO_TRILINEAR 0x20u /* an optimisation that there is none of */
#define TEXTURE_SEAMLESS 0x40u
#define TEXTURE_FLAGS (TEXTURE_AS_INTEGER | TEXTURE_NORMALIZED | TEXTURE_SRGB | TEXTURE_NO_TRILINEAR | TEXTURE_SEAMLESS)

/* As the device's attributes say. */
#define LINEAR_TEXELS_MAX 268435456ull
#define LINEAR_ALIGN 512u
#define PITCH_WIDTH_MAX 131072u
#define PITCH_HEIGHT_MAX 65000u
#define PITCH_MAX 2097120u
#define PITCH_ALIGN 32u
#define ANISOTROPY_MAX 16u

#define CACHE_SIZE 8u

struct soft_texture {
	struct soft_object object;
	/* set when it is made, then only read */
	struct sampler sampler;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view;
	/* soft_map_generation of the last look; a value that it never has before the first one */
	_Atomic uint64_t checked;
};

static _Atomic uint64_t destroyed; /* objects so far */

/* ---- what it lies over ---- */

static void image_of_array(const struct soft_array *array, struct sampler_image *image_out)
{
	*image_out = (struct sampler_image){
		.base = array->base,
		.pitch = array->pitch,
		.slice = array->pitch * array->rows,
		.width = (uint32_t)array->width,
		.height = (uint32_t)array->rows,
		.depth = (uint32_t)array->layers,
		.format = array->texel,
	};
}

static CUresult images_array(struct soft_texture *texture, CUarray handle)
{
	SOFT_ARRAY_ARG(array, handle);
	if (array->object.owner != texture->object.owner)
		return CUDA_ERROR_INVALID_HANDLE;
	image_of_array(array, &texture->sampler.levels[0]);
	texture->sampler.level_count = 1;
	return CUDA_SUCCESS;
}

static CUresult images_mipmap(struct soft_texture *texture, CUmipmappedArray handle)
{
	SOFT_HELD struct soft_mipmap *mipmap = NULL;

	TRY(soft_mipmap_find(handle, &mipmap));
	if (mipmap->object.owner != texture->object.owner)
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned int i = 0; i < mipmap->level_count; i++)
		image_of_array(mipmap->levels[i], &texture->sampler.levels[i]);
	texture->sampler.level_count = mipmap->level_count;
	return CUDA_SUCCESS;
}

static CUresult images_linear(struct soft_texture *texture)
{
	const CUDA_RESOURCE_DESC *resource = &texture->resource;
	struct sampler_image *image = &texture->sampler.levels[0];
	uint64_t count;

	if (!sampler_format_of(resource->res.linear.format, resource->res.linear.numChannels, &image->format))
		return CUDA_ERROR_INVALID_VALUE;
	count = resource->res.linear.sizeInBytes / sampler_texel_size(&image->format);
	if (!resource->res.linear.devPtr || resource->res.linear.devPtr % LINEAR_ALIGN || !count ||
	    count > LINEAR_TEXELS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	image->base = resource->res.linear.devPtr;
	image->width = (uint32_t)count;
	image->height = 1;
	image->depth = 1;
	texture->sampler.level_count = 1;
	texture->sampler.buffer = true;
	return CUDA_SUCCESS;
}

static CUresult images_pitch(struct soft_texture *texture)
{
	const CUDA_RESOURCE_DESC *resource = &texture->resource;
	struct sampler_image *image = &texture->sampler.levels[0];
	size_t width = resource->res.pitch2D.width, height = resource->res.pitch2D.height;
	size_t pitch = resource->res.pitch2D.pitchInBytes;

	if (!sampler_format_of(resource->res.pitch2D.format, resource->res.pitch2D.numChannels, &image->format))
		return CUDA_ERROR_INVALID_VALUE;
	if (!resource->res.pitch2D.devPtr || resource->res.pitch2D.devPtr % LINEAR_ALIGN || !height ||
	    width > PITCH_WIDTH_MAX || height > PITCH_HEIGHT_MAX || pitch > PITCH_MAX || pitch % PITCH_ALIGN ||
	    pitch < width * sampler_texel_size(&image->format))
		return CUDA_ERROR_INVALID_VALUE;
	image->base = resource->res.pitch2D.devPtr;
	image->pitch = pitch;
	/* A driver takes no width for no mistake; what is read there then is anybody's guess, and never outside. */
	image->width = width ? (uint32_t)width : 1;
	image->height = (uint32_t)height;
	image->depth = 1;
	texture->sampler.level_count = 1;
	return CUDA_SUCCESS;
}

static bool memory_there(struct soft_texture *texture)
{
	uint64_t generation = atomic_load(&soft_map_generation);

	if (generation == atomic_load_explicit(&texture->checked, memory_order_relaxed))
		return true;
	for (uint32_t i = 0; i < texture->sampler.level_count; i++) {
		const struct sampler_image *image = &texture->sampler.levels[i];

		if (!soft_map_covers(image->base, sampler_image_size(image), texture->object.type == SOFT_SURFACE))
			return false;
	}
	atomic_store_explicit(&texture->checked, generation, memory_order_relaxed);
	return true;
}

static CUresult images_find(struct soft_texture *texture)
{
	const CUDA_RESOURCE_DESC *resource = &texture->resource;

	if (resource->flags)
		return CUDA_ERROR_INVALID_VALUE;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		TRY(images_array(texture, resource->res.array.hArray));
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		TRY(images_mipmap(texture, resource->res.mipmap.hMipmappedArray));
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		TRY(images_linear(texture));
		break;
	case CU_RESOURCE_TYPE_PITCH2D:
		TRY(images_pitch(texture));
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return memory_there(texture) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- how it is seen ---- */

/* Another format of the same size, some of the levels, some of the layers. */
static CUresult view_apply(struct soft_texture *texture)
{
	const CUDA_RESOURCE_VIEW_DESC *view = &texture->view;
	struct sampler *sampler = &texture->sampler;
	struct sampler_format format = sampler->levels[0].format;

	if (texture->resource.resType != CU_RESOURCE_TYPE_ARRAY && texture->resource.resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	if (view->format > 0x18 && view->format <= 0x22) {
		soft_log("a view of compressed blocks: only plain integers, halves and floats");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (view->format && !sampler_format_of_view((unsigned int)view->format, &format))
		return CUDA_ERROR_INVALID_VALUE;
	if (sampler_texel_size(&format) != sampler_texel_size(&sampler->levels[0].format) ||
	    view->width != sampler->levels[0].width || MAX(view->height, 1) != sampler->levels[0].height ||
	    view->firstMipmapLevel > view->lastMipmapLevel ||
	    view->lastMipmapLevel >= sampler->level_count || view->firstLayer > view->lastLayer ||
	    view->lastLayer >= sampler->levels[0].depth)
		return CUDA_ERROR_INVALID_VALUE;
	sampler->level_count = view->lastMipmapLevel - view->firstMipmapLevel + 1;
	for (uint32_t i = 0; i < sampler->level_count; i++) {
		struct sampler_image *image = &sampler->levels[i];

		*image = sampler->levels[i + view->firstMipmapLevel];
		image->format = format;
		/* Without layers both are 0, also of what has a depth. */
		if (view->lastLayer) {
			image->base += view->firstLayer * image->slice;
			image->depth = view->lastLayer - view->firstLayer + 1;
		}
	}
	return CUDA_SUCCESS;
}

static CUresult modes_apply(struct soft_texture *texture)
{
	const CUDA_TEXTURE_DESC *desc = &texture->texture;
	struct sampler *sampler = &texture->sampler;

	if (desc->flags & ~TEXTURE_FLAGS || desc->filterMode < 0 || desc->filterMode > 1 ||
	    desc->mipmapFilterMode < 0 || desc->mipmapFilterMode > 1 || desc->maxAnisotropy > ANISOTROPY_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < 3; i++)
		if (desc->addressMode[i] < 0 || desc->addressMode[i] > 3)
			return CUDA_ERROR_INVALID_VALUE;
	if (desc->flags & (TEXTURE_SRGB | TEXTURE_SEAMLESS)) {
		soft_log("a texture of sRGB colours or a cube without seams: not done here");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	for (int i = 0; i < 3; i++)
		sampler->mode[i] = (enum sampler_mode)desc->addressMode[i];
	sampler->linear = desc->filterMode == 1;
	sampler->mip_linear = desc->mipmapFilterMode == 1;
	sampler->normalized = desc->flags & TEXTURE_NORMALIZED;
	sampler->as_integer = desc->flags & TEXTURE_AS_INTEGER;
	sampler->level_bias = desc->mipmapLevelBias;
	sampler->level_min = desc->minMipmapLevelClamp;
	sampler->level_max = desc->maxMipmapLevelClamp;
	if (!sampler->buffer)
		for (int i = 0; i < 4; i++)
			sampler->border[i] = desc->borderColor[i];
	return CUDA_SUCCESS;
}

/* ---- birth and end ---- */

static void texture_release(const struct soft_range *range)
{
	free(range->backing);
}

static void texture_free(struct soft_object *object)
{
	const struct soft_range leaving = { .release = texture_release, .backing = object };

	/* Pairs with the load in texture_find(): who sees the old count began before this. */
	atomic_fetch_add(&destroyed, 1);
	soft_map_release(&leaving);
}

/* Not published yet. */
static CUresult texture_new(enum soft_type type, const CUDA_RESOURCE_DESC *resource, struct soft_texture **texture_out)
{
	struct soft_texture *texture;
	CUresult result;

	SOFT_ENTER(context);
	texture = calloc(1, sizeof(*texture));
	if (!texture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&texture->object, type, context, texture_free);
	texture->resource = *resource;
	atomic_init(&texture->checked, UINT64_MAX);
	result = images_find(texture);
	if (result == CUDA_SUCCESS)
		*texture_out = texture;
	else
		soft_object_put(&texture->object);
	return result;
}

static CUresult texture_publish(struct soft_texture *texture, uint64_t *handle_out)
{
	CUresult result = soft_object_publish(&texture->object);

	if (result == CUDA_SUCCESS)
		*handle_out = atomic_load(&texture->object.handle);
	else
		soft_object_put(&texture->object);
	return result;
}

SOFT_API(cuTexObjectCreate, CUtexObject *object_out, const CUDA_RESOURCE_DESC *resource,
	 const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct soft_texture *texture;
	CUresult result;
	uint64_t handle;

	TRY(soft_ready());
	if (!object_out || !resource || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(texture_new(SOFT_TEXTURE, resource, &texture));
	texture->texture = *desc;
	result = modes_apply(texture);
	if (result == CUDA_SUCCESS && view) {
		texture->view = *view;
		texture->has_view = true;
		result = view_apply(texture);
	}
	if (result != CUDA_SUCCESS) {
		soft_object_put(&texture->object);
		return result;
	}
	TRY(texture_publish(texture, &handle));
	*object_out = handle;
	return CUDA_SUCCESS;
}

SOFT_API(cuSurfObjectCreate, CUsurfObject *object_out, const CUDA_RESOURCE_DESC *resource)
{
	struct soft_texture *surface;
	uint64_t handle;

	TRY(soft_ready());
	if (!object_out || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	{
		SOFT_ARRAY_ARG(array, resource->res.array.hArray);
		if (!(array->flags & ARRAY_SURFACE))
			return CUDA_ERROR_INVALID_VALUE;
	}
	TRY(texture_new(SOFT_SURFACE, resource, &surface));
	TRY(texture_publish(surface, &handle));
	*object_out = handle;
	return CUDA_SUCCESS;
}

static CUresult texture_destroy(uint64_t handle, enum soft_type type)
{
	struct soft_object *object;

	TRY(soft_ready());
	object = soft_object_retire(handle, type);
	if (!object)
		return CUDA_ERROR_INVALID_VALUE;
	soft_object_put(object);
	return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectDestroy, CUtexObject object)
{
	return texture_destroy(object, SOFT_TEXTURE);
}

SOFT_API(cuSurfObjectDestroy, CUsurfObject object)
{
	return texture_destroy(object, SOFT_SURFACE);
}

/* ---- questions ---- */

#define TEXTURE_ARG(name, handle, type, out)                                            \
	SOFT_HELD struct soft_texture *name = NULL;                                     \
	TRY(soft_ready());                                                              \
	name = (struct soft_texture *)soft_object_find(handle, type);                   \
	if (!name || !(out))                                                            \
		return CUDA_ERROR_INVALID_VALUE

SOFT_API(cuTexObjectGetResourceDesc, CUDA_RESOURCE_DESC *desc, CUtexObject object)
{
	TEXTURE_ARG(texture, object, SOFT_TEXTURE, desc);
	*desc = texture->resource;
	return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectGetTextureDesc, CUDA_TEXTURE_DESC *desc, CUtexObject object)
{
	TEXTURE_ARG(texture, object, SOFT_TEXTURE, desc);
	*desc = texture->texture;
	return CUDA_SUCCESS;
}

SOFT_API(cuTexObjectGetResourceViewDesc, CUDA_RESOURCE_VIEW_DESC *desc, CUtexObject object)
{
	TEXTURE_ARG(texture, object, SOFT_TEXTURE, desc);
	*desc = texture->has_view ? texture->view : (CUDA_RESOURCE_VIEW_DESC){ 0 };
	return CUDA_SUCCESS;
}

SOFT_API(cuSurfObjectGetResourceDesc, CUDA_RESOURCE_DESC *desc, CUsurfObject object)
{
	TEXTURE_ARG(surface, object, SOFT_SURFACE, desc);
	*desc = surface->resource;
	return CUDA_SUCCESS;
}

/* ---- kernels ---- */

/* What this thread has looked up; true as long as nothing was destroyed. */
struct remembered {
	uint64_t handle;
	uint64_t destroyed;
	struct soft_texture *texture;
};
static __thread struct remembered cache[CACHE_SIZE];

/* Not counted: it stays as long as the launch that the caller runs for. */
static struct soft_texture *texture_find(uint64_t handle)
{
	struct remembered *place = &cache[handle % CACHE_SIZE];
	uint64_t count = atomic_load(&destroyed);
	struct soft_object *object;

	if (place->texture && place->handle == handle && place->destroyed == count)
		return place->texture;
	object = soft_object_find(handle, SOFT_TEXTURE);
	if (!object)
		object = soft_object_find(handle, SOFT_SURFACE);
	if (!object)
		return NULL;
	*place = (struct remembered){ handle, count, (struct soft_texture *)object };
	/* From here on the visit holds it, not the count. */
	soft_object_put(object);
	return place->texture;
}

int soft_texture_texel(void *user, struct ptx_texel *texel)
{
	struct soft_texture *texture = texture_find(texel->handle);
	bool surface = texel->op == PTX_SULD || texel->op == PTX_SUST;

	if (!texture || texture->object.owner != (struct soft_context *)user)
		return -EINVAL;
	if (texel->op == PTX_TXQ) {
		sampler_query(&texture->sampler.levels[0], texel);
		return 0;
	}
	if ((texture->object.type == SOFT_SURFACE) != surface)
		return -EINVAL;
	if (!memory_there(texture))
		return -EFAULT;
	if (surface)
		return sampler_surface(&texture->sampler.levels[0], texel);
	sampler_fetch(&texture->sampler, texel);
	return 0;
}
