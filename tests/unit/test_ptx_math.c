/* SPDX-License-Identifier: Apache-2.0 */
/* Half precision and mathematical functions as compilers make them; each against plain C. */
#include <math.h>

#include "tests/unit/test_ptx.h"

#define N 500

/* ---- halves ---- */

static float half_get(uint16_t h)
{
	int exponent = h >> 10 & 31;
	double r = exponent == 31 ? (h & 1023 ? NAN : INFINITY)
		   : exponent	 ? ldexp(1024 + (h & 1023), exponent - 25)
				 : ldexp(h & 1023, -24);

	return (float)(h & 0x8000 ? -r : r);
}

/* The nearest half, even if there are two, by trying: plain, not fast. */
static uint16_t half_put(double x)
{
	uint16_t low = 0;
	uint16_t high = 0x7c00;
	double magnitude = fabs(x);

	while (high - low > 1) {
		uint16_t middle = (uint16_t)((low + high) / 2);

		if ((double)half_get(middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	if (low != 0x7c00) {
		double below = magnitude - (double)half_get(low);
		double above = (high == 0x7c00 ? 65536.0 : (double)half_get(high)) - magnitude;

		if (above < below || (above == below && low & 1))
			low = high;
	}
	return (uint16_t)(low | (signbit(x) ? 0x8000 : 0));
}

static float bf_get(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

static uint16_t bf_put(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Halves from -8 to 8. */
static uint16_t random_half(void)
{
	return (uint16_t)(kit_random() & 0x8000) | (uint16_t)(0x3000 + kit_random() % 0x1800);
}

static void half_axpy(void **state)
{
	struct ptx_module *module = kit_load("half");
	int n = N;
	uint16_t *x = kit_alloc(2 * N);
	uint16_t *y = kit_alloc(2 * N);
	uint16_t *out = kit_alloc(2 * N);

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = random_half();
		y[i] = random_half();
	}
	kit_run_ok(module, "half_axpy", 4, 128, 0, PARAMS(&x, &y, &out, &n));
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], half_put((double)half_get(x[i]) * 1.5 + (double)half_get(y[i])));
	kit_free(x);
	kit_free(y);
	kit_free(out);
	kit_unload(module);
}

static void half2_mix(void **state)
{
	struct ptx_module *module = kit_load("half");
	int n = N / 2;
	uint16_t *x = kit_alloc(2 * N);
	uint16_t *y = kit_alloc(2 * N);
	uint16_t *out = kit_alloc(2 * N);

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = random_half();
		y[i] = random_half();
	}
	kit_run_ok(module, "half2_mix", 4, 128, 0, PARAMS(&x, &y, &out, &n));
	for (int i = 0; i < N; i++) {
		double a = (double)half_get(x[i]);
		double b = (double)half_get(y[i]);
		double product = (double)half_get(half_put(a * b));
		double difference = (double)half_get(half_put(a - b));
		/* nvcc may fuse the product and the sum */
		uint16_t v = half_put(product + difference);
		uint16_t fused = half_put(a * b + difference);
		double want = fmin(fmax((double)half_get(v), -a), fabs(b));
		double want_fused = fmin(fmax((double)half_get(fused), -a), fabs(b));

		assert_true((double)half_get(out[i]) == want || (double)half_get(out[i]) == want_fused);
	}
	kit_free(x);
	kit_free(y);
	kit_free(out);
	kit_unload(module);
}

static void half_dot(void **state)
{
	struct ptx_module *module = kit_load("half");
	int n = N;
	uint16_t *x = kit_alloc(2 * N);
	uint16_t *y = kit_alloc(2 * N);
	float *out = kit_alloc(4);
	double want = 0;

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = random_half();
		y[i] = random_half();
		want += (double)half_get(x[i]) * (double)half_get(y[i]);
	}
	kit_run_ok(module, "half_dot", 1, 128, 0, PARAMS(&x, &y, &out, &n));
	assert_true(fabs((double)*out - want) < 1e-3 * (1 + fabs(want)));
	kit_free(x);
	kit_free(y);
	kit_free(out);
	kit_unload(module);
}

static void bf16(void **state)
{
	struct ptx_module *module = kit_load("half");
	int n = N;
	int pairs = N / 2;
	float by = 0.7f;
	uint16_t *x = kit_alloc(2 * N);
	uint16_t *y = kit_alloc(2 * N);
	uint16_t *out = kit_alloc(2 * N);

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = (uint16_t)(kit_random() & 0x8000) | (uint16_t)(0x3f00 + kit_random() % 0x200);
		y[i] = (uint16_t)(0x3f00 + kit_random() % 0x200);
	}
	kit_run_ok(module, "bf16_scale", 4, 128, 0, PARAMS(&x, &out, &by, &n));
	for (int i = 0; i < N; i++)
		assert_int_equal(out[i], bf_put(bf_get(x[i]) * by));
	kit_run_ok(module, "bf162_fma", 4, 128, 0, PARAMS(&x, &y, &out, &pairs));
	for (int i = 0; i < N; i++) /* 16 and 8 bits of nearly the same size: exact as float */
		assert_int_equal(out[i], bf_put(bf_get(x[i]) * bf_get(y[i]) + bf_get(x[i])));
	kit_free(x);
	kit_free(y);
	kit_free(out);
	kit_unload(module);
}

static void half_compare(void **state)
{
	struct ptx_module *module = kit_load("half");
	int n = N;
	uint16_t *x = kit_alloc(2 * N);
	uint16_t *y = kit_alloc(2 * N);
	int *out = kit_alloc(4 * N);

	(void)state;
	for (int i = 0; i < N; i++) {
		x[i] = i % 17 ? (uint16_t)kit_random() : 0x7e01;
		y[i] = i % 5 ? (uint16_t)kit_random() : x[i];
	}
	kit_run_ok(module, "half_compare", 4, 128, 0, PARAMS(&x, &y, &out, &n));
	for (int i = 0; i < N; i++) {
		float a = half_get(x[i]);
		float b = half_get(y[i]);
		float least = a != a ? 100 : a < 100 ? a : 100;
		double whole = rint((double)least);
		int integer = whole < -2147483648.0 ? INT32_MIN : (int)whole;

		assert_int_equal(out[i], (a < b) + 2 * (a == b) + 4 * !(a <= b) + 8 * (a != a) + 16 * integer % 1000);
	}
	kit_free(x);
	kit_free(y);
	kit_free(out);
	kit_unload(module);
}

/* ---- functions ---- */

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x * x * x)));
}

struct function {
	const char *name;
	bool wide;
	double relative;
	double absolute;
	double (*fn)(double x);
};

#define FN(name, expression) \
	static double name(double x) \
	{ \
		return expression; \
	}
FN(r_cos, cos((double)((float)x * 100.0f)))
FN(r_log, log(fabs(x)))
FN(r_pow, pow(fabs(x), (double)1.7f))
FN(r_fmod, fmod((double)((float)x * 50.0f), 3.0))
FN(r_sin, sin(x * 1000.0))
FN(r_pow2, pow(fabs(x), 2.3))
FN(r_sqrt, sqrt(fabs(x)))
FN(r_gamma, lgamma(fabs(x) + 0.5))
FN(r_atan2, atan2(x, 2.0))
FN(r_divide, 3.0 / x)
FN(r_fast, exp(x) + sin(x) * cos(x) + log(fabs(x) + 1) + x / 3 + 1 / sqrt(fabs(x) + 1))

static const struct function functions[] = {
	{ "f_sin", false, 0, 2e-7, sin },	   { "f_cos", false, 0, 2e-7, r_cos },
	{ "f_tan", false, 1e-6, 1e-6, tan },	   { "f_exp", false, 3e-7, 0, exp },
	{ "f_log", false, 3e-7, 3e-7, r_log },	   { "f_pow", false, 1e-6, 0, r_pow },
	{ "f_tanh", false, 5e-7, 0, tanh },	   { "f_erf", false, 5e-7, 0, erf },
	{ "f_gelu", false, 1e-6, 1e-6, gelu },	   { "f_cbrt", false, 5e-7, 0, cbrt },
	{ "f_atan", false, 5e-7, 0, atan },	   { "f_fmod", false, 0, 0, r_fmod },
	{ "d_sin", true, 0, 4e-16, r_sin },	   { "d_exp", true, 1e-15, 0, exp },
	{ "d_log", true, 1e-15, 1e-15, r_log },	   { "d_pow", true, 1e-15, 0, r_pow2 },
	{ "d_sqrt", true, 0, 0, r_sqrt },	   { "d_erf", true, 1e-15, 0, erf },
	{ "d_gamma", true, 2e-14, 2e-15, r_gamma }, { "d_atan2", true, 1e-15, 0, r_atan2 },
	{ "d_divide", true, 0, 0, r_divide },
};

static void check_function(struct ptx_module *module, const struct function *function)
{
	int n = N;
	double *in = kit_alloc(8 * N);
	double *out = kit_alloc(8 * N);
	float *in_single = kit_alloc(4 * N);
	float *out_single = kit_alloc(4 * N);

	for (int i = 0; i < N; i++) {
		in[i] = ((double)kit_random() / 4294967296.0 - 0.5) * 16;
		in_single[i] = (float)in[i];
	}
	if (function->wide)
		kit_run_ok(module, function->name, 4, 128, 0, PARAMS(&in, &out, &n));
	else
		kit_run_ok(module, function->name, 4, 128, 0, PARAMS(&in_single, &out_single, &n));
	for (int i = 0; i < N; i++) {
		double x = function->wide ? in[i] : (double)in_single[i];
		double want = function->fn(x);
		double got = function->wide ? out[i] : (double)out_single[i];

		if (!(fabs(got - want) <= function->relative * fabs(want) + function->absolute))
			fail_msg("%s(%.17g) is %.17g, not %.17g", function->name, x, want, got);
	}
	kit_free(in);
	kit_free(out);
	kit_free(in_single);
	kit_free(out_single);
}

static void mathematics(void **state)
{
	static const struct function fast = { "f_fast", false, 1e-5, 1e-5, r_fast };
	struct ptx_module *module = kit_load("math");

	(void)state;
	for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++)
		check_function(module, &functions[f]);
	check_function(module, &fast);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(half_axpy), cmocka_unit_test(half2_mix),    cmocka_unit_test(half_dot),
		cmocka_unit_test(bf16),	     cmocka_unit_test(half_compare), cmocka_unit_test(mathematics),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
