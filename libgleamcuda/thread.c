// SPDX-License-Identifier: Apache-2.0
/*
 * What each thread has: its stack of current contexts and its own streams. Found by one thread-local pointer; a thread
 * reads and writes its own alone.
 */
#include <pthread.h>
#include <stdlib.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"

#define STACK_FIRST 8	    /* room at first; programs nest 2 or 3 */
#define STACK_MAX (1u << 20) /* beyond that a program pushes without ever popping */
#define HOOKS_MAX 6

/* Initial-exec: a load relative to the thread pointer. The loader keeps room for pointers, not for whole structs. */
static __thread struct thread *self __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* its destructor is how we hear of a thread's end */
static bool key_made;
static uint32_t thread_count; /* atomic */

static void (*hooks[HOOKS_MAX])(struct thread *thread); /* atomic */

void thread_on_end(void (*hook)(struct thread *thread))
{
	for (int i = 0; i < HOOKS_MAX; i++) {
		void (*none)(struct thread *thread) = NULL;

		if (__atomic_load_n(&hooks[i], __ATOMIC_RELAXED) == hook ||
		    __atomic_compare_exchange_n(&hooks[i], &none, hook, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return;
	}
	assert(!"thread_on_end: raise HOOKS_MAX");
}

static void thread_end(void *arg)
{
	struct thread *thread = arg;

	for (int i = 0; i < HOOKS_MAX; i++) {
		void (*hook)(struct thread *ended) = __atomic_load_n(&hooks[i], __ATOMIC_ACQUIRE);

		if (hook)
			hook(thread);
	}
	while (thread_pop(thread))
		;
	/* A later destructor of this thread may call us again: it gets a fresh one, whose end is seen too. */
	self = NULL;
	free(thread->stack);
	free(thread);
}

static void key_make(void)
{
	key_made = pthread_key_create(&key, thread_end) == 0;
}

static struct thread *thread_new(void)
{
	struct thread *thread = calloc(1, sizeof(*thread));

	if (!thread)
		return NULL;
	thread->stack = malloc(STACK_FIRST * sizeof(thread->stack[0]));
	if (!thread->stack) {
		free(thread);
		return NULL;
	}
	thread->depth_max = STACK_FIRST;
	thread->number = __atomic_add_fetch(&thread_count, 1, __ATOMIC_RELAXED);
	thread->capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	pthread_once(&key_once, key_make);
	/* Without a key the thread's end goes unseen, and its few kilobytes stay. */
	if (key_made)
		pthread_setspecific(key, thread);
	self = thread;
	return thread;
}

struct thread *thread_current(void)
{
	struct thread *thread = self;

	return __builtin_expect(thread != NULL, 1) ? thread : thread_new();
}

struct context *context_current(void)
{
	const struct thread *thread = self;

	return thread && thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUresult thread_push(struct thread *thread, struct context *context)
{
	if (thread->depth == thread->depth_max) {
		uint32_t depth_max = thread->depth_max * 2;
		struct context **stack;

		if (depth_max > STACK_MAX)
			return CUDA_ERROR_OUT_OF_MEMORY;
		stack = realloc(thread->stack, depth_max * sizeof(stack[0]));
		if (!stack)
			return CUDA_ERROR_OUT_OF_MEMORY;
		thread->stack = stack;
		thread->depth_max = depth_max;
	}
	__atomic_fetch_add(&context->stacked, 1, __ATOMIC_RELAXED);
	thread->stack[thread->depth++] = context;
	return CUDA_SUCCESS;
}

struct context *thread_pop(struct thread *thread)
{
	struct context *context;

	if (!thread->depth)
		return NULL;
	context = thread->stack[--thread->depth];
	__atomic_fetch_sub(&context->stacked, 1, __ATOMIC_RELEASE);
	return context;
}

CUresult thread_set(struct thread *thread, struct context *context)
{
	if (context && thread->depth && thread->stack[thread->depth - 1] == context)
		return CUDA_SUCCESS;
	thread_pop(thread);
	return context ? thread_push(thread, context) : CUDA_SUCCESS;
}

/* Any value is taken, as the driver takes it. */
CUresult do_cuThreadExchangeStreamCaptureMode(struct call *call, CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = call->thread->capture_mode;

	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	call->thread->capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
