/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a seat: seat.c (its life, what goes down to the worker), seat_up.c (what comes up from it) and seat_away.c (without a link).
 * Control thread. Times are nanoseconds of the loop's clock, positions and tails bytes of a ring that run freely.
 */
#ifndef GLEAM_NODE_SEAT_PRIVATE_H
#define GLEAM_NODE_SEAT_PRIVATE_H

#include "broker/lib/slot.h"
#include "broker/node/fill.h"
#include "broker/node/pour.h"
#include "broker/node/seat.h"
#include "broker/node/work.h"

#define SEAT_CONSUMED_NS    (1 * NS_PER_MS)	  /* less is told after this */
#define SEAT_UNSEEN_MAX	    4096u /* frames that the broker hasn't told to have come: a window at 1 ms and 4 million frames a second */

/*
 * BEGUN: waits for the worker. LIVE: frames flow. AWAY: without a link; worker and memory wait for another one. LEFT: off the link
 * for good; the worker has been told to end. GONE: no worker any more; waits for lanes that still hold the memory.
 */
enum seat_state { SEAT_BEGUN, SEAT_LIVE, SEAT_AWAY, SEAT_LEFT, SEAT_GONE };

struct seat {
	struct mirror mirror; /* first: lanes know the seat by it */
	struct loop *loop;
	struct link *link;
	struct seat_client client;
	enum seat_state state;
	const struct seat_ops *ops;
	void *owner;
	struct proc *proc;
	int doorbell;
	int pages; /* for page-locked memory of a client of this machine */
	uint64_t bell_value;
	uint64_t bell_tag;
	bool bell_armed;

	struct ring c2n; /* we produce */
	struct ring n2c; /* we consume */
	uint64_t told;	 /* tail of c2n that the broker knows */
	uint64_t seen;	 /* tail of c2n as last read and found sane */
	uint64_t look_ns; /* pause until the next look at a tail that doesn't move */
	struct loop_timer consumed;

	/* Frames that were sent and haven't been told to have come: where each ends in n2c, bit 0 set for bulk frames. */
	uint64_t unseen[SEAT_UNSEEN_MAX];
	uint64_t unseen_head; /* counts run freely, as numbers of frames do */
	uint64_t unseen_tail;
	uint64_t frames_sent;
	uint64_t frames_seen; /* those that have been dropped from unseen */
	uint64_t bulk_sent;
	uint64_t bulk_seen;
	uint64_t n2c_kept; /* what of n2c has been given back to the worker ends here */
	struct seat_resume had; /* what the broker of a resumed session has: numbers up to here aren't sent again */

	struct loop_timer ask;	/* until the broker is asked what has come */
	struct loop_timer away; /* until it is given up */
	char host[HELLO_HOST_SIZE];
	char tenant[KEY_TENANT_SIZE];
	struct link *later_link; /* to resume on, once away; NULL: none */
	uint32_t later_session;
	struct seat_resume later;
	enum session_end over; /* the worker ended while we were away, or END_NONE */
	char over_why[PROC_WHY_SIZE];

	uint64_t born_ns;

	/* for the load */
	struct work work;
	uint64_t busy_ns;
	uint64_t gpu_ns;
	bool direct;	     /* the client has the memory itself; our rings are the side rings */
	bool left;	     /* it has gone on elsewhere, with the memory: that is not ours any more */
	uint32_t short_seen; /* short_asked of its memory that has been answered */

	/* while it moves, see ways.h */
	struct pour *pour;
	struct fill *fill;

	struct loop_post post;
};

/* Off its link: no lane finds it any more. */
void seat_unlink(struct seat *seat);
/* Whatever it waits for: of a client that shares its memory, too. */
void seat_wake_worker(struct seat *seat);

/* ---- seat_up.c ---- */

/* The worker's tail of c2n. False when it is nonsense. */
bool seat_tail_look(struct seat *seat);
/* What the worker did isn't the protocol: the seat ends, and the log says @what. */
void seat_broken(struct seat *seat, const char *what);
/* Frames that have come are dropped, oldest first; the worker gets their room back. */
void seat_drop_seen(struct seat *seat, uint64_t frames, uint64_t bulk);
/* Of timers; @arg is the seat: freed ring is told late; the broker is asked what has come. */
void seat_consumed_late(void *arg);
void seat_ask(void *arg);

/* ---- seat_away.c ---- */

/* Of a timer; @arg is the seat: its broker did not come back. */
void seat_away_over(void *arg);

#endif
