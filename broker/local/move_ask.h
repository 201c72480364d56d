/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wishes that a program moves, whoever has them: gleamctl, a server's name written to a file, a drain, the scheduler. What is asked for is
 * looked at here before anything begins. Control thread.
 */
#ifndef GLEAM_LOCAL_MOVE_ASK_H
#define GLEAM_LOCAL_MOVE_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/local/move.h"

struct json;

#define MOVES_MAX 4u /* at a time: each takes memory here, and its share of two links */

#define MOVE_SESSIONS_MAX 8u /* of a process, as many as its library opens */

/* The first session of a process that @uid may move; NULL: there is none, or it is another user's. */
struct client *move_ask_client(const struct broker *broker, uint64_t pid, uid_t uid);
/* All of its process, in the order in which they were opened; how many. */
unsigned move_ask_sessions(const struct broker *broker, struct client *client, struct client *sessions_out[MOVE_SESSIONS_MAX]);
/* The @number-th of them; NULL: there are fewer, of which *@count_out says how many. */
struct client *move_ask_session_at(const struct broker *broker, struct client *client, uint64_t number, unsigned *count_out);
/*
 * That of a process which has its worker on server @from; NULL: the only one. NULL and @why: there is none there, or there are several, and
 * none was named.
 */
struct client *move_ask_session(const struct broker *broker, struct client *client, const char *from, char *why, size_t why_size);
/* NULL: there is no such server. */
struct server *move_ask_server(const struct broker *broker, const char *name);
/* Whether one more may begin. */
bool move_ask_has_room(const struct broker *broker);

/*
 * Begins a move. @to NULL: to another server than it is on; @gpu < 0: as the program's settings say. -errno and @why: nothing was begun,
 * and @hear is not called. -ENOENT no such server or GPU, -EBUSY it is being moved, -EAGAIN MOVES_MAX are or its link is lost at the moment,
 * -ESRCH it has no session any more, -EPERM, -EOPNOTSUPP it can't be moved.
 */
int move_ask(struct broker *broker, struct client *client, struct server *to, int gpu, move_hear *hear, void *arg, char *why,
	     size_t why_size);

/* Members of an object that tell how it goes, or what came of it. */
void move_news_json(struct json *json, const struct move_news *news);

#endif
