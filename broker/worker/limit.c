/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of a context. The driver waits for the context's work before it changes what kernels run in (measured with driver 580.159: the
 * stack, the L2 cache set aside; not buffers of printf and malloc). Work that is parked here is part of that, and the executor can't
 * stand still for it: so it is waited for as in a synchronisation. Executor thread.
 */
#include <stdlib.h>
#include <string.h>

#include "broker/worker/completion.h"
#include "broker/worker/keep.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

static bool must_wait(struct worker *w, const struct msg_cuCtxSetLimit *m)
{
	size_t now;

	/* Nothing runs yet where a session arrives. */
	if (w->moving || (m->limit != CU_LIMIT_STACK_SIZE && m->limit != CU_LIMIT_PERSISTING_L2_CACHE_SIZE))
		return false;
	return w->drv.cuCtxGetLimit(&now, (CUlimit)m->limit) != CUDA_SUCCESS || now != m->value;
}

/* The command in the record, as if it had been played at once. */
static void remember(struct worker *w, const struct join *join)
{
	uint8_t frame[sizeof(struct frame_hdr) + 64] __attribute__((aligned(8)));
	struct msg_cuCtxSetLimit m = { .limit = (uint32_t)join->a, .value = join->b };
	struct writer out = writer_on(frame + sizeof(struct frame_hdr), sizeof(frame) - sizeof(struct frame_hdr));
	struct frame_hdr hdr = join->hdr;

	msg_cuCtxSetLimit_put(&out, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + out.at);
	memcpy(frame, &hdr, sizeof(hdr));
	keep_frame(w, &hdr, frame);
}

static void set_now(struct worker *w, struct join *join)
{
	struct context *c = &w->contexts[join->hdr.ctx];
	CUresult r = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	/* The driver would wait for what was sent since, too. */
	if (c->open && host_calls_wait(w, c, join))
		return;
	if (c->open)
		r = context_use(w, c);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuCtxSetLimit((CUlimit)join->a, join->b);
	if (r == CUDA_SUCCESS)
		remember(w, join);
	__atomic_fetch_sub(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	post_reply(w, &join->hdr, r, NULL, 0, NULL);
	free(join);
}

CUresult worker_do_cuCtxSetLimit(struct worker *w, struct cmd *cmd, const struct msg_cuCtxSetLimit *m)
{
	struct context *c;
	struct join *join;

	if (cmd->hdr->ctx >= SESSION_CONTEXTS)
		return CMD_BROKEN;
	if (!must_wait(w, m))
		return w->drv.cuCtxSetLimit((CUlimit)m->limit, m->value);
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	c = &w->contexts[cmd->hdr->ctx];
	join->done = set_now;
	join->hdr = *cmd->hdr;
	join->a = m->limit;
	join->b = m->value;
	__atomic_fetch_add(&w->replies_waiting, 1, __ATOMIC_RELAXED);
	streams_join(w, c, join);
	completion_hurry(w);
	return CMD_LATER;
}
