/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session leaves: this worker says, in commands for another one, what that needs to become it. Executor thread, between the
 * commands of the client, which may go on meanwhile; what has changed since is found by the hash of what was said.
 */
#ifndef GLEAM_WORKER_MOVE_OUT_H
#define GLEAM_WORKER_MOVE_OUT_H

#include "broker/worker/state.h"

#define MOVE_CHUNK (256u << 10) /* contents are compared in units of this */
#define MOVE_DATA  57344u	 /* bytes of one command */

struct move_hash {
	uint64_t a, b; /* both 0: never said */
};

/* A command frame for the other worker, as it stands. */
void move_say_frame(struct worker *w, const void *frame, uint32_t size);
/* One of the broker's kind: @payload is its message. */
void move_say(struct worker *w, uint16_t op, uint16_t ctx, bool reply, const void *payload, uint32_t size);
struct move_hash move_hash_of(const void *bytes, size_t size);
bool move_hash_same(struct move_hash x, struct move_hash y);

/*
 * Contents of [@address, @bytes) of device @device (or host memory, @device DEVICES_MAX) in chunks of which @hashes knows what was said
 * last: those that differ are said, while @limit lasts. *@at goes on from one call to the next. False: the device can't be read.
 */
bool move_contents(struct worker *w, uint32_t device, uint64_t address, uint64_t bytes, struct move_hash *hashes, uint64_t *limit,
		   uint64_t *at);
void move_stop(struct worker *w);

#endif
