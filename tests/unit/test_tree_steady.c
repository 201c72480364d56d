/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that the kernel reads by itself: which opens get a file, what is in it, and that nobody's file is rewritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/local/tree_steady.h"
#include "tests/lib/fdcheck.h"

#define FUSE_FD 12345 /* no such one: ioctl() is ours */

static struct steady steady;
static int given, taken, refusal, last_fd, fails;
static uint64_t now = 1000 * NS_PER_S;

int __wrap_ioctl(int fd, unsigned long what, void *arg);
int __wrap_ioctl(int fd, unsigned long what, void *arg)
{
	assert_int_equal(fd, FUSE_FD);
	if (refusal) {
		errno = refusal;
		fails++;
		return -1;
	}
	if (_IOC_NR(what) == 2) {
		taken++;
		return 0;
	}
	last_fd = *(int *)arg;
	return ++given;
}

static int start(void **state)
{
	given = taken = refusal = fails = 0;
	steady_init(&steady);
	steady.fd = FUSE_FD;
	return 0;
}

static int end(void **state)
{
	steady_fini(&steady);
	return 0;
}

/* The number of the file that the kernel reads; below 0: of the one that this open has beside. */
static int32_t open_one(uint64_t node, const char *text, struct steady_text **out)
{
	enum steady_way way;

	now += NS_PER_MS;
	way = steady_look(&steady, node, text, strlen(text), now, out);
	if (way == STEADY_NOT)
		return 0;
	steady_hold(*out, way);
	return way == STEADY_FILE ? (*out)->backing : -(*out)->backing;
}

static void give(struct steady_text *text)
{
	steady_give(text, STEADY_FILE);
}

static void check_file(const struct steady_text *text, const char *expected)
{
	char bytes[256];
	ssize_t got = pread(text->fd, bytes, sizeof(bytes), 0);

	assert_int_equal(got, strlen(expected));
	assert_memory_equal(bytes, expected, strlen(expected));
}

static void test_steady_text_gets_a_file(void **state)
{
	struct steady_text *a, *b;

	assert_int_equal(open_one(7, "0.00\n", &a), 0);
	assert_int_equal(open_one(7, "0.00\n", &a), 1);
	assert_int_equal(open_one(7, "0.00\n", &b), 1);
	assert_ptr_equal(a, b);
	assert_int_equal(a->fd, last_fd);
	check_file(a, "0.00\n");
	/* Another node has another one. */
	assert_int_equal(open_one(8, "0.00\n", &b), 0);
	assert_int_equal(open_one(8, "0.00\n", &b), 2);
	assert_int_equal(given, 2);
}

static void test_open_file_is_not_rewritten(void **state)
{
	struct steady_text *a, *b;

	open_one(7, "long text\n", &a);
	assert_int_equal(open_one(7, "long text\n", &a), 1);
	assert_int_equal(open_one(7, "long text\n", &b), 1);
	for (int i = 0; i < 5; i++) {
		struct steady_text *c;

		/* From us, but with the file: the kernel wants it so. */
		assert_int_equal(open_one(7, "short\n", &c), -1);
		check_file(a, "long text\n");
		steady_give(c, STEADY_BESIDE);
		/* The old one again is served from the file. */
		assert_int_equal(open_one(7, "long text\n", &c), 1);
		give(c);
	}
	give(a);
	assert_int_equal(open_one(7, "short\n", &b), -1);
	check_file(a, "long text\n");
	give(a);
	/* Nobody reads it any more, though one has it: kept, then written, into the same file. */
	assert_int_equal(open_one(7, "short\n", &a), -1);
	steady_give(a, STEADY_BESIDE);
	assert_int_equal(open_one(7, "short\n", &a), 1);
	check_file(a, "short\n");
	assert_int_equal(given, 1);
	assert_true(steady_is_held(a));
	steady_give(b, STEADY_BESIDE);
	assert_true(steady_is_held(a));
	give(a);
	assert_false(steady_is_held(a));
	assert_int_equal(open_one(7, "longer than all before\n", &a), 0);
	assert_int_equal(open_one(7, "longer than all before\n", &a), 1);
	check_file(a, "longer than all before\n");
	/* Nothing, and too much to keep, while it is open. */
	assert_int_equal(open_one(7, "", &b), -1);
}

static void test_only_what_is_polled(void **state)
{
	struct steady_text *a;
	static char large[STEADY_SIZE_MAX + 2];

	for (int i = 0; i < 5; i++) {
		char text[16];

		/* Changes each time. */
		snprintf(text, sizeof(text), "%d\n", i);
		assert_int_equal(open_one(7, text, &a), 0);
		/* Seldom. */
		now += 10 * NS_PER_S;
		assert_int_equal(open_one(8, "same\n", &a), 0);
		/* Empty, and too much. */
		assert_int_equal(open_one(9, "", &a), 0);
		memset(large, 'x', sizeof(large) - 1);
		assert_int_equal(open_one(10, large, &a), 0);
	}
	assert_int_equal(given, 0);
	large[STEADY_SIZE_MAX] = 0;
	assert_int_equal(open_one(10, large, &a), 0);
	assert_int_equal(open_one(10, large, &a), 1);
}

static void test_as_many_as_there_is_room_for(void **state)
{
	struct steady_text *all[STEADY_COUNT], *a;

	for (unsigned i = 0; i < STEADY_COUNT; i++) {
		assert_int_equal(open_one(100 + i, "x\n", &all[i]), 0);
		assert_int_equal(open_one(100 + i, "x\n", &all[i]), i + 1);
	}
	for (int i = 0; i < 3; i++)
		assert_int_equal(open_one(7, "y\n", &a), 0);
	/* The one that nobody has open goes. */
	give(all[5]);
	assert_int_equal(open_one(7, "y\n", &a), 0);
	assert_int_equal(open_one(7, "y\n", &a), STEADY_COUNT + 1);
	assert_int_equal(taken, 1);
	check_file(a, "y\n");
	check_file(all[4], "x\n");
	assert_int_equal(open_one(105, "x\n", &a), 0);
}

static void test_refusal_is_not_asked_again(void **state)
{
	struct steady_text *a;

	refusal = EPERM;
	for (int i = 0; i < 5; i++)
		assert_int_equal(open_one(7, "x\n", &a), 0);
	assert_int_equal(fails, 1);
}

static void test_shortage_passes(void **state)
{
	struct steady_text *a;

	open_one(7, "x\n", &a);
	assert_int_equal(open_one(7, "x\n", &a), 1);
	refusal = ENOMEM;
	for (int i = 0; i < 3; i++)
		assert_int_equal(open_one(8, "y\n", &a), 0);
	refusal = 0;
	assert_int_equal(open_one(8, "y\n", &a), 2);
	check_file(a, "y\n");
}

static void test_without_the_kernel(void **state)
{
	struct steady_text *a;

	steady.fd = -1;
	for (int i = 0; i < 3; i++)
		assert_int_equal(open_one(7, "x\n", &a), 0);
	assert_int_equal(given, 0);
	assert_int_equal(fails, 0);
}

static void test_first_request(void **state)
{
	struct {
		struct fuse_in_header header;
		struct fuse_init_in in;
	} request = { .header.opcode = FUSE_INIT, .in = { .flags = FUSE_INIT_EXT, .flags2 = 1u << 5 } };
	struct fuse_out_header header = { 0 };
	struct fuse_init_out out = { .major = 7, .minor = 38, .max_write = 4096 }, changed;
	struct iovec reply[2] = { { &header, sizeof(header) }, { &out, sizeof(out) } };
	uint8_t init[STEADY_INIT_SIZE];

	assert_true(steady_is_offered(&request, sizeof(request)));
	for (size_t size = 0; size < sizeof(request); size++)
		assert_false(steady_is_offered(&request, size));
	request.in.flags = 0;
	assert_false(steady_is_offered(&request, sizeof(request)));
	request.in.flags = FUSE_INIT_EXT;
	request.in.flags2 = ~(1u << 5);
	assert_false(steady_is_offered(&request, sizeof(request)));
	request.header.opcode = FUSE_OPEN;
	request.in.flags2 = 1u << 5;
	assert_false(steady_is_offered(&request, sizeof(request)));

	assert_false(steady_accept(reply, 1, init));
	header.error = -EPROTO;
	assert_false(steady_accept(reply, 2, init));
	header.error = 0;
	reply[1].iov_len = 24; /* of an old kernel */
	assert_false(steady_accept(reply, 2, init));
	reply[1].iov_len = sizeof(out);
	assert_true(steady_accept(reply, 2, init));
	assert_ptr_equal(reply[1].iov_base, init);
	memcpy(&changed, init, sizeof(changed));
	assert_int_equal(changed.max_write, 4096);
	assert_true(changed.flags & FUSE_INIT_EXT);
	assert_true(changed.flags2 & 1u << 5);
	assert_int_equal(init[36], 1); /* max_stack_depth */
	assert_int_equal(out.flags, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_steady_text_gets_a_file, start, end),
		cmocka_unit_test_setup_teardown(test_open_file_is_not_rewritten, start, end),
		cmocka_unit_test_setup_teardown(test_only_what_is_polled, start, end),
		cmocka_unit_test_setup_teardown(test_as_many_as_there_is_room_for, start, end),
		cmocka_unit_test_setup_teardown(test_refusal_is_not_asked_again, start, end),
		cmocka_unit_test_setup_teardown(test_shortage_passes, start, end),
		cmocka_unit_test_setup_teardown(test_without_the_kernel, start, end),
		cmocka_unit_test(test_first_request),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
