// SPDX-License-Identifier: Apache-2.0
/*
 * The log of the software GPU: what a kernel did wrong, what was refused. Any thread. The file is opened at the
 * first line and kept; each line is one write, so that several processes may share the file.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/softgpu/soft.h"

#define LINE_SIZE_MAX 1024

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static int log_fd = -1;

static void log_open(void)
{
	const char *path = getenv("GLEAM_SOFTGPU_LOG");

	if (!path || !*path)
		return;
	if (strcmp(path, "-") == 0)
		log_fd = STDERR_FILENO;
	else
		log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

bool soft_log_on(void)
{
	pthread_once(&log_once, log_open);
	return log_fd >= 0;
}

void soft_log(const char *format, ...)
{
	char line[LINE_SIZE_MAX];
	va_list args;
	int used, size;

	if (!soft_log_on())
		return;
	used = snprintf(line, sizeof(line), "softgpu[%d]: ", (int)getpid());
	va_start(args, format);
	size = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, args);
	va_end(args);
	if (size < 0)
		return;
	used = MIN(used + size, LINE_SIZE_MAX - 2);
	line[used++] = '\n';
	/* A log that can't be written must not disturb the program. */
	if (write(log_fd, line, (size_t)used) < 0)
		return;
}

uint64_t soft_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
