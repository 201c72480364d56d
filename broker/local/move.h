/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's session moves to another worker, on the same server or another one, while its program runs. Control thread.
 *
 * The broker stands between: it takes the client's command ring for moments, asks the old worker to say what it is (gleamMoveOut), and
 * plays what that says to a new one. When little has changed since it was said last, and all work is done, the client is held, the
 * rest is said, and its session goes on with the new worker. Whatever fails before that leaves it where it was.
 */
#ifndef GLEAM_LOCAL_MOVE_H
#define GLEAM_LOCAL_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"

struct broker;
struct client;
struct move;
struct server;

#define MOVE_WHY_SIZE 320

/* How a move has ended; what it was. */
struct move_result {
	bool done;
	const char *why; /* when not done */
	const char *from;
	const char *to;
	uint64_t bytes;	 /* of commands for the new worker, contents included */
	uint64_t memory; /* bytes that the client has */
	uint64_t pause_ns;
	uint64_t total_ns;
	unsigned rounds;
};

/* From the loop, whatever becomes of it; before that now and then with NULL, while it goes on. */
typedef void move_done(void *arg, const struct move_result *result);

/*
 * Begins. @gpu < 0: as the client's settings say. @done may be NULL. -errno and @why: nothing was begun.
 */
int move_start(struct broker *broker, struct client *client, struct server *to, int gpu, move_done *done, void *arg, char *why,
	       size_t why_size);
/* Whoever would hear done() is gone. */
void move_unheard(struct move *move);
/* The client ends, or its link is lost: the move is given up. */
void move_abandon(struct move *move, const char *why);

/* Each round. True: something moved. */
bool move_poll(struct move *move);
/* A frame of the old worker: true if it was for us. */
bool move_frame(struct move *move, const uint8_t *frame, uint32_t size);
/* A message for the new session. */
int move_message(struct mirror *mirror, const struct link_hdr *hdr, struct reader *body);
void move_link_lost(struct move *move, struct server *server, const char *why);

const char *move_state(const struct move *move);

#endif
