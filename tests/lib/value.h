/* SPDX-License-Identifier: Apache-2.0 */
/* Values as people write them on the command lines of lanem and gleam-chaos. No state, any thread. */
#ifndef TESTS_LIB_VALUE_H
#define TESTS_LIB_VALUE_H

#include <stdint.h>

/*
 * Each returns 0 and fills its output, or -EINVAL (no such value, output untouched) or -ERANGE (too large
 * to mean anything: the limits are in value.c).
 */

/* "5" and "5ms" are milliseconds; "200us", "1.5s", "2min" too. */
int value_time(const char *text, uint64_t *ns_out);

/* "1gbit", "100mbit/s", "500k", "9600"; "0" and "unlimited" give 0, which stands for no limit. */
int value_rate(const char *text, uint64_t *bit_per_s_out);

/* "64k", "1m", "1500": powers of 1024. */
int value_size(const char *text, uint64_t *bytes_out);

/* "0.01" or "1%". */
int value_share(const char *text, double *share_out);

/* A plain decimal number, at most @max. */
int value_count(const char *text, uint64_t max, uint64_t *count_out);

#endif
