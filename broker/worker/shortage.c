/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory is short. Executor thread; see shortage.h. */
#include "broker/worker/shortage.h"

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"

static void ask(struct worker *w, struct shortage *shortage, uint32_t device, uint64_t bytes)
{
	struct session_header *hdr = w->header;

	/* Several that ask at once: the node hears of the last, and each finds the memory that comes. */
	__atomic_store_n(&hdr->short_gpu, device, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->short_bytes, bytes, __ATOMIC_RELAXED);
	shortage->number = __atomic_add_fetch(&hdr->short_asked, 1, __ATOMIC_RELEASE);
	shortage->asked = true;
	shortage->until_ns = clock_ns() + SHORTAGE_WAIT_NS;
	ring_wake_fd(w->doorbell);
}

bool shortage_waits(struct worker *w, struct shortage *shortage, uint32_t device, uint64_t bytes)
{
	if (!shortage->asked) {
		ask(w, shortage, device, bytes);
		return true;
	}
	if (clock_ns() >= shortage->until_ns)
		return false;
	if ((int32_t)(__atomic_load_n(&w->header->short_told, __ATOMIC_ACQUIRE) - shortage->number) < 0)
		return true; /* the node hasn't looked yet */
	return __atomic_load_n(&w->header->short_others, __ATOMIC_RELAXED) != 0;
}

void shortage_look(struct worker *w)
{
	uint32_t count = __atomic_load_n(&w->header->recall_count, __ATOMIC_ACQUIRE);
	uint8_t payload[16] __attribute__((aligned(8)));
	struct writer p = writer_on(payload, sizeof(payload));

	if (count == w->recalled)
		return;
	w->recalled = count;
	put_u32(&p, __atomic_load_n(&w->header->recall_gpu, __ATOMIC_RELAXED));
	put_u64(&p, __atomic_load_n(&w->header->recall_bytes, __ATOMIC_RELAXED));
	post_notice(w, NOTICE_RECALL, 0, CTX_NONE, payload, (uint32_t)p.at);
}

void shortage_idle(struct worker *w, uint64_t more)
{
	/* One writer; the node reads. */
	__atomic_store_n(&w->header->idle_bytes, w->header->idle_bytes + more, __ATOMIC_RELAXED);
}
