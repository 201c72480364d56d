// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays, mipmapped arrays, and copies of their bytes. What is made was checked by the client and is checked by the
 * driver. Executor thread.
 *
 * A level's object has own set, to what the driver calls the mipmapped array: it is forgotten with that, not destroyed.
 */
#include <stdlib.h>

#include "broker/worker/box.h"
#include "broker/worker/copy.h"
#include "broker/worker/fault.h"
#include "broker/worker/state.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "broker/worker/peer.h"
#include "gen/worker_bodies.h"

CUresult worker_do_gleamArrayCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamArrayCreate *m)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = m->width, .Height = m->height, .Depth = m->depth,
					 .Format = (CUarray_format)m->format, .NumChannels = m->channels,
					 .Flags = m->flags };
	CUarray array;
	CUresult r = w->drv.cuArray3DCreate_v2(&array, &desc);

	if (r != CUDA_SUCCESS)
		return r;
	if (object_add(w, OBJECT_ARRAY, m->array, array))
		return CUDA_SUCCESS;
	w->drv.cuArrayDestroy(array);
	return CMD_BROKEN;
}

struct levels {
	struct worker *w;
	void *mipmap;
};

static void level_forget(void *arg, uint64_t handle, struct object *o)
{
	const struct levels *levels = arg;

	if (o->own == levels->mipmap)
		object_erase(levels->w->tables, handle);
}

/*
 * The driver may wait for the context's work before it frees an array, and that work may wait for a host function whose
 * end only this thread can hear of: as when a module is unloaded, the work is waited for here first, and the object
 * stays in its table until then.
 */
static void end_now(struct worker *w, struct join *join)
{
	uint64_t handle = join->a;
	enum object_type type = handle_type(handle);
	struct object *o = object_find(w->tables, type, handle);
	struct context *c = o && o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL;
	CUresult r;

	if (o && host_calls_wait(w, c, join))
		return;
	if (o) {
		struct levels levels = { .w = w, .mipmap = o->driver };

		r = context_use(w, c);
		if (type == OBJECT_MIPMAP)
			object_each(w->tables, OBJECT_ARRAY, level_forget, &levels);
		object_remove(w, handle);
		if (r == CUDA_SUCCESS)
			r = type == OBJECT_MIPMAP ? w->drv.cuMipmappedArrayDestroy(levels.mipmap) :
						    w->drv.cuArrayDestroy(levels.mipmap);
		if (r != CUDA_SUCCESS)
			fault_latch(w, join->hdr.ctx, r, join->hdr.op, join->hdr.seq);
	}
	free(join);
}

static CUresult end(struct worker *w, struct cmd *cmd, enum object_type type, uint64_t handle)
{
	struct object *o = object_find(w->tables, type, handle);
	struct join *join;

	/* Its context may have ended before. */
	if (!o)
		return CUDA_SUCCESS;
	if (o->own)
		return CMD_BROKEN;
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	join->done = end_now;
	join->hdr = *cmd->hdr;
	join->a = handle;
	streams_join(w, o->ctx < SESSION_CONTEXTS ? &w->contexts[o->ctx] : NULL, join);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamArrayEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamArrayEnd *m)
{
	return end(w, cmd, OBJECT_ARRAY, m->array);
}

CUresult worker_do_gleamMipmapEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamMipmapEnd *m)
{
	return end(w, cmd, OBJECT_MIPMAP, m->mipmap);
}

CUresult worker_do_gleamMipmapCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamMipmapCreate *m)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = m->width, .Height = m->height, .Depth = m->depth,
					 .Format = (CUarray_format)m->format, .NumChannels = m->channels,
					 .Flags = m->flags };
	CUmipmappedArray mipmap;
	CUresult r = w->drv.cuMipmappedArrayCreate(&mipmap, &desc, m->levels);

	if (r != CUDA_SUCCESS)
		return r;
	if (object_add(w, OBJECT_MIPMAP, m->mipmap, mipmap))
		return CUDA_SUCCESS;
	w->drv.cuMipmappedArrayDestroy(mipmap);
	return CMD_BROKEN;
}

CUresult worker_do_gleamMipmapLevel(struct worker *w, struct cmd *cmd, const struct msg_gleamMipmapLevel *m)
{
	void *mipmap;
	CUarray array;
	CUresult r;

	if (!object_get(w, OBJECT_MIPMAP, m->mipmap, false, &mipmap))
		return CUDA_ERROR_INVALID_HANDLE;
	r = w->drv.cuMipmappedArrayGetLevel(&array, mipmap, m->level);
	if (r != CUDA_SUCCESS)
		return r;
	if (!object_add(w, OBJECT_ARRAY, m->array, array))
		return CMD_BROKEN;
	object_find(w->tables, OBJECT_ARRAY, m->array)->own = mipmap;
	return CUDA_SUCCESS;
}

/* ---- copies ---- */

/* The bytes of a box; 0 where that is not one that a piece can hold. */
static uint32_t box_size(uint64_t width, uint64_t rows, uint64_t depth)
{
	if (!width || !rows || !depth || width > SESSION_CELL_SIZE || rows > SESSION_CELL_SIZE / width ||
	    depth > SESSION_CELL_SIZE / (width * rows))
		return 0;
	return (uint32_t)(width * rows * depth);
}

CUresult worker_do_gleamArrayUp(struct worker *w, struct cmd *cmd, const struct msg_gleamArrayUp *m)
{
	CUDA_MEMCPY3D copy = {
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstXInBytes = m->x, .dstY = m->y, .dstZ = m->z,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = m->depth,
	};
	void *array;

	if (box_size(m->width, m->rows, m->depth) != m->data.size)
		return CMD_BROKEN;
	if (!object_get(w, OBJECT_ARRAY, m->array, false, &array))
		return CUDA_ERROR_INVALID_HANDLE;
	copy.dstArray = array;
	return copy_box_up(w, cmd, &m->data, &copy);
}

CUresult worker_do_gleamArrayDown(struct worker *w, struct cmd *cmd, const struct msg_gleamArrayDown *m)
{
	CUDA_MEMCPY3D copy = {
		.srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcXInBytes = m->x, .srcY = m->y, .srcZ = m->z,
		.WidthInBytes = m->width, .Height = m->rows, .Depth = m->depth,
	};
	uint32_t size = box_size(m->width, m->rows, m->depth);
	void *array;

	if (!size || size > m->cells.size)
		return CMD_BROKEN;
	if (!object_get(w, OBJECT_ARRAY, m->array, false, &array))
		return CUDA_ERROR_INVALID_HANDLE;
	copy.srcArray = array;
	return copy_box_down(w, cmd, &m->cells, size, &copy);
}

CUresult worker_do_gleamArrayCopy(struct worker *w, struct cmd *cmd, const struct msg_gleamArrayCopy *m)
{
	CUDA_MEMCPY3D copy = BOX_OF(m);

	if (!box_arrays(w, m->src_array, m->dst_array, &copy))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!copy.srcArray)
		peer_copies(w, cmd, m->src);
	if (!copy.dstArray)
		peer_copies(w, cmd, m->dst);
	return w->drv.cuMemcpy3DAsync_v2(&copy, cmd->stream);
}
