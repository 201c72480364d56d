/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long to look for the next work before sleeping, learned from the pauses that there were. A wake-up costs 5 to 50 us and
 * a call that waits crosses six of them; looking costs a core. So one looks for twice the usual pause, if that is short, and not
 * at all where pauses are longer than any look could bridge (a LAN, a program that computes). Whoever looks gives its core up
 * between looks after SPIN_BUSY_NS: where cores are few, what it waits for may need this one.
 *
 * Any thread; threads that share one spoil nothing but each other's guesses.
 */
#ifndef GLEAM_LIB_SPIN_H
#define GLEAM_LIB_SPIN_H

#include <sched.h>
#include <stdint.h>

#define SPIN_MIN_NS	2000u	/* less is noise */
#define SPIN_BUSY_NS	3000u	/* without giving the core up */
#define SPIN_MAX_NS	150000u /* pauses beyond are slept through: no wake-up is so dear */
/*
 * With cores to spare: a wait crosses four to six sleepers, each woken by the one before, and what a GPU does for a third of a
 * millisecond took two thirds.
 */
#define SPIN_MAX_MANY_NS 600000u
#define SPIN_MAX_FEW_NS	50000u /* where others wait for the core */
#define SPIN_MANY_CORES 8
#define SPIN_FEW_CORES	3

struct spin {
	uint64_t ns; /* atomic */
};

/* For the cores that this thread may use. */
static inline uint64_t spin_max_ns(void)
{
	cpu_set_t cpus;
	int count;

	CPU_ZERO(&cpus);
	/* More processors than the set has room for: many. */
	count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : CPU_SETSIZE;
	if (count < 2)
		return 0;
	return count <= SPIN_FEW_CORES ? SPIN_MAX_FEW_NS : count < SPIN_MANY_CORES ? SPIN_MAX_NS : SPIN_MAX_MANY_NS;
}

static inline uint64_t spin_ns(const struct spin *spin)
{
	return __atomic_load_n(&spin->ns, __ATOMIC_RELAXED);
}

/* A pause has ended, looked or slept through. */
static inline void spin_learn(struct spin *spin, uint64_t pause_ns, uint64_t max_ns)
{
	uint64_t ns = spin_ns(spin);
	uint64_t want = 2 * pause_ns < max_ns ? 2 * pause_ns : max_ns;

	if (want < 2 * SPIN_MIN_NS)
		want = 2 * SPIN_MIN_NS;
	/* Up at once, for one late look costs a wake-up; down slowly. Of long pauses three in a row end it. */
	if (pause_ns > max_ns)
		ns = ns < max_ns / 4 ? 0 : ns / 2;
	else
		ns = want > ns ? want : ns - (ns - want) / 8;
	__atomic_store_n(&spin->ns, max_ns ? ns : 0, __ATOMIC_RELAXED);
}

#endif
