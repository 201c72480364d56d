/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linker: inputs come in parts inside frames, since they are small as a rule and nobody is in a hurry; the driver's
 * state lives as long as the client's. Executor thread.
 */
#include "broker/worker/link.h"

#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "broker/worker/image.h"
#include "broker/worker/jit.h"
#include "broker/worker/post.h"
#include "broker/worker/print.h"
#include "gen/worker_bodies.h"

#define LINKS_MAX 64u /* at a time: a program has one */
#define CELL_HEAD 8u  /* of what gleamLinkRead brings: the size of the whole */

struct link {
	CUlinkState state;
	uint8_t *input; /* the next one, as far as it has come, and room for a zero */
	uint64_t input_size;
	const uint8_t *image; /* the state's own */
	size_t image_size;
	struct jit jit; /* its logs are the driver's as long as the state lasts */
};

void link_own_free(struct worker *w, struct link *link, bool driver)
{
	if (driver)
		w->drv.cuLinkDestroy(link->state);
	free(link->input);
	free(link);
}

static struct object *link_at(struct worker *w, uint64_t handle)
{
	return object_find(w->tables, OBJECT_LINK, handle);
}

CUresult worker_do_gleamLinkCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkCreate *m)
{
	struct link *link;
	struct object *o;
	CUresult r;

	if (handle_type(m->link) != OBJECT_LINK || link_at(w, m->link))
		return CMD_BROKEN;
	if (w->tables[OBJECT_LINK].count >= LINKS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	link = calloc(1, sizeof(*link));
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!jit_read(&link->jit, m->options, m->options_size)) {
		r = CUDA_ERROR_INVALID_VALUE;
		goto free_link;
	}
	r = w->drv.cuLinkCreate_v2(link->jit.count, link->jit.options, link->jit.values, &link->state);
	if (r != CUDA_SUCCESS)
		goto free_link;
	if (!object_add(w, OBJECT_LINK, m->link, link->state)) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
		goto destroy;
	}
	o = link_at(w, m->link);
	o->own = link;
	return CUDA_SUCCESS;

destroy:
	w->drv.cuLinkDestroy(link->state);
free_link:
	free(link);
	return r;
}

CUresult worker_do_gleamLinkPart(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkPart *m)
{
	struct object *o = link_at(w, m->link);
	struct link *link = o ? o->own : NULL;
	uint8_t *input;

	if (!link)
		return CUDA_SUCCESS; /* what is added says that there is none */
	if (m->data_size > FATBIN_IMAGE_MAX - link->input_size)
		return CMD_BROKEN;
	input = realloc(link->input, link->input_size + m->data_size + 1);
	if (!input) {
		/* Without its middle it is no image. */
		free(link->input);
		link->input = NULL;
		link->input_size = 0;
		return CUDA_SUCCESS;
	}
	memcpy(input + link->input_size, m->data, m->data_size);
	link->input = input;
	link->input_size += m->data_size;
	input[link->input_size] = 0;
	return CUDA_SUCCESS;
}

/* Logs and values so far, and the code: a verdict without functions. */
static CUresult link_answer(struct worker *w, struct cmd *cmd, struct link *link, const struct bulk_ref *cells, CUresult code)
{
	struct verdict_jit told;
	uint8_t *blob;
	size_t size;

	jit_told(&link->jit, &told);
	blob = verdict_make(w, code, 0, 0, &told, &size);
	if (!blob)
		return CUDA_ERROR_OUT_OF_MEMORY;
	verdict_answer(w, cmd->hdr, cells, blob, size);
	free(blob);
	return CMD_LATER;
}

static CUresult input_add(struct worker *w, struct link *link, const struct msg_gleamLinkAdd *m)
{
	struct jit *jit;
	uint64_t size = link->input_size;
	CUresult r;

	if (!link->input || m->total_size != size)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* Containers are walked by the lengths that they name. */
	if (m->type == CU_JIT_INPUT_FATBINARY && image_check(link->input, size) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_IMAGE;
	jit = calloc(1, sizeof(*jit));
	if (!jit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = CUDA_ERROR_INVALID_VALUE;
	if (jit_read(jit, m->options, m->options_size)) {
		print_look(link->input, size);
		r = w->drv.cuLinkAddData_v2(link->state, (CUjitInputType)m->type, link->input, size, m->name, jit->count,
					    jit->options, jit->values);
	}
	free(jit);
	return r;
}

CUresult worker_do_gleamLinkAdd(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkAdd *m)
{
	struct object *o = link_at(w, m->link);
	struct link *link = o ? o->own : NULL;
	CUresult r;

	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	r = input_add(w, link, m);
	free(link->input);
	link->input = NULL;
	link->input_size = 0;
	return link_answer(w, cmd, link, &m->answer, r);
}

CUresult worker_do_gleamLinkComplete(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkComplete *m)
{
	struct object *o = link_at(w, m->link);
	struct link *link = o ? o->own : NULL;
	void *image = NULL;
	size_t size = 0;
	CUresult r;

	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	r = w->drv.cuLinkComplete(link->state, &image, &size);
	if (r == CUDA_SUCCESS) {
		link->image = image;
		link->image_size = image ? size : 0;
	}
	return link_answer(w, cmd, link, &m->answer, r);
}

CUresult worker_do_gleamLinkRead(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkRead *m)
{
	struct object *o = link_at(w, m->link);
	struct link *link = o ? o->own : NULL;
	struct bulk_ref filled = m->answer;
	uint8_t payload[4];
	uint64_t whole, left;
	uint8_t *to;

	if (!link)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->answer.size < CELL_HEAD)
		return CMD_BROKEN;
	whole = link->image_size;
	left = m->offset < whole ? whole - m->offset : 0;
	if (left > m->answer.size - CELL_HEAD)
		left = m->answer.size - CELL_HEAD;
	to = shm_down(&w->shm) + m->answer.offset;
	memcpy(to, &whole, CELL_HEAD);
	if (left)
		memcpy(to + CELL_HEAD, link->image + m->offset, left);
	filled.size = (uint32_t)(CELL_HEAD + left);
	post_reply(w, cmd->hdr, CUDA_SUCCESS, payload, sizeof(payload), &filled);
	return CMD_LATER;
}

CUresult worker_do_gleamLinkEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkEnd *m)
{
	struct object *o = link_at(w, m->link);

	if (!o)
		return CUDA_SUCCESS; /* its context took it along */
	link_own_free(w, o->own, true);
	object_erase(w->tables, m->link);
	return CUDA_SUCCESS;
}
