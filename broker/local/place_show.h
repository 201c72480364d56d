/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions of the scheduler, for people. Control thread. */
#ifndef GLEAM_LOCAL_PLACE_SHOW_H
#define GLEAM_LOCAL_PLACE_SHOW_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "broker/lib/json.h"
#include "broker/local/place.h"

/* A line each, oldest first, behind one that names the columns. */
void place_decisions_put(FILE *out, const struct place *place);
/* An array "decisions"; @uid's own alone, unless @all. */
void place_decisions_json(struct json *json, const struct place *place, uid_t uid, bool all);

#endif
