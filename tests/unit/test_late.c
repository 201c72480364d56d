// SPDX-License-Identifier: Apache-2.0
/*
 * Late copies: what has landed is stored by the service thread and by those who wait, each byte once, and of two copies to the same
 * bytes the younger one stays whoever stores them and in whatever order they land.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "broker/proto/progress.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session.h"

#define WIDTH 60000u
#define TURNS 60

static struct session session;
static uint32_t given; /* atomic: cells that came back */
static uint32_t sent;  /* landings of the session */

void session_cells_give(struct session *s, const struct bulk_ref *ref)
{
	__atomic_fetch_add(&given, 1, __ATOMIC_RELAXED);
}

/* Those that a thread which waits takes itself. */
static struct {
	struct bulk_ref ref;
	bool there; /* atomic */
} notice;

bool service_landings_take(struct session *s)
{
	if (!__atomic_exchange_n(&notice.there, false, __ATOMIC_ACQUIRE))
		return false;
	late_landed(s, &notice.ref, ++sent);
	return true;
}

uint64_t call_spin_limit(void)
{
	return 50000;
}

struct session *session_at(uint32_t index)
{
	return index ? NULL : &session;
}

void session_cells_nudge(struct session *s)
{
}

void gleam_log(const char *format, ...)
{
	fail_msg("a line in the log: %s", format);
}

static int begin(void **state)
{
	static const uint8_t hash[32];

	return shm_make(&session.shm, hash, 1);
}

static int end(void **state)
{
	shm_close(&session.shm);
	return 0;
}

static uint8_t pattern(uint64_t copy, uint32_t i)
{
	return (uint8_t)(copy * 131 + i * 7 + (i >> 8));
}

/* The service thread: lands what is in @refs in a shuffled order, and stores when it has nothing else to do. */
struct landing {
	struct bulk_ref refs[SESSION_CELLS];
	uint32_t count;
	unsigned seed;
	bool lazy; /* stores nothing itself */
	bool stop; /* atomic */
};

static void *land(void *arg)
{
	struct landing *l = arg;

	for (uint32_t i = l->count; i-- > 1;) {
		l->seed = l->seed * 1664525u + 1013904223u;

		uint32_t j = (l->seed >> 8) % (i + 1);
		struct bulk_ref swap = l->refs[i];

		l->refs[i] = l->refs[j];
		l->refs[j] = swap;
	}
	for (uint32_t i = 0; i < l->count; i++) {
		late_landed(&session, &l->refs[i], ++sent);
		if (!l->lazy && i % 3 == 0)
			late_store_one(&session);
		if (i % 5 == 0)
			sched_yield();
	}
	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE))
		if (l->lazy || !late_store_one(&session))
			sched_yield();
	return NULL;
}

/* Copies of every cell to places beside each other, or (@meet) each onto half of the one before. */
static void turn(unsigned number, bool lazy, bool meet)
{
	uint32_t step = meet ? WIDTH / 2 : WIDTH;
	uint32_t size = step * (SESSION_CELLS - 1) + WIDTH;
	uint8_t *host = calloc(1, size), *want = calloc(1, size);
	struct landing l = { .count = SESSION_CELLS, .seed = number, .lazy = lazy };
	struct late_list list = { 0 };
	pthread_t thread;

	given = 0;
	for (uint32_t c = 0; c < SESSION_CELLS; c++) {
		struct late_target target = { .bytes = host + c * step, .width = WIDTH, .pitch = WIDTH, .rows = 1 };
		uint8_t *cell = shm_down(&session.shm) + c * SESSION_CELL_SIZE;

		l.refs[c] = (struct bulk_ref){ .offset = c * SESSION_CELL_SIZE, .size = WIDTH };
		assert_int_equal(late_add(&session, &list, &l.refs[c], &target), 0);
		late_posted(&session, &l.refs[c], c + 1);
		for (uint32_t i = 0; i < WIDTH; i++)
			want[c * step + i] = cell[i] = pattern(number * SESSION_CELLS + c, i);
	}
	assert_false(late_done(&list, SESSION_CELLS));
	assert_int_equal(pthread_create(&thread, NULL, land, &l), 0);
	assert_int_equal(late_wait(&session, &list, SESSION_CELLS), 0);
	assert_memory_equal(host, want, size);
	late_wait_range(host, size);
	assert_false(late_any());
	__atomic_store_n(&l.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_int_equal(given, SESSION_CELLS);
	free(host);
	free(want);
}

static void test_beside_each_other(void **state)
{
	for (unsigned i = 0; i < TURNS; i++)
		turn(i + 1, i % 2, false);
}

static void test_onto_each_other(void **state)
{
	for (unsigned i = 0; i < TURNS; i++)
		turn(i + 1000, i % 2, true);
}

/* What comes behind a landing finds its bytes stored, though another thread is at it. */
static void *help(void *arg)
{
	while (!__atomic_load_n((bool *)arg, __ATOMIC_ACQUIRE))
		late_help(&session);
	return NULL;
}

static void test_settled(void **state)
{
	uint8_t *host = calloc(1, WIDTH);
	bool stop = false;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, help, &stop), 0);
	for (uint32_t turn_ = 1; turn_ <= 300; turn_++) {
		struct late_target target = { .bytes = host, .width = WIDTH, .pitch = WIDTH, .rows = 1 };
		struct bulk_ref ref = { .offset = 3 * SESSION_CELL_SIZE, .size = WIDTH };
		struct late_list list = { 0 };

		memset(shm_down(&session.shm) + ref.offset, (int)turn_, WIDTH);
		assert_int_equal(late_add(&session, &list, &ref, &target), 0);
		late_posted(&session, &ref, turn_);
		late_landed(&session, &ref, ++sent);
		late_settle(&session);
		assert_int_equal(host[0], (uint8_t)turn_);
		assert_int_equal(host[WIDTH - 1], (uint8_t)turn_);
		assert_true(late_done(&list, turn_));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	free(host);
}

/* Two were told, and as many are there: but one of them is a third that has overtaken the second. */
static void test_overtaken(void **state)
{
	uint32_t *told = shm_progress(&session.shm, PROGRESS_LANDINGS);
	uint8_t host[3];
	struct bulk_ref refs[3];
	struct late_list list = { 0 };

	for (uint32_t i = 0; i < 3; i++) {
		struct late_target target = { .bytes = &host[i], .width = 1, .pitch = 1, .rows = 1 };

		refs[i] = (struct bulk_ref){ .offset = i * SESSION_CELL_SIZE, .size = 1 };
		assert_int_equal(late_add(&session, &list, &refs[i], &target), 0);
		late_posted(&session, &refs[i], i + 1);
	}
	__atomic_store_n(told, sent + 2, __ATOMIC_RELEASE);
	late_landed(&session, &refs[0], sent + 1);
	late_settle(&session);
	assert_false(late_told_done(&session));
	late_landed(&session, &refs[2], sent + 3);
	late_settle(&session);
	assert_false(late_told_done(&session));
	late_landed(&session, &refs[1], sent + 2);
	assert_int_equal(late_told_wait(&session), 0);
	assert_true(late_told_done(&session));
	assert_false(late_any());
	sent += 3;
}

/* Nobody lands anything: whoever waits takes it, and wakes who waits beside. */
static void *wait_too(void *arg)
{
	late_wait(&session, arg, 1);
	return NULL;
}

static void test_taken_by_who_waits(void **state)
{
	uint8_t *host = calloc(1, WIDTH);

	for (uint32_t turn_ = 1; turn_ <= 100; turn_++) {
		struct late_target target = { .bytes = host, .width = WIDTH, .pitch = WIDTH, .rows = 1 };
		struct late_list list = { 0 };
		pthread_t thread;

		notice.ref = (struct bulk_ref){ .offset = 5 * SESSION_CELL_SIZE, .size = WIDTH };
		memset(shm_down(&session.shm) + notice.ref.offset, (int)turn_, WIDTH);
		assert_int_equal(late_add(&session, &list, &notice.ref, &target), 0);
		late_posted(&session, &notice.ref, 1);
		/* One of them may be late; the notice is there before the other begins, as it would be behind the word that he has waited for. */
		__atomic_store_n(&notice.there, true, __ATOMIC_RELEASE);
		assert_int_equal(pthread_create(&thread, NULL, wait_too, &list), 0);
		assert_int_equal(late_wait(&session, &list, 1), 0);
		assert_int_equal(host[0], (uint8_t)turn_);
		assert_int_equal(host[WIDTH - 1], (uint8_t)turn_);
		pthread_join(thread, NULL);
		assert_false(late_any());
	}
	free(host);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beside_each_other),
		cmocka_unit_test(test_onto_each_other),
		cmocka_unit_test(test_settled),
		cmocka_unit_test(test_overtaken),
		cmocka_unit_test(test_taken_by_who_waits),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
