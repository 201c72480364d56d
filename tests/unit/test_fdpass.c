// SPDX-License-Identifier: Apache-2.0
/* Descriptors that go along with packets: what comes over, what is closed, and packets that have none. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "broker/lib/fdpass.h"
#include "tests/lib/fdcheck.h"

static int ends[2];

static int open_pair(void **state)
{
	(void)state;
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_pair(void **state)
{
	(void)state;
	return close(ends[0]) || close(ends[1]);
}

/* @count descriptors of /dev/null. */
static void fill(int *fds, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(fds[i] >= 0);
	}
}

static void empty(const int *fds, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		assert_int_equal(close(fds[i]), 0);
}

static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && (fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void all_come(void **state)
{
	int sent[FDS_MAX], got[FDS_MAX];
	char bytes[8];

	(void)state;
	fill(sent, FDS_MAX);
	assert_int_equal(fds_send(ends[0], "packet", 7, sent, FDS_MAX, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), got, FDS_MAX, 0), 7);
	assert_string_equal(bytes, "packet");
	for (unsigned int i = 0; i < FDS_MAX; i++)
		assert_true(is_null(got[i]));
	empty(sent, FDS_MAX);
	empty(got, FDS_MAX);
	assert_int_equal(fds_send(ends[0], "packet", 7, sent, FDS_MAX + 1, 0), -EINVAL);
}

static void none_come(void **state)
{
	int got[2] = { 7, 7 };
	char bytes[8];

	(void)state;
	assert_int_equal(fds_send(ends[0], "", 1, NULL, 0, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), got, 2, 0), 1);
	assert_int_equal(got[0], -1);
	assert_int_equal(got[1], -1);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), got, 2, MSG_DONTWAIT), -EAGAIN);
}

/* fdcheck sees what stays open. */
static void too_many_are_closed(void **state)
{
	int sent[5], got[2];
	char bytes[8];

	(void)state;
	fill(sent, 5);
	assert_int_equal(fds_send(ends[0], "x", 1, sent, 5, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), got, 2, 0), 1);
	assert_true(is_null(got[0]) && is_null(got[1]));
	empty(got, 2);
	assert_int_equal(fds_send(ends[0], "x", 1, sent, 5, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), NULL, 0, 0), 1);
	/* A packet of nothing looks like the end of the socket. */
	assert_int_equal(fds_send(ends[0], "", 0, sent, 5, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), got, 2, 0), 0);
	assert_int_equal(got[0], -1);
	empty(sent, 5);
}

/* Room for one has, by its alignment, room for two. */
static void room_of_one(void **state)
{
	FDS_ROOM(1) room;
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof(room) };
	int sent[2], got = -1;

	(void)state;
	fill(sent, 2);
	assert_int_equal(fds_send(ends[0], "x", 1, sent, 2, 0), 0);
	assert_int_equal(recvmsg(ends[1], &msg, MSG_CMSG_CLOEXEC), 1);
	assert_int_equal(fds_take(&msg, &got, 1), 1);
	assert_true(is_null(got));
	close(got);
	empty(sent, 2);
}

static void closed_ends(void **state)
{
	char bytes[8];
	int got;

	(void)state;
	close(ends[1]);
	assert_int_equal(fds_send(ends[0], "x", 1, NULL, 0, 0), -EPIPE);
	ends[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fds_recv(ends[0], bytes, sizeof(bytes), &got, 1, 0), 0);
	assert_int_equal(fds_recv(ends[1], bytes, sizeof(bytes), &got, 1, 0), -ENOTSOCK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_come, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(none_come, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(too_many_are_closed, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(room_of_one, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(closed_ends, open_pair, close_pair),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
