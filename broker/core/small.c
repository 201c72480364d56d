/* SPDX-License-Identifier: Apache-2.0 */
/* Frames with few bytes; see small.h. */
#include "broker/core/small.h"

#include <assert.h>
#include <string.h>

#include "broker/lib/ring.h"
#include "broker/lib/tsan.h"

static_assert(LINK_SMALL_FRAME % FRAME_ALIGN == 0 && LINK_SMALL_FRAME + LINK_SMALL_BYTES + sizeof(struct link_hdr) <= LINK_COMMAND_MAX,
	      "a small frame and its bytes are one message of the command lane");

void small_send(struct link *link, struct mirror *mirror, const struct frame_hdr *hdr, const uint8_t *frame, const struct bulk_ref *ref)
{
	uint8_t copy[LINK_SMALL_FRAME] __attribute__((aligned(8))) = { 0 };

	assert(small_fits(hdr->size, ref));
	memcpy(copy, frame, hdr->size);
	/* The checked ones, whatever the worker has written since. */
	memcpy(copy, hdr, sizeof(*hdr));
	memcpy(copy + sizeof(*hdr), ref, sizeof(*ref));
	order_take(mirror);
	shm_down_touch(&mirror->shm, ref->offset, ref->size, false);
	link_send(link, LINK_FRAME_BYTES, mirror->id, copy, RING_ALIGN(hdr->size), shm_down(&mirror->shm) + ref->offset, ref->size);
}

const uint8_t *small_take(struct reader *body, struct mirror *mirror, uint32_t *size_out)
{
	struct reader whole = *body;
	const uint8_t *frame = reader_take(body, 8, sizeof(struct frame_hdr) + sizeof(struct bulk_ref));
	const uint8_t *bytes;
	struct frame_hdr hdr;
	struct bulk_ref ref;

	if (!frame)
		return NULL;
	memcpy(&hdr, frame, sizeof(hdr));
	memcpy(&ref, frame + sizeof(hdr), sizeof(ref));
	if (!(hdr.flags & FRAME_BULK_DOWN) || hdr.size < sizeof(hdr) + sizeof(ref) || !small_fits(hdr.size, &ref) ||
	    ref.offset > SESSION_DOWN_SIZE || ref.size > SESSION_DOWN_SIZE - ref.offset)
		return NULL;
	*body = whole;
	frame = reader_take(body, 8, RING_ALIGN(hdr.size));
	bytes = reader_take(body, 1, ref.size);
	if (!bytes || reader_left(body))
		return NULL;
	*size_out = hdr.size;
	/* As a lane does: of a session that has no memory of its own there are no bytes. */
	if (!__atomic_load_n(&mirror->live, __ATOMIC_ACQUIRE))
		return frame;
	/* Who had the cell before gave it back by way of the other process. */
	order_take(mirror);
	shm_down_touch(&mirror->shm, ref.offset, ref.size, true);
	memcpy(shm_down(&mirror->shm) + ref.offset, bytes, ref.size);
	order_give(mirror);
	return frame;
}
