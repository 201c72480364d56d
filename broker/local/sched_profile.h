/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs need, learned from their runs: per program (executable, and its command line) the totals of a run. No I/O, no
 * clock; see sched.h for units. The text form is what is kept on disk.
 */
#ifndef GLEAM_LOCAL_SCHED_PROFILE_H
#define GLEAM_LOCAL_SCHED_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of what a program uploads, by which one sees whether a node holds it: fingerprint and size, see cache.h. */
#define SCHED_SAMPLES 8u
struct sched_sample {
	uint32_t print;
	uint32_t size;
};

/* Totals of a client from its start until now. */
struct sched_usage {
	double wall;	   /* seconds since it was attached */
	double waited;	   /* of them inside of round trips */
	double gpu;	   /* seconds of GPU at the node's speed that were its own (contention taken out) */
	double gpu_wall;   /* seconds with unfinished GPU work, contention included */
	double trips;
	double bytes_up;   /* to the node, but for: */
	double model;	   /* bytes of pieces that nodes may hold, whether they went or not */
	double bytes_down; /* what it waited for */
	double memory;	   /* of the device, at most */
	struct sched_sample samples[SCHED_SAMPLES]; /* of model */
	uint32_t sample_count;
};

/* Means over runs, GPU time at the reference speed. */
struct sched_profile {
	double runs;
	double wall;
	double cpu;
	double gpu;
	double trips;
	double bytes_up;
	double bytes_down;
	double memory;	/* of the last runs, at most */
	double overlap; /* share of round trips and downloads that went on beside the rest, although the model adds them */
	double model;	/* of the last run, samples too */
	double repeats; /* share of these samples that the run before had, too: whether it uploads the same each time */
	struct sched_sample samples[SCHED_SAMPLES];
	uint32_t sample_count;
};

#define SCHED_PROFILES_MAX  1024
#define SCHED_PROFILE_LEAST 0.02 /* seconds: a run that was shorter teaches nothing */

struct sched_profiles;
struct sched_profiles *sched_profiles_new(void); /* NULL: out of memory */
void sched_profiles_free(struct sched_profiles *profiles);

/* 0 is no key. NULL: unknown. Valid until the next call that learns or reads. */
const struct sched_profile *sched_profile_find(const struct sched_profiles *profiles, uint64_t key);
/* A run has ended on a node of @speed with a round trip of @rtt. The eldest unused one makes room. */
void sched_profile_learn(struct sched_profiles *profiles, uint64_t key, const struct sched_usage *usage, double speed, double rtt,
			 double bandwidth);
/* A usage as a profile: for a program of which only this much is known yet. */
void sched_profile_of(const struct sched_usage *usage, double speed, double rtt, double bandwidth, struct sched_profile *profile_out);

/* One line each, oldest use first; "free() it. NULL: out of memory. */
char *sched_profiles_text(const struct sched_profiles *profiles, size_t *size_out);
/* Reads such a text. Lines that aren't right are left out; returns how many were. */
unsigned sched_profiles_read(struct sched_profiles *profiles, const char *text);

/* The key of a program: FNV-1a over the parts. Never 0. */
uint64_t sched_key(const void *bytes, size_t size, uint64_t seed);

#endif
