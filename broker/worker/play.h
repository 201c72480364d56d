/* SPDX-License-Identifier: Apache-2.0 */
/* One frame given to its handler, with what comes before and after that. Executor thread. */
#ifndef GLEAM_WORKER_PLAY_H
#define GLEAM_WORKER_PLAY_H

#include "broker/worker/state.h"

enum played {
	PLAYED_DONE,
	PLAYED_PARK,   /* nothing happened: it has to wait */
	PLAYED_BROKEN, /* the session is over */
};

/*
 * A sound frame of @s (NULL: it belongs to no stream), which the caller holds; @event: that it names, or NULL. @want: the stream's progress
 * is written right behind it.
 */
enum played frame_play(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame, struct stream *s, struct event *event, bool want);
/* A command that is not played: what it holds goes back, and who waits is told. */
void frame_skip(struct worker *w, struct cmd *cmd, CUresult code);

#endif
