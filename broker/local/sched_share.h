/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing a GPU among the clients of one broker there: who takes more than a fair part while another waits is held to fewer commands
 * a second, until nobody waits any more. No I/O, no clock; see sched.h for units.
 */
#ifndef GLEAM_LOCAL_SCHED_SHARE_H
#define GLEAM_LOCAL_SCHED_SHARE_H

#include "broker/local/sched.h"

/* Of one client, over the last interval. */
struct share_client {
	enum sched_priority priority;
	double gpu;	     /* share of the GPU's time that was its own, 0 to 1 */
	double busy;	     /* share of the time with unfinished work, 0 to 1 */
	double latency;	     /* from launch to completion; SCHED_UNKNOWN */
	double latency_best; /* the least it has had */
	double rate;	     /* commands a second */
	double limit;	     /* in and out: commands a second that it may send; 0: any number */
};

#define SHARE_LIMIT_MIN 20.0 /* commands a second: whoever is held back still gets on */

/* Once an interval, with all clients of a server. */
void sched_share(struct share_client *clients, unsigned count);

#endif
