/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A seat: a client's session at the node, that is a worker, its memory, and the link its client comes over. Control thread.
 *
 * Spans of the client's ring go into the worker's ring at the same positions; frames of the worker go back over the link,
 * by a bulk lane when they bring bytes.
 */
#ifndef GLEAM_NODE_SEAT_H
#define GLEAM_NODE_SEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/core/mirror.h"
#include "broker/node/proc.h"

struct seat;

struct seat_ops {
	/* The seat is off the link; it may still wait for its worker's end. */
	void (*left)(void *owner, struct seat *seat);
	/* Its worker is gone and no lane holds it: the owner forgets it. */
	void (*freed)(void *owner, struct seat *seat);
};

/* What a broker asked for. */
struct seat_client {
	uint32_t pid;
	uint32_t uid;
	uint32_t gpus; /* bit per GPU of the node that it was given; 0: all */
	char program[256];
};

/* Takes @proc, ready or not; ATTACHED follows when it is. NULL: out of memory, and @proc is killed. */
struct seat *seat_new(struct loop *loop, struct link *link, uint32_t session, const struct seat_client *client,
		      struct proc *proc, const struct seat_ops *ops, void *owner);
/* Ends it for @end. @tell: with LINK_ENDED, or LINK_ATTACHED if it wasn't yet. Repeated calls are harmless. */
void seat_end(struct seat *seat, enum session_end end, const char *why, bool tell);

/* Bytes of the client's ring. -EPROTO ends the seat, not the link. */
int seat_span(struct seat *seat, uint64_t position, const void *bytes, uint32_t size);

/* Each round: moves what the worker has written. True when something moved. */
bool seat_poll(struct seat *seat);
/* False: something has come. */
bool seat_sleep(struct seat *seat);
void seat_wake(struct seat *seat);
/* Whether its client has work that isn't finished, as far as a node sees that. */
bool seat_is_busy(const struct seat *seat);

struct link *seat_link(const struct seat *seat); /* NULL once it has left */
uint32_t seat_gpus(const struct seat *seat); /* bit per GPU */
uint32_t seat_session(const struct seat *seat);

#endif
