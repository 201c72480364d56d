/* SPDX-License-Identifier: Apache-2.0 */
/* First uses. Executor thread; see touch.h. */
#include "broker/worker/touch.h"

#include <string.h>

#include "broker/worker/keep.h"
#include "broker/worker/note.h"
#include "broker/worker/variable.h"
#include "broker/worker/verdict_make.h"
#include "gen/worker_bodies.h"

/* Commands that a driver needs a function for, and where their message has its handle: the place and 1. */
static const uint8_t function_place[OP_MAX] = {
	[OP_cuFuncSetAttribute] = 1, [OP_cuFuncGetAttribute] = 1, [OP_cuKernelSetAttribute] = 1, [OP_cuKernelGetAttribute] = 1,
	[OP_cuFuncSetCacheConfig] = 1, [OP_cuKernelSetCacheConfig] = 1, [OP_cuFuncSetSharedMemConfig] = 1,
	[OP_cuOccupancyMaxActiveBlocksPerMultiprocessor] = 1, [OP_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags] = 1,
	[OP_cuOccupancyAvailableDynamicSMemPerBlock] = 1, [OP_cuOccupancyMaxPotentialClusterSize] = 1,
	[OP_cuOccupancyMaxActiveClusters] = 1, [OP_gleamGraphKernel] = 17,
};

void touch_function(struct worker *w, uint16_t ctx, uint64_t handle, struct object *o)
{
	if (o->touched)
		return;
	o->touched = true;
	keep_touch(w, ctx, handle, TOUCH_FUNCTION, "");
}

void touch_frame(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	size_t at = function_place[hdr->op];
	struct object *o;
	uint64_t handle;

	if (!at || hdr->size < sizeof(*hdr) + at - 1 + sizeof(handle))
		return;
	memcpy(&handle, frame + sizeof(*hdr) + at - 1, sizeof(handle));
	o = object_find(w->tables, handle_type(handle) == OBJECT_KERNEL ? OBJECT_KERNEL : OBJECT_FUNCTION, handle);
	if (o)
		touch_function(w, hdr->ctx, handle, o);
}

static CUresult function_load(struct worker *w, struct object *o, bool kernel)
{
	CUfunction function = o->driver;
	CUresult r = kernel ? w->drv.cuKernelGetFunction(&function, o->driver) : CUDA_SUCCESS;

	return r == CUDA_SUCCESS ? w->drv.cuFuncLoad(function) : r;
}

static CUresult named_load(struct worker *w, enum object_type type, struct object *o, const char *name)
{
	CUfunction function = NULL;
	CUkernel kernel;
	CUresult r = type == OBJECT_LIBRARY ? w->drv.cuLibraryGetKernel(&kernel, o->driver, name) :
					      w->drv.cuModuleGetFunction(&function, o->driver, name);

	if (r == CUDA_SUCCESS && type == OBJECT_LIBRARY)
		r = w->drv.cuKernelGetFunction(&function, kernel);
	return r == CUDA_SUCCESS ? w->drv.cuFuncLoad(function) : r;
}

/*
 * What can't be used so is found where it matters: a variable when it is compared, a function when it is launched. So nothing fails here.
 */
CUresult worker_do_gleamMoveTouch(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveTouch *m)
{
	enum object_type type = handle_type(m->object);
	struct object *o = object_find(w->tables, type, m->object);
	uint64_t address = 0, size = 0;
	CUresult r = CUDA_SUCCESS;

	if (!w->moving || m->what > TOUCH_VARIABLE ||
	    (m->what == TOUCH_FUNCTION ? type != OBJECT_FUNCTION && type != OBJECT_KERNEL : type != OBJECT_MODULE && type != OBJECT_LIBRARY))
		return CMD_BROKEN;
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	switch ((enum touch)m->what) {
	case TOUCH_FUNCTION:
		r = function_load(w, o, type == OBJECT_KERNEL);
		touch_function(w, cmd->hdr->ctx, m->object, o);
		break;
	case TOUCH_ALL:
		verdict_touch(w, m->object, cmd->hdr->ctx < SESSION_CONTEXTS ? w->contexts[cmd->hdr->ctx].device : 0);
		keep_touch(w, cmd->hdr->ctx, m->object, TOUCH_ALL, "");
		break;
	case TOUCH_NAMED:
		r = named_load(w, type, o, m->name);
		keep_touch(w, cmd->hdr->ctx, m->object, TOUCH_NAMED, m->name);
		break;
	case TOUCH_VARIABLE:
		r = variable_find(w, m->object, m->name, &address, &size);
		keep_told(w, cmd->hdr->ctx, m->object, m->name, address, size);
		if (r == CUDA_SUCCESS && address != m->address)
			variables_in_known(w, m->name, m->address, address);
		break;
	}
	if (r != CUDA_SUCCESS)
		note(w, "move: first use %u of %.100s: %d", m->what, m->name, (int)r);
	return CUDA_SUCCESS;
}
