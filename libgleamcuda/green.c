// SPDX-License-Identifier: Apache-2.0
/*
 * Green contexts and the resources that they are made of. What a program holds of a resource is a number of the worker's; splits and
 * the making are round trips, as they are the driver's to judge. Application threads; see green.h.
 */
#include "libgleamcuda/green.h"

#include <stdlib.h>
#include <string.h>

#include "broker/proto/resource.h"
#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"

#define RESOURCE_MARK 0x676c6d72u
#define SPLIT_FLAGS   3u

/* Where programs don't look. */
struct inside {
	uint32_t mark;
	int32_t device; /* as the program counts */
	uint32_t split; /* that it is an outcome of; 0: of none */
	uint32_t number;
};

struct desc {
	int device;
	uint32_t count;
	uint32_t parts[];
};

static uint32_t splits; /* atomic */

/* By the context's index; atomic. */
static uint64_t handles[SESSION_CONTEXTS];

CUgreenCtx green_of(const struct context *context)
{
	return context->base ? (CUgreenCtx)(uintptr_t)__atomic_load_n(&handles[context->index], __ATOMIC_ACQUIRE) : NULL;
}

struct context *green_context(CUgreenCtx handle)
{
	return handle_data(OBJECT_GREEN, (uint64_t)(uintptr_t)handle);
}

/* ---- resources ---- */

static CUdevResource resource_of(int device, uint32_t split, const struct resource_entry *entry)
{
	const struct inside inside = { RESOURCE_MARK, device, split, entry->number };
	CUdevResource resource;

	memset(&resource, 0, sizeof(resource));
	if (entry->number == RESOURCE_NONE)
		return resource;
	resource.type = CU_DEV_RESOURCE_TYPE_SM;
	memcpy(resource._internal_padding, &inside, sizeof(inside));
	resource.sm.smCount = entry->count;
	resource.sm.minSmPartitionSize = entry->least;
	resource.sm.smCoscheduledAlignment = entry->unit;
	return resource;
}

static CUresult resource_read(const CUdevResource *resource, struct inside *inside_out)
{
	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	memcpy(inside_out, resource->_internal_padding, sizeof(*inside_out));
	return inside_out->mark == RESOURCE_MARK && device_at(inside_out->device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of @context, or of the device where it is NULL. */
static CUresult resource_ask(struct call *call, int device, struct context *context, CUdevResource *resource,
			     CUdevResourceType type)
{
	struct msg_gleamResource m = { .index = context ? context->index : CTX_NONE, .device = device_at(device)->node_device };
	struct resource_entry entry;
	struct ans_gleamResource a;
	CUresult result;

	if (!resource)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_RESOURCE_TYPE;
	call->context = NULL;
	call_to(call, device_at(device)->session);
	result = CALL_ASK(call, gleamResource, &m);
	if (result)
		return result;
	if (!ans_gleamResource_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	memcpy(&entry, a.entry, sizeof(entry));
	*resource = resource_of(device, 0, &entry);
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceGetDevResource(struct call *call, CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	return device_at(device) ? resource_ask(call, device, NULL, resource, type) : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult context_resource(struct call *call, struct context *context, CUdevResource *resource, CUdevResourceType type)
{
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return resource_ask(call, context->device, context, resource, type);
}

CUresult do_cuCtxGetDevResource(struct call *call, CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
	return context_resource(call, context_find(hCtx), resource, type);
}

CUresult do_cuGreenCtxGetDevResource(struct call *call, CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
	return context_resource(call, green_context(hCtx), resource, type);
}

CUresult do_cuDevSmResourceSplitByCount(struct call *call, CUdevResource *result_out, unsigned int *nbGroups,
					const CUdevResource *input, CUdevResource *remaining, unsigned int useFlags,
					unsigned int minCount)
{
	struct msg_gleamResourceSplit m = { .flags = useFlags, .least = minCount };
	struct ans_gleamResourceSplit a;
	struct resource_entry entry;
	struct inside inside;
	uint32_t split;
	CUresult result;

	if (!nbGroups || (useFlags & ~SPLIT_FLAGS) || (result_out && !*nbGroups))
		return CUDA_ERROR_INVALID_VALUE;
	result = resource_read(input, &inside);
	if (result)
		return result;
	m.from = inside.number;
	m.want = !result_out ? 0 : *nbGroups < RESOURCE_GROUPS ? *nbGroups : RESOURCE_GROUPS;
	call->context = NULL;
	call_to(call, device_at(inside.device)->session);
	result = CALL_ASK(call, gleamResourceSplit, &m);
	if (result)
		return result;
	if (!ans_gleamResourceSplit_get(&call->r, &a) ||
	    (m.want && (a.count > m.want || a.entries_size != (a.count + 1) * sizeof(entry))))
		return CUDA_ERROR_UNKNOWN;
	split = __atomic_add_fetch(&splits, 1, __ATOMIC_RELAXED);
	for (uint32_t i = 0; m.want && i <= a.count; i++) {
		memcpy(&entry, (const uint8_t *)a.entries + i * sizeof(entry), sizeof(entry));
		if (i < a.count)
			result_out[i] = resource_of(inside.device, split, &entry);
		else if (remaining)
			*remaining = resource_of(inside.device, split, &entry);
	}
	*nbGroups = a.count;
	return CUDA_SUCCESS;
}

/* Parts of one split of one device: more about them the driver says when a green context is made. */
CUresult do_cuDevResourceGenerateDesc(struct call *call, CUdevResourceDesc *phDesc, CUdevResource *resources,
				      unsigned int nbResources)
{
	struct inside first = { .device = 0 }, inside;
	struct desc *desc;
	uint64_t handle;

	if (!phDesc || !resources || !nbResources || nbResources > RESOURCE_GROUPS)
		return CUDA_ERROR_INVALID_VALUE;
	desc = malloc(sizeof(*desc) + nbResources * sizeof(desc->parts[0]));
	if (!desc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < nbResources; i++) {
		CUresult result = resource_read(&resources[i], &inside);

		if (!result && i && (inside.device != first.device || inside.split != first.split || !inside.split))
			result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
		if (result) {
			free(desc);
			return result;
		}
		if (!i)
			first = inside;
		desc->parts[i] = inside.number;
	}
	desc->device = first.device;
	desc->count = nbResources;
	handle = handle_new(OBJECT_DESC, NULL, desc);
	if (!handle) {
		free(desc);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	/* There is no call that ends one. */
	*phDesc = (CUdevResourceDesc)(uintptr_t)handle;
	return CUDA_SUCCESS;
}

/* ---- green contexts ---- */

CUresult do_cuGreenCtxCreate(struct call *call, CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	const struct desc *d = handle_data(OBJECT_DESC, (uint64_t)(uintptr_t)desc);
	struct context *context;
	uint64_t handle;
	CUresult result;

	if (!device_at(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!phCtx || !d || d->device != dev || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	result = context_green_make(call, dev, d->parts, d->count, &context);
	if (result)
		return result;
	handle = handle_new(OBJECT_GREEN, NULL, context);
	if (!handle) {
		context_green_end(call, context);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	__atomic_store_n(&handles[context->index], handle, __ATOMIC_RELEASE);
	*phCtx = (CUgreenCtx)(uintptr_t)handle;
	return CUDA_SUCCESS;
}

CUresult do_cuGreenCtxDestroy(struct call *call, CUgreenCtx hCtx)
{
	struct context *context = green_context(hCtx);

	if (!context || !handle_end((uint64_t)(uintptr_t)hCtx))
		return CUDA_ERROR_INVALID_CONTEXT;
	__atomic_store_n(&handles[context->index], 0, __ATOMIC_RELEASE);
	return context_green_end(call, context);
}

CUresult do_cuCtxFromGreenCtx(struct call *call, CUcontext *pContext, CUgreenCtx hCtx)
{
	const struct context *context = green_context(hCtx);

	if (!pContext)
		return CUDA_ERROR_INVALID_VALUE;
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	*pContext = context->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuGreenCtxGetId(struct call *call, CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
	const struct context *context = greenCtx ? green_context(greenCtx) : call->green;

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!__atomic_load_n(&context->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!greenCtxId)
		return CUDA_ERROR_INVALID_VALUE;
	*greenCtxId = __atomic_load_n(&context->id, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

CUresult do_cuGreenCtxStreamCreate(struct call *call, CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	struct context *context = green_context(greenCtx);

	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (flags != CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	/* The current context is of no account. */
	call->green = context;
	call_in(call, context->base);
	return do_cuStreamCreateWithPriority(call, phStream, flags, priority);
}

CUresult do_cuStreamGetGreenCtx(struct call *call, CUstream hStream, CUgreenCtx *phCtx)
{
	uint64_t handle;
	CUresult result = call_stream_named(call, hStream, &handle);

	if (result)
		return result;
	if (!phCtx)
		return CUDA_ERROR_INVALID_VALUE;
	*phCtx = green_of(call->context);
	return CUDA_SUCCESS;
}
