// SPDX-License-Identifier: Apache-2.0
/*
 * The scheduler: queues, tickets and the threads that run streams. A stream's thread is started by its first
 * command and ends after a while without one.
 */
#include "broker/softgpu/soft_stream.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/softgpu/soft_capture.h"
#include "broker/softgpu/soft_memory.h"

/* A thread without work stays this long: the next command then costs a wake-up, not a new thread. */
#define THREAD_IDLE_NS 2000000000u

static pthread_mutex_t sched_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sched_progress = PTHREAD_COND_INITIALIZER;
/* guarded by sched_lock */
static unsigned int sched_waiters;

static _Atomic uint64_t stream_ids = 1;

/* ---- tickets ---- */

struct soft_ticket *soft_ticket_new(void)
{
	struct soft_ticket *ticket = calloc(1, sizeof(*ticket));

	if (ticket)
		atomic_init(&ticket->refs, 1);
	return ticket;
}

struct soft_ticket *soft_ticket_get(struct soft_ticket *ticket)
{
	atomic_fetch_add_explicit(&ticket->refs, 1, memory_order_relaxed);
	return ticket;
}

void soft_ticket_put(struct soft_ticket *ticket)
{
	if (ticket && atomic_fetch_sub_explicit(&ticket->refs, 1, memory_order_acq_rel) == 1)
		free(ticket);
}

bool soft_ticket_done(const struct soft_ticket *ticket)
{
	/* Pairs with the release in ticket_tear_locked(). */
	return atomic_load_explicit(&ticket->done, memory_order_acquire);
}

static void ticket_tear_locked(struct soft_ticket *ticket)
{
	ticket->time_ns = soft_now_ns();
	atomic_store_explicit(&ticket->done, true, memory_order_release);
	if (sched_waiters)
		pthread_cond_broadcast(&sched_progress);
}

void soft_ticket_tear(struct soft_ticket *ticket)
{
	pthread_mutex_lock(&sched_lock);
	ticket_tear_locked(ticket);
	pthread_mutex_unlock(&sched_lock);
}

static void ticket_wait_locked(struct soft_ticket *ticket)
{
	sched_waiters++;
	while (!soft_ticket_done(ticket))
		pthread_cond_wait(&sched_progress, &sched_lock);
	sched_waiters--;
}

void soft_ticket_wait(struct soft_ticket *ticket)
{
	if (soft_ticket_done(ticket))
		return;
	pthread_mutex_lock(&sched_lock);
	ticket_wait_locked(ticket);
	pthread_mutex_unlock(&sched_lock);
}

/* ---- commands ---- */

static void command_free(struct soft_command *command)
{
	for (unsigned int i = 0; i < command->wait_count; i++)
		soft_ticket_put(command->waits[i]);
	free(command->waits);
	soft_ticket_put(command->ticket);
	command->free(command);
}

CUresult soft_command_wait(struct soft_command *command, struct soft_ticket *ticket)
{
	if (!ticket || soft_ticket_done(ticket))
		return CUDA_SUCCESS;
	if (command->wait_count == command->wait_room) {
		unsigned int room = command->wait_room ? command->wait_room * 2 : 4;
		struct soft_ticket **waits = realloc(command->waits, room * sizeof(*waits));

		if (!waits)
			return CUDA_ERROR_OUT_OF_MEMORY;
		command->waits = waits;
		command->wait_room = room;
	}
	command->waits[command->wait_count++] = soft_ticket_get(ticket);
	return CUDA_SUCCESS;
}

static bool stream_blocks(const struct soft_stream *stream)
{
	return !(stream->flags & CU_STREAM_NON_BLOCKING);
}

/* The legacy stream's rule: it waits for every blocking stream, and every blocking stream waits for it. */
static CUresult command_order_locked(struct soft_stream *stream, struct soft_command *command)
{
	struct soft_context *context = soft_stream_context(stream);

	if (stream->kind == SOFT_STREAM_LEGACY) {
		for (struct soft_stream *other = context->streams; other; other = other->next)
			if (other != stream && stream_blocks(other))
				TRY(soft_command_wait(command, other->last));
		return CUDA_SUCCESS;
	}
	if (stream_blocks(stream) && context->legacy)
		return soft_command_wait(command, context->legacy->last);
	return CUDA_SUCCESS;
}

static void command_run(struct soft_stream *stream, struct soft_command *command)
{
	struct soft_context *context = soft_stream_context(stream);
	CUresult result;

	if (!command->run || atomic_load(&context->ending))
		return;
	if (atomic_load(&context->error) && !command->after_error)
		return;
	result = command->run(command, stream);
	if (result != CUDA_SUCCESS)
		soft_context_fail(context, result);
}

/* ---- the thread of a stream ---- */

/* Waits until there is a command or none will come: false then. */
static bool stream_await_locked(struct soft_stream *stream)
{
	struct timespec until;
	uint64_t end = soft_now_ns() + THREAD_IDLE_NS;

	until.tv_sec = (time_t)(end / 1000000000u);
	until.tv_nsec = (long)(end % 1000000000u);
	while (!stream->head && !stream->closing)
		if (pthread_cond_timedwait(&stream->wake, &sched_lock, &until) == ETIMEDOUT)
			break;
	return stream->head != NULL;
}

static void stream_unlink_locked(struct soft_stream *stream)
{
	if (!stream->link)
		return;
	*stream->link = stream->next;
	if (stream->next)
		stream->next->link = stream->link;
	stream->link = NULL;
	if (sched_waiters)
		pthread_cond_broadcast(&sched_progress);
}

static void *stream_thread(void *argument)
{
	struct soft_stream *stream = argument;
	struct soft_context *context = soft_stream_context(stream);

	pthread_mutex_lock(&sched_lock);
	while (stream_await_locked(stream)) {
		struct soft_command *command = stream->head;

		for (unsigned int i = 0; i < command->wait_count && !atomic_load(&context->ending); i++) {
			sched_waiters++;
			while (!soft_ticket_done(command->waits[i]) && !atomic_load(&context->ending))
				pthread_cond_wait(&sched_progress, &sched_lock);
			sched_waiters--;
		}
		pthread_mutex_unlock(&sched_lock);

		command_run(stream, command);

		pthread_mutex_lock(&sched_lock);
		stream->head = command->next;
		if (!stream->head)
			stream->tail = &stream->head;
		stream->count--;
		ticket_tear_locked(command->ticket);
		pthread_cond_signal(&stream->room);
		pthread_mutex_unlock(&sched_lock);
		/* Frees buffers and handles: not under the lock. */
		command_free(command);
		pthread_mutex_lock(&sched_lock);
	}
	stream->running = false;
	if (stream->closing)
		stream_unlink_locked(stream);
	if (sched_waiters)
		pthread_cond_broadcast(&sched_progress);
	pthread_mutex_unlock(&sched_lock);
	soft_object_put(&stream->object);
	return NULL;
}

static CUresult stream_start_locked(struct soft_stream *stream)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int ret;

	if (stream->running)
		return CUDA_SUCCESS;
	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	soft_object_get(&stream->object);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&thread, &attr, stream_thread, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (ret) {
		soft_log("stream %llu: no thread: %s", (unsigned long long)stream->id, strerror(ret));
		soft_object_put(&stream->object);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	stream->running = true;
	return CUDA_SUCCESS;
}

/* ---- streams ---- */

static void stream_free(struct soft_object *object)
{
	struct soft_stream *stream = (struct soft_stream *)object;

	assert(!stream->head && !stream->link);
	soft_ticket_put(stream->last);
	pthread_cond_destroy(&stream->wake);
	pthread_cond_destroy(&stream->room);
	free(stream);
}

CUresult soft_stream_new(struct soft_context *context, enum soft_stream_kind kind, unsigned int flags, int priority,
			 struct soft_stream **stream_out)
{
	struct soft_stream *stream = calloc(1, sizeof(*stream));
	pthread_condattr_t attr;
	CUresult result;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&stream->object, SOFT_STREAM, context, stream_free);
	stream->kind = kind;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = atomic_fetch_add(&stream_ids, 1);
	stream->tail = &stream->head;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&stream->wake, &attr);
	pthread_cond_init(&stream->room, NULL);
	pthread_condattr_destroy(&attr);
	result = soft_object_publish(&stream->object);
	if (result != CUDA_SUCCESS) {
		soft_object_put(&stream->object);
		return result;
	}
	soft_object_get(&stream->object);
	pthread_mutex_lock(&sched_lock);
	stream->next = context->streams;
	stream->link = &context->streams;
	if (stream->next)
		stream->next->link = &stream->next;
	context->streams = stream;
	if (kind == SOFT_STREAM_LEGACY)
		context->legacy = stream;
	pthread_mutex_unlock(&sched_lock);
	*stream_out = stream;
	return CUDA_SUCCESS;
}

CUresult soft_stream_submit(struct soft_stream *stream, struct soft_command *command, struct soft_ticket **ticket_out)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

	command->next = NULL;
	command->ticket = NULL;
	/* What can be captured has become a node before. */
	if (__builtin_expect(soft_capturing(stream), 0)) {
		result = soft_capture_refuse(stream);
		goto drop;
	}
	command->ticket = soft_ticket_new();
	if (!command->ticket)
		goto drop;
	pthread_mutex_lock(&sched_lock);
	while (stream->count >= SOFT_STREAM_DEPTH && !stream->closing)
		pthread_cond_wait(&stream->room, &sched_lock);
	if (stream->closing) {
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
		goto unlock;
	}
	result = command_order_locked(stream, command);
	if (result == CUDA_SUCCESS)
		result = stream_start_locked(stream);
	if (result != CUDA_SUCCESS)
		goto unlock;
	*stream->tail = command;
	stream->tail = &command->next;
	stream->count++;
	soft_ticket_put(stream->last);
	stream->last = soft_ticket_get(command->ticket);
	if (ticket_out)
		*ticket_out = soft_ticket_get(command->ticket);
	pthread_cond_signal(&stream->wake);
	pthread_mutex_unlock(&sched_lock);
	return CUDA_SUCCESS;
unlock:
	pthread_mutex_unlock(&sched_lock);
drop:
	command_free(command);
	return result;
}

static void mark_free(struct soft_command *command)
{
	free(command);
}

CUresult soft_stream_mark(struct soft_stream *stream, struct soft_ticket *after, struct soft_ticket **ticket_out)
{
	struct soft_command *command = calloc(1, sizeof(*command));
	CUresult result;

	if (!command)
		return CUDA_ERROR_OUT_OF_MEMORY;
	command->free = mark_free;
	result = soft_command_wait(command, after);
	if (result != CUDA_SUCCESS) {
		command_free(command);
		return result;
	}
	return soft_stream_submit(stream, command, ticket_out);
}

struct soft_ticket *soft_stream_last(struct soft_stream *stream)
{
	struct soft_ticket *ticket;

	pthread_mutex_lock(&sched_lock);
	ticket = stream->last ? soft_ticket_get(stream->last) : NULL;
	pthread_mutex_unlock(&sched_lock);
	return ticket;
}

CUresult soft_stream_sync(struct soft_stream *stream)
{
	struct soft_context *context = soft_stream_context(stream);
	struct soft_ticket *ticket = NULL;

	/* Waiting for the legacy stream is waiting for a command put there now: it follows all blocking streams. */
	if (stream->kind == SOFT_STREAM_LEGACY)
		TRY(soft_stream_mark(stream, NULL, &ticket));
	else
		ticket = soft_stream_last(stream);
	if (ticket) {
		soft_ticket_wait(ticket);
		soft_ticket_put(ticket);
	}
	soft_pool_settle(context->device);
	return (CUresult)atomic_load(&context->error);
}

/* Waits for what is queued in the context now. Streams come and go meanwhile, so it starts over after each wait. */
static void context_drain(struct soft_context *context)
{
	struct soft_ticket **tickets = NULL;
	unsigned int count = 0, room = 0;

	pthread_mutex_lock(&sched_lock);
	for (struct soft_stream *stream = context->streams; stream; stream = stream->next) {
		if (!stream->last || soft_ticket_done(stream->last))
			continue;
		if (count == room) {
			struct soft_ticket **grown = realloc(tickets, (room + 16) * sizeof(*grown));

			/* Without memory the streams collected so far are waited for, and then the rest. */
			if (!grown) {
				if (!count)
					ticket_wait_locked(stream->last);
				break;
			}
			tickets = grown;
			room += 16;
		}
		tickets[count++] = soft_ticket_get(stream->last);
	}
	pthread_mutex_unlock(&sched_lock);
	for (unsigned int i = 0; i < count; i++) {
		soft_ticket_wait(tickets[i]);
		soft_ticket_put(tickets[i]);
	}
	free(tickets);
}

CUresult soft_context_sync(struct soft_context *context)
{
	context_drain(context);
	soft_pool_settle(context->device);
	return (CUresult)atomic_load(&context->error);
}

bool soft_context_idle(struct soft_context *context)
{
	bool idle = true;

	pthread_mutex_lock(&sched_lock);
	for (struct soft_stream *stream = context->streams; stream && idle; stream = stream->next)
		if (stream_blocks(stream) && stream->last && !soft_ticket_done(stream->last))
			idle = false;
	pthread_mutex_unlock(&sched_lock);
	return idle;
}

void soft_stream_close(struct soft_stream *stream)
{
	pthread_mutex_lock(&sched_lock);
	stream->closing = true;
	pthread_cond_signal(&stream->wake);
	pthread_cond_broadcast(&stream->room);
	if (!stream->running)
		stream_unlink_locked(stream);
	pthread_mutex_unlock(&sched_lock);
	soft_object_put(&stream->object);
}

void soft_stream_stop_all(struct soft_context *context)
{
	struct soft_object *object;

	/* Those with a handle first: their table reference goes with the close. */
	while ((object = soft_object_retire_owned(context, SOFT_STREAM)) != NULL)
		soft_stream_close((struct soft_stream *)object);
	pthread_mutex_lock(&sched_lock);
	for (struct soft_stream *stream = context->streams; stream; stream = stream->next)
		pthread_cond_broadcast(&stream->wake);
	pthread_cond_broadcast(&sched_progress);
	sched_waiters++;
	while (context->streams)
		pthread_cond_wait(&sched_progress, &sched_lock);
	sched_waiters--;
	context->legacy = NULL;
	pthread_mutex_unlock(&sched_lock);
}

bool soft_stream_stopped(const struct soft_stream *stream)
{
	const struct soft_context *context = soft_stream_context(stream);

	return atomic_load(&context->ending) || atomic_load(&context->error);
}

void soft_poll_pause(unsigned int *round)
{
	/* A word that changes at once is seen within microseconds; one that does not costs little. */
	static const long nanoseconds[] = { 2000, 5000, 10000, 20000, 50000, 100000, 200000 };
	unsigned int step = *round / 16;
	struct timespec pause = { 0 };

	if (*round < 16 * (sizeof(nanoseconds) / sizeof(nanoseconds[0]) - 1))
		++*round;
	pause.tv_nsec = nanoseconds[step];
	nanosleep(&pause, NULL);
}

/* ---- which stream a handle means ---- */

/* Streams that CU_STREAM_PER_THREAD has meant in this thread, one for each context. */
struct thread_streams {
	unsigned int count, room;
	struct soft_stream **streams;
};

__thread unsigned int soft_per_thread_calls;
static __thread struct thread_streams *thread_streams;
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;

static void thread_streams_free(void *argument)
{
	struct thread_streams *own = argument;

	for (unsigned int i = 0; i < own->count; i++) {
		struct soft_stream *stream = own->streams[i];
		struct soft_object *object = soft_object_retire(atomic_load(&stream->object.handle), SOFT_STREAM);

		if (object)
			soft_stream_close((struct soft_stream *)object);
		soft_object_put(&stream->object);
	}
	free(own->streams);
	free(own);
	thread_streams = NULL;
}

static void thread_key_make(void)
{
	pthread_key_create(&thread_key, thread_streams_free);
}

static CUresult thread_stream(struct soft_context *context, struct soft_stream **stream_out)
{
	struct thread_streams *own = thread_streams;

	if (!own) {
		pthread_once(&thread_once, thread_key_make);
		own = calloc(1, sizeof(*own));
		if (!own || pthread_setspecific(thread_key, own)) {
			free(own);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		thread_streams = own;
	}
	for (unsigned int i = 0; i < own->count; i++) {
		struct soft_stream *stream = own->streams[i];

		if (!atomic_load(&stream->object.handle)) { /* its context has ended */
			soft_object_put(&stream->object);
			own->streams[i--] = own->streams[--own->count];
		} else if (soft_stream_context(stream) == context) {
			*stream_out = (struct soft_stream *)soft_object_get(&stream->object);
			return CUDA_SUCCESS;
		}
	}
	if (own->count == own->room) {
		struct soft_stream **grown = realloc(own->streams, (own->room + 8) * sizeof(*grown));

		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		own->streams = grown;
		own->room += 8;
	}
	TRY(soft_stream_new(context, SOFT_STREAM_THREAD, 0, 0, &own->streams[own->count]));
	*stream_out = (struct soft_stream *)soft_object_get(&own->streams[own->count++]->object);
	return CUDA_SUCCESS;
}

static CUresult legacy_stream(struct soft_context *context, struct soft_stream **stream_out)
{
	pthread_mutex_lock(&sched_lock);
	*stream_out = context->legacy;
	if (context->legacy)
		soft_object_get(&context->legacy->object);
	pthread_mutex_unlock(&sched_lock);
	return *stream_out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult soft_stream_find(CUstream handle, struct soft_stream **stream_out)
{
	struct soft_stream *stream;
	CUresult error;

	TRY(soft_ready());
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
		SOFT_ENTER(context);
		if (handle == CU_STREAM_PER_THREAD || (!handle && soft_per_thread_calls))
			return thread_stream(context, stream_out);
		return legacy_stream(context, stream_out);
	}
	stream = (struct soft_stream *)soft_object_find((uint64_t)(uintptr_t)handle, SOFT_STREAM);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	error = (CUresult)atomic_load(&soft_stream_context(stream)->error);
	if (error != CUDA_SUCCESS) {
		soft_object_put(&stream->object);
		return error;
	}
	*stream_out = stream;
	return CUDA_SUCCESS;
}
