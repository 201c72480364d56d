/* SPDX-License-Identifier: Apache-2.0 */
/* First uses. Executor thread; see touch.h. */
#include "broker/worker/touch.h"

#include <string.h>

#include "broker/worker/keep.h"
#include "broker/worker/note.h"
#include "broker/worker/variable.h"
#include "broker/worker/verdict_make.h"
#include "gen/worker_bodies.h"

/* Commands that are about a function: where their message has its handle (the place and 1), and whether a driver may need its code for them. */
static const struct {
	uint8_t place;
	bool code;
} function_ops[OP_MAX] = {
	[OP_cuFuncSetAttribute] = { 1, false }, [OP_cuFuncGetAttribute] = { 1, false }, [OP_cuKernelSetAttribute] = { 1, false },
	[OP_cuKernelGetAttribute] = { 1, false }, [OP_cuFuncSetCacheConfig] = { 1, false }, [OP_cuKernelSetCacheConfig] = { 1, false },
	[OP_cuFuncSetSharedMemConfig] = { 1, false }, [OP_cuOccupancyMaxActiveBlocksPerMultiprocessor] = { 1, true },
	[OP_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags] = { 1, true }, [OP_cuOccupancyAvailableDynamicSMemPerBlock] = { 1, true },
	[OP_cuOccupancyMaxPotentialClusterSize] = { 1, true }, [OP_cuOccupancyMaxActiveClusters] = { 1, true },
	[OP_gleamGraphKernel] = { 17, true },
};

void touch_function(struct worker *w, uint16_t ctx, uint64_t handle, struct object *o)
{
	if (o->touched & touch_bit(ctx))
		return;
	o->touched |= touch_bit(ctx);
	o->asked |= touch_bit(ctx);
	keep_touch(w, ctx, handle, TOUCH_FUNCTION, "");
}

static void touch_asked(struct worker *w, uint16_t ctx, uint64_t handle, struct object *o)
{
	if (o->asked & touch_bit(ctx))
		return;
	o->asked |= touch_bit(ctx);
	keep_touch(w, ctx, handle, TOUCH_ASKED, "");
}

void touch_frame(struct worker *w, const struct frame_hdr *hdr, const uint8_t *frame)
{
	size_t at = function_ops[hdr->op].place;
	struct object *o;
	uint64_t handle;

	if (!at || hdr->size < sizeof(*hdr) + at - 1 + sizeof(handle))
		return;
	memcpy(&handle, frame + sizeof(*hdr) + at - 1, sizeof(handle));
	o = object_find(w->tables, handle_type(handle) == OBJECT_KERNEL ? OBJECT_KERNEL : OBJECT_FUNCTION, handle);
	if (o && function_ops[hdr->op].code)
		touch_function(w, hdr->ctx, handle, o);
	else if (o)
		touch_asked(w, hdr->ctx, handle, o);
}

static void used_no_more(void *arg, uint64_t handle, struct object *o)
{
	uint64_t others = ~*(const uint64_t *)arg;

	o->used &= others;
	o->asked &= others;
	o->touched &= others;
}

void touch_closed(struct worker *w, uint16_t ctx)
{
	uint64_t bit = touch_bit(ctx);

	object_each(w->tables, OBJECT_KERNEL, used_no_more, &bit);
}

static CUresult function_load(struct worker *w, struct object *o, bool kernel)
{
	CUfunction function = o->driver;
	CUresult r = kernel ? w->drv.cuKernelGetFunction(&function, o->driver) : CUDA_SUCCESS;

	return r == CUDA_SUCCESS ? w->drv.cuFuncLoad(function) : r;
}

static CUresult function_ask(struct worker *w, struct object *o, bool kernel, uint32_t device)
{
	int value;

	return kernel ? w->drv.cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, o->driver, w->devices[device]) :
			w->drv.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, o->driver);
}

/*
 * What can't be used so is found where it matters: a variable when it is compared, a function when it is launched. So nothing fails here.
 */
CUresult worker_do_gleamMoveTouch(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveTouch *m)
{
	enum object_type type = handle_type(m->object);
	struct object *o = object_find(w->tables, type, m->object);
	bool of_function = m->what == TOUCH_FUNCTION || m->what == TOUCH_ASKED;
	uint32_t device = cmd->hdr->ctx < SESSION_CONTEXTS ? w->contexts[cmd->hdr->ctx].device : 0;
	uint64_t address = 0, size = 0;
	CUresult r = CUDA_SUCCESS;

	if (!w->moving || m->what > TOUCH_ASKED ||
	    (of_function ? type != OBJECT_FUNCTION && type != OBJECT_KERNEL : type != OBJECT_MODULE && type != OBJECT_LIBRARY))
		return CMD_BROKEN;
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	switch ((enum touch)m->what) {
	case TOUCH_FUNCTION:
		r = function_load(w, o, type == OBJECT_KERNEL);
		touch_function(w, cmd->hdr->ctx, m->object, o);
		break;
	case TOUCH_ALL:
		verdict_touch(w, m->object, device);
		keep_touch(w, cmd->hdr->ctx, m->object, TOUCH_ALL, "");
		break;
	case TOUCH_NAMED:
		r = verdict_function_touch(w, m->object, o->driver, m->name, device);
		keep_touch(w, cmd->hdr->ctx, m->object, TOUCH_NAMED, m->name);
		break;
	case TOUCH_VARIABLE:
		r = variable_find(w, m->object, m->name, &address, &size);
		keep_told(w, cmd->hdr->ctx, m->object, m->name, address, size);
		if (r == CUDA_SUCCESS && address != m->address)
			variables_in_known(w, m->name, m->address, address);
		break;
	case TOUCH_ASKED:
		r = function_ask(w, o, type == OBJECT_KERNEL, device);
		touch_asked(w, cmd->hdr->ctx, m->object, o);
		break;
	}
	if (r != CUDA_SUCCESS)
		note(w, "move: first use %u of %.100s: %d", m->what, m->name, (int)r);
	return CUDA_SUCCESS;
}
