/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of what the daemon knows, for whoever shows it: control socket, /gleam. Copied at once, so it is consistent;
 * read it at leisure. Control thread.
 */
#ifndef GLEAM_LOCAL_STATE_H
#define GLEAM_LOCAL_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "broker/core/link.h"
#include "broker/lib/conf.h"
#include "broker/local/verdicts.h"
#include "broker/proto/ring.h"
#include "broker/proto/stats.h"

struct broker;

struct state_server {
	char name[CONF_NAME_SIZE];
	char address[CONF_ADDRESS_SIZE];
	char state[16];		 /* idle, connecting, ready, unreachable, stopped */
	char why[CONN_WHY_SIZE]; /* of the last failure; "" when it is ready */
	unsigned clients;	 /* of this machine */
	bool linked;		 /* link is valid */
	struct link_stats link;
	char peer[PEER_TEXT_SIZE];
	char host[HELLO_HOST_SIZE];
	bool drained;	 /* takes no new clients: it says so, or we were told */
	double usable;	 /* bytes a second, as the scheduler sees the link; below 0: not known */
	char interface[16]; /* that leads there; "": not known */
	bool reported; /* report is valid */
	double report_age_s;
	double load; /* clients with unfinished work per GPU, mean over 5 s; 0 if not reported */
	bool cached; /* cache is valid */
	struct cache_stats cache;
	struct report report; /* last, for it is large: what lies behind its counts isn't copied */
};

/* What of it is wanted; the rest is zero. */
enum state_part {
	STATE_NAMES = 1 << 0, /* name, address, state, why */
	STATE_LINK = 1 << 1,  /* asks the kernel */
	STATE_PLACE = 1 << 2, /* what the scheduler knows: drained, usable, interface */
	STATE_REPORT = 1 << 3,
	STATE_CACHE = 1 << 4,
	STATE_ALL = (1 << 5) - 1,
};

struct state_client {
	pid_t pid;
	uid_t uid;
	uint32_t session;
	char program[256];
	char server[8 * CONF_NAME_SIZE]; /* "": none yet; of state_client() all that the program has, commas between */
	char state[16];		     /* opening, live, reconnecting, dead */
	char reason[256];	     /* why it is dead or reconnecting */
	bool direct;
	double age_s;
	uint64_t calls;
	uint64_t bytes;
	uint64_t round_trips;
	double waited_s;
	uint64_t inflight; /* bytes */
	uint64_t memory;   /* bytes of device memory */
	double pace;	   /* commands a second that it is held to, for others' sake; 0: any number */
	uint64_t link_sent;
	uint64_t link_received;
};

struct state {
	char version[32];
	char protocol[24];
	char socket[108];
	double age_s;
	char node[CONF_ADDRESS_SIZE]; /* where this daemon's own node listens; "": it is none */
	char node_trouble[256];	      /* why its workers don't start; "" when they do */
	struct report node_report;
	struct verdicts_stats verdicts; /* of all users */

	/* Since the daemon started, of all programs, as they count themselves. */
	uint64_t sessions;
	struct api_count totals;

	struct state_server *servers;
	unsigned server_count;
	struct state_client *clients;
	unsigned client_count;
};

/* NULL: out of memory. state_free() it. */
struct state *state_take(const struct broker *broker);
void state_free(struct state *state);

/*
 * One server (clients aside), one client: cheaper than all of them. False: there is no such one (any more). A session that has moved is known by its
 * first number as well, here and below.
 */
bool state_server(const struct broker *broker, unsigned index, unsigned parts, struct state_server *server_out);
/* How many GPUs it has told of; -ESTALE: there is no such server. */
int state_server_gpus(const struct broker *broker, unsigned index);
/* With what the same process has on other servers: sums, and their names. */
bool state_client(const struct broker *broker, uint32_t session, struct state_client *client_out);

void state_verdicts(const struct broker *broker, struct verdicts_stats *stats_out);

/* Who has a session, without its counters: up to @max of them, in no order. */
struct state_who {
	pid_t pid; /* 0: of a pid namespace that isn't seen from here */
	uid_t uid;
	uint32_t session; /* its first number, by which it stays the same one */
	double age_s;
};
unsigned state_who(const struct broker *broker, struct state_who *who_out, unsigned max);

/* Counters by function (index in gen/api.h) of a client; -ESRCH. @counts_out has SESSION_API_MAX entries. */
/* How long calls of one function took, of a session; all zero where there is none. */
void state_times(const struct broker *broker, uint32_t session, uint32_t api, uint32_t times_out[SESSION_TIMES]);
int state_counts(const struct broker *broker, uint32_t session, struct api_count *counts_out);

/* The scheduler's policy; -EINVAL: there is no such one. Its decisions, a line each. */
const char *state_policy(const struct broker *broker);
int state_policy_set(struct broker *broker, const char *name);
void state_decisions(const struct broker *broker, FILE *out);

/*
 * A client is moved to @where, NAME or NAME:GPU, as gleamctl migrate does. -errno: nothing was begun (move_ask.h; -EINVAL: no such form). 0:
 * @heard is called from the loop when it is known whether it can be moved, 0 or -errno, unless it is forgotten before; the move goes on
 * by itself then. -EOPNOTSUPP: it can't be; -EHOSTUNREACH: the server isn't there or gives it no room.
 */
struct state_wish;
typedef void state_heard(void *arg, int err);
int state_move(struct broker *broker, uint32_t session, const char *where, state_heard *heard, void *arg, struct state_wish **wish_out);
void state_wish_forget(struct state_wish *wish);

/* Links to idle servers are opened, so that the next snapshot knows more. */
void state_refresh(struct broker *broker);

#endif
