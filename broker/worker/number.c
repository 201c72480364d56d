/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that kernels know. Executor thread; see number.h. */
#include "broker/worker/number.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/worker/move_in.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

#define FILLERS_MAX 65536u /* more than a program has of them (object.c) */

/* An object that was made for nothing but its number. */
struct filler {
	uint64_t number;
	uint16_t ctx;
	uint8_t type; /* OBJECT_TEX or OBJECT_SURF */
};

struct numbers {
	/* what gleamMoveNumber has said last */
	uint64_t object;
	uint64_t wanted;
	struct filler *fillers;
	uint32_t count;
	uint32_t room;
};

static CUresult filler_end(struct worker *w, const struct filler *filler)
{
	CUresult r = CUDA_SUCCESS;

	if (filler->ctx < SESSION_CONTEXTS)
		r = w->contexts[filler->ctx].open ? context_use(w, &w->contexts[filler->ctx]) : CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r; /* it went with its context */
	return filler->type == OBJECT_SURF ? w->drv.cuSurfObjectDestroy(filler->number) : w->drv.cuTexObjectDestroy(filler->number);
}

static bool filler_add(struct numbers *n, uint64_t number, uint16_t ctx, enum object_type type)
{
	if (n->count == n->room) {
		uint32_t room = n->room ? 2 * n->room : 64;
		struct filler *more = realloc(n->fillers, room * sizeof(*more));

		if (!more)
			return false;
		n->fillers = more;
		n->room = room;
	}
	n->fillers[n->count++] = (struct filler){ .number = number, .ctx = ctx, .type = (uint8_t)type };
	return true;
}

/* The number that is wanted is one of those: it is given back, to be given out at once. */
static void filler_use(struct worker *w, struct numbers *n, uint16_t ctx)
{
	for (uint32_t i = 0; i < n->count; i++) {
		if (n->fillers[i].number != n->wanted || n->fillers[i].ctx != ctx)
			continue;
		filler_end(w, &n->fillers[i]);
		n->fillers[i] = n->fillers[--n->count];
		return;
	}
}

CUresult number_make(struct worker *w, enum object_type type, uint64_t object, number_maker *make, void *arg, uint64_t *number_out)
{
	struct numbers *n = w->numbers;
	uint16_t ctx = w->cmd->hdr->ctx;
	uint64_t number = 0;
	char why[200];
	CUresult r;

	if (!w->moving || !n || n->object != object)
		return make(w, arg, number_out);
	filler_use(w, n, ctx);
	for (;;) {
		struct filler filler = { .ctx = ctx, .type = (uint8_t)type };

		r = make(w, arg, &number);
		if (r != CUDA_SUCCESS)
			return r;
		if (number == n->wanted) {
			*number_out = number;
			return CUDA_SUCCESS;
		}
		filler.number = number;
		if (n->count == FILLERS_MAX || !filler_add(n, number, ctx, type)) {
			filler_end(w, &filler);
			break;
		}
	}
	snprintf(why, sizeof(why), "a %s would have the number 0x%llx instead of 0x%llx, which kernels of the program know",
		 type == OBJECT_SURF ? "surface" : "texture", (unsigned long long)number, (unsigned long long)n->wanted);
	move_in_failed(w, w->cmd->hdr->op, CUDA_ERROR_INVALID_HANDLE, why);
	return CUDA_ERROR_INVALID_HANDLE;
}

void numbers_end(struct worker *w)
{
	if (!w->numbers)
		return;
	for (uint32_t i = 0; i < w->numbers->count; i++)
		filler_end(w, &w->numbers->fillers[i]);
	free(w->numbers->fillers);
	free(w->numbers);
	w->numbers = NULL;
}

CUresult worker_do_gleamMoveNumber(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveNumber *m)
{
	if (!w->moving)
		return CMD_BROKEN;
	if (!w->numbers)
		w->numbers = calloc(1, sizeof(*w->numbers));
	if (!w->numbers)
		return CUDA_ERROR_OUT_OF_MEMORY;
	w->numbers->object = m->object;
	w->numbers->wanted = m->number;
	return CUDA_SUCCESS;
}
