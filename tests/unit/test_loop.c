/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: timers in order, work from other threads, and a refusal by the system that is told in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/core/loop.h"
#include "broker/lib/clock.h"
#include "tests/lib/fdcheck.h"

static struct loop *loop;
static unsigned fired[200], fired_count;

static void fire(void *arg)
{
	fired[fired_count++] = (unsigned)(uintptr_t)arg;
}

static void fire_last(void *arg)
{
	loop_stop(loop);
}

static void test_timers_fire_in_order(void **state)
{
	struct loop_timer timers[100] = { 0 }, last = { .fire = fire_last };
	char why[500];
	uint64_t now;

	assert_int_equal(loop_open(&loop, 64, why, sizeof(why)), 0);
	now = loop_now_ns(loop);
	fired_count = 0;
	for (unsigned i = 0; i < 100; i++) {
		unsigned rank = i * 37 % 100;

		timers[i].fire = fire;
		timers[i].arg = (void *)(uintptr_t)rank;
		loop_timer_set(loop, &timers[i], now + rank * 100000);
	}
	/* Taken out, and moved. */
	for (unsigned i = 0; i < 100; i++)
		if (i * 37 % 100 % 10 == 3)
			loop_timer_clear(loop, &timers[i]);
	loop_timer_set(loop, &last, now + 1000);
	loop_timer_set(loop, &last, now + 15 * NS_PER_MS);
	loop_run(loop);
	assert_int_equal(fired_count, 90);
	for (unsigned i = 1; i < fired_count; i++)
		assert_true(fired[i] > fired[i - 1]);
	loop_close(loop);
}

#define POSTS 20000

static struct loop_post posts[4][POSTS];
static unsigned posted, last_of[4];

static void post_run(struct loop_post *post)
{
	unsigned thread = (unsigned)((post - posts[0]) / POSTS);
	unsigned number = (unsigned)((post - posts[0]) % POSTS);

	/* In order of each thread. */
	assert_true(number == 0 || last_of[thread] == number - 1);
	last_of[thread] = number;
	if (++posted == 4 * POSTS)
		loop_stop(loop);
}

static void *post_main(void *arg)
{
	struct loop_post *own = arg;

	for (unsigned i = 0; i < POSTS; i++) {
		own[i].run = post_run;
		loop_post(loop, &own[i]);
		if (i % 1000 == 0)
			usleep(500); /* so that the loop sleeps in between */
	}
	return NULL;
}

static void test_posts_arrive(void **state)
{
	pthread_t threads[4];
	char why[500];

	assert_int_equal(loop_open(&loop, 64, why, sizeof(why)), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, post_main, posts[i]);
	loop_run(loop);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(posted, 4 * POSTS);
	loop_close(loop);
}

/* In a child whose io_uring_setup fails with @err: does the reason have @says? */
/* ---- silent operations ---- */

static int first_res, second_res, first_count;
static char pair_bytes[8];

static void first_done(void *arg, int res, uint32_t flags)
{
	first_res = res;
	first_count++;
}

static void second_done(void *arg, int res, uint32_t flags)
{
	second_res = res;
	loop_stop(loop);
}

/* A write that tells only of failure, and a read behind it. */
static void test_silent_ones_tell_of_failure(void **state)
{
	char why[500];
	int pipes[2];

	assert_int_equal(pipe(pipes), 0);
	for (int turn = 0; turn < 200; turn++) {
		bool fails = turn % 3 == 0;
		struct io_uring_sqe *sqe;
		uint64_t tag;

		assert_int_equal(loop_open(&loop, 4, why, sizeof(why)), 0);
		/* However full the queue is. */
		for (int i = 0; i < turn % 5; i++) {
			sqe = loop_sqe(loop);
			io_uring_prep_nop(sqe);
			loop_forget(loop, loop_tag(loop, sqe, NULL, NULL));
		}
		first_count = 0;
		if (fails)
			assert_int_equal(write(pipes[1], "other", 5), 5);
		sqe = loop_sqe(loop);
		io_uring_prep_write(sqe, fails ? -1 : pipes[1], "bytes", 5, 0);
		tag = loop_tag_silent(loop, sqe, first_done, NULL);
		sqe = loop_sqe(loop);
		io_uring_prep_read(sqe, pipes[0], pair_bytes, sizeof(pair_bytes), 0);
		loop_tag(loop, sqe, second_done, NULL);
		loop_run(loop);
		assert_int_equal(second_res, 5);
		assert_memory_equal(pair_bytes, fails ? "other" : "bytes", 5);
		assert_true(fails ? first_count == 1 && first_res == -EBADF : first_count <= 1);
		loop_tag_over(loop, tag);
		loop_tag_over(loop, tag);
		/* The name is free, and means nobody any more. */
		loop_cancel(loop, tag);
		loop_close(loop);
	}
	close(pipes[0]);
	close(pipes[1]);
}

static void refused(int err, const char *says)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
		struct loop *own;
		char why[500] = "";

		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint32_t)err), 425, 0) || seccomp_load(filter))
			_exit(3);
		if (loop_open(&own, 64, why, sizeof(why)) == 0)
			_exit(4);
		_exit(strstr(why, says) ? 0 : 5);
	}
	assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
	assert_int_equal(status, 0);
}

static void test_refusals_have_a_reason(void **state)
{
	refused(EPERM, "seccomp");
	refused(ENOSYS, "Linux 5.15");
	refused(ENOMEM, "LimitMEMLOCK");
	refused(EMFILE, "Too many open files");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timers_fire_in_order),
		cmocka_unit_test(test_posts_arrive),
		cmocka_unit_test(test_silent_ones_tell_of_failure),
		cmocka_unit_test(test_refusals_have_a_reason),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
