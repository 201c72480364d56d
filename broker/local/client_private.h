/* SPDX-License-Identifier: Apache-2.0 */
/* What client.c (packets, life) and flow.c (rings) share of a client. */
#ifndef GLEAM_LOCAL_CLIENT_PRIVATE_H
#define GLEAM_LOCAL_CLIENT_PRIVATE_H

#include <pthread.h>
#include <sys/socket.h>

#include "broker/core/mirror.h"
#include "broker/lib/fdpass.h"
#include "broker/local/cache.h"
#include "broker/local/client.h"
#include "broker/local/journal.h"
#include "broker/local/record.h"
#include "broker/local/baton.h"
#include "broker/local/route.h"
#include "broker/local/save.h"
#include "broker/local/server.h"
#include "broker/local/verdicts.h"
#include "broker/proto/span.h"
#include "broker/local/wire.h"

#define CLIENT_PROGRAM_SIZE 256
#define CLIENT_SETTINGS_MAX 4096

/*
 * NEW: has said nothing. ASKING: asks questions (gleamctl). OPENING: waits for a server and its worker. RETURNING: has a session of an
 * earlier daemon, on a server that isn't known yet (adopt.c). LIVE: session runs.
 * DEAD: session has ended, the process is still there. LEAVING: has been refused; closes when it has been told. GONE: closed;
 * waits for operations and lanes.
 */
enum client_state { CLIENT_NEW, CLIENT_ASKING, CLIENT_OPENING, CLIENT_RETURNING, CLIENT_LIVE, CLIENT_DEAD, CLIENT_LEAVING, CLIENT_GONE };

struct packet {
	struct packet *next;
	struct msghdr msg;
	struct iovec iov;
	FDS_ROOM(3) room;
	uint8_t bytes[];
};

struct client {
	struct mirror mirror; /* first: lanes and links know the client by it */
	struct broker *broker;
	struct loop *loop;
	enum client_state state;
	int fd;
	pid_t pid; /* as the kernel says */
	uid_t uid;
	uint32_t claimed_pid; /* as the client sees itself */
	uint32_t born_as; /* the first number of its session; mirror.id is that of today */
	char program[CLIENT_PROGRAM_SIZE];
	char settings[CLIENT_SETTINGS_MAX];
	uint64_t born_ns;
	uint64_t opened_ns; /* when it asked for a session */

	struct route route;
	struct server *server; /* wanted, or in use; stays for people to see after the end */
	struct server_waiter waiter;
	struct link *link; /* while on_link */
	bool on_link;
	struct spans *spans; /* guarded by deliver_lock; of a traced session, else NULL */
	bool resuming; /* on a new link, which hasn't answered yet: nothing flows out */
	uint8_t token[RESUME_TOKEN_SIZE];
	uint8_t identity[SAVE_IDENTITY_SIZE]; /* of the session, wherever it is; zeros before its first checkpoint */
	/* The last checkpoint. Nothing that the program has seen is contradicted by it as long as no command was sent since. */
	struct client_saved {
		bool there;
		uint64_t sequence;
		uint64_t position;
	} saved;
	/*
	 * What was done since that; and since the one that is being written. Guarded by deliver_lock, also changed by the control thread alone.
	 * NULL: nothing is known.
	 */
	struct record *record;
	struct record *record_next;
	bool holds; /* its worker is gone for good, and it waits for somebody to restore that */
	uint64_t wait_until_ns; /* without a link: for it, or for that */
	bool owned; /* the token is this session's: we made it, or its node has said so */
	bool adopted; /* an earlier daemon's */
	uint64_t lost_ns; /* when the link was lost; 0: it is there, or nobody needs it */
	char reason[256];

	/* for the scheduler, since the session is live */
	bool placed;
	uint64_t live_ns;
	uint64_t uploaded;    /* bytes of commands and pieces, whether the cache had them or not */
	uint64_t memory_most; /* bytes of device memory */
	/* what it used on other servers, before it was moved: seconds of the reference GPU, of work */
	struct client_before {
		double gpu;
		double gpu_wall;
		bool moved;
	} before;
	struct report_seat seat; /* what its node has told of it */
	uint64_t seat_ns;	 /* when */
	uint32_t latency_best_us;
	uint64_t commands;	 /* sent */
	uint64_t commands_told;	 /* of them at seat_ns */
	/* it takes more than its part of a GPU: commands a second that it may send; 0: any number */
	double pace;
	double pace_left;	 /* that it may send now */
	uint64_t pace_ns;	 /* when that was counted */
	struct loop_timer pace_timer; /* set: it waits */

	struct verdict_parts verdict; /* what it is about to leave */

	uint8_t *packet; /* LOCAL_MSG_MAX bytes */
	struct msghdr recv_msg;
	struct iovec recv_iov;
	FDS_ROOM(1) recv_room;
	uint64_t recv_tag;
	bool receiving;
	struct packet *out_first;
	struct packet **out_last;
	bool sending;
	uint64_t send_tag;

	int doorbell;
	int kernel_memory; /* of the kernel module's session; -1: we make our own */
	bool limited; /* to single devices of the kernel's, and it was so with an earlier daemon */
	struct client_kernel *kernel; /* what it may use, if that isn't everything; NULL: everything */
	uint64_t bell_value;
	bool bell_armed;

	int pages;   /* direct: the file of page-locked memory that it shares with its worker */
	bool direct; /* it has the memory of a worker of this machine: nothing goes through us; wire is the side ring then */
	bool hold_asked; /* its worker is to take no more commands */
	bool hold_answered; /* and doesn't */
	struct ring c2n;       /* we consume; its position is what has been sent */
	uint64_t acknowledged; /* what the node's worker has consumed: [acknowledged, sent) would be sent again */
	uint64_t sent;
	uint64_t seq; /* of the newest command that was sent */
	struct journal_pieces pieces;

	struct cache_client *cache; /* NULL: nothing of it is cached */
	/* A move (move.h). Positions of the worker's ring are the client's plus delta, a multiple of the ring's size. */
	struct move *move; /* NULL: none */
	uint64_t drain;	   /* number of the drain that has seen to it; 0: none */
	/* Somebody who asks for what takes time: what is told that he is gone, with whatever that is; NULL: he waits for nothing. */
	void (*asks_gone)(void *asks);
	void *asks;
	uint64_t delta;
	bool held;  /* no commands of it go out */
	bool taken; /* the worker's ring is wire's: what is beyond the client's position there is the broker's */
	bool mending;	/* a move has failed: the worker is told to forget it, and the ring is given back */
	bool forgot;	/* it has been told */
	bool given;	/* the ring is the client's again */
	bool forgotten; /* the worker has answered: from here on what it says is of another move */
	struct wire wire;

	struct loop_timer timer; /* greeting, opening, grace */
	struct loop_timer retry; /* overflow */
	struct loop_timer again; /* looks for a link after a lost one */
	struct loop_post post;
	bool settled;

	pthread_mutex_t deliver_lock;
	/* guarded by deliver_lock: lanes deliver, too */
	struct ring n2c; /* we produce */
	struct loop_flush ring_flush; /* queued: its service thread is to be woken if it sleeps, see client_ring(); control thread */
	bool ring_bell; /* it is for more than landings */
	struct ring overflow_in; /* notices that wait for room there: in the memory, so that they outlive us */
	struct ring overflow_out;
	struct journal_seen seen;
	uint64_t up_tail; /* of the up arena, as the node has told; the control thread reads it without */

	/* atomic */
	uint64_t received;
	const char *broken; /* what a lane found; the control thread ends the session */
	bool overflowing;
	bool seen_due; /* the node waits to hear what has come */
};

/* client.c */
/* Its doorbell is heard from now on. */
void client_bell_arm(struct client *client);
void client_gone(struct client *client);
/* Its program has closed its end already, which we hear of in a moment. */
bool client_is_gone(const struct client *client);
/* Whose session it is, for the daemon that comes after us. Borrowed. */
struct baton_name client_baton_name(const struct client *client);
void client_end(struct client *client, enum session_end end, const char *why);
/* Its worker is gone for good: it waits for its checkpoint to be restored, if that would be right. False: it has to end. */
bool client_hold(struct client *client, const char *why);
/* While a checkpoint is restored it doesn't wait for its old server, nor for the end of its time; @on: again. */
void client_waits(struct client *client, bool on);
/* It has a worker again, which isn't the old one. */
void client_found(struct client *client);
/* NULL: its checkpoint can be restored, as far as the client is concerned. Otherwise why not. */
const char *client_lasts(struct client *client);

/* It frees itself when nothing of it is in flight any more. */
void client_settle(struct client *client);
/* It leaves its server; @tell: which is told. */
void client_leave(struct client *client, bool tell);
/* It is off the link. */
void client_unlink(struct client *client);
/* It waits without a link, until then. */
void client_wait_until(struct client *client, uint64_t until_ns);

/* client_open.c */
/* LOCAL_OPEN. -EPROTO: not a packet that we know. */
int client_open(struct client *client, struct reader *r);
/* Of its waiter. */
void client_server_done(struct server_waiter *waiter, struct server *server, int err, const char *why);
/* Seconds of grace begin, or go on; it looks for a link. @client->reason says why it has none. */
void client_wait_for_link(struct client *client);
/* As its environment wants it (GLEAM_CACHE), within what the daemon allows; what it has switched off (GLEAM_OFF). */
void client_settings_use(struct client *client);
/* Of its timers: greeting, opening and grace are over; servers are looked at again; it looks for a link. */
void client_timer(void *arg);
void client_settled(void *arg);
void client_again(void *arg);

/* client_packet.c */
/* A packet to the client; borrowed. */
int client_packet(struct client *client, const void *bytes, size_t size, const int *fds, unsigned fd_count);
/* The answer to LOCAL_OPEN that isn't a session; then the socket closes. */
void client_refuse(struct client *client, enum session_end end, const char *why);
/* Waits for the next packet. */
void client_recv_arm(struct client *client);

/* client_verdict.c */
/* LOCAL_VERDICT, _KEEP or _MORE. -EPROTO: not a packet that we know. */
int client_verdict(struct client *client, uint32_t type, struct reader *r);

/* flow.c */
void client_consumed(struct client *client, uint64_t tail, bool fault);
/* A frame of the node, private memory; @number as in LINK_BULK_DOWN, 0 for one of the command lane. Control and lane threads. */
void client_deliver(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size);
/* Its service thread, for whom there are notices, is woken now and not at the end of the round. */
void client_ring(struct client *client);
/* Of ring_flush. */
void client_ring_run(struct loop_flush *flush);
/* Tells the node on the link that the client is on how far it was heard. */
void client_resume(struct client *client);
/* Its answer. */
void client_resumed(struct client *client, struct reader *body);
/* The worker's ring for the broker, when the client is held and all that it sent is consumed. False: not yet. */
bool client_ring_take(struct client *client);
/* The ring is brought to where the client's is, which goes on. False: not yet. */
bool client_ring_give(struct client *client);
/* After a failed move: it goes on as soon as the worker's ring is right for it. */
void client_mend(struct client *client);
/* Bulk frames up to which all have come. */
uint64_t client_bulk_seen(struct client *client);
/* The client's link is gone: where the worker's ring is will be known when there is another. */
void client_ring_lost(struct client *client);
void client_overflow_retry(void *arg);
/* A frame that its new worker has said while it became that (replay.h), with its cells or NULL. After the session has gone over. */
void client_hand(struct client *client, const uint8_t *frame, uint32_t size, const uint8_t *cells);
/* Commands up to the own position have been consumed, whoever did. */
void client_consumed_all(struct client *client);

/* client_direct.c */
/*
 * Its worker may be a child of this daemon, at the other end of a link to ourselves: then it gets the worker's memory instead of
 * ours, and the link has nothing more to carry than its beginning and end, and moves. Memory of the kernel module stays what it is.
 */
void client_direct(struct client *client);
/* As client_ring_take() and client_ring_give(): its worker takes none of its commands, or does again. */
bool client_direct_take(struct client *client);
bool client_direct_give(struct client *client);
/* A frame with sequence number 0: true if it was for us. */
bool client_direct_frame(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame);
/* While it is held: the rings as they stand. False: what the memory says can't be. */
bool client_direct_stand(struct client *client);
/* May its copies name pages that its worker has mapped? Not while it moves. */
void client_direct_pages(struct client *client, bool allowed);
/* After client_direct_stand(): are there such copies among its commands that its worker hasn't taken? */
bool client_direct_has_pages(const struct client *client);
/* It goes on with another worker: from here on its commands are ours to take, where client_direct_stand() has found them. */
void client_direct_end(struct client *client);

/* adopt.c */
/* LOCAL_RETURN: it has a session of an earlier daemon, in the memory @fd (taken). -EPROTO: not a packet that we know. */
int client_return(struct client *client, struct reader *r, int fd);
/* Its server may be known by now. */
void client_return_look(struct client *client);

#endif
