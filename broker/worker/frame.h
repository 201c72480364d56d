/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a frame that is in the worker's own memory. Any thread. */
#ifndef GLEAM_WORKER_FRAME_H
#define GLEAM_WORKER_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "broker/lib/codec.h"
#include "broker/lib/ring.h"
#include "gen/ops.h"

/* What is behind @frame's header (and bulk_ref). */
static inline struct reader frame_payload(const struct frame_hdr *hdr, const uint8_t *frame)
{
	size_t head = ring_frame_head(hdr);

	return reader_on(frame + head, hdr->size > head ? hdr->size - head : 0);
}

/* 8 bytes of its message; 0 where it is shorter. */
static inline uint64_t frame_word(const struct frame_hdr *hdr, const uint8_t *frame, size_t at)
{
	struct reader r = frame_payload(hdr, frame);
	uint64_t value = 0;

	if (reader_left(&r) >= at + sizeof(value))
		memcpy(&value, r.start + at, sizeof(value));
	return value;
}

static inline bool frame_is_death(const struct frame_hdr *hdr)
{
	return op_info[hdr->op].flags & OP_DEATH;
}

/* Of those that name an event. */
static inline bool frame_records_event(const struct frame_hdr *hdr)
{
	return hdr->op == OP_cuEventRecord || hdr->op == OP_cuEventRecordWithFlags || hdr->op == OP_gleamLaunch;
}

#endif
