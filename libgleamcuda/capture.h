/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture. Nothing is ever captured at the worker: work on a capturing stream becomes nodes of a graph here. Calls
 * say what they are: those that can be captured ask call_stream_captured(), questions about a stream ask
 * call_stream_named(), and whatever asks call_stream() can't be captured: it fails, and the capture with it. Any thread;
 * state is guarded by graph_lock(), and the path without captures reads one word.
 */
#ifndef GLEAM_CAPTURE_H
#define GLEAM_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct capture_mark;
struct capture_member;
struct context;
struct graph_work;
struct stream;

/* Captures that have begun and not ended; in call.c, which every call passes. */
extern uint32_t captures_going; /* atomic */
/* May the call be made? Set before the first capture begins. */
extern CUresult (*capture_gate)(struct call *call);

static inline bool capture_going(void)
{
	return __builtin_expect(__atomic_load_n(&captures_going, __ATOMIC_RELAXED) != 0, 0);
}

/* call_stream() for a call that a capturing stream takes: then *captured_out is true and nothing may be sent. */
CUresult call_stream_captured(struct call *call, CUstream stream, uint64_t *handle_out, bool *captured_out);
/* The same for questions about a stream: whether it is capturing does not matter. In stream.c. */
CUresult call_stream_named(struct call *call, CUstream stream, uint64_t *handle_out);
/* For call_stream(): CUDA_SUCCESS if @handle is not capturing and stands beside no capture that it would wait for. */
CUresult capture_refuses(struct call *call, uint64_t handle);

/* @work becomes a node behind what the stream has captured so far. Takes @work, also on failure. */
CUresult capture_add(struct call *call, uint64_t stream, struct graph_work *work);

/*
 * Events. A mark is what an event that was recorded in a capture stands for; NULL for all others. Guarded by the graph
 * lock, whose holder frees it; whether there is one is read without it.
 */
CUresult capture_record(struct call *call, uint64_t stream, struct capture_mark **mark);
void capture_mark_drop(struct capture_mark **mark);
/* The event is asked for, or waited for by the host: CAPTURED_EVENT. */
CUresult capture_asked(struct capture_mark **mark);
/* A stream waits for an event with a mark (or a capturing one for any event). */
CUresult capture_wait(struct call *call, uint64_t stream, struct capture_mark **mark);

/* The stream, or everything of a context, goes: captures that it takes part in are over. */
void capture_stream_gone(struct stream *stream);
void capture_context_closed(struct context *context);

#endif
