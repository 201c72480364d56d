/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lab from its making to its end: the relay, the programs that run in it, what happens to it at given
 * times, and the control socket. Main thread only.
 */
#ifndef TESTS_LAB_LANEM_SESSION_H
#define TESTS_LAB_LANEM_SESSION_H

#include "tests/lab/lanem_lab.h"
#include "tests/lab/lanem_lane.h"
#include "tests/lab/lanem_measure.h"

#define SESSION_EVENT_MAX 64

/* A control command at a time after the programs were started. */
struct session_event {
	uint64_t at_ns;
	const char *command;
};

struct session_conf {
	const char *name;
	const char *control_path; /* NULL: the default */
	struct lane_conf lane[2];
	uint64_t seed;
	uint32_t mtu;
	const char *congestion;
	int offload; /* 1, 0, or -1: as loss and reordering allow */
	bool measure;
	struct measure_conf measure_conf;
	/* [0] runs in A and [1] in B; or [0] alone outside of both; or neither: until told to stop */
	char **command[2];
	struct session_event event[SESSION_EVENT_MAX];
	unsigned int event_count;
};

/* Whether @command is one that the control socket would take; 0 or -errno. */
int session_command_check(const char *command);

/* The exit status of the program that it was for, 1 where the lab could not be made (stderr says why). */
int session_run(const struct session_conf *conf);

#endif
