// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor maps: pure functions of their arguments. The same arguments make the same bytes, other ones other bytes, whether
 * they were remembered or not; a replaced address gives what encoding with it gives; bad arguments are told at once. A
 * device without tensor maps refuses all of them.
 */
#include "tests/cuda/prog.h"

#define BASE ((void *)0x200000000000)

struct tile {
	uint64_t dims[5];
	uint64_t strides[4];
	uint32_t box[5];
	uint32_t steps[5];
	uint32_t rank;
	CUtensorMapSwizzle swizzle;
};

static const struct tile plain = {
	.dims = { 256, 128 }, .strides = { 512 }, .box = { 64, 32 }, .steps = { 1, 1 }, .rank = 2,
	.swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
};

static CUresult tile_encode(CUtensorMap *map, const struct tile *tile, void *address)
{
	return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, tile->rank, address, tile->dims, tile->strides,
				      tile->box, tile->steps, CU_TENSOR_MAP_INTERLEAVE_NONE, tile->swizzle,
				      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static bool same(const CUtensorMap *a, const CUtensorMap *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static void tiled_check(void)
{
	CUtensorMap first, again, moved, replaced, wider;
	struct tile tile = plain;

	memset(&first, 0xee, sizeof(first));
	memset(&again, 0x11, sizeof(again));
	MUST(tile_encode(&first, &plain, BASE));
	MUST(tile_encode(&again, &plain, BASE));
	CHECK(same(&first, &again), "the same arguments made two maps");
	/* One after the other, so that some are remembered and some not; order must not matter. */
	for (unsigned int i = 1; i < 64; i++) {
		void *address = (char *)BASE + (size_t)i * 4096;

		MUST(tile_encode(&moved, &plain, address));
		CHECK(!same(&first, &moved), "another address made the same map");
		replaced = first;
		MUST(cuTensorMapReplaceAddress(&replaced, address));
		CHECK(same(&replaced, &moved), "a replaced address is not the one that was encoded (%u)", i);
		MUST(cuTensorMapReplaceAddress(&replaced, BASE));
		CHECK(same(&replaced, &first), "an address put back (%u)", i);
	}
	/* Aligned to 16 alone. */
	MUST(tile_encode(&moved, &plain, (char *)BASE + 16));
	replaced = first;
	MUST(cuTensorMapReplaceAddress(&replaced, (char *)BASE + 16));
	CHECK(same(&replaced, &moved), "an address at a multiple of 16");
	for (int i = 0; i < 6; i++) {
		tile = plain;
		switch (i) {
		case 0:
			tile.dims[0] = 512;
			tile.strides[0] = 1024;
			break;
		case 1:
			tile.dims[1] = 64;
			break;
		case 2:
			tile.strides[0] = 1024;
			break;
		case 3:
			tile.box[1] = 16;
			break;
		case 4:
			tile.steps[1] = 2;
			break;
		default:
			tile.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
			break;
		}
		MUST(tile_encode(&wider, &tile, BASE));
		CHECK(!same(&first, &wider), "other arguments (%d) made the same map", i);
		MUST(tile_encode(&again, &tile, BASE));
		CHECK(same(&again, &wider), "the same arguments (%d) made two maps", i);
	}
	tile = plain;
	tile.rank = 5;
	for (unsigned int i = 2; i < 5; i++) {
		tile.dims[i] = 4;
		tile.strides[i - 1] = tile.strides[i - 2] * tile.dims[i - 1];
		tile.box[i] = tile.steps[i] = 1;
	}
	EXPECT(tile_encode(&wider, &tile, BASE), CUDA_SUCCESS);
	MUST(tile_encode(&again, &plain, BASE));
	CHECK(same(&first, &again), "the first map after others");
}

static void illegal_check(void)
{
	_Alignas(128) unsigned char room[256];
	CUtensorMap map, kept;
	struct tile tile = plain;

	memset(&map, 0x77, sizeof(map));
	kept = map;
	EXPECT(tile_encode(NULL, &plain, BASE), CUDA_ERROR_INVALID_VALUE);
	/* Through a word, so that no compiler looks at the alignment. */
	uintptr_t crooked = (uintptr_t)room + 16;
	CUtensorMap *bent;

	memcpy(&bent, &crooked, sizeof(bent));
	EXPECT(tile_encode(bent, &plain, BASE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(tile_encode(&map, &plain, (char *)BASE + 8), CUDA_ERROR_INVALID_VALUE);
	tile.rank = 0;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile.rank = 6;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile = plain;
	tile.strides[0] = 520;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile = plain;
	tile.box[0] = 0;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile.box[0] = 257;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile = plain;
	tile.dims[1] = 0;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	tile = plain;
	tile.steps[1] = 9;
	EXPECT(tile_encode(&map, &tile, BASE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, BASE, NULL, plain.strides, plain.box,
				      plain.steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
				      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
	       CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuTensorMapReplaceAddress(NULL, BASE), CUDA_ERROR_INVALID_VALUE);
	CHECK(same(&map, &kept), "a map that was refused was written");
}

/* 16 channels of half precision, 32 x 24 pixels, 8 pictures. */
static void im2col_check(void)
{
	const uint64_t dims[] = { 16, 32, 24, 8 };
	const uint64_t strides[] = { 32, 32 * 32, 32 * 32 * 24 };
	const uint32_t steps[] = { 1, 1, 1, 1 };
	const int lower[] = { -1, -1 }, upper[] = { 1, 1 }, other[] = { 0, 0 };
	CUtensorMap a, b, c;
	CUresult result;

#define IM2COL(map, low, high)                                                                                          \
	cuTensorMapEncodeIm2col(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, BASE, dims, strides, low, high, 16, 64, steps,    \
				CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,                                 \
				CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
	MUST(IM2COL(&a, lower, upper));
	MUST(IM2COL(&b, lower, upper));
	MUST(IM2COL(&c, other, other));
	CHECK(same(&a, &b), "the same im2col arguments made two maps");
	CHECK(!same(&a, &c), "other corners made the same map");
	EXPECT(IM2COL(&c, NULL, upper), CUDA_ERROR_INVALID_VALUE);
#undef IM2COL
	/* Wide ones came with a later GPU: either they are made, twice the same, or they are refused. */
	memset(&c, 0x55, sizeof(c));
	for (int turn = 0; turn < 2; turn++) {
		result = cuTensorMapEncodeIm2colWide(turn ? &b : &a, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, BASE, dims,
						     strides, -1, 1, 16, 64, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
						     CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, CU_TENSOR_MAP_SWIZZLE_128B,
						     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
		CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE,
		      "a wide map: %d", (int)result);
	}
	if (!result)
		CHECK(same(&a, &b), "the same wide arguments made two maps");
}

int main(void)
{
	CUtensorMap map;
	CUdevice device;
	int offered = -1;

	prog_context(&device);
	MUST(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, device));
	if (!offered) {
		memset(&map, 0x33, sizeof(map));
		EXPECT(tile_encode(NULL, &plain, BASE), CUDA_ERROR_INVALID_VALUE);
		EXPECT(tile_encode(&map, &plain, BASE), CUDA_ERROR_NOT_SUPPORTED);
		EXPECT(cuTensorMapReplaceAddress(&map, BASE), CUDA_ERROR_NOT_SUPPORTED);
		EXPECT(cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, BASE, plain.dims, plain.strides, NULL,
					       NULL, 16, 64, plain.steps, 0, 0, 0, 0),
		       CUDA_ERROR_INVALID_VALUE);
		EXPECT(cuTensorMapEncodeIm2colWide(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, BASE, plain.dims, plain.strides, 0,
						   0, 16, 64, plain.steps, 0, 0, 0, 0, 0),
		       CUDA_ERROR_INVALID_VALUE);
		CHECK(((unsigned char *)&map)[0] == 0x33 && ((unsigned char *)&map)[127] == 0x33,
		      "a map that was refused was written");
		return prog_end();
	}
	tiled_check();
	/* An H200's driver takes a map that isn't aligned, and crashes over a missing one. */
	if (prog_on_gleam())
		illegal_check();
	im2col_check();
	return prog_end();
}
