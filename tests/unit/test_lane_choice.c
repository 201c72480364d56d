// SPDX-License-Identifier: Apache-2.0
/*
 * Which lane takes a piece of bulk: single ones all take the same, whose threads are awake; many at once take all, and a long stream of them
 * leaves nothing behind that a later single one would notice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/core/lane_choice.h"

#define LANES 8u
#define US    1000ull
#define MIB   (1u << 20)

static struct lane_load lanes[LANES];
static unsigned turn;

static int begin(void **state)
{
	for (unsigned i = 0; i < LANES; i++)
		lanes[i] = (struct lane_load){ 0 };
	turn = 0;
	return 0;
}

/* As a link does. */
static unsigned take(uint64_t now, uint32_t size)
{
	unsigned at = lane_idle(lanes, LANES, now);

	if (at == LANES)
		at = lane_least(lanes, LANES, turn++);
	if (at < LANES)
		lanes[at].busy_ns = lane_busy(lanes[at].busy_ns, now, size);
	return at;
}

static void test_single_pieces_stay(void **state)
{
	for (unsigned i = 1; i <= 100; i++)
		assert_int_equal(take(i * 200 * US, 128 << 10), 0);
}

/* What was sent at once and isn't there yet: its lane is left alone, though nothing of it is queued. */
static void test_pieces_of_a_copy_spread(void **state)
{
	for (unsigned i = 1; i <= 20; i++)
		for (unsigned piece = 0; piece < 4; piece++)
			assert_int_equal(take(i * 400 * US + piece, 64 << 10), piece);
}

static void test_queued_lanes_are_passed_over(void **state)
{
	lanes[0].queued = 1;
	assert_int_equal(take(US, 1), 1);
	for (unsigned i = 0; i < LANES; i++)
		lanes[i].queued = 100 - i;
	assert_int_equal(take(US, 1), LANES - 1);
	for (unsigned i = 0; i < LANES; i++)
		lanes[i].queued = 5;
	/* Equals take turns. */
	assert_int_equal(take(US, 1), 1);
	assert_int_equal(take(US, 1), 2);
	assert_int_equal(take(US, 1), 3);
}

static void test_a_stream_takes_all_and_is_over(void **state)
{
	unsigned taken[LANES] = { 0 };
	uint64_t now = US;

	/* 14 GB/s, more than they are thought to carry. */
	for (unsigned i = 0; i < 8000; i++, now += 75 * US)
		taken[take(now, MIB)]++;
	for (unsigned i = 0; i < LANES; i++)
		assert_in_range(taken[i], 900, 1100);
	now += 5000 * US;
	assert_int_equal(take(now, 1), 0);
}

static void test_no_lane(void **state)
{
	for (unsigned i = 0; i < LANES; i++)
		lanes[i].queued = UINT64_MAX;
	assert_int_equal(take(US, 1), LANES);
	lanes[3].queued = 1u << 30;
	assert_int_equal(take(US, 1), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_single_pieces_stay, begin),
		cmocka_unit_test_setup(test_pieces_of_a_copy_spread, begin),
		cmocka_unit_test_setup(test_queued_lanes_are_passed_over, begin),
		cmocka_unit_test_setup(test_a_stream_takes_all_and_is_over, begin),
		cmocka_unit_test_setup(test_no_lane, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
