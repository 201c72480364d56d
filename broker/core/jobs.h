/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few threads for what takes long: hashing, copying, disks. Started with the first job; what can wait (hashing files that
 * nobody asks for yet) gives way to what else the machine has to do.
 */
#ifndef GLEAM_CORE_JOBS_H
#define GLEAM_CORE_JOBS_H

#include <stdbool.h>

struct jobs;

struct job {
	struct job *next;
	/* On a thread of the pool. It may free @job. */
	void (*run)(struct job *job);
};

/* NULL: out of memory. @name is the threads', 15 letters at most. @idle: what nobody waits for. */
struct jobs *jobs_new(unsigned threads, const char *name, bool idle);
/* Any thread. @job belongs to the pool until it runs. */
void jobs_post(struct jobs *jobs, struct job *job);
/* Runs what waits, then ends the threads. */
void jobs_free(struct jobs *jobs);
/* Whether jobs_free() has begun: what takes long ends early. Any thread. */
bool jobs_are_ending(const struct jobs *jobs);
/* How many threads do well on this machine: half of its cores, four at most. */
unsigned jobs_threads(void);

#endif
