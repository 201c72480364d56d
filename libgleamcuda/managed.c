// SPDX-License-Identifier: Apache-2.0
/*
 * The API of managed memory. The device states that host and device can't use it at once, and natively such a device takes no
 * prefetches and no advice that names it; they are taken here all the same, for programs that don't ask before: a prefetch
 * saves the waiting at the first touch, advice is remembered. What is asked of other memory is answered as natively.
 * Application threads.
 */
#include "libgleamcuda/managed.h"

#include <stddef.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/advice.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/stream.h"

#define BATCH_MAX (1u << 20) /* ranges of one call: a number beyond is a mistake */

static uint64_t pages(uint64_t size)
{
	return (size + MEMORY_PAGE - 1) & ~(uint64_t)(MEMORY_PAGE - 1);
}

/* ---- memory ---- */

/* Natively its pages are zero when they are first touched, from either side; the host's are. */
static CUresult clear(struct call *call, uint64_t address, uint64_t size)
{
	struct msg_cuMemsetD8Async m = { .dstDevice = address, .N = size, .hStream = WIRE_STREAM_LEGACY };
	CUresult result = call_open(call, OP_cuMemsetD8Async, msg_cuMemsetD8Async_size(&m));

	if (result)
		return result;
	msg_cuMemsetD8Async_put(&call->w, &m);
	stream_note(call, WIRE_STREAM_LEGACY, call_post(call));
	return fence_raise(call, WIRE_STREAM_LEGACY);
}

CUresult do_cuMemAllocManaged(struct call *call, CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct range range = { .size = bytesize, .kind = RANGE_MANAGED, .device = call->context->device,
			       .context = call->context };
	CUresult result;

	if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	if (bytesize > DEVICE_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = memory_take_pages(call, pages(bytesize), &range.start, &range.owner);
	if (result)
		return result;
	range.host = range.dev = range.start;
	result = region_open(call, range.start, pages(bytesize), true, false);
	if (result)
		goto give;
	if (flags == CU_MEM_ATTACH_HOST)
		region_attach(range.start, REGION_HOST, 0);
	result = clear(call, range.start, pages(bytesize));
	if (!result && range_add(&range))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result)
		goto close;
	*dptr = range.start;
	return CUDA_SUCCESS;

close:
	region_close(range.start);
give:
	memory_give(call, range.start, pages(bytesize), range.owner);
	return result;
}

CUresult managed_give(struct call *call, const struct range *range)
{
	region_close(range->start);
	advice_forget(range->start);
	return memory_give(call, range->start, pages(range->size), range->owner);
}

CUresult managed_variable(struct call *call, struct program *program, uint64_t address, uint64_t size)
{
	struct range range = { .start = address, .size = size, .kind = RANGE_MANAGED, .flags = RANGE_VARIABLE,
			       .device = call->context->device, .context = call->context, .host = address, .dev = address,
			       .owner = program };
	CUresult result = region_open(call, address, size, false, true);

	if (result == CUDA_ERROR_NOT_SUPPORTED)
		gleam_log("a __managed__ variable lies at %#llx on the server, and this process has something else there",
			  (unsigned long long)address);
	if (!result && range_add(&range)) {
		region_close(address);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

void managed_variable_gone(struct program *program, uint64_t address)
{
	struct range range;

	region_close(address);
	advice_forget(address);
	if (range_find(address, &range) && range.kind == RANGE_MANAGED && range.owner == program && range.start == address)
		range_remove(address, false, NULL);
}

/* ---- ranges and locations ---- */

/* The driver looks at the location before it looks for the range. */
static CUresult location_check(const CUmemLocation *location)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return context_primary(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUmemLocation location_of(CUdevice device)
{
	if (device == CU_DEVICE_CPU)
		return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST };
	return (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
}

/* Managed memory that holds all of it. */
static CUresult managed_of(CUdeviceptr address, size_t size, struct range *range_out)
{
	if (!size || !range_find(address, range_out) || range_out->kind != RANGE_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	/* Pages are whole: what is behind the end belongs to it. */
	if (size > pages(range_out->size) - (address - range_out->start))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* ---- advice ---- */

struct change {
	CUmem_advise advice;
	CUmemLocation location;
};

static void advise(struct advice *advice, const void *arg)
{
	const struct change *c = arg;
	uint64_t who = c->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? 1ull << (c->location.id & 31) : ADVICE_CPU;

	switch ((int)c->advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
		advice->read_mostly = true;
		break;
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
		advice->read_mostly = false;
		break;
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
		advice->preferred = c->location;
		break;
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		advice->preferred = (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_INVALID };
		break;
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
		advice->accessed_by |= who;
		break;
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		advice->accessed_by &= ~who;
		break;
	}
}

CUresult do_cuMemAdvise_v2(struct call *call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
			   CUmemLocation location)
{
	struct change change = { advice, location };
	struct range range;
	CUresult result = CUDA_SUCCESS;

	switch ((int)advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		break; /* the location is not looked at */
	case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
	case CU_MEM_ADVISE_SET_ACCESSED_BY:
	case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
		result = location_check(&location);
		break;
	default:
		result = location_check(&location);
		if (!result)
			result = CUDA_ERROR_INVALID_VALUE;
	}
	if (!result)
		result = managed_of(devPtr, count, &range);
	return result ? result : advice_change(range.start, range.size, devPtr, count, advise, &change);
}

CUresult do_cuMemAdvise(struct call *call, CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return do_cuMemAdvise_v2(call, devPtr, count, advice, location_of(device));
}

/* ---- prefetches ---- */

static void prefetched(struct advice *advice, const void *arg)
{
	advice->prefetched = *(const CUmemLocation *)arg;
}

static CUresult prefetch(struct call *call, uint64_t stream, CUdeviceptr address, size_t size, const CUmemLocation *location)
{
	struct range range;
	CUresult result = managed_of(address, size, &range);

	if (!result)
		result = advice_change(range.start, range.size, address, size, prefetched, location);
	if (result)
		return result;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		return region_push(call, stream, address, size);
	region_wish(call, stream, address, size);
	return CUDA_SUCCESS;
}

CUresult do_cuMemPrefetchAsync_v2(struct call *call, CUdeviceptr devPtr, size_t count, CUmemLocation location,
				  unsigned int flags, CUstream hStream)
{
	uint64_t stream;
	CUresult result = location_check(&location);

	if (!result)
		result = call_stream(call, hStream, &stream);
	if (!result && flags)
		result = CUDA_ERROR_INVALID_VALUE;
	return result ? result : prefetch(call, stream, devPtr, count, &location);
}

CUresult do_cuMemPrefetchAsync(struct call *call, CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return do_cuMemPrefetchAsync_v2(call, devPtr, count, location_of(dstDevice), 0, hStream);
}

/* Ranges of a batch, each of which has to be managed before anything is done. */
static CUresult batch_check(struct call *call, const CUdeviceptr *dptrs, const size_t *sizes, size_t count,
			    unsigned long long flags, CUstream hStream, uint64_t *stream_out)
{
	struct range range;
	CUresult result = call_stream(call, hStream, stream_out);

	if (result)
		return result;
	if (!dptrs || !sizes || !count || count > BATCH_MAX || flags)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++)
		result = managed_of(dptrs[i], sizes[i], &range);
	return result;
}

static CUresult locations_check(const CUmemLocation *locations, const size_t *from, size_t location_count, size_t count)
{
	CUresult result = CUDA_SUCCESS;

	/* Each entry of @from is the first range that its location is for. */
	if (!locations || !from || !location_count || location_count > count || from[0])
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < location_count && !result; i++) {
		if (from[i] >= count || (i && from[i] <= from[i - 1]))
			return CUDA_ERROR_INVALID_VALUE;
		result = location_check(&locations[i]);
	}
	return result;
}

CUresult do_cuMemPrefetchBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
				    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
				    unsigned long long flags, CUstream hStream)
{
	uint64_t stream;
	CUresult result = batch_check(call, dptrs, sizes, count, flags, hStream, &stream);

	if (!result)
		result = locations_check(prefetchLocs, prefetchLocIdxs, numPrefetchLocs, count);
	for (size_t i = 0, location = 0; i < count && !result; i++) {
		if (location + 1 < numPrefetchLocs && i == prefetchLocIdxs[location + 1])
			location++;
		result = prefetch(call, stream, dptrs[i], sizes[i], &prefetchLocs[location]);
	}
	return result;
}

/* Contents that nobody wants any more may as well stay. */
CUresult do_cuMemDiscardBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
				   unsigned long long flags, CUstream hStream)
{
	uint64_t stream;

	return batch_check(call, dptrs, sizes, count, flags, hStream, &stream);
}

CUresult do_cuMemDiscardAndPrefetchBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
					      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
					      size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	return do_cuMemPrefetchBatchAsync(call, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
					  hStream);
}

/* ---- questions ---- */

/* As the older questions name a place. */
static int32_t place_name(const CUmemLocation *location)
{
	switch ((int)location->type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return location->id;
	case CU_MEM_LOCATION_TYPE_INVALID:
		return CU_DEVICE_INVALID;
	default:
		return CU_DEVICE_CPU;
	}
}

/* Everybody who was named, then CU_DEVICE_INVALID. */
static void accessed_by(uint64_t who, int32_t *list, size_t count)
{
	size_t at = 0;

	for (int device = 0; device < 32 && at < count; device++)
		if (who >> device & 1)
			list[at++] = device;
	if (who & ADVICE_CPU && at < count)
		list[at++] = CU_DEVICE_CPU;
	while (at < count)
		list[at++] = CU_DEVICE_INVALID;
}

static CUresult attribute_check(const void *data, size_t size, CUmem_range_attribute attribute)
{
	if (!data || attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY || attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
		return size && size % 4 == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return size == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void attribute_tell(const struct advice *advice, CUmem_range_attribute attribute, int32_t *data, size_t size)
{
	switch ((int)attribute) {
	case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
		*data = advice->read_mostly;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
		*data = place_name(&advice->preferred);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
		accessed_by(advice->accessed_by, data, size / 4);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
		*data = place_name(&advice->prefetched);
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
		*data = (int32_t)advice->preferred.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
		*data = advice->preferred.id;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
		*data = (int32_t)advice->prefetched.type;
		break;
	case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
		*data = advice->prefetched.id;
		break;
	}
}

CUresult do_cuMemRangeGetAttributes(struct call *call, void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
				    size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	struct advice advice;
	struct range range;
	CUresult result;

	if (!data || !dataSizes || !attributes || !numAttributes)
		return CUDA_ERROR_INVALID_VALUE;
	result = managed_of(devPtr, count, &range);
	for (size_t i = 0; i < numAttributes && !result; i++)
		result = attribute_check(data[i], dataSizes[i], attributes[i]);
	if (result)
		return result;
	advice_common(range.start, devPtr, count, &advice);
	for (size_t i = 0; i < numAttributes; i++)
		attribute_tell(&advice, attributes[i], data[i], dataSizes[i]);
	return CUDA_SUCCESS;
}

CUresult do_cuMemRangeGetAttribute(struct call *call, void *data, size_t dataSize, CUmem_range_attribute attribute,
				   CUdeviceptr devPtr, size_t count)
{
	return do_cuMemRangeGetAttributes(call, &data, &dataSize, &attribute, 1, devPtr, count);
}

/* ---- attachment ---- */

CUresult do_cuStreamAttachMemAsync(struct call *call, CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	uint64_t stream;
	struct range range;
	CUresult result = call_stream(call, hStream, &stream);

	if (result)
		return result;
	if ((flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE) ||
	    (flags == CU_MEM_ATTACH_SINGLE && stream == WIRE_STREAM_LEGACY) || !range_find(dptr, &range) ||
	    range.kind != RANGE_MANAGED || range.start != dptr || (length && length != range.size))
		return CUDA_ERROR_INVALID_VALUE;
	/* Variables share pages: they stay everybody's, whose rules are the strictest. */
	if (range.flags & RANGE_VARIABLE)
		return CUDA_SUCCESS;
	/* The program waits for the stream before it relies on it, so it may as well hold at once. */
	return region_attach(dptr, flags == CU_MEM_ATTACH_GLOBAL ? REGION_GLOBAL :
				   flags == CU_MEM_ATTACH_HOST	 ? REGION_HOST :
								   REGION_STREAM,
			     flags == CU_MEM_ATTACH_SINGLE ? stream : 0);
}
