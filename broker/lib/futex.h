/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futexes in memory that processes share. Any thread.
 */
#ifndef GLEAM_LIB_FUTEX_H
#define GLEAM_LIB_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* While *@word is @value: 0 when woken or when it wasn't, -ETIMEDOUT, -EINTR. Negative @timeout_ns: for ever. */
static inline int futex_wait(uint32_t *word, uint32_t value, int64_t timeout_ns)
{
	struct timespec ts = { .tv_sec = timeout_ns / 1000000000, .tv_nsec = timeout_ns % 1000000000 };
	int saved = errno;
	int err = 0;

	if (syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &ts, NULL, 0) < 0)
		err = errno == EAGAIN ? 0 : -errno;
	errno = saved; /* a library's caller may look at it */
	return err;
}

static inline void futex_wake(uint32_t *word, int count)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
	errno = saved;
}

#endif
