// SPDX-License-Identifier: Apache-2.0
/*
 * Questions and advice about managed memory, of which there is none: every range is foreign to them, which the driver tells
 * by INVALID_VALUE. What programs ask of ordinary memory by mistake, or to see whether they may, is answered as natively.
 * Application threads.
 */
#include <stddef.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"

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

static CUresult none_at(const CUmemLocation *location)
{
	CUresult result = location_check(location);

	return result ? result : CUDA_ERROR_INVALID_VALUE;
}

static CUresult none_on(struct call *call, CUstream hStream)
{
	uint64_t stream;
	CUresult result = call_stream_named(call, hStream, &stream);

	return result ? result : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemAdvise_v2(struct call *call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
			   CUmemLocation location)
{
	switch ((int)advice) {
	case CU_MEM_ADVISE_SET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
	case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
		return CUDA_ERROR_INVALID_VALUE; /* the location is not looked at */
	default:
		return none_at(&location);
	}
}

CUresult do_cuMemAdvise(struct call *call, CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	return do_cuMemAdvise_v2(call, devPtr, count, advice, location_of(device));
}

CUresult do_cuMemPrefetchAsync_v2(struct call *call, CUdeviceptr devPtr, size_t count, CUmemLocation location,
				  unsigned int flags, CUstream hStream)
{
	CUresult result = location_check(&location);

	return result ? result : none_on(call, hStream);
}

CUresult do_cuMemPrefetchAsync(struct call *call, CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)
{
	return do_cuMemPrefetchAsync_v2(call, devPtr, count, location_of(dstDevice), 0, hStream);
}

CUresult do_cuMemPrefetchBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
				    CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs, size_t numPrefetchLocs,
				    unsigned long long flags, CUstream hStream)
{
	return none_on(call, hStream);
}

CUresult do_cuMemDiscardBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
				   unsigned long long flags, CUstream hStream)
{
	return none_on(call, hStream);
}

CUresult do_cuMemDiscardAndPrefetchBatchAsync(struct call *call, CUdeviceptr *dptrs, size_t *sizes, size_t count,
					      CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
					      size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)
{
	return none_on(call, hStream);
}

CUresult do_cuMemRangeGetAttribute(struct call *call, void *data, size_t dataSize, CUmem_range_attribute attribute,
				   CUdeviceptr devPtr, size_t count)
{
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemRangeGetAttributes(struct call *call, void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
				    size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuStreamAttachMemAsync(struct call *call, CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
	return none_on(call, hStream);
}
