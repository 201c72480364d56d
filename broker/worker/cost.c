/* SPDX-License-Identifier: Apache-2.0 */
/* What commands cost the worker. Any thread that calls the driver, each with its own book; see cost.h. */
#include "broker/worker/cost.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "broker/worker/note.h"
#include "gen/ops.h"

#define THREADS_MAX 64	 /* the driver's own threads don't call it; what comes behind isn't measured */
#define SUB	    8	 /* buckets from one power of two to the next: a quantile is known to an eighth */
#define BUCKETS	    (64 * SUB)
#define LINES_LEAST 8	 /* calls, or frames: fewer are no line of their own */

bool cost_on;

struct times {
	uint64_t count;
	uint64_t ticks;
	uint32_t buckets[BUCKETS];
};

struct thread {
	char name[16];
	uint64_t driver_ticks; /* all calls */
	struct times *calls[DRV_COUNT];
};

/* Of an op's frames, on the executor. */
struct frames {
	uint64_t between; /* ticks since the frame before */
	uint64_t fetch;
	uint64_t driver;
	uint64_t driver_calls;
	struct times whole;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock; a thread's book is its own, and read when it has ended or stands still */
static struct thread *threads[THREADS_MAX];
static uint32_t thread_count;
static __thread struct thread *mine;
static __thread bool refused;

/* executor */
static struct frames *frames[OP_MAX];
static uint64_t looked_at, fetched_at, done_at, driver_before;
static uint64_t calls_made; /* of the driver by the executor; it alone counts in cost_done() */
static __thread uint64_t calls_mine;

static uint64_t started_ticks, started_ns;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void cost_start(struct drv *drv)
{
	const char *asked = getenv("GLEAM_WORKER_COSTS");

	if (!asked || !*asked || strcmp(asked, "0") == 0 || cost_on)
		return;
	drv_timed(drv);
	started_ns = now_ns();
	started_ticks = cost_now();
	cost_on = true;
}

static struct thread *book(void)
{
	if (mine || refused)
		return mine;
	pthread_mutex_lock(&lock);
	if (thread_count < THREADS_MAX)
		mine = calloc(1, sizeof(*mine));
	if (mine) {
		prctl(PR_GET_NAME, mine->name);
		threads[thread_count++] = mine;
	}
	refused = !mine;
	pthread_mutex_unlock(&lock);
	return mine;
}

static uint32_t bucket_of(uint64_t ticks)
{
	uint32_t power;

	if (ticks < SUB)
		return (uint32_t)ticks;
	power = 63 - (uint32_t)__builtin_clzll(ticks);
	return (power - 2) * SUB + (uint32_t)(ticks >> (power - 3)) % SUB;
}

/* The least that belongs there. */
static uint64_t bucket_start(uint32_t bucket)
{
	if (bucket < SUB)
		return bucket;
	return (uint64_t)(SUB + bucket % SUB) << (bucket / SUB - 1);
}

static void times_add(struct times *times, uint64_t ticks)
{
	times->count++;
	times->ticks += ticks;
	times->buckets[bucket_of(ticks)]++;
}

static uint64_t times_quantile(const struct times *times, double part)
{
	uint64_t left = (uint64_t)((double)times->count * part);

	for (uint32_t i = 0; i < BUCKETS; i++) {
		if (times->buckets[i] > left)
			return (bucket_start(i) + bucket_start(i + 1)) / 2;
		left -= times->buckets[i];
	}
	return 0;
}

void cost_called(enum drv_call call, uint64_t from)
{
	uint64_t ticks = cost_now() - from;
	struct thread *thread = book();

	if (!thread)
		return;
	if (!thread->calls[call])
		thread->calls[call] = calloc(1, sizeof(*thread->calls[call]));
	if (thread->calls[call])
		times_add(thread->calls[call], ticks);
	thread->driver_ticks += ticks;
	calls_mine++;
}

void cost_looks(void)
{
	looked_at = cost_now();
	driver_before = mine ? mine->driver_ticks : 0;
	calls_made = calls_mine;
}

void cost_fetched(void)
{
	fetched_at = cost_now();
}

void cost_done(uint16_t op)
{
	struct frames *f = op < OP_MAX ? frames[op] : NULL;
	uint64_t before = done_at;

	done_at = cost_now();
	if (!f && op < OP_MAX)
		f = frames[op] = calloc(1, sizeof(*f));
	if (!f)
		return;
	if (before)
		f->between += looked_at - before;
	f->fetch += fetched_at - looked_at;
	f->driver += (mine ? mine->driver_ticks : 0) - driver_before;
	f->driver_calls += calls_mine - calls_made;
	times_add(&f->whole, done_at - looked_at);
}

void cost_idle(void)
{
	done_at = 0;
}

void cost_report(void)
{
	double us;

	if (!cost_on)
		return;
	us = (double)(now_ns() - started_ns) / 1e3 / (double)(cost_now() - started_ticks);
	complain("costs: us each; of a frame: from the one before, fetching, the driver's calls in it, the rest of it, all");
	for (uint32_t op = 0; op < OP_MAX; op++) {
		const struct frames *f = frames[op];
		double each;

		if (!f || f->whole.count < LINES_LEAST)
			continue;
		each = us / (double)f->whole.count;
		complain("costs: executor, %s: %llu frames, between %.3f, fetch %.3f, driver %.3f (%.3f calls), rest %.3f, all %.3f "
			 "(p50 %.3f, p90 %.3f, p99 %.3f)",
			 op_info[op].name, (unsigned long long)f->whole.count, (double)f->between * each, (double)f->fetch * each,
			 (double)f->driver * each, (double)f->driver_calls / (double)f->whole.count,
			 (double)(f->whole.ticks - f->fetch - f->driver) * each, (double)f->whole.ticks * each,
			 (double)times_quantile(&f->whole, 0.5) * us, (double)times_quantile(&f->whole, 0.9) * us,
			 (double)times_quantile(&f->whole, 0.99) * us);
	}
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < thread_count; i++)
		for (uint32_t call = 0; call < DRV_COUNT; call++) {
			const struct times *times = threads[i]->calls[call];

			if (!times || times->count < LINES_LEAST)
				continue;
			complain("costs: thread %s, %s: %llu calls, %.3f (p50 %.3f, p90 %.3f, p99 %.3f)", threads[i]->name, drv_names[call],
				 (unsigned long long)times->count, (double)times->ticks * us / (double)times->count,
				 (double)times_quantile(times, 0.5) * us, (double)times_quantile(times, 0.9) * us,
				 (double)times_quantile(times, 0.99) * us);
		}
	pthread_mutex_unlock(&lock);
}
