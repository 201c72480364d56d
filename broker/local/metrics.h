/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon knows, for Prometheus and its kin: OpenMetrics 1.0 text, as /gleam/metrics shows it. Names and labels stay
 * once they are here; docs/man/gleam.7 lists them. Everybody may read it, so it tells of programs in sums only.
 * Any thread: it knows only what it is given.
 */
#ifndef GLEAM_LOCAL_METRICS_H
#define GLEAM_LOCAL_METRICS_H

#include <stdio.h>

#include "broker/local/state.h"

void metrics_put(FILE *out, const struct state *state);

#endif
