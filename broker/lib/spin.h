/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long to look for the next work before sleeping, learned from the pauses that there were. A wake-up costs 5 to 50 us and
 * a call that waits crosses six of them; looking costs a core. So one looks for twice the usual pause, if that is short, and not
 * at all where pauses are longer than any look could bridge (a LAN, a program that computes). Whoever looks gives its core up
 * between looks after SPIN_BUSY_NS: where cores are few, what it waits for may need this one. Where they are many it does so now and then:
 * what seems a core may be half of one, and four that yielded without a pause made a driver's launch beside them 0.6 us slower, four that
 * rested between looks 0.2 us.
 *
 * Any thread; threads that share one spoil nothing but each other's guesses.
 */
#ifndef GLEAM_LIB_SPIN_H
#define GLEAM_LIB_SPIN_H

#include <sched.h>
#include <stdbool.h>
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
#define SPIN_RESTS	4  /* pauses of the processor between looks: 0.1 to 0.3 us together */
#define SPIN_RESTS_LONG 16 /* when it has been SPIN_LONG_NS: a microsecond is little then */
#define SPIN_LONG_NS	50000u
#define SPIN_TURNS	16 /* looks between yields on many cores */
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

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Between two looks, when there have been some for @looked_ns; @turns is the caller's, at first 0. */
static inline void spin_rest(uint64_t looked_ns, uint64_t max_ns, unsigned *turns)
{
	for (int i = looked_ns < SPIN_LONG_NS ? SPIN_RESTS : SPIN_RESTS_LONG; i > 0; i--)
		spin_pause();
	if (looked_ns > SPIN_BUSY_NS && (max_ns < SPIN_MAX_MANY_NS || ++*turns % SPIN_TURNS == 0))
		sched_yield();
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

/*
 * Pauses that are long, but much alike (a step of a program, awaited calls in a LAN): most of it is slept through, and its end is looked for, so
 * that nobody has to wake this thread. What is usual is the shortest of late: down at once, up slowly, so one long pause
 * among others (a program that computes, another's turn) spoils nothing. Whether naps pay is counted: where pauses are not alike most looks
 * would end too early or begin too late, and one sleeps until one is woken.
 */
#define NAP_LATE_NS	60000u	  /* so much later than asked for a sleeper may wake by himself */
#define NAP_SLACK_NS	1000u	  /* for PR_SET_TIMERSLACK, where the thread is ours: 50 us later else */
#define NAP_SCORE_MIN	3	  /* from here on one naps */
#define NAP_SCORE_MAX	8	  /* a pause that a look would have met adds 1, another takes 2 */
/* For threads that wait for whatever may come: */
#define NAP_WORK_MIN_NS 200000u	  /* from here on pauses that are alike aren't looked through */
#define NAP_WORK_MAX_NS 20000000u /* beyond, it is another thing that came */

struct nap {
	uint64_t usual_ns; /* atomic, both; 0: none has been seen */
	uint32_t score;	   /* 0 .. NAP_SCORE_MAX */
};

/* Whether there are naps at all where looks are of @max_ns at most. */
static inline bool nap_may_be(uint64_t max_ns)
{
	return max_ns / 2 >= NAP_LATE_NS;
}

static inline uint64_t nap_of(uint64_t usual_ns, uint64_t max_ns)
{
	uint64_t early = NAP_LATE_NS + usual_ns / 16;

	/* The other half is for pauses that end as much later. */
	if (early > max_ns / 2)
		early = max_ns / 2;
	return nap_may_be(max_ns) && early < usual_ns ? usual_ns - early : 0;
}

/* How long to sleep from the beginning of the pause, before looking for @max_ns at most; 0: don't nap. */
static inline uint64_t nap_ns(const struct nap *nap, uint64_t max_ns)
{
	if (__atomic_load_n(&nap->score, __ATOMIC_RELAXED) < NAP_SCORE_MIN)
		return 0;
	return nap_of(__atomic_load_n(&nap->usual_ns, __ATOMIC_RELAXED), max_ns);
}

/* Whether to look when the pause has been @pause_ns and nap_ns() said @ns. */
static inline bool nap_looks(uint64_t ns, uint64_t pause_ns, uint64_t max_ns)
{
	return ns && pause_ns >= ns && pause_ns - ns < max_ns;
}

/* Pauses of more than @from_ns are for naps. */
static inline void nap_learn(struct nap *nap, uint64_t pause_ns, uint64_t from_ns, uint64_t max_ns)
{
	uint64_t usual = __atomic_load_n(&nap->usual_ns, __ATOMIC_RELAXED);
	uint32_t score = __atomic_load_n(&nap->score, __ATOMIC_RELAXED);
	uint64_t up = usual / 8;

	if (pause_ns <= from_ns)
		return;
	if (nap_looks(nap_of(usual, max_ns), pause_ns, max_ns))
		score += score < NAP_SCORE_MAX;
	else
		score = score > 2 ? score - 2 : 0;
	usual = usual && pause_ns > usual + up ? usual + up : pause_ns;
	__atomic_store_n(&nap->score, score, __ATOMIC_RELAXED);
	__atomic_store_n(&nap->usual_ns, usual, __ATOMIC_RELAXED);
}

/* A thread that waits for whatever may come has done so for @pause_ns. What a nap is for, or was, makes looks without one no longer. */
static inline void pause_learn(struct spin *spin, struct nap *nap, uint64_t pause_ns, uint64_t max_ns)
{
	bool napped = nap_looks(nap_ns(nap, max_ns), pause_ns, max_ns);

	if (pause_ns < NAP_WORK_MAX_NS)
		nap_learn(nap, pause_ns, NAP_WORK_MIN_NS, max_ns);
	spin_learn(spin, napped ? 0 : pause_ns, max_ns);
}

#endif
