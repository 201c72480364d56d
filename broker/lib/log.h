/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of the daemons: lines on stderr, with a syslog priority in front where stderr is the journal. Any thread.
 */
#ifndef GLEAM_LIB_LOG_H
#define GLEAM_LIB_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 0,
	LOG_LEVEL_WARN = 1,
	LOG_LEVEL_INFO = 2,
	LOG_LEVEL_DEBUG = 3,
};

/* Before the first thread starts. @name stands in front of lines on a terminal or in a file. */
void log_open(const char *name, enum log_level level);
bool log_on(enum log_level level);
/* "error", "warn", "info", "debug"; -EINVAL otherwise. */
int log_level_parse(const char *text, enum log_level *level_out);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                                                                         \
	do {                                                                                                   \
		if (log_on(LOG_LEVEL_DEBUG))                                                                   \
			log_line(LOG_LEVEL_DEBUG, __VA_ARGS__);                                                \
	} while (0)

/* At most @burst lines in ten seconds for one cause, so that strangers can't fill the disk. One thread. */
struct log_limit {
	uint64_t window_ns;
	uint32_t count;
	uint32_t dropped;
};
#define LOG_LIMIT_BURST 10u
#define LOG_LIMIT_NS	10000000000ull

/* Whether to log now. @dropped_out: how many were not logged before this one. */
bool log_limit_take(struct log_limit *limit, uint32_t *dropped_out);

#endif
