/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's threads and its one queue; see the header. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "broker/softgpu/exec_pool.h"

#define POOL_THREADS_MAX 256 /* more than any machine we test on has use for */

struct exec_pool {
	/* set before the threads start, then only read */
	unsigned int thread_count;
	pthread_t *threads;

	pthread_mutex_t lock;
	pthread_cond_t work;  /* a job was queued, or the end has come */
	pthread_cond_t ended; /* a job has finished, or has work again */
	/* guarded by lock */
	struct exec_job *head;
	struct exec_job **tail;
	bool closing;
};

static void queue_add_locked(struct exec_pool *pool, struct exec_job *job)
{
	job->queued = true;
	job->next = NULL;
	*pool->tail = job;
	pool->tail = &job->next;
}

static void queue_remove_locked(struct exec_pool *pool, struct exec_job *job)
{
	struct exec_job **link = &pool->head;

	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (pool->tail == &job->next)
		pool->tail = link;
	job->queued = false;
}

/* One slice. The job stays in the queue while it runs, at the tail, so that other threads help. */
static void job_step_locked(struct exec_pool *pool, struct exec_job *job)
{
	unsigned long epoch;
	bool more;

	if (job->queued) {
		queue_remove_locked(pool, job);
		queue_add_locked(pool, job);
	}
	epoch = job->epoch;
	job->running++;
	pthread_mutex_unlock(&pool->lock);
	more = job->step(job);
	pthread_mutex_lock(&pool->lock);
	job->running--;
	if (more) {
		job->epoch++;
		if (!job->queued) {
			queue_add_locked(pool, job);
			pthread_cond_broadcast(&pool->work);
			pthread_cond_broadcast(&pool->ended);
		}
	} else {
		/* Nothing to take, and nobody has put anything back since we looked. */
		if (epoch == job->epoch && job->queued)
			queue_remove_locked(pool, job);
		/* Out of the queue: somebody saw all there is, and the last who still ran has added nothing. */
		if (!job->queued && !job->running) {
			job->finished = true;
			pthread_cond_broadcast(&pool->ended);
		}
	}
}

static void *pool_thread(void *arg)
{
	struct exec_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	for (;;) {
		while (!pool->head && !pool->closing)
			pthread_cond_wait(&pool->work, &pool->lock);
		if (!pool->head)
			break;
		job_step_locked(pool, pool->head);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

int exec_pool_new(unsigned int threads, struct exec_pool **pool_out)
{
	struct exec_pool *pool = calloc(1, sizeof(*pool));
	sigset_t all;
	sigset_t saved;
	int error = 0;

	if (!pool)
		return -ENOMEM;
	if (!threads) {
		cpu_set_t set;

		threads = sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned int)CPU_COUNT(&set);
	}
	if (threads > POOL_THREADS_MAX)
		threads = POOL_THREADS_MAX;
	pool->threads = calloc(threads, sizeof(*pool->threads));
	if (!pool->threads) {
		free(pool);
		return -ENOMEM;
	}
	pool->tail = &pool->head;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->ended, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	while (pool->thread_count < threads && !error) {
		error = pthread_create(&pool->threads[pool->thread_count], NULL, pool_thread, pool);
		if (!error)
			pool->thread_count++;
	}
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (error && !pool->thread_count) { /* fewer threads than asked for still do the work */
		exec_pool_free(pool);
		return -error;
	}
	*pool_out = pool;
	return 0;
}

void exec_pool_free(struct exec_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	assert(!pool->head);
	pool->closing = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (unsigned int i = 0; i < pool->thread_count; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->ended);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool->threads);
	free(pool);
}

unsigned int exec_pool_threads(const struct exec_pool *pool)
{
	return pool->thread_count;
}

void exec_pool_submit(struct exec_pool *pool, struct exec_job *job)
{
	pthread_mutex_lock(&pool->lock);
	job->running = 0;
	job->finished = false;
	job->epoch = 0;
	queue_add_locked(pool, job);
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void exec_pool_wait(struct exec_pool *pool, struct exec_job *job)
{
	pthread_mutex_lock(&pool->lock);
	while (!job->finished) {
		if (job->queued)
			job_step_locked(pool, job);
		else
			pthread_cond_wait(&pool->ended, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
}
