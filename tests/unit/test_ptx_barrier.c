/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with barriers, shared memory and diverging threads, against plain C. */
#include "tests/unit/test_ptx.h"

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static int compare_int(const void *a, const void *b)
{
	int x = *(const int *)a;
	int y = *(const int *)b;

	return x < y ? -1 : x > y;
}

static void scan(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int n = 1000;
	uint32_t *in = kit_alloc(n * sizeof(*in));
	uint32_t *out = kit_alloc(n * sizeof(*out));
	uint32_t sum = 0;

	(void)state;
	for (int i = 0; i < n; i++)
		in[i] = kit_random();
	kit_run_ok(module, "scan_block", 8, 128, 0, PARAMS(&in, &out, &n));
	for (int i = 0; i < n; i++) {
		sum = i % 128 ? sum + in[i] : in[i];
		assert_int_equal(out[i], sum);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void sort(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	uint32_t *data = kit_alloc(4 * 256 * sizeof(*data));
	uint32_t expected[4 * 256];

	(void)state;
	for (int i = 0; i < 4 * 256; i++)
		expected[i] = data[i] = kit_random();
	for (int b = 0; b < 4; b++)
		qsort(expected + b * 256, 256, sizeof(*expected), compare_u32);
	kit_run_ok(module, "sort_block", 4, 256, 256 * sizeof(*data), PARAMS(&data));
	assert_memory_equal(data, expected, sizeof(expected));
	kit_free(data);
	kit_unload(module);
}

static void transpose(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int width = 50;
	int height = 37;
	float *in = kit_alloc(width * height * sizeof(*in));
	float *out = kit_alloc(width * height * sizeof(*out));
	struct kit_launch launch = { .grid = { 4, 3 }, .block = { 16, 16 } };
	struct ptx_fault fault;

	(void)state;
	for (int i = 0; i < width * height; i++)
		in[i] = (float)i;
	assert_int_equal(kit_run(module, "transpose", &launch, PARAMS(&in, &out, &width, &height), &fault), PTX_DONE);
	for (int y = 0; y < height; y++)
		for (int x = 0; x < width; x++)
			assert_true(out[x * height + y] == in[y * width + x]);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void stencil(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int n = 300;
	int rounds = 3;
	float *in = kit_alloc(n * sizeof(*in));
	float *out = kit_alloc(n * sizeof(*out));

	(void)state;
	for (int i = 0; i < n; i++)
		in[i] = (float)(kit_random() % 100);
	kit_run_ok(module, "stencil", 3, 128, 0, PARAMS(&in, &out, &n, &rounds));
	for (int b = 0; b < 3; b++) {
		float line[130] = { 0 };
		float next[130];

		for (int t = 0; t < 130; t++) {
			int i = b * 128 + t - 1;

			line[t] = i >= 0 && i < n ? in[i] : 0;
		}
		for (int round = 0; round < rounds; round++) {
			memcpy(next, line, sizeof(next));
			for (int t = 1; t < 129; t++)
				next[t] = line[t - 1] + 2 * line[t] + line[t + 1];
			memcpy(line, next, sizeof(next));
		}
		for (int t = 1; t < 129 && b * 128 + t - 1 < n; t++)
			assert_true(out[b * 128 + t - 1] == line[t]);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void block_votes(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int *in = kit_alloc(3 * 100 * sizeof(*in));
	int *out = kit_alloc(3 * 100 * sizeof(*out));

	(void)state;
	for (int i = 0; i < 300; i++)
		in[i] = (int)(kit_random() % 50) - 20;
	in[150] = 77;
	in[250] = -500;
	kit_run_ok(module, "block_votes", 3, 100, 0, PARAMS(&in, &out));
	for (int b = 0; b < 3; b++) {
		int count = 0;

		for (int t = 0; t < 100; t++)
			count += in[b * 100 + t] > 0;
		for (int t = 0; t < 100; t++)
			assert_int_equal(out[b * 100 + t], count * 4 + (b != 2) * 2 + (b == 1));
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void named_barriers(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int rounds = 9;
	int *in = kit_alloc(rounds * 128 * sizeof(*in));
	int *out = kit_alloc(128 * sizeof(*out));

	(void)state;
	for (int i = 0; i < rounds * 128; i++)
		in[i] = (int)(kit_random() % 1000);
	kit_run_ok(module, "hand_over", 1, 256, 0, PARAMS(&in, &out, &rounds));
	for (int t = 0; t < 128; t++) {
		int sum = 0;

		for (int round = 0; round < rounds; round++)
			sum += in[round * 128 + 127 - t] * 3;
		assert_int_equal(out[t], sum);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void leaving(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int *out = kit_alloc(2 * 80 * sizeof(*out));

	(void)state;
	kit_run_ok(module, "leave_early", 2, 80, 0, PARAMS(&out));
	for (int i = 0; i < 160; i++)
		assert_int_equal(out[i], i % 80 % 8 * 1000 + i % 80);
	kit_free(out);
	kit_unload(module);
}

static void subsequence(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int n = 120;
	char *a = kit_alloc(n);
	char *b = kit_alloc(n);
	int *out = kit_alloc(sizeof(*out));
	static int cells[121][121];

	(void)state;
	for (int i = 0; i < n; i++) {
		a[i] = (char)('a' + kit_random() % 4);
		b[i] = (char)('a' + kit_random() % 4);
	}
	for (int i = 1; i <= n; i++)
		for (int j = 1; j <= n; j++)
			cells[i][j] = a[i - 1] == b[j - 1] ? cells[i - 1][j - 1] + 1
				      : cells[i - 1][j] > cells[i][j - 1] ? cells[i - 1][j]
									  : cells[i][j - 1];
	kit_run_ok(module, "subsequence", 1, (uint32_t)n, 0, PARAMS(&a, &b, &n, &out));
	assert_int_equal(*out, cells[n][n]);
	kit_free(a);
	kit_free(b);
	kit_free(out);
	kit_unload(module);
}

static void exchange(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int n = 117;
	int *data = kit_alloc(n * sizeof(*data));
	int expected[117];

	(void)state;
	for (int i = 0; i < n; i++)
		expected[i] = data[i] = (int)kit_random();
	qsort(expected, (size_t)n, sizeof(*expected), compare_int);
	kit_run_ok(module, "exchange_sort", 1, 128, 0, PARAMS(&data, &n));
	assert_memory_equal(data, expected, sizeof(expected));
	kit_free(data);
	kit_unload(module);
}

static void histogram(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	int n = 5000;
	uint8_t *in = kit_alloc(n);
	uint32_t *bins = kit_alloc(256 * sizeof(*bins));
	uint32_t expected[256] = { 0 };

	(void)state;
	for (int i = 0; i < n; i++) {
		in[i] = (uint8_t)(kit_random() % 256 * (kit_random() % 2));
		expected[in[i]]++;
	}
	kit_run_ok(module, "histogram_shared", 5, 96, 0, PARAMS(&in, &bins, &n));
	assert_memory_equal(bins, expected, sizeof(expected));
	kit_free(in);
	kit_free(bins);
	kit_unload(module);
}

static void uneven(void **state)
{
	struct ptx_module *module = kit_load("barrier");
	uint32_t *out = kit_alloc(3 * 120 * sizeof(*out));
	struct kit_launch launch = { .grid = { 3 }, .block = { 5, 4, 6 } };
	struct ptx_fault fault;
	uint32_t x[120];
	uint32_t sum[4] = { 0 };

	(void)state;
	assert_int_equal(kit_run(module, "uneven", &launch, PARAMS(&out), &fault), PTX_DONE);
	for (uint32_t t = 0; t < 120; t++)
		x[t] = t;
	for (uint32_t round = 0; round < 5; round++) {
		for (uint32_t t = 0; t < 120; t++) {
			for (uint32_t i = 0; i < (t * 7 + round) % 13; i++)
				x[t] = x[t] * 1664525u + 1013904223u;
			sum[x[t] >> 30] += x[t] >> 8;
		}
		for (uint32_t t = 0; t < 120; t++)
			x[t] ^= sum[round % 4];
	}
	for (int i = 0; i < 360; i++)
		assert_int_equal(out[i], x[i % 120]);
	kit_free(out);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(scan),
		cmocka_unit_test(sort),
		cmocka_unit_test(transpose),
		cmocka_unit_test(stencil),
		cmocka_unit_test(block_votes),
		cmocka_unit_test(named_barriers),
		cmocka_unit_test(leaving),
		cmocka_unit_test(subsequence),
		cmocka_unit_test(exchange),
		cmocka_unit_test(histogram),
		cmocka_unit_test(uneven),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
