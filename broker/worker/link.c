/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linker: inputs come in parts inside frames, since they are small as a rule and nobody is in a hurry; the driver's
 * state lives as long as the client's. What a link is made of is kept as other births are (keep.h), so that another worker can make it
 * again; whether that came to the same is looked at, at the end of a move. Executor thread.
 */
#include "broker/worker/link.h"

#include <stdlib.h>
#include <string.h>

#include "broker/lib/fatbin.h"
#include "broker/lib/sum128.h"
#include "broker/worker/image.h"
#include "broker/worker/jit.h"
#include "broker/worker/keep.h"
#include "broker/worker/move_in.h"
#include "broker/worker/move_out.h"
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
	uint64_t codes; /* what its steps have come to, all in one */
	bool unkept;	/* it has had more than can be remembered */
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

/* FNV-1a: in their order. */
static void code_add(struct link *link, CUresult code)
{
	link->codes = (link->codes ^ ((uint64_t)code + 1)) * 0x100000001b3ull;
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

/* What has been done, as another worker would be told to do it again: without the cells that its answer has gone to. */
static void step_keep(struct worker *w, const struct cmd *cmd, const struct msg_gleamLinkAgain *m)
{
	uint8_t frame[16384] __attribute__((aligned(8)));
	struct frame_hdr hdr = { .op = OP_gleamLinkAgain, .kind = FRAME_COMMAND, .ctx = cmd->hdr->ctx, .thread = cmd->hdr->thread };
	struct writer out = writer_on(frame + sizeof(hdr), sizeof(frame) - sizeof(hdr));

	msg_gleamLinkAgain_put(&out, m);
	hdr.size = (uint32_t)(sizeof(hdr) + out.at);
	memcpy(frame, &hdr, sizeof(hdr));
	if (out.fault)
		link_unkept(w, m->link);
	else
		keep_frame(w, &hdr, frame);
}

static CUresult input_add(struct worker *w, struct link *link, const struct msg_gleamLinkAgain *m)
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

static CUresult finish(struct worker *w, struct link *link)
{
	void *image = NULL;
	size_t size = 0;
	CUresult r = w->drv.cuLinkComplete(link->state, &image, &size);

	if (r == CUDA_SUCCESS) {
		link->image = image;
		link->image_size = image ? size : 0;
	}
	return r;
}

static CUresult step(struct worker *w, struct link *link, const struct msg_gleamLinkAgain *m)
{
	CUresult r = m->finish ? finish(w, link) : input_add(w, link, m);

	if (!m->finish) {
		free(link->input);
		link->input = NULL;
		link->input_size = 0;
	}
	code_add(link, r);
	return r;
}

CUresult worker_do_gleamLinkAdd(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkAdd *m)
{
	const struct msg_gleamLinkAgain again = {
		.link = m->link, .type = m->type, .total_size = m->total_size, .name = m->name, .options = m->options,
		.options_size = m->options_size,
	};
	struct object *o = link_at(w, m->link);
	CUresult r;

	if (!o || !o->own)
		return CUDA_ERROR_INVALID_HANDLE;
	r = step(w, o->own, &again);
	step_keep(w, cmd, &again);
	return link_answer(w, cmd, o->own, &m->answer, r);
}

CUresult worker_do_gleamLinkComplete(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkComplete *m)
{
	const struct msg_gleamLinkAgain again = { .link = m->link, .finish = 1, .name = "" };
	struct object *o = link_at(w, m->link);
	CUresult r;

	if (!o || !o->own)
		return CUDA_ERROR_INVALID_HANDLE;
	r = step(w, o->own, &again);
	step_keep(w, cmd, &again);
	return link_answer(w, cmd, o->own, &m->answer, r);
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
	keep_link_gone(w, m->link);
	return CUDA_SUCCESS;
}

/* ---- moves ---- */

void link_unkept(struct worker *w, uint64_t handle)
{
	struct object *o = link_at(w, handle);
	struct link *link = o ? o->own : NULL;

	if (link)
		link->unkept = true;
}

static void unkept_find(void *arg, uint64_t handle, struct object *o)
{
	const struct link *link = o->own;

	*(bool *)arg |= link && link->unkept;
}

const char *links_trouble(struct worker *w)
{
	bool unkept = false;

	object_each(w->tables, OBJECT_LINK, unkept_find, &unkept);
	return unkept ? "it is linking more than can be remembered (cuLinkAddData); it can move when it has done" : NULL;
}

static void link_sum(const struct link *link, struct msg_gleamMoveLink *m)
{
	struct sum128 sum = link->image_size ? sum128_add(SUM128_SEED, link->image, link->image_size) : SUM128_SEED;

	m->codes = link->codes;
	m->image_size = link->image_size;
	m->sum_a = sum.a;
	m->sum_b = sum.b;
}

static void link_say(void *arg, uint64_t handle, struct object *o)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	struct msg_gleamMoveLink m = { .link = handle };

	link_sum(o->own, &m);
	msg_gleamMoveLink_put(&out, &m);
	move_say(arg, OP_gleamMoveLink, o->ctx, false, payload, (uint32_t)out.at);
}

void links_say(struct worker *w)
{
	object_each(w->tables, OBJECT_LINK, link_say, w);
}

CUresult worker_do_gleamLinkAgain(struct worker *w, struct cmd *cmd, const struct msg_gleamLinkAgain *m)
{
	struct object *o = link_at(w, m->link);

	if (!w->moving)
		return CMD_BROKEN;
	if (!o || !o->own)
		return CUDA_ERROR_INVALID_HANDLE;
	/* What failed there fails here: that is compared at the end. */
	step(w, o->own, m);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveLink(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveLink *m)
{
	struct object *o = link_at(w, m->link);
	struct msg_gleamMoveLink ours;

	if (!w->moving)
		return CMD_BROKEN;
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	link_sum(o->own, &ours);
	if (ours.codes != m->codes || ours.image_size != m->image_size || ours.sum_a != m->sum_a || ours.sum_b != m->sum_b)
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_INVALID_IMAGE, "what it is linking (cuLinkCreate) comes out otherwise there");
	return CUDA_SUCCESS;
}
