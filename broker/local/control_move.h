/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleamctl's wishes that programs move. Control thread.
 *
 *	{"cmd":"migrate","pid":N,"server":"NAME","gpu":N}
 *	{"cmd":"drain","server":"NAME","move":1}: all that are there; without "move" control_sched.h has it
 *
 * While it goes on, LOCAL_NEWS packets tell how far it is.
 */
#ifndef GLEAM_LOCAL_CONTROL_MOVE_H
#define GLEAM_LOCAL_CONTROL_MOVE_H

#include <stdbool.h>
#include <sys/types.h>

struct broker;
struct client;
struct json;

/* True: @request was such a wish, and is answered when it has ended. Otherwise an answer is in @json if it was one. */
bool control_move(struct broker *broker, struct client *asker, uid_t uid, const char *request, struct json *json);

#endif
