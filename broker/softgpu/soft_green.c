// SPDX-License-Identifier: Apache-2.0
/*
 * Green contexts, and the resources they are made of. Any thread.
 */
#include "broker/softgpu/soft_green.h"

#include <stdlib.h>
#include <string.h>

#include "broker/softgpu/soft_stream.h"

#define RESOURCE_MARK 0x736f6674u
/* As cuda.h tells them for 9.0; without regard to which multiprocessors are neighbours, those of older ones. */
#define SPLIT_UNIT 8u
#define SPLIT_UNIT_LOOSE 2u
#define SPLIT_FLAGS 3u

/* What a resource holds where programs don't look. */
struct inside {
	uint32_t mark;
	CUdevice device;
	uint32_t split; /* the split that it is an outcome of; 0: of none, so it can be split */
	uint32_t first; /* multiprocessors from this one on */
};

struct soft_desc {
	struct soft_object object;
	CUdevice device;
	CUdevResource sum;
};

struct soft_green {
	struct soft_object object;
	struct soft_green *next, **link; /* guarded by green_lock */
	struct soft_context *context;	 /* counted */
	CUdevResource resource;
};

static pthread_mutex_t green_lock = PTHREAD_MUTEX_INITIALIZER;
static struct soft_green *greens;
static _Atomic uint32_t splits = 1;

/* ---- resources ---- */

static CUdevResource resource_make(CUdevice device, uint32_t split, uint32_t first, uint32_t count)
{
	const struct inside inside = { RESOURCE_MARK, device, split, first };
	CUdevResource resource;

	memset(&resource, 0, sizeof(resource));
	resource.type = CU_DEV_RESOURCE_TYPE_SM;
	memcpy(resource._internal_padding, &inside, sizeof(inside));
	resource.sm.smCount = count;
	resource.sm.minSmPartitionSize = SPLIT_UNIT;
	resource.sm.smCoscheduledAlignment = SPLIT_UNIT;
	return resource;
}

static CUresult resource_read(const CUdevResource *resource, struct inside *inside_out)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(inside_out, resource->_internal_padding, sizeof(*inside_out));
	if (inside_out->mark != RESOURCE_MARK || !soft_device_find(inside_out->device) || inside_out->first > SOFT_SM_COUNT ||
	    resource->sm.smCount > SOFT_SM_COUNT - inside_out->first)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult resource_tell(CUdevResource *resource, int type, CUdevResource value)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	*resource = value;
	return CUDA_SUCCESS;
}

SOFT_API(cuDeviceGetDevResource, CUdevice device, CUdevResource *resource, int type)
{
	TRY(soft_ready());
	if (!soft_device_find(device))
		return CUDA_ERROR_INVALID_DEVICE;
	return resource_tell(resource, type, resource_make(device, 0, 0, SOFT_SM_COUNT));
}

SOFT_API(cuDevSmResourceSplitByCount, CUdevResource *result_out, unsigned int *count, const CUdevResource *input,
	 CUdevResource *remaining, unsigned int flags, unsigned int least)
{
	uint32_t unit = flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING ? SPLIT_UNIT_LOOSE : SPLIT_UNIT;
	uint32_t size, groups, split;
	struct inside inside;

	TRY(soft_ready());
	if (!count || flags & ~SPLIT_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(resource_read(input, &inside));
	if (least > input->sm.smCount)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	/* An outcome of a split is split again as a green context's. */
	if (inside.split)
		return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
	size = least ? (least + unit - 1) / unit * unit : unit;
	groups = input->sm.smCount / size;
	if (!result_out) {
		*count = groups;
		return CUDA_SUCCESS;
	}
	if (!*count || !groups)
		return *count ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_ERROR_INVALID_VALUE;
	*count = MIN(*count, groups);
	split = atomic_fetch_add(&splits, 1);
	/* @remaining may be where the input is. */
	struct inside from = inside;
	uint32_t all = input->sm.smCount, used = *count * size;

	for (uint32_t i = 0; i < *count; i++)
		result_out[i] = resource_make(from.device, split, from.first + i * size, size);
	if (remaining)
		*remaining = used < all ? resource_make(from.device, split, from.first + used, all - used) :
					  (CUdevResource){ .type = CU_DEV_RESOURCE_TYPE_INVALID };
	return CUDA_SUCCESS;
}

static void desc_free(struct soft_object *object)
{
	free(object);
}

SOFT_API(cuDevResourceGenerateDesc, CUdevResourceDesc *desc_out, CUdevResource *resources, unsigned int count)
{
	struct inside first = { .device = 0 }, inside;
	struct soft_desc *desc;
	uint32_t sum = 0;
	CUresult result;

	TRY(soft_ready());
	if (!desc_out || !resources || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		TRY(resource_read(&resources[i], &inside));
		if (!i)
			first = inside;
		else if (inside.device != first.device || inside.split != first.split || !inside.split)
			return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		first.first = MIN(first.first, inside.first);
		sum += resources[i].sm.smCount;
	}
	desc = calloc(1, sizeof(*desc));
	if (!desc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&desc->object, SOFT_DESC, NULL, desc_free);
	desc->device = first.device;
	/* It can be split again. */
	desc->sum = resource_make(first.device, 0, first.first, MIN(sum, SOFT_SM_COUNT - first.first));
	result = soft_object_publish(&desc->object);
	if (result != CUDA_SUCCESS) {
		soft_object_put(&desc->object);
		return result;
	}
	*desc_out = (CUdevResourceDesc)(uintptr_t)atomic_load(&desc->object.handle);
	return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

static CUresult green_find(CUgreenCtx handle, struct soft_green **green_out)
{
	TRY(soft_ready());
	*green_out = (struct soft_green *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_GREEN);
	return *green_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

#define GREEN_ARG(name, handle)                   \
	SOFT_HELD struct soft_green *name = NULL; \
	TRY(green_find(handle, &name))

static void green_free(struct soft_object *object)
{
	struct soft_green *green = (struct soft_green *)object;

	soft_object_put(&green->context->object);
	free(green);
}

SOFT_API(cuGreenCtxCreate, CUgreenCtx *green_out, CUdevResourceDesc handle, CUdevice dev, unsigned int flags)
{
	SOFT_HELD struct soft_desc *desc = NULL;
	struct soft_green *green;
	CUresult result;

	TRY(soft_ready());
	if (!soft_device_find(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	desc = (struct soft_desc *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_DESC);
	if (!green_out || !desc || desc->device != dev || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	green = calloc(1, sizeof(*green));
	if (!green)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = soft_context_green_new(soft_device_find(dev), &green->context);
	if (result != CUDA_SUCCESS) {
		free(green);
		return result;
	}
	soft_object_init(&green->object, SOFT_GREEN, NULL, green_free);
	soft_object_get(&green->context->object);
	green->context->green = green;
	green->resource = desc->sum;
	result = soft_object_publish(&green->object);
	if (result != CUDA_SUCCESS) {
		soft_context_green_end(green->context);
		soft_object_put(&green->object);
		return result;
	}
	pthread_mutex_lock(&green_lock);
	green->next = greens;
	green->link = &greens;
	if (greens)
		greens->link = &green->next;
	greens = green;
	pthread_mutex_unlock(&green_lock);
	*green_out = (CUgreenCtx)(uintptr_t)atomic_load(&green->object.handle);
	return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxDestroy, CUgreenCtx handle)
{
	struct soft_green *green;

	TRY(soft_ready());
	green = (struct soft_green *)soft_object_retire((uint64_t)(uintptr_t)handle, SOFT_GREEN);
	if (!green)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&green_lock);
	*green->link = green->next;
	if (green->next)
		green->next->link = green->link;
	pthread_mutex_unlock(&green_lock);
	/* Its work runs to the end, as that of an ordinary context. */
	soft_context_sync(green->context);
	soft_context_green_end(green->context);
	soft_object_put(&green->object);
	return CUDA_SUCCESS;
}

SOFT_API(cuCtxFromGreenCtx, CUcontext *context, CUgreenCtx handle)
{
	GREEN_ARG(green, handle);
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = soft_context_handle(green->context);
	return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxGetDevResource, CUgreenCtx handle, CUdevResource *resource, int type)
{
	GREEN_ARG(green, handle);
	return resource_tell(resource, type, green->resource);
}

SOFT_API(cuCtxGetDevResource, CUcontext handle, CUdevResource *resource, int type)
{
	SOFT_HELD struct soft_context *context = NULL;

	TRY(soft_ready());
	TRY(soft_context_find(handle, &context));
	return resource_tell(resource, type,
			     context->green ? context->green->resource : resource_make(context->device->ordinal, 0, 0, SOFT_SM_COUNT));
}

SOFT_API(cuGreenCtxGetId, CUgreenCtx handle, unsigned long long *id)
{
	SOFT_HELD struct soft_context *current = NULL;

	TRY(soft_ready());
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle) {
		TRY(soft_context_enter(&current));
		if (!current->green)
			return CUDA_ERROR_INVALID_CONTEXT;
		*id = atomic_load(&current->id);
		return CUDA_SUCCESS;
	}
	GREEN_ARG(green, handle);
	*id = atomic_load(&green->context->id);
	return CUDA_SUCCESS;
}

SOFT_API(cuGreenCtxStreamCreate, CUstream *stream_out, CUgreenCtx handle, unsigned int flags, int priority)
{
	struct soft_stream *stream;

	GREEN_ARG(green, handle);
	if (!stream_out || flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	priority = MAX(SOFT_PRIORITY_GREATEST, MIN(SOFT_PRIORITY_LEAST, priority));
	TRY(soft_stream_new(green->context, SOFT_STREAM_USER, flags, priority, &stream));
	*stream_out = (CUstream)(uintptr_t)atomic_load(&stream->object.handle);
	soft_object_put(&stream->object);
	return CUDA_SUCCESS;
}

static CUgreenCtx green_of(const struct soft_stream *stream)
{
	const struct soft_green *green = soft_stream_context(stream)->green;

	return green ? (CUgreenCtx)(uintptr_t)atomic_load(&green->object.handle) : NULL;
}

SOFT_API(cuStreamGetGreenCtx, CUstream handle, CUgreenCtx *green)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!green)
		return CUDA_ERROR_INVALID_VALUE;
	*green = green_of(stream);
	return CUDA_SUCCESS;
}

SOFT_API(cuStreamGetCtx_v2, CUstream handle, CUcontext *context, CUgreenCtx *green)
{
	SOFT_STREAM_ARG(stream, handle);
	if (!context || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*context = soft_context_handle(soft_context_home(soft_stream_context(stream)));
	*green = green_of(stream);
	return CUDA_SUCCESS;
}

CUresult soft_green_sync(struct soft_context *context)
{
	struct soft_context *parts[64];
	CUresult result = CUDA_SUCCESS;
	unsigned int count = 0;

	pthread_mutex_lock(&green_lock);
	for (struct soft_green *green = greens; green && count < sizeof(parts) / sizeof(parts[0]); green = green->next)
		if (green->context->base == context)
			parts[count++] = (struct soft_context *)soft_object_get(&green->context->object);
	pthread_mutex_unlock(&green_lock);
	for (unsigned int i = 0; i < count; i++) {
		CUresult one = soft_context_sync(parts[i]);

		result = result ? result : one;
		soft_object_put(&parts[i]->object);
	}
	return result;
}
