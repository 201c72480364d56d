/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a move share: move.c (its course), move_old.c, move_new.c (the two workers), move_save.c (checkpoints). Control thread. */
#ifndef GLEAM_LOCAL_MOVE_PRIVATE_H
#define GLEAM_LOCAL_MOVE_PRIVATE_H

#include <pthread.h>

#include "broker/core/loop.h"
#include "broker/local/client_private.h"
#include "broker/local/move.h"
#include "broker/local/replay.h"
#include "broker/local/saver.h"
#include "broker/local/wire.h"

#define MOVE_REPLY_SLOT 0 /* answers with sequence number 0 are ours */

/*
 * LINK, ATTACH: a new worker comes. REST: the program runs. TAKE: no more of its commands go out, and those that have are waited for.
 * SAY: the old worker says something. WAIT: its work isn't done. FILL: the old worker's ring is brought to where the client's is. DRAIN: the new worker plays what
 * waits for it. END: it is asked whether it is what the old one was. ALIGN: its ring is brought to where the client's is. OVER.
 *
 * A checkpoint has a file instead of the new worker: no LINK and ATTACH, and after DRAIN the program goes on, SAVE: until the file is on
 * disk. One that comes back has a file instead of the old worker: OPEN: it is looked at; and after ATTACH, PLAY: what is in it goes to
 * the new worker; then DRAIN, END, and AGAIN: it does what the program has done since.
 */
enum move_stage {
	STAGE_OPEN, STAGE_LINK, STAGE_ATTACH, STAGE_PLAY, STAGE_REST, STAGE_TAKE, STAGE_SAY, STAGE_WAIT, STAGE_FILL, STAGE_DRAIN, STAGE_SAVE,
	STAGE_END, STAGE_AGAIN, STAGE_ALIGN, STAGE_OVER,
};

/*
 * IDLE: nobody has asked for one. NONE: there is none, and why. OPENING: the new node makes a token. REACHING: the old node tries to reach the new one.
 * OPEN. CLOSING: nothing more goes by it. CLOSED: nor can it.
 */
enum move_way_state { WAY_IDLE, WAY_NONE, WAY_OPENING, WAY_REACHING, WAY_OPEN, WAY_CLOSING, WAY_CLOSED };

struct move_way {
	enum move_way_state state;
	uint32_t number;   /* of this move's, at both nodes */
	uint64_t until_ns; /* to be open by then */
	uint64_t head;	   /* of the new session's up arena: said, */
	uint64_t tail;	   /* and used up */
	uint64_t bytes;	   /* that were said by it */
	uint64_t cached;   /* of them, what the new node had; known at the end */
	bool filled;	   /* the new node, */
	bool poured;	   /* and the old one are done with it */
	char why[MOVE_WHY_SIZE];
};

struct move {
	struct mirror mirror; /* first: of the new session */
	struct broker *broker;
	struct loop *loop;
	struct client *client;
	struct server *from;
	struct server *to; /* NULL: a checkpoint */
	struct saver *saver;   /* a checkpoint's; else NULL */
	struct loader *loader; /* one that comes back; else NULL */
	bool loading;
	bool broken; /* atomic: what a lane found */
	struct replay *replay; /* of what came after it; NULL: nothing did */
	struct save_info info; /* of either */
	struct server_waiter waiter;
	struct link *link; /* while on_link */
	bool on_link;
	bool reached; /* STAGE_LINK: there is a link, and the new server has yet to tell what GPUs it has */
	uint8_t token[RESUME_TOKEN_SIZE];
	int gpu;
	enum move_stage stage;
	bool last;	 /* what is said from here on is all there is */
	bool asked_end;
	bool checked;	 /* the old worker has said that it can move */
	bool final;	 /* it has said everything */
	unsigned rounds;
	uint32_t landings; /* that it has told of */
	uint64_t bulk;	 /* frames with bytes that the old worker has sent */

	struct move_way way;

	struct wire new;
	pthread_mutex_t seen_lock; /* lanes hear of a replay's frames, too */
	struct journal_seen seen;  /* of the new worker's frames; guarded by seen_lock */

	/* for the new worker; frames at multiples of FRAME_ALIGN */
	uint8_t *queue;
	size_t queue_at;
	size_t queue_size;
	size_t queue_room;

	uint64_t bytes;
	uint64_t avoided;
	uint64_t bytes_free; /* of bytes, before it was held at the end */
	uint64_t memory;
	uint64_t left;
	enum move_phase phase;
	bool refused;
	uint64_t begun_ns;
	uint64_t phase_begun_ns; /* clock_ns() */
	uint64_t phase_ns[MOVE_PHASES];
	uint64_t moved_ns; /* something has happened */
	uint64_t taken_ns; /* the client's ring was taken */
	uint64_t held_ns;  /* it was taken for good; 0: it isn't */
	uint64_t freed_ns; /* and went on, before the end; 0: it hasn't */
	uint64_t drain_ns; /* the first look at whether all work is done */
	uint64_t rest_ns;
	char from_name[CONF_NAME_SIZE];
	char to_name[CONF_NAME_SIZE];
	char drain_why[256];

	move_hear *hear;
	void *arg;
	struct loop_timer timer;
	struct loop_post post;
};

static inline struct move *move_of(struct mirror *mirror)
{
	return (struct move *)mirror;
}

/* move.c */
/* It begins in the next round, with @stage. NULL: out of memory. */
struct move *move_new(struct broker *broker, struct client *client, struct server *to, int gpu, enum move_stage stage, move_hear *hear,
		      void *arg);
/* -errno and @why: the old worker can't be asked. */
int move_may(const struct client *client, char *why, size_t why_size);
void move_goes_to(struct move *move, enum move_phase phase);
/* The program stays where it is, with the reason. Once; what comes later finds it over. */
void move_failed(struct move *move, const char *format, ...) __attribute__((format(printf, 2, 3)));
void move_over(struct move *move, bool done, const char *why);

/* move_old.c */
/* The client's ring, as soon as all of it is consumed (STAGE_TAKE). */
void move_old_take(struct move *move);
/* The program is held for good, as it seems; of one that shares its memory with its worker: false if the move can't go on from there. */
bool move_direct_stand(struct move *move);
/* The next thing to say, with the ring in our hand; nothing happens while there is no room. */
void move_old_ask(struct move *move);

/* move_new.c */
/* A link to it; then a worker there. */
void move_new_reach(struct move *move);
/* There is a link: a worker, as soon as it is known whether the server has the GPU that was asked for. True: something moved. */
bool move_new_look(struct move *move);
/* It is let go, with its link. */
void move_new_leave(struct move *move);
/* A command for it, of @size bytes; or for the file. */
void move_queue_add(struct move *move, const void *frame, uint32_t size);
/* True: something went. */
bool move_queue_pump(struct move *move);
/* What is said waits for whoever it is said to. */
bool move_queue_is_long(const struct move *move);
bool move_new_has_all(const struct move *move);
/* All is said: is it what the old one was? */
void move_new_end(struct move *move);
/* Its node may forget what has come. */
void move_seen_tell(struct move *move);
/* Of its mirror: lane threads. */
void move_deliver(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size);
void move_room(struct mirror *mirror);
/* From here on the client's session is the new one. */
void move_switch(struct move *move);

/* move_way.c */
/* There is a new worker: a way to it is looked for. */
void move_way_begin(struct move *move);
/* Contents may be asked for: it is open, or there is none. */
bool move_way_is_settled(struct move *move);
/* That the old worker is to say contents by; 0: none. */
uint32_t move_way_number(const struct move *move);
/* As for commands: what is on it waits for the new worker. */
bool move_way_is_long(const struct move *move);
bool move_way_is_empty(const struct move *move);
/* The new worker has used up what came, up to @tail. False: it can't have. */
bool move_way_consumed(struct move *move, uint64_t tail);
/* NOTICE_MOVE_ASIDE of the old worker, without the frame's head. False: it is lost, or nonsense. */
bool move_way_aside(struct move *move, const uint8_t *frame, uint32_t size);
/* All has been said and come: true when nothing else can. Called until then. */
bool move_way_close(struct move *move);
/* The move is over. */
void move_way_end(struct move *move);
/* FILL_OPENED and FILL_CLOSED of the new node; what the old one says is in move.h. */
int move_way_filled(struct move *move, const struct link_hdr *hdr, struct reader *body);

/* move_save.c */
/* Nothing more comes for the file: the program goes on while it is written. */
void move_save_end(struct move *move);
/* The next frames of the file are asked for. */
void move_load_next(struct move *move);
/* It does again what the program has done since the checkpoint. True: something moved. */
bool move_again_poll(struct move *move);

#endif
