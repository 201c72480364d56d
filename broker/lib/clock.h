/* SPDX-License-Identifier: Apache-2.0 */
/* Time that never steps. Any thread. */
#ifndef GLEAM_LIB_CLOCK_H
#define GLEAM_LIB_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

#endif
