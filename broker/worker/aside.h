/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of a session that moves, on their way from its worker's node to the other one's without passing its client: said aside by the
 * worker that it leaves, and taken from the up arena by the one that it comes to. Executor thread.
 */
#ifndef GLEAM_WORKER_ASIDE_H
#define GLEAM_WORKER_ASIDE_H

#include "broker/worker/move_out.h"

struct msg_gleamMoveArray;

/* From here on by that way, as the broker has named it; 0: by none. */
void aside_begin(struct worker *w, uint32_t way);
bool aside_is_open(const struct worker *w);
/* @bytes, which lie @offset behind the beginning of @place. False: the session is over. Waits while the node has no room. */
bool aside_say(struct worker *w, const struct move_place *place, uint64_t offset, const uint8_t *bytes, uint64_t size);
/* The box of an array that @m describes, of MOVE_ASIDE_MAX bytes at most; and an image. As aside_say(). */
bool aside_say_box(struct worker *w, uint16_t ctx, const struct msg_gleamMoveArray *m, const uint8_t *bytes);
bool aside_say_image(struct worker *w, uint16_t ctx, uint64_t object, const uint8_t *bytes, uint64_t size);

#endif
