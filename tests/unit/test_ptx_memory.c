/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces, sizes, vectors, parameters; and accesses that must be caught. */
#include <pthread.h>
#include <time.h>

#include "tests/unit/test_ptx.h"

#define N 100

static void constants(void **state)
{
	struct ptx_module *module = kit_load("memory");
	const char text[] = "device text";
	int n = N;
	int *in = kit_alloc(N * sizeof(*in));
	int *out = kit_alloc(N * sizeof(*out));
	int *table = kit_global(module, "table");

	(void)state;
	assert_int_equal(ptx_module_global_find(module, "table")->space, PTX_SPACE_CONST);
	assert_int_equal(ptx_module_global_find(module, "table")->size, 256);
	for (int i = 0; i < 64; i++)
		table[i] = (int)kit_random() >> 4;
	for (int i = 0; i < N; i++)
		in[i] = (int)kit_random();
	kit_run_ok(module, "constants", 4, 32, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], table[in[i] & 63] + table[5] + 30 + (i & 3) * 10 + 10 + text[i % 11]);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void globals(void **state)
{
	struct ptx_module *module = kit_load("memory");
	uint32_t by = 3;

	(void)state;
	assert_int_equal(*(uint32_t *)kit_global(module, "counter"), 5);
	kit_run_ok(module, "globals", 2, 50, 0, PARAMS(&by));
	assert_int_equal(*(uint32_t *)kit_global(module, "counter"), 305);
	kit_unload(module);
}

struct arguments {
	uint8_t small;
	uint16_t shorter[3];
	double real;
	float four[4] __attribute__((aligned(16)));
	char name[7];
} __attribute__((aligned(16)));

static void parameters(void **state)
{
	struct ptx_module *module = kit_load("memory");
	struct arguments a = { 7, { 1, 2, 3 }, 0.5, { 1, 2, 3, 4 }, "abcdef" };
	struct arguments *out = kit_alloc(sizeof(*out));
	const struct ptx_entry *entry = ptx_module_entry_find(module, "parameters");
	char b = -3;
	short c = 300;
	int d = 1;
	long long e = 1ll << 40;
	float f = 0.25f;

	(void)state;
	assert_int_equal(entry->param_count, 7);
	assert_int_equal(entry->params[0].size, sizeof(a));
	assert_int_equal(entry->params[0].align, 16);
	assert_int_equal(entry->params[1].offset, 48);
	assert_int_equal(entry->params[2].offset, 50);
	assert_int_equal(entry->params[3].offset, 52);
	assert_int_equal(entry->params[4].offset, 56);
	assert_int_equal(entry->params[6].offset, 72);
	assert_int_equal(entry->param_size, 80);
	kit_run_ok(module, "parameters", 1, 32, 0, PARAMS(&a, &b, &c, &d, &e, &f, &out));
	a.small = (uint8_t)(a.small + b);
	a.shorter[1] = (uint16_t)(a.shorter[1] + c);
	a.real += (double)((float)e + f);
	a.four[2] *= 2;
	a.name[1] = 'x';
	assert_int_equal(out->small, a.small);
	assert_memory_equal(out->shorter, a.shorter, sizeof(a.shorter));
	assert_true(out->real == a.real);
	assert_memory_equal(out->four, a.four, sizeof(a.four));
	assert_string_equal(out->name, a.name);
	kit_free(out);
	kit_unload(module);
}

static void vectors(void **state)
{
	struct ptx_module *module = kit_load("memory");
	int n = N;
	float (*in)[4] = kit_alloc(N * sizeof(*in));
	uint32_t (*pairs)[2] = kit_alloc(N * sizeof(*pairs));
	float (*out)[4] = kit_alloc(N * sizeof(*out));
	uint16_t (*small)[4] = kit_alloc(N * sizeof(*small));

	(void)state;
	for (int i = 0; i < N; i++) {
		for (int j = 0; j < 4; j++)
			in[i][j] = (float)(kit_random() % 1000);
		pairs[i][0] = kit_random();
		pairs[i][1] = kit_random();
	}
	kit_run_ok(module, "vectors", 4, 32, 0, PARAMS(&in, &pairs, &out, &small, &n));
	for (int i = 0; i < N; i++) {
		assert_true(out[i][0] == in[i][3] + (float)pairs[i][0]);
		assert_true(out[i][1] == in[i][2]);
		assert_true(out[i][2] == in[i][1] * (float)pairs[i][1]);
		assert_true(out[i][3] == in[i][0]);
		assert_int_equal(small[i][0], (uint16_t)pairs[i][0]);
		assert_int_equal(small[i][1], pairs[i][0] >> 16);
		assert_int_equal(small[i][2], (uint16_t)pairs[i][1]);
		assert_int_equal(small[i][3], pairs[i][1] >> 16);
	}
	kit_free(in);
	kit_free(pairs);
	kit_free(out);
	kit_free(small);
	kit_unload(module);
}

static void small_types(void **state)
{
	struct ptx_module *module = kit_load("memory");
	int n = N;
	int8_t *a = kit_alloc(N);
	uint8_t *b = kit_alloc(N);
	int16_t *c = kit_alloc(2 * N);
	uint16_t *d = kit_alloc(2 * N);
	int64_t *out = kit_alloc(8 * N);
	int8_t *narrow = kit_alloc(N);

	(void)state;
	for (int i = 0; i < N; i++) {
		a[i] = (int8_t)kit_random();
		b[i] = (uint8_t)kit_random();
		c[i] = (int16_t)kit_random();
		d[i] = (uint16_t)kit_random();
	}
	kit_run_ok(module, "small_types", 4, 32, 0, PARAMS(&a, &b, &c, &d, &out, &narrow, &n));
	for (int i = 0; i < N; i++) {
		assert_true(out[i] == (int64_t)a[i] * 1000000 + b[i] * 1000 + c[i] - d[i]);
		assert_int_equal(narrow[i], (int8_t)(a[i] + b[i]));
	}
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_free(d);
	kit_free(out);
	kit_free(narrow);
	kit_unload(module);
}

static void any_space(void **state)
{
	struct ptx_module *module = kit_load("memory");
	int *global = kit_alloc(64 * sizeof(*global));
	int *out = kit_alloc(64 * sizeof(*out));
	int n = 2;

	(void)state;
	for (int i = 0; i < 64; i++)
		global[i] = i * 7;
	kit_run_ok(module, "any_space", 1, 64, 0, PARAMS(&global, &out, &n));
	for (int t = 0; t < 64; t++)
		assert_int_equal(out[t], t % 3 == 0 ? (63 - t) * 10 + 1001 : t % 3 == 1 ? t + 200 + 4001 : t * 7 + 2001);
	kit_free(global);
	kit_free(out);
	kit_unload(module);
}

static void dynamic_shared(void **state)
{
	struct ptx_module *module = kit_load("memory");
	double *in = kit_alloc(50 * sizeof(*in));
	double *out = kit_alloc(50 * sizeof(*out));
	struct kit_launch launch = { .block = { 50 }, .shared = 50 * 9 - 1 };
	struct ptx_fault fault;

	(void)state;
	for (int i = 0; i < 50; i++)
		in[i] = kit_random();
	kit_run_ok(module, "dynamic_shared", 1, 50, 50 * 9, PARAMS(&in, &out));
	for (int i = 0; i < 50; i++)
		assert_true(out[i] == in[49 - i] + (i + 1) % 50);
	assert_int_equal(kit_run(module, "dynamic_shared", &launch, PARAMS(&in, &out), &fault), PTX_FAULT_ADDRESS);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void strays(void **state)
{
	struct ptx_module *module = kit_load("memory");
	int *in = kit_alloc(32 * sizeof(*in));
	int *out = kit_alloc(32 * sizeof(*out));
	struct kit_launch launch = { .block = { 32 } };
	struct ptx_fault fault;
	int where = 31;
	long long far = 31;
	char *odd = (char *)out + 2;

	(void)state;
	assert_int_equal(kit_run(module, "stray_read", &launch, PARAMS(&in, &out, &where), &fault), PTX_DONE);
	where = 32;
	assert_int_equal(kit_run(module, "stray_read", &launch, PARAMS(&in, &out, &where), &fault), PTX_FAULT_ADDRESS);
	assert_true(fault.address == (uintptr_t)(in + 32));
	assert_int_equal(fault.tid[0], 3);
	assert_false(fault.write);
	assert_string_equal(fault.kernel, "stray_read");
	assert_non_null(strstr(fault.instruction, "ld.global"));
	assert_int_equal(kit_run(module, "stray_write", &launch, PARAMS(&out, &far), &fault), PTX_DONE);
	far = -1;
	assert_int_equal(kit_run(module, "stray_write", &launch, PARAMS(&out, &far), &fault), PTX_FAULT_ADDRESS);
	assert_true(fault.write);
	assert_int_equal(fault.tid[0], 5);
	far = 1ll << 60;
	assert_int_equal(kit_run(module, "stray_write", &launch, PARAMS(&out, &far), &fault), PTX_FAULT_ADDRESS);
	assert_int_equal(kit_run(module, "misaligned", &launch, PARAMS(&odd), &fault), PTX_FAULT_MISALIGNED);
	where = 0;
	assert_int_equal(kit_run(module, "stray_shared", &launch, PARAMS(&out, &where), &fault), PTX_DONE);
	where = 1;
	assert_int_equal(kit_run(module, "stray_shared", &launch, PARAMS(&out, &where), &fault), PTX_FAULT_ADDRESS);
	where = -100;
	assert_int_equal(kit_run(module, "stray_shared", &launch, PARAMS(&out, &where), &fault), PTX_FAULT_ADDRESS);
	/* freed memory is gone at once, also for ranges that were remembered */
	kit_free(in);
	where = 0;
	assert_int_equal(kit_run(module, "stray_read", &launch, PARAMS(&in, &out, &where), &fault), PTX_FAULT_ADDRESS);
	kit_free(out);
	kit_unload(module);
}

static void *set_later(void *arg)
{
	struct timespec time = { .tv_nsec = 100000000 };

	nanosleep(&time, NULL);
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* A kernel that never ends gives up when it is told, and another one runs beside it. */
static void endless(void **state)
{
	struct ptx_module *module = kit_load("memory");
	_Atomic uint32_t abort = 0;
	struct kit_launch launch = { .grid = { 5 }, .block = { 96 }, .abort = &abort };
	int *flag = kit_alloc(sizeof(*flag));
	struct ptx_fault fault;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, set_later, (void *)&abort), 0);
	assert_int_equal(kit_run(module, "forever", &launch, PARAMS(&flag), &fault), PTX_ABORTED);
	pthread_join(thread, NULL);
	abort = 0;
	assert_int_equal(pthread_create(&thread, NULL, set_later, (void *)&abort), 0);
	assert_int_equal(kit_run(module, "forever_quiet", &launch, PARAMS(&flag), &fault), PTX_ABORTED);
	pthread_join(thread, NULL);
	/* a flag that the host sets */
	abort = 0;
	assert_int_equal(pthread_create(&thread, NULL, set_later, flag), 0);
	assert_int_equal(kit_run(module, "forever", &launch, PARAMS(&flag), &fault), PTX_DONE);
	pthread_join(thread, NULL);
	kit_free(flag);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constants), cmocka_unit_test(globals),	    cmocka_unit_test(parameters),
		cmocka_unit_test(vectors),   cmocka_unit_test(small_types), cmocka_unit_test(any_space),
		cmocka_unit_test(dynamic_shared), cmocka_unit_test(strays), cmocka_unit_test(endless),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
