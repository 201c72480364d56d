/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the client and device memory. Executor thread; see copy.h.
 *
 * Small bytes go through page-locked staging. Bulk goes straight between GPU and session memory where the driver has
 * registered it; otherwise through staging too, and an upload parks its stream until its bytes have landed.
 */
#include "broker/worker/copy.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/completion.h"
#include "broker/worker/note.h"
#include "broker/worker/origin.h"
#include "broker/worker/peer.h"
#include "broker/worker/pinned.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

/* ---- pieces of the up arena ---- */

static uint64_t piece_end(const struct bulk_ref *ref)
{
	return ref->cookie + ((ref->size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1));
}

bool copy_piece_arrived(struct worker *w, const struct bulk_ref *ref)
{
	uint64_t end = piece_end(ref);
	bool sound = true;

	pthread_mutex_lock(&w->lock);
	if (ref->cookie > UINT64_MAX - SESSION_UP_SIZE || end > w->up_tail + SESSION_UP_SIZE ||
	    ref->cookie + SESSION_UP_SIZE < w->up_seen)
		sound = false;
	if (sound && end > w->up_seen) {
		/* A piece does not wrap: what was left at the end is passed over. So is the rest of a lap when nothing is in the arena. */
		bool gap = ref->offset == 0 && ref->cookie > w->up_seen;

		if (gap && w->up_tail == w->up_seen) {
			/* The client counts on that at once. */
			w->up_tail = ref->cookie;
			__atomic_store_n(&w->header->up_tail, w->up_tail, __ATOMIC_RELEASE);
		} else if (gap) {
			for (uint64_t g = w->up_seen / SESSION_GRANULE; g < ref->cookie / SESSION_GRANULE; g++)
				w->up_consumed[g % SESSION_GRANULES / 64] |= 1ull << g % 64;
		}
		w->up_seen = end;
	}
	pthread_mutex_unlock(&w->lock);
	return sound;
}

bool copy_piece_landed(const struct worker *w, const struct bulk_ref *ref)
{
	/* Pairs with the release of whoever stored the bytes (broker/proto/progress.h). */
	return __atomic_load_n(shm_landed(&w->shm, landed_word(ref->offset)), __ATOMIC_ACQUIRE) == landed_value(ref->cookie);
}

/* A piece that nobody wants any more, and whose bytes are still on their way. */
struct unwanted {
	struct unwanted *next;
	struct frame_hdr hdr;
	struct bulk_ref bulk;
};

void copy_consumed(struct worker *w, struct cmd *cmd)
{
	struct unwanted *u = NULL;

	cmd->bulk_taken = true;
	/* Room that is given back before its bytes came could be overwritten by them when it is used again. */
	if (!copy_piece_landed(w, &cmd->bulk))
		u = malloc(sizeof(*u));
	if (!u) {
		completion_consume(w, cmd->hdr, &cmd->bulk);
		return;
	}
	*u = (struct unwanted){ .next = w->unwanted, .hdr = *cmd->hdr, .bulk = cmd->bulk };
	w->unwanted = u;
}

bool copy_look(struct worker *w)
{
	bool any = false;

	for (struct unwanted **link = &w->unwanted; *link;) {
		struct unwanted *u = *link;

		if (!copy_piece_landed(w, &u->bulk)) {
			link = &u->next;
			continue;
		}
		completion_consume(w, &u->hdr, &u->bulk);
		*link = u->next;
		free(u);
		any = true;
	}
	return any;
}

void copy_stop(struct worker *w)
{
	while (w->unwanted) {
		struct unwanted *next = w->unwanted->next;

		free(w->unwanted);
		w->unwanted = next;
	}
}

/* ---- up ---- */

CUresult worker_do_gleamCopyUp(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyUp *m)
{
	struct staging_block *block;
	struct wait *wait;
	CUresult r;

	if (!m->data_size)
		return CUDA_SUCCESS;
	peer_copies(w, cmd, m->dst);
	block = staging_take(w, m->data_size);
	if (!block)
		return CMD_PARK;
	wait = wait_new(w, WAIT_STAGING, cmd->hdr);
	if (!wait) {
		staging_give(w, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(block->bytes, m->data, m->data_size);
	block->next = NULL;
	wait->staging = block;
	r = w->drv.cuMemcpyHtoDAsync_v2(m->dst, block->bytes, m->data_size, cmd->stream);
	/* Also after a failure: whether the driver still reads it is not known before the stream has passed. */
	stream_wait(w, cmd->own, wait);
	if (r != CUDA_SUCCESS)
		cmd->write_now = true;
	return r;
}

/* Without the GPU's own eyes on the arena: the bytes must be there, and leave it here. */
static CUresult up_staged(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyUpBulk *m)
{
	struct staging_block *block;
	struct wait *wait;
	CUresult r;

	if (!copy_piece_landed(w, &m->data))
		return CMD_PARK;
	block = staging_take(w, m->data.size);
	if (!block)
		return CMD_PARK;
	wait = wait_new(w, WAIT_STAGING, cmd->hdr);
	if (!wait) {
		staging_give(w, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memcpy(block->bytes, shm_up(&w->shm) + m->data.offset, m->data.size);
	copy_consumed(w, cmd);
	block->next = NULL;
	wait->staging = block;
	r = w->drv.cuMemcpyHtoDAsync_v2(m->dst, block->bytes, m->data.size, cmd->stream);
	cmd->write_now = true;
	stream_wait(w, cmd->own, wait);
	return r;
}

/* The stream stops until the piece is there. */
static CUresult wait_landed(struct worker *w, struct cmd *cmd, const struct bulk_ref *ref)
{
	if (copy_piece_landed(w, ref))
		return CUDA_SUCCESS;
	cmd->commands++;
	return w->drv.cuStreamWaitValue32_v2(cmd->stream, w->landed_at + landed_word(ref->offset) * sizeof(uint32_t),
					     landed_value(ref->cookie), CU_STREAM_WAIT_VALUE_EQ);
}

CUresult worker_do_gleamCopyUpBulk(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyUpBulk *m)
{
	struct wait *wait;
	CUresult r;

	origin_note(w, m->dst, &m->data);
	if (!w->arenas_mapped) {
		peer_copies(w, cmd, m->dst);
		return up_staged(w, cmd, m);
	}
	wait = wait_new(w, WAIT_CONSUMED, cmd->hdr);
	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wait->bulk = m->data;
	peer_copies(w, cmd, m->dst);
	r = wait_landed(w, cmd, &m->data);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemcpyHtoDAsync_v2(m->dst, shm_up(&w->shm) + m->data.offset, m->data.size, cmd->stream);
	cmd->write_now = true;
	cmd->bulk_taken = true;
	stream_wait(w, cmd->own, wait);
	return r;
}

/* ---- down ---- */

CUresult worker_do_gleamCopyDown(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDown *m,
				 struct ans_gleamCopyDown *a)
{
	struct staging_block *block;
	struct wait *wait;
	CUresult r;

	if (m->size > 4000)
		return CMD_BROKEN;
	if (!m->size)
		return CUDA_SUCCESS; /* @a is empty */
	peer_copies(w, cmd, m->src);
	block = staging_take(w, m->size);
	if (!block)
		return CMD_PARK;
	wait = wait_new(w, WAIT_REPLY, cmd->hdr);
	if (!wait) {
		staging_give(w, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = w->drv.cuMemcpyDtoHAsync_v2(block->bytes, m->src, m->size, cmd->stream);
	if (r != CUDA_SUCCESS) {
		/* Nothing was queued: arguments are refused before. */
		staging_give(w, block);
		wait_drop(w, wait);
		return r;
	}
	block->next = NULL;
	wait->staging = block;
	wait->size = m->size;
	cmd->write_now = true;
	stream_wait(w, cmd->own, wait);
	return CMD_LATER;
}

/* Blocks for @size bytes, linked; NULL if there are too few now. */
static struct staging_block *staging_take_run(struct worker *w, uint64_t size)
{
	struct staging_block *first = NULL;
	struct staging_block **link = &first;

	while (size) {
		struct staging_block *block = staging_take(w, size < STAGING_PIECE ? (uint32_t)size : STAGING_PIECE);

		if (!block) {
			while (first) {
				block = first->next;
				staging_give(w, first);
				first = block;
			}
			return NULL;
		}
		block->next = NULL;
		*link = block;
		link = &block->next;
		size -= size < block->size ? size : block->size;
	}
	return first;
}

static CUresult down(struct worker *w, struct cmd *cmd, enum wait_kind kind, uint64_t src, uint64_t size,
		     const struct bulk_ref *cells)
{
	struct wait *wait;
	CUresult r = CUDA_SUCCESS;

	if (size > cells->size || !size)
		return CMD_BROKEN;
	peer_copies(w, cmd, src);
	wait = wait_new(w, kind, cmd->hdr);
	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wait->bulk = (struct bulk_ref){ .offset = cells->offset, .size = (uint32_t)size, .cookie = cells->cookie };
	if (w->arenas_mapped) {
		r = w->drv.cuMemcpyDtoHAsync_v2(shm_down(&w->shm) + cells->offset, src, size, cmd->stream);
		if (r != CUDA_SUCCESS) {
			wait_drop(w, wait);
			return r;
		}
	} else {
		uint64_t at = 0;

		wait->staging = staging_take_run(w, size);
		if (!wait->staging) {
			wait_drop(w, wait);
			return CMD_PARK;
		}
		cmd->commands = 0;
		for (struct staging_block *b = wait->staging; b && r == CUDA_SUCCESS; b = b->next) {
			uint64_t part = size - at < b->size ? size - at : b->size;

			r = w->drv.cuMemcpyDtoHAsync_v2(b->bytes, src + at, part, cmd->stream);
			at += part;
			cmd->commands++;
		}
		if (r != CUDA_SUCCESS) {
			/* The first parts may be under way: the blocks come back when the stream has passed. */
			wait->kind = WAIT_STAGING;
			cmd->write_now = true;
			stream_wait(w, cmd->own, wait);
			return r;
		}
	}
	cmd->write_now = true;
	stream_wait(w, cmd->own, wait);
	return kind == WAIT_REPLY ? CMD_LATER : CUDA_SUCCESS;
}

CUresult worker_do_gleamCopyDownBulk(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDownBulk *m)
{
	return down(w, cmd, WAIT_REPLY, m->src, m->size, &m->cells);
}

CUresult worker_do_gleamCopyDownLate(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDownLate *m)
{
	return down(w, cmd, WAIT_LANDED, m->src, m->size, &m->cells);
}

CUresult worker_do_gleamCopyDev(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDev *m)
{
	CUcontext dst, src;

	if (!m->size)
		return CUDA_SUCCESS;
	if (peer_apart(w, m->dst, m->src, &dst, &src))
		return w->drv.cuMemcpyPeerAsync(m->dst, dst, m->src, src, m->size, cmd->stream);
	peer_copies(w, cmd, m->dst);
	peer_copies(w, cmd, m->src);
	return w->drv.cuMemcpyDtoDAsync_v2(m->dst, m->src, m->size, cmd->stream);
}

/* ---- rows ---- */

/* A piece of rows that lie one after the other. False: it is not of that size. */
static bool rows_fit(uint64_t width, uint64_t rows, uint64_t size)
{
	return width && rows && width <= size && rows <= size / width && width * rows == size;
}

CUresult copy_box_up(struct worker *w, struct cmd *cmd, const struct bulk_ref *data, CUDA_MEMCPY3D *copy)
{
	struct staging_block *block = NULL;
	struct wait *wait;
	CUresult r = CUDA_SUCCESS;

	if (!w->arenas_mapped) {
		if (!copy_piece_landed(w, data))
			return CMD_PARK;
		block = staging_take(w, data->size);
		if (!block)
			return CMD_PARK;
		block->next = NULL;
	}
	wait = wait_new(w, block ? WAIT_STAGING : WAIT_CONSUMED, cmd->hdr);
	if (!wait) {
		staging_give(w, block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	copy->srcMemoryType = CU_MEMORYTYPE_HOST;
	copy->srcPitch = copy->WidthInBytes;
	copy->srcHeight = copy->Height;
	if (block) {
		memcpy(block->bytes, shm_up(&w->shm) + data->offset, data->size);
		copy_consumed(w, cmd);
		wait->staging = block;
		copy->srcHost = block->bytes;
	} else {
		wait->bulk = *data;
		cmd->bulk_taken = true;
		copy->srcHost = shm_up(&w->shm) + data->offset;
		r = wait_landed(w, cmd, data);
	}
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemcpy3DAsync_v2(copy, cmd->stream);
	cmd->write_now = true;
	stream_wait(w, cmd->own, wait);
	return r;
}

CUresult copy_box_down(struct worker *w, struct cmd *cmd, const struct bulk_ref *cells, uint32_t size, CUDA_MEMCPY3D *copy)
{
	struct wait *wait = wait_new(w, WAIT_LANDED, cmd->hdr);
	CUresult r;

	if (!wait)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wait->bulk = (struct bulk_ref){ .offset = cells->offset, .size = size, .cookie = cells->cookie };
	copy->dstMemoryType = CU_MEMORYTYPE_HOST;
	copy->dstPitch = copy->WidthInBytes;
	copy->dstHeight = copy->Height;
	if (w->arenas_mapped) {
		copy->dstHost = shm_down(&w->shm) + cells->offset;
	} else {
		/* Rows do not go over the border between two blocks. */
		if (size <= STAGING_PIECE)
			wait->staging = staging_take(w, size);
		if (!wait->staging) {
			wait_drop(w, wait);
			return size <= STAGING_PIECE ? CMD_PARK : CUDA_ERROR_NOT_SUPPORTED;
		}
		wait->staging->next = NULL;
		copy->dstHost = wait->staging->bytes;
	}
	r = w->drv.cuMemcpy3DAsync_v2(copy, cmd->stream);
	if (r != CUDA_SUCCESS) {
		staging_give(w, wait->staging);
		wait_drop(w, wait);
		return r;
	}
	cmd->write_now = true;
	stream_wait(w, cmd->own, wait);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamCopyUp2D(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyUp2D *m)
{
	CUDA_MEMCPY3D copy = {
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = m->dst, .dstPitch = m->pitch, .dstHeight = m->rows,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = 1,
	};

	if (!rows_fit(m->width, m->rows, m->data.size))
		return CMD_BROKEN;
	peer_copies(w, cmd, m->dst);
	return copy_box_up(w, cmd, &m->data, &copy);
}

CUresult worker_do_gleamCopyDown2D(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDown2D *m)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = m->src, .srcPitch = m->pitch, .srcHeight = m->rows,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = 1,
	};

	if (!m->width || !m->rows || m->width > m->cells.size || m->rows > m->cells.size / m->width)
		return CMD_BROKEN;
	peer_copies(w, cmd, m->src);
	return copy_box_down(w, cmd, &m->cells, (uint32_t)(m->width * m->rows), &copy);
}

CUresult worker_do_gleamCopyDev2D(struct worker *w, struct cmd *cmd, const struct msg_gleamCopyDev2D *m)
{
	CUDA_MEMCPY2D copy = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = m->src, .srcPitch = m->src_pitch,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = m->dst, .dstPitch = m->dst_pitch,
		.WidthInBytes = m->width, .Height = m->rows,
	};

	if (!m->width || !m->rows)
		return CUDA_SUCCESS;
	peer_copies(w, cmd, m->dst);
	peer_copies(w, cmd, m->src);
	return w->drv.cuMemcpy2DAsync_v2(&copy, cmd->stream);
}
