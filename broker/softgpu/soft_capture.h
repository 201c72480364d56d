/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture: what a stream is given becomes nodes of a graph. A capture has an origin and members; each has the nodes that its next
 * one comes behind, and an event that was recorded in it takes another stream in. After a call that can't be captured the capture is
 * invalid until its origin ends it. Which calls beside streams are unsafe is not looked at: a worker captures nothing, and tests of
 * captures that a program makes itself know what they do.
 */
#ifndef SOFT_CAPTURE_H
#define SOFT_CAPTURE_H

#include "broker/softgpu/soft_stream.h"

struct soft_event;
struct soft_work;

static inline bool soft_capturing(struct soft_stream *stream)
{
	return atomic_load_explicit(&stream->capturing, memory_order_acquire);
}

/* The next node of @stream. Takes @work, also on failure. */
CUresult soft_capture_add(struct soft_stream *stream, struct soft_work *work);
/* A command that can't be a node: the capture is spoilt. STREAM_CAPTURE_UNSUPPORTED, or INVALIDATED. */
CUresult soft_capture_refuse(struct soft_stream *stream);
CUresult soft_capture_record(struct soft_stream *stream, struct soft_event *event);
/* @captured_out: the event or the stream is of a capture, and the answer is this one's. */
CUresult soft_capture_wait(struct soft_stream *stream, struct soft_event *event, bool *captured_out);
/* The event stands for something else. */
void soft_capture_forget(struct soft_event *event);
/* The stream is going: a capture that it takes part in ends. */
void soft_capture_gone(struct soft_stream *stream);

#endif
