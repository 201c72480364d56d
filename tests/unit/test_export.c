// SPDX-License-Identifier: Apache-2.0
/* The private tables on a fake session: sizes, no empty slot, and what each slot that somebody calls does. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "gen/bodies.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/integrity.h"
#include "tests/unit/fake_client.h"
#include "tests/unit/fake_exports.h"

#define OK(call)	 assert_int_equal((call), CUDA_SUCCESS)
#define SAYS(code, call) assert_int_equal((call), CUDA_ERROR_##code)

#define RUNTIME	  "6bd5fb6c5bf4e74a8987d93912fd9df9"
#define HOOKS	  "a094798c2e742e7493f20800200c0a66"
#define TLS	  "42d85a8123f6cb478298f6e78a3aecdc"
#define STORAGE	  "c693336e1121df11a8c368f355d89593"
#define CHECKS	  "263e88607cd2614392f6bbd5006dfa7e"
#define INTEGRITY "d4082055bde6704b8d34ba123c66e1f2"
#define CONTEXTS  "21318c60971432488ca641ff7324c8f2"
#define MODULES	  "6e163fbeb958444d835ce182aff1991e"
#define GROUPS	  "1734dc26800d47458726c0f1e7dd8bca"
#define COMPILED "da9151d33ae6cc41a5c04f26d533e328"

static CUresult ask(const char *hex, const void *const **table_out)
{
	const void *table = (const void *)1;
	CUuuid id;
	CUresult result;

	for (int i = 0; i < 16; i++) {
		unsigned int byte;

		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		id.bytes[i] = (char)byte;
	}
	result = FAKE_NONE(do_cuGetExportTable(call, &table, &id));
	*table_out = table;
	return result;
}

static const void *const *table(const char *hex)
{
	const void *const *t;

	OK(ask(hex, &t));
	return t;
}

#define CALL(hex, slot, type, ...) (((CUresult(*) type)(uintptr_t)table(hex)[slot])(__VA_ARGS__))

/* Before cuInit, as cudart asks for its first table then. */
static void sizes_and_slots(void **state)
{
	static const struct {
		const char *id;
		size_t size;
	} cases[] = { { RUNTIME, 104 }, { HOOKS, 56 },	   { TLS, 24 },	   { CHECKS, 120 },
		      { INTEGRITY, 24 }, { CONTEXTS, 744 }, { MODULES, 64 }, { GROUPS, 136 },
		      { COMPILED, 56 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const void *const *t = table(cases[i].id);

		assert_int_equal((uintptr_t)t[0], cases[i].size);
		for (size_t slot = 1; slot < cases[i].size / sizeof(void *); slot++)
			assert_non_null(t[slot]);
		assert_ptr_equal(table(cases[i].id), t);
	}
	const void *const *t = table(STORAGE);

	for (int slot = 0; slot < 3; slot++)
		assert_non_null(t[slot]);
	assert_null(t[3]);
}

static void refused_tables(void **state)
{
	static const char *const ids[] = {
		"f8cff95121468b4eb9e2fb469e7c0dd9", /* log sink */
		"69a28e9f24498b47b030c5da330ea4e9", /* NVML's */
		"0ca50b8c1004929a89a7d0df10e77286", /* known elsewhere */
		"07070707070707070707070707070707",
	};
	const void *const *t;
	const void *out;
	CUuuid id = { { 0 } };

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		SAYS(INVALID_VALUE, ask(ids[i], &t));
		assert_null(t);
	}
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuGetExportTable(call, NULL, &id)));
	SAYS(INVALID_VALUE, FAKE_NONE(do_cuGetExportTable(call, &out, NULL)));
}

static void before_init(void **state)
{
	CUcontext ctx;
	uint8_t *a, *b, digest[16];
	uint64_t id;
	uint32_t flag;
	void *value;
	int key;

	SAYS(NOT_INITIALIZED, CALL(RUNTIME, 2, (CUcontext *, CUdevice), &ctx, 0));
	SAYS(NOT_INITIALIZED, CALL(TLS, 2, (CUcontext *), &ctx));
	SAYS(NOT_INITIALIZED, CALL(STORAGE, 0, (CUcontext, void *, void *, void *), NULL, &key, NULL, NULL));
	SAYS(NOT_INITIALIZED, CALL(STORAGE, 1, (CUcontext, void *), NULL, &key));
	SAYS(NOT_INITIALIZED, CALL(STORAGE, 2, (void **, CUcontext, void *), &value, NULL, &key));
	SAYS(NOT_INITIALIZED, CALL(CHECKS, 2, (CUcontext, uint32_t *, const void **), NULL, &flag, NULL));
	SAYS(NOT_INITIALIZED, CALL(INTEGRITY, 1, (uint32_t, uint64_t, uint8_t *), 13002, 1, digest));
	SAYS(NOT_INITIALIZED, CALL(CONTEXTS, 4, (CUcontext, uint64_t *), NULL, &id));
	SAYS(NOT_INITIALIZED, CALL(CONTEXTS, 39, (CUcontext, void *, uint64_t *), NULL, NULL, &id));
	SAYS(NOT_INITIALIZED, CALL(GROUPS, 4, (uint8_t **, uint8_t **), &a, &b));
	OK(FAKE_NONE(do_cuInit(call, 0)));
}

static void hooks_are_empty(void **state)
{
	void *array = NULL;
	size_t size = 0;

	((void (*)(void **, size_t *))(uintptr_t)table(HOOKS)[2])(&array, &size);
	assert_int_equal(size, 1024);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(((uint8_t *)array)[i], 0);
	((void (*)(void **, size_t *))(uintptr_t)table(HOOKS)[6])(&array, &size);
	assert_int_equal(size, 14);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(((uint8_t *)array)[i], 0);
}

static CUcontext primary;

/* The order of a runtime's first use of a device. */
static void first_use(void **state)
{
	static int key;
	CUcontext ctx = (void *)1;
	uint32_t flag = 9;
	void *value = (void *)5;

	SAYS(INVALID_CONTEXT, CALL(STORAGE, 2, (void **, CUcontext, void *), &value, NULL, &key));
	OK(CALL(TLS, 2, (CUcontext *), &ctx));
	assert_null(ctx);
	SAYS(INVALID_DEVICE, CALL(RUNTIME, 2, (CUcontext *, CUdevice), &primary, 9));
	SAYS(INVALID_VALUE, CALL(RUNTIME, 2, (CUcontext *, CUdevice), NULL, 0));
	OK(CALL(RUNTIME, 2, (CUcontext *, CUdevice), &primary, 0));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, primary)));
	SAYS(CONTEXT_IS_DESTROYED, CALL(STORAGE, 0, (CUcontext, void *, void *, void *), primary, &key, (void *)1, NULL));
	OK(FAKE_INIT(do_cuDevicePrimaryCtxRetain(call, &ctx, 0)));
	assert_ptr_equal(ctx, primary);
	SAYS(INVALID_HANDLE, CALL(STORAGE, 2, (void **, CUcontext, void *), &value, NULL, &key));
	assert_ptr_equal(value, (void *)5);
	OK(CALL(CHECKS, 2, (CUcontext, uint32_t *, const void **), primary, &flag, (const void **)&value));
	assert_int_equal(flag, 0);
	assert_int_equal(((unsigned int (*)(void))(uintptr_t)table(CHECKS)[3])(), 0);
	OK(CALL(STORAGE, 0, (CUcontext, void *, void *, void *), primary, &key, (void *)77, NULL));
	SAYS(INVALID_HANDLE, CALL(STORAGE, 0, (CUcontext, void *, void *, void *), primary, &key, (void *)78, NULL));
	OK(CALL(STORAGE, 2, (void **, CUcontext, void *), &value, NULL, &key));
	assert_ptr_equal(value, (void *)77);
	OK(CALL(STORAGE, 2, (void **, CUcontext, void *), &value, primary, &key));
	OK(CALL(TLS, 2, (CUcontext *), &ctx));
	assert_ptr_equal(ctx, primary);
	/* Garbage is no context. */
	SAYS(INVALID_CONTEXT, CALL(STORAGE, 2, (void **, CUcontext, void *), &value, (CUcontext)-1, &key));
	SAYS(INVALID_CONTEXT, CALL(STORAGE, 1, (CUcontext, void *), (CUcontext)8, &key));
	SAYS(INVALID_CONTEXT, CALL(CHECKS, 2, (CUcontext, uint32_t *, const void **), (CUcontext)8, &flag, NULL));
	OK(CALL(STORAGE, 1, (CUcontext, void *), NULL, &key));
	SAYS(INVALID_HANDLE, CALL(STORAGE, 1, (CUcontext, void *), NULL, &key));
}

static void digest(void **state)
{
	struct integrity what = {
		.driver_version = 13000,
		.version = 13002,
		.process = (uint32_t)getpid(),
		.thread = (uint32_t)pthread_self(),
		.runtime_table = (uintptr_t)table(RUNTIME),
		.integrity_table = (uintptr_t)table(INTEGRITY),
		.integrity_slot = (uintptr_t)table(INTEGRITY)[1],
		.time = 1700000000,
	};
	struct integrity_device devices[2] = { { .bus = 7 }, { .bus = 6 } };
	uint8_t expected[16], got[16];

	memcpy(devices[0].uuid, fake_snapshot.devices[0].uuid_v1, 16);
	memcpy(devices[1].uuid, fake_snapshot.devices[1].uuid_v1, 16);
	integrity_digest(&what, devices, 2, expected);
	OK(CALL(INTEGRITY, 1, (uint32_t, uint64_t, uint8_t *), 13002, 1700000000, got));
	assert_memory_equal(got, expected, 16);
	OK(CALL(INTEGRITY, 1, (uint32_t, uint64_t, uint8_t *), 13002, 1700000001, got));
	assert_memory_not_equal(got, expected, 16);
}

static void old_runtimes_load(void **state)
{
	CUmodule module = NULL;
	int image, other;

	OK(CALL(RUNTIME, 1, (CUmodule *, const void *), &module, &image));
	assert_ptr_equal(fake_image, &image);
	assert_ptr_equal(module, (void *)0x77);
	OK(CALL(RUNTIME, 6, (CUmodule *, const void *, void *, void *, unsigned int), &module, &other, NULL, NULL, 0));
	assert_ptr_equal(fake_image, &other);
	OK(CALL(RUNTIME, 8, (const void *, CUmodule *, void *, void *, unsigned int), &image, &module, NULL, NULL, 0));
	assert_ptr_equal(fake_image, &image);
	((void (*)(size_t))(uintptr_t)table(RUNTIME)[7])(5);
	OK(CALL(RUNTIME, 12, (void)));
	SAYS(NOT_SUPPORTED, CALL(RUNTIME, 3, (void)));
}

static uint64_t stream_number(CUstream stream, int per_thread)
{
	void *object = NULL;
	uint64_t id = 0;

	OK(CALL(CONTEXTS, 51, (CUcontext, CUstream, void **, int), primary, stream, &object, per_thread));
	OK(CALL(CONTEXTS, 39, (CUcontext, void *, uint64_t *), primary, object, &id));
	assert_int_not_equal(id, 0);
	return id;
}

static void *own_number(void *arg)
{
	*(uint64_t *)arg = stream_number((CUstream)2, 1);
	return NULL;
}

static void streams_have_numbers_of_their_own(void **state)
{
	uint64_t legacy = stream_number(NULL, 0), own = stream_number((CUstream)2, 1), made = stream_number((CUstream)0x5000, 0);
	uint64_t other = 0;
	pthread_t thread;

	assert_int_equal(stream_number((CUstream)1, 0), legacy);
	assert_int_equal(stream_number(NULL, 1), own);
	assert_int_not_equal(legacy, own);
	assert_int_not_equal(legacy, made);
	assert_int_not_equal(own, made);
	pthread_create(&thread, NULL, own_number, &other);
	pthread_join(thread, NULL);
	assert_int_not_equal(other, own);
}

static void contexts_have_numbers(void **state)
{
	uint64_t number = 0, other = 0;
	unsigned long long id = 0;
	CUcontext ctx = NULL;

	OK(CALL(CONTEXTS, 4, (CUcontext, uint64_t *), primary, &number));
	OK(FAKE_INIT(do_cuCtxGetId(call, primary, &id)));
	assert_int_equal(number, id);
	OK(FAKE_INIT(do_cuCtxCreate_v2(call, &ctx, 0, 0)));
	OK(CALL(CONTEXTS, 4, (CUcontext, uint64_t *), NULL, &other));
	assert_int_not_equal(number, other);
	OK(FAKE_INIT(do_cuCtxDestroy_v2(call, ctx)));
	SAYS(CONTEXT_IS_DESTROYED, CALL(CONTEXTS, 4, (CUcontext, uint64_t *), ctx, &other));
	SAYS(INVALID_CONTEXT, CALL(CONTEXTS, 4, (CUcontext, uint64_t *), (CUcontext)-1, &other));
	SAYS(NOT_SUPPORTED, CALL(CONTEXTS, 5, (void)));
	SAYS(NOT_SUPPORTED, CALL(CONTEXTS, 92, (void)));
}

static unsigned int seen;

static void each(void *user, CUfunction function)
{
	assert_ptr_equal(user, &seen);
	assert_ptr_equal(function, (CUfunction)(uintptr_t)(0x100 + seen));
	seen++;
}

static void functions_of_a_module(void **state)
{
	assert_int_equal(CALL(MODULES, 7, (CUcontext, CUmodule, void (*)(void *, CUfunction), void *), primary, (CUmodule)0x77,
			      each, &seen),
			 1);
	assert_int_equal(seen, 2);
	assert_int_equal(CALL(MODULES, 7, (CUcontext, CUmodule, void (*)(void *, CUfunction), void *), primary, (CUmodule)0x78,
			      each, &seen),
			 0);
	fake_function_count = 0;
	assert_int_equal(CALL(MODULES, 7, (CUcontext, CUmodule, void (*)(void *, CUfunction), void *), primary, (CUmodule)0x77,
			      each, &seen),
			 1);
	fake_function_count = 1u << 30;
	assert_int_equal(CALL(MODULES, 7, (CUcontext, CUmodule, void (*)(void *, CUfunction), void *), primary, (CUmodule)0x77,
			      each, &seen),
			 0);
	assert_int_equal(seen, 2);
}

static void groups_of_the_card(void **state)
{
	uint8_t *places = NULL, *groups = NULL, *again, *again_groups;

	OK(CALL(GROUPS, 4, (uint8_t **, uint8_t **), &places, &groups));
	assert_memory_equal(places, "\0\1\0\1", 4);
	assert_memory_equal(groups, "\0\0\1\1", 4);
	OK(CALL(GROUPS, 4, (uint8_t **, uint8_t **), &again, &again_groups));
	assert_ptr_not_equal(places, again);
	OK(CALL(GROUPS, 13, (uint8_t *, uint8_t *), places, groups));
	OK(CALL(GROUPS, 13, (uint8_t *, uint8_t *), again, again_groups));
	SAYS(NOT_SUPPORTED, CALL(GROUPS, 1, (void)));
	OK(FAKE_INIT(do_cuCtxSetCurrent(call, NULL)));
	SAYS(INVALID_CONTEXT, CALL(GROUPS, 4, (uint8_t **, uint8_t **), &places, &groups));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_slots),
		cmocka_unit_test(refused_tables),
		cmocka_unit_test(before_init),
		cmocka_unit_test(hooks_are_empty),
		cmocka_unit_test(first_use),
		cmocka_unit_test(digest),
		cmocka_unit_test(old_runtimes_load),
		cmocka_unit_test(streams_have_numbers_of_their_own),
		cmocka_unit_test(contexts_have_numbers),
		cmocka_unit_test(functions_of_a_module),
		cmocka_unit_test(groups_of_the_card),
	};

	fake_snapshot_fill();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
