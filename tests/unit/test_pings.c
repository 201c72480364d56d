// SPDX-License-Identifier: Apache-2.0
/* What pings tell of a link: round trip, jitter, and bandwidth where padding takes longer than noise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/core/pings.h"

#define US 1000ull

static void round_trip(void **state)
{
	struct pings pings = { 0 };

	(void)state;
	assert_int_equal(pings_least(&pings), 0);
	pings_small(&pings, 300 * US);
	assert_int_equal(pings.rtt_ns, 300 * US);
	assert_int_equal(pings.rtt_mean_ns, 300 * US);
	assert_int_equal(pings.jitter_ns, 0);
	/* A late wake-up now and then is the machine's: the least of the last is the network's. */
	for (int i = 0; i < 40; i++)
		pings_small(&pings, i % 4 ? 300 * US : 500 * US);
	assert_int_equal(pings_least(&pings), 300 * US);
	assert_int_equal(pings.rtt_min_ns, 300 * US);
	assert_true(pings.rtt_mean_ns > 300 * US && pings.rtt_mean_ns < 400 * US);
	assert_true(pings.jitter_ns > 20 * US && pings.jitter_ns < 200 * US);
	/* What is over two seconds old counts no more, except for the least of all. */
	for (unsigned i = 0; i < PINGS_KEPT; i++)
		pings_small(&pings, 900 * US);
	assert_int_equal(pings_least(&pings), 900 * US);
	assert_int_equal(pings.rtt_min_ns, 300 * US);
}

static void jumps_are_believed(void **state)
{
	struct pings pings = { 0 };
	int turns = 0;

	(void)state;
	for (int i = 0; i < 20; i++)
		pings_small(&pings, 200 * US);
	while (pings.rtt_mean_ns < 5000 * US && turns++ < 100)
		pings_small(&pings, 10000 * US);
	assert_true(turns <= 8);
}

static void bandwidth(void **state)
{
	struct pings pings = { 0 };
	uint64_t rate = 1;

	(void)state;
	assert_false(pings_rate(&pings, &rate));
	/* 12 KiB at 100 Mbit/s take 983 us. */
	for (unsigned i = 0; i < PINGS_KEPT; i++) {
		assert_false(pings_rate(&pings, &rate));
		pings_small(&pings, (500 + i) * US);
		pings_padded(&pings, (500 + 983) * US, PINGS_PADDING);
	}
	assert_true(pings_rate(&pings, &rate));
	assert_in_range(rate, 12400000, 12600000);
	/* At 10 Gbit/s nothing is seen but that it is more than can be told. */
	for (unsigned i = 0; i < PINGS_KEPT; i++)
		pings_padded(&pings, 505 * US, PINGS_PADDING);
	assert_true(pings_rate(&pings, &rate));
	assert_int_equal(rate, 0);
	/* Nor where small ones differ by as much. */
	for (unsigned i = 0; i < PINGS_KEPT; i++) {
		pings_small(&pings, 500 * US + i * 900 * US);
		pings_padded(&pings, (500 + 983) * US, PINGS_PADDING);
	}
	assert_false(pings_rate(&pings, &rate));
	/* One that took no longer than a small one divides by nothing. */
	pings_padded(&pings, 1, 1);
	pings_rate(&pings, &rate);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(jumps_are_believed),
		cmocka_unit_test(bandwidth),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
