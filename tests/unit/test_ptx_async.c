/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies, mbarriers, groups, cooperative grids, clusters; and what must be refused. */
#include "tests/unit/test_ptx.h"

static void copies(void **state)
{
	struct ptx_module *module = kit_load("async");
	int tiles = 5;
	float(*in)[4] = kit_alloc(5 * 64 * sizeof(*in));
	float(*out)[4] = kit_alloc(5 * 64 * sizeof(*out));

	(void)state;
	for (int i = 0; i < 5 * 64 * 4; i++)
		in[i / 4][i % 4] = (float)i;
	kit_run_ok(module, "copy_async", 1, 64, 0, PARAMS(&in, &out, &tiles));
	for (int i = 0; i < 5 * 64; i++)
		for (int j = 0; j < 4; j++)
			assert_true(out[i][j] == in[(i & ~63) + 63 - i % 64][3 - j]);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void pipeline(void **state)
{
	struct ptx_module *module = kit_load("async");
	int n = 128 * 6;
	int *in = kit_alloc(n * sizeof(*in));
	int *out = kit_alloc(n * sizeof(*out));

	(void)state;
	for (int i = 0; i < n; i++)
		in[i] = (int)kit_random() >> 1;
	kit_run_ok(module, "pipelined", 1, 128, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < n; i++)
		assert_int_equal(out[i], in[(i & ~127) + 127 - i % 128] + 1);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void phases(void **state)
{
	struct ptx_module *module = kit_load("async");
	int rounds = 7;
	int *out = kit_alloc(7 * 96 * sizeof(*out));
	int sum = 0;

	(void)state;
	kit_run_ok(module, "phases", 1, 96, 0, PARAMS(&out, &rounds));
	for (int round = 0; round < rounds; round++) {
		sum += 95 * 96 / 2 * round;
		for (int t = 0; t < 96; t++)
			assert_int_equal(out[round * 96 + t], sum);
	}
	kit_free(out);
	kit_unload(module);
}

static void bulk(void **state)
{
	struct ptx_module *module = kit_load("async");
	int *in = kit_alloc(64 * sizeof(*in));
	int *out = kit_alloc(64 * sizeof(*out));
	struct kit_launch launch = { .block = { 64 } };
	struct ptx_fault fault;
	int *end = in + 32;

	(void)state;
	for (int i = 0; i < 64; i++)
		in[i] = (int)kit_random() >> 1;
	kit_run_ok(module, "bulk", 1, 64, 0, PARAMS(&in, &out));
	for (int i = 0; i < 64; i++)
		assert_int_equal(out[i], in[63 - i] + 1);
	assert_int_equal(kit_run(module, "bulk", &launch, PARAMS(&end, &out), &fault), PTX_FAULT_ADDRESS);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void groups(void **state)
{
	struct ptx_module *module = kit_load("async");
	int *in = kit_alloc(64 * sizeof(*in));
	int *out = kit_alloc(64 * sizeof(*out));

	(void)state;
	for (int i = 0; i < 64; i++)
		in[i] = (int)(kit_random() % 1000);
	kit_run_ok(module, "warp_sums", 1, 64, 0, PARAMS(&in, &out));
	for (int i = 0; i < 64; i++) {
		int sum = 0;
		int most = 0;
		int least = 1000;
		int bits = 0;

		for (int j = i & ~31; j < (i & ~31) + 32; j++) {
			sum += in[j];
			least = in[j] < least ? in[j] : least;
			bits ^= in[j];
		}
		for (int j = i & ~7; j < (i & ~7) + 8; j++)
			most = in[j] > most ? in[j] : most;
		assert_int_equal(out[i], sum + most + (least ^ bits) + i % 8 + i / 8);
	}
	for (int i = 0; i < 64; i++)
		in[i] = i % 3 ? -1 : i + 5;
	kit_run_ok(module, "coalesced", 1, 64, 0, PARAMS(&in, &out));
	for (int w = 0; w < 2; w++) {
		int count = 0;
		int first = 0;
		int rank = 0;

		for (int i = w * 32; i < w * 32 + 32; i++) {
			if (in[i] > 0 && !count++)
				first = in[i];
		}
		for (int i = w * 32; i < w * 32 + 32; i++)
			assert_int_equal(out[i], in[i] > 0 ? rank++ * 100 + count + first : -1);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void cooperative(void **state)
{
	struct ptx_module *module = kit_load("async");
	struct kit_launch launch = { .grid = { 13 }, .block = { 64 }, .cooperative = true };
	struct ptx_fault fault;
	int n = 1500;
	int rounds = 9;
	uint32_t *data = kit_alloc(2 * n * sizeof(*data));
	uint32_t *want = malloc(2 * n * sizeof(*want));

	(void)state;
	for (int i = 0; i < n; i++)
		want[i] = data[i] = kit_random();
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < n; i++)
			want[(~round & 1) * n + i] = want[(round & 1) * n + (i + 1) % n] + want[(round & 1) * n + (i + n - 1) % n];
	assert_true(ptx_module_entry_find(module, "grid_rounds")->uses_grid_sync);
	assert_int_equal(kit_run(module, "grid_rounds", &launch, PARAMS(&data, &n, &rounds), &fault), PTX_DONE);
	assert_memory_equal(data + n, want + n, n * sizeof(*data));
	free(want);
	kit_free(data);
	kit_unload(module);
}

static void clusters(void **state)
{
	struct ptx_module *module = kit_load("async");
	struct kit_launch launch = { .grid = { 4 }, .block = { 32 }, .cluster = { 2, 1, 1 } };
	struct ptx_fault fault;
	int *out = kit_alloc(4 * 32 * sizeof(*out));

	(void)state;
	kit_run_ok(module, "clusters", 4, 32, 0, PARAMS(&out));
	for (int i = 0; i < 128; i++)
		assert_int_equal(out[i], 10);
	/* a barrier of more than one block is not something we have, and must not look as if it were */
	assert_int_equal(kit_run(module, "clusters", &launch, PARAMS(&out), &fault), PTX_FAULT_INSTRUCTION);
	kit_free(out);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies), cmocka_unit_test(pipeline),	 cmocka_unit_test(phases),	cmocka_unit_test(bulk),
		cmocka_unit_test(groups), cmocka_unit_test(cooperative), cmocka_unit_test(clusters),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
