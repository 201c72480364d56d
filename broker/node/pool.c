/* SPDX-License-Identifier: Apache-2.0 */
/* Warm workers. Control thread; see pool.h. */
#include "broker/node/pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/lib/visible.h"

#define POOL_RETRY_MIN (1 * NS_PER_S)  /* after a worker that did not get ready */
#define POOL_RETRY_MAX (60 * NS_PER_S) /* a node without a driver tries once a minute */
#define POOL_SETTINGS  16	       /* of a client, beside its GPUs */
#define POOL_LOOK_NS   (20 * NS_PER_MS) /* between looks at whether clients are calm */
#define POOL_LOOKS     3		/* in a row, that found them so */
#define POOL_HOLD_NS   (1500 * NS_PER_MS) /* a successor is held back so long at most */

/* One GPU, or all of a node that has no more than one or hasn't told yet. */
struct pool_gpu {
	char visible[sizeof("CUDA_VISIBLE_DEVICES=GPU-") + VISIBLE_UUID_SIZE]; /* "" : all */
	unsigned count;
};

struct pool {
	struct loop *loop;
	const struct proc_setting *setting;
	unsigned warm; /* of each GPU */
	unsigned gpu_count;
	struct pool_gpu gpus[REPORT_GPUS_MAX];
	struct {
		struct proc *proc;
		unsigned gpu; /* place in gpus; POOL_NONE for one that is being ended */
	} procs[POOL_WARM_MAX];
	unsigned count;
	bool stopping;
	bool (*calm)(void *owner);
	void *calm_owner;
	uint64_t hold_until_ns; /* 0: nothing is held back */
	unsigned calm_looks;
	uint64_t retry_ns;
	struct loop_timer refill;
	char trouble[PROC_WHY_SIZE];
};

#define POOL_NONE UINT32_MAX

/* The client's library is told that nobody need look at CUDA_VISIBLE_DEVICES any more (snapshot.given). */
#define SETTING_GIVEN "GLEAM_WORKER_GIVEN=1"

static void pool_refill(void *arg);

static void pool_remove(struct pool *pool, const struct proc *proc)
{
	for (unsigned i = 0; i < pool->count; i++) {
		if (pool->procs[i].proc == proc) {
			if (pool->procs[i].gpu != POOL_NONE)
				pool->gpus[pool->procs[i].gpu].count--;
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
	bool wanted = false;

	for (unsigned i = 0; i < pool->count; i++)
		if (pool->procs[i].proc == proc)
			wanted = pool->procs[i].gpu != POOL_NONE;
	pool_remove(pool, proc);
	proc_free(proc);
	if (pool->stopping || !wanted)
		return;
	if (strcmp(pool->trouble, why) != 0)
		log_error("no warm worker: %s", why);
	snprintf(pool->trouble, sizeof(pool->trouble), "%s", why);
	loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + pool->retry_ns);
	pool->retry_ns = 2 * pool->retry_ns < POOL_RETRY_MAX ? 2 * pool->retry_ns : POOL_RETRY_MAX;
}

static const struct proc_ops warm_ops = { .ready = warm_ready, .ended = warm_ended };

/*
 * A driver starts and makes a context behind locks that every other process's calls need, for half a second on a large GPU: allocations
 * of the client that has just been given the last worker, which is about to load, would wait for that. So it may load first.
 */
static bool pool_holds(struct pool *pool)
{
	uint64_t now = loop_now_ns(pool->loop);

	if (now >= pool->hold_until_ns)
		return false;
	pool->calm_looks = pool->calm(pool->calm_owner) ? pool->calm_looks + 1 : 0;
	if (pool->calm_looks >= POOL_LOOKS)
		return false;
	loop_timer_set(pool->loop, &pool->refill, now + POOL_LOOK_NS);
	return true;
}

static void pool_refill(void *arg)
{
	struct pool *pool = arg;

	if (pool->stopping || pool_holds(pool))
		return;
	if (pool->hold_until_ns)
		log_debug("warm workers are filled up %llu ms after one was taken",
			  (unsigned long long)((loop_now_ns(pool->loop) + POOL_HOLD_NS - pool->hold_until_ns) / NS_PER_MS));
	pool->hold_until_ns = 0;
	for (unsigned gpu = 0; gpu < pool->gpu_count; gpu++) {
		const char *visible = pool->gpus[gpu].visible;
		const char *const bound[] = { visible, SETTING_GIVEN, NULL };
		const char *const *settings = *visible ? bound : NULL;

		while (!pool->stopping && pool->gpus[gpu].count < pool->warm && pool->count < POOL_WARM_MAX) {
			char why[PROC_WHY_SIZE];
			struct proc *proc;

			if (proc_start(pool->loop, pool->setting, settings, &warm_ops, pool, &proc, why, sizeof(why))) {
				log_error("no warm worker: %s", why);
				loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + pool->retry_ns);
				return;
			}
			pool->procs[pool->count].proc = proc;
			pool->procs[pool->count++].gpu = gpu;
			pool->gpus[gpu].count++;
		}
	}
}

int pool_new(struct loop *loop, const struct proc_setting *setting, unsigned warm, bool (*calm)(void *owner), void *owner,
	     struct pool **pool_out)
{
	struct pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->loop = loop;
	pool->setting = setting;
	pool->warm = warm < POOL_WARM_MAX ? warm : POOL_WARM_MAX;
	pool->gpu_count = 1;
	pool->calm = calm;
	pool->calm_owner = owner;
	pool->retry_ns = POOL_RETRY_MIN;
	pool->refill.fire = pool_refill;
	pool->refill.arg = pool;
	pool_refill(pool);
	*pool_out = pool;
	return 0;
}

void pool_gpus(struct pool *pool, const struct gpus_have *have)
{
	if (have->count < 2 || pool->stopping)
		return;
	for (unsigned i = 0; i < pool->count; i++) {
		if (pool->procs[i].gpu == POOL_NONE)
			continue;
		pool->procs[i].gpu = POOL_NONE;
		proc_kill(pool->procs[i].proc, false);
	}
	pool->gpu_count = have->count;
	for (uint32_t i = 0; i < have->count; i++) {
		char uuid[VISIBLE_UUID_SIZE];

		visible_uuid_text(have->gpus[i].uuid, uuid);
		snprintf(pool->gpus[i].visible, sizeof(pool->gpus[i].visible), "CUDA_VISIBLE_DEVICES=GPU-%s", uuid);
		pool->gpus[i].count = 0;
	}
	pool_refill(pool);
}

void pool_stop(struct pool *pool)
{
	pool->stopping = true;
	loop_timer_clear(pool->loop, &pool->refill);
	for (unsigned i = 0; i < pool->count; i++)
		proc_kill(pool->procs[i].proc, false);
}

bool pool_is_empty(const struct pool *pool)
{
	return pool->count == 0;
}

void pool_free(struct pool *pool)
{
	free(pool);
}

/* Is this warm worker's GPU what is asked for? */
static bool warm_fits(const struct pool *pool, unsigned gpu, const char *visible)
{
	return gpu != POOL_NONE && strcmp(pool->gpus[gpu].visible, visible) == 0;
}

int pool_take(struct pool *pool, const struct gpus_choice *choice, const char *const *settings, const struct proc_ops *ops,
	      void *owner, struct proc **proc_out, char *why, size_t why_size)
{
	char visible[sizeof("CUDA_VISIBLE_DEVICES=") + GPUS_TEXT_SIZE] = "";
	const char *all[POOL_SETTINGS + 3];
	struct proc *best = NULL;
	unsigned count = 0;

	if (*choice->text)
		snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s", choice->text);
	for (unsigned i = 0; !*settings && i < pool->count; i++)
		if (warm_fits(pool, pool->procs[i].gpu, visible) && (!best || proc_is_ready(pool->procs[i].proc)))
			best = pool->procs[i].proc;
	if (!best) {
		if (*visible)
			all[count++] = visible;
		if (!choice->open)
			all[count++] = SETTING_GIVEN;
		while (*settings && count < POOL_SETTINGS + 2)
			all[count++] = *settings++;
		all[count] = NULL;
		return proc_start(pool->loop, pool->setting, all, ops, owner, proc_out, why, why_size);
	}
	pool_remove(pool, best);
	proc_give(best, ops, owner);
	/* Its successor starts when this client has been served, not in its way. */
	/* Not any later for those who come meanwhile: a row of short programs would never find a warm one. */
	if (!pool->hold_until_ns)
		pool->hold_until_ns = loop_now_ns(pool->loop) + POOL_HOLD_NS;
	pool->calm_looks = 0;
	loop_timer_set(pool->loop, &pool->refill, loop_now_ns(pool->loop) + POOL_LOOK_NS);
	*proc_out = best;
	return 0;
}

unsigned pool_ready_count(const struct pool *pool)
{
	unsigned ready = 0;

	for (unsigned i = 0; i < pool->count; i++)
		ready += pool->procs[i].gpu != POOL_NONE && proc_is_ready(pool->procs[i].proc);
	return ready;
}

const char *pool_trouble(const struct pool *pool)
{
	return pool->trouble;
}
