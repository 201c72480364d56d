// SPDX-License-Identifier: Apache-2.0
/*
 * Checkpoints are written and read on a thread beside the loop: whole, in order, with what fails told once, and left at any time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/ring.h"
#include "broker/local/saver.h"

#define FRAME_HEAD (uint32_t)sizeof(struct frame_hdr)

static struct loop *loop;
static struct loop_timer late;
static const struct save_info info = { .identity = "fifteen letters", .pid = 7, .program = "program", .sequence = 3 };

static void too_late(void *arg)
{
	(void)arg;
	fprintf(stderr, "nothing came\n");
	_exit(1);
}

static void run_begin(void)
{
	char why[500];

	assert_int_equal(loop_open(&loop, 64, why, sizeof(why)), 0);
	late = (struct loop_timer){ .fire = too_late };
	loop_timer_set(loop, &late, loop_now_ns(loop) + 60 * NS_PER_S);
}

static void run_end(void)
{
	loop_timer_clear(loop, &late);
	loop_close(loop);
}

static int file(void)
{
	int fd = memfd_create("save", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* ---- writing ---- */

static unsigned heard;
static int heard_err;
static bool heard_over;

static void hear(void *arg, bool over, int err)
{
	(void)arg;
	assert_false(heard_over);
	heard++;
	heard_over = over;
	heard_err = err;
	if (over)
		loop_stop(loop);
}

/* @count frames of @size bytes, the number of each in it. */
static void put_frames(struct saver *saver, uint32_t count, uint32_t size)
{
	static uint8_t bytes[FRAME_SIZE_MAX] __attribute__((aligned(8)));
	struct frame_hdr hdr = { .size = FRAME_HEAD + size, .op = 1, .kind = FRAME_COMMAND };

	for (uint32_t i = 0; i < count; i++) {
		hdr.seq = i;
		memcpy(bytes, &hdr, sizeof(hdr));
		memset(bytes + FRAME_HEAD, (int)i, size);
		assert_true(saver_put(saver, bytes, hdr.size));
	}
}

static struct saver *saver(int fd)
{
	heard = 0;
	heard_err = 1;
	heard_over = false;
	return saver_new(loop, fd, &info, hear, NULL);
}

/* ---- reading ---- */

static struct loader *loader;
static char opened[256];
static uint32_t frames_read;
static bool frames_right;

static void on_opened(void *arg, const struct save_info *got, const char *why)
{
	(void)arg;
	snprintf(opened, sizeof(opened), "%s", got ? got->program : why);
	if (got)
		loader_next(loader);
	else
		loop_stop(loop);
}

static void on_frames(void *arg, const uint8_t *frames, uint32_t size, const char *why)
{
	(void)arg;
	if (*why)
		snprintf(opened, sizeof(opened), "%s", why);
	for (uint32_t at = 0; at < size;) {
		struct frame_hdr hdr;

		memcpy(&hdr, frames + at, sizeof(hdr));
		frames_right &= hdr.seq == frames_read++ && (hdr.size == FRAME_HEAD || frames[at + FRAME_HEAD] == (uint8_t)hdr.seq);
		at += RING_ALIGN(hdr.size);
	}
	if (size)
		loader_next(loader);
	else
		loop_stop(loop);
}

static void load(int fd)
{
	static const struct loader_ops ops = { .opened = on_opened, .frames = on_frames };

	opened[0] = 0;
	frames_read = 0;
	frames_right = true;
	run_begin(); /* a loop that was stopped runs no more */
	loader = loader_new(loop, fd, &ops, NULL);
	assert_non_null(loader);
	loop_run(loop);
	loader_free(loader);
	run_end();
}

static void test_what_was_put_comes_back(void **state)
{
	int fd = file(), again = dup(fd);
	struct saver *s;

	(void)state;
	run_begin();
	s = saver(fd);
	assert_non_null(s);
	/* Frames of 60,000 bytes leave a rest in each block. */
	put_frames(s, 200, 60000);
	assert_true(saver_is_behind(s));
	saver_end(s, &info);
	loop_run(loop);
	assert_true(heard_over);
	assert_int_equal(heard_err, 0);
	assert_true(heard > 10);
	assert_false(saver_is_behind(s));
	saver_free(s);
	run_end();
	load(dup(again));
	assert_string_equal(opened, "program");
	assert_int_equal(frames_read, 200);
	assert_true(frames_right);
	/* Cut off. */
	assert_int_equal(ftruncate(again, 100000), 0);
	load(again);
	assert_string_equal(opened, "it is cut off");
}

static void test_nothing_but_an_end(void **state)
{
	int fd = file(), again = dup(fd);
	struct saver *s;

	(void)state;
	run_begin();
	s = saver(fd);
	saver_end(s, &info);
	loop_run(loop);
	assert_int_equal(heard_err, 0);
	assert_int_equal(heard, 1);
	saver_free(s);
	run_end();
	load(again);
	assert_string_equal(opened, "program");
	assert_int_equal(frames_read, 0);
}

static void test_a_full_disk_is_told_once(void **state)
{
	struct saver *s;

	(void)state;
	run_begin();
	s = saver(open("/dev/full", O_WRONLY | O_CLOEXEC));
	assert_non_null(s);
	put_frames(s, 100, 60000);
	saver_end(s, &info);
	loop_run(loop);
	assert_true(heard_over);
	assert_int_equal(heard_err, -ENOSPC);
	assert_int_equal(heard, 1);
	/* What is put after that goes nowhere, and is freed. */
	put_frames(s, 10, 60000);
	saver_free(s);
	run_end();
}

static struct saver *left;

static void timer_leaves(void *arg)
{
	(void)arg;
	heard = 0;
	saver_free(left);
}

static void timer_stops(void *arg)
{
	(void)arg;
	loop_stop(loop);
}

/* At any time, also while it writes: nothing is heard, and nothing is touched that is gone. */
static void test_left_in_the_middle(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		struct loop_timer leaves = { .fire = timer_leaves }, stops = { .fire = timer_stops };
		uint64_t now;

		run_begin();
		left = saver(file());
		assert_non_null(left);
		put_frames(left, 300, 60000);
		now = loop_now_ns(loop);
		loop_timer_set(loop, &leaves, now + i % 5 * NS_PER_MS);
		loop_timer_set(loop, &stops, now + 10 * NS_PER_MS);
		loop_run(loop);
		assert_int_equal(heard, 0);
		run_end();
	}
	/* The last threads are on their way out. */
	usleep(100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_put_comes_back),
		cmocka_unit_test(test_nothing_but_an_end),
		cmocka_unit_test(test_a_full_disk_is_told_once),
		cmocka_unit_test(test_left_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
