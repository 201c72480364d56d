/* SPDX-License-Identifier: Apache-2.0 */
/* A look ahead of the executor. Completion thread; see ahead.h. */
#include "broker/worker/ahead.h"

#include "broker/worker/sync.h"
#include "gen/msg.h"

/* Nothing behind @position has been released, so what was read there was a command. */
static bool intact(const struct worker *w, uint64_t position)
{
	/* What was read comes before: were it overwritten, the release of it would be seen here. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&w->ahead.released, __ATOMIC_RELAXED) == position;
}

/*
 * What such an end may not overtake: bytes of the host that are there, for the program, as soon as its call has returned. Other threads
 * may have made that call before the function returned.
 */
static bool brings_bytes(const struct frame_hdr *hdr)
{
	switch (hdr->op) {
	case OP_gleamCopyUp:
	case OP_gleamCopyUp2D:
	case OP_gleamHostWrite:
	case OP_gleamArrayUp:
		return true;
	default:
		return hdr->flags & FRAME_BULK_UP;
	}
}

bool ahead_look(struct worker *w, uint64_t now_ns)
{
	uint64_t released = __atomic_load_n(&w->ahead.released, __ATOMIC_RELAXED);
	bool any = false;

	if (released != w->ahead.seen) {
		w->ahead.seen = released;
		w->ahead.since_ns = now_ns;
		w->ahead.looked = released;
	}
	if (now_ns - w->ahead.since_ns < AHEAD_NS || !host_calls_stand(w))
		return false;

	/* The executor's own position in it is the executor's. */
	struct ring ring = { .ctl = w->c2n.ctl, .bytes = w->c2n.bytes, .size = w->c2n.size, .at = w->ahead.looked, .seen = w->ahead.looked };
	struct frame_hdr hdr;
	const uint8_t *frame;

	while (ring_peek(&ring, &hdr, &frame) == 1) {
		struct msg_gleamHostDone m = { 0 };
		struct reader r = reader_on(frame + ring_frame_head(&hdr), hdr.size - ring_frame_head(&hdr));
		bool done = hdr.kind == FRAME_COMMAND && hdr.op == OP_gleamHostDone && msg_gleamHostDone_get(&r, &m);

		if (!intact(w, released) || brings_bytes(&hdr))
			break;
		if (done)
			any |= host_call_ahead(w, m.id);
		ring_next(&ring, &hdr);
		/* What is incomplete now is looked at again. */
		w->ahead.looked = ring.at;
	}
	return any;
}
