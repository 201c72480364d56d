/* SPDX-License-Identifier: Apache-2.0 */
/* Warm workers. Control thread; see pool.h. */
#include "broker/node/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"

#define POOL_RETRY_MIN (1 * NS_PER_S)  /* after a worker that did not get ready */
#define POOL_RETRY_MAX (60 * NS_PER_S) /* a node without a driver tries once a minute */

struct pool {
	struct loop *loop;
	const struct proc_setting *setting;
	unsigned warm;
	struct proc *procs[POOL_WARM_MAX];
	unsigned count;
	bool stopping;
	uint64_t retry_ns;
	struct loop_timer refill;
	char trouble[PROC_WHY_SIZE];
};

static void pool_refill(void *arg);

static void pool_remove(struct pool *pool, const struct proc *proc)
{
	for (unsigned i = 0; i < pool->count; i++) {
		if (pool->procs[i] == proc) {
			pool->procs[i] = pool->procs[--pool->count];
			return;
		}
	}
}

static void warm_ready(void *owner, struct proc *proc)
{
	struct pool *pool = owner;

	pool->retry_ns = POOL_RETRY_MIN;
	pool->trouble[0] = 0;
	log_info("worker %d is warm", proc_pid(proc));
}

static void warm_ended(void *owner, struct proc *proc, enum session_end end, const char *why)
{
	struct pool *pool = owner;

	pool_remove(pool, proc);
	proc_free(proc);
	if (pool->stopping)
		return;
	if (strcmp(pool->trouble, why) != 0)
		log_error("no warm worker: %s", why);
	snprintf(pool->trouble, sizeof(pool->trouble), "%s", why);
	loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + pool->retry_ns);
	pool->retry_ns = 2 * pool->retry_ns < POOL_RETRY_MAX ? 2 * pool->retry_ns : POOL_RETRY_MAX;
}

static const struct proc_ops warm_ops = { .ready = warm_ready, .ended = warm_ended };

static void pool_refill(void *arg)
{
	struct pool *pool = arg;

	while (!pool->stopping && pool->count < pool->warm) {
		char why[PROC_WHY_SIZE];
		struct proc *proc;

		if (proc_start(pool->loop, pool->setting, NULL, &warm_ops, pool, &proc, why, sizeof(why))) {
			log_error("no warm worker: %s", why);
			loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + pool->retry_ns);
			return;
		}
		pool->procs[pool->count++] = proc;
	}
}

int pool_new(struct loop *loop, const struct proc_setting *setting, unsigned warm, struct pool **pool_out)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->loop = loop;
	pool->setting = setting;
	pool->warm = warm < POOL_WARM_MAX ? warm : POOL_WARM_MAX;
	pool->retry_ns = POOL_RETRY_MIN;
	pool->refill.fire = pool_refill;
	pool->refill.arg = pool;
	pool_refill(pool);
	*pool_out = pool;
	return 0;
}

void pool_stop(struct pool *pool)
{
	pool->stopping = true;
	loop_timer_clear(pool->loop, &pool->refill);
	for (unsigned i = 0; i < pool->count; i++)
		proc_kill(pool->procs[i], false);
}

bool pool_is_empty(const struct pool *pool)
{
	return pool->count == 0;
}

void pool_free(struct pool *pool)
{
	free(pool);
}

int pool_take(struct pool *pool, const char *const *settings, const struct proc_ops *ops, void *owner,
	      struct proc **proc_out, char *why, size_t why_size)
{
	struct proc *best = NULL;

	for (unsigned i = 0; !*settings && i < pool->count; i++)
		if (!best || proc_is_ready(pool->procs[i]))
			best = pool->procs[i];
	if (!best)
		return proc_start(pool->loop, pool->setting, settings, ops, owner, proc_out, why, why_size);
	pool_remove(pool, best);
	proc_give(best, ops, owner);
	/* Its successor starts when this client has been served, not in its way. */
	loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + 20 * NS_PER_MS);
	*proc_out = best;
	return 0;
}

unsigned pool_ready_count(const struct pool *pool)
{
	unsigned ready = 0;

	for (unsigned i = 0; i < pool->count; i++)
		ready += proc_is_ready(pool->procs[i]);
	return ready;
}

const char *pool_trouble(const struct pool *pool)
{
	return pool->trouble;
}
