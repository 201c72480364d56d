/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, as launches use them (programmatic and completion events are recorded by a kernel). Any thread.
 */
#ifndef GLEAM_EVENT_H
#define GLEAM_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct context;

/* A context ends, and its events with it. */
void event_context_closed(struct context *context);

/* An event that a launch's attribute names: alive, of the call's context, without timing. */
CUresult event_for_launch(struct call *call, CUevent event, uint64_t *handle_out);
/* The launch with number @seq on @stream (a wire handle) records it. */
void event_launched(struct call *call, uint64_t event, uint64_t stream, uint64_t seq);
/* A launch that was captured on @stream would have recorded it. */
CUresult event_capture_record(struct call *call, uint64_t event, uint64_t stream);

/* The number of its newest record; 0: none, or it is gone. */
uint64_t event_newest(uint64_t event);
/* That record has come about, as is known before the word of its stream is here: what waited for it has gone on. */
void event_came(uint64_t event, uint64_t seq);
/* Has it ever been recorded? Then something can be waited for. */
bool event_is_recorded(uint64_t event);
/* Was its newest record captured? */
bool event_is_captured(uint64_t event);
/* A stream waits for a captured event, or a capturing one (@external: as a node) for any. Handles are live. */
CUresult event_capture_wait(struct call *call, uint64_t stream, uint64_t event, bool external);

#endif
