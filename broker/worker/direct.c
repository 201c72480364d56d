/* SPDX-License-Identifier: Apache-2.0 */
/* Frames straight into the client's memory; see direct.h. */
#include "broker/worker/direct.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/futex.h"
#include "broker/lib/slot.h"
#include "broker/worker/note.h"
#include "gen/ops.h"

/* The client's own fault, or no memory: it alone loses its session. */
static void direct_failed(struct worker *w, const char *what)
{
	if (!__atomic_exchange_n(&w->direct_failed, 1, __ATOMIC_RELEASE))
		complain("the client of this machine: %s; its session ends", what);
	free(w->overflow);
	w->overflow = NULL;
	w->overflow_size = w->overflow_max = 0;
	__atomic_store_n(&w->direct_waiting, false, __ATOMIC_RELEASE);
}

/* A notice that becomes words. False: it is another one. */
static bool direct_word(struct worker *w, const struct frame_hdr *hdr, const uint8_t *payload)
{
	uint32_t words[3];
	uint64_t tail;

	/* Payloads are post.h's and of right size. */
	switch (hdr->op) {
	case NOTICE_PROGRESS:
		memcpy(words, payload, 2 * sizeof(words[0]));
		session_progress_post(&w->shm, words[0], words[1]);
		return true;
	case NOTICE_ERROR:
		memcpy(words, payload, sizeof(words));
		session_error_post(&w->shm, words[0], words[1], words[2], hdr->seq);
		return true;
	case NOTICE_CONSUMED:
		memcpy(&tail, payload, sizeof(tail));
		session_up_tail_post(&w->shm, tail);
		return true;
	default:
		return false;
	}
}

/* Who has waited for this takes what has landed before himself (service_settle() in the library): nobody else is woken for that. */
static bool direct_settles(const struct frame_hdr *reply)
{
	return reply->op == OP_gleamStreamSync || reply->op == OP_gleamContextSync;
}

/* 0, -EAGAIN when there is no room now, -EPROTO when the client's end of the ring is nonsense. */
static int direct_show(struct worker *w, const uint8_t *frame)
{
	struct frame_hdr hdr;
	uint8_t *room;
	int err;

	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.kind == FRAME_REPLY) {
		/* -ENOENT: nobody waits for it any more. */
		err = session_reply_post(&w->shm, frame);
		if (!err && direct_settles(&hdr) && !w->direct_bell)
			__atomic_store_n(&w->direct_ring, false, __ATOMIC_RELAXED);
		return err == -ENOENT ? 0 : err;
	}
	if (direct_word(w, &hdr, frame + sizeof(hdr)))
		return 0;
	err = ring_reserve(&w->n2c, hdr.size, &room);
	if (err)
		return err;
	memcpy(room, frame, hdr.size);
	ring_commit(&w->n2c, hdr.size);
	/* The client finds it from here on, if it looks. Its thread that sleeps is woken when the word or reply behind it is there, if at all. */
	ring_show(&w->n2c);
	if (hdr.op != NOTICE_LANDED)
		w->direct_bell = true;
	__atomic_store_n(&w->direct_ring, true, __ATOMIC_RELAXED);
	return 0;
}

/* Behind what waits already: a reply or a word may say that bytes are there which are still in the queue. */
static void direct_queue(struct worker *w, const uint8_t *frame, uint32_t size)
{
	if (RING_ALIGN(size) > DIRECT_OVERFLOW_MAX - w->overflow_size) {
		direct_failed(w, "it does not read its notices");
		return;
	}
	if (RING_ALIGN(size) > w->overflow_max - w->overflow_size) {
		uint32_t max = w->overflow_max ? 2 * w->overflow_max : 4 * FRAME_SIZE_MAX;
		uint8_t *grown = realloc(w->overflow, max);

		if (!grown) {
			direct_failed(w, "no memory for its notices");
			return;
		}
		w->overflow = grown;
		w->overflow_max = max;
	}
	memcpy(w->overflow + w->overflow_size, frame, size);
	w->overflow_size += RING_ALIGN(size);
	if (__atomic_exchange_n(&w->direct_waiting, true, __ATOMIC_SEQ_CST))
		return;
	/* The completion thread looks for room from here on; it may be asleep until there is work. */
	__atomic_fetch_add(&w->watch_bell, 1, __ATOMIC_RELEASE);
	futex_wake(&w->watch_bell, 1);
}

void direct_post_locked(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *bulk, const void *payload,
			uint32_t size)
{
	uint8_t *frame = w->direct_frame;
	uint32_t at = sizeof(*hdr);
	int err = -EAGAIN;

	if (__atomic_load_n(&w->direct_failed, __ATOMIC_RELAXED))
		return;
	memcpy(frame, hdr, sizeof(*hdr));
	if (bulk) {
		memcpy(frame + at, bulk, sizeof(*bulk));
		at += sizeof(*bulk);
	}
	if (size)
		memcpy(frame + at, payload, size);
	direct_flush_locked(w);
	if (!w->overflow_size)
		err = direct_show(w, frame);
	if (err == -EAGAIN)
		direct_queue(w, frame, hdr->size);
	else if (err)
		direct_failed(w, "it wrote nonsense into its notice ring");
}

void direct_ring_locked(struct worker *w)
{
	if (!w->direct_ring)
		return;
	__atomic_store_n(&w->direct_ring, false, __ATOMIC_RELAXED);
	w->direct_bell = false;
	ring_nudge_futex(w->n2c.ctl);
}

void direct_flush_locked(struct worker *w)
{
	uint32_t at = 0;
	int err = 0;

	while (at < w->overflow_size) {
		struct frame_hdr hdr;

		memcpy(&hdr, w->overflow + at, sizeof(hdr));
		err = direct_show(w, w->overflow + at);
		if (err)
			break;
		at += RING_ALIGN(hdr.size);
	}
	if (err && err != -EAGAIN) {
		direct_failed(w, "it wrote nonsense into its notice ring");
		return;
	}
	if (!at)
		return;
	w->overflow_size -= at;
	memmove(w->overflow, w->overflow + at, w->overflow_size);
	if (!w->overflow_size)
		__atomic_store_n(&w->direct_waiting, false, __ATOMIC_RELEASE);
}
