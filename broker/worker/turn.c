/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the client is told of a host function; see turn.h.
 *
 * Nothing on the GPU overtakes the gates: what stands behind a function, records of events included, is done when all functions before it have
 * returned. Whether an event between two has happened is read from the progress word of the stream that recorded it. Only the completion thread
 * tells, in a look that has sent the bytes and the words that the function may look at.
 */
#include "broker/worker/turn.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "gen/msg.h"

/* Streams whose events a function may wait for in a run; a program has two or three. */
#define EVENTS_MAX 16u

enum turn_state {
	TURN_STANDS,
	TURN_TOLD,
	TURN_NEVER, /* its context is lost */
};

struct turn {
	struct frame_hdr hdr;
	uint64_t id;
	/* guarded by the worker's lock */
	uint32_t refs; /* of its maker, of each wait that stands for it, of the turn before it, of the stream whose newest it is */
	uint32_t left; /* in a run: what must come before it */
	enum turn_state state;
	struct turn *next; /* the run's next, while this one stands; counted */
};

/* The run of a stream. Executor's. */
struct turns {
	struct turn *last; /* counted */
	uint64_t seq;	   /* of its command */
	uint64_t start;	   /* the stream's progress when the run's first function is due */
	/* the newest record on each stream that this one has waited for since; counted */
	uint32_t event_count;
	struct {
		struct stream *stream;
		uint64_t seq;
	} events[EVENTS_MAX];
};

struct turn *turn_new(const struct frame_hdr *hdr, uint64_t id)
{
	struct turn *turn = malloc(sizeof(*turn));

	if (turn)
		*turn = (struct turn){ .hdr = *hdr, .id = id, .refs = 1 };
	return turn;
}

static void turn_put_locked(struct turn *turn)
{
	if (turn && --turn->refs == 0)
		free(turn);
}

void turn_put(struct worker *w, struct turn *turn)
{
	pthread_mutex_lock(&w->lock);
	turn_put_locked(turn);
	pthread_mutex_unlock(&w->lock);
}

/* ---- the run: executor ---- */

static void events_drop(struct worker *w, struct turns *turns)
{
	for (uint32_t i = 0; i < turns->event_count; i++)
		stream_put(w, turns->events[i].stream);
	turns->event_count = 0;
}

void turns_end(struct worker *w, struct stream *s)
{
	struct turns *turns = s->turns;

	if (!turns)
		return;
	s->turns = NULL;
	events_drop(w, turns);
	turn_put(w, turns->last);
	free(turns);
}

/* Was anything sent since @seq that a command put on @s now comes after by the legacy stream's rule? */
static bool legacy_between(struct worker *w, const struct stream *s, uint64_t seq)
{
	const struct context *c = s->context;

	if (!c || !s->blocking)
		return false;
	if (s != c->legacy)
		return c->legacy && c->legacy->issued > seq;
	for (const struct stream *o = w->streams; o; o = o->next)
		if (o != s && o->context == c && o->blocking && !o->own && o->issued > seq)
			return true;
	return false;
}

/* False: it can't be kept. */
static bool event_note(struct turns *turns, struct stream *recorded_on, uint64_t seq)
{
	for (uint32_t i = 0; i < turns->event_count; i++)
		if (turns->events[i].stream == recorded_on) {
			if (turns->events[i].seq < seq)
				turns->events[i].seq = seq;
			return true;
		}
	if (turns->event_count == EVENTS_MAX)
		return false;
	stream_get(recorded_on);
	turns->events[turns->event_count].stream = recorded_on;
	turns->events[turns->event_count++].seq = seq;
	return true;
}

void turns_note(struct worker *w, struct stream *s, const struct frame_hdr *hdr, const struct event *e, CUresult result)
{
	switch (hdr->op) {
	case OP_gleamHostFunc: /* turn_begin() */
	case OP_gleamFlush:    /* these two only ask */
	case OP_gleamStreamSync:
		return;
	case OP_cuStreamWaitEvent:
		/* Once the stream has come past the last one, it shows by itself what comes next. */
		if (result != CUDA_SUCCESS || stream_done(s, s->turns->seq))
			break;
		/* Never recorded is done; and what was recorded here was before the run, or would have ended it. */
		if (!e || !e->played || e->played == s || event_note(s->turns, e->played, e->played_seq))
			return;
		break;
	default:
		break;
	}
	turns_end(w, s);
}

/* @turn is told ahead of its stream. False: no memory, or its context is lost. */
static bool turn_follow(struct worker *w, struct stream *s, struct turn *turn)
{
	struct turns *turns = s->turns;
	struct wait *waits[EVENTS_MAX];
	struct stream *on[EVENTS_MAX];
	uint32_t count = 0;
	bool follows;

	/* Without an event, too, it is the completion thread that tells. */
	do {
		waits[count] = wait_new(w, WAIT_TURN, NULL);
		if (!waits[count])
			goto drop_waits;
		on[count] = turns->event_count ? turns->events[count].stream : s;
		waits[count]->seq = turns->event_count ? turns->events[count].seq : turns->start;
		waits[count]->turn = turn;
	} while (++count < turns->event_count);

	pthread_mutex_lock(&w->lock);
	follows = turns->last->state != TURN_NEVER;
	if (follows) {
		turn->left = count;
		turn->refs += count;
	}
	if (turns->last->state == TURN_STANDS) {
		turns->last->next = turn;
		turn->left++;
		turn->refs++;
	}
	pthread_mutex_unlock(&w->lock);
	if (!follows)
		goto drop_waits;
	for (uint32_t i = 0; i < count; i++)
		stream_wait(w, on[i], waits[i]);
	return true;

drop_waits:
	while (count--)
		wait_drop(w, waits[count]);
	return false;
}

void turn_begin(struct worker *w, struct stream *s, struct turn *turn)
{
	uint64_t seq = turn->hdr.seq;
	struct turns *turns = s->turns;

	if (turns && (stream_done(s, turns->seq) || legacy_between(w, s, turns->seq) || !turn_follow(w, s, turn))) {
		turns_end(w, s);
		turns = NULL;
	}
	if (turns) {
		events_drop(w, turns);
		turn_put(w, turns->last);
	} else {
		turns = calloc(1, sizeof(*turns));
		if (!turns)
			return; /* what comes next waits for the stream */
		turns->start = seq - 1;
		s->turns = turns;
	}
	pthread_mutex_lock(&w->lock);
	turn->refs++;
	pthread_mutex_unlock(&w->lock);
	turns->last = turn;
	turns->seq = seq;
}

/* ---- telling: completion thread ---- */

/* One thing less is before @turn; true: there was no other. */
static bool turn_is_next(struct worker *w, struct turn *turn)
{
	bool next;

	pthread_mutex_lock(&w->lock);
	next = --turn->left == 0 && turn->state == TURN_STANDS;
	pthread_mutex_unlock(&w->lock);
	return next;
}

void turn_reached(struct worker *w, struct turn *turn, CUresult result)
{
	while (turn) {
		uint8_t payload[8];
		struct writer p = writer_on(payload, sizeof(payload));
		struct turn *next = NULL;
		bool tells;

		pthread_mutex_lock(&w->lock);
		tells = turn->state == TURN_STANDS && result == CUDA_SUCCESS;
		if (turn->state == TURN_STANDS) {
			/* A lost context runs no more host functions, as natively. */
			turn->state = tells ? TURN_TOLD : TURN_NEVER;
			next = turn->next;
			turn->next = NULL;
		}
		pthread_mutex_unlock(&w->lock);
		if (tells) {
			put_u64(&p, turn->id);
			post_notice(w, NOTICE_HOST_CALL, turn->hdr.seq, turn->hdr.ctx, payload, sizeof(payload));
		}
		turn_put(w, turn);
		if (next && (!tells || !turn_is_next(w, next))) {
			turn_put(w, next);
			next = NULL;
		}
		turn = next;
	}
}

void turn_came(struct worker *w, struct turn *turn, CUresult result)
{
	if (result == CUDA_SUCCESS && turn_is_next(w, turn))
		turn_reached(w, turn, CUDA_SUCCESS);
	else
		turn_put(w, turn);
}
