/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames to the node. Executor and completion thread; see post.h.
 */
#include "broker/worker/post.h"

#include <string.h>
#include <unistd.h>

#include "broker/core/small.h"
#include "broker/proto/progress.h"
#include "broker/worker/direct.h"
#include "broker/worker/fault.h"
#include "broker/worker/note.h"

/* What this thread posts is shown later, all at once: see post_hold(). */
static __thread bool held;

#define ROOM_WAIT_NS 100000000 /* the node reads always; this only bounds how late its end is noticed */

/* What a broker's own commands bring about: of a client that shares our memory nothing else goes to the daemon. */
static bool is_for_daemon(const struct frame_hdr *hdr)
{
	return hdr->kind == FRAME_REPLY ? hdr->seq == 0 : hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_MOVE;
}

/* Returns whether the node sleeps and is to be woken. The lock is held. */
static bool post_locked(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *bulk, const void *payload,
			uint32_t size)
{
	struct ring *ring = &w->n2c;
	struct frame_hdr h = *hdr;
	bool later = held;
	uint8_t *room;
	int err;

	h.size = (uint32_t)sizeof(h) + (bulk ? (uint32_t)sizeof(*bulk) : 0) + size;
	if (bulk)
		h.flags |= FRAME_BULK_DOWN;
	if (__atomic_load_n(&w->direct, __ATOMIC_RELAXED)) {
		if (!is_for_daemon(&h)) {
			direct_post_locked(w, &h, bulk, payload, size);
			if (!held)
				direct_ring_locked(w);
			return false;
		}
		ring = &w->side_n2c;
		later = false;
	}
	for (;;) {
		uint64_t tail = ring_tail(ring);

		err = ring_reserve(ring, h.size, &room);
		if (err != -EAGAIN || __atomic_load_n(&w->stop, __ATOMIC_RELAXED))
			break;
		/* What is held takes room, too. */
		if (later && ring_publish(ring))
			ring_wake_fd(w->doorbell);
		ring_room_wait(ring->ctl, tail, ROOM_WAIT_NS);
	}
	if (err) {
		if (err != -EAGAIN)
			complain("ring to the node: %s (frame of %u bytes, op 0x%x)", strerror(-err), h.size, h.op);
		return false;
	}
	memcpy(room, &h, sizeof(h));
	room += sizeof(h);
	if (bulk) {
		memcpy(room, bulk, sizeof(*bulk));
		room += sizeof(*bulk);
	}
	if (size)
		memcpy(room, payload, size);
	ring_commit(ring, h.size);
	w->bulk_posted += bulk && bulk->size && !small_fits(h.size, bulk);
	return !later && ring_publish(ring);
}

/* How many landings were sent before what comes next. */
static bool landings_post_locked(struct worker *w)
{
	struct frame_hdr hdr = { .op = NOTICE_PROGRESS, .kind = FRAME_NOTICE };
	uint8_t payload[8];
	struct writer p = writer_on(payload, sizeof(payload));

	w->landings_told = w->landings;
	put_u32(&p, PROGRESS_LANDINGS);
	put_u32(&p, w->landings);
	return post_locked(w, &hdr, NULL, payload, sizeof(payload));
}

/* All but landings. */
static void post(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *bulk, const void *payload,
		 uint32_t size)
{
	bool sleeps = false;

	pthread_mutex_lock(&w->post_lock);
	/* A host function may look at what has landed, too: all kinds of notices but the landings themselves. */
	if (w->landings != w->landings_told)
		sleeps = landings_post_locked(w);
	sleeps |= post_locked(w, hdr, bulk, payload, size);
	pthread_mutex_unlock(&w->post_lock);
	if (sleeps)
		ring_wake_fd(w->doorbell);
}

void post_hold(void)
{
	held = true;
}

void post_show(struct worker *w)
{
	bool sleeps;

	held = false;
	if (__atomic_load_n(&w->direct, __ATOMIC_RELAXED)) {
		if (!__atomic_load_n(&w->direct_ring, __ATOMIC_RELAXED))
			return;
		pthread_mutex_lock(&w->post_lock);
		direct_ring_locked(w);
		pthread_mutex_unlock(&w->post_lock);
		return;
	}
	pthread_mutex_lock(&w->post_lock);
	sleeps = ring_publish(&w->n2c);
	pthread_mutex_unlock(&w->post_lock);
	if (sleeps)
		ring_wake_fd(w->doorbell);
}

/* Commands whose answers say nothing about the program's own calls: the library asks them on its own account. */
static bool carries_faults(uint16_t op)
{
	return op != OP_gleamAttach && op != OP_gleamAsk && op != OP_gleamGrant && op != OP_gleamMemInfo;
}

void post_reply(struct worker *w, const struct frame_hdr *cmd, CUresult result, uint8_t *payload, uint32_t size,
		const struct bulk_ref *bulk)
{
	struct frame_hdr hdr = {
		.op = cmd->op, .kind = FRAME_REPLY, .slot = cmd->slot, .ctx = cmd->ctx, .thread = cmd->thread, .seq = cmd->seq,
	};
	uint8_t alone[4];

	if (carries_faults(cmd->op)) {
		CUresult latched = fault_take(w, cmd->ctx);

		/* The first failure comes first, as from a driver that would have failed then. */
		if (latched)
			result = latched;
	}
	if (result != CUDA_SUCCESS || size < sizeof(alone)) {
		payload = alone;
		size = sizeof(alone);
	}
	if (result != CUDA_SUCCESS)
		bulk = NULL;
	if (size + (bulk ? sizeof(*bulk) : 0) > REPLY_PAYLOAD_MAX) {
		complain("answer of op 0x%x has %u bytes, more than a slot", cmd->op, size);
		payload = alone;
		size = sizeof(alone);
		result = CUDA_ERROR_UNKNOWN;
		bulk = NULL;
	}

	uint32_t code = (uint32_t)result;

	memcpy(payload, &code, sizeof(code));
	post(w, &hdr, bulk, payload, size);
}

void post_notice(struct worker *w, enum notice notice, uint64_t seq, uint32_t ctx, const void *payload, uint32_t size)
{
	struct frame_hdr hdr = { .op = (uint16_t)notice, .kind = FRAME_NOTICE, .ctx = (uint16_t)ctx, .seq = seq };

	post(w, &hdr, NULL, payload, size);
}

void post_spans(struct worker *w, struct spans *spans)
{
	uint8_t payload[SPANS_SIZE_MAX] __attribute__((aligned(8)));
	struct writer p = writer_on(payload, sizeof(payload));

	spans_put(&p, spans);
	post_notice(w, NOTICE_TRACE, 0, CTX_NONE, payload, (uint32_t)p.at);
}

void post_landed(struct worker *w, const struct frame_hdr *cmd, CUresult result, const struct bulk_ref *bulk)
{
	struct frame_hdr hdr = {
		.op = NOTICE_LANDED, .kind = FRAME_NOTICE, .ctx = cmd->ctx, .thread = cmd->thread, .seq = cmd->seq,
	};
	uint32_t payload[2] = { (uint32_t)result };
	struct bulk_ref ref = *bulk;
	bool sleeps;

	/* The client waits for its cells in any case; a copy that failed has brought nothing. */
	if (result != CUDA_SUCCESS)
		ref.size = 0;
	pthread_mutex_lock(&w->post_lock);
	payload[1] = ++w->landings;
	sleeps = post_locked(w, &hdr, &ref, payload, sizeof(payload));
	pthread_mutex_unlock(&w->post_lock);
	if (sleeps)
		ring_wake_fd(w->doorbell);
}
