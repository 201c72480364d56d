// SPDX-License-Identifier: Apache-2.0
/*
 * Attributes of streams: kept here, where they are asked for, and sent where the node's driver makes use of them: windows of
 * the cache, domains of memory order, priorities. How a host thread waits is this machine's affair. Application threads.
 */
#include <pthread.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

/* Those of all streams: they are set rarely. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const int known[] = {
	CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CU_LAUNCH_ATTRIBUTE_PRIORITY,
	CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
};

static CUresult stream_of(struct call *call, CUstream handle, struct stream **stream_out)
{
	uint64_t wire;
	CUresult result = call_stream_named(call, handle, &wire);

	if (!result)
		*stream_out = stream_find(call, wire);
	return result;
}

static int domain_count(const struct call *call)
{
	return device_at(call->context->device)->attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];
}

/* Copies the part that @attr uses; what isn't set yet has its value of the beginning. Lock held. */
static bool value_get(const struct stream *stream, int attr, CUstreamAttrValue *value)
{
	const struct stream_attributes *a = &stream->attributes;

	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = a->window;
		return true;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = a->policy ? a->policy : CU_SYNC_POLICY_AUTO;
		return true;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = __atomic_load_n(&stream->priority, __ATOMIC_RELAXED);
		return true;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		if (a->has_map)
			value->memSyncDomainMap = a->map;
		else
			value->memSyncDomainMap = (CUlaunchMemSyncDomainMap){ .default_ = 0, .remote = 1 };
		return true;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = a->domain;
		return true;
	default:
		return false;
	}
}

static CUresult window_check(const struct call *call, const CUaccessPolicyWindow *window)
{
	const struct device *device = device_at(call->context->device);
	int most = device->attributes[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE];

	if ((unsigned int)window->hitProp > CU_ACCESS_PROPERTY_PERSISTING ||
	    (unsigned int)window->missProp > CU_ACCESS_PROPERTY_STREAMING)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(window->hitRatio >= 0 && window->hitRatio <= 1) || window->num_bytes > (uint64_t)most)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult value_check(const struct call *call, int attr, const CUstreamAttrValue *value)
{
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return window_check(call, &value->accessPolicyWindow);
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return (int)value->syncPolicy >= CU_SYNC_POLICY_AUTO &&
				       (int)value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC ?
			       CUDA_SUCCESS :
			       CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return value->memSyncDomainMap.default_ < domain_count(call) && value->memSyncDomainMap.remote < domain_count(call) ?
			       CUDA_SUCCESS :
			       CUDA_ERROR_INVALID_VALUE;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return (unsigned int)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE ? CUDA_SUCCESS :
												  CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* The driver clamps: greatest is the smaller number. */
static int priority_clamp(const struct call *call, int priority)
{
	const struct snapshot_device *d = &call->session->snapshot.devices[call->context->node_device];

	if (priority > d->priority_least)
		return d->priority_least;
	return priority < d->priority_greatest ? d->priority_greatest : priority;
}

/* Lock held. The value has been checked. */
static void value_keep(const struct call *call, struct stream *stream, int attr, const CUstreamAttrValue *value)
{
	struct stream_attributes *a = &stream->attributes;

	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		a->window = value->accessPolicyWindow;
		break;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		a->policy = value->syncPolicy;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		__atomic_store_n(&stream->priority, priority_clamp(call, value->priority), __ATOMIC_RELAXED);
		break;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		a->map = value->memSyncDomainMap;
		a->has_map = true;
		break;
	default:
		a->domain = value->memSyncDomain;
		break;
	}
}

static CUresult value_set(struct call *call, struct stream *stream, int attr, const CUstreamAttrValue *value)
{
	struct msg_gleamStreamAttribute m = { .stream = stream->handle, .attr = (uint32_t)attr };
	CUstreamAttrValue sent = { .pad = { 0 } };
	CUresult result = value_check(call, attr, value);

	if (result)
		return result;
	pthread_mutex_lock(&lock);
	value_keep(call, stream, attr, value);
	/* What is not used of the union is the program's, and may be anything. */
	value_get(stream, attr, &sent);
	pthread_mutex_unlock(&lock);
	if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY)
		return CUDA_SUCCESS;
	m.value = &sent;
	m.value_size = sizeof(sent);
	result = call_open(call, OP_gleamStreamAttribute, msg_gleamStreamAttribute_size(&m));
	if (result)
		return result;
	msg_gleamStreamAttribute_put(&call->w, &m);
	stream_note(call, stream->handle, call_post(call));
	return CUDA_SUCCESS;
}

CUresult do_cuStreamSetAttribute(struct call *call, CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *param)
{
	struct stream *stream;
	CUresult result = stream_of(call, hStream, &stream);

	if (result)
		return result;
	return param ? value_set(call, stream, (int)attr, param) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuStreamGetAttribute(struct call *call, CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	struct stream *stream;
	CUresult result = stream_of(call, hStream, &stream);

	if (result)
		return result;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	result = value_get(stream, (int)attr, value) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&lock);
	return result;
}

CUresult do_cuStreamCopyAttributes(struct call *call, CUstream dstStream, CUstream srcStream)
{
	struct stream *from, *to;
	CUresult result = stream_of(call, srcStream, &from);

	if (!result)
		result = stream_of(call, dstStream, &to);
	if (result)
		return result;
	if (from->context != to->context)
		return CUDA_ERROR_INVALID_HANDLE;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !result; i++) {
		CUstreamAttrValue have = { .pad = { 0 } }, want = { .pad = { 0 } };

		pthread_mutex_lock(&lock);
		value_get(to, known[i], &have);
		value_get(from, known[i], &want);
		pthread_mutex_unlock(&lock);
		if (memcmp(&have, &want, sizeof(have)))
			result = value_set(call, to, known[i], &want);
	}
	return result;
}
