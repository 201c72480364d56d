/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: which node a program gets. It knows only what it is told, has no clock, does no I/O and allocates only in
 * sched_new(), sched_node_add() and sched_client_add(), so that gleamd and tools/gleam-sim run the same code. One thread at a time.
 *
 * Times are seconds on the caller's clock, sizes bytes, rates bytes a second, all as double. Speed is relative to a
 * reference GPU. See docs/scheduler.md for the model and its reasons.
 */
#ifndef GLEAM_LOCAL_SCHED_H
#define GLEAM_LOCAL_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/local/sched_profile.h"

#define SCHED_NAME_SIZE	   64
#define SCHED_TEXT_SIZE	   900
#define SCHED_DECISIONS	   128	 /* that are remembered */
#define SCHED_NONE	   UINT32_MAX
#define SCHED_UNKNOWN	   (-1.0) /* a number that nobody has measured */

struct sched;

/* ---- nodes: what is known of each ---- */

/* Told again whenever it changes. What is unknown is SCHED_UNKNOWN. */
struct sched_node_state {
	bool up;	     /* a link is there, or nobody has tried yet */
	bool draining;	     /* takes no new clients */
	bool keeps;	     /* though it is draining: those that it has stay */
	double rtt;
	double jitter;	     /* mean deviation of rtt */
	double bandwidth;    /* towards the node, alone on the link */
	double speed;	     /* of its GPUs */
	double gpus;	     /* 0: it offers none */
	double memory;	     /* of one GPU, the largest */
	double memory_free;  /* of the GPU that has most */
	double busy;	     /* clients with unfinished GPU work, of all brokers, mean over the last second */
	double busy_own;     /* of them this broker's */
	double link_busy;    /* share of the node's own network rate in use by others than this broker, 0 to 1 */
	double sessions;
	double sessions_max;
	double warm;	     /* workers ready */
	double told_at;	     /* when its last report came */
};

uint32_t sched_node_add(struct sched *sched, const char *name); /* SCHED_NONE: out of memory */
void sched_node_set(struct sched *sched, uint32_t node, const struct sched_node_state *state, double now);
/* It has failed a client: others are preferred for a while. */
void sched_node_failed(struct sched *sched, uint32_t node, double now);
/* What it says, or what runs there have shown if that is much less: to learn programs by. */
double sched_node_speed(const struct sched *sched, uint32_t node, double now);
const char *sched_node_name(const struct sched *sched, uint32_t node);
const struct sched_node_state *sched_node_state(const struct sched *sched, uint32_t node);
uint32_t sched_node_count(const struct sched *sched);

/* ---- requests ---- */

enum sched_priority { PRIORITY_BATCH, PRIORITY_NORMAL, PRIORITY_LATENCY, PRIORITIES };

struct sched_request {
	const struct sched_profile *profile; /* NULL: nothing is known of the program */
	bool rough;			     /* @profile is of runs with other arguments: a guess */
	uint64_t key;			     /* identity of the program; 0: none */
	const char *program;		     /* for people */
	int64_t pid;
	uint32_t uid;
	enum sched_priority priority;
	bool even_down;		/* where nobody else can, nodes that are down may be tried */
	const char *wanted;	/* this node and no other; NULL or "": any. Then its memory is the caller's business */
	const uint64_t *tried;	/* bit per node: not these; NULL: none has been */
	/* Bytes of its model that @node does not hold; NULL: nobody knows, none are assumed. */
	double (*uncached)(void *arg, uint32_t node);
	void *uncached_arg;
};

/* What a client would cost on a node: parts in seconds over the whole run. */
struct sched_cost {
	double start;	/* until its context is there and its model uploaded */
	double cpu;
	double gpu;	/* with contention */
	double up;	/* bytes off the critical path */
	double trips;
	double down;	/* bytes that it waits for */
	double bias;	/* factor that this node's earlier predictions needed */
	double total;
	double harm;	/* that others would lose by it; not in total */
	double contention;
	double uncached;
};

void sched_cost(const struct sched *sched, uint32_t node, const struct sched_request *request, double now,
		struct sched_cost *cost_out);

/*
 * The node to try next, or SCHED_NONE and one line in @why that says what to do. A decision is recorded; its number is in
 * @decision_out.
 */
uint32_t sched_pick(struct sched *sched, const struct sched_request *request, double now, uint64_t *decision_out, char *why,
		    size_t why_size);

/* ---- clients that have been placed ---- */

/* It runs there; @decision: of sched_pick(), 0 without. -ENOMEM. */
int sched_client_add(struct sched *sched, uint32_t client, uint32_t node, uint64_t decision, const struct sched_request *request,
		     double now);
/* What it has used so far, and what the node it is on has said of it. Totals since it was added. */
void sched_client_used(struct sched *sched, uint32_t client, const struct sched_usage *usage, double now);
/* It has ended; @usage: at its end, NULL when it came to nothing. */
void sched_client_remove(struct sched *sched, uint32_t client, const struct sched_usage *usage, double now);
/* It has moved (migration), and is called @id from now on: its history goes with it. */
void sched_client_moved(struct sched *sched, uint32_t client, uint32_t id, uint32_t node, double now);

/* ---- moves: sched_move.c ---- */

/*
 * Clients are moved when what is left of their run would be shorter elsewhere by SCHED_MOVE_GAIN times what the move costs, and by the factor
 * SCHED_MOVE_SURE, and has been so for SCHED_DWELL_S; none again within SCHED_MOVE_AGAIN_S, whatever its links do meanwhile, nor one that
 * asked for its node by name. That others share a GPU is believed for SCHED_MOVE_BELIEF_S: they come and go, and in the simulator who
 * followed each of them lost by it. From a node that drains anything else is better, at once.
 */
#define SCHED_MOVE_GAIN	   1.5
#define SCHED_MOVE_SURE	   2.0
#define SCHED_DWELL_S	   3.0
#define SCHED_MOVE_AGAIN_S 600.0
#define SCHED_MOVE_BELIEF_S 30.0
#define SCHED_MOVE_RETRY_S 60.0 /* after one that came to nothing */
struct sched_move {
	uint32_t client;
	uint32_t node; /* where to */
	double stay;   /* seconds left where it is */
	double go;     /* there */
	double price;  /* of the move */
};
/* Off at first. @fixed: seconds that any move costs, however little memory goes. */
void sched_moves_set(struct sched *sched, bool on, double fixed);
/* Each call looks at all clients. Fills at most @max; returns how many. */
uint32_t sched_moves(struct sched *sched, double now, struct sched_move *moves_out, uint32_t max);
/*
 * Where a client would be off best that has to leave, whether it gains or not; not to nodes with a bit in @tried. False: nowhere, and
 * one line in @why.
 */
bool sched_move_best(struct sched *sched, uint32_t client, uint64_t tried, double now, struct sched_move *move_out, char *why,
		     size_t why_size);
/* It is going to be moved: a decision like others; its number. @by: who wants it, for people. */
uint64_t sched_move_decided(struct sched *sched, const struct sched_move *move, const char *by, const struct sched_request *request,
			    double now);
/* How it ended: @why "" when it is there, after @took seconds. @final: there is no use in trying again. */
void sched_move_ended(struct sched *sched, uint64_t decision, uint32_t client, const char *why, bool final, double took, double now);

/* ---- policies ---- */

struct sched_policy;
/* -EINVAL: there is no such one. */
int sched_policy_set(struct sched *sched, const char *name);
const char *sched_policy(const struct sched *sched);
/* NULL after the last. */
const char *sched_policy_name(unsigned index);

/* ---- decisions, for people and tests ---- */

struct sched_decision {
	uint64_t number; /* 1, 2, 3 ... */
	double at;
	int64_t pid;
	uint32_t uid;
	char program[SCHED_NAME_SIZE];
	char policy[16];
	char node[SCHED_NAME_SIZE];	/* "": none was found */
	char second[SCHED_NAME_SIZE];	/* the next best; "": there was none. Of a move: where it was, and would have taken second_total */
	bool move;			/* of a client that runs; measured is the time of the move */
	uint32_t candidates;
	bool known;			/* the program has run before */
	struct sched_cost cost;		/* predicted for @node */
	double second_total;
	struct sched_node_state state;	/* of @node, as it was seen */
	double measured;		/* seconds it took in the end; SCHED_UNKNOWN until then */
	char why[128];			/* why there was none, or why a move came to nothing */
};

/* The newest at @back 0; NULL beyond what is remembered. */
const struct sched_decision *sched_decision(const struct sched *sched, unsigned back);

/* @seed: for the choice between the two best. NULL: out of memory. */
struct sched *sched_new(uint64_t seed);
void sched_free(struct sched *sched);

#endif
