/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that can't go to the driver yet: a queue a stream, and one for what belongs to no stream and comes behind all of them.
 * Executor thread.
 */
#ifndef GLEAM_WORKER_PARK_H
#define GLEAM_WORKER_PARK_H

#include "broker/worker/state.h"

/* Behind what is parked on @s; @event: the frame's, which remembers it, or NULL. False: no memory, nothing happened. */
bool parked_put(struct worker *w, struct stream *s, struct event *event, const struct frame_hdr *hdr, const uint8_t *frame);
/* The first one of @s is gone. The stream may go with it: hold it. */
void parked_pop(struct worker *w, struct stream *s);
/* Without a stream, behind all that is parked now. */
bool parked_put_late(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame);
/* The first of those, the caller's from then on, if all that was parked before it is gone; else NULL. */
struct parked *parked_take_late(struct worker *w);
void parked_free(struct worker *w, struct parked *p);

static inline const struct frame_hdr *parked_hdr(const struct parked *p)
{
	return (const void *)p->frame;
}

bool parked_holds_slowly(struct worker *w, const struct stream *s, uint64_t seq);
/* A parked frame that is older than @seq holds back a new one on @s by the legacy stream's rule. */
static inline bool parked_holds(struct worker *w, const struct stream *s, uint64_t seq)
{
	return w->parked_streams && parked_holds_slowly(w, s, seq);
}

/* Frames of a context that is closed are dropped; calls that wait for one are answered with @code. */
void parked_drop(struct worker *w, struct context *c, CUresult code);

#endif
