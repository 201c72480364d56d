/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replies, progress, errors, landings and the end of a session, as words of its memory. See slot.h for threads.
 */
#include "broker/lib/slot.h"

#include <limits.h>
#include <string.h>

#include "broker/lib/futex.h"

int session_reply_post(const struct shm *shm, const void *frame)
{
	struct frame_hdr hdr;

	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.kind != FRAME_REPLY || hdr.slot >= SESSION_SLOTS)
		return -EPROTO;

	struct reply_slot *slot = shm_slot(shm, hdr.slot);

	if (hdr.size < sizeof(hdr) || hdr.size > sizeof(slot->data))
		return -EPROTO;

	uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);

	if ((state != SLOT_SENT && state != SLOT_SLEEPING) || slot->seq != hdr.seq)
		return -ENOENT;
	memcpy(slot->data, frame, hdr.size);
	slot->size = hdr.size;
	/* Pairs with the caller's acquire of state, and with its cmpxchg to SLOT_SLEEPING: we wake, or it sees DONE. */
	if (__atomic_exchange_n(&slot->state, SLOT_DONE, __ATOMIC_SEQ_CST) == SLOT_SLEEPING)
		futex_wake(&slot->state, INT_MAX);
	return 0;
}

void session_bell_ring(const struct shm *shm)
{
	struct session_header *hdr = shm_header(shm);

	/* Pairs with the waiter's increment of progress_waiters: either it sees the new bell, or we see it waiting. */
	__atomic_fetch_add(&hdr->progress_bell, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&hdr->progress_waiters, __ATOMIC_SEQ_CST))
		futex_wake(&hdr->progress_bell, INT_MAX);
}

int session_progress_post(const struct shm *shm, uint32_t word, uint32_t value)
{
	if (word >= SESSION_PROGRESS_WORDS)
		return -EPROTO;
	/* Release: what arrived before (bytes in the down arena, an error word) is seen before the progress. */
	__atomic_store_n(shm_progress(shm, word), value, __ATOMIC_RELEASE);
	session_bell_ring(shm);
	return 0;
}

int session_error_post(const struct shm *shm, uint32_t context, uint32_t code, uint32_t op, uint64_t seq)
{
	if (context >= SESSION_CONTEXTS || code == 0)
		return -EPROTO;

	struct error_word *error = shm_error(shm, context);

	/*
	 * Only we set it and only the client clears it (its code alone), so what is empty stays empty until we are done. With the code
	 * comes op, which was 0: whoever takes over from a daemon that died here sees by it whether this one had been told.
	 */
	if (__atomic_load_n(&error->code, __ATOMIC_ACQUIRE) == 0) {
		uint32_t both[2] = { code, op };
		uint64_t word;

		memcpy(&word, both, sizeof(word));
		__atomic_store_n(&error->op, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&error->seq, seq, __ATOMIC_RELEASE);
		__atomic_store_n((uint64_t *)(void *)error, word, __ATOMIC_RELEASE);
	}
	session_bell_ring(shm);
	return 0;
}

void session_up_tail_post(const struct shm *shm, uint64_t tail)
{
	struct session_header *hdr = shm_header(shm);

	__atomic_store_n(&hdr->up_tail, tail, __ATOMIC_RELEASE);
	/* Pairs with the fence in session_up_wait(): either it sees the tail, or we see it waiting. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&hdr->up_waiting, __ATOMIC_RELAXED) == 0)
		return;
	__atomic_store_n(&hdr->up_waiting, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&hdr->up_room, 1, __ATOMIC_RELEASE);
	futex_wake(&hdr->up_room, INT_MAX);
}

int session_up_wait(const struct shm *shm, uint64_t tail_seen, int64_t timeout_ns)
{
	struct session_header *hdr = shm_header(shm);
	uint32_t room = __atomic_load_n(&hdr->up_room, __ATOMIC_ACQUIRE);

	__atomic_store_n(&hdr->up_waiting, 1, __ATOMIC_RELAXED);
	/* Pairs with the fence in session_up_tail_post(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&hdr->up_tail, __ATOMIC_ACQUIRE) != tail_seen)
		return 0;
	return futex_wait(&hdr->up_room, room, timeout_ns);
}

void session_landed_post(const struct shm *shm, uint32_t offset, uint64_t cookie)
{
	/* Pairs with the worker's acquire: the bytes are there before the word. */
	__atomic_store_n(shm_landed(shm, offset / SESSION_GRANULE), landed_value(cookie), __ATOMIC_RELEASE);
	session_bell_ring(shm);
	ring_nudge_futex(&shm_header(shm)->c2n);
}

void session_live_post(const struct shm *shm)
{
	struct session_header *hdr = shm_header(shm);

	__atomic_store_n(&hdr->state, SESSION_LIVE, __ATOMIC_RELEASE);
	futex_wake(&hdr->state, INT_MAX);
}

void session_end_post(const struct shm *shm, enum session_end reason)
{
	struct session_header *hdr = shm_header(shm);

	__atomic_store_n(&hdr->reason, reason, __ATOMIC_RELAXED);
	/* Seq_cst: a caller that went to SLOT_SENT or SLOT_SLEEPING is seen below, or sees DEAD. */
	__atomic_store_n(&hdr->state, SESSION_DEAD, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < SESSION_SLOTS; i++) {
		struct reply_slot *slot = shm_slot(shm, i);
		uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_SEQ_CST);

		if (state != SLOT_SENT && state != SLOT_SLEEPING)
			continue;
		slot->size = 0;
		__atomic_store_n(&slot->state, SLOT_DONE, __ATOMIC_SEQ_CST);
		futex_wake(&slot->state, INT_MAX);
	}
	shm_wake_all(shm);
}
