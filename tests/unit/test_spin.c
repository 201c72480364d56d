/* SPDX-License-Identifier: Apache-2.0 */
/* How long to look before sleeping: long enough for the pauses that there are, and not at all where that is hopeless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/lib/spin.h"

#define US 1000u

static void test_short_pauses_are_bridged(void **state)
{
	struct spin spin = { 0 };

	/* The first one was slept through; the second is not. */
	spin_learn(&spin, 30 * US, 150 * US);
	assert_true(spin_ns(&spin) >= 45 * US);
	for (int i = 0; i < 100; i++)
		spin_learn(&spin, (unsigned)(20 + i % 20) * US, 150 * US);
	assert_in_range(spin_ns(&spin), 39 * US, 90 * US);
	spin_learn(&spin, 140 * US, 150 * US);
	assert_int_equal(spin_ns(&spin), 150 * US);
}

static void test_long_pauses_are_slept_through(void **state)
{
	struct spin spin = { .ns = 150 * US };
	int turns;

	for (turns = 0; spin_ns(&spin) && turns < 10; turns++)
		spin_learn(&spin, 500 * US, 150 * US);
	assert_in_range(turns, 2, 4);
	for (int i = 0; i < 10; i++)
		spin_learn(&spin, 500 * US, 150 * US);
	assert_int_equal(spin_ns(&spin), 0);
}

/* One long pause among short ones, as between the steps of a program, does not end it. */
static void test_a_long_one_among_short_ones(void **state)
{
	struct spin spin = { 0 };

	for (int step = 0; step < 20; step++) {
		for (int i = 0; i < 10; i++)
			spin_learn(&spin, 10 * US, 150 * US);
		assert_true(spin_ns(&spin) >= 20 * US);
		spin_learn(&spin, 20000 * US, 150 * US);
	}
}

static void test_one_core_never_spins(void **state)
{
	struct spin spin = { 0 };

	spin_learn(&spin, 0, 0);
	spin_learn(&spin, 5 * US, 0);
	assert_int_equal(spin_ns(&spin), 0);
}

/* A step like the others is slept through but for its end; steps of all lengths, and short ones, are not napped in. */
static void test_long_ones_alike(void **state)
{
	struct nap nap = { 0 };

	assert_int_equal(nap_ns(&nap, 600 * US), 0);
	for (int i = 0; i < 40; i++)
		nap_learn(&nap, (unsigned)(1990 + i % 3 * 10) * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 1800 * US, 1945 * US);
	/* Short ones among them say nothing about them. */
	for (int i = 0; i < 40; i++)
		nap_learn(&nap, 100 * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 1800 * US, 1945 * US);
	/* Where looks are short a timer is too late for them. */
	assert_int_equal(nap_ns(&nap, 50 * US), 0);
	for (int i = 0; i < 40; i++)
		nap_learn(&nap, (unsigned)(1000 + i % 5 * 2000) * US, 600 * US, 600 * US);
	assert_int_equal(nap_ns(&nap, 600 * US), 0);
	/* And alike again. */
	for (int i = 0; i < 40; i++)
		nap_learn(&nap, 5000 * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 4700 * US, 4990 * US);
}

/* One long pause, or one short one, changes nothing for those that are alike. */
static void test_outliers_spoil_no_nap(void **state)
{
	struct nap nap = { 0 };

	for (int i = 0; i < 6; i++)
		nap_learn(&nap, (unsigned)(690 + i % 3 * 10) * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 550 * US, 640 * US);
	nap_learn(&nap, 15000 * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 550 * US, 720 * US);
	nap_learn(&nap, 20 * US, 600 * US, 600 * US);
	for (int i = 0; i < 2; i++)
		nap_learn(&nap, 700 * US, 600 * US, 600 * US);
	assert_in_range(nap_ns(&nap, 600 * US), 550 * US, 640 * US);
}

/* Naps, where pauses of seconds are between, too; and a look is as long as short pauses are, not as those that naps are for. */
static void test_pauses_of_loops(void **state)
{
	struct spin spin = { 0 };
	struct nap nap = { 0 };
	uint64_t ns;

	for (int i = 0; i < 20; i++) {
		pause_learn(&spin, &nap, 30 * US, 600 * US);
		pause_learn(&spin, &nap, (unsigned)(500 + i % 4 * 10) * US, 600 * US);
	}
	ns = nap_ns(&nap, 600 * US);
	assert_in_range(ns, 400 * US, 440 * US);
	pause_learn(&spin, &nap, 30 * US, 600 * US);
	assert_in_range(spin_ns(&spin), 59 * US, 150 * US);
	assert_false(nap_looks(ns, ns - 1, 600 * US));
	assert_true(nap_looks(ns, ns, 600 * US));
	assert_true(nap_looks(ns, 540 * US, 600 * US));
	assert_false(nap_looks(ns, ns + 600 * US, 600 * US));
	assert_false(nap_looks(0, 540 * US, 600 * US));
	for (int i = 0; i < 80; i++)
		pause_learn(&spin, &nap, 1000000 * US, 600 * US);
	assert_int_equal(nap_ns(&nap, 600 * US), ns);
	assert_int_equal(spin_ns(&spin), 0);
	nap = (struct nap){ 0 };
	for (int i = 0; i < 80; i++)
		pause_learn(&spin, &nap, 1000000 * US, 600 * US);
	assert_int_equal(nap_ns(&nap, 600 * US), 0);
	/* Not alike: looked for as far as looks go. */
	for (int i = 0; i < 80; i++)
		pause_learn(&spin, &nap, (unsigned)(i % 2 ? 250 : 1500) * US, 600 * US);
	assert_int_equal(nap_ns(&nap, 600 * US), 0);
	assert_int_equal(spin_ns(&spin), 500 * US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_short_pauses_are_bridged),
		cmocka_unit_test(test_long_pauses_are_slept_through),
		cmocka_unit_test(test_a_long_one_among_short_ones),
		cmocka_unit_test(test_one_core_never_spins),
		cmocka_unit_test(test_long_ones_alike),
		cmocka_unit_test(test_outliers_spoil_no_nap),
		cmocka_unit_test(test_pauses_of_loops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
