/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The secured connection that two gleamctl pair talk over: TLS 1.3 with a key made of the code that one side shows and the
 * other is given. Nothing of a peer without the code is looked at. Blocking, with a limit on every wait. One thread.
 */
#ifndef GLEAMCTL_PAIR_CHANNEL_H
#define GLEAMCTL_PAIR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>

#define PAIR_PORT	"4712"
#define PAIR_CODE_SIZE	24 /* four groups of five letters, 100 bits: nobody finds it by trying, not even with a recording */
#define PAIR_LINE_MAX	512

/* A new code: shown once, good for one pairing. -errno. */
int pair_code_make(char code_out[PAIR_CODE_SIZE]);
/* As it was typed: small letters, spaces, no dashes. False: can't be a code. */
bool pair_code_read(const char *typed, char code_out[PAIR_CODE_SIZE]);

struct pair_channel;

/* Takes @fd, connected. -EACCES: the codes differ; -ETIMEDOUT, -EPIPE. */
int pair_channel_open(int fd, bool server, const char *code, struct pair_channel **channel_out);
void pair_channel_close(struct pair_channel *channel);
/* A line without its newline. -errno. */
int pair_channel_put(struct pair_channel *channel, const char *line);
/* The next line; -EPROTO: it is too long, or has bytes that no line has. */
int pair_channel_get(struct pair_channel *channel, char line_out[PAIR_LINE_MAX]);

#endif
