// SPDX-License-Identifier: Apache-2.0
/*
 * The up arena, as uploading threads take pieces of it, against a model of the worker that gives them back: no piece comes to lie over one
 * that is in use, all of the arena can be in use, and what is passed over of an empty one takes no room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "broker/lib/slot.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/kdev.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/reconnect.h"
#include "libgleamcuda/session.h"

#define MIB	    (1u << 20)
#define PIECES	    (SESSION_UP_SIZE / MIB)
#define FLIGHT_MAX  SESSION_GRANULES
#define TURNS	    200000

/* ---- what else a session needs ---- */

bool hostfunc_relays(void)
{
	return false;
}

bool kdev_is_over(int fd)
{
	return false;
}

bool reconnect_look(struct session *s)
{
	return false;
}

bool late_help(struct session *s)
{
	return false;
}

void gleam_log(const char *format, ...)
{
	fail_msg("a line in the log: %s", format);
}

/* ---- the worker ---- */

static struct session session;
static struct {
	uint64_t tail, seen;
	struct {
		uint64_t from, end;
		bool used_up;
	} flight[FLIGHT_MAX];
	uint32_t first, count;
} worker;

/* Its command has come: what broker/worker/copy.c checks, and that no piece lies there. */
static void arrives(const struct bulk_ref *ref)
{
	uint64_t end = ref->cookie + ((ref->size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1));
	uint64_t size = end - ref->cookie;

	assert_int_equal(ref->offset, ref->cookie % SESSION_UP_SIZE);
	assert_true(ref->offset + size <= SESSION_UP_SIZE);
	assert_true(ref->cookie >= worker.seen);
	if (ref->cookie > worker.seen) {
		assert_int_equal(ref->offset, 0);
		assert_true(end - worker.tail <= SESSION_UP_SIZE);
		if (!worker.count)
			worker.tail = ref->cookie;
	}
	assert_true(end - worker.tail <= SESSION_UP_SIZE);
	for (uint32_t i = 0; i < worker.count; i++) {
		uint64_t from = worker.flight[(worker.first + i) % FLIGHT_MAX].from % SESSION_UP_SIZE;
		uint64_t there = worker.flight[(worker.first + i) % FLIGHT_MAX].end - worker.flight[(worker.first + i) % FLIGHT_MAX].from;

		assert_true(ref->offset >= from + there || ref->offset + size <= from);
	}
	worker.flight[(worker.first + worker.count) % FLIGHT_MAX].from = ref->cookie;
	worker.flight[(worker.first + worker.count) % FLIGHT_MAX].end = end;
	worker.flight[(worker.first + worker.count) % FLIGHT_MAX].used_up = false;
	assert_true(worker.count++ < FLIGHT_MAX);
	worker.seen = end;
}

/* The piece that came as the @at-th of those in use. Room goes back in order; the client is told if @tells. */
static void uses_up(uint32_t at, bool tells)
{
	worker.flight[(worker.first + at) % FLIGHT_MAX].used_up = true;
	while (worker.count && worker.flight[worker.first].used_up) {
		worker.tail = worker.flight[worker.first].end;
		worker.first = (worker.first + 1) % FLIGHT_MAX;
		worker.count--;
	}
	if (tells)
		session_up_tail_post(&session.shm, worker.tail);
}

static bool take(uint32_t size)
{
	struct bulk_ref ref;
	void *bytes;

	if (!session_up_try(&session, size, &ref, &bytes))
		return false;
	assert_ptr_equal(bytes, shm_up(&session.shm) + ref.offset);
	session_up_opened(&session, ref.cookie);
	arrives(&ref);
	return true;
}

static int begin(void **state)
{
	static const uint8_t hash[32];

	memset(&worker, 0, sizeof(worker));
	memset(&session, 0, sizeof(session));
	pthread_mutex_init(&session.up_lock, NULL);
	if (shm_make(&session.shm, hash, 1))
		return -1;
	session.header = shm_header(&session.shm);
	return 0;
}

static int end(void **state)
{
	shm_close(&session.shm);
	pthread_mutex_destroy(&session.up_lock);
	return 0;
}

/* ---- tests ---- */

static void all_of_it_can_be_in_use(void **state)
{
	for (uint32_t i = 0; i < PIECES; i++)
		assert_true(take(MIB));
	assert_false(take(1));
	uses_up(0, true);
	assert_true(take(MIB));
	assert_false(take(1));
}

static void an_empty_one_begins_again_and_has_all_its_room(void **state)
{
	/* However little of it had been used: one piece at a time was all that there was room for, for ever. */
	for (uint32_t before = 1; before < PIECES; before++) {
		uint64_t lap = worker.seen / SESSION_UP_SIZE;

		for (uint32_t i = 0; i < before; i++)
			assert_true(take(MIB));
		for (uint32_t i = 0; i < before; i++)
			uses_up(0, true);
		assert_int_equal(worker.seen % SESSION_UP_SIZE, before * MIB);
		for (uint32_t i = 0; i < PIECES; i++)
			assert_true(take(MIB));
		assert_int_equal(worker.seen, (lap + 2) * SESSION_UP_SIZE);
		assert_false(take(1));
		/* It is told of a piece in the middle, and of the rest. */
		for (uint32_t i = 0; i < PIECES; i++)
			uses_up(0, i % 3 == 0 || i == PIECES - 1);
		assert_int_equal(worker.count, 0);
	}
}

static void small_copies_go_round_at_its_beginning(void **state)
{
	uint64_t far = 0;

	for (uint32_t i = 0; i < 1000; i++) {
		assert_true(take(100000));
		if (worker.seen % SESSION_UP_SIZE > far)
			far = worker.seen % SESSION_UP_SIZE;
		uses_up(0, true);
	}
	assert_true(far <= MIB);
}

static void no_piece_lies_over_another(void **state)
{
	uint32_t seed = 5, took = 0, full = 0, begun = 0;

	for (uint32_t i = 0; i < TURNS; i++) {
		uint64_t lap = worker.seen / SESSION_UP_SIZE;
		uint32_t phase = i / 1000 % 4;

		seed = seed * 1664525u + 1013904223u;
		/* Faster than the worker, slower, as fast, and by fits. */
		if ((seed >> 8) % 8 < (phase == 0 ? 6u : phase == 1 ? 2u : phase == 2 ? 4u : i / 100 % 2 * 7)) {
			if (take(1 + (seed >> 11) % (phase % 2 ? MIB : MIB / 5)))
				took++;
			else
				full++;
			begun += worker.seen / SESSION_UP_SIZE - lap;
		} else if (worker.count) {
			uses_up((seed >> 11) % 5 % worker.count, (seed >> 16) % 3);
		} else {
			session_up_tail_post(&session.shm, worker.tail);
		}
	}
	assert_true(took > TURNS / 4 && full > 100 && begun > 100);
}

static void a_gap_waits_for_commands_that_are_not_posted(void **state)
{
	struct bulk_ref first, second, third;
	void *bytes;

	assert_true(take(MIB));
	uses_up(0, true);
	assert_true(session_up_try(&session, MIB, &first, &bytes));
	assert_int_equal(first.cookie, SESSION_UP_SIZE);
	/* Another thread's piece would come before the lap's first one. */
	assert_false(session_up_try(&session, MIB, &second, &bytes));
	session_up_opened(&session, first.cookie);
	arrives(&first);
	assert_true(session_up_try(&session, MIB, &second, &bytes));
	assert_true(session_up_try(&session, MIB, &third, &bytes));
	session_up_opened(&session, second.cookie);
	session_up_opened(&session, third.cookie);
	arrives(&second);
	arrives(&third);
}

static void a_worker_that_is_ahead_of_us_gives_no_room(void **state)
{
	session_up_tail_post(&session.shm, 5 * MIB);
	assert_false(take(MIB));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_of_it_can_be_in_use, begin, end),
		cmocka_unit_test_setup_teardown(an_empty_one_begins_again_and_has_all_its_room, begin, end),
		cmocka_unit_test_setup_teardown(small_copies_go_round_at_its_beginning, begin, end),
		cmocka_unit_test_setup_teardown(no_piece_lies_over_another, begin, end),
		cmocka_unit_test_setup_teardown(a_gap_waits_for_commands_that_are_not_posted, begin, end),
		cmocka_unit_test_setup_teardown(a_worker_that_is_ahead_of_us_gives_no_room, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
