/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the kernel module: a static program that runs in a guest (tests/kmod/boot). Each test is a function and
 * runs in a process of its own, so what it leaves open is closed and whoever it started is killed. What fails ends it, with
 * the line.
 */
#ifndef TESTS_KMOD_KT_H
#define TESTS_KMOD_KT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct kt_test {
	const char *name;
	void (*run)(void);
};

struct kt_group {
	const char *name;
	const struct kt_test *tests; /* ends with a NULL name */
};

extern const struct kt_group group_session, group_death, group_broker, group_limit, group_device, group_netlink,
	group_stress, group_fuzz;

/* Also in children: their exit status is 1 then. */
void kt_fail(const char *file, int line, const char *what, long got, long wanted) __attribute__((noreturn));
/* Ends the test; it is counted as skipped. */
void kt_skip(const char *why) __attribute__((noreturn));

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition))                                                                                     \
			kt_fail(__FILE__, __LINE__, #condition, 0, 1);                                                \
	} while (0)

#define SAME(got, wanted)                                                                                             \
	do {                                                                                                          \
		long kt_got = (long)(got), kt_wanted = (long)(wanted);                                                \
		if (kt_got != kt_wanted)                                                                              \
			kt_fail(__FILE__, __LINE__, #got, kt_got, kt_wanted);                                         \
	} while (0)

/* A system call's result: 0 or more, or -errno. */
#define RC(call)                                                                                                      \
	({                                                                                                            \
		long kt_rc = (long)(call);                                                                            \
		kt_rc < 0 ? -(long)errno : kt_rc;                                                                     \
	})

/* Runs @run in a child, as user @uid (0: as it is). Its pid. */
pid_t kt_child(void (*run)(void *arg), void *arg, uid_t uid);
/* Waits; the child must have ended with 0. */
void kt_join(pid_t pid);
void kt_kill(pid_t pid);
/* Until @test(@arg) is true, for 10 s at most: then the test fails. */
#define WAIT_FOR(condition)                                                                                           \
	do {                                                                                                          \
		uint64_t kt_until = kt_now_ms() + 10000;                                                              \
		while (!(condition)) {                                                                                \
			if (kt_now_ms() > kt_until)                                                                   \
				kt_fail(__FILE__, __LINE__, "in time: " #condition, 0, 1);                            \
			kt_nap_ms(2);                                                                                 \
		}                                                                                                     \
	} while (0)
uint64_t kt_now_ms(void);
void kt_nap_ms(unsigned ms);

/* A number in a file; -1 if there is none. */
long kt_read_number(const char *path);
bool kt_read_text(const char *path, char *text, size_t size);
void kt_write_text(const char *path, const char *text);

#endif
