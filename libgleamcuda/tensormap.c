// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor maps. How they are encoded is the driver's secret, so the worker encodes, and what it made is remembered by all
 * arguments. Kernels are launched with many maps that differ in their address alone: each answer shows where the driver
 * puts that, and where this is as expected such a map costs no trip. Application threads.
 */
#include "broker/proto/tensormap.h"

#include <pthread.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"

#define MAPS 256u	 /* remembered; the oldest goes. JAX makes 26, a large model a few hundred */
#define MAP_ALIGN 64u	 /* what the driver asks of where a map is put */
#define MOVE_ALIGN 32u	 /* an address that every kind of map may have: others are left to the driver to judge */
#define MOVE_LIMIT (1ull << 48) /* and below that, as every address that Gleam gives out */

/* All that makes a map, but its address; compared as bytes, so unused places are zero. */
struct shape {
	uint32_t form;
	uint32_t type;
	uint32_t rank;
	uint32_t interleave;
	uint32_t mode;
	uint32_t swizzle;
	uint32_t promotion;
	uint32_t fill;
	uint32_t channels;
	uint32_t pixels;
	uint32_t strides_count;
	uint32_t corners;
	uint32_t box[TENSORMAP_RANK_MAX];
	uint32_t upper[3];
	uint32_t steps[TENSORMAP_RANK_MAX];
	uint32_t session; /* whose driver made it */
	uint64_t dims[TENSORMAP_RANK_MAX];
	uint64_t strides[TENSORMAP_RANK_MAX - 1];
};
static_assert(sizeof(struct shape) == 12 * 4 + 14 * 4 + 9 * 8, "no gaps: it is compared as bytes");

struct map {
	struct shape shape;
	uint64_t address;
	bool movable; /* the address is its first word, and nothing else changes with it */
	uint8_t bytes[TENSORMAP_SIZE];
};

/* guarded by lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map maps[MAPS];
static uint32_t map_count;
static uint32_t map_next;
static uint32_t seen_movable; /* bit per session: that driver's maps have their address where we think */

static bool moves_freely(uint64_t address)
{
	return address && address % MOVE_ALIGN == 0 && address < MOVE_LIMIT;
}

/* @map_out is the program's: aligned as older headers ask, not as the type says. */
static bool recall(const struct shape *shape, uint64_t address, void *map_out)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < map_count && !found; i++) {
		const struct map *map = &maps[i];

		if (memcmp(&map->shape, shape, sizeof(*shape)) != 0)
			continue;
		if (map->address != address && !(map->movable && moves_freely(address)))
			continue;
		memcpy(map_out, map->bytes, TENSORMAP_SIZE);
		if (map->address != address)
			memcpy(map_out, &address, sizeof(address));
		found = true;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void remember(const struct shape *shape, uint64_t address, uint64_t other, const struct ans_gleamTensorMap *a)
{
	uint64_t first, moved_first;
	bool movable;
	struct map *map;

	memcpy(&first, a->map, 8);
	memcpy(&moved_first, a->moved, 8);
	movable = moves_freely(address) && first == address && moved_first == other &&
		  !memcmp(a->map + 8, a->moved + 8, TENSORMAP_SIZE - 8);
	pthread_mutex_lock(&lock);
	map = &maps[map_next];
	map_next = (map_next + 1) % MAPS;
	if (map_count < MAPS)
		map_count++;
	map->shape = *shape;
	map->address = address;
	map->movable = movable;
	memcpy(map->bytes, a->map, TENSORMAP_SIZE);
	seen_movable |= (uint32_t)movable << shape->session;
	pthread_mutex_unlock(&lock);
}

/* What the call says of an answer's @result. */
static CUresult answered(struct call *call, CUresult result)
{
	if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_FOUND)
		return call_refuse(call, "the server's driver or GPU has no tensor maps");
	return result;
}

static CUresult encode(struct call *call, void *map, struct shape *shape, void *address)
{
	struct msg_gleamTensorMap m = {
		.form = shape->form,
		.type = shape->type,
		.rank = shape->rank,
		.address = (uint64_t)(uintptr_t)address,
		.interleave = shape->interleave,
		.mode = shape->mode,
		.swizzle = shape->swizzle,
		.promotion = shape->promotion,
		.fill = shape->fill,
		.channels = shape->channels,
		.pixels = shape->pixels,
		.dims = shape->dims,
		.dims_count = shape->rank,
		.strides = shape->strides,
		.strides_count = shape->strides_count,
		.box = shape->box,
		.box_count = shape->corners,
		.upper = shape->upper,
		.upper_count = shape->form == TENSORMAP_TILED ? 0 : shape->corners,
		.steps = shape->steps,
		.steps_count = shape->rank,
	};
	struct ans_gleamTensorMap a;
	CUresult result;

	shape->session = call->session->index;
	if (recall(shape, m.address, map))
		return CUDA_SUCCESS;
	/* Every bit that an address may have is another one in this. */
	m.other = ~m.address & (MOVE_LIMIT - MOVE_ALIGN);
	/* A question about no context: what has gone wrong in one is not told here. */
	call->context = NULL;
	result = answered(call, CALL_ASK(call, gleamTensorMap, &m));
	if (result)
		return result;
	if (!ans_gleamTensorMap_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	memcpy(map, a.map, TENSORMAP_SIZE);
	remember(shape, m.address, m.other, &a);
	return CUDA_SUCCESS;
}

/* What all forms have in common. A map of rank 1 has no strides, but the pointer may be there: one unread place says so. */
static CUresult shape_begin(struct shape *shape, enum tensormap_form form, const CUtensorMap *map, uint32_t rank,
			    const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps)
{
	uint32_t least = form == TENSORMAP_TILED ? 1 : 3;

	*shape = (struct shape){ .form = (uint32_t)form, .rank = rank };
	if (!map || (uintptr_t)map % MAP_ALIGN || rank < least || rank > TENSORMAP_RANK_MAX || !dims || !steps ||
	    (!strides && rank > 1))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < rank; i++) {
		shape->dims[i] = dims[i];
		shape->steps[i] = steps[i];
		if (i + 1 < rank)
			shape->strides[i] = strides[i];
	}
	shape->strides_count = rank > 1 ? rank - 1 : strides != NULL;
	return CUDA_SUCCESS;
}

static void shape_layout(struct shape *shape, CUtensorMapDataType type, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
			 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	shape->type = (uint32_t)type;
	shape->interleave = (uint32_t)interleave;
	shape->swizzle = (uint32_t)swizzle;
	shape->promotion = (uint32_t)promotion;
	shape->fill = (uint32_t)fill;
}

CUresult do_cuTensorMapEncodeTiled(struct call *call, CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
				   cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
				   const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
				   const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
				   CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
				   CUtensorMapFloatOOBfill oobFill)
{
	struct shape shape;
	CUresult result = shape_begin(&shape, TENSORMAP_TILED, tensorMap, tensorRank, globalDim, globalStrides,
				      elementStrides);

	if (result)
		return result;
	if (!boxDim)
		return CUDA_ERROR_INVALID_VALUE;
	shape_layout(&shape, tensorDataType, interleave, swizzle, l2Promotion, oobFill);
	shape.corners = tensorRank;
	memcpy(shape.box, boxDim, tensorRank * sizeof(shape.box[0]));
	return encode(call, tensorMap, &shape, globalAddress);
}

CUresult do_cuTensorMapEncodeIm2col(struct call *call, CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
				    cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
				    const cuuint64_t *globalStrides, const int *pixelBoxLowerCorner,
				    const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
				    cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
				    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				    CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
	struct shape shape;
	CUresult result = shape_begin(&shape, TENSORMAP_IM2COL, tensorMap, tensorRank, globalDim, globalStrides,
				      elementStrides);

	if (result)
		return result;
	if (!pixelBoxLowerCorner || !pixelBoxUpperCorner)
		return CUDA_ERROR_INVALID_VALUE;
	shape_layout(&shape, tensorDataType, interleave, swizzle, l2Promotion, oobFill);
	shape.channels = channelsPerPixel;
	shape.pixels = pixelsPerColumn;
	shape.corners = tensorRank - 2;
	memcpy(shape.box, pixelBoxLowerCorner, shape.corners * sizeof(shape.box[0]));
	memcpy(shape.upper, pixelBoxUpperCorner, shape.corners * sizeof(shape.upper[0]));
	return encode(call, tensorMap, &shape, globalAddress);
}

CUresult do_cuTensorMapEncodeIm2colWide(struct call *call, CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
					cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
					const cuuint64_t *globalStrides, int pixelBoxLowerCornerWidth,
					int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel,
					cuuint32_t pixelsPerColumn, const cuuint32_t *elementStrides,
					CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
					CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
					CUtensorMapFloatOOBfill oobFill)
{
	struct shape shape;
	CUresult result = shape_begin(&shape, TENSORMAP_IM2COL_WIDE, tensorMap, tensorRank, globalDim, globalStrides,
				      elementStrides);

	if (result)
		return result;
	shape_layout(&shape, tensorDataType, interleave, swizzle, l2Promotion, oobFill);
	shape.mode = (uint32_t)mode;
	shape.channels = channelsPerPixel;
	shape.pixels = pixelsPerColumn;
	shape.corners = 1;
	shape.box[0] = (uint32_t)pixelBoxLowerCornerWidth;
	shape.upper[0] = (uint32_t)pixelBoxUpperCornerWidth;
	return encode(call, tensorMap, &shape, globalAddress);
}

CUresult do_cuTensorMapReplaceAddress(struct call *call, CUtensorMap *tensorMap, void *globalAddress)
{
	struct msg_gleamTensorMapMove m = { .address = (uint64_t)(uintptr_t)globalAddress, .map = tensorMap,
					    .map_size = TENSORMAP_SIZE };
	struct ans_gleamTensorMapMove a;
	CUresult result;
	bool known;

	if (!tensorMap || (uintptr_t)tensorMap % MAP_ALIGN)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	known = seen_movable >> call->session->index & 1;
	pthread_mutex_unlock(&lock);
	if (known && moves_freely(m.address)) {
		memcpy((void *)tensorMap, &m.address, sizeof(m.address));
		return CUDA_SUCCESS;
	}
	call->context = NULL;
	result = answered(call, CALL_ASK(call, gleamTensorMapMove, &m));
	if (result)
		return result;
	if (!ans_gleamTensorMapMove_get(&call->r, &a))
		return CUDA_ERROR_UNKNOWN;
	memcpy(tensorMap, a.moved, TENSORMAP_SIZE);
	return CUDA_SUCCESS;
}
