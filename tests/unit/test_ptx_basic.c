/* SPDX-License-Identifier: Apache-2.0 */
/* The three kernels that every layer above runs too: sums, tiles, a reduction; and how fast tiles are. */
#include <math.h>
#include <time.h>

#include "tests/unit/test_ptx.h"

static void vector_add(void **state)
{
	struct ptx_module *module = kit_load("vecadd");
	int n = 10007;
	float *a = kit_alloc(n * sizeof(*a));
	float *b = kit_alloc(n * sizeof(*b));
	float *c = kit_alloc(n * sizeof(*c));

	(void)state;
	for (int i = 0; i < n; i++) {
		a[i] = (float)(int32_t)kit_random();
		b[i] = (float)(int32_t)kit_random();
	}
	kit_run_ok(module, "vecadd", (uint32_t)(n + 255) / 256, 256, 0, PARAMS(&a, &b, &c, &n));
	for (int i = 0; i < n; i++)
		assert_true(c[i] == a[i] + b[i]);
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

static void multiply(int n, double *seconds_out)
{
	struct ptx_module *module = kit_load("matmul");
	size_t size = (size_t)n * n * sizeof(float);
	float *a = kit_alloc(size);
	float *b = kit_alloc(size);
	float *c = kit_alloc(size);
	struct kit_launch launch = { .grid = { (n + 15) / 16, (n + 15) / 16 }, .block = { 16, 16 } };
	struct ptx_fault fault;
	struct timespec from;
	struct timespec to;

	for (int i = 0; i < n * n; i++) {
		a[i] = (float)(kit_random() % 64) - 32;
		b[i] = (float)(kit_random() % 64) - 32;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(kit_run(module, "matmul_tiled", &launch, PARAMS(&a, &b, &c, &n), &fault), PTX_DONE);
	clock_gettime(CLOCK_MONOTONIC, &to);
	*seconds_out = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
	/* small whole numbers: every order of summing gives the same */
	for (int k = 0; k < 2000; k++) {
		int row = (int)(kit_random() % (uint32_t)n);
		int column = (int)(kit_random() % (uint32_t)n);
		float sum = 0;

		for (int i = 0; i < n; i++)
			sum += a[row * n + i] * b[i * n + column];
		assert_true(c[row * n + column] == sum);
	}
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

static void tiles(void **state)
{
	double seconds;

	(void)state;
	multiply(75, &seconds);
	multiply(16, &seconds);
}

static void tiles_512(void **state)
{
	double seconds;

	(void)state;
	multiply(512, &seconds);
	print_message("512 x 512 x 512 in %.2f s\n", seconds);
}

static void reduction(void **state)
{
	struct ptx_module *module = kit_load("reduce");
	int n = 100003;
	float *in = kit_alloc(n * sizeof(*in));
	float *out = kit_alloc(sizeof(*out));
	double sum = 0;

	(void)state;
	for (int i = 0; i < n; i++) {
		in[i] = (float)(kit_random() % 100);
		sum += in[i];
	}
	kit_run_ok(module, "reduce_sum", 37, 256, 0, PARAMS(&in, &out, &n));
	assert_true(fabs((double)*out - sum) <= 1e-6 * sum);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector_add),
		cmocka_unit_test(tiles),
		cmocka_unit_test(tiles_512),
		cmocka_unit_test(reduction),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
