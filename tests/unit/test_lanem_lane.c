/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of one direction of the emulated LAN, on a clock of the test's own. */
#include "tests/lab/lanem_lane.h"
#include "tests/lib/fdcheck.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#define MS 1000000u

static struct lane_conf plain(void)
{
	struct lane_conf conf;

	lane_conf_default(&conf);
	conf.overhead = 0;
	return conf;
}

static enum lane_verdict push(struct lane *lane, uint64_t now_ns, uint32_t size)
{
	uint8_t *data = calloc(1, size);
	enum lane_verdict verdict;

	assert_non_null(data);
	verdict = lane_push(lane, now_ns, data, size, size, 1);
	if (verdict != LANE_TAKEN)
		free(data);
	return verdict;
}

static bool pop(struct lane *lane, uint64_t now_ns, uint64_t *number_out)
{
	struct lane_packet packet;

	if (!lane_pop(lane, now_ns, &packet))
		return false;
	free(packet.data);
	if (number_out)
		*number_out = packet.number;
	return true;
}

static void without_settings_packets_pass_at_once(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;

	lane_init(&lane, &conf, 1);
	assert_int_equal(lane_next_ns(&lane), LANE_NEVER);
	assert_int_equal(push(&lane, 5, 100), LANE_TAKEN);
	assert_int_equal(lane_next_ns(&lane), 5);
	assert_true(pop(&lane, 5, NULL));
	assert_false(pop(&lane, 5, NULL));
	lane_fini(&lane);
}

static void delay_is_kept_to_the_nanosecond(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;

	conf.delay_ns = 3 * MS;
	lane_init(&lane, &conf, 1);
	push(&lane, 1000, 100);
	assert_int_equal(lane_next_ns(&lane), 1000 + 3 * MS);
	assert_false(pop(&lane, 999 + 3 * MS, NULL));
	assert_true(pop(&lane, 1000 + 3 * MS, NULL));
	lane_fini(&lane);
}

static void rate_spaces_packets(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;

	conf.rate_bps = 8000000; /* 1 byte a microsecond */
	conf.overhead = 50;
	lane_init(&lane, &conf, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(push(&lane, 0, 950), LANE_TAKEN);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(lane_next_ns(&lane), i * 1000000);
		assert_false(pop(&lane, i * 1000000 - 1, NULL));
		assert_true(pop(&lane, i * 1000000, NULL));
	}
	/* After idling nothing is owed: no burst. */
	push(&lane, 10 * MS, 950);
	assert_int_equal(lane_next_ns(&lane), 11 * MS);
	lane_fini(&lane);
}

static void queue_drops_its_tail(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;

	conf.rate_bps = 8000000;
	conf.queue_bytes = 3000;
	lane_init(&lane, &conf, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(push(&lane, 0, 1000), LANE_TAKEN);
	assert_int_equal(push(&lane, 0, 1000), LANE_FULL);
	/* A millisecond later one has been sent, and one fits. */
	assert_int_equal(push(&lane, 1 * MS, 1000), LANE_TAKEN);
	assert_int_equal(push(&lane, 1 * MS, 1000), LANE_FULL);
	assert_int_equal(lane.counts.full, 2);
	/* A packet larger than the queue passes when it is empty. */
	assert_int_equal(push(&lane, 100 * MS, 60000), LANE_TAKEN);
	lane_fini(&lane);
}

static void a_new_rate_keeps_the_backlog_and_the_order(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	uint64_t number;

	conf.rate_bps = 8000000;
	lane_init(&lane, &conf, 1);
	for (int i = 0; i < 10; i++)
		push(&lane, 0, 1000);
	conf.rate_bps = 80000000;
	lane_configure(&lane, &conf, 5 * MS);
	/* 5000 bytes are left, at ten times the rate: 0.5 ms, then its own 0.1 ms; but not before the others.
	 */
	push(&lane, 5 * MS, 1000);
	for (uint64_t i = 0; i < 11; i++) {
		assert_true(pop(&lane, 10 * MS, &number));
		assert_int_equal(number, i);
	}
	push(&lane, 10 * MS, 1000);
	assert_int_equal(lane_next_ns(&lane), 10 * MS + 100000);
	lane_fini(&lane);
}

/* A bit per packet: lost or not. */
static void draw(uint64_t seed, double loss, char *pattern, int count)
{
	struct lane_conf conf = plain();
	struct lane lane;

	conf.loss = loss;
	lane_init(&lane, &conf, seed);
	for (int i = 0; i < count; i++)
		pattern[i] = push(&lane, i, 10) == LANE_LOST;
	lane_fini(&lane);
}

static void loss_depends_on_the_seed_alone(void **state)
{
	char one[2000], same[2000], other[2000];
	int lost = 0;

	draw(7, 0.1, one, 2000);
	draw(7, 0.1, same, 2000);
	draw(8, 0.1, other, 2000);
	assert_memory_equal(one, same, 2000);
	assert_memory_not_equal(one, other, 2000);
	for (int i = 0; i < 2000; i++)
		lost += one[i];
	/* 200 expected; five standard deviations are 67. */
	assert_in_range(lost, 133, 267);
	draw(7, 0, other, 2000);
	for (int i = 0; i < 2000; i++)
		assert_int_equal(other[i], 0);
	draw(7, 1, other, 2000);
	for (int i = 0; i < 2000; i++)
		assert_int_equal(other[i], 1);
}

/* Whether others were lost before does not change who is lost later. */
static void luck_does_not_depend_on_other_settings(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	char one[500];

	draw(7, 0.1, one, 500);
	conf.loss = 0.1;
	conf.jitter_ns = MS;
	conf.reorder = 0.5;
	lane_init(&lane, &conf, 7);
	for (int i = 0; i < 500; i++) {
		if (i == 100)
			lane_cut(&lane, 200);
		if (i < 100 || i >= 200)
			assert_int_equal(push(&lane, i, 10) == LANE_LOST, one[i]);
		else
			assert_int_equal(push(&lane, i, 10), LANE_CUT);
	}
	lane_fini(&lane);
}

static void jitter_varies_and_keeps_the_order(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	uint64_t number, different = 0, last_due = 0;

	conf.delay_ns = 1 * MS;
	conf.jitter_ns = 1 * MS;
	lane_init(&lane, &conf, 3);
	for (int i = 0; i < 100; i++)
		push(&lane, (uint64_t)i * MS / 10, 10);
	for (uint64_t i = 0; i < 100; i++) {
		uint64_t due = lane_next_ns(&lane);

		assert_in_range(due, i * MS / 10 + MS, i * MS / 10 + 2 * MS + 10 * MS);
		different += due != last_due;
		last_due = due;
		assert_true(pop(&lane, LANE_NEVER - 1, &number));
		assert_int_equal(number, i);
	}
	assert_true(different > 20);
	lane_fini(&lane);
}

static void reordered_packets_are_overtaken(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	uint64_t number, highest = 0, late = 0, seen = 0;

	conf.reorder = 0.2;
	conf.hold_ns = 500;
	lane_init(&lane, &conf, 3);
	for (int i = 0; i < 1000; i++)
		push(&lane, i * 100, 10);
	while (pop(&lane, LANE_NEVER - 1, &number)) {
		seen++;
		late += number < highest;
		if (number > highest)
			highest = number;
	}
	assert_int_equal(seen, 1000);
	assert_int_equal(lane.counts.delivered, 1000);
	assert_in_range(lane.counts.reordered, 130, 270);
	assert_in_range(late, 130, 270);
	lane_fini(&lane);
}

static void a_cut_takes_what_arrives_and_what_is_on_the_wire(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	uint64_t number;

	conf.delay_ns = 10 * MS;
	lane_init(&lane, &conf, 1);
	push(&lane, 0, 10);
	lane_cut(&lane, 15 * MS);
	assert_int_equal(push(&lane, 14 * MS, 10), LANE_CUT);
	assert_false(pop(&lane, 14 * MS, NULL));
	assert_int_equal(lane_next_ns(&lane), LANE_NEVER);
	assert_int_equal(push(&lane, 15 * MS, 10), LANE_TAKEN);
	assert_true(pop(&lane, 25 * MS, &number));
	assert_int_equal(number, 2);
	assert_int_equal(lane.counts.cut, 2);
	lane_cut(&lane, LANE_NEVER);
	assert_int_equal(push(&lane, 1000000 * (uint64_t)MS, 10), LANE_CUT);
	lane_cut(&lane, 0);
	assert_int_equal(push(&lane, 1000000 * (uint64_t)MS, 10), LANE_TAKEN);
	lane_fini(&lane);
}

static void memory_is_bounded_whatever_the_delay(void **state)
{
	struct lane_conf conf = plain();
	struct lane lane;
	uint32_t size = 32u << 20;

	conf.delay_ns = 1000000000;
	lane_init(&lane, &conf, 1);
	for (uint32_t i = 0; i < LANE_HELD_BYTES_MAX / size; i++)
		assert_int_equal(push(&lane, 0, size), LANE_TAKEN);
	assert_int_equal(push(&lane, 0, size), LANE_FULL);
	assert_true(pop(&lane, 1000000000, NULL));
	assert_int_equal(push(&lane, 1000000000, size), LANE_TAKEN);
	lane_fini(&lane);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_settings_packets_pass_at_once),
		cmocka_unit_test(delay_is_kept_to_the_nanosecond),
		cmocka_unit_test(rate_spaces_packets),
		cmocka_unit_test(queue_drops_its_tail),
		cmocka_unit_test(a_new_rate_keeps_the_backlog_and_the_order),
		cmocka_unit_test(loss_depends_on_the_seed_alone),
		cmocka_unit_test(luck_does_not_depend_on_other_settings),
		cmocka_unit_test(jitter_varies_and_keeps_the_order),
		cmocka_unit_test(reordered_packets_are_overtaken),
		cmocka_unit_test(a_cut_takes_what_arrives_and_what_is_on_the_wire),
		cmocka_unit_test(memory_is_bounded_whatever_the_delay),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
