// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor maps from the library to the driver and back: calls are decoded by the worker's own handler, whose driver is a
 * small one in the test. What travels, what is remembered, and that a driver whose maps have their address elsewhere is asked
 * each time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/worker/state.h"
#include "gen/bodies.h"
#include "gen/worker_bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/session.h"

static struct worker worker;
static unsigned int trips, encodes;
static bool address_last; /* the driver keeps the address in the last word */
static CUresult refusal;

/* ---- a driver ---- */

static CUresult fill(CUtensorMap *map, unsigned int form, unsigned int rank, void *address, const cuuint64_t *dims,
		     const cuuint64_t *strides, const cuuint32_t *steps, uint32_t rest)
{
	encodes++;
	if (refusal)
		return refusal;
	if ((uintptr_t)address % 16 || (rank > 1 && strides[0] % 16))
		return CUDA_ERROR_INVALID_VALUE;
	memset(map, 0, sizeof(*map));
	map->opaque[address_last ? 15 : 0] = (uintptr_t)address;
	map->opaque[1] = form << 8 | rank;
	map->opaque[2] = rest;
	for (unsigned int i = 0; i < rank; i++)
		map->opaque[3 + i] = dims[i] << 8 | steps[i];
	for (unsigned int i = 0; i + 1 < rank; i++)
		map->opaque[8 + i] = strides[i];
	map->opaque[13] = strides != NULL;
	return CUDA_SUCCESS;
}

static CUresult tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
		      const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
		      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
		      CUtensorMapFloatOOBfill oob)
{
	return fill(map, 0, rank, address, dims, strides, steps,
		    (uint32_t)type | interleave << 4 | swizzle << 6 | promotion << 10 | oob << 14 | box[0] << 16);
}

static CUresult im2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
		       const cuuint64_t *strides, const int *lower, const int *upper, cuuint32_t channels,
		       cuuint32_t pixels, const cuuint32_t *steps, CUtensorMapInterleave interleave,
		       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob)
{
	return fill(map, 1, rank, address, dims, strides, steps,
		    (uint32_t)(lower[0] + 8) | (uint32_t)(lower[rank - 3] + 8) << 4 | (uint32_t)(upper[0] + 8) << 8 |
			    (uint32_t)(upper[rank - 3] + 8) << 12 | channels << 16 | pixels << 24);
}

static CUresult wide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *dims,
		     const cuuint64_t *strides, int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
		     const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
		     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill oob)
{
	return fill(map, 2, rank, address, dims, strides, steps,
		    (uint32_t)(lower + 8) | (uint32_t)(upper + 8) << 4 | mode << 8 | channels << 16 | pixels << 24);
}

static CUresult replace(CUtensorMap *map, void *address)
{
	map->opaque[address_last ? 15 : 0] = (uintptr_t)address;
	return CUDA_SUCCESS;
}

/* ---- calls ---- */

static uint8_t frame[4096] __attribute__((aligned(8))), reply[4096] __attribute__((aligned(8)));

static struct session session;

CUresult call_open(struct call *call, enum op op, size_t payload_max)
{
	assert_true(payload_max <= sizeof(frame));
	assert_null(call->context);
	call->op = (uint16_t)op;
	call->w = writer_on(frame, payload_max);
	return CUDA_SUCCESS;
}

CUresult call_wait(struct call *call)
{
	struct reader r = reader_on(frame, call->w.at);
	struct writer w = writer_on(reply, sizeof(reply));
	CUresult result;

	trips++;
	assert_false(call->w.fault);
	if (call->op == OP_gleamTensorMap) {
		struct msg_gleamTensorMap m;
		struct ans_gleamTensorMap a;

		assert_true(msg_gleamTensorMap_get(&r, &m));
		result = worker_do_gleamTensorMap(&worker, NULL, &m, &a);
		if (!result)
			ans_gleamTensorMap_put(&w, &a);
	} else {
		struct msg_gleamTensorMapMove m;
		struct ans_gleamTensorMapMove a;

		assert_true(msg_gleamTensorMapMove_get(&r, &m));
		result = worker_do_gleamTensorMapMove(&worker, NULL, &m, &a);
		if (!result)
			ans_gleamTensorMapMove_put(&w, &a);
	}
	call->r = reader_on(reply, w.at);
	return result;
}

CUresult call_refuse(struct call *call, const char *why)
{
	(void)call;
	assert_non_null(why);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- tests ---- */

static const cuuint64_t dims[] = { 64, 32, 16, 8, 4 }, strides[] = { 64, 2048, 32768, 1 << 18 };
static const cuuint32_t box[] = { 16, 8, 4, 2, 1 }, steps[] = { 1, 1, 1, 1, 1 };

static CUresult encode(CUtensorMap *map, unsigned int rank, uint64_t address, const cuuint64_t *with, unsigned int type)
{
	struct call call = { .session = &session };

	return do_cuTensorMapEncodeTiled(&call, map, (CUtensorMapDataType)type, rank, (void *)(uintptr_t)address, dims, with,
					 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
					 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* In a driver that keeps the address elsewhere nothing moves by itself. First, while nothing is known. */
static void addresses_elsewhere_are_asked_for(void **state)
{
	CUtensorMap map, moved;
	struct call call = { .session = &session };

	(void)state;
	address_last = true;
	trips = 0;
	assert_int_equal(encode(&map, 2, 0x200000000000, strides, 1), CUDA_SUCCESS);
	assert_int_equal(encode(&moved, 2, 0x200000001000, strides, 1), CUDA_SUCCESS);
	assert_int_equal(trips, 2);
	assert_int_equal(moved.opaque[15], 0x200000001000);
	assert_int_equal(moved.opaque[0], 0);
	assert_int_equal(do_cuTensorMapReplaceAddress(&call, &map, (void *)0x200000001000), CUDA_SUCCESS);
	assert_int_equal(trips, 3);
	assert_memory_equal(&map, &moved, sizeof(map));
	assert_int_equal(encode(&moved, 2, 0x200000001000, strides, 1), CUDA_SUCCESS);
	assert_int_equal(trips, 3); /* all arguments the same */
	address_last = false;
}

static void maps_are_remembered_by_all_arguments(void **state)
{
	CUtensorMap map, other;
	struct call call = { .session = &session };

	(void)state;
	trips = 0;
	assert_int_equal(encode(&map, 3, 0x200000000000, strides, 2), CUDA_SUCCESS);
	assert_int_equal(trips, 1);
	for (uint64_t i = 1; i < 100; i++) {
		assert_int_equal(encode(&other, 3, 0x200000000000 + i * 32, strides, 2), CUDA_SUCCESS);
		assert_int_equal(other.opaque[0], 0x200000000000 + i * 32);
		assert_memory_equal(&other.opaque[1], &map.opaque[1], 120);
	}
	assert_int_equal(trips, 1);
	assert_int_equal(do_cuTensorMapReplaceAddress(&call, &other, (void *)0x200000000000), CUDA_SUCCESS);
	assert_memory_equal(&other, &map, 128);
	assert_int_equal(trips, 1);
	/* What only the driver can judge. */
	assert_int_equal(encode(&other, 3, 0x200000000008, strides, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(encode(&other, 3, 0x200000000010, strides, 2), CUDA_SUCCESS);
	assert_int_equal(trips, 3);
	assert_int_equal(encode(&other, 3, 0x200000000000, strides, 3), CUDA_SUCCESS);
	assert_int_equal(encode(&other, 4, 0x200000000000, strides, 2), CUDA_SUCCESS);
	assert_int_equal(trips, 5);
}

static void ranks_and_forms_travel_whole(void **state)
{
	const int lower[] = { -1, -2, -3 }, upper[] = { 1, 2, 3 };
	struct call call = { .session = &session };
	CUtensorMap map;

	(void)state;
	assert_int_equal(encode(&map, 1, 0x200000000000, NULL, 4), CUDA_SUCCESS);
	assert_int_equal(map.opaque[13], 0);
	assert_int_equal(encode(&map, 1, 0x200000000000, strides, 4), CUDA_SUCCESS);
	assert_int_equal(map.opaque[13], 1);
	assert_int_equal(encode(&map, 5, 0x200000000000, strides, 4), CUDA_SUCCESS);
	assert_int_equal(map.opaque[11], 1 << 18);
	assert_int_equal(map.opaque[7], 4 << 8 | 1);
	assert_int_equal(map.opaque[2], 4 | 2 << 6 | 16 << 16);
	assert_int_equal(do_cuTensorMapEncodeIm2col(&call, &map, 0, 5, NULL, dims, strides, lower, upper, 7, 9, steps, 0, 0, 0, 0),
			 CUDA_SUCCESS);
	assert_int_equal(map.opaque[2], 7 | 5 << 4 | 9 << 8 | 11 << 12 | 7 << 16 | 9 << 24);
	assert_int_equal(do_cuTensorMapEncodeIm2colWide(&call, &map, 0, 3, NULL, dims, strides, -4, 5, 7, 9, steps, 0,
							CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128, 0, 0, 0),
			 CUDA_SUCCESS);
	assert_int_equal(map.opaque[2], 4 | 13 << 4 | 1 << 8 | 7 << 16 | 9 << 24);
	assert_int_equal(map.opaque[1], 2 << 8 | 3);
}

static void mistakes_cost_no_trip(void **state)
{
	struct call call = { .session = &session };
	CUtensorMap map;

	(void)state;
	trips = 0;
	assert_int_equal(encode(NULL, 2, 0, strides, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(encode(&map, 0, 0, strides, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(encode(&map, 6, 0, strides, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(encode(&map, 2, 0, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuTensorMapEncodeIm2col(&call, &map, 0, 2, NULL, dims, strides, (int[]){ 0 }, (int[]){ 0 }, 7, 9,
						    steps, 0, 0, 0, 0),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuTensorMapReplaceAddress(&call, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(trips, 0);
	refusal = CUDA_ERROR_NOT_FOUND; /* an older driver, which lacks the function */
	assert_int_equal(encode(&map, 2, 0, strides, 9), CUDA_ERROR_NOT_SUPPORTED);
	refusal = CUDA_SUCCESS;
}

/* The oldest go; nothing else happens. */
static void the_table_is_bounded(void **state)
{
	CUtensorMap map;

	(void)state;
	for (unsigned int turn = 0; turn < 2; turn++)
		for (unsigned int i = 0; i < 1000; i++) {
			assert_int_equal(encode(&map, 2, 0x200000000000, strides, 100 + i), CUDA_SUCCESS);
			assert_int_equal(map.opaque[2] & 0xf, (100 + i) & 0xf);
		}
}

static void hostile_messages_are_broken(void **state)
{
	struct msg_gleamTensorMap m = { .rank = 2, .dims_count = 2, .steps_count = 2, .strides_count = 1, .box_count = 2 };
	struct ans_gleamTensorMap a;
	struct msg_gleamTensorMap bad;

	(void)state;
	encodes = 0;
	for (int i = 0; i < 8; i++) {
		bad = m;
		switch (i) {
		case 0:
			bad.rank = 0;
			break;
		case 1:
			bad.rank = 6;
			break;
		case 2:
			bad.dims_count = 1;
			break;
		case 3:
			bad.strides_count = 0;
			break;
		case 4:
			bad.box_count = 1;
			break;
		case 5:
			bad.steps_count = 0;
			break;
		case 6:
			bad.form = 3;
			break;
		default:
			bad.form = 1; /* rank 2 has no corners */
			bad.box_count = bad.upper_count = 0;
			break;
		}
		assert_int_equal(worker_do_gleamTensorMap(&worker, NULL, &bad, &a), CMD_BROKEN);
	}
	assert_int_equal(encodes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_elsewhere_are_asked_for),
		cmocka_unit_test(maps_are_remembered_by_all_arguments),
		cmocka_unit_test(ranks_and_forms_travel_whole),
		cmocka_unit_test(mistakes_cost_no_trip),
		cmocka_unit_test(the_table_is_bounded),
		cmocka_unit_test(hostile_messages_are_broken),
	};

	worker.drv.cuTensorMapEncodeTiled = tiled;
	worker.drv.cuTensorMapEncodeIm2col = im2col;
	worker.drv.cuTensorMapEncodeIm2colWide = wide;
	worker.drv.cuTensorMapReplaceAddress = replace;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
