// SPDX-License-Identifier: Apache-2.0
/*
 * The library's log: one line a message, written whole by one write, so that lines of several processes don't mix.
 * GLEAM_LOG is read once, at the first message. Any thread.
 */
#include "libgleamcuda/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int log_fd = -1;

static void log_open(void)
{
	const char *where = secure_getenv("GLEAM_LOG");

	if (!where || !*where || !strcmp(where, "0"))
		return;
	/* "1", and what people try: "info", "stderr", "yes". A file has a slash in its name, so that none appears by accident. */
	if (!strchr(where, '/'))
		log_fd = STDERR_FILENO;
	else
		log_fd = open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (log_fd >= 0 && log_fd < STDERR_FILENO) {
		/* A closed stdout or stdin of the program is not ours to fill. */
		int above = fcntl(log_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

		close(log_fd);
		log_fd = above;
	}
}

bool gleam_log_wanted(void)
{
	pthread_once(&once, log_open);
	return log_fd >= 0;
}

void gleam_log(const char *format, ...)
{
	char line[512];
	va_list args;
	int size;

	if (!gleam_log_wanted())
		return;
	size = snprintf(line, sizeof(line), "gleam[%d]: ", (int)getpid());
	va_start(args, format);
	size += vsnprintf(line + size, sizeof(line) - (size_t)size - 1, format, args);
	va_end(args);
	if (size > (int)sizeof(line) - 2)
		size = (int)sizeof(line) - 2;
	line[size++] = '\n';
	/* A full or closed log is no reason to disturb the program. */
	if (write(log_fd, line, (size_t)size) < 0)
		return;
}
