/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures of commands that nobody waits for. Any thread of the worker; see fault.h.
 */
#include "broker/worker/fault.h"

#include "broker/proto/sticky.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"

bool fault_is_sticky(CUresult code)
{
	return result_is_sticky(code);
}

void fault_latch(struct worker *w, uint32_t index, CUresult code, uint32_t op, uint64_t seq)
{
	const char *name = op < OP_MAX && op_info[op].name ? op_info[op].name : "?";
	bool first = false;

	if (index < SESSION_CONTEXTS) {
		struct context *c = &w->contexts[index];

		pthread_mutex_lock(&w->lock);
		if (!c->latched || (fault_is_sticky(code) && !fault_is_sticky(c->latched))) {
			c->latched_op = (uint16_t)op;
			c->latched_seq = seq;
			__atomic_store_n(&c->latched, code, __ATOMIC_RELEASE);
			first = true;
		}
		pthread_mutex_unlock(&w->lock);
	}
	note(w, "%s, command %llu, context %d: failed with %d%s", name, (unsigned long long)seq,
	     index < SESSION_CONTEXTS ? (int)index : -1, (int)code, first ? "" : " (not the first, or without a context)");
	if (!first)
		return;

	uint8_t payload[16];
	struct writer p = writer_on(payload, sizeof(payload));

	put_u32(&p, index);
	put_u32(&p, (uint32_t)code);
	put_u32(&p, op);
	post_notice(w, NOTICE_ERROR, seq, index, payload, (uint32_t)p.at);
}

CUresult fault_peek(struct worker *w, uint32_t index)
{
	/* Asked for each frame: the completion thread may hold the lock, and sees it change no earlier for that. */
	return index < SESSION_CONTEXTS ? __atomic_load_n(&w->contexts[index].latched, __ATOMIC_ACQUIRE) : CUDA_SUCCESS;
}

CUresult fault_take(struct worker *w, uint32_t index)
{
	CUresult code;

	if (index >= SESSION_CONTEXTS)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&w->lock);
	code = w->contexts[index].latched;
	if (code && !fault_is_sticky(code))
		__atomic_store_n(&w->contexts[index].latched, CUDA_SUCCESS, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&w->lock);
	return code;
}

void fault_told(struct worker *w, uint32_t index)
{
	fault_take(w, index);
}
