// SPDX-License-Identifier: Apache-2.0
/*
 * Texture and surface objects. Made by the driver, whose number of an object goes back to the client. Executor thread.
 */
#include "broker/worker/number.h"
#include "broker/worker/state.h"
#include "gen/worker_bodies.h"

/* INVALID_HANDLE for an array that is none; addresses are the driver's to check. */
static CUresult resource_get(struct worker *w, const struct msg_gleamTexCreate *m, CUDA_RESOURCE_DESC *out)
{
	void *object = NULL;

	*out = (CUDA_RESOURCE_DESC){ .resType = (CUresourcetype)m->type, .flags = m->resource_flags };
	switch (m->type) {
	case CU_RESOURCE_TYPE_ARRAY:
		if (!object_get(w, OBJECT_ARRAY, m->resource, false, &object))
			return CUDA_ERROR_INVALID_HANDLE;
		out->res.array.hArray = object;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		if (!object_get(w, OBJECT_MIPMAP, m->resource, false, &object))
			return CUDA_ERROR_INVALID_HANDLE;
		out->res.mipmap.hMipmappedArray = object;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR:
		out->res.linear.devPtr = m->resource;
		out->res.linear.format = (CUarray_format)m->format;
		out->res.linear.numChannels = m->channels;
		out->res.linear.sizeInBytes = m->width;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_PITCH2D:
		out->res.pitch2D.devPtr = m->resource;
		out->res.pitch2D.format = (CUarray_format)m->format;
		out->res.pitch2D.numChannels = m->channels;
		out->res.pitch2D.width = m->width;
		out->res.pitch2D.height = m->height;
		out->res.pitch2D.pitchInBytes = m->pitch;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

struct texture_made {
	const CUDA_RESOURCE_DESC *resource;
	const CUDA_TEXTURE_DESC *desc;
	const CUDA_RESOURCE_VIEW_DESC *view;
};

static CUresult texture_make(struct worker *w, void *arg, uint64_t *number_out)
{
	const struct texture_made *made = arg;
	CUtexObject value = 0;
	CUresult r = w->drv.cuTexObjectCreate(&value, made->resource, made->desc, made->view);

	*number_out = value;
	return r;
}

static CUresult surface_make(struct worker *w, void *arg, uint64_t *number_out)
{
	CUsurfObject value = 0;
	CUresult r = w->drv.cuSurfObjectCreate(&value, arg);

	*number_out = value;
	return r;
}

CUresult worker_do_gleamTexCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamTexCreate *m,
				  struct ans_gleamTexCreate *a)
{
	CUDA_TEXTURE_DESC desc = {
		.addressMode = { (CUaddress_mode)m->mode_x, (CUaddress_mode)m->mode_y, (CUaddress_mode)m->mode_z },
		.filterMode = (CUfilter_mode)m->filter, .flags = m->flags, .maxAnisotropy = m->anisotropy,
		.mipmapFilterMode = (CUfilter_mode)m->level_filter, .mipmapLevelBias = m->level_bias,
		.minMipmapLevelClamp = m->level_min, .maxMipmapLevelClamp = m->level_max,
		.borderColor = { m->border_r, m->border_g, m->border_b, m->border_a },
	};
	CUDA_RESOURCE_VIEW_DESC view = {
		.format = (CUresourceViewFormat)m->view_format, .width = m->view_width, .height = m->view_height,
		.depth = m->view_depth, .firstMipmapLevel = m->first_level, .lastMipmapLevel = m->last_level,
		.firstLayer = m->first_layer, .lastLayer = m->last_layer,
	};
	CUDA_RESOURCE_DESC resource;
	struct texture_made made = { &resource, &desc, m->has_view ? &view : NULL };
	uint64_t value;
	CUresult r = resource_get(w, m, &resource);

	if (r == CUDA_SUCCESS)
		r = number_make(w, OBJECT_TEX, m->tex, texture_make, &made, &value);
	if (r != CUDA_SUCCESS)
		return r;
	if (!object_add(w, OBJECT_TEX, m->tex, (void *)(uintptr_t)value)) {
		w->drv.cuTexObjectDestroy(value);
		return CMD_BROKEN;
	}
	a->value = value;
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamTexEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamTexEnd *m)
{
	void *value;

	/* Its context may have ended before. */
	if (!object_get(w, OBJECT_TEX, m->tex, false, &value))
		return CUDA_SUCCESS;
	object_remove(w, m->tex);
	return w->drv.cuTexObjectDestroy((CUtexObject)(uintptr_t)value);
}

CUresult worker_do_gleamSurfCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamSurfCreate *m,
				   struct ans_gleamSurfCreate *a)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY };
	uint64_t value;
	void *array;
	CUresult r;

	if (!object_get(w, OBJECT_ARRAY, m->array, false, &array))
		return CUDA_ERROR_INVALID_HANDLE;
	resource.res.array.hArray = array;
	r = number_make(w, OBJECT_SURF, m->surf, surface_make, &resource, &value);
	if (r != CUDA_SUCCESS)
		return r;
	if (!object_add(w, OBJECT_SURF, m->surf, (void *)(uintptr_t)value)) {
		w->drv.cuSurfObjectDestroy(value);
		return CMD_BROKEN;
	}
	a->value = value;
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamSurfEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamSurfEnd *m)
{
	void *value;

	if (!object_get(w, OBJECT_SURF, m->surf, false, &value))
		return CUDA_SUCCESS;
	object_remove(w, m->surf);
	return w->drv.cuSurfObjectDestroy((CUsurfObject)(uintptr_t)value);
}
