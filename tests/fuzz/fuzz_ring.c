/* SPDX-License-Identifier: Apache-2.0 */
// sources: broker/lib/ring.c broker/lib/shm.c broker/lib/slot.c libs:
/*
 * A ring whose other end writes what it likes: bytes of the input become the ring's bytes from a position on, its head and
 * its tail. Whatever is shown must lie inside.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/ring.h"

#define RING_SIZE (2 * FRAME_SIZE_MAX)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ring_ctl ctl;
	/* On the heap, so that one byte beyond is seen. */
	uint8_t *bytes;
	struct ring consumer, producer;
	struct frame_hdr hdr;
	const uint8_t *frame;
	uint64_t at, head, tail;
	uint8_t *room;

	if (size < 24)
		return 0;
	memcpy(&at, data, 8);
	memcpy(&head, data + 8, 8);
	memcpy(&tail, data + 16, 8);
	data += 24;
	size -= 24;
	at &= ~7ull;
	bytes = calloc(1, RING_SIZE);
	memset(&ctl, 0, sizeof(ctl));
	for (size_t i = 0; i < size; i++)
		bytes[(at + i) & (RING_SIZE - 1)] = data[i];
	ctl.head = head % 3 ? at + head % (RING_SIZE + 64) : head;
	ring_init(&consumer, &ctl, bytes, RING_SIZE, at);
	for (int i = 0; i < 10000 && ring_peek(&consumer, &hdr, &frame) == 1; i++) {
		assert(frame >= bytes && hdr.size >= sizeof(hdr) && hdr.size <= (size_t)(bytes + RING_SIZE - frame));
		if (hdr.flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
			(void)ring_bulk_ref(frame);
		if (hdr.flags & FRAME_BULK_FILE)
			(void)ring_bulk_file(frame);
		ring_next(&consumer, &hdr);
		assert(consumer.at <= ctl.head);
	}
	ring_release(&consumer);
	/* The other way round: a producer whose consumer says where it is. */
	ring_init(&producer, &ctl, bytes, RING_SIZE, at);
	ctl.tail = tail % 3 ? at - tail % RING_SIZE : tail;
	for (int i = 0; i < 50; i++) {
		uint32_t want = size ? 24 + data[(size_t)i % size] * 250u : 24;

		if (ring_reserve(&producer, want, &room) == 0) {
			assert(room >= bytes && want <= (size_t)(bytes + RING_SIZE - room));
			memset(room, 0, want);
			ring_commit(&producer, want);
			ring_publish(&producer);
		} else if (ring_put_span(&producer, producer.at, data, (uint32_t)(size & ~7u)) == 0) {
			ring_publish(&producer);
		}
	}
	free(bytes);
	return 0;
}
