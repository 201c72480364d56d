// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler's wish that clients move, on a clock of the test's: what pays goes in time, what doesn't stays, a link that swings moves nobody
 * to and fro, and who leaves a server goes where it is best.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/sched.h"

#define TICK 0.5 /* seconds between two looks, as gleamd's */

static struct sched *sched;
static struct sched_node_state nodes[4];
static double now;

static int setup(void **state)
{
	sched = sched_new(7);
	now = 0;
	return sched ? 0 : -1;
}

static int teardown(void **state)
{
	sched_free(sched);
	return 0;
}

static uint32_t add(const char *name, double bandwidth, double speed)
{
	uint32_t node = sched_node_add(sched, name);

	assert_in_range(node, 0, 3);
	nodes[node] = (struct sched_node_state){
		.up = true, .rtt = 0.0003, .jitter = 0, .bandwidth = bandwidth, .speed = speed, .gpus = 1, .memory = 80e9,
		.memory_free = 80e9, .sessions_max = 256, .warm = 1,
	};
	sched_node_set(sched, node, &nodes[node], now);
	return node;
}

static void node_tell(uint32_t node)
{
	nodes[node].told_at = now;
	sched_node_set(sched, node, &nodes[node], now);
}

/* A program of steps that each send so many bytes while the GPU works for so long, the reference's. */
struct runner {
	uint32_t id;
	uint32_t node;
	double bytes;
	double gpu;
	struct sched_usage used;
	unsigned moves;
};


static void begin(struct runner *runner, const struct sched_profile *profile, const char *wanted)
{
	struct sched_request request = { .profile = profile, .key = 1, .program = "program", .pid = 42, .wanted = wanted };

	assert_int_equal(sched_client_add(sched, runner->id, runner->node, 0, &request, now), 0);
}

static void run(struct runner *runner, double seconds)
{
	const struct sched_node_state *node = &nodes[runner->node];
	double steps = seconds / fmax(runner->gpu / node->speed, runner->bytes / node->bandwidth);

	runner->used.wall += seconds;
	runner->used.waited += seconds * 0.95;
	runner->used.bytes_up += steps * runner->bytes;
	runner->used.gpu += steps * runner->gpu / node->speed;
	runner->used.gpu_wall += steps * runner->gpu / node->speed;
	sched_client_used(sched, runner->id, &runner->used, now);
}

/* Half a second; true: it is to be moved, and is. */
static bool tick(struct runner *runner, struct sched_move *move)
{
	now += TICK;
	for (uint32_t i = 0; i < sched_node_count(sched); i++)
		node_tell(i);
	run(runner, TICK);
	if (!sched_moves(sched, now, move, 1))
		return false;
	assert_int_equal(move->client, runner->id);
	assert_int_not_equal(move->node, runner->node);
	/* As long as a move takes it runs where it was. */
	now += move->price;
	run(runner, move->price);
	sched_client_moved(sched, runner->id, runner->id + 1, move->node, now);
	runner->id++;
	runner->node = move->node;
	runner->moves++;
	return true;
}

static bool tick_until(struct runner *runner, double until, struct sched_move *move)
{
	bool moved = false;

	while (now < until && !moved)
		moved = tick(runner, move);
	return moved;
}

#define GBIT   117e6
#define HUNDRED 12.5e6

/* ---- a link that drops ---- */

static void what_pays_moves_within_ten_seconds(void **state)
{
	struct runner runner = { .id = 1, .node = add("far", GBIT, 1), .bytes = 30e6, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_move move;

	add("near", GBIT, 0.5);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, NULL);
	assert_false(tick_until(&runner, 30, &move));
	nodes[0].bandwidth = HUNDRED;
	assert_true(tick_until(&runner, 40, &move));
	assert_true(now <= 40);
	assert_int_equal(move.node, 1);
	assert_true(move.stay - move.go >= 1.5 * move.price);
	/* 30 MB at 100 Mbit/s, and a second. */
	assert_float_equal(move.price, 1 + 30e6 / HUNDRED, 1e-6);
	assert_false(tick_until(&runner, 700, &move));
}

static void what_does_not_pay_stays(void **state)
{
	/* It computes; it sends nearly nothing. */
	struct runner computes = { .id = 1, .node = add("far", GBIT, 1), .bytes = 1e5, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_move move;

	add("near", GBIT, 0.5);
	sched_moves_set(sched, true, 1);
	begin(&computes, NULL, NULL);
	assert_false(tick_until(&computes, 30, &move));
	nodes[0].bandwidth = HUNDRED;
	assert_false(tick_until(&computes, 300, &move));
}

static void too_much_memory_stays(void **state)
{
	/* 40 GB through 100 Mbit/s take an hour; a minute is left. */
	struct sched_profile profile = { .runs = 5, .wall = 90, .cpu = 1, .gpu = 30, .trips = 100, .bytes_up = 9e9, .memory = 40e9 };
	struct runner runner = { .id = 1, .node = add("far", GBIT, 1), .bytes = 30e6, .gpu = 0.1, .used.memory = 40e9 };
	struct sched_move move;

	add("near", GBIT, 1);
	sched_moves_set(sched, true, 1);
	begin(&runner, &profile, NULL);
	assert_false(tick_until(&runner, 30, &move));
	nodes[0].bandwidth = HUNDRED;
	assert_false(tick_until(&runner, 300, &move));
}

static void a_run_that_is_nearly_over_stays(void **state)
{
	struct sched_profile profile = { .runs = 5, .wall = 30, .cpu = 1, .gpu = 10, .trips = 100, .bytes_up = 3e9, .memory = 30e6 };
	struct runner runner = { .id = 1, .node = add("far", GBIT, 1), .bytes = 30e6, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_move move;

	add("near", GBIT, 1);
	sched_moves_set(sched, true, 1);
	begin(&runner, &profile, NULL);
	assert_false(tick_until(&runner, 25.5, &move));
	nodes[0].bandwidth = HUNDRED / 2;
	assert_false(tick_until(&runner, 27, &move));
}

/* ---- a link that swings ---- */

/* Ten minutes; whenever it has come somewhere that link becomes the slow one, or both swing by the clock. */
static unsigned swings(double period, bool against_it)
{
	struct runner runner = { .id = 1, .node = 0, .bytes = 30e6, .gpu = 0.01, .used.memory = 10e6 };
	struct sched_move move;
	double moved_at = -1, least = INFINITY;

	add("far", GBIT, 1);
	add("near", GBIT, 1);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, NULL);
	while (now < 600) {
		bool odd = against_it ? runner.node : fmod(now, 2 * period) >= period;

		nodes[0].bandwidth = odd ? GBIT : HUNDRED;
		nodes[1].bandwidth = odd ? HUNDRED : GBIT;
		if (!tick(&runner, &move))
			continue;
		if (moved_at >= 0)
			least = fmin(least, now - moved_at);
		moved_at = now;
	}
	assert_true(least >= 600);
	return runner.moves;
}

static void a_link_that_swings_moves_once_in_ten_minutes(void **state)
{
	static const double periods[] = { 0.5, 1, 2, 3, 5, 8, 13, 30, 60, 200 };

	for (size_t i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
		assert_true(swings(periods[i], false) <= 1);
		sched_free(sched);
		setup(state);
	}
	assert_int_equal(swings(0, true), 1);
}

static void what_is_better_for_a_moment_moves_nobody(void **state)
{
	/* Two seconds of five: never for three on end. */
	struct runner runner = { .id = 1, .node = add("far", GBIT, 1), .bytes = 30e6, .gpu = 0.01, .used.memory = 10e6 };
	struct sched_move move;

	add("near", GBIT, 0.8);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, NULL);
	while (now < 600) {
		nodes[0].bandwidth = fmod(now, 5) < 2 ? HUNDRED : GBIT;
		assert_false(tick(&runner, &move));
	}
}

/* ---- who isn't asked ---- */

static void who_named_its_server_stays(void **state)
{
	struct runner runner = { .id = 1, .node = add("far", GBIT, 1), .bytes = 30e6, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_move move;

	add("near", GBIT, 1);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, "far");
	nodes[0].bandwidth = HUNDRED;
	assert_false(tick_until(&runner, 100, &move));
}

static void what_failed_is_not_tried_again_at_once(void **state)
{
	struct runner runner = { .id = 1, .node = add("far", HUNDRED, 1), .bytes = 30e6, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_request request = { .pid = 42 };
	struct sched_move move;
	const struct sched_decision *decision;
	double failed_at = 0;
	uint64_t number;

	add("near", GBIT, 1);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, NULL);
	for (unsigned turn = 0; turn < 3; turn++) {
		do {
			now += TICK;
			node_tell(0);
			node_tell(1);
			run(&runner, TICK);
			assert_true(now < 1000);
		} while (!sched_moves(sched, now, &move, 1));
		if (turn == 1)
			assert_true(now - failed_at >= SCHED_MOVE_RETRY_S);
		if (turn == 2)
			assert_true(now - failed_at >= SCHED_MOVE_AGAIN_S);
		number = sched_move_decided(sched, &move, "migrate", &request, now);
		failed_at = now;
		sched_move_ended(sched, number, 1, turn ? "it has an array" : "the link was lost", turn, 0.25, now);
	}
	decision = sched_decision(sched, 0);
	assert_true(decision->move);
	assert_string_equal(decision->policy, "migrate");
	assert_string_equal(decision->node, "near");
	assert_string_equal(decision->second, "far");
	assert_string_equal(decision->why, "it has an array");
	assert_float_equal(decision->measured, 0.25, 1e-9);
	assert_true(decision->second_total > decision->cost.total);
}

/* ---- by load, and from a drained node ---- */

static void who_is_crowded_leaves(void **state)
{
	static const struct sched_profile heavy = { .runs = 5, .wall = 30, .cpu = 1, .gpu = 30, .trips = 100, .bytes_up = 1e6, .memory = 20e9 };
	struct sched_request request = { .profile = &heavy, .key = 1 };
	struct sched_usage usage = { .wall = 6, .waited = 5.9, .gpu = 3, .gpu_wall = 6, .memory = 2e9 };
	struct sched_move move;

	add("here", 1.1e9, 1);
	add("there", 1.1e9, 1);
	nodes[0].busy = nodes[0].busy_own = 1;
	sched_client_add(sched, 1, 0, 0, &request, 0);
	now = 6;
	sched_client_used(sched, 1, &usage, now);
	nodes[0].busy = 12; /* eleven others have come */
	node_tell(0);
	node_tell(1);
	assert_int_equal(sched_moves(sched, now, &move, 1), 0); /* off */
	sched_moves_set(sched, true, 1);
	assert_int_equal(sched_moves(sched, now, &move, 1), 0); /* it has only begun to be better there */
	now = 8;
	nodes[0].busy = 1;
	node_tell(0);
	assert_int_equal(sched_moves(sched, now, &move, 1), 0); /* and is no more */
	now = 9;
	nodes[0].busy = 12;
	node_tell(0);
	assert_int_equal(sched_moves(sched, now, &move, 1), 0);
	now = 13;
	node_tell(0);
	assert_int_equal(sched_moves(sched, now, &move, 1), 1);
	assert_int_equal(move.client, 1);
	assert_int_equal(move.node, 1);
	sched_client_moved(sched, 1, 2, 1, now);
	now = 14;
	nodes[0].busy = 0;
	node_tell(0);
	assert_int_equal(sched_moves(sched, now, &move, 1), 0); /* it has just come */
	sched_client_remove(sched, 2, NULL, 20);
}

static void a_drained_node_is_left(void **state)
{
	struct runner runner = { .id = 1, .node = add("here", GBIT, 1), .bytes = 1e5, .gpu = 0.1, .used.memory = 30e6 };
	struct sched_move move;

	add("there", GBIT, 0.1);
	sched_moves_set(sched, true, 1);
	begin(&runner, NULL, NULL);
	assert_false(tick_until(&runner, 10, &move));
	nodes[0].draining = nodes[0].keeps = true;
	assert_false(tick_until(&runner, 20, &move));
	nodes[0].keeps = false;
	assert_true(tick(&runner, &move));
	/* And the next one, though it has been moved a moment ago. */
	nodes[0].draining = false;
	nodes[1].draining = true;
	assert_true(tick_until(&runner, now + 8, &move));
	assert_int_equal(runner.node, 0);
}

static void who_must_leave_goes_where_it_is_best(void **state)
{
	struct runner runner = { .id = 1, .node = add("here", GBIT, 1), .bytes = 1e5, .gpu = 0.1, .used.memory = 30e9 };
	struct sched_move move;
	char why[SCHED_TEXT_SIZE];

	add("slow", GBIT, 0.1);
	add("good", GBIT, 0.9);
	add("small", GBIT, 1);
	nodes[3].memory_free = 8e9;
	begin(&runner, NULL, NULL);
	assert_false(tick_until(&runner, 5, &move));
	assert_true(sched_move_best(sched, 1, 0, now, &move, why, sizeof(why)));
	assert_int_equal(move.node, 2);
	assert_true(sched_move_best(sched, 1, 1 << 2, now, &move, why, sizeof(why)));
	assert_int_equal(move.node, 1);
	assert_false(sched_move_best(sched, 1, 1 << 2 | 1 << 1, now, &move, why, sizeof(why)));
	assert_non_null(strstr(why, "small has 7.5"));
	assert_null(strstr(why, "here"));
	assert_false(sched_move_best(sched, 77, 0, now, &move, why, sizeof(why)));
	/* One that may be gone in a moment is better than none. */
	sched_node_failed(sched, 2, now);
	assert_true(sched_move_best(sched, 1, 0, now, &move, why, sizeof(why)));
	assert_int_equal(move.node, 1);
	assert_true(sched_move_best(sched, 1, 1 << 1, now, &move, why, sizeof(why)));
	assert_int_equal(move.node, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		T(what_pays_moves_within_ten_seconds), T(what_does_not_pay_stays), T(too_much_memory_stays), T(a_run_that_is_nearly_over_stays),
		T(a_link_that_swings_moves_once_in_ten_minutes), T(what_is_better_for_a_moment_moves_nobody), T(who_named_its_server_stays),
		T(what_failed_is_not_tried_again_at_once), T(who_is_crowded_leaves), T(a_drained_node_is_left),
		T(who_must_leave_goes_where_it_is_best),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
