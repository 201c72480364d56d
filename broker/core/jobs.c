/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads. Any thread; see jobs.h. */
#include "broker/core/jobs.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>


#define JOBS_THREADS_MAX 16u
#define JOBS_NICE	 5 /* a quarter of what others get beside it */

struct jobs {
	/* set when it is made, then only read */
	char name[16];
	unsigned threads_max;
	bool idle;

	pthread_mutex_t lock;
	pthread_cond_t more;
	/* guarded by lock */
	pthread_t threads[JOBS_THREADS_MAX];
	unsigned thread_count;
	unsigned waiting; /* threads without work */
	struct job *first;
	struct job **last;

	bool ending; /* atomic, also guarded by lock */
};

static void *jobs_main(void *arg)
{
	struct jobs *jobs = arg;

	pthread_setname_np(pthread_self(), jobs->name);
	/* Of this thread alone, as Linux has it. Not SCHED_IDLE: on a machine that is never idle it would never come to its turn. */
	if (jobs->idle)
		setpriority(PRIO_PROCESS, (id_t)gettid(), JOBS_NICE);
	pthread_mutex_lock(&jobs->lock);
	for (;;) {
		struct job *job = jobs->first;

		if (!job && jobs->ending)
			break;
		if (!job) {
			jobs->waiting++;
			pthread_cond_wait(&jobs->more, &jobs->lock);
			jobs->waiting--;
			continue;
		}
		jobs->first = job->next;
		if (!jobs->first)
			jobs->last = &jobs->first;
		pthread_mutex_unlock(&jobs->lock);
		job->run(job);
		pthread_mutex_lock(&jobs->lock);
	}
	pthread_mutex_unlock(&jobs->lock);
	return NULL;
}

struct jobs *jobs_new(unsigned threads, const char *name, bool idle)
{
	struct jobs *jobs = calloc(1, sizeof(*jobs));

	if (!jobs)
		return NULL;
	snprintf(jobs->name, sizeof(jobs->name), "%s", name);
	jobs->threads_max = threads < JOBS_THREADS_MAX ? threads : JOBS_THREADS_MAX;
	jobs->idle = idle;
	jobs->last = &jobs->first;
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_cond_init(&jobs->more, NULL);
	return jobs;
}

static void thread_add_locked(struct jobs *jobs)
{
	sigset_t all, before;
	int err;

	/* Signals are the control thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&jobs->threads[jobs->thread_count], NULL, jobs_main, jobs);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		jobs->thread_count++;
}

void jobs_post(struct jobs *jobs, struct job *job)
{
	bool alone = false;

	job->next = NULL;
	pthread_mutex_lock(&jobs->lock);
	*jobs->last = job;
	jobs->last = &job->next;
	if (jobs->waiting == 0 && jobs->thread_count < jobs->threads_max)
		thread_add_locked(jobs);
	alone = jobs->thread_count == 0;
	if (alone) {
		jobs->first = NULL;
		jobs->last = &jobs->first;
	}
	pthread_cond_signal(&jobs->more);
	pthread_mutex_unlock(&jobs->lock);
	/* The system gives us no thread: slowly, but right. */
	if (alone)
		job->run(job);
}

void jobs_free(struct jobs *jobs)
{
	if (!jobs)
		return;
	pthread_mutex_lock(&jobs->lock);
	__atomic_store_n(&jobs->ending, true, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&jobs->more);
	pthread_mutex_unlock(&jobs->lock);
	for (unsigned i = 0; i < jobs->thread_count; i++)
		pthread_join(jobs->threads[i], NULL);
	pthread_cond_destroy(&jobs->more);
	pthread_mutex_destroy(&jobs->lock);
	free(jobs);
}

bool jobs_are_ending(const struct jobs *jobs)
{
	return __atomic_load_n(&jobs->ending, __ATOMIC_RELAXED);
}

unsigned jobs_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	return cores >= 8 ? 4 : cores >= 4 ? (unsigned)cores / 2 : 1;
}
