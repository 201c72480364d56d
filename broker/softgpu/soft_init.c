// SPDX-License-Identifier: Apache-2.0
/*
 * Start of the library: once for a process, and never again in its children.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "broker/softgpu/exec_pool.h"
#include "broker/softgpu/soft_context.h"
#include "broker/softgpu/soft_module.h"

/* Threads beyond this only wait for each other. */
#define THREADS_MOST 256

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by init_lock */
static bool init_done;
static CUresult init_result;

/* Read without the lock: NOT_INITIALIZED until cuInit has succeeded, and in a forked child. */
static _Atomic unsigned int init_state = CUDA_ERROR_NOT_INITIALIZED;
static struct exec_pool *pool;

CUresult soft_ready(void)
{
	return (CUresult)atomic_load_explicit(&init_state, memory_order_acquire);
}

struct exec_pool *soft_pool(void)
{
	return pool;
}

/* The child has none of our threads: nothing can work there. */
static void init_forked(void)
{
	atomic_store(&init_state, CUDA_ERROR_NOT_INITIALIZED);
	init_result = CUDA_ERROR_NOT_INITIALIZED;
}

static CUresult init_run(void)
{
	unsigned int threads = (unsigned int)soft_config_count("GLEAM_SOFTGPU_THREADS", 0, 1, THREADS_MOST);

	soft_places_begin();
	TRY(soft_device_setup());
	TRY(soft_context_setup());
	if (exec_pool_new(threads, &pool) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_atfork(NULL, NULL, init_forked);
	return CUDA_SUCCESS;
}

SOFT_API(cuInit, unsigned int flags)
{
	CUresult result;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (soft_ready() == CUDA_SUCCESS)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&init_lock);
	if (!init_done) {
		init_result = init_run();
		init_done = true;
		/* Pairs with the acquire in soft_ready(). */
		atomic_store_explicit(&init_state, init_result == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED,
				      memory_order_release);
	}
	result = init_result;
	pthread_mutex_unlock(&init_lock);
	return result;
}

/* No profiler listens: starting and stopping one is free. */
SOFT_API(cuProfilerStart, void)
{
	return soft_ready();
}

SOFT_API(cuProfilerStop, void)
{
	return soft_ready();
}

SOFT_API(cuDriverGetVersion, int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = SOFT_VERSION;
	return CUDA_SUCCESS;
}
