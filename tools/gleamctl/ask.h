/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the local gleamd: one JSON request, one JSON answer, over its socket. One thread.
 */
#ifndef GLEAMCTL_ASK_H
#define GLEAMCTL_ASK_H

#include <stdbool.h>

#include <jansson.h>

/* The socket asked for (--socket, GLEAM_SOCKET), or where a daemon of the user or of the machine listens. Static. */
const char *ask_socket(const char *asked);

/* Whether somebody listens there; says nothing. */
bool ask_is_there(const char *socket_path);

/* A connection that does nothing but end with the daemon; -1: there is none. The caller's. */
int ask_watch(const char *socket_path);

/*
 * Sends {"cmd": @cmd, ...@args}. Takes @args (NULL: none). The answer belongs to the caller; NULL after one line on stderr
 * that says what and what to do.
 */
json_t *ask(const char *socket_path, const char *cmd, json_t *args);
/* The same with a descriptor, which stays the caller's. */
json_t *ask_with(const char *socket_path, const char *cmd, json_t *args, int passed);
/* The same for what takes time: @news gets what the daemon tells meanwhile. */
typedef void ask_news(void *arg, const json_t *news);
json_t *ask_hearing(const char *socket_path, const char *cmd, json_t *args, ask_news *news, void *arg);
/* Both. */
json_t *ask_hearing_with(const char *socket_path, const char *cmd, json_t *args, int passed, ask_news *news, void *arg);
/* The same for whoever has no stderr: the line goes to @why. */
json_t *ask_quietly(const char *socket_path, const char *cmd, json_t *args, char *why, size_t why_size);

#endif
