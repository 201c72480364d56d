// SPDX-License-Identifier: Apache-2.0
/*
 * Texture and surface objects. Kernels get an object as a number among their parameters, so it must be the one that the
 * driver chose: making one asks, and the driver's own checks come back with it. What the object was made of is kept here,
 * by context and number, so that questions need nobody. Application threads.
 */
#include "libgleamcuda/texture.h"

#include <pthread.h>
#include <stdlib.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/array.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/handle.h"

#define BUCKETS 1024u /* programs have a few textures, renderers some thousand */

struct texture {
	struct texture *next; /* guarded by lock */
	struct context *context;
	enum object_type type; /* OBJECT_TEX, OBJECT_SURF */
	uint64_t value;	       /* the driver's number */
	uint64_t handle;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC desc;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct texture *buckets[BUCKETS]; /* guarded by lock */

static struct texture **bucket_of(uint64_t value)
{
	return &buckets[(value ^ value >> 20) % BUCKETS];
}

/* The link to what @context has under @value; to NULL without. */
static struct texture **find_locked(const struct context *context, enum object_type type, uint64_t value)
{
	struct texture **link = bucket_of(value);

	while (*link && ((*link)->value != value || (*link)->type != type || (*link)->context != context))
		link = &(*link)->next;
	return link;
}

static void texture_add(struct texture *texture)
{
	struct texture **bucket = bucket_of(texture->value);

	pthread_mutex_lock(&lock);
	texture->next = *bucket;
	*bucket = texture;
	pthread_mutex_unlock(&lock);
}

/* A copy of what is known of an object of the current context. */
static CUresult texture_get(struct call *call, enum object_type type, uint64_t value, struct texture *texture_out)
{
	struct texture *texture;

	pthread_mutex_lock(&lock);
	texture = *find_locked(call->context, type, value);
	if (texture)
		*texture_out = *texture;
	pthread_mutex_unlock(&lock);
	return texture ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- what it lies over ---- */

static CUresult resource_array(struct call *call, CUarray handle, uint64_t *wire_out)
{
	struct array *array;
	CUresult result = array_find(call, handle, &array);

	if (result)
		return result;
	*wire_out = array->handle;
	return array->context == call->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Memory that is not the device's must not reach the driver as if it were. */
static CUresult resource_memory(struct call *call, uint64_t address, uint64_t size)
{
	enum place place;
	uint64_t left;

	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	place = place_of(address, &left);
	if (place == PLACE_PINNED)
		return call_refuse(call, "textures lie over device memory; a page-locked range is only mirrored there");
	return place == PLACE_DEVICE && size <= left ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult resource_put(struct call *call, const CUDA_RESOURCE_DESC *resource, struct msg_gleamTexCreate *m)
{
	uint32_t channels, size;
	uint64_t span;

	m->type = resource->resType;
	m->resource_flags = resource->flags;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return resource_array(call, resource->res.array.hArray, &m->resource);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return mipmap_find(call, resource->res.mipmap.hMipmappedArray, &m->resource);
	case CU_RESOURCE_TYPE_LINEAR:
		m->resource = resource->res.linear.devPtr;
		m->format = resource->res.linear.format;
		m->channels = resource->res.linear.numChannels;
		m->width = resource->res.linear.sizeInBytes;
		return resource_memory(call, m->resource, m->width);
	case CU_RESOURCE_TYPE_PITCH2D:
		m->resource = resource->res.pitch2D.devPtr;
		m->format = resource->res.pitch2D.format;
		m->channels = resource->res.pitch2D.numChannels;
		m->width = resource->res.pitch2D.width;
		m->height = resource->res.pitch2D.height;
		m->pitch = resource->res.pitch2D.pitchInBytes;
		size = array_channel_size(resource->res.pitch2D.format, &channels) * m->channels;
		if (!size || !m->height || m->channels > 4 || m->width > DEVICE_SPAN_MAX / size ||
		    m->pitch > DEVICE_SPAN_MAX || __builtin_mul_overflow(m->pitch, m->height - 1, &span) ||
		    __builtin_add_overflow(span, m->width * size, &span))
			return CUDA_ERROR_INVALID_VALUE;
		return resource_memory(call, m->resource, span);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- birth and end ---- */

/* Not known to the worker yet. */
static struct texture *texture_new(struct call *call, enum object_type type, const CUDA_RESOURCE_DESC *resource)
{
	struct texture *texture = calloc(1, sizeof(*texture));

	if (!texture)
		return NULL;
	texture->context = call->context;
	texture->type = type;
	texture->resource = *resource;
	texture->handle = handle_new(type, call->context, NULL);
	if (texture->handle)
		return texture;
	free(texture);
	return NULL;
}

static void texture_free(struct texture *texture)
{
	handle_end(texture->handle);
	free(texture);
}

CUresult do_cuTexObjectCreate(struct call *call, CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
			      const CUDA_TEXTURE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct msg_gleamTexCreate m = { .has_view = view != NULL };
	struct ans_gleamTexCreate a;
	struct texture *texture;
	CUresult result;

	if (!pTexObject || !pResDesc || !d)
		return CUDA_ERROR_INVALID_VALUE;
	result = resource_put(call, pResDesc, &m);
	if (result)
		return result;
	texture = texture_new(call, OBJECT_TEX, pResDesc);
	if (!texture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	texture->desc = *d;
	m.tex = texture->handle;
	m.mode_x = d->addressMode[0];
	m.mode_y = d->addressMode[1];
	m.mode_z = d->addressMode[2];
	m.filter = d->filterMode;
	m.flags = d->flags;
	m.anisotropy = d->maxAnisotropy;
	m.level_filter = d->mipmapFilterMode;
	m.level_bias = d->mipmapLevelBias;
	m.level_min = d->minMipmapLevelClamp;
	m.level_max = d->maxMipmapLevelClamp;
	m.border_r = d->borderColor[0];
	m.border_g = d->borderColor[1];
	m.border_b = d->borderColor[2];
	m.border_a = d->borderColor[3];
	if (view) {
		texture->view = *view;
		texture->has_view = true;
		m.view_format = view->format;
		m.view_width = view->width;
		m.view_height = view->height;
		m.view_depth = view->depth;
		m.first_level = view->firstMipmapLevel;
		m.last_level = view->lastMipmapLevel;
		m.first_layer = view->firstLayer;
		m.last_layer = view->lastLayer;
	}
	result = CALL_ASK(call, gleamTexCreate, &m);
	if (!result && !ans_gleamTexCreate_get(&call->r, &a))
		result = CUDA_ERROR_UNKNOWN;
	if (result) {
		texture_free(texture);
		return result;
	}
	texture->value = a.value;
	texture_add(texture);
	*pTexObject = a.value;
	return CUDA_SUCCESS;
}

CUresult do_cuSurfObjectCreate(struct call *call, CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	struct msg_gleamSurfCreate m;
	struct ans_gleamSurfCreate a;
	struct texture *texture;
	CUresult result;

	if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY || pResDesc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = resource_array(call, pResDesc->res.array.hArray, &m.array);
	if (result)
		return result;
	texture = texture_new(call, OBJECT_SURF, pResDesc);
	if (!texture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m.surf = texture->handle;
	result = CALL_ASK(call, gleamSurfCreate, &m);
	if (!result && !ans_gleamSurfCreate_get(&call->r, &a))
		result = CUDA_ERROR_UNKNOWN;
	if (result) {
		texture_free(texture);
		return result;
	}
	texture->value = a.value;
	texture_add(texture);
	*pSurfObject = a.value;
	return CUDA_SUCCESS;
}

/* Takes it out; NULL where there is none. */
static struct texture *texture_take(struct call *call, enum object_type type, uint64_t value)
{
	struct texture **link, *texture;

	pthread_mutex_lock(&lock);
	link = find_locked(call->context, type, value);
	texture = *link;
	if (texture)
		*link = texture->next;
	pthread_mutex_unlock(&lock);
	return texture;
}

CUresult do_cuTexObjectDestroy(struct call *call, CUtexObject texObject)
{
	struct texture *texture = texture_take(call, OBJECT_TEX, texObject);
	struct msg_gleamTexEnd m;
	CUresult result;

	if (!texture)
		return CUDA_ERROR_INVALID_VALUE;
	m.tex = texture->handle;
	result = CALL_SEND(call, gleamTexEnd, &m);
	texture_free(texture);
	return result;
}

CUresult do_cuSurfObjectDestroy(struct call *call, CUsurfObject surfObject)
{
	struct texture *texture = texture_take(call, OBJECT_SURF, surfObject);
	struct msg_gleamSurfEnd m;
	CUresult result;

	if (!texture)
		return CUDA_ERROR_INVALID_VALUE;
	m.surf = texture->handle;
	result = CALL_SEND(call, gleamSurfEnd, &m);
	texture_free(texture);
	return result;
}

/* ---- questions ---- */

CUresult do_cuTexObjectGetResourceDesc(struct call *call, CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
	struct texture texture;
	CUresult result = pResDesc ? texture_get(call, OBJECT_TEX, texObject, &texture) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*pResDesc = texture.resource;
	return result;
}

CUresult do_cuTexObjectGetTextureDesc(struct call *call, CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
	struct texture texture;
	CUresult result = pTexDesc ? texture_get(call, OBJECT_TEX, texObject, &texture) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*pTexDesc = texture.desc;
	return result;
}

CUresult do_cuTexObjectGetResourceViewDesc(struct call *call, CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
					   CUtexObject texObject)
{
	struct texture texture;
	CUresult result = pResViewDesc ? texture_get(call, OBJECT_TEX, texObject, &texture) : CUDA_ERROR_INVALID_VALUE;

	/* The driver tells of a texture without a view of its own, too: none. */
	if (!result)
		*pResViewDesc = texture.has_view ? texture.view : (CUDA_RESOURCE_VIEW_DESC){ 0 };
	return result;
}

CUresult do_cuSurfObjectGetResourceDesc(struct call *call, CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
	struct texture texture;
	CUresult result = pResDesc ? texture_get(call, OBJECT_SURF, surfObject, &texture) : CUDA_ERROR_INVALID_VALUE;

	if (!result)
		*pResDesc = texture.resource;
	return result;
}

/* ---- the end of a context ---- */

void texture_context_closed(struct context *context)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < BUCKETS; i++) {
		struct texture **link = &buckets[i];

		while (*link) {
			struct texture *texture = *link;

			if (texture->context != context) {
				link = &texture->next;
				continue;
			}
			*link = texture->next;
			texture_free(texture);
		}
	}
	pthread_mutex_unlock(&lock);
}
