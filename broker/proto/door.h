/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session is opened where /dev/gleam is the way in. There is no socket then: the packets LOCAL_OPEN and
 * LOCAL_OPENED or LOCAL_REFUSED (wire.h), the same bytes, are laid into the down arena, which nobody uses before the
 * session is LIVE.
 *
 *	client: maps the memory, fills ask, then ask.state = DOOR_FULL, rings
 *	broker: takes ask, does with it what it does with a packet; fills answer, then answer.state = DOOR_FULL, wakes it
 *
 * Descriptors don't travel: memory and doorbell are the kernel's. As always, neither side trusts what the other wrote:
 * sizes are copied once and checked, then the bytes are copied, then they are read.
 */
#ifndef GLEAM_PROTO_DOOR_H
#define GLEAM_PROTO_DOOR_H

#include "broker/proto/ring.h"
#include "broker/proto/wire.h"

enum door_state {
	DOOR_EMPTY = 0,
	DOOR_FULL = 1,
};

struct door {
	uint32_t state; /* futex; written last */
	uint32_t size;	/* LOCAL_MSG_MAX at most */
	uint8_t bytes[LOCAL_MSG_MAX];
};

#define DOOR_AT_ASK    SESSION_AT_DOWN
#define DOOR_AT_ANSWER (SESSION_AT_DOWN + (128u << 10))
static_assert(sizeof(struct door) <= 128u << 10, "the doors do not overlap");

#endif
