/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames with few bytes for the down arena: both go in one message of the command lane (LINK_FRAME_BYTES). By a bulk lane they would wait for its thread
 * at either end, and an answer of 4 KiB would take twice as long as one of 4 bytes. Control threads.
 */
#ifndef GLEAM_CORE_SMALL_H
#define GLEAM_CORE_SMALL_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"

/* By these two alone, so that a frame goes the same way when it is sent again. */
static inline bool small_fits(uint32_t frame_size, const struct bulk_ref *ref)
{
	return ref->size && ref->size <= LINK_SMALL_BYTES && frame_size <= LINK_SMALL_FRAME;
}

/* Node: @frame of @hdr->size bytes, with the bytes of @ref in the arena of @mirror. The caller has checked both, and that they fit. */
void small_send(struct link *link, struct mirror *mirror, const struct frame_hdr *hdr, const uint8_t *frame, const struct bulk_ref *ref);
/*
 * Broker: takes a LINK_FRAME_BYTES apart, and stores its bytes where @mirror is live. The frame, borrowed from @body, whose header has its size and
 * says where the bytes are; NULL: it can't be, and nothing was stored.
 */
const uint8_t *small_take(struct reader *body, struct mirror *mirror, uint32_t *size_out);

#endif
