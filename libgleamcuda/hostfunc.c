// SPDX-License-Identifier: Apache-2.0
/*
 * Host functions. The stream stops at the worker until gleamHostDone says that the function has returned; the function
 * runs here, on one thread that is started at the first need, as natively in the order in which it became due. It may
 * take the program's locks, also those that a thread holds which waits for another stream.
 */
#include "libgleamcuda/hostfunc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/exposed.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

struct hostfunc {
	struct hostfunc *next;
	uint64_t id;
	CUhostFn function; /* one of the two */
	CUstreamCallback callback;
	CUstream stream; /* as the program named it, for the callback */
	void *user;
	/* host data that was on its way on the stream when it was sent: natively it has arrived when the function runs */
	struct stream *behind; /* type-stable */
	uint64_t seq;
};

struct queue {
	struct hostfunc *first;
	struct hostfunc **end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t due = PTHREAD_COND_INITIALIZER;
/* guarded by lock */
static struct hostfunc *waiting; /* sent, not yet due */
static struct queue ready = { .end = &ready.first };
static uint64_t ids;
static bool started;
static bool over;
/* atomic: sent and not yet returned */
static uint32_t outstanding;

bool hostfunc_outstanding(void)
{
	return __atomic_load_n(&outstanding, __ATOMIC_ACQUIRE) != 0;
}

static __thread bool here;

bool hostfunc_here(void)
{
	return here;
}

/* What the function wrote to managed memory is where the work behind it looks, which has been sent long ago. */
static void regions_give(struct call *call, uint64_t stream)
{
	struct stream *side = stream_side(call);

	if (side)
		region_give_by(call, stream, side->handle);
}

static void done_send(struct session *s, uint64_t id, const struct stream *stream)
{
	struct msg_gleamHostDone m = { .id = id };
	struct call call;

	call_start(&call, s, stream->context);
	if (region_any())
		regions_give(&call, stream->handle);
	call.context = NULL;
	/* What the function wrote where kernels look is there when its stream goes on. */
	if (exposed_any())
		exposed_push(&call);
	if (!call_open(&call, OP_gleamHostDone, msg_gleamHostDone_size(&m))) {
		msg_gleamHostDone_put(&call.w, &m);
		call_post(&call);
	}
	call_leave(&call, CUDA_SUCCESS);
}

static void *hostfunc_run(void *arg)
{
	struct session *s = arg;

	here = true;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct hostfunc *f = ready.first;

		if (!f) {
			if (over)
				break;
			pthread_cond_wait(&due, &lock);
			continue;
		}
		ready.first = f->next;
		if (!ready.first)
			ready.end = &ready.first;
		pthread_mutex_unlock(&lock);
		stream_landed_wait(f->behind, f->seq);
		if (f->function)
			f->function(f->user);
		else
			f->callback(f->stream, CUDA_SUCCESS, f->user);
		done_send(s, f->id, f->behind);
		/* Not before: whoever sees none outstanding may send what the worker can only do once it has heard of this end. */
		__atomic_fetch_sub(&outstanding, 1, __ATOMIC_RELEASE);
		free(f);
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static CUresult start_locked(struct session *s)
{
	pthread_t thread;
	sigset_t all, before;
	int err;

	if (started)
		return CUDA_SUCCESS;
	sigfillset(&all);
	/* The program's code faults there like anywhere: at managed memory, or to the program's own handlers. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* The default stack: it runs the program's code. */
	err = pthread_create(&thread, NULL, hostfunc_run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		gleam_log("thread for host functions: %s", strerror(err));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	pthread_setname_np(thread, "gleam-hostfn");
	started = true;
	return CUDA_SUCCESS;
}

void hostfunc_wanted(struct session *s, uint64_t id)
{
	pthread_mutex_lock(&lock);
	for (struct hostfunc **at = &waiting; *at; at = &(*at)->next) {
		struct hostfunc *f = *at;

		if (f->id != id)
			continue;
		*at = f->next;
		f->next = NULL;
		*ready.end = f;
		ready.end = &f->next;
		pthread_cond_signal(&due);
		pthread_mutex_unlock(&lock);
		return;
	}
	pthread_mutex_unlock(&lock);
	gleam_log("a host function is wanted that was never launched");
}

void hostfunc_fail_all(void)
{
	pthread_mutex_lock(&lock);
	over = true;
	while (waiting) {
		struct hostfunc *f = waiting;

		waiting = f->next;
		free(f);
		__atomic_fetch_sub(&outstanding, 1, __ATOMIC_RELEASE);
	}
	pthread_cond_signal(&due);
	pthread_mutex_unlock(&lock);
}

/* Takes @f. */
static CUresult hostfunc_send(struct call *call, struct hostfunc *f, uint64_t stream)
{
	struct msg_gleamHostFunc m = { .stream = stream };
	CUresult result;

	f->behind = stream_find(call, stream);
	if (!f->behind) {
		free(f);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	f->seq = __atomic_load_n(&f->behind->last_seq, __ATOMIC_ACQUIRE);
	pthread_mutex_lock(&lock);
	result = over ? session_death(call->session) : start_locked(call->session);
	if (!result) {
		m.id = f->id = ++ids;
		f->next = waiting;
		waiting = f;
		__atomic_fetch_add(&outstanding, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	if (result) {
		free(f);
		return result;
	}
	result = call_open(call, OP_gleamHostFunc, msg_gleamHostFunc_size(&m));
	if (result)
		return CUDA_SUCCESS; /* the session has ended: hostfunc_fail_all() frees it, and the next call tells */
	msg_gleamHostFunc_put(&call->w, &m);
	stream_note(call, m.stream, call_post(call));
	return CUDA_SUCCESS;
}

CUresult hostfunc_stop(struct call *call, uint64_t stream, CUhostFn function, void *user)
{
	struct hostfunc *f = calloc(1, sizeof(*f));

	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->function = function;
	f->user = user;
	return hostfunc_send(call, f, stream);
}

CUresult do_cuLaunchHostFunc(struct call *call, CUstream hStream, CUhostFn fn, void *userData)
{
	bool captured = false;
	uint64_t stream;
	CUresult result;

	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream_captured(call, hStream, &stream, &captured);
	if (result)
		return result;
	if (captured) {
		struct graph_work work = { .type = CU_GRAPH_NODE_TYPE_HOST, .host = { fn, userData } };

		return capture_add(call, stream, &work);
	}
	return hostfunc_stop(call, stream, fn, userData);
}

CUresult do_cuStreamAddCallback(struct call *call, CUstream hStream, CUstreamCallback callback, void *userData,
				unsigned int flags)
{
	struct hostfunc *f;
	uint64_t stream;
	CUresult result;

	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = call_stream(call, hStream, &stream);
	if (result)
		return result;
	f = calloc(1, sizeof(*f));
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->callback = callback;
	f->stream = hStream;
	f->user = userData;
	return hostfunc_send(call, f, stream);
}
