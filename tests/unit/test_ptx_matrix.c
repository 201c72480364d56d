/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix instructions against plain loops; textures and surfaces against a front that says what it was asked. */
#include <errno.h>
#include <math.h>

#include "tests/unit/test_ptx.h"

/* Whole numbers from -32 to 31 as halves. */
static uint16_t small_half(int x)
{
	int exponent = 0;
	int magnitude = abs(x);

	if (!x)
		return 0;
	while (magnitude >> (exponent + 1))
		exponent++;
	return (uint16_t)((x < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | ((magnitude << (10 - exponent)) & 0x3ff));
}

static void halves(void **state)
{
	struct ptx_module *module = kit_load("matrix");
	uint16_t *a = kit_alloc(256 * 2);
	uint16_t *b = kit_alloc(128 * 2);
	float *c = kit_alloc(128 * 4);
	int x[16][16];
	int y[8][16];
	float want[16][8];

	(void)state;
	for (int i = 0; i < 256; i++)
		a[i] = small_half(x[i / 16][i % 16] = (int)(kit_random() % 64) - 32);
	for (int i = 0; i < 128; i++) {
		b[i] = small_half(y[i / 16][i % 16] = (int)(kit_random() % 64) - 32);
		c[i] = (float)(kit_random() % 1000);
	}
	for (int row = 0; row < 16; row++)
		for (int column = 0; column < 8; column++) {
			want[row][column] = c[row * 8 + column];
			for (int k = 0; k < 16; k++)
				want[row][column] += (float)(x[row][k] * y[column][k]);
		}
	kit_run_ok(module, "mma_half", 1, 32, 0, PARAMS(&a, &b, &c));
	assert_memory_equal(c, want, sizeof(want));
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

static void bytes(void **state)
{
	struct ptx_module *module = kit_load("matrix");
	int8_t *a = kit_alloc(16 * 32);
	int8_t *b = kit_alloc(8 * 32);
	int *c = kit_alloc(128 * 4);
	int want[16][8];

	(void)state;
	for (int i = 0; i < 512; i++)
		a[i] = (int8_t)kit_random();
	for (int i = 0; i < 256; i++)
		b[i] = (int8_t)kit_random();
	for (int i = 0; i < 128; i++)
		c[i] = (int)kit_random() >> 4;
	for (int row = 0; row < 16; row++)
		for (int column = 0; column < 8; column++) {
			want[row][column] = c[row * 8 + column];
			for (int k = 0; k < 32; k++)
				want[row][column] += a[row * 32 + k] * b[column * 32 + k];
		}
	kit_run_ok(module, "mma_bytes", 1, 32, 0, PARAMS(&a, &b, &c));
	assert_memory_equal(c, want, sizeof(want));
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

static void doubles(void **state)
{
	struct ptx_module *module = kit_load("matrix");
	double *a = kit_alloc(32 * 8);
	double *b = kit_alloc(32 * 8);
	double *c = kit_alloc(64 * 8);
	double want[8][8];

	(void)state;
	for (int i = 0; i < 32; i++) {
		a[i] = (int32_t)kit_random() / 65536.0;
		b[i] = (int32_t)kit_random() / 65536.0;
	}
	for (int row = 0; row < 8; row++)
		for (int column = 0; column < 8; column++) {
			want[row][column] = c[row * 8 + column] = row - column;
			for (int k = 0; k < 4; k++)
				want[row][column] = fma(a[row * 4 + k], b[column * 4 + k], want[row][column]);
		}
	kit_run_ok(module, "mma_double", 1, 32, 0, PARAMS(&a, &b, &c));
	assert_memory_equal(c, want, sizeof(want));
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

static void transposed(void **state)
{
	struct ptx_module *module = kit_load("matrix");
	uint16_t *in = kit_alloc(64 * 2);
	uint32_t *out = kit_alloc(32 * 4);
	struct kit_launch launch = { .block = { 20 } };
	struct ptx_fault fault;

	(void)state;
	for (int i = 0; i < 64; i++)
		in[i] = (uint16_t)kit_random();
	kit_run_ok(module, "transpose_load", 1, 32, 0, PARAMS(&in, &out));
	for (int lane = 0; lane < 32; lane++)
		assert_int_equal(out[lane], in[lane % 4 * 2 * 8 + lane / 4] | (uint32_t)in[(lane % 4 * 2 + 1) * 8 + lane / 4] << 16);
	/* part of a warp can't hold a matrix */
	assert_int_equal(kit_run(module, "transpose_load", &launch, PARAMS(&in, &out), &fault), PTX_FAULT_INSTRUCTION);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void tile(void **state)
{
	struct ptx_module *module = kit_load("matrix");
	int stride = 24;
	uint16_t *a = kit_alloc(16 * 24 * 2);
	uint16_t *b = kit_alloc(256 * 2);
	float *c = kit_alloc(16 * 24 * 4);
	int x[16][16];
	int y[16][16];

	(void)state;
	for (int i = 0; i < 256; i++) {
		a[i / 16 * stride + i % 16] = small_half(x[i / 16][i % 16] = (int)(kit_random() % 64) - 32);
		b[i] = small_half(y[i / 16][i % 16] = (int)(kit_random() % 64) - 32);
	}
	kit_run_ok(module, "wmma_tile", 1, 32, 0, PARAMS(&a, &b, &c, &stride));
	for (int row = 0; row < 16; row++)
		for (int column = 0; column < 24; column++) {
			int want = 1;

			for (int k = 0; k < 16 && column < 16; k++)
				want += x[row][k] * y[column][k];
			assert_true(c[row * stride + column] == (column < 16 ? 2 * (float)want : 0));
		}
	kit_free(a);
	kit_free(b);
	kit_free(c);
	kit_unload(module);
}

/* ---- textures ---- */

#define HANDLE 0x1234567890ull

static int texel(void *user, struct ptx_texel *t)
{
	float values[4] = { 0 };

	(void)user;
	if (t->handle != HANDLE && t->handle != HANDLE + 1)
		return -EINVAL;
	switch (t->op) {
	case PTX_TEX:
		if (t->geometry == PTX_1D && !t->result_float) {
			t->value[0] = (uint64_t)(uint32_t)(int)(t->coord[0] * 10);
			return 0;
		}
		if (t->geometry == PTX_1D && !t->coord_float)
			values[0] = (float)t->coord_int[0];
		else if (t->geometry == PTX_2D && t->has_lod)
			values[0] = t->coord[0] * 1000 + t->coord[1] * 100 + t->lod;
		else if (t->geometry == PTX_2D_ARRAY)
			values[0] = t->coord[0] + t->coord[1] * 10 + (float)t->coord_int[3] * 100;
		else if (t->geometry == PTX_3D)
			values[0] = t->coord[0] + t->coord[1] * 2 + t->coord[2] * 3;
		else
			values[0] = t->coord[0];
		values[1] = t->coord[1];
		values[2] = 5;
		values[3] = -1;
		for (int i = 0; i < 4; i++) {
			t->value[i] = 0;
			memcpy(&t->value[i], &values[i], 4);
		}
		return 0;
	case PTX_SULD:
		if (!t->clamp_trap || t->element_size != 2 || t->element_count != 4 || t->coord_int[1] != 3)
			return -EFAULT;
		for (uint32_t i = 0; i < 4; i++)
			t->value[i] = (uint64_t)t->coord_int[0] + i;
		return 0;
	case PTX_SUST: {
		int x = t->coord_int[0] / 8;

		if (!t->clamp_zero || t->element_size != 4 || t->element_count != 2 || t->coord_int[1] != x ||
		    t->value[0] != (uint64_t)x * 16 + 1 || t->value[1] != (uint64_t)x * 24 + 7)
			return -EFAULT;
		return 0;
	}
	default:
		return -EINVAL;
	}
}

static void textures(void **state)
{
	struct ptx_module *module = kit_load("texture");
	float(*out)[4] = kit_alloc(40 * 16);
	float *sums = kit_alloc(40 * 4);
	int *integers = kit_alloc(40 * 4);
	uint64_t handle = HANDLE;
	uint64_t other = HANDLE + 1;
	uint64_t none = 0;
	struct kit_launch launch = { .block = { 40 } };
	struct ptx_fault fault;

	(void)state;
	kit_texel(texel);
	kit_run_ok(module, "fetch_2d", 1, 40, 0, PARAMS(&handle, &out));
	for (int i = 0; i < 40; i++)
		assert_true(out[i][0] == (float)i * 0.5f && out[i][1] == (float)i + 0.25f && out[i][2] == 5 && out[i][3] == -1);
	kit_run_ok(module, "fetch_more", 1, 40, 0, PARAMS(&handle, &sums, &integers));
	for (int i = 0; i < 40; i++) {
		assert_true(sums[i] == (float)(i * 3 + i + 2 * (i + 1) + 3 * (i + 2) + i + 20 * i + i % 5 * 100 + i * 1000 + 703));
		assert_int_equal(integers[i], i * 10 + 5);
	}
	kit_run_ok(module, "surface_2d", 1, 40, 0, PARAMS(&handle, &other));
	assert_int_equal(kit_run(module, "fetch_2d", &launch, PARAMS(&none, &out), &fault), PTX_FAULT_INSTRUCTION);
	kit_texel(NULL);
	assert_int_equal(kit_run(module, "fetch_2d", &launch, PARAMS(&handle, &out), &fault), PTX_FAULT_INSTRUCTION);
	kit_free(out);
	kit_free(sums);
	kit_free(integers);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves),     cmocka_unit_test(bytes),	  cmocka_unit_test(doubles),
		cmocka_unit_test(transposed), cmocka_unit_test(tile), cmocka_unit_test(textures),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
