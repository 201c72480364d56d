/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler's files share: its tables, and the interface of policies. See sched.h. */
#ifndef GLEAM_LOCAL_SCHED_PRIVATE_H
#define GLEAM_LOCAL_SCHED_PRIVATE_H

#include "broker/local/sched.h"

/* What stands for what nobody has measured yet: a plain LAN and a program of moderate needs. */
#define SCHED_RTT_DEFAULT	0.0005
#define SCHED_BANDWIDTH_DEFAULT 117e6
#define SCHED_SPEED_DEFAULT	1.0
#define SCHED_START_WARM	0.05 /* attach of a worker that waits */
#define SCHED_START_COLD	0.5  /* start of a process, cuInit, its context */

#define SCHED_SHUN_S	5.0  /* a node that failed a client is tried after the others for so long */
#define SCHED_SETTLE_S	2.0  /* a node that has come back is tried after the others for so long, doubled with each flap */
#define SCHED_SETTLE_MAX_S 64.0
#define SCHED_CALM_S	30.0 /* up for so long, it has one flap less */
#define SCHED_STALE_S	3.0  /* a report that is older counts less and less */
#define SCHED_OTHERS	1.0  /* what a second of another's counts against one's own */
#define SCHED_NEAR	1.05 /* a second best within this factor may be taken as well */
#define SCHED_BIAS_MIN	0.5
#define SCHED_BIAS_MAX	16.0
#define SCHED_BIAS_HALF_S 300.0 /* a node's bias loses half of itself in so long */

struct sched_node {
	char name[SCHED_NAME_SIZE];
	struct sched_node_state state;
	double up_at;	  /* since when it is up */
	double calm_at;	  /* when its flaps were looked at last */
	double failed_at; /* SCHED_UNKNOWN: never, or it has served since */
	unsigned flaps;
	bool seen_up;
	/* own clients there */
	uint32_t clients;
	uint32_t latency_clients;
	double duty;	  /* sum of their shares of time with GPU work */
	double link_duty; /* sum of their shares of time with bytes on the way */
	double memory;	  /* bytes that they are going to allocate yet */
	/* how much longer runs took than was predicted: logarithm */
	double bias;
	double bias_at;
};

struct sched_client {
	uint32_t id;
	uint32_t node;
	uint64_t key;
	uint64_t decision;
	enum sched_priority priority;
	bool known;
	bool rough;
	struct sched_profile profile; /* as expected at its start */
	double added_at;
	double duty;
	double link_duty;
	double memory_due;
	struct sched_usage used;
	bool pinned; /* it asked for its node by name */
	/* a better node, since when it is better */
	uint32_t better;
	double better_at;
	double moved_at;    /* SCHED_UNKNOWN: never */
	double still_until; /* a move came to nothing: none before that */
};

/* A node that could take the request; costs are there for the policies that want them. */
struct sched_candidate {
	uint32_t node;
	struct sched_cost cost;
	double load; /* clients with unfinished GPU work a GPU, as far as it is known now */
};

/*
 * A policy. choose() gets at least one candidate, in the order in which nodes were added, and returns the place of the one it takes; @second_out: of the
 * next best, or @count. State is its own, in the scheduler's policy_word.
 */
struct sched_policy {
	const char *name;
	uint32_t (*choose)(struct sched *sched, const struct sched_request *request, const struct sched_candidate *candidates,
			   uint32_t count, uint32_t *second_out);
};

extern const struct sched_policy sched_policy_cost;
extern const struct sched_policy sched_policy_least_loaded;
extern const struct sched_policy sched_policy_round_robin;
extern const struct sched_policy sched_policy_pinned;

struct sched {
	struct sched_node *nodes;
	uint32_t node_count;
	uint32_t node_max;
	struct sched_candidate *candidates; /* node_max of them: scratch of a decision */
	struct sched_client *clients;
	uint32_t client_count;
	uint32_t client_max;
	const struct sched_policy *policy;
	uint64_t policy_word;
	uint64_t random;
	double speed_typical; /* mean of nodes' speeds, for programs of which nothing is known */
	struct sched_decision decisions[SCHED_DECISIONS];
	uint64_t decision_count; /* made so far */
	bool moves;
	double move_cost;
};

uint64_t sched_random(struct sched *sched);
/* NULL: there is no such one. Until the next is added or removed. */
struct sched_client *sched_client_find(struct sched *sched, uint32_t id);
/* Whether the node may get the request; @doubtful_out: it may be gone in a moment. */
bool sched_node_takes(const struct sched *sched, uint32_t node, const struct sched_request *request, double now, bool *doubtful_out);
/* Why none takes it, for each that might have been thought of. */
void sched_why_none(const struct sched *sched, const struct sched_request *request, double now, char *why, size_t why_size);
struct sched_decision *sched_decision_new(struct sched *sched, const struct sched_request *request, double now);
/* NULL: it isn't remembered any more. */
struct sched_decision *sched_decision_find(struct sched *sched, uint64_t number);
/* The cost as above, with the load that is told replaced: a client's own part of it taken out. */
void sched_cost_without(const struct sched *sched, uint32_t node, const struct sched_request *request, double now, double own_duty,
			double own_link_duty, struct sched_cost *cost_out);
static inline double sched_known_or(double value, double otherwise)
{
	return value >= 0 ? value : otherwise;
}
double sched_bias(const struct sched_node *node, double now); /* factor */
double sched_load(const struct sched_node *node, double now);

#endif
