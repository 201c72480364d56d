/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events as the worker sees them: progress writes, credit, what waits for them. Executor thread, except
 * where the completion thread is named.
 */
#ifndef GLEAM_WORKER_STREAM_H
#define GLEAM_WORKER_STREAM_H

#include "broker/worker/state.h"

/* Counted once for the caller. NULL: no word or no memory. @handle 0 is the context's legacy stream. */
struct stream *stream_new(struct worker *w, struct context *c, uint64_t handle, CUstream driver, bool blocking);
/* A stream of the worker's own in a context of its own: nobody is told of its progress. */
struct stream *stream_new_own(struct worker *w, struct context *c, CUstream driver);
/* Its last work is done, or never will be. Lock held; completion thread too. */
bool stream_is_over_locked(const struct stream *s);
void stream_get(struct stream *s);
/* Frees it with the last reference, but not before the completion thread has seen its last write. */
void stream_put(struct worker *w, struct stream *s);
/* The driver's object is gone or about to go: its waits end by what was written before; then by @code if not 0. */
void stream_bury(struct worker *w, struct stream *s, CUresult code);
/* Of a handle of this type; WIRE_STREAM_LEGACY and 0 are the legacy stream of context @ctx. NULL: there is none. */
struct stream *stream_of(struct worker *w, uint64_t handle, uint32_t ctx);

/* Everything up to @seq that was issued on the stream: the GPU will write it down. */
CUresult stream_write(struct worker *w, struct stream *s, uint64_t seq);
/* What was issued and not written down yet is, if there is anything. */
void stream_flush(struct worker *w, struct stream *s);
void streams_flush(struct worker *w);
/* The write after @seq comes at once, or as soon as that command leaves the queue. */
void stream_want(struct worker *w, struct stream *s, uint64_t seq);
/* Nothing is outstanding on the stream: then @seq can be told without the GPU. */
bool stream_is_idle(const struct stream *s);
void stream_settle(struct worker *w, struct stream *s, uint64_t seq);
void stream_note_issued(struct worker *w, struct stream *s, uint64_t seq, uint32_t commands, bool write_now);
bool stream_done(const struct stream *s, uint64_t seq);
bool stream_has_credit(struct worker *w, struct stream *s);

/* @wait is the caller's on failure (NULL: no memory). */
struct wait *wait_new(struct worker *w, enum wait_kind kind, const struct frame_hdr *hdr);
void wait_drop(struct worker *w, struct wait *wait);
void wait_give_locked(struct worker *w, struct wait *wait);
/* Takes @wait: it happens when the stream has passed wait->seq. */
void stream_wait(struct worker *w, struct stream *s, struct wait *wait);

/*
 * Calls @done on the executor when every stream (of @c; of all contexts with NULL) has passed what had arrived when this
 * was called. @join is malloc'ed and the callee's. False: no memory, nothing happens.
 */
bool streams_join(struct worker *w, struct context *c, struct join *join);
bool stream_join(struct worker *w, struct stream *s, uint64_t seq, struct join *join);
/* Joins that have come to their end; true if there was one. */
bool joins_run(struct worker *w);

struct event *event_new(CUevent driver);
void event_put(struct worker *w, struct event *e);

/* Makes @c current for the driver; INVALID_CONTEXT for NULL. */
CUresult context_use(struct worker *w, struct context *c);

#endif
