/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that can't go to the driver yet. Executor thread; see park.h. */
#include "broker/worker/park.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/play.h"
#include "broker/worker/stream.h"

static void parked_link(struct worker *w, struct stream *s, struct parked *p)
{
	p->stream = s;
	if (s->parked_tail)
		s->parked_tail->next = p;
	else
		s->parked_head = p;
	s->parked_tail = p;
	if (!s->in_parked) {
		s->in_parked = true;
		s->next_parked = w->parked_streams;
		w->parked_streams = s;
		stream_get(s);
		if (s->context && s->blocking && s != s->context->legacy)
			s->context->parked_blocking++;
	}
	if (p->event) {
		struct parked **link = &p->event->parked;

		while (*link)
			link = &(*link)->next_on_event;
		*link = p;
		p->event->refs++;
	}
}

static struct parked *parked_new(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct parked *p = malloc(sizeof(*p) + hdr->size);

	if (!p)
		return NULL;
	*p = (struct parked){ .size = hdr->size };
	memcpy(p->frame, frame, hdr->size);
	w->parked_bytes += sizeof(*p) + hdr->size;
	__atomic_fetch_add(&w->parked_count, 1, __ATOMIC_SEQ_CST);
	return p;
}

void parked_free(struct worker *w, struct parked *p)
{
	if (p->event) {
		struct parked **link = &p->event->parked;

		while (*link && *link != p)
			link = &(*link)->next_on_event;
		if (*link)
			*link = p->next_on_event;
		event_put(w, p->event);
	}
	w->parked_bytes -= sizeof(*p) + p->size;
	__atomic_fetch_sub(&w->parked_count, 1, __ATOMIC_SEQ_CST);
	free(p);
}

/* The stream's queue is empty: it leaves the list. */
static void stream_unpark(struct worker *w, struct stream *s)
{
	struct stream **link = &w->parked_streams;

	while (*link && *link != s)
		link = &(*link)->next_parked;
	if (*link)
		*link = s->next_parked;
	s->in_parked = false;
	s->next_parked = NULL;
	if (s->context && s->blocking && s != s->context->legacy)
		s->context->parked_blocking--;
	stream_put(w, s);
}

void parked_pop(struct worker *w, struct stream *s)
{
	struct parked *p = s->parked_head;

	s->parked_head = p->next;
	if (!s->parked_head)
		s->parked_tail = NULL;
	parked_free(w, p);
	if (!s->parked_head)
		stream_unpark(w, s);
}

bool parked_put(struct worker *w, struct stream *s, struct event *event, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct parked *p = parked_new(w, hdr, frame);

	if (!p)
		return false;
	p->event = event;
	parked_link(w, s, p);
	return true;
}

void parked_drop(struct worker *w, struct context *c, CUresult code)
{
	struct stream *next;

	for (struct stream *s = w->parked_streams; s; s = next) {
		next = s->next_parked;
		if (s->context != c)
			continue;
		stream_get(s);
		while (s->parked_head) {
			const struct frame_hdr *hdr = parked_hdr(s->parked_head);
			struct cmd cmd = { .hdr = hdr, .own = s };

			if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
				cmd.bulk = ring_bulk_ref(s->parked_head->frame);
			frame_skip(w, &cmd, code);
			parked_pop(w, s);
		}
		stream_put(w, s);
	}
}

/* ---- order ---- */

bool parked_holds_slowly(struct worker *w, const struct stream *s, uint64_t seq)
{
	struct context *c = s->context;

	if (!c || !s->blocking)
		return false;
	if (s != c->legacy) {
		struct parked *first = c->legacy ? c->legacy->parked_head : NULL;

		return first && parked_hdr(first)->seq < seq;
	}
	if (!c->parked_blocking)
		return false;
	for (struct stream *o = w->parked_streams; o; o = o->next_parked)
		if (o->context == c && o->blocking && o != s && o->parked_head &&
		    parked_hdr(o->parked_head)->seq < seq)
			return true;
	return false;
}

/* ---- what belongs to no stream ---- */

bool parked_put_late(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct parked *p = parked_new(w, hdr, frame);

	if (!p)
		return false;
	if (w->late_tail)
		w->late_tail->next = p;
	else
		w->late_head = p;
	w->late_tail = p;
	return true;
}

static uint64_t oldest_parked(struct worker *w)
{
	uint64_t oldest = UINT64_MAX;

	for (struct stream *s = w->parked_streams; s; s = s->next_parked) {
		uint64_t seq = parked_hdr(s->parked_head)->seq;

		if (seq < oldest)
			oldest = seq;
	}
	return oldest;
}

struct parked *parked_take_late(struct worker *w)
{
	struct parked *p = w->late_head;

	if (!p || (w->parked_streams && oldest_parked(w) < parked_hdr(p)->seq))
		return NULL;
	w->late_head = p->next;
	if (!w->late_head)
		w->late_tail = NULL;
	return p;
}
