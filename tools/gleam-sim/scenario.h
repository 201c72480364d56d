/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scenario: topology, programs, arrivals, trouble. Read from a text file, one thing a line (docs/scheduler.md):
 *
 *	horizon S | seeds N | report S | noise SHARE | profiles learned|known
 *	brokers COUNT [site N]
 *	wan rtt S bandwidth RATE
 *	node NAME count N speed X rtt S bandwidth RATE nic RATE memory BYTES [gpus N] [warm N] [site N] [sessions N] [clients N]
 *	program NAME weight X steps N cpu S gpu S trips N up BYTES down BYTES [memory BYTES] [model BYTES] [spread SHARE]
 *	        [priority latency|normal|batch]
 *	users COUNT think S
 *	job AT PROGRAM BROKER
 *	at S NAME|* down | up | stale | told | rate RATE | rtt S | lie FACTOR | drain
 *	flap NAME PERIOD
 *
 * Units behind numbers: us ms s; bit kbit mbit gbit (a second); k m g (bytes, of 1024); %.
 */
#ifndef GLEAM_SIM_SCENARIO_H
#define GLEAM_SIM_SCENARIO_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/local/sched.h"

#define SCENARIO_CLASSES  32
#define SCENARIO_PROGRAMS 32
#define SCENARIO_BROKERS  512
#define SCENARIO_NODES	  2048
#define SCENARIO_CHANGES  64
#define SCENARIO_JOBS	  256

struct node_class {
	char name[32];
	unsigned count;
	double speed, rtt, bandwidth, nic, memory;
	unsigned gpus, warm, sessions, site;
};

/* A step's needs; GPU time on a node of speed 1. */
struct program_class {
	char name[32];
	double weight, steps, cpu, gpu, trips, up, down, memory, model, spread;
	enum sched_priority priority;
};

enum change_kind { CHANGE_DOWN, CHANGE_UP, CHANGE_STALE, CHANGE_TOLD, CHANGE_RATE, CHANGE_RTT, CHANGE_LIE, CHANGE_DRAIN };

struct change {
	double at;
	char node[32]; /* of a class all; NAME.N one of them; * all */
	enum change_kind kind;
	double value;
};

struct fixed_job {
	double at;
	unsigned program;
	unsigned broker;
};

struct scenario {
	char name[64];
	double horizon;
	unsigned seeds;
	double report; /* interval */
	double noise;  /* of measurements: standard deviation, relative */
	bool profiles_known;
	unsigned brokers;
	unsigned broker_site[SCENARIO_BROKERS];
	double wan_rtt, wan_bandwidth;
	struct node_class classes[SCENARIO_CLASSES];
	unsigned class_count;
	struct program_class programs[SCENARIO_PROGRAMS];
	unsigned program_count;
	unsigned users;
	double think;
	struct fixed_job jobs[SCENARIO_JOBS];
	unsigned job_count;
	struct change changes[SCENARIO_CHANGES];
	unsigned change_count;
	char flap[32]; /* "": none does */
	double flap_period;
};

/* On failure -errno, and a line with the file's name and the number of the line in @why. */
int scenario_read(const char *path, struct scenario *scenario_out, char *why, size_t why_size);

#endif
