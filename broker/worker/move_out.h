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

/* Where contents lie. */
struct move_place {
	uint32_t device;  /* DEVICES_MAX: host memory */
	uint64_t address; /* where they can be read, and are said to lie; unless they are */
	uint64_t handle;  /* of physical memory, from its beginning on; 0: no */
};

/*
 * Contents of @bytes at @place in chunks of which @hashes knows what was said last: those that differ are said, while @limit lasts.
 * *@at goes on from one call to the next. False: the device can't be read.
 */
bool move_contents(struct worker *w, const struct move_place *place, uint64_t bytes, struct move_hash *hashes, uint64_t *limit,
		   uint64_t *at);
/* MOVE_CHUNK bytes of page-locked memory to read to; NULL: there is none. */
uint8_t *move_room(struct worker *w);
/* The limit of a round, less what looking at @size bytes has cost; and saying them, if @said. */
void move_count(uint64_t *limit, uint64_t size, bool said);
bool move_all_zero(const uint8_t *bytes, size_t size);
void move_stop(struct worker *w);

#endif
