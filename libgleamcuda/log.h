/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's log: silent unless GLEAM_LOG asks (1, or any word: stderr; something with a slash: that file is appended to). Any thread, also in destructors.
 */
#ifndef GLEAM_LOG_H
#define GLEAM_LOG_H

#include <stdbool.h>

bool gleam_log_wanted(void);
void gleam_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
