// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that help to copy. One copy at a time has them: it is cut into slices, which they and the caller take one by one, so that a
 * helper without a core costs nothing but the slice that it has begun. See crew.h.
 */
#include "libgleamcuda/crew.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "broker/lib/futex.h"
#include "libgleamcuda/log.h"

#define CREW_LEAST    (256u << 10) /* shorter copies take less than half of what waking somebody does */
#define CREW_SLICE    (64u << 10)  /* ten microseconds */
#define CREW_MAX      7u	   /* helpers */
#define CREW_DEFAULT  3u	   /* with 16 cores or more; four cores fill a memory channel or two */
#define CREW_CORES    4u	   /* for each of them */
#define CREW_LOOK_NS  200000u	   /* they look so long for the next piece: a link's pieces are 30 to 150 us apart */
#define CREW_STACK    (128u << 10)

/* The copy's number, how many slices it has, and the next one: one word, so that whoever takes a slice knows of which copy. */
#define NEXT(number, slices, at) ((uint64_t)(number) << 32 | (uint64_t)(slices) << 16 | (at))
#define NEXT_SLICES(next)	 ((uint32_t)((next) >> 16 & 0xffff))
#define NEXT_AT(next)		 ((uint32_t)((next) & 0xffff))
#define SLICES_MAX		 0x8000u /* helpers count beyond the last one */

static struct {
	/* atomic */
	uint32_t owned; /* somebody's copy has the helpers */
	uint64_t next;
	uint32_t done; /* slices of it */
	uint32_t bell; /* futex: there is a new copy */
	uint32_t asleep; /* helpers */

	/* the owner's: set before next names a copy, valid until all of its slices are done */
	uint32_t number;
	uint8_t *to;
	const uint8_t *from;
	size_t size;

	/* set once */
	uint32_t helpers;
} crew;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Copies slices as long as there are any; whether there was one. */
static bool slices_copy(void)
{
	bool any = false;

	for (;;) {
		/* Acquire: what the owner has written of the copy. Looked at first, so that many who look don't count it up. */
		uint64_t next = __atomic_load_n(&crew.next, __ATOMIC_ACQUIRE);
		size_t at, size;

		if (NEXT_AT(next) >= NEXT_SLICES(next))
			return any;
		next = __atomic_fetch_add(&crew.next, 1, __ATOMIC_ACQUIRE);
		if (NEXT_AT(next) >= NEXT_SLICES(next))
			return any;
		/* Ours: the copy stays until we say that it is done. */
		at = (size_t)NEXT_AT(next) * CREW_SLICE;
		size = crew.size - at < CREW_SLICE ? crew.size - at : CREW_SLICE;
		memcpy(crew.to + at, crew.from + at, size);
		/* Pairs with the acquire in crew_copy(). */
		__atomic_fetch_add(&crew.done, 1, __ATOMIC_RELEASE);
		any = true;
	}
}

static void *helper_run(void *arg)
{
	uint64_t last = now_ns();

	(void)arg;
	prctl(PR_SET_NAME, "gleam-copy");
	for (;;) {
		uint32_t bell = __atomic_load_n(&crew.bell, __ATOMIC_ACQUIRE);

		if (slices_copy()) {
			last = now_ns();
			continue;
		}
		if (now_ns() - last < CREW_LOOK_NS) {
			sched_yield();
			continue;
		}
		/* Sequentially consistent with the owner's look at it: either it sees us, or we see its bell. */
		__atomic_fetch_add(&crew.asleep, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&crew.bell, __ATOMIC_SEQ_CST) == bell)
			futex_wait(&crew.bell, bell, -1);
		__atomic_fetch_sub(&crew.asleep, 1, __ATOMIC_SEQ_CST);
		last = now_ns();
	}
	return NULL;
}

/* By the cores that this process may use; GLEAM_COPIERS says otherwise. */
static uint32_t helpers_wanted(void)
{
	const char *asked = secure_getenv("GLEAM_COPIERS");
	cpu_set_t cpus;
	unsigned long count;
	char *end;

	CPU_ZERO(&cpus);
	/* More processors than the set has room for: many. */
	count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned long)CPU_COUNT(&cpus) : CPU_SETSIZE;
	count = count / CREW_CORES < CREW_DEFAULT ? count / CREW_CORES : CREW_DEFAULT;
	if (!asked || !*asked)
		return (uint32_t)count;
	if (*asked >= '0' && *asked <= '9') {
		unsigned long wish = strtoul(asked, &end, 10);

		if (!*end && wish <= CREW_MAX)
			return (uint32_t)wish;
	}
	gleam_log("GLEAM_COPIERS=%s: not a number from 0 to %u, ignored", asked, CREW_MAX);
	return (uint32_t)count;
}

static void crew_start(void)
{
	uint32_t want = helpers_wanted();
	pthread_attr_t attr;
	sigset_t all, before;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, CREW_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	/* The program's memory faults there as it would in its own thread. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (crew.helpers < want) {
		pthread_t thread;

		/* Without threads the caller copies alone. */
		if (pthread_create(&thread, &attr, helper_run, NULL))
			break;
		crew.helpers++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

void crew_copy(void *to, const void *from, size_t size)
{
	uint32_t free = 0;
	uint32_t slices;

	if (size < CREW_LEAST || size > (size_t)SLICES_MAX * CREW_SLICE) {
		memcpy(to, from, size);
		return;
	}
	pthread_once(&once, crew_start);
	if (!crew.helpers || !__atomic_compare_exchange_n(&crew.owned, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		memcpy(to, from, size);
		return;
	}
	slices = (uint32_t)((size + CREW_SLICE - 1) / CREW_SLICE);
	crew.to = to;
	crew.from = from;
	crew.size = size;
	__atomic_store_n(&crew.done, 0, __ATOMIC_RELAXED);
	/* Release: whoever takes a slice sees the copy. */
	__atomic_store_n(&crew.next, NEXT(++crew.number, slices, 0), __ATOMIC_RELEASE);
	__atomic_fetch_add(&crew.bell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&crew.asleep, __ATOMIC_SEQ_CST))
		futex_wake(&crew.bell, (int)crew.helpers);
	slices_copy();
	/* Those that helpers have begun; pairs with their release. */
	while (__atomic_load_n(&crew.done, __ATOMIC_ACQUIRE) != slices)
		sched_yield();
	__atomic_store_n(&crew.owned, 0, __ATOMIC_RELEASE);
}
