/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker's own hand in a session's command ring at a node: frames at positions of the worker's ring, padding included. For a
 * moving session (move.h), where commands come from elsewhere than the client's ring. Control thread.
 */
#ifndef GLEAM_LOCAL_WIRE_H
#define GLEAM_LOCAL_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"

struct wire {
	struct link *link;
	uint32_t session;
	uint64_t at;   /* where the next frame goes */
	uint64_t tail; /* what the worker has consumed, as the node has told */
};

/* @frame of @size bytes, readable up to FRAME_ALIGN. False: no room now, in the ring or on the link. */
bool wire_put(struct wire *wire, const uint8_t *frame, uint32_t size);
/*
 * Commands that do nothing, until the next frame has the place that @position has in a ring of its own. False: not yet, no room; or
 * never, if the place is less than a command from the ring's beginning (wire_can_fill()).
 */
bool wire_fill(struct wire *wire, uint64_t position);
bool wire_can_fill(uint64_t position);

#endif
