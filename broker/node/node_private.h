/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a node: node.c (its life, peers and their messages), node_seat.c (what these want of sessions) and node_report.c (what they
 * are told of the load). Control thread. Times are nanoseconds of the loop's clock.
 */
#ifndef GLEAM_NODE_NODE_PRIVATE_H
#define GLEAM_NODE_NODE_PRIVATE_H

#include "broker/lib/clock.h"
#include "broker/node/cache.h"
#include "broker/node/gate.h"
#include "broker/node/gpus.h"
#include "broker/node/node.h"
#include "broker/node/pool.h"
#include "broker/node/probe.h"
#include "broker/node/seat.h"
#include "broker/node/ways.h"

#define NODE_PEERS_MAX	   256
#define NODE_SAMPLE_NS	   (100 * NS_PER_MS)
#define NODE_SAMPLES	   50 /* five seconds of them: what `load` is the mean over */
#define NODE_SAMPLES_NOW   10 /* a second: for schedulers, which are to change their minds within two */

struct peer {
	struct node *node;
	struct link *link;
	struct cache_peer *cache; /* NULL: it has none */
	unsigned seats;
	uint64_t report_ns; /* 0: not wanted */
	uint64_t report_due_ns;
	uint32_t samples[NODE_SAMPLES_NOW]; /* of its clients, at the places of the node's */
	uint64_t bytes;	 /* over its link, when they were looked at last */
	uint64_t rate;	 /* a second */
};

struct node {
	struct loop *loop;
	const struct conf *conf;
	struct link_setting link_setting;
	struct proc_setting proc_setting;
	struct gate *gate;
	struct pool *pool;
	struct probe *probe;
	struct cache *cache;
	struct ways *ways;
	bool stopping;

	struct peer *peers[NODE_PEERS_MAX];
	unsigned peer_count;
	struct seat **seats; /* conf->sessions_max; also those that wait for their worker's end */
	unsigned seat_count;
	unsigned seat_max;
	unsigned attached; /* of them on a link */

	struct loop_timer sample;
	uint32_t samples[NODE_SAMPLES];
	unsigned sample_at;
	unsigned sample_count;
	uint64_t rate_ns; /* when the links' bytes were counted */
	uint64_t rate;	  /* of all links */

	uint64_t account_ns; /* until when seats' work has been counted */
	bool *had_work;	     /* sessions_max: by seat, since then */
	bool draining;
};

/* ---- node_seat.c: messages of peers; -errno is a breach, which ends the peer's link ---- */

/* NULL: the link is no peer's, or not any more. */
struct peer *peer_of(const struct node *node, const struct link *link);
/* A peer's seat by number, to be given back; NULL: there is none. *@depot_out: it holds what was moved there, and has no client. */
struct seat *peer_seat(const struct peer *peer, uint32_t session, bool *depot_out);
void peer_seat_put(struct seat *seat);
/* The GPUs as they are now: who has them, and what is free. */
void gpus_look(const struct node *node, struct gpus_have *have_out);
int node_attach(struct node *node, struct peer *peer, uint32_t session, struct reader *body);
int node_span(struct peer *peer, const struct link_hdr *hdr, struct reader *body);
int node_span_blank(struct peer *peer, const struct link_hdr *hdr, struct reader *body);
int node_ref(struct peer *peer, const struct link_hdr *hdr, struct reader *body);
int node_resume(struct node *node, struct peer *peer, uint32_t session, struct reader *body);
int node_seen(struct peer *peer, uint32_t session, struct reader *body);
int node_detach(struct peer *peer, uint32_t session);
int node_detach_away(struct node *node, struct peer *peer, struct reader *body);
/* How long a seat whose link is lost waits for its broker; 0: not at all. */
uint64_t node_away_ns(const struct node *node, const struct seat *seat);
/* A seat that is away, and whose broker is back, goes on. */
void node_resume_due(struct node *node, struct seat *seat);

/* ---- node_report.c ---- */

void report_send(struct node *node, struct peer *peer);
/* Of a timer; @arg is the node: counts who has work, and reports to those whose time it is. */
void node_sample(void *arg);
/* Whose work was there since the last look; the GPUs' time is shared out among them. */
void node_account(struct node *node, bool now_idle);

#endif
