/* SPDX-License-Identifier: Apache-2.0 */
/* Shuffles, votes, matches, locks within a warp; atomics. Against plain C. */
#include <math.h>

#include "tests/unit/test_ptx.h"

#define N 192

static void reduce(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *in = kit_alloc(N * sizeof(*in));
	int *out = kit_alloc(N / 32 * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)kit_random() >> 8;
	kit_run_ok(module, "warp_reduce", 2, N / 2, 0, PARAMS(&in, &out));
	for (int w = 0; w < N / 32; w++) {
		int sum = 0;
		int least = in[w * 32];

		for (int i = w * 32; i < w * 32 + 32; i++) {
			sum += in[i];
			least = in[i] < least ? in[i] : least;
		}
		assert_int_equal(out[w], sum * 3 + least);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void scan(void **state)
{
	struct ptx_module *module = kit_load("warp");
	float *in = kit_alloc(N * sizeof(*in));
	float *out = kit_alloc(N * sizeof(*out));
	float sum = 0;

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (float)(kit_random() % 1000);
	kit_run_ok(module, "warp_scan", 1, N, 0, PARAMS(&in, &out));
	for (int i = 0; i < N; i++) {
		sum = i % 32 ? sum + in[i] : in[i];
		assert_true(out[i] == sum);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void rotate(void **state)
{
	struct ptx_module *module = kit_load("warp");
	uint64_t *in = kit_alloc(N * sizeof(*in));
	uint64_t *out = kit_alloc(N * sizeof(*out));
	int by = 3;

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (uint64_t)kit_random() << 32 | kit_random();
	kit_run_ok(module, "rotate_segments", 1, N, 0, PARAMS(&in, &out, &by));
	for (int i = 0; i < N; i++)
		assert_true(out[i] == in[(i & ~7) + (i + by) % 8] + in[i % 16 >= 3 ? i - 3 : i]);
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void votes(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *in = kit_alloc(N * sizeof(*in));
	uint32_t *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)(kit_random() % 40) + 6;
	in[40] = 5;
	in[100] = -2000;
	kit_run_ok(module, "votes", 1, N, 0, PARAMS(&in, &out));
	for (int i = 0; i < N; i++) {
		uint32_t odd = 0;
		uint32_t two = 0;
		bool all = true;
		bool any = false;

		for (int j = 0; j < 32; j++) {
			int x = in[(i & ~31) + j];

			odd |= (uint32_t)(x & 1) << j;
			two |= (uint32_t)(x >> 1 & 1) << j;
			all &= x > -1000;
			any |= x == 5;
		}
		assert_int_equal(out[i], (odd ^ (in[i] & 1 ? odd & two : 0)) + all * 3u + any * 7u + 32);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void matches(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *in = kit_alloc(N * sizeof(*in));
	uint32_t *out = kit_alloc(N * sizeof(*out));

	(void)state;
	for (int i = 0; i < N; i++)
		in[i] = (int)(kit_random() % 5);
	kit_run_ok(module, "matches", 1, N, 0, PARAMS(&in, &out));
	for (int i = 0; i < N; i++) {
		uint32_t any = 0;

		for (int j = 0; j < 32; j++)
			any |= (uint32_t)(in[(i & ~31) + j] == in[i]) << j;
		assert_int_equal(out[i], any ^ 0xffffffffu ^ 0x80000000u);
	}
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void aggregate(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *in = kit_alloc(N * sizeof(*in));
	uint32_t *out = kit_alloc(N * sizeof(*out));
	uint32_t *counter = kit_alloc(sizeof(*counter));
	uint8_t seen[N] = { 0 };
	uint32_t count = 0;

	(void)state;
	for (int i = 0; i < N; i++) {
		in[i] = (int)(kit_random() % 100);
		count += in[i] % 3 == 0;
	}
	kit_run_ok(module, "aggregate", 3, N / 3, 0, PARAMS(&in, &counter, &out));
	assert_int_equal(*counter, count);
	for (int i = 0; i < N; i++) {
		if (in[i] % 3) {
			assert_int_equal(out[i], 0xffffffffu);
		} else {
			assert_true(out[i] < count && !seen[out[i]]);
			seen[out[i]] = 1;
		}
	}
	kit_free(in);
	kit_free(out);
	kit_free(counter);
	kit_unload(module);
}

/* Each of these hangs for ever if the lane that holds the lock never runs. */
static void locks(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *lock = kit_alloc(sizeof(*lock));
	int *counter = kit_alloc(sizeof(*counter));
	int rounds = 5;

	(void)state;
	kit_run_ok(module, "warp_lock", 3, 64, 0, PARAMS(&lock, &counter, &rounds));
	assert_int_equal(*counter, 3 * 64 * rounds);
	*counter = 0;
	kit_run_ok(module, "warp_lock_spin", 2, 64, 0, PARAMS(&lock, &counter));
	assert_int_equal(*counter, 2 * 64);
	kit_free(lock);
	kit_free(counter);
	kit_unload(module);
}

static void halves(void **state)
{
	struct ptx_module *module = kit_load("warp");
	int *out = kit_alloc(64 * sizeof(*out));

	(void)state;
	kit_run_ok(module, "sync_halves", 1, 64, 0, PARAMS(&out));
	for (int t = 0; t < 64; t++)
		assert_int_equal(out[t], t % 32 < 16 ? (t & ~15) + (t + 5) % 16 : 2 * (t - 16));
	kit_free(out);
	kit_unload(module);
}

/* ---- atomics ---- */

static void histogram(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int n = 20000;
	uint8_t *in = kit_alloc(n);
	uint32_t *bins = kit_alloc(256 * sizeof(*bins));
	uint32_t expected[256] = { 0 };

	(void)state;
	for (int i = 0; i < n; i++)
		expected[in[i] = (uint8_t)kit_random()]++;
	kit_run_ok(module, "histogram", 16, 128, 0, PARAMS(&in, &bins, &n));
	assert_memory_equal(bins, expected, sizeof(expected));
	kit_free(in);
	kit_free(bins);
	kit_unload(module);
}

static void integers(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int n = 1000;
	int *in = kit_alloc(n * sizeof(*in));
	int *out = kit_alloc(9 * sizeof(*out));
	int want[9] = { 0, 0, 0, -1, 0, 0, -1, 0, 0 };

	(void)state;
	memcpy(out, want, sizeof(want));
	for (int i = 0; i < n; i++) {
		int x = in[i] = (int)kit_random();

		want[0] = (int)((uint32_t)want[0] + (uint32_t)x);
		want[1] = x < want[1] ? x : want[1];
		want[2] = x > want[2] ? x : want[2];
		want[3] &= x | 0xff00;
		want[4] |= x & 0x0ff0;
		want[5] ^= x;
		want[6] = (uint32_t)x < (uint32_t)want[6] ? x : want[6];
		want[7] = (uint32_t)x > (uint32_t)want[7] ? x : want[7];
		want[8] = (int)((uint32_t)want[8] - (uint32_t)x);
	}
	kit_run_ok(module, "integer_atomics", 8, 128, 0, PARAMS(&in, &out, &n));
	assert_memory_equal(out, want, sizeof(want));
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void longs(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int n = 500;
	int64_t *in = kit_alloc(n * sizeof(*in));
	int64_t *out = kit_alloc(6 * sizeof(*out));
	int64_t want[6] = { 0, 0, 0, -1, 0, 0 };

	(void)state;
	memcpy(out, want, sizeof(want));
	for (int i = 0; i < n; i++) {
		int64_t x = in[i] = (int64_t)((uint64_t)kit_random() << 32 | kit_random());

		want[0] = (int64_t)((uint64_t)want[0] + (uint64_t)x);
		want[1] = x < want[1] ? x : want[1];
		want[2] = x > want[2] ? x : want[2];
		want[3] &= x | 0xff;
		want[4] |= x & 0xffff0000;
		want[5] ^= x;
	}
	kit_run_ok(module, "long_atomics", 4, 128, 0, PARAMS(&in, &out, &n));
	assert_memory_equal(out, want, sizeof(want));
	kit_free(in);
	kit_free(out);
	kit_unload(module);
}

static void tickets(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	uint32_t limit = 10;
	uint32_t *counter = kit_alloc(2 * sizeof(*counter));
	uint32_t *seen = kit_alloc(2 * limit * sizeof(*seen));

	(void)state;
	kit_run_ok(module, "tickets", 5, 64, 0, PARAMS(&counter, &seen, &limit));
	for (uint32_t i = 0; i < 2 * limit; i++)
		assert_int_equal(seen[i], 320 / limit);
	kit_free(counter);
	kit_free(seen);
	kit_unload(module);
}

static void floats(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int n = 3000;
	float *in = kit_alloc(n * sizeof(*in));
	float *out = kit_alloc(sizeof(*out));
	float *sum = kit_alloc(sizeof(*sum));
	double *wide = kit_alloc(sizeof(*wide));
	float most = 0;
	double want = 0;

	(void)state;
	for (int i = 0; i < n; i++) {
		in[i] = (float)(kit_random() % 100000);
		most = in[i] > most ? in[i] : most;
		want += (double)in[i];
	}
	kit_run_ok(module, "float_greatest", 4, 128, 0, PARAMS(&in, &out, &n));
	assert_true(*out == most);
	kit_run_ok(module, "float_atomics", 24, 128, 0, PARAMS(&in, &sum, &wide, &n));
	assert_true(*wide == want);
	assert_true(fabs((double)*sum - want) < 1e-5 * want);
	kit_free(in);
	kit_free(out);
	kit_free(sum);
	kit_free(wide);
	kit_unload(module);
}

static void halfs(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int n = 128;
	uint16_t *pair = kit_alloc(2 * sizeof(*pair));
	uint16_t *one = kit_alloc(sizeof(*one));

	(void)state;
	kit_run_ok(module, "half_atomics", 2, 64, 0, PARAMS(&pair, &one, &n));
	assert_int_equal(pair[0], 0x5800); /* 128 */
	assert_int_equal(pair[1], 0x5900); /* 64 * 2.5 = 160 */
	assert_int_equal(one[0], 0x5000);  /* 32 */
	kit_free(pair);
	kit_free(one);
	kit_unload(module);
}

static void chain(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	int *done = kit_alloc(41 * sizeof(*done));
	uint32_t *value = kit_alloc(41 * sizeof(*value));
	uint32_t want = 1;

	(void)state;
	done[0] = 1;
	value[0] = 1;
	kit_run_ok(module, "chain", 40, 32, 0, PARAMS(&done, &value));
	for (uint32_t b = 0; b < 40; b++)
		want = want * 3 + b;
	assert_int_equal(value[40], want);
	kit_free(done);
	kit_free(value);
	kit_unload(module);
}

static void shorts(void **state)
{
	struct ptx_module *module = kit_load("atomic");
	uint16_t *lock = kit_alloc(sizeof(*lock));
	int *counter = kit_alloc(sizeof(*counter));

	(void)state;
	kit_run_ok(module, "short_swaps", 2, 64, 0, PARAMS(&lock, &counter));
	assert_int_equal(*counter, 128);
	kit_free(lock);
	kit_free(counter);
	kit_unload(module);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reduce),  cmocka_unit_test(scan),    cmocka_unit_test(rotate), cmocka_unit_test(votes),
		cmocka_unit_test(matches), cmocka_unit_test(aggregate), cmocka_unit_test(locks), cmocka_unit_test(halves),
		cmocka_unit_test(histogram), cmocka_unit_test(integers), cmocka_unit_test(longs), cmocka_unit_test(tickets),
		cmocka_unit_test(floats), cmocka_unit_test(halfs), cmocka_unit_test(chain), cmocka_unit_test(shorts),
	};

	return cmocka_run_group_tests(tests, kit_setup, kit_teardown);
}
