/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the standard error stream. Any thread; see note.h.
 */
#include "broker/worker/note.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "broker/worker/state.h"

#define LINE_MAX_SIZE 512 /* below PIPE_BUF: lines of several writers do not mix */

static void line_write(const char *format, va_list args)
{
	char line[LINE_MAX_SIZE];
	int size = vsnprintf(line, sizeof(line) - 1, format, args);

	if (size < 0)
		return;
	if ((size_t)size > sizeof(line) - 2)
		size = sizeof(line) - 2;
	line[size++] = '\n';
	/* Nobody to tell when the node does not read any more. */
	ssize_t written = write(STDERR_FILENO, line, (size_t)size);

	(void)written;
}

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line_write(format, args);
	va_end(args);
}

void note(const struct worker *w, const char *format, ...)
{
	va_list args;

	if (!w->settings.verbose)
		return;
	va_start(args, format);
	line_write(format, args);
	va_end(args);
}
