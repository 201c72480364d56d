/* SPDX-License-Identifier: Apache-2.0 */
/* Driver streams made beforehand. Executor thread; see spare.h. */
#include "broker/worker/spare.h"

#include "broker/worker/note.h"
#include "broker/worker/object.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

void spare_refill(struct worker *w, struct context *c)
{
	if (host_calls_pending(w, c))
		return;
	for (unsigned int kind = 0; kind < 2; kind++) {
		struct spares *s = &c->spares[kind];

		/* Half of them gone: a program that makes streams between its host functions pays no driver call each time. */
		if (s->count > SPARES / 2)
			continue;
		while (s->count < SPARES &&
		       w->drv.cuStreamCreateWithPriority(&s->streams[s->count], kind ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT, 0) == CUDA_SUCCESS)
			s->count++;
		if (s->count < SPARES)
			note(w, "no spare streams for context %u", c->index);
	}
}

void spare_end(struct worker *w, struct context *c, bool destroy)
{
	for (unsigned int kind = 0; kind < 2; kind++) {
		struct spares *s = &c->spares[kind];

		while (s->count) {
			s->count--;
			if (destroy)
				w->drv.cuStreamDestroy_v2(s->streams[s->count]);
		}
	}
}

/* A spare one has the default priority: priorities are hints. */
CUresult worker_do_cuStreamCreateWithPriority(struct worker *w, struct cmd *cmd, const struct msg_cuStreamCreateWithPriority *m)
{
	struct context *c = cmd->hdr->ctx < SESSION_CONTEXTS ? &w->contexts[cmd->hdr->ctx] : NULL;
	struct spares *s;
	CUstream born = NULL;
	CUresult r = CUDA_SUCCESS;

	if (!c || !c->open)
		return CUDA_ERROR_INVALID_CONTEXT;
	s = &c->spares[m->flags & CU_STREAM_NON_BLOCKING ? 1 : 0];
	if (s->count && host_calls_pending(w, c))
		born = s->streams[--s->count];
	else
		r = w->drv.cuStreamCreateWithPriority(&born, m->flags, m->priority);
	if (r != CUDA_SUCCESS)
		return r;
	if (object_add(w, OBJECT_STREAM, m->phStream, born))
		return CUDA_SUCCESS;
	w->drv.cuStreamDestroy_v2(born);
	return CMD_BROKEN;
}
