/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections that gleam-chaos carries: a client and the target, a pipe each way, and what holds them
 * up. They live in a table of fixed size, on the thread of the proxy's loop, which tells them of events and
 * settles them after every round.
 */
#ifndef TESTS_FAULT_CHAOS_CONN_H
#define TESTS_FAULT_CHAOS_CONN_H

#include "tests/fault/chaos_conf.h"

#include <sys/socket.h>

/* Connections at once; who comes beyond is closed. */
#define CONN_MAX 256
/* epoll's user data of side i of connection n is CONN_EVENT + 2 n + i; the proxy's own is below. */
#define CONN_EVENT 1000u

/* Side 0 is the client, side 1 the target; what side i sends goes into pipe i. */
struct conn {
	int fd[2]; /* -1: closed */
	bool used;
	bool connecting;     /* to the target */
	bool doomed;	     /* reset both sides at the end of this round */
	bool closing;	     /* close both sides then */
	bool ended[2];	     /* this side has sent its last byte */
	bool ended_on[2];    /* and the other side has been told */
	bool broken[2];	     /* reset by its peer, and the descriptor is out of epoll */
	bool blocked[2];     /* the last write to this side would have blocked */
	uint32_t watched[2]; /* what epoll waits for; 0: not in epoll */
	struct pipe *pipe[2];
};

struct conn_table {
	int epoll_fd;
	/* what new connections get */
	struct sockaddr_storage target;
	socklen_t target_size;
	struct pipe_conf lane[CHAOS_LANES];
	uint64_t seed;
	uint64_t times; /* the positions hold for so many connections */
	/* what holds for all */
	bool stall[CHAOS_LANES];
	bool swallow[CHAOS_LANES];
	/* what was seen */
	uint64_t total, reset_total;
	uint64_t bytes[CHAOS_LANES], swallowed[CHAOS_LANES], flipped[CHAOS_LANES];
	struct conn conn[CONN_MAX];
};

uint64_t conn_now_ns(void);

/* Takes @client_fd if it returns a connection; NULL: no room. It leads nowhere until conn_dial(). */
struct conn *conn_new(struct conn_table *table, int client_fd);
/* Connects to the target; where that fails the connection is reset when it is settled. */
void conn_dial(struct conn_table *table, struct conn *conn);
/* epoll reported @events with CONN_EVENT + @which. */
void conn_event(struct conn_table *table, uint32_t which, uint32_t events);
/* Passes on what is due, tells ends on, ends what is to end, and renews what is waited for. */
void conn_settle(struct conn_table *table, struct conn *conn);
/* When conn_settle() is to be called though no event comes, or PIPE_NEVER. */
uint64_t conn_next_ns(const struct conn_table *table, const struct conn *conn);
/* Closes both sides. */
void conn_free(struct conn_table *table, struct conn *conn);

#endif
