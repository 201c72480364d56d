// SPDX-License-Identifier: Apache-2.0
/*
 * What a pointer is, for every kind of memory and for memory that isn't ours, at the edges: the single and the plural
 * form, as driver 580.159 answered them.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gen/bodies.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/range.h"
#include "tests/unit/fake_client.h"

#define OK(call)	 assert_int_equal((call), CUDA_SUCCESS)
#define SAYS(code, call) assert_int_equal((call), CUDA_ERROR_##code)

#define DEVICE	   0x200000000000ull
#define HOST	   0x300000000000ull
#define REGISTERED 0x555555550064ull
#define ALIAS	   0x310000000064ull
#define MANAGED	   0x320000000000ull
#define RESERVED   0x330000000000ull
#define POOL	   0x340000000000ull
#define OTHER	   0x210000000000ull /* on device 1 */

#define UNTOUCHED 0x7777777777777777ull
#define CODE(code) (~(uint64_t)CUDA_ERROR_##code) /* instead of a value */

static CUcontext primary, second;

static uint64_t get(uint64_t address, int attribute)
{
	uint64_t value[2] = { 0, 0 };
	CUresult result = FAKE_INIT(do_cuPointerGetAttribute(call, value, (CUpointer_attribute)attribute, address));

	return result ? ~(uint64_t)result : value[0];
}

static uint64_t get_plural(uint64_t address, int attribute)
{
	uint64_t value = UNTOUCHED;
	void *data = &value;
	CUpointer_attribute wanted = (CUpointer_attribute)attribute;
	CUresult result = FAKE_INIT(do_cuPointerGetAttributes(call, 1, &wanted, &data, address));

	return result ? ~(uint64_t)result : value;
}

static void add(struct range range)
{
	assert_int_equal(range_add(&range), 0);
}

static int setup(void **state)
{
	fake_snapshot_fill();
	OK(FAKE_NONE(do_cuInit(call, 0)));
	/* Nothing is known, and there is no context: the program may ask all the same. */
	assert_int_equal(get((uintptr_t)&primary, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CODE(INVALID_VALUE));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &primary, 0)));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &second, 1)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, primary)));

	struct context *c = context_find(primary);

	add((struct range){ .start = DEVICE, .size = 1000, .kind = RANGE_DEVICE, .context = c, .dev = DEVICE, .flags = RANGE_IPC });
	add((struct range){ .start = OTHER, .size = 64, .kind = RANGE_DEVICE, .context = context_find(second), .device = 1,
			    .dev = OTHER });
	add((struct range){ .start = HOST, .size = 5000, .kind = RANGE_HOST_MADE, .context = c, .host = HOST, .dev = HOST });
	add((struct range){ .start = REGISTERED, .size = 5000, .kind = RANGE_HOST_REGISTERED, .context = c, .host = REGISTERED,
			    .dev = ALIAS });
	add((struct range){ .start = MANAGED, .size = 5000, .kind = RANGE_MANAGED, .context = c, .host = MANAGED, .dev = MANAGED });
	add((struct range){ .start = RESERVED, .size = 8 << 20, .kind = RANGE_RESERVED, .device = -1 });
	add((struct range){ .start = RESERVED, .size = 2 << 20, .kind = RANGE_MAPPED, .dev = RESERVED, .handle_types = 1,
			    .flags = RANGE_NO_ACCESS, .block_id = 12345 });
	add((struct range){ .start = POOL, .size = 1000, .kind = RANGE_DEVICE, .dev = POOL, .pool = 0xabc });
	return 0;
}

static void edges(void **state)
{
	static const uint64_t foreign[] = { DEVICE - 1, DEVICE + 1000, HOST + 5000, REGISTERED - 1, REGISTERED + 5000, 0, 1,
					    UINT64_MAX, RESERVED + (2 << 20) };

	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(get(DEVICE + 999, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		for (int a = 0; a < 24; a++)
			assert_int_equal(get(foreign[i], a), CODE(INVALID_VALUE));
	assert_int_equal(get(DEVICE, 0), CODE(INVALID_VALUE));
	assert_int_equal(get(DEVICE, 22), CODE(INVALID_VALUE));
	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_P2P_TOKENS), CODE(INVALID_VALUE));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttribute(call, NULL, 1, DEVICE)));
}

static void each_kind(void **state)
{
	static const struct {
		int attribute;
		uint64_t device, host, registered, managed, mapped, pool;
	} rows[] = {
		{ CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2, 1, 1, 2, 2, 2 },
		{ CU_POINTER_ATTRIBUTE_DEVICE_POINTER, DEVICE + 10, HOST + 10, ALIAS + 10, MANAGED + 10, CODE(INVALID_VALUE), POOL + 10 },
		{ CU_POINTER_ATTRIBUTE_HOST_POINTER, CODE(INVALID_VALUE), HOST + 10, REGISTERED + 10, MANAGED + 10,
		  CODE(INVALID_VALUE), CODE(INVALID_VALUE) },
		{ CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 1, 0, 0, 1, 1, 1 },
		{ CU_POINTER_ATTRIBUTE_IS_MANAGED, 0, 0, 0, 1, 0, 0 },
		{ CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0, 0, 0, 0, 0, 0 },
		{ CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 1, 0, 0, 0, 0, 0 },
		{ CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, DEVICE, HOST, REGISTERED, MANAGED, RESERVED, POOL },
		{ CU_POINTER_ATTRIBUTE_RANGE_SIZE, 1000, 5000, 5000, 5000, 8 << 20, 1000 },
		{ CU_POINTER_ATTRIBUTE_MAPPED, 1, 1, 1, 1, 1, 1 },
		{ CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 0, 0, 0, 0, 1, 0 },
		{ CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 0, 0, 0, 0, 0, 0 },
		{ CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 3, 3, 3, 3, 0, 3 },
		{ CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 0, 0, 0, 0, 0, 0xabc },
		{ CU_POINTER_ATTRIBUTE_MAPPING_SIZE, 2 << 20, 8192, 8192, 2 << 20, 2 << 20, 2 << 20 },
		{ CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, DEVICE, HOST, REGISTERED & ~4095ull, MANAGED, RESERVED, POOL },
		{ CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, 0, 0, 0, 0, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(get(DEVICE + 10, rows[i].attribute), rows[i].device);
		assert_int_equal(get(HOST + 10, rows[i].attribute), rows[i].host);
		assert_int_equal(get(REGISTERED + 10, rows[i].attribute), rows[i].registered);
		/* By its other address it is the same memory. */
		assert_int_equal(get(ALIAS + 10, rows[i].attribute), rows[i].registered);
		assert_int_equal(get(MANAGED + 10, rows[i].attribute), rows[i].managed);
		assert_int_equal(get(RESERVED + 10, rows[i].attribute), rows[i].mapped);
		assert_int_equal(get(POOL + 10, rows[i].attribute), rows[i].pool);
	}
	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_CONTEXT), (uintptr_t)primary);
	assert_int_equal(get(OTHER, CU_POINTER_ATTRIBUTE_CONTEXT), (uintptr_t)second);
	assert_int_equal(get(RESERVED, CU_POINTER_ATTRIBUTE_CONTEXT), 0);
	assert_int_equal(get(RESERVED, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID), 12345);
	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID), get(DEVICE, CU_POINTER_ATTRIBUTE_BUFFER_ID));
	assert_int_not_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_BUFFER_ID), get(HOST, CU_POINTER_ATTRIBUTE_BUFFER_ID));
}

/* The device is right whatever device is current; its address is no address for another one. */
static void other_device(void **state)
{
	assert_int_equal(get(OTHER, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 1);
	assert_int_equal(get(OTHER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), CODE(INVALID_VALUE));
	assert_int_equal(get_plural(OTHER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), 0);
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, second)));
	assert_int_equal(get(OTHER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), OTHER);
	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL), 0);
	assert_int_equal(get(HOST, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), HOST);
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, NULL)));
	assert_int_equal(get(HOST, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), HOST);
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, primary)));
}

/* What cudart asks for any pointer, in one call. */
static void plural(void **state)
{
	CUpointer_attribute attributes[] = { 1, 2, 3, 4, 8, 9 };
	uint64_t values[6];
	void *data[6];

	for (int i = 0; i < 6; i++)
		data[i] = &values[i];
	memset(values, 0x77, sizeof(values));
	OK(FAKE_INIT(do_cuPointerGetAttributes(call, 6, attributes, data, DEVICE + 5)));
	assert_int_equal(values[0], (uintptr_t)primary);
	assert_int_equal(values[1], 0x7777777700000002ull);
	assert_int_equal(values[2], DEVICE + 5);
	assert_int_equal(values[3], 0);
	assert_int_equal(values[4], 0x7777777700000000ull);
	assert_int_equal(values[5], 0x7777777700000000ull);

	memset(values, 0x77, sizeof(values));
	OK(FAKE_INIT(do_cuPointerGetAttributes(call, 6, attributes, data, (uintptr_t)values)));
	assert_int_equal(values[0], 0);
	assert_int_equal(values[1], 0x7777777700000000ull);
	assert_int_equal(values[2], 0);
	assert_int_equal(values[3], (uintptr_t)values);
	assert_int_equal(values[4], 0x7777777700000000ull);
	assert_int_equal(values[5], 0x77777777fffffffeull);

	/* One past the end is foreign; so is NULL. */
	OK(FAKE_INIT(do_cuPointerGetAttributes(call, 6, attributes, data, DEVICE + 1000)));
	assert_int_equal(values[2], 0);
	OK(FAKE_INIT(do_cuPointerGetAttributes(call, 6, attributes, data, 0)));
	assert_int_equal(values[3], 0);

	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttributes(call, 0, attributes, data, DEVICE)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttributes(call, 1, NULL, data, DEVICE)));
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttributes(call, 1, attributes, NULL, DEVICE)));
	data[5] = NULL;
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttributes(call, 6, attributes, data, DEVICE)));
	attributes[0] = 99;
	SAYS(INVALID_VALUE, FAKE_INIT(do_cuPointerGetAttributes(call, 1, attributes, data, DEVICE)));
}

static void plural_of_the_rest(void **state)
{
	uint64_t foreign = (uintptr_t)&primary;

	assert_int_equal(get_plural(foreign, 5), CODE(INVALID_VALUE));
	assert_int_equal(get_plural(foreign, 6), 0x7777777700000000ull);
	assert_int_equal(get_plural(foreign, 7), 0);
	assert_int_equal(get_plural(foreign, 11), UNTOUCHED);
	assert_int_equal(get_plural(foreign, 12), UNTOUCHED);
	assert_int_equal(get_plural(foreign, 13), 0x7777777700000000ull);
	assert_int_equal(get_plural(foreign, 14), 0);
	assert_int_equal(get_plural(foreign, 17), 0);
	/* A reservation with nothing mapped. */
	assert_int_equal(get_plural(RESERVED + (4 << 20), 11), RESERVED);
	assert_int_equal(get_plural(RESERVED + (4 << 20), 12), 8 << 20);
	assert_int_equal(get_plural(RESERVED + (4 << 20), 13), 0x7777777700000000ull);
	assert_int_equal(get_plural(RESERVED + (4 << 20), 2), 0x7777777700000000ull);
	/* Mapped without access. */
	assert_int_equal(get_plural(RESERVED, 3), 0);
	assert_int_equal(range_flags(RESERVED, RANGE_NO_ACCESS, 0), 0);
	assert_int_equal(get_plural(RESERVED, 3), RESERVED);
	assert_int_equal(get(RESERVED, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS), 3);
}

static void setting(void **state)
{
	unsigned int one = 1, none = 0;

	OK(FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, DEVICE + 10)));
	OK(FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, HOST + 10)));
	assert_int_equal(get(HOST, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 1);
	OK(FAKE_CONTEXT(do_cuPointerSetAttribute(call, &none, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, HOST)));
	assert_int_equal(get(HOST, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS), 0);
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)&one)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, CU_POINTER_ATTRIBUTE_P2P_TOKENS, DEVICE)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, 99, DEVICE)));
	SAYS(INVALID_VALUE, FAKE_CONTEXT(do_cuPointerSetAttribute(call, NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, DEVICE)));
	SAYS(NOT_SUPPORTED, FAKE_CONTEXT(do_cuPointerSetAttribute(call, &one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, RESERVED)));
}

static void freed(void **state)
{
	assert_int_equal(range_remove(DEVICE, false, NULL), 0);
	assert_int_equal(get(DEVICE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CODE(INVALID_VALUE));
	/* With its context the rest of it goes, not the mapped memory and the pool. */
	OK(FAKE_INIT(do_cuDevicePrimaryCtxReset_v2(call, 0)));
	assert_int_equal(get(HOST, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CODE(INVALID_VALUE));
	assert_int_equal(get(ALIAS, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CODE(INVALID_VALUE));
	assert_int_equal(get(RESERVED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(get(POOL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	assert_int_equal(get(OTHER, CU_POINTER_ATTRIBUTE_MEMORY_TYPE), CU_MEMORYTYPE_DEVICE);
	/* Asking sends nothing, ever. */
	assert_int_equal(fake_commands_of(OP_gleamContextOpen), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(edges),  cmocka_unit_test(each_kind),		cmocka_unit_test(other_device),
		cmocka_unit_test(plural), cmocka_unit_test(plural_of_the_rest), cmocka_unit_test(setting),
		cmocka_unit_test(freed),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
