/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of gleamctl on the local socket: JSON in, JSON out. Control thread. */
#ifndef GLEAM_LOCAL_CONTROL_H
#define GLEAM_LOCAL_CONTROL_H

#include <sys/types.h>

struct broker;
struct client;
struct json;

/* Sends the answer, which may be that the question is not understood. -errno: the asker is to be closed. */
/* Takes @fd, which came with it (-1: none). */
int control_answer(struct broker *broker, struct client *client, uid_t uid, const char *request,
		   int fd);

/* Sends what is known of the GPUs of @server, "" for all servers (LOCAL_GPUS); -errno likewise. */
int control_gpus(struct broker *broker, struct client *client, uid_t uid, const char *server);
/* Sends an answer; takes its text. -errno as above. */
int control_send(struct client *client, struct json *json);
/* {"error": "..."}. */
void control_refuse(struct json *json, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How what was asked for goes on: one object of some KiB at most, before the answer. Takes its text. */
void control_news(struct client *client, struct json *json);

#endif
