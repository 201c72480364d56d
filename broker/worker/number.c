/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that kernels know. Executor thread; see number.h. */
#include "broker/worker/number.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/worker/move_in.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

#define SPARES_MAX 65536u /* more than a program has of them (object.c) */

/* An object that was made for nothing but its number. */
struct spare {
	uint64_t number;
	uint16_t ctx;
	uint8_t type; /* OBJECT_TEX or OBJECT_SURF */
};

struct numbers {
	/* what gleamMoveNumber has said last */
	uint64_t object;
	uint64_t wanted;
	struct spare *spares;
	uint32_t count;
	uint32_t room;
};

static CUresult spare_end(struct worker *w, const struct spare *spare)
{
	CUresult r = CUDA_SUCCESS;

	if (spare->ctx < SESSION_CONTEXTS)
		r = w->contexts[spare->ctx].open ? context_use(w, &w->contexts[spare->ctx]) : CUDA_ERROR_INVALID_CONTEXT;
	if (r != CUDA_SUCCESS)
		return r; /* it went with its context */
	return spare->type == OBJECT_SURF ? w->drv.cuSurfObjectDestroy(spare->number) : w->drv.cuTexObjectDestroy(spare->number);
}

static bool spare_add(struct numbers *n, uint64_t number, uint16_t ctx, enum object_type type)
{
	if (n->count == n->room) {
		uint32_t room = n->room ? 2 * n->room : 64;
		struct spare *more = realloc(n->spares, room * sizeof(*more));

		if (!more)
			return false;
		n->spares = more;
		n->room = room;
	}
	n->spares[n->count++] = (struct spare){ .number = number, .ctx = ctx, .type = (uint8_t)type };
	return true;
}

/* The number that is wanted is one of those: it is given back, to be given out at once. */
static void spare_use(struct worker *w, struct numbers *n, uint16_t ctx)
{
	for (uint32_t i = 0; i < n->count; i++) {
		if (n->spares[i].number != n->wanted || n->spares[i].ctx != ctx)
			continue;
		spare_end(w, &n->spares[i]);
		n->spares[i] = n->spares[--n->count];
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
	spare_use(w, n, ctx);
	for (;;) {
		struct spare spare = { .ctx = ctx, .type = (uint8_t)type };

		r = make(w, arg, &number);
		if (r != CUDA_SUCCESS)
			return r;
		if (number == n->wanted) {
			*number_out = number;
			return CUDA_SUCCESS;
		}
		spare.number = number;
		if (n->count == SPARES_MAX || !spare_add(n, number, ctx, type)) {
			spare_end(w, &spare);
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
		spare_end(w, &w->numbers->spares[i]);
	free(w->numbers->spares);
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
