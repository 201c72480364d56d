/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * One end of a byte ring in session memory (broker/proto/ring.h). The other end belongs to a process that is not
 * trusted: every word of it is copied once and checked, and nonsense is -EPROTO, never a crash.
 *
 * A struct ring belongs to one thread at a time (the client's append lock, the executor, the broker's loop). The own
 * position lives here and is never read back from shared memory.
 *
 *	producer:  ring_reserve() .. ring_commit() .. ring_publish() -> ring_wake_*() if it says so
 *	           no room: ring_room_wait(), without any lock
 *	consumer:  ring_peek() .. ring_next() .. ring_release();   to sleep: ring_sleep_begin() .. ring_sleep_end()
 *
 * Who sleeps on what. The consumer of c2n in a client's memory and of n2c in a worker's memory is a daemon: it sleeps on
 * the eventfd ("doorbell") that belongs to that memory, so client and worker wake it by ring_wake_fd(). The
 * consumer of the other ring (library; worker) has no descriptor of its own to sleep on: it sleeps on the futex
 * ctl->bell, and the daemon wakes it by ring_wake_futex().
 */
#ifndef GLEAM_LIB_RING_H
#define GLEAM_LIB_RING_H

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/ring.h"
#include "broker/proto/wire.h"

#define RING_ALIGN(size) (((size) + (FRAME_ALIGN - 1)) & ~(uint32_t)(FRAME_ALIGN - 1))

struct ring {
	struct ring_ctl *ctl; /* shared */
	uint8_t *bytes;	      /* shared */
	uint32_t size;	      /* a power of two */
	uint64_t at;	      /* own position: where the next frame is written or read */
	uint64_t seen;	      /* producer: the tail, consumer: the head, as last read and found sane */
};

/* @at is the own position to go on from: 0 in new memory. */
void ring_init(struct ring *ring, struct ring_ctl *ctl, void *bytes, uint32_t size, uint64_t at);

/* ---- producer ---- */

/*
 * Contiguous room for a frame of at most @size bytes at the own position; the end of the ring is padded when it is too
 * short. -EAGAIN: no room now. -EMSGSIZE: over FRAME_SIZE_MAX, or never fits. -EPROTO: the consumer's tail is nonsense.
 * Reserving again without a commit gives the same room; nothing is visible before ring_publish().
 */
int ring_reserve(struct ring *ring, uint32_t size, uint8_t **room_out);

/* The frame in the reserved room is @size bytes (hdr.size); what is behind it up to the alignment is not looked at. */
static inline void ring_commit(struct ring *ring, uint32_t size)
{
	ring->at += RING_ALIGN(size);
}

/*
 * Shows what was committed, and leaves a consumer asleep: for those who look without having slept. Unless one of them is known to come, the caller
 * follows with ring_nudge_fd() or ring_nudge_futex().
 */
static inline void ring_show(struct ring *ring)
{
	/* Pairs with the acquire of head in ring_look(): the bytes are there before the position. */
	__atomic_store_n(&ring->ctl->head, ring->at, __ATOMIC_RELEASE);
}

/* Shows what was committed. True: the consumer slept, and the caller must wake it. */
static inline bool ring_publish(struct ring *ring)
{
	/* Pairs with the acquire of head in ring_look(): the bytes are there before the position. */
	__atomic_store_n(&ring->ctl->head, ring->at, __ATOMIC_RELEASE);
	/* Pairs with the fence in ring_sleep_begin(): either we see sleeping, or the consumer sees head. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->ctl->sleeping, __ATOMIC_RELAXED) == 0)
		return false;
	/* Of several who wake, one does it. */
	return __atomic_exchange_n(&ring->ctl->sleeping, 0, __ATOMIC_RELAXED) != 0;
}

void ring_wake_fd(int eventfd);		   /* never blocks; async-signal-safe */
void ring_wake_futex(struct ring_ctl *ctl); /* bell changes, one sleeper wakes */
/* Wakes the consumer by the futex if it sleeps: for what is not a frame (a landed word), written before. Any thread. */
void ring_nudge_futex(struct ring_ctl *ctl);
void ring_nudge_fd(struct ring_ctl *ctl, int eventfd);

/* The tail, for ring_room_wait(): read it before the try that failed, or after it while nothing was released since. */
static inline uint64_t ring_tail(const struct ring *ring)
{
	return __atomic_load_n(&ring->ctl->tail, __ATOMIC_ACQUIRE);
}

/* Sleeps until tail is not @tail_seen any more: 0, or -ETIMEDOUT, or -EINTR. Needs no lock; several may wait. */
int ring_room_wait(struct ring_ctl *ctl, uint64_t tail_seen, int64_t timeout_ns);

/* ---- consumer ---- */

/*
 * The frame at the own position: 1 and its header, checked (size, alignment, room to the end of the ring, kind, flags,
 * a bulk_ref if a flag says so), 0 when there is none, -EPROTO for nonsense, which stays. ring_look() also shows padding
 * (kind FRAME_PAD, hdr.size its length); ring_peek() steps over it. @frame_out points into shared memory: what lies
 * behind the header may still change while it is read.
 */
int ring_look(struct ring *ring, struct frame_hdr *hdr_out, const uint8_t **frame_out);
int ring_peek(struct ring *ring, struct frame_hdr *hdr_out, const uint8_t **frame_out);
/* The bulk_ref behind the header of @frame, copied. Bounds against the arena are the caller's. */
struct bulk_ref ring_bulk_ref(const uint8_t *frame);
/* The bulk_file behind that, of a frame with FRAME_BULK_FILE. */
struct bulk_file ring_bulk_file(const uint8_t *frame);
/* Bytes before the payload, by the flags. */
static inline uint32_t ring_frame_head(const struct frame_hdr *hdr)
{
	return (uint32_t)sizeof(*hdr) + (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN) ? (uint32_t)sizeof(struct bulk_ref) : 0) +
	       (hdr->flags & FRAME_BULK_FILE ? (uint32_t)sizeof(struct bulk_file) : 0);
}

static inline void ring_next(struct ring *ring, const struct frame_hdr *hdr)
{
	ring->at += RING_ALIGN(hdr->size);
}

/*
 * The frame behind has been written by another core: its lines are on their way while this one is done. Only what is known to be there, or
 * the producer would lose the line that it is writing.
 */
static inline void ring_prefetch(const struct ring *ring)
{
	enum { LINE = 64, LINES = 3 };
	uint32_t place = (uint32_t)ring->at & (ring->size - 1);

	for (uint32_t i = 0; i < LINES && (uint64_t)i * LINE < ring->seen - ring->at; i++)
		__builtin_prefetch(ring->bytes + ((place + i * LINE) & (ring->size - 1)));
}

/* Gives room back up to @position (ring_release(): up to the own position), and wakes a producer that waits for it. */
void ring_release_to(struct ring *ring, uint64_t position);
static inline void ring_release(struct ring *ring)
{
	ring_release_to(ring, ring->at);
}

/*
 * Announces that the consumer is about to sleep. False: there is something to read, don't. After true the caller looks
 * once more at everything else that may wake it (landed words), then sleeps on its eventfd or by ring_sleep_futex().
 */
bool ring_sleep_begin(struct ring *ring);
/* The same for a consumer that leaves alone what there is to read, for now. */
void ring_sleep_announce(struct ring *ring);
/* Until the bell changed, a signal, or @timeout_ns (negative: for ever). 0, -ETIMEDOUT, -EINTR. */
int ring_sleep_futex(struct ring *ring, int64_t timeout_ns);
static inline void ring_sleep_end(struct ring *ring)
{
	__atomic_store_n(&ring->ctl->sleeping, 0, __ATOMIC_RELAXED);
}

/* ---- mirrors: a ring whose bytes go to the same positions of another ring ---- */

/*
 * Producer side of a mirror: @size bytes (whole frames, padding included) that belong at @position. -EPROTO unless they
 * continue exactly at the own position, are aligned and fit into what the consumer has freed. Wraps. Not yet published.
 */
int ring_put_span(struct ring *ring, uint64_t position, const void *bytes, uint32_t size);

/* Where @position lies. */
static inline uint8_t *ring_place(const struct ring *ring, uint64_t position)
{
	return ring->bytes + (position & (ring->size - 1));
}

#endif
