/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exports of the library that are not the driver's.
 */
#ifndef GLEAM_VERSION_H
#define GLEAM_VERSION_H

/* "0.1.0": static text. */
const char *gleam_version(void);
/* Sums over all functions that the process has called: calls, round trips, bytes, ns waited. For programs that measure. */
void gleam_counters(unsigned long long counters_out[4]);

#endif
