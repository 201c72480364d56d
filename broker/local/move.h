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
#include <sys/types.h>

#include "broker/core/link.h"

struct broker;
struct client;
struct move;
struct server;

#define MOVE_WHY_SIZE 320

/*
 * The steps of a move, as people are told of them. REACH: a link to the other server, a worker there. CHECK: whether the program can be moved at
 * all. COPY: its memory goes, while it runs. LAST: it is held, and what has changed goes. SWITCH: the new worker has all and is asked whether it
 * is what the old one was; the route is switched.
 */
enum move_phase { MOVE_PHASE_REACH, MOVE_PHASE_CHECK, MOVE_PHASE_COPY, MOVE_PHASE_LAST, MOVE_PHASE_SWITCH, MOVE_PHASES };
extern const char *const move_phase_names[MOVE_PHASES];

/* How a move goes on, or how it has ended. Texts are borrowed for the call. */
struct move_news {
	bool over;
	bool done;    /* when it is over */
	bool refused; /* when it isn't done: the program can't be moved, to no server; nothing was touched */
	const char *why; /* when it isn't done */
	pid_t pid;
	const char *program;
	const char *from;
	const char *to;
	enum move_phase phase;
	bool held;	 /* the program waits */
	uint64_t bytes;	 /* of commands for the new worker, contents included */
	uint64_t avoided; /* bytes of contents that needn't be sent, since they are zero */
	uint64_t direct; /* of @bytes, those that went from node to node */
	uint64_t cached; /* bytes of contents that the new node's cache had; not of @bytes */
	const char *way; /* node to node; through this machine; "" or NULL: it isn't known yet, or there is no new worker */
	const char *way_why; /* why not from node to node */
	uint64_t bytes_held; /* of @bytes, while the program was held at the end */
	uint64_t memory; /* bytes that the client has */
	uint64_t left;	 /* of them not looked at yet in this turn */
	uint64_t pause_ns; /* for which it was held at the end */
	uint64_t total_ns;
	uint64_t phase_ns[MOVE_PHASES];
	unsigned rounds; /* turns over its memory while it ran */
	uint64_t commands; /* a checkpoint: those that the program had sent */
};

/* From the loop: at each step, now and then while it goes on, and at the end, whatever becomes of it. */
typedef void move_hear(void *arg, const struct move_news *news);

/*
 * Begins. @gpu < 0: as the client's settings say. @hear may be NULL. -errno and @why: nothing was begun.
 */
int move_start(struct broker *broker, struct client *client, struct server *to, int gpu, move_hear *hear, void *arg, char *why,
	       size_t why_size);
/*
 * A checkpoint of the client's session is written to @fd, which is taken, also on failure. The program is held only as for a move.
 */
int move_save(struct broker *broker, struct client *client, int fd, move_hear *hear, void *arg, char *why, size_t why_size);
/*
 * A client whose server is lost goes on with a worker on @to that becomes what the checkpoint in @fd says; @fd is taken, also on failure.
 * That is the client's last one, and it has sent no command since, or it is refused: what it has seen isn't contradicted.
 */
int move_load(struct broker *broker, struct client *client, struct server *to, int gpu, int fd, move_hear *hear, void *arg, char *why,
	      size_t why_size);
/* Whoever would hear is gone. */
void move_unheard(struct move *move);
/* The client ends, or its link is lost: the move is given up. */
void move_abandon(struct move *move, const char *why);

/* Each round. True: something moved. */
bool move_poll(struct move *move);
/* A frame of the old worker: true if it was for us. */
bool move_frame(struct move *move, const uint8_t *frame, uint32_t size);
/* A message of the old worker's node about the way from there. */
int move_way_poured(struct move *move, const struct link_hdr *hdr, struct reader *body);
/* A message for the new session. */
int move_message(struct mirror *mirror, const struct link_hdr *hdr, struct reader *body);
void move_link_lost(struct move *move, struct server *server, const char *why);

/* Whether it ends with the client's link. */
bool move_needs_link(const struct move *move);

/* Of the client meanwhile, for people: moving, restoring; live while a checkpoint is made. */
const char *move_state(const struct move *move);

#endif
