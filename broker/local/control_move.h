/* SPDX-License-Identifier: Apache-2.0 */
/* gleamctl's wish that a program moves. Control thread. */
#ifndef GLEAM_LOCAL_CONTROL_MOVE_H
#define GLEAM_LOCAL_CONTROL_MOVE_H

#include <stdbool.h>
#include <sys/types.h>

struct broker;
struct client;
struct json;

/* True: @request was such a wish, and is answered when the move has ended. Otherwise an answer is in @json if it was one. */
bool control_move(struct broker *broker, struct client *asker, uid_t uid, const char *request, struct json *json);

#endif
