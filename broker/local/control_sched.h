/* SPDX-License-Identifier: Apache-2.0 */
/* What gleamctl asks and commands about the scheduler. Control thread. */
#ifndef GLEAM_LOCAL_CONTROL_SCHED_H
#define GLEAM_LOCAL_CONTROL_SCHED_H

#include <stdbool.h>
#include <sys/types.h>

#include "broker/lib/json.h"

struct broker;

/*
 *	{"cmd":"policy"}  {"cmd":"policy","set":NAME}  {"cmd":"decisions"}
 *	{"cmd":"drain"}  {"cmd":"drain","server":NAME}  either with "undo":1
 *
 * False: not one of these. To command is for root and the daemon's own user.
 */
bool control_sched(struct broker *broker, uid_t uid, const struct json_field *fields, unsigned count, struct json *json);

#endif
