/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A discrete-event simulation of nodes, links and programs around the real scheduler (broker/local/sched*.c), a broker with
 * its own scheduler and its own learned profiles each. Deterministic by its seed. One thread.
 */
#ifndef GLEAM_SIM_SIM_H
#define GLEAM_SIM_SIM_H

#include <stdio.h>

#include "tools/gleam-sim/scenario.h"

struct sim_options {
	const char *policy; /* of sched.h, or "oracle" */
	unsigned seed;
	double load;	    /* factor of users */
	double altruism;    /* oracle: how much the delay of others counts */
	bool moves;	    /* jobs that run are moved where that pays ([scheduler] migrate) */
	FILE *trace;	    /* a line a job; NULL: none */
};

struct sim_result {
	double throughput; /* ideal seconds of work done a second, all users */
	double slowdown;   /* mean of wall time to ideal time over finished jobs */
	double slowdown_p95;
	double makespan;   /* when the last job ended; of scenarios with fixed jobs */
	unsigned finished;
	unsigned refused;  /* picks that found no node */
	unsigned lost;	   /* jobs that died with their node */
	unsigned doubtful; /* jobs that were placed on a node that flaps */
	unsigned moves;	   /* of jobs that ran */
	double decide_us;  /* mean of a decision on this machine */
	double error;	   /* median of |predicted / measured - 1| over jobs of known programs */
};

/* -ENOMEM. */
int sim_run(const struct scenario *scenario, const struct sim_options *options, struct sim_result *result_out);

#endif
