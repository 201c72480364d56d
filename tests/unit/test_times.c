// SPDX-License-Identifier: Apache-2.0
/* Lengths of calls, counted in buckets, and what is read from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h wants those before it. */
#include <cmocka.h>

#include "broker/proto/times.h"

/* Every length lies in a bucket whose middle is within an eighth of it; buckets rise. */
static void buckets_are_near(void **state)
{
	uint32_t before = 0;

	assert_int_equal(times_bucket(0), 0);
	assert_int_equal(times_bucket(15), 0);
	for (uint64_t ns = 20; ns < 40000000000ull; ns += ns / 50 + 1) {
		uint32_t bucket = times_bucket(ns);
		double middle = (double)times_value(bucket);

		assert_true(bucket >= before && bucket < SESSION_TIMES);
		assert_true(middle > (double)ns * 0.87 && middle < (double)ns * 1.13);
		before = bucket;
	}
	assert_int_equal(times_bucket(UINT64_MAX), SESSION_TIMES - 1);
}

static void quantiles_are_found(void **state)
{
	uint32_t buckets[SESSION_TIMES] = { 0 };

	assert_int_equal(times_quantile(buckets, 0.5), 0);
	buckets[times_bucket(1000)] = 98;
	buckets[times_bucket(1000000)] = 2;
	assert_true(times_quantile(buckets, 0.5) > 870 && times_quantile(buckets, 0.5) < 1130);
	assert_true(times_quantile(buckets, 0.98) < 1130);
	assert_true(times_quantile(buckets, 0.99) > 870000 && times_quantile(buckets, 0.99) < 1130000);
	assert_true(times_quantile(buckets, 1) > 870000);
}

/* The first ones all, then about one of 64, whatever the rhythm. */
static void some_are_timed(void **state)
{
	uint32_t all = 0, every_64th = 0;

	for (uint64_t i = 0; i < TIMES_FIRST; i++)
		assert_true(times_wants(i));
	for (uint64_t i = TIMES_FIRST; i < TIMES_FIRST + 64000; i++) {
		all += times_wants(i);
		every_64th += i % 64 == 0 && times_wants(i);
	}
	assert_true(all > 900 && all < 1100);
	assert_true(every_64th < 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_are_near),
		cmocka_unit_test(quantiles_are_found),
		cmocka_unit_test(some_are_timed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
