// SPDX-License-Identifier: Apache-2.0
/*
 * What a pointer is: pointer attributes, one at a time or several. Any thread.
 */
#include <string.h>

#include "broker/softgpu/soft_memory.h"

/* Writes one attribute of @address; INVALID_VALUE where the pointer has none such. @range is NULL for an unknown one. */
static CUresult attribute_write(void *data, int attribute, uint64_t address, const struct soft_range *range)
{
	bool on_host = range && soft_range_on_host(range);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->context_handle;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (!range || range->blocked)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)data = address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!range || (!on_host && range->kind != SOFT_RANGE_MANAGED))
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = range->sync;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = range && range->kind == SOFT_RANGE_MANAGED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(int *)data = range->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->base;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = range && !range->blocked;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->kind == SOFT_RANGE_PHYSICAL ? range->flags : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = range->blocked	   ? CU_MEM_ACCESS_FLAGS_PROT_NONE
					: range->read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
							   : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		if (!range)
			return CUDA_ERROR_INVALID_VALUE;
		*(uint64_t *)data = range->kind == SOFT_RANGE_POOL ? range->owner : 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* What an attribute reads as for memory that the driver does not know. */
static CUresult attribute_write_unknown(void *data, int attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = CU_DEVICE_INVALID;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_CONTEXT:
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(uint64_t *)data = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

SOFT_API(cuPointerGetAttribute, void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	struct soft_range range;
	bool found;

	SOFT_ENTER(context);
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
		return CUDA_ERROR_NOT_SUPPORTED;
	found = soft_map_find(pointer, &range);
	if (!found)
		return CUDA_ERROR_INVALID_VALUE;
	return attribute_write(data, attribute, pointer, &range);
}

SOFT_API(cuPointerGetAttributes, unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)
{
	struct soft_range range;
	bool found;

	SOFT_ENTER(context);
	if (!count || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++)
		if (!data[i] || attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
		    attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE ||
		    attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS)
			return CUDA_ERROR_INVALID_VALUE;
	found = soft_map_find(pointer, &range);
	for (unsigned int i = 0; i < count; i++)
		if (!found || attribute_write(data[i], attributes[i], pointer, &range) != CUDA_SUCCESS)
			attribute_write_unknown(data[i], attributes[i]);
	return CUDA_SUCCESS;
}

SOFT_API(cuPointerSetAttribute, const void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	SOFT_ENTER(context);
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	/* Copies of such memory are never left behind by a synchronous call here: remembered, nothing to change. */
	return soft_map_set_sync(pointer, *(const unsigned int *)value != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
