/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes, synchronisation and host functions. Executor thread; see sync.h.
 */
#include "broker/worker/sync.h"

#include <stdlib.h>

#include "broker/worker/completion.h"
#include "broker/worker/host.h"
#include "broker/worker/note.h"
#include "broker/worker/pinned.h"
#include "broker/worker/post.h"
#include "broker/worker/print.h"
#include "broker/worker/spare.h"
#include "broker/worker/stream.h"
#include "broker/worker/turn.h"
#include "gen/worker_bodies.h"

/* A stream that stands still until the client's function has returned. */
struct host_call {
	struct host_call *next;
	uint64_t id;
	struct context *context;
	uint32_t *word; /* the stream waits for 1 */
	bool done;	/* the word is 1; it comes back when the stream has passed */
};

struct host_calls {
	pthread_mutex_t lock;
	struct host_call *first; /* changed by the executor under lock */
	uint32_t standing;	 /* atomic: not done */
	uint32_t ahead;		 /* guarded by lock: done by host_call_ahead(), their commands are still to come */
};

/* ---- flush and synchronise ---- */

/* Of other streams nothing is outstanding that a command put on @s now would come after, by the legacy stream's rule. */
static bool others_are_quiet(struct worker *w, const struct stream *s)
{
	const struct context *c = s->context;

	if (!c || !s->blocking || s->own)
		return true;
	if (s != c->legacy)
		return !c->legacy || stream_is_idle(c->legacy);
	for (const struct stream *o = w->streams; o; o = o->next)
		if (o != s && o->context == c && o->blocking && !o->own && !o->dead && !stream_is_idle(o))
			return false;
	return true;
}

/* Nothing is outstanding that a command put on @s now would come after. */
static bool stream_is_quiet(struct worker *w, const struct stream *s)
{
	return stream_is_idle(s) && others_are_quiet(w, s);
}

/*
 * @s is seen to be quiet here, maybe before the completion thread has seen it: what its kernels have printed goes first. Nothing is
 * waited for.
 */
static void quiet_print(struct worker *w, const struct stream *s)
{
	if (!print_wanted() || !s->context)
		return;
	print_stream(w, s->context->driver, s->driver);
	w->current_known = false;
}

CUresult worker_do_gleamFlush(struct worker *w, struct cmd *cmd, const struct msg_gleamFlush *m)
{
	cmd->commands = 0;
	if (stream_is_quiet(w, cmd->own)) {
		quiet_print(w, cmd->own);
		stream_settle(w, cmd->own, cmd->hdr->seq);
	} else {
		cmd->write_now = true;
		completion_hurry(w);
	}
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamStreamSync(struct worker *w, struct cmd *cmd, const struct msg_gleamStreamSync *m)
{
	struct stream *s = cmd->own;
	struct wait *wait;

	cmd->commands = 0;
	if (stream_is_quiet(w, s)) {
		quiet_print(w, s);
		stream_settle(w, s, cmd->hdr->seq);
		/* The GPU has just written that it is done; the completion thread may still be on its way to see it. */
		host_ranges_tell(w);
		return CUDA_SUCCESS;
	}
	wait = wait_new(w, WAIT_REPLY, cmd->hdr);
	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/*
	 * First of all: the GPU may be done with what came before it by then. Where the last command has been written down already, a copy to the host, that
	 * write will do: so its bytes, its word and this answer are one look, and one record to the client. (Told of it is this command all the same.)
	 */
	if (!s->since_write && !s->failed && others_are_quiet(w, s))
		wait->seq = s->written;
	else
		stream_write(w, s, cmd->hdr->seq);
	stream_wait(w, s, wait);
	return CMD_LATER;
}

static void context_synced(struct worker *w, struct join *join)
{
	__atomic_fetch_sub(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	host_ranges_tell(w);
	if (print_wanted() && join->result == CUDA_SUCCESS && w->contexts[join->a].open)
		print_context(w, w->contexts[join->a].driver);
	post_reply(w, &join->hdr, join->result, NULL, 0, NULL);
	free(join);
}

CUresult worker_do_gleamContextSync(struct worker *w, struct cmd *cmd, const struct msg_gleamContextSync *m)
{
	struct join *join;

	if (m->index >= SESSION_CONTEXTS)
		return CMD_BROKEN;
	if (!w->contexts[m->index].open)
		return CUDA_ERROR_INVALID_CONTEXT;
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	join->done = context_synced;
	join->hdr = *cmd->hdr;
	join->a = m->index;
	__atomic_fetch_add(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	streams_join(w, &w->contexts[m->index], join);
	completion_hurry(w);
	return CMD_LATER;
}

/* ---- host functions ---- */

static void host_call_free(struct worker *w, struct host_call *call)
{
	struct host_call **link = &w->host_calls->first;

	pthread_mutex_lock(&w->host_calls->lock);
	while (*link && *link != call)
		link = &(*link)->next;
	if (*link)
		*link = call->next;
	if (!call->done)
		__atomic_fetch_sub(&w->host_calls->standing, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&w->host_calls->lock);
	word_give(w, call->word);
	free(call);
}

/* The stream has gone on behind the function. */
static void host_call_passed(struct worker *w, struct join *join)
{
	host_call_free(w, join->object);
	free(join);
}

/* Leaves w->host_calls NULL where there is no memory. */
static void calls_new(struct worker *w)
{
	struct host_calls *calls = calloc(1, sizeof(*calls));

	if (calls)
		pthread_mutex_init(&calls->lock, NULL);
	/* From here on the completion thread reads it. */
	__atomic_store_n(&w->host_calls, calls, __ATOMIC_RELEASE);
}

CUresult worker_do_gleamHostFunc(struct worker *w, struct cmd *cmd, const struct msg_gleamHostFunc *m)
{
	struct stream *s = cmd->own;
	struct host_call *call;
	struct turn *turn;
	struct wait *wait;
	struct join *join;
	CUdeviceptr at;
	CUresult r;

	if (!w->host_calls)
		calls_new(w);
	call = calloc(1, sizeof(*call));
	join = calloc(1, sizeof(*join));
	turn = turn_new(cmd->hdr, m->id);
	wait = wait_new(w, WAIT_HOST_CALL, cmd->hdr);
	if (!w->host_calls || !call || !join || !turn || !wait) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
		goto free_all;
	}
	call->word = word_take(w, 0, &at);
	if (!call->word) {
		r = CMD_PARK;
		goto free_all;
	}
	call->id = m->id;
	call->context = s->context;

	/* All before the function, but not the function itself: whoever asks for its end must not see it yet. */
	wait->seq = cmd->hdr->seq - 1;
	wait->turn = turn;
	if (stream_is_quiet(w, s))
		stream_settle(w, s, wait->seq);
	else
		stream_write(w, s, wait->seq);
	spare_refill(w, s->context);
	pthread_mutex_lock(&w->host_calls->lock);
	call->next = w->host_calls->first;
	w->host_calls->first = call;
	__atomic_fetch_add(&w->host_calls->standing, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&w->host_calls->lock);
	r = w->drv.cuStreamWaitValue32_v2(s->driver, at, 1, CU_STREAM_WAIT_VALUE_EQ);
	if (r != CUDA_SUCCESS) {
		host_call_free(w, call);
		call = NULL;
		goto free_all;
	}
	turn_begin(w, s, turn);
	stream_wait(w, s, wait);

	/* The word is used again when the stream is past it. */
	join->done = host_call_passed;
	join->object = call;
	join->left = 1;
	wait = wait_new(w, WAIT_JOIN, cmd->hdr);
	if (wait) {
		wait->join = join;
		stream_wait(w, s, wait);
	} else {
		free(join); /* one word fewer, until the session ends */
	}
	cmd->write_now = true;
	return CUDA_SUCCESS;

free_all:
	free(call);
	free(join);
	if (turn)
		turn_put(w, turn);
	if (wait)
		wait_drop(w, wait);
	return r;
}

/* Locked. */
static void host_call_done(struct host_calls *calls, struct host_call *call)
{
	__atomic_store_n(&call->done, true, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&calls->standing, 1, __ATOMIC_RELAXED);
	/* The client's writes came before its message; the GPU goes on behind this. */
	__atomic_store_n(call->word, 1, __ATOMIC_RELEASE);
}

static struct host_call *host_call_find(struct host_calls *calls, uint64_t id)
{
	struct host_call *call = calls->first;

	while (call && (call->id != id || call->done))
		call = call->next;
	return call;
}

CUresult worker_do_gleamHostDone(struct worker *w, struct cmd *cmd, const struct msg_gleamHostDone *m)
{
	struct host_calls *calls = w->host_calls;
	struct host_call *call;
	bool known;

	if (!calls)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&calls->lock);
	call = host_call_find(calls, m->id);
	known = call || calls->ahead;
	if (call)
		host_call_done(calls, call);
	else if (calls->ahead)
		calls->ahead--;
	pthread_mutex_unlock(&calls->lock);
	if (!known)
		note(w, "a host function (%llu) has ended that is not waited for", (unsigned long long)m->id);
	return CUDA_SUCCESS;
}

bool host_calls_stand(const struct worker *w)
{
	struct host_calls *calls = __atomic_load_n(&w->host_calls, __ATOMIC_ACQUIRE);

	return calls && __atomic_load_n(&calls->standing, __ATOMIC_RELAXED);
}

bool host_call_ahead(struct worker *w, uint64_t id)
{
	struct host_calls *calls = __atomic_load_n(&w->host_calls, __ATOMIC_ACQUIRE);
	struct host_call *call;

	if (!calls)
		return false;
	pthread_mutex_lock(&calls->lock);
	call = host_call_find(calls, id);
	if (call) {
		host_call_done(calls, call);
		calls->ahead++;
	}
	pthread_mutex_unlock(&calls->lock);
	return call;
}

void host_calls_end(struct worker *w)
{
	if (w->host_calls)
		pthread_mutex_destroy(&w->host_calls->lock);
	free(w->host_calls);
	w->host_calls = NULL;
}

void host_calls_release(struct worker *w, struct context *c)
{
	struct host_calls *calls = w->host_calls;

	if (!calls)
		return;
	pthread_mutex_lock(&calls->lock);
	for (struct host_call *call = calls->first; call; call = call->next)
		if ((!c || call->context == c) && !call->done)
			host_call_done(calls, call);
	pthread_mutex_unlock(&calls->lock);
}

bool host_calls_pending(const struct worker *w, const struct context *c)
{
	for (const struct host_call *call = w->host_calls ? w->host_calls->first : NULL; call; call = call->next)
		if ((!c || call->context == c) && !__atomic_load_n(&call->done, __ATOMIC_RELAXED))
			return true;
	return false;
}

bool host_calls_wait(struct worker *w, struct context *c, struct join *join)
{
	if (!host_calls_pending(w, c))
		return false;
	streams_join(w, c, join);
	return true;
}
