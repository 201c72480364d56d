/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the client is told of a host function: as soon as the device's work before it on its stream is done. Its stream comes to it only when
 * the client has said that the one before has returned, which is a round trip; so of functions between which a stream has nothing but waits for
 * events, those that come later don't wait for that. The client calls them one after the other (libgleamcuda/hostfunc.c).
 *
 * A run is what a stream has since such a function. Executor thread; ends of waits are the completion thread's.
 */
#ifndef GLEAM_WORKER_TURN_H
#define GLEAM_WORKER_TURN_H

#include "broker/worker/state.h"

/* Counted once for the caller. NULL: no memory. */
struct turn *turn_new(const struct frame_hdr *hdr, uint64_t id);
void turn_put(struct worker *w, struct turn *turn);
/*
 * The function of @turn was put on @s, which comes to it by a WAIT_HOST_CALL as before: whichever is first tells. Where it continues a run it
 * is told when the one before has been, and the events between have happened.
 */
void turn_begin(struct worker *w, struct stream *s, struct turn *turn);
/* @s has a run, and a command was given to the driver on it with @result; @e is the event that it names, or NULL. */
void turns_note(struct worker *w, struct stream *s, const struct frame_hdr *hdr, const struct event *e, CUresult result);
/* Functions that come on @s from now on wait for its own progress. */
void turns_end(struct worker *w, struct stream *s);

/* Ends of WAIT_HOST_CALL and of WAIT_TURN. Completion thread; they take the wait's reference. */
void turn_reached(struct worker *w, struct turn *turn, CUresult result);
void turn_came(struct worker *w, struct turn *turn, CUresult result);

#endif
