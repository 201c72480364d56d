/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One end of a byte ring in session memory. Runs on whatever thread owns that end; see ring.h.
 */
#include "broker/lib/ring.h"

#include <string.h>
#include <unistd.h>

#include "broker/lib/futex.h"

void ring_init(struct ring *ring, struct ring_ctl *ctl, void *bytes, uint32_t size, uint64_t at)
{
	assert(size && (size & (size - 1)) == 0 && size >= 2 * FRAME_SIZE_MAX);
	*ring = (struct ring){ .ctl = ctl, .bytes = bytes, .size = size, .at = at, .seen = at };
}

/* Bytes that the consumer has not freed yet, by its tail as last read. Read again only when that isn't enough. */
static int ring_room(struct ring *ring, uint32_t need)
{
	if (ring->size - (uint32_t)(ring->at - ring->seen) >= need)
		return 0;

	/* Pairs with the release in ring_release_to(): the consumer has done with the bytes. */
	uint64_t tail = __atomic_load_n(&ring->ctl->tail, __ATOMIC_ACQUIRE);

	/* A tail that runs back or ahead of what was written was never honest. */
	if (tail < ring->seen || tail > ring->at || (tail & (FRAME_ALIGN - 1)))
		return -EPROTO;
	ring->seen = tail;
	return ring->size - (uint32_t)(ring->at - tail) >= need ? 0 : -EAGAIN;
}

int ring_reserve(struct ring *ring, uint32_t size, uint8_t **room_out)
{
	if (size < sizeof(struct frame_hdr) || size > FRAME_SIZE_MAX)
		return -EMSGSIZE;

	uint32_t need = RING_ALIGN(size);
	uint32_t place = (uint32_t)ring->at & (ring->size - 1);
	uint32_t end = ring->size - place;
	uint32_t pad = end < need ? end : 0;
	int err = ring_room(ring, pad + need);

	if (err)
		return err;
	if (pad) {
		/* Eight bytes may be all there is: that is what a pad has. */
		struct frame_hdr hdr = { .size = pad, .kind = FRAME_PAD };

		memcpy(ring->bytes + place, &hdr, FRAME_ALIGN);
		ring->at += pad;
	}
	*room_out = ring->bytes + ((uint32_t)ring->at & (ring->size - 1));
	return 0;
}

void ring_wake_fd(int eventfd)
{
	uint64_t one = 1;
	ssize_t n;

	/* EAGAIN: the counter is full, so the sleeper is woken anyway. */
	do {
		n = write(eventfd, &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

void ring_wake_futex(struct ring_ctl *ctl)
{
	__atomic_fetch_add(&ctl->bell, 1, __ATOMIC_RELEASE);
	futex_wake(&ctl->bell, 1);
}

static bool ring_was_sleeping(struct ring_ctl *ctl)
{
	/* Pairs with the fence in ring_sleep_begin(), as in ring_publish(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&ctl->sleeping, __ATOMIC_RELAXED) &&
	       __atomic_exchange_n(&ctl->sleeping, 0, __ATOMIC_RELAXED);
}

void ring_nudge_futex(struct ring_ctl *ctl)
{
	if (ring_was_sleeping(ctl))
		ring_wake_futex(ctl);
}

void ring_nudge_fd(struct ring_ctl *ctl, int eventfd)
{
	if (ring_was_sleeping(ctl))
		ring_wake_fd(eventfd);
}

int ring_room_wait(struct ring_ctl *ctl, uint64_t tail_seen, int64_t timeout_ns)
{
	uint32_t room = __atomic_load_n(&ctl->room, __ATOMIC_ACQUIRE);

	__atomic_store_n(&ctl->waiting, 1, __ATOMIC_RELAXED);
	/* Pairs with the fence in ring_release_to(): either we see the tail, or the consumer sees waiting. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ctl->tail, __ATOMIC_ACQUIRE) != tail_seen)
		return 0;
	return futex_wait(&ctl->room, room, timeout_ns);
}

int ring_look(struct ring *ring, struct frame_hdr *hdr_out, const uint8_t **frame_out)
{
	if (ring->seen == ring->at) {
		/* Pairs with the release in ring_publish(). */
		uint64_t head = __atomic_load_n(&ring->ctl->head, __ATOMIC_ACQUIRE);

		if (head == ring->at)
			return 0;
		if (head - ring->at > ring->size || (head & (FRAME_ALIGN - 1)))
			return -EPROTO;
		ring->seen = head;
	}

	uint32_t place = (uint32_t)ring->at & (ring->size - 1);
	uint32_t end = ring->size - place;
	uint64_t ready = ring->seen - ring->at;
	uint32_t room = ready < end ? (uint32_t)ready : end;
	const uint8_t *frame = ring->bytes + place;
	struct frame_hdr hdr = { 0 };

	memcpy(&hdr, frame, room < sizeof(hdr) ? FRAME_ALIGN : sizeof(hdr));
	if (hdr.kind == FRAME_PAD) {
		/* Padding fills the end of the ring, no more and no less. */
		if (hdr.size != end || room != end)
			return -EPROTO;
	} else {
		uint32_t least = sizeof(hdr);

		if (hdr.flags & (FRAME_BULK_UP | FRAME_BULK_DOWN))
			least += sizeof(struct bulk_ref);
		if (hdr.flags & FRAME_BULK_FILE)
			least += sizeof(struct bulk_file);
		if (hdr.size < least || hdr.size > FRAME_SIZE_MAX || RING_ALIGN(hdr.size) > room)
			return -EPROTO;
		if (hdr.kind > FRAME_NOTICE || (hdr.flags & ~FRAME_FLAGS))
			return -EPROTO;
		/* One bulk_ref follows the header, so it speaks of one direction. */
		if ((hdr.flags & FRAME_BULK_UP) && (hdr.flags & FRAME_BULK_DOWN))
			return -EPROTO;
		if ((hdr.flags & FRAME_BULK_FILE) && !(hdr.flags & FRAME_BULK_UP))
			return -EPROTO;
	}
	*hdr_out = hdr;
	*frame_out = frame;
	return 1;
}

int ring_peek(struct ring *ring, struct frame_hdr *hdr_out, const uint8_t **frame_out)
{
	int got = ring_look(ring, hdr_out, frame_out);

	if (got == 1 && hdr_out->kind == FRAME_PAD) {
		ring->at += hdr_out->size;
		got = ring_look(ring, hdr_out, frame_out);
		/* Behind padding the ring begins again, where padding has no business. */
		if (got == 1 && hdr_out->kind == FRAME_PAD)
			return -EPROTO;
	}
	return got;
}

struct bulk_ref ring_bulk_ref(const uint8_t *frame)
{
	struct bulk_ref ref;

	memcpy(&ref, frame + sizeof(struct frame_hdr), sizeof(ref));
	return ref;
}

struct bulk_file ring_bulk_file(const uint8_t *frame)
{
	struct bulk_file file;

	memcpy(&file, frame + sizeof(struct frame_hdr) + sizeof(struct bulk_ref), sizeof(file));
	return file;
}

void ring_release_to(struct ring *ring, uint64_t position)
{
	/* Pairs with the acquire in ring_room() and ring_tail(): we have done with the bytes. */
	__atomic_store_n(&ring->ctl->tail, position, __ATOMIC_RELEASE);
	/* Pairs with the fence in ring_room_wait(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->ctl->waiting, __ATOMIC_RELAXED) == 0)
		return;
	__atomic_store_n(&ring->ctl->waiting, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&ring->ctl->room, 1, __ATOMIC_RELEASE);
	futex_wake(&ring->ctl->room, INT32_MAX);
}

void ring_sleep_announce(struct ring *ring)
{
	__atomic_store_n(&ring->ctl->sleeping, 1, __ATOMIC_RELAXED);
	/* Pairs with the fences in ring_publish() and ring_was_sleeping(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

bool ring_sleep_begin(struct ring *ring)
{
	ring_sleep_announce(ring);
	if (ring->seen == ring->at && __atomic_load_n(&ring->ctl->head, __ATOMIC_ACQUIRE) == ring->at)
		return true;
	ring_sleep_end(ring);
	return false;
}

int ring_sleep_futex(struct ring *ring, int64_t timeout_ns)
{
	uint32_t bell = __atomic_load_n(&ring->ctl->bell, __ATOMIC_ACQUIRE);

	/* Whoever took sleeping from us has changed the bell, or is about to. Pairs with the release in ring_wake_futex(). */
	if (__atomic_load_n(&ring->ctl->sleeping, __ATOMIC_ACQUIRE) == 0)
		return 0;
	return futex_wait(&ring->ctl->bell, bell, timeout_ns);
}

int ring_put_span(struct ring *ring, uint64_t position, const void *bytes, uint32_t size)
{
	if (position != ring->at || (size & (FRAME_ALIGN - 1)) || size > ring->size)
		return -EPROTO;
	/* The sender knows the tail that we have told it; room that isn't there is a breach, not a reason to wait. */
	if (ring_room(ring, size))
		return -EPROTO;

	uint32_t place = (uint32_t)position & (ring->size - 1);
	uint32_t first = ring->size - place < size ? ring->size - place : size;

	memcpy(ring->bytes + place, bytes, first);
	memcpy(ring->bytes, (const uint8_t *)bytes + first, size - first);
	ring->at += size;
	return 0;
}
