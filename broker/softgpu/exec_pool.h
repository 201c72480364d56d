/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that execute blocks of kernels.
 *
 * A job is a launch that still has blocks to run. Each thread takes the job at the head of the queue, lets it
 * run one slice and puts it back at the tail, so that concurrent launches all advance even if one of them spins
 * on something another one must do. Jobs may be submitted from any thread.
 */
#ifndef GLEAM_SOFTGPU_EXEC_POOL_H
#define GLEAM_SOFTGPU_EXEC_POOL_H

#include <stdbool.h>

struct exec_pool;

/*
 * Embedded by the owner. @step takes one slice of the work and runs it (several threads may be in it at once);
 * it returns false if there was nothing to take. A slice may put work back before it returns true. Set step
 * before submitting; the rest is the pool's.
 */
struct exec_job {
	bool (*step)(struct exec_job *job);

	/* guarded by the pool's lock */
	struct exec_job *next;
	unsigned int running;
	unsigned long epoch; /* steps that said there is more */
	bool queued;
	bool finished;
};

/* @threads 0: as many as the process may use processors. All signals are blocked in the threads. */
int exec_pool_new(unsigned int threads, struct exec_pool **pool_out);

/* Every job must have been waited for. */
void exec_pool_free(struct exec_pool *pool);

unsigned int exec_pool_threads(const struct exec_pool *pool);

void exec_pool_submit(struct exec_pool *pool, struct exec_job *job);

/*
 * Returns when no thread is in the job any more and its last step said that nothing is left. The calling
 * thread helps with this job meanwhile, so a launch makes progress however busy the pool is.
 */
void exec_pool_wait(struct exec_pool *pool, struct exec_job *job);

#endif
