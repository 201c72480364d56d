/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seat: a client's session at the node, that is a worker, its memory, and the link its client comes over. Control thread.
 *
 * Spans of the client's ring go into the worker's ring at the same positions; frames of the worker go back over the link,
 * by a bulk lane when they bring bytes. A frame stays in the worker's ring until the broker has told that it came.
 *
 * When its link is lost a seat waits, with its worker, for the broker to come back on another one (seat_away(), seat_resume_due()).
 */
#ifndef GLEAM_NODE_SEAT_H
#define GLEAM_NODE_SEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/core/mirror.h"
#include "broker/node/proc.h"
#include "broker/proto/stats.h"

struct fill;
struct pour;
struct seat;

struct seat_ops {
	/* The seat is off the link; it may wait for another one, or for its worker's end. */
	void (*left)(void *owner, struct seat *seat);
	/* Its worker is gone and no lane holds it: the owner forgets it. */
	void (*freed)(void *owner, struct seat *seat);
	/* Its worker lacks @bytes on GPU @gpu of the node: how many others have been asked to give back what they don't use. */
	unsigned (*is_short)(void *owner, struct seat *seat, uint32_t gpu, uint64_t bytes);
};

/* What a broker asked for. */
struct seat_client {
	uint32_t pid;
	uint32_t uid;
	uint32_t gpus; /* bit per GPU of the node that it was given; 0: all */
	uint32_t grace_ms; /* how long the broker tries to come back; 0: it doesn't */
	uint8_t token[RESUME_TOKEN_SIZE];
	char program[256];
	uint32_t off; /* broker/proto/off.h */
};

/* What a broker that comes back has got. */
struct seat_resume {
	uint64_t frames;
	uint64_t bulk;
	uint8_t bits[RESUME_WINDOW / 8];
};

/* Takes @proc, ready or not; ATTACHED follows when it is. NULL: out of memory, and @proc is killed. */
struct seat *seat_new(struct loop *loop, struct link *link, uint32_t session, const struct seat_client *client,
		      struct proc *proc, const struct seat_ops *ops, void *owner);
/* Ends it for @end. @tell: with LINK_ENDED, or LINK_ATTACHED if it wasn't yet. Repeated calls are harmless. */
void seat_end(struct seat *seat, enum session_end end, const char *why, bool tell);

/*
 * The link is lost: waits at most @limit_ns for another, then ends for END_LINK_LOST. False: it doesn't wait, and seat_end() is to
 * be called. No lane of the link runs any more.
 */
bool seat_away(struct seat *seat, uint64_t limit_ns);
bool seat_is_away(const struct seat *seat);
/* Its broker has come back by @link, on which it is to go on as @session: at once by seat_resume_due() if it is away, else once it is. */
void seat_resume_later(struct seat *seat, struct link *link, uint32_t session, const struct seat_resume *resume);
/* That link; NULL: none. */
struct link *seat_resume_link(const struct seat *seat);
void seat_resume_forget(struct seat *seat);
/* A seat that is away goes on; RESUMED is sent. False: it doesn't, and has ended, since its worker has, or the broker lies. */
bool seat_resume_due(struct seat *seat);
/* The answer for a session that can't be. */
void seat_resume_refuse(struct link *link, uint32_t session, enum session_end end, const char *why);
bool seat_is(const struct seat *seat, const uint8_t token[RESUME_TOKEN_SIZE], const char *tenant);
/* Whether that was its client: a broker that was restarted has the token from the client's own memory. */
bool seat_is_of(const struct seat *seat, uint32_t pid, uint32_t uid);
/* Frames and bulk frames up to which all have come. -EPROTO: they were never sent; ends the seat. */
int seat_seen(struct seat *seat, uint64_t frames, uint64_t bulk);

/*
 * The client is of this machine: it gets the worker's memory itself. From here on the seat moves nothing of it, only what its broker has to
 * say to the worker, and hears (the side rings of broker/proto/ring.h); it still ends with worker and client. A descriptor of the memory,
 * and one for page-locked pages, the caller's; -errno: it stays as it was.
 */
int seat_direct(struct seat *seat, int *pages_out);
/*
 * That client has gone on with another worker and has taken the memory along: the seat leaves it alone, and only waits for its end. The
 * worker must have been held (MOVE_HOLD), and nothing of it may run. -ESRCH: it isn't such a client.
 */
int seat_left(struct seat *seat);

/* Bytes of the client's ring. -EPROTO ends the seat, not the link. */
int seat_span(struct seat *seat, uint64_t position, const void *bytes, uint32_t size);

/* Each round: moves what the worker has written. True when something moved. */
bool seat_poll(struct seat *seat);
/* Asks its client to give back @bytes of GPU @gpu, if it has them and doesn't use them. False: it has none there. */
bool seat_recall(struct seat *seat, uint32_t gpu, uint64_t bytes);
/* False: something has come. */
bool seat_sleep(struct seat *seat);
void seat_wake(struct seat *seat);
/* Whether its client has work that isn't finished, as far as a node sees that, or bytes on their way. */
bool seat_is_busy(const struct seat *seat);
/* It began two seconds ago at most. */
bool seat_is_new(const struct seat *seat);
/* Whether GPU or worker have something to do for it: not while they wait for its bytes. */
bool seat_has_work(struct seat *seat);
/* For as long it has had work; of that @gpu_ns were its own, with those shared out that others had work in, too. */
void seat_account(struct seat *seat, uint64_t busy_ns, uint64_t gpu_ns);
void seat_report(const struct seat *seat, struct report_seat *report_out);

/* Its contents go to another node, or come from one (ways.h); NULL: not any more. Borrowed. */
void seat_pour_set(struct seat *seat, struct pour *pour);
void seat_fill_set(struct seat *seat, struct fill *fill);

struct link *seat_link(const struct seat *seat); /* NULL once it has left, and while it is away */
uint32_t seat_gpus(const struct seat *seat); /* bit per GPU */
struct mirror *seat_mirror(struct seat *seat);
uint32_t seat_session(const struct seat *seat);
uint32_t seat_grace_ms(const struct seat *seat); /* as its broker asked for */

#endif
