/* SPDX-License-Identifier: Apache-2.0 */
/* gleamctl's wishes for checkpoints. Control thread. */
#ifndef GLEAM_LOCAL_CONTROL_SAVE_H
#define GLEAM_LOCAL_CONTROL_SAVE_H

#include <stdbool.h>
#include <sys/types.h>

struct broker;
struct client;
struct json;

/*
 * {"cmd": "checkpoint", "pid": ...} with a file to write, {"cmd": "restore", "pid": ...} with one to read; taken from *@fd. True: the answer
 * comes later. False: not one of these, or @json has the answer already.
 */
bool control_save(struct broker *broker, struct client *asker, uid_t uid, const char *request, int *fd, struct json *json);

#endif
