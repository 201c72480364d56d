/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events. Executor thread; see stream.h.
 */
#include "broker/worker/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/completion.h"
#include "broker/worker/fault.h"
#include "broker/worker/note.h"
#include "broker/worker/pinned.h"
#include "broker/worker/turn.h"

/* ---- birth and death ---- */

bool stream_is_over_locked(const struct stream *s)
{
	/* Told, not only done: its last number must not come behind the first of its successor. */
	return s->failed || !s->context || (s->dead && progress_reached(s->told, s->written));
}

static bool stream_is_over(struct worker *w, const struct stream *s)
{
	pthread_mutex_lock(&w->lock);
	bool over = stream_is_over_locked(s);

	pthread_mutex_unlock(&w->lock);
	return over;
}

static struct stream *stream_make(struct worker *w, struct context *c, CUstream driver, uint64_t from)
{
	struct stream *s = aligned_alloc(_Alignof(struct stream), sizeof(*s));

	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->marks = malloc(MARKS * sizeof(*s->marks));
	if (!s->marks)
		goto free_stream;
	/* Older than all its own commands, so that nothing counts as done too early. */
	s->told = s->looked = (uint32_t)from;
	s->written = s->asked = from;
	s->done = word_take(w, s->told, &s->done_at);
	if (!s->done)
		goto free_marks;
	s->refs = 1;
	s->context = c;
	s->driver = driver;
	s->next = w->streams;
	w->streams = s;
	w->stream_count++;
	return s;

free_marks:
	free(s->marks);
free_stream:
	free(s);
	return NULL;
}

struct stream *stream_new(struct worker *w, struct context *c, uint64_t handle, CUstream driver, bool blocking)
{
	struct stream *s;
	uint32_t word;

	if (!progress_word(handle, c->index, &word))
		return NULL;
	/* A wait for all before its first command, whose number is one less, must not find the word there already. */
	s = stream_make(w, c, driver, w->seq ? w->seq - 1 : 0);
	if (!s)
		return NULL;
	s->word = word;
	s->handle = handle;
	s->blocking = blocking;
	/* The client uses an index again at once; events of the old stream are still read from the word. */
	for (struct stream *o = s->next; o; o = o->next)
		if (!o->own && o->word == word && !stream_is_over(w, o)) {
			stream_get(o);
			s->before = o;
			break;
		}
	return s;
}

struct stream *stream_new_own(struct worker *w, struct context *c, CUstream driver)
{
	struct stream *s = stream_make(w, c, driver, 0);

	if (s)
		s->own = true;
	return s;
}

void stream_get(struct stream *s)
{
	s->refs++;
}

static void stream_free(struct worker *w, struct stream *s)
{
	struct stream **link = &w->streams;

	assert(!s->watched && !s->waits_head && !s->parked_head);
	while (*link != s)
		link = &(*link)->next;
	*link = s->next;
	for (link = &w->unwritten; s->unwritten && *link; link = &(*link)->next_unwritten)
		if (*link == s) {
			*link = s->next_unwritten;
			break;
		}
	w->stream_count--;
	word_give(w, s->done);
	stream_put(w, s->before);
	free(s->marks);
	free(s);
}

void stream_put(struct worker *w, struct stream *s)
{
	bool idle;

	if (!s || --s->refs)
		return;
	pthread_mutex_lock(&w->lock);
	idle = !s->watched;
	pthread_mutex_unlock(&w->lock);
	/* The completion thread still waits for its last write: streams_reap() comes back to it. */
	if (idle)
		stream_free(w, s);
}

/* Dead streams that nobody looks at any more. */
static void streams_reap(struct worker *w)
{
	struct stream *next;

	for (struct stream *s = w->streams; s; s = s->next) {
		struct stream *before = s->before;

		if (!before || !stream_is_over(w, before))
			continue;
		pthread_mutex_lock(&w->lock);
		s->before = NULL;
		completion_changed_locked(w);
		pthread_mutex_unlock(&w->lock);
		before->refs--; /* freed below if it was the last */
	}
	for (struct stream *s = w->streams; s; s = next) {
		next = s->next;
		if (s->refs == 0) {
			s->refs = 1;
			stream_put(w, s);
		}
	}
}

void stream_bury(struct worker *w, struct stream *s, CUresult code)
{
	turns_end(w, s);
	pthread_mutex_lock(&w->lock);
	s->dead = true;
	if (code && !s->failed)
		s->failed = code;
	/* Who joined while the destruction was parked waits for its number, which is never written: the last write does. */
	for (struct wait *wait = s->waits_head; wait; wait = wait->next)
		if (wait->seq > s->written)
			wait->seq = s->written;
	completion_changed_locked(w);
	pthread_mutex_unlock(&w->lock);
	completion_wake(w);
}

struct stream *stream_of(struct worker *w, uint64_t handle, uint32_t ctx)
{
	if (handle == WIRE_STREAM_LEGACY || handle == 0)
		return ctx < SESSION_CONTEXTS && w->contexts[ctx].open ? w->contexts[ctx].legacy : NULL;

	struct object *o = object_find(w->tables, OBJECT_STREAM, handle);

	return o ? o->own : NULL;
}

/* ---- progress ---- */

bool stream_done(const struct stream *s, uint64_t seq)
{
	/* The GPU's write comes after the work; acquire keeps our reads of its results behind. */
	return progress_reached(__atomic_load_n(s->done, __ATOMIC_ACQUIRE), seq);
}

/* @asked: somebody may look for it; or else it only counts. */
static CUresult write_down(struct worker *w, struct stream *s, uint64_t seq, bool asked)
{
	CUresult r = context_use(w, s->context);

	if (s->marks_tail - s->marks_head == MARKS)
		stream_has_credit(w, s); /* frees marks that were reached */
	if (r == CUDA_SUCCESS)
		r = w->drv.cuStreamWriteValue32_v2(s->driver, s->done_at, (uint32_t)seq, 0);
	s->since_write = 0;
	s->count_issued++;
	if (r == CUDA_SUCCESS && s->marks_tail - s->marks_head < MARKS)
		s->marks[s->marks_tail++ % MARKS] = (struct mark){ .value = (uint32_t)seq, .count = s->count_issued };

	pthread_mutex_lock(&w->lock);
	if (r == CUDA_SUCCESS)
		s->written = seq;
	if (r == CUDA_SUCCESS && asked)
		s->asked = seq;
	else if (r != CUDA_SUCCESS && !s->failed)
		s->failed = r; /* nothing on this stream will ever be told: its waits end with this */
	completion_watch_locked(w, s);
	pthread_mutex_unlock(&w->lock);
	completion_wake(w);
	if (r != CUDA_SUCCESS && s->context)
		fault_latch(w, s->context->index, r, 0, seq);
	return r;
}

CUresult stream_write(struct worker *w, struct stream *s, uint64_t seq)
{
	return write_down(w, s, seq, true);
}

void stream_flush(struct worker *w, struct stream *s)
{
	if (s->since_write && !s->dead)
		stream_write(w, s, s->issued);
}

void streams_flush(struct worker *w)
{
	streams_reap(w);
	while (w->unwritten) {
		struct stream *s = w->unwritten;

		w->unwritten = s->next_unwritten;
		s->unwritten = false;
		s->next_unwritten = NULL;
		stream_flush(w, s);
	}
}

void stream_want(struct worker *w, struct stream *s, uint64_t seq)
{
	if (s->written >= seq || s->dead)
		return;
	for (struct parked *p = s->parked_head; p; p = p->next) {
		const struct frame_hdr *hdr = (const void *)p->frame;

		if (hdr->seq == seq || (hdr->seq < seq && !p->next)) {
			p->wants_write = true;
			return;
		}
	}
	if (stream_is_idle(s))
		stream_settle(w, s, s->issued);
	else
		stream_write(w, s, s->issued);
}

bool stream_is_idle(const struct stream *s)
{
	return s->since_write == 0 && stream_done(s, s->written);
}

void stream_settle(struct worker *w, struct stream *s, uint64_t seq)
{
	/* No write of the GPU is on its way, so the word is ours for the moment. */
	pthread_mutex_lock(&w->lock);
	s->written = seq;
	__atomic_store_n(s->done, (uint32_t)seq, __ATOMIC_RELEASE);
	completion_watch_locked(w, s);
	pthread_mutex_unlock(&w->lock);
	completion_hurry(w);
}

void stream_note_issued(struct worker *w, struct stream *s, uint64_t seq, uint32_t commands, bool write_now)
{
	s->issued = seq;
	if (!commands && !write_now)
		return;
	s->count_issued += commands;
	s->since_write++;
	if (write_now || s->since_write >= PROGRESS_EVERY) {
		write_down(w, s, seq, write_now);
		return;
	}
	if (!s->unwritten) {
		s->unwritten = true;
		s->next_unwritten = w->unwritten;
		w->unwritten = s;
	}
}

bool stream_has_credit(struct worker *w, struct stream *s)
{
	uint32_t credit = CREDIT;

	/* Streams beyond the channels share them. */
	if (w->stream_count > 2 * CREDIT_CHANNELS) {
		credit = CREDIT * 2 * CREDIT_CHANNELS / w->stream_count;
		if (credit < CREDIT_LEAST)
			credit = CREDIT_LEAST;
	}
	if (s->count_issued - s->count_done < credit)
		return true;

	uint32_t value = __atomic_load_n(s->done, __ATOMIC_ACQUIRE);

	while (s->marks_head != s->marks_tail && progress_reached(value, s->marks[s->marks_head % MARKS].value)) {
		s->count_done = s->marks[s->marks_head % MARKS].count;
		s->marks_head++;
	}
	if (s->count_issued - s->count_done < credit)
		return true;
	/* A lost context completes nothing any more: what waits here is to be skipped. */
	pthread_mutex_lock(&w->lock);
	bool lost = s->failed || (s->context && s->context->faulted);

	pthread_mutex_unlock(&w->lock);
	if (lost)
		return true;
	/* Without a write behind them nobody would hear that the credit comes back. */
	stream_flush(w, s);
	return false;
}

/* ---- waits ---- */

struct wait *wait_new(struct worker *w, enum wait_kind kind, const struct frame_hdr *hdr)
{
	struct wait *wait;

	pthread_mutex_lock(&w->lock);
	wait = w->wait_pool;
	if (wait)
		w->wait_pool = wait->next;
	pthread_mutex_unlock(&w->lock);
	if (!wait)
		wait = malloc(sizeof(*wait));
	if (!wait)
		return NULL;
	*wait = (struct wait){ .kind = kind };
	if (hdr) {
		wait->hdr = *hdr;
		wait->seq = hdr->seq;
	}
	return wait;
}

void wait_give_locked(struct worker *w, struct wait *wait)
{
	wait->next = w->wait_pool;
	w->wait_pool = wait;
}

void wait_drop(struct worker *w, struct wait *wait)
{
	pthread_mutex_lock(&w->lock);
	wait_give_locked(w, wait);
	pthread_mutex_unlock(&w->lock);
}

void stream_wait(struct worker *w, struct stream *s, struct wait *wait)
{
	bool hurry = wait->kind == WAIT_REPLY || wait->kind == WAIT_HOST_CALL || wait->kind == WAIT_TURN; /* a thread of the client's stands still, or a stream */

	if (wait->kind == WAIT_REPLY)
		__atomic_fetch_add(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&w->lock);

	struct wait *before = s->waits_tail;

	/* Nearly always at the end; a wait for an older event goes further in front. */
	while (before && before->seq > wait->seq)
		before = before->prev;
	wait->prev = before;
	wait->next = before ? before->next : s->waits_head;
	if (before)
		before->next = wait;
	else
		s->waits_head = wait;
	if (wait->next)
		wait->next->prev = wait;
	else
		s->waits_tail = wait;
	completion_watch_locked(w, s);
	pthread_mutex_unlock(&w->lock);
	if (hurry)
		completion_hurry(w);
	else
		completion_wake(w);
}

static void join_end_locked(struct worker *w, struct join *join)
{
	join->next = w->joined;
	w->joined = join;
	__atomic_fetch_add(&w->joined_count, 1, __ATOMIC_RELEASE);
}

bool stream_join(struct worker *w, struct stream *s, uint64_t seq, struct join *join)
{
	struct wait *wait = wait_new(w, WAIT_JOIN, NULL);

	if (!wait)
		return false;
	wait->seq = seq;
	wait->join = join;
	pthread_mutex_lock(&w->lock);
	join->left++;
	pthread_mutex_unlock(&w->lock);
	stream_want(w, s, seq);
	stream_wait(w, s, wait);
	return true;
}

bool streams_join(struct worker *w, struct context *c, struct join *join)
{
	/* One for ourselves, so that it can't end while it is being made. */
	join->left = 1;
	for (struct stream *s = w->streams; s; s = s->next) {
		/* Of a destroyed one the last write is what was flushed before its death, which itself is never written. */
		uint64_t last = s->dead ? s->written : s->arrived;

		if (s->own || (c && s->context != c))
			continue;
		if (last == 0 || stream_done(s, last))
			continue;
		if (!stream_join(w, s, last, join)) {
			/* What was begun goes on; without memory the rest isn't waited for, so say it. */
			complain("no memory to wait for a stream");
			join->result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	pthread_mutex_lock(&w->lock);
	if (--join->left == 0)
		join_end_locked(w, join);
	pthread_mutex_unlock(&w->lock);
	return true;
}

bool joins_run(struct worker *w)
{
	struct join *list;
	bool any = false;

	if (__atomic_load_n(&w->joined_count, __ATOMIC_ACQUIRE) == 0)
		return false;
	pthread_mutex_lock(&w->lock);
	list = w->joined;
	w->joined = NULL;
	__atomic_store_n(&w->joined_count, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&w->lock);

	/* They were pushed in front: oldest first, please. */
	struct join *ordered = NULL;

	while (list) {
		struct join *next = list->next;

		list->next = ordered;
		ordered = list;
		list = next;
	}
	while (ordered) {
		struct join *join = ordered;

		ordered = join->next;
		join->done(w, join);
		any = true;
	}
	streams_reap(w);
	return any;
}

/* ---- events ---- */

struct event *event_new(CUevent driver)
{
	struct event *e = calloc(1, sizeof(*e));

	if (e) {
		e->driver = driver;
		e->refs = 1;
	}
	return e;
}

void event_put(struct worker *w, struct event *e)
{
	if (!e || --e->refs)
		return;
	stream_put(w, e->stream);
	stream_put(w, e->played);
	free(e);
}

/* ---- contexts ---- */

CUresult context_use(struct worker *w, struct context *c)
{
	if (!c || !c->open)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (w->current_known && w->current == c->driver)
		return CUDA_SUCCESS;

	CUresult r = w->drv.cuCtxSetCurrent(c->driver);

	w->current_known = r == CUDA_SUCCESS;
	w->current = c->driver;
	return r;
}
