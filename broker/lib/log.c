/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One write() a line, so that lines of several threads don't mix. Any thread.
 */
#include "broker/lib/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"

#define LOG_LINE_MAX 1024

/* set before threads start, then only read */
static const char *log_name = "gleam";
static enum log_level log_level = LOG_LEVEL_INFO;
static bool log_journal;

void log_open(const char *name, enum log_level level)
{
	log_name = name;
	log_level = level;
	log_journal = getenv("JOURNAL_STREAM") != NULL;
}

bool log_on(enum log_level level)
{
	return level <= log_level;
}

int log_level_parse(const char *text, enum log_level *level_out)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(text, names[i]) == 0) {
			*level_out = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_line(enum log_level level, const char *format, ...)
{
	static const char *const words[] = { "error: ", "warning: ", "", "debug: " };
	static const int priorities[] = { 3, 4, 6, 7 };
	char line[LOG_LINE_MAX];
	int at;
	va_list args;

	if (!log_on(level))
		return;
	if (log_journal) {
		at = snprintf(line, sizeof(line), "<%d>", priorities[level]);
	} else {
		struct timespec ts;
		struct tm tm;

		clock_gettime(CLOCK_REALTIME, &ts);
		localtime_r(&ts.tv_sec, &tm);
		at = snprintf(line, sizeof(line), "%02d:%02d:%02d.%03ld %s: %s", tm.tm_hour, tm.tm_min, tm.tm_sec,
			      ts.tv_nsec / 1000000, log_name, words[level]);
	}
	va_start(args, format);
	int more = vsnprintf(line + at, sizeof(line) - (size_t)at - 1, format, args);
	va_end(args);

	int end = at + more;

	if (more < 0)
		return;
	if (end > (int)sizeof(line) - 2)
		end = (int)sizeof(line) - 2;
	/* What came from elsewhere stays on its line. */
	for (int i = at; i < end; i++) {
		if ((unsigned char)line[i] < ' ' || line[i] == 127)
			line[i] = '?';
	}
	line[end++] = '\n';
	while (write(STDERR_FILENO, line, (size_t)end) < 0 && errno == EINTR)
		;
}

bool log_limit_take(struct log_limit *limit, uint32_t *dropped_out)
{
	uint64_t now = clock_ns();

	if (limit->window_ns == 0 || now - limit->window_ns > LOG_LIMIT_NS) {
		limit->window_ns = now;
		limit->count = 0;
	}
	if (limit->count >= LOG_LIMIT_BURST) {
		limit->dropped++;
		return false;
	}
	limit->count++;
	*dropped_out = limit->dropped;
	limit->dropped = 0;
	return true;
}
