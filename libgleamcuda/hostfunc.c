// SPDX-License-Identifier: Apache-2.0
/*
 * Host functions. The stream stops at the worker until gleamHostDone says that the function has returned; the function
 * runs here, on one thread that is started at the first need, as natively in the order in which it became due. It may
 * take the program's locks, also those that a thread holds which waits for another stream. So the library's own, which other
 * servers' streams may be waiting for, run on a thread of their own.
 *
 * The worker says that a function is due as soon as the device's work before it is done; the one before it on its stream may
 * not have returned by then, or not even run. Until then it is held here.
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
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

struct hostfunc {
	struct hostfunc *next;
	struct hostfunc *next_current;
	uint64_t id;
	struct session *session;
	CUhostFn function; /* one of the three */
	CUstreamCallback callback;
	hostfunc_relay *relay;
	bool failed; /* the session has ended: only for relays */
	CUstream stream; /* as the program named it, for the callback */
	uint64_t handle; /* of the stream */
	void *user;
	struct stream *behind; /* the stream; type-stable */
};

/* A thread, and what it has to run. */
struct runner {
	const char *name;
	pthread_cond_t due;
	/* guarded by lock */
	bool started;
	struct hostfunc *first;
	struct hostfunc **end;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct runner program = { .name = "gleam-hostfn", .due = PTHREAD_COND_INITIALIZER, .end = &program.first };
static struct runner relays = { .name = "gleam-relay", .due = PTHREAD_COND_INITIALIZER, .end = &relays.first };
/* guarded by lock */
static struct hostfunc *waiting; /* sent, not yet due */
static struct hostfunc *current; /* due, one for each stream that has any: in a runner's list, or begun and not yet over */
static struct hostfunc *held;	 /* due behind one of those, in the order in which the worker said so */
static struct hostfunc **held_end = &held;
static uint64_t ids;
static bool over[SESSIONS_MAX];
/* atomic: sent and not yet returned */
static uint32_t outstanding;

bool hostfunc_outstanding(void)
{
	return __atomic_load_n(&outstanding, __ATOMIC_ACQUIRE) != 0;
}

static __thread struct runner *here;

bool hostfunc_here(void)
{
	return here;
}

bool hostfunc_relays(void)
{
	return here == &relays;
}

static bool is_same_stream(const struct hostfunc *a, const struct hostfunc *b)
{
	/* A stream's place is used again at once, its handle isn't; the legacy stream's handle is each context's. */
	return a->behind == b->behind && a->handle == b->handle;
}

static void ready_add_locked(struct hostfunc *f)
{
	struct runner *runner = f->relay ? &relays : &program;

	f->next_current = current;
	current = f;
	f->next = NULL;
	*runner->end = f;
	runner->end = &f->next;
	pthread_cond_signal(&runner->due);
}

static void due_locked(struct hostfunc *f)
{
	for (const struct hostfunc *c = current; c; c = c->next_current)
		if (is_same_stream(c, f)) {
			f->next = NULL;
			*held_end = f;
			held_end = &f->next;
			return;
		}
	ready_add_locked(f);
}

/* @f is over: what its stream has next may run. */
static void over_locked(struct hostfunc *f)
{
	struct hostfunc **link = &current;

	while (*link != f)
		link = &(*link)->next_current;
	*link = f->next_current;
	for (link = &held; *link; link = &(*link)->next) {
		struct hostfunc *next = *link;

		if (!is_same_stream(next, f))
			continue;
		*link = next->next;
		if (!*link)
			held_end = link;
		ready_add_locked(next);
		return;
	}
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
	CALL_SEND(&call, gleamHostDone, &m);
	call_leave(&call, CUDA_SUCCESS);
}

void hostfunc_go(struct hostfunc *stop)
{
	if (!stop->failed)
		done_send(stop->session, stop->id, stop->behind);
	pthread_mutex_lock(&lock);
	over_locked(stop);
	pthread_mutex_unlock(&lock);
	/* Not before: whoever sees none outstanding may send what the worker can only do once it has heard of this end. */
	__atomic_fetch_sub(&outstanding, 1, __ATOMIC_RELEASE);
	free(stop);
}

static void run(struct hostfunc *f)
{
	/*
	 * Host data of all that comes before it: the worker counts what it sends, and told the count before it said that this is due. Not of
	 * streams by their rules, as a wait for a stream does: what stands behind a function that this one keeps waiting never comes.
	 */
	if (!f->failed && late_any()) {
		service_settle(f->session);
		late_told_wait(f->session);
	}
	if (f->relay) {
		f->relay(f, f->failed, f->user);
		return;
	}
	if (f->function)
		f->function(f->user);
	else
		f->callback(f->stream, CUDA_SUCCESS, f->user);
	hostfunc_go(f);
}

static void *runner_run(void *arg)
{
	struct runner *runner = here = arg;

	pthread_mutex_lock(&lock);
	for (;;) {
		struct hostfunc *f = runner->first;

		if (!f) {
			pthread_cond_wait(&runner->due, &lock);
			continue;
		}
		runner->first = f->next;
		if (!runner->first)
			runner->end = &runner->first;
		pthread_mutex_unlock(&lock);
		run(f);
		pthread_mutex_lock(&lock);
	}
	return NULL;
}

static CUresult start_locked(struct runner *runner)
{
	pthread_t thread;
	sigset_t all, before;
	int err;

	if (runner->started)
		return CUDA_SUCCESS;
	sigfillset(&all);
	/* The program's code faults there like anywhere: at managed memory, or to the program's own handlers. */
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* The default stack: it runs the program's code. */
	err = pthread_create(&thread, NULL, runner_run, runner);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err) {
		gleam_log("thread for host functions: %s", strerror(err));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	pthread_setname_np(thread, runner->name);
	runner->started = true;
	return CUDA_SUCCESS;
}

void hostfunc_wanted(struct session *s, uint64_t id)
{
	pthread_mutex_lock(&lock);
	for (struct hostfunc **at = &waiting; *at; at = &(*at)->next) {
		struct hostfunc *f = *at;

		/* A server has no say about another's. */
		if (f->id != id || f->session != s)
			continue;
		*at = f->next;
		due_locked(f);
		pthread_mutex_unlock(&lock);
		return;
	}
	pthread_mutex_unlock(&lock);
	gleam_log("a host function is wanted that was never launched");
}

/* What of the list at @at is for @s runs no more; the library's own is called all the same. Gives the list's end. */
static struct hostfunc **list_fail_locked(struct hostfunc **at, const struct session *s)
{
	while (*at) {
		struct hostfunc *f = *at;

		if (f->session != s) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		if (f->relay) {
			f->failed = true;
			ready_add_locked(f);
			continue;
		}
		free(f);
		__atomic_fetch_sub(&outstanding, 1, __ATOMIC_RELEASE);
	}
	return at;
}

void hostfunc_fail(struct session *s)
{
	pthread_mutex_lock(&lock);
	over[s->index] = true;
	list_fail_locked(&waiting, s);
	held_end = list_fail_locked(&held, s);
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
	f->handle = stream;
	f->session = call->session;
	pthread_mutex_lock(&lock);
	result = over[call->session->index] ? session_death(call->session) : start_locked(f->relay ? &relays : &program);
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
		return CUDA_SUCCESS; /* the session has ended: hostfunc_fail() sees to it, and the next call tells */
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

CUresult hostfunc_relay_stop(struct call *call, uint64_t stream, hostfunc_relay *function, void *user)
{
	struct hostfunc *f = calloc(1, sizeof(*f));

	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	f->relay = function;
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
