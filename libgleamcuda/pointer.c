// SPDX-License-Identifier: Apache-2.0
/*
 * What a pointer is: answered from the range map, for any address that a program has. Codes and values are those of driver
 * 580.159, save for what Gleam doesn't offer (GPUDirect). Any thread.
 */
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/range.h"

#define DEVICE_PAGE (2ull << 20) /* physical pieces are multiples of it */
#define HOST_PAGE   4096ull

/* One answer: its bytes, of which there may be 0 (the plural form then leaves the caller's word alone). */
struct answer {
	uint64_t value;
	uint32_t size;
};

/* An address and what the map says of it. */
struct place {
	uint64_t address;
	bool found; /* in memory, not just in a reservation */
	struct range range;
	uint64_t offset; /* in the range */
	bool reserved;
	struct range reservation;
};

static void place_find(uint64_t address, struct place *place)
{
	memset(place, 0, sizeof(*place));
	place->address = address;
	if (!range_find(address, &place->range))
		return;
	place->found = place->range.kind != RANGE_RESERVED;
	if (!place->found) {
		place->reserved = true;
		place->reservation = place->range;
		return;
	}
	if (place->range.kind == RANGE_MAPPED)
		place->reserved = range_find_reserved(address, &place->reservation);
	place->offset = address - place->range.start;
	if (place->offset >= place->range.size) /* found by its device address */
		place->offset = address - place->range.dev;
}

static bool is_host(const struct range *range)
{
	return range->kind == RANGE_HOST_MADE || range->kind == RANGE_HOST_REGISTERED || (range->flags & RANGE_HOST_PLACED);
}

/* Can the current context's device reach it? Without a current context nothing speaks against it. */
static bool is_reachable(const struct call *call, const struct range *range)
{
	if (is_host(range) || range->kind == RANGE_MANAGED || !call->context)
		return !(range->flags & RANGE_NO_ACCESS);
	/* Mapped memory is opened device by device, all other to contexts. */
	if (range->kind == RANGE_MAPPED && call->context->device != range->device)
		return range->access >> 2 * call->context->device & 3;
	return !(range->flags & RANGE_NO_ACCESS) && peer_reaches(call->context->device, range->device);
}

static uint32_t access_flags(const struct range *range)
{
	if (range->flags & RANGE_NO_ACCESS)
		return 0;
	return range->flags & RANGE_READ_ONLY ? 1 : 3;
}

static uint64_t mapping_base(const struct range *range)
{
	if (range->kind == RANGE_MAPPED)
		return range->start;
	return range->start & ~((is_host(range) ? HOST_PAGE : DEVICE_PAGE) - 1);
}

static uint64_t mapping_size(const struct range *range)
{
	uint64_t page = is_host(range) ? HOST_PAGE : DEVICE_PAGE;

	if (range->kind == RANGE_MAPPED)
		return range->size;
	return ((range->start + range->size + page - 1) & ~(page - 1)) - mapping_base(range);
}

#define WORD(what)   ((struct answer){ (uint32_t)(what), 4 })
#define DOUBLE(what) ((struct answer){ (uint64_t)(what), 8 })

/* Of memory that Gleam made or was told about. */
static CUresult answer_found(const struct call *call, const struct place *place, CUpointer_attribute attribute,
			     struct answer *answer_out)
{
	const struct range *range = &place->range;
	const struct range *whole = range->kind == RANGE_MAPPED && place->reserved ? &place->reservation : range;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*answer_out = DOUBLE((uintptr_t)(range->context ? range->context->handle : NULL));
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*answer_out = WORD(is_host(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (!range->dev || !is_reachable(call, range))
			return CUDA_ERROR_INVALID_VALUE;
		*answer_out = DOUBLE(range->dev + place->offset);
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!range->host)
			return CUDA_ERROR_INVALID_VALUE;
		*answer_out = DOUBLE(range->host + place->offset);
		break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*answer_out = WORD(!is_host(range) || (range->flags & RANGE_SYNC_MEMOPS));
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*answer_out = DOUBLE(range->buffer_id);
		break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*answer_out = WORD(range->kind == RANGE_MANAGED);
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*answer_out = WORD(range->device >= 0 ? range->device : CU_DEVICE_INVALID);
		break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*answer_out = WORD((range->flags & RANGE_IPC) != 0);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*answer_out = DOUBLE(whole->start);
		break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*answer_out = DOUBLE(whole->size);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*answer_out = WORD(1);
		break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*answer_out = DOUBLE(range->handle_types);
		break;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		*answer_out = WORD(0);
		break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*answer_out = WORD(access_flags(range));
		break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*answer_out = DOUBLE(range->pool);
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*answer_out = DOUBLE(mapping_size(range));
		break;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*answer_out = DOUBLE(mapping_base(range));
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*answer_out = DOUBLE(range->block_id ? range->block_id : range->buffer_id);
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

/* The plural form's answer where the single one would refuse: how cudart learns that memory is the program's own. */
static struct answer answer_foreign(const struct place *place, CUpointer_attribute attribute)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return DOUBLE(place->found ? 0 : place->address);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return WORD(CU_DEVICE_INVALID);
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return place->reserved ? DOUBLE(place->reservation.start) : (struct answer){ 0 };
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return place->reserved ? DOUBLE(place->reservation.size) : (struct answer){ 0 };
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
	case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
		return WORD(0);
	default:
		return DOUBLE(0);
	}
}

/* Tokens of GPUDirect are refused everywhere: nothing on this machine reaches the GPU past the library. */
static bool attribute_exists(CUpointer_attribute attribute)
{
	return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT && attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE &&
	       attribute != CU_POINTER_ATTRIBUTE_P2P_TOKENS;
}

CUresult do_cuPointerGetAttribute(struct call *call, void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct answer answer = { 0 };
	struct place place;
	CUresult result;

	if (!data || !attribute_exists(attribute))
		return CUDA_ERROR_INVALID_VALUE;
	place_find(ptr, &place);
	if (!place.found)
		return CUDA_ERROR_INVALID_VALUE;
	result = answer_found(call, &place, attribute, &answer);
	if (!result)
		memcpy(data, &answer.value, answer.size);
	return result;
}

CUresult do_cuPointerGetAttributes(struct call *call, unsigned int numAttributes, CUpointer_attribute *attributes,
				   void **data, CUdeviceptr ptr)
{
	struct place place;

	if (!numAttributes || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < numAttributes; i++)
		if (!data[i] || !attribute_exists(attributes[i]))
			return CUDA_ERROR_INVALID_VALUE;
	place_find(ptr, &place);
	for (unsigned int i = 0; i < numAttributes; i++) {
		struct answer answer = { 0 };

		if (!place.found || answer_found(call, &place, attributes[i], &answer) != CUDA_SUCCESS)
			answer = answer_foreign(&place, attributes[i]);
		memcpy(data[i], &answer.value, answer.size);
	}
	return CUDA_SUCCESS;
}

/* Synchronous copies of device memory are synchronous already; the wish is kept for memory of the host. */
CUresult do_cuPointerSetAttribute(struct call *call, const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	struct place place;
	uint32_t wish;

	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	place_find(ptr, &place);
	if (!place.found)
		return CUDA_ERROR_INVALID_VALUE;
	if (place.range.kind == RANGE_MAPPED)
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(&wish, value, sizeof(wish));
	/* Freed by another thread meanwhile: as if it had been freed before. */
	return range_flags(place.range.start, RANGE_SYNC_MEMOPS, wish ? RANGE_SYNC_MEMOPS : 0) ? CUDA_ERROR_INVALID_VALUE :
												 CUDA_SUCCESS;
}
