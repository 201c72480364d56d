/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts by the client's index. Executor thread; see context.h.
 *
 * Device 0's primary context is also the worker's home: its page-locked memory belongs to it, so it stays retained. When
 * the client gives its primary context back, what lives in it is destroyed piece by piece; only a lost one is reset.
 */
#include "broker/worker/context.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/completion.h"
#include "broker/worker/device.h"
#include "broker/worker/fault.h"
#include "broker/worker/grant.h"
#include "broker/worker/graph.h"
#include "broker/worker/green.h"
#include "broker/worker/image.h"
#include "broker/worker/link.h"
#include "broker/worker/note.h"
#include "broker/worker/park.h"
#include "broker/worker/pinned.h"
#include "broker/worker/print.h"
#include "broker/worker/spare.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

/* Flags that change what a kernel may do; how a CPU thread waits is the client's own business. */
#define CONTEXT_FLAGS 0x10u /* CU_CTX_LMEM_RESIZE_TO_MAX */

struct context *context_own(struct worker *w, uint32_t index)
{
	struct context *c = &w->own[index];
	CUresult r;

	if (index >= w->device_count)
		return NULL;
	if (c->open)
		return c;
	r = w->drv.cuDevicePrimaryCtxRetain(&c->driver, w->devices[index]);
	if (r != CUDA_SUCCESS) {
		complain("a context of the worker's own on device %u: %d", index, (int)r);
		return NULL;
	}
	c->index = SESSION_CONTEXTS + index; /* no client's: failures are only logged */
	c->device = index;
	c->primary = true;
	c->open = true;
	return c;
}

/* What the driver has made has its place now; false: no memory, and nothing is there. */
static bool context_begin(struct worker *w, const struct context *with)
{
	struct context *c = &w->contexts[with->index];

	pthread_mutex_lock(&w->lock);
	*c = *with;
	pthread_mutex_unlock(&w->lock);
	c->legacy = stream_new(w, c, 0, NULL, true);
	print_begin(c->index, c->driver);
	if (c->legacy)
		return true;
	print_end(w, c->index, false);
	c->open = false;
	return false;
}

CUresult worker_do_gleamContextOpen(struct worker *w, struct cmd *cmd, const struct msg_gleamContextOpen *m)
{
	CUcontext driver;
	CUresult r;

	if (m->index >= SESSION_CONTEXTS || w->contexts[m->index].open)
		return CMD_BROKEN;
	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (m->primary) {
		r = w->drv.cuDevicePrimaryCtxRetain(&driver, w->devices[m->device]);
	} else {
		r = w->drv.cuCtxCreate_v2(&driver, m->flags & CONTEXT_FLAGS, w->devices[m->device]);
		w->current_known = false;
	}
	if (r != CUDA_SUCCESS)
		return r;
	if (context_begin(w, &(struct context){
				     .index = m->index, .open = true, .primary = m->primary != 0, .device = m->device, .driver = driver,
				     .home = driver == w->home,
			     }))
		return CUDA_SUCCESS;
	if (m->primary)
		w->drv.cuDevicePrimaryCtxRelease_v2(w->devices[m->device]);
	else
		w->drv.cuCtxDestroy_v2(driver);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult worker_do_gleamGreenOpen(struct worker *w, struct cmd *cmd, const struct msg_gleamGreenOpen *m)
{
	CUdevResource parts[RESOURCE_GROUPS];
	CUdevResourceDesc desc;
	CUcontext driver;
	CUgreenCtx green;
	CUresult r;

	if (m->index >= SESSION_CONTEXTS || w->contexts[m->index].open || m->parts_count > RESOURCE_GROUPS)
		return CMD_BROKEN;
	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	for (uint32_t i = 0; i < m->parts_count; i++) {
		const CUdevResource *part = resource_at(w, m->parts[i]);

		if (!part)
			return CUDA_ERROR_INVALID_VALUE;
		parts[i] = *part;
	}
	r = w->drv.cuDevResourceGenerateDesc(&desc, parts, m->parts_count);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuGreenCtxCreate(&green, desc, w->devices[m->device], CU_GREEN_CTX_DEFAULT_STREAM);
	if (r != CUDA_SUCCESS)
		return r;
	w->current_known = false;
	r = w->drv.cuCtxFromGreenCtx(&driver, green);
	if (r == CUDA_SUCCESS &&
	    !context_begin(w, &(struct context){ .index = m->index, .open = true, .device = m->device, .driver = driver, .green = green }))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS)
		w->drv.cuGreenCtxDestroy(green);
	return r;
}

/* ---- the end ---- */

struct ending {
	struct worker *w;
	struct context *c;
	bool piecewise; /* the driver's context goes on without its objects */
};

static void stream_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;
	struct stream *s = o->own;

	if (o->ctx != e->c->index)
		return;
	stream_bury(e->w, s, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if (e->piecewise)
		e->w->drv.cuStreamDestroy_v2(s->driver);
	stream_put(e->w, s);
	object_erase(e->w->tables, handle);
}

static void event_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	if (e->piecewise)
		e->w->drv.cuEventDestroy_v2(o->driver);
	event_put(e->w, o->own);
	object_erase(e->w->tables, handle);
}

static void module_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	if (e->piecewise)
		e->w->drv.cuModuleUnload(o->driver);
	image_own_free(o->own);
	object_erase(e->w->tables, handle);
}

static void array_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	/* Levels belong to what they are levels of. */
	if (e->piecewise && !o->own)
		e->w->drv.cuArrayDestroy(o->driver);
	object_erase(e->w->tables, handle);
}

static void mipmap_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	if (e->piecewise)
		e->w->drv.cuMipmappedArrayDestroy(o->driver);
	object_erase(e->w->tables, handle);
}

static void tex_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	if (e->piecewise)
		e->w->drv.cuTexObjectDestroy((CUtexObject)(uintptr_t)o->driver);
	object_erase(e->w->tables, handle);
}

static void surf_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	if (e->piecewise)
		e->w->drv.cuSurfObjectDestroy((CUsurfObject)(uintptr_t)o->driver);
	object_erase(e->w->tables, handle);
}

static void graph_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	graph_own_free(e->w, o->own, e->piecewise);
	object_erase(e->w->tables, handle);
}

static void link_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx != e->c->index)
		return;
	link_own_free(e->w, o->own, e->piecewise);
	object_erase(e->w->tables, handle);
}

/* Functions go with their modules, and objects that others own go with those. */
static void name_end(void *arg, uint64_t handle, struct object *o)
{
	struct ending *e = arg;

	if (o->ctx == e->c->index)
		object_erase(e->w->tables, handle);
}

static void objects_end(struct ending *e)
{
	struct object_table *t = e->w->tables;

	object_each(t, OBJECT_FUNCTION, name_end, e);
	object_each(t, OBJECT_LINK, link_end, e);
	object_each(t, OBJECT_GRAPHEXEC, graph_end, e);
	object_each(t, OBJECT_TEX, tex_end, e);
	object_each(t, OBJECT_SURF, surf_end, e);
	object_each(t, OBJECT_MODULE, module_end, e);
	object_each(t, OBJECT_MIPMAP, mipmap_end, e);
	object_each(t, OBJECT_ARRAY, array_end, e);
	object_each(t, OBJECT_EVENT, event_end, e);
	object_each(t, OBJECT_STREAM, stream_end, e);
}

/* The worker's memory was registered in the context that was reset. */
static CUresult home_again(struct worker *w)
{
	CUresult r;

	/* What the worker itself has in it. */
	grants_context_lost(w, 0);
	w->own[0].open = false;
	r = w->drv.cuDevicePrimaryCtxReset_v2(w->devices[0]);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuDevicePrimaryCtxRetain(&w->home, w->devices[0]);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuCtxSetCurrent(w->home);
	w->current_known = false;
	if (r == CUDA_SUCCESS && (staging_again(w) || device_arenas_again(w)))
		r = CUDA_ERROR_OPERATING_SYSTEM;
	if (r != CUDA_SUCCESS)
		complain("the device's primary context was lost and can't be made again: %d", (int)r);
	return r;
}

static void library_count(void *arg, uint64_t handle, struct object *o)
{
	uint32_t *count = arg;

	++*count;
}

/*
 * Libraries outlive a context, but not the contents of their variables in it: only a real reset brings back those that
 * the image has. It takes the worker's own memory along, so nobody else may be using that.
 */
static bool needs_reset(struct worker *w, const struct context *c)
{
	uint32_t libraries = 0;

	object_each(w->tables, OBJECT_LIBRARY, library_count, &libraries);
	if (!libraries)
		return false;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (w->contexts[i].open && &w->contexts[i] != c && w->contexts[i].device == c->device) {
			note(w, "context %u is reset beside others: variables of libraries keep their values", c->index);
			return false;
		}
	return true;
}

static CUresult context_close(struct worker *w, struct context *c)
{
	struct ending e = { .w = w, .c = c };
	bool lost;
	CUresult r;

	parked_drop(w, c, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	host_calls_release(w, c);
	streams_flush(w);
	r = context_use(w, c);
	pthread_mutex_lock(&w->lock);
	lost = c->faulted || fault_is_sticky(c->latched);
	pthread_mutex_unlock(&w->lock);
	e.piecewise = (c->primary || c->green) && !lost && r == CUDA_SUCCESS;

	/* Nobody may call the driver with it from here on. */
	stream_bury(w, c->legacy, 0);
	/* As natively, the end of a context waits for its work; the client synchronises first, so there is none as a rule. */
	if (!lost && r == CUDA_SUCCESS)
		w->drv.cuCtxSynchronize();
	print_end(w, c->index, !lost && r == CUDA_SUCCESS);
	spare_end(w, c, e.piecewise);
	objects_end(&e);
	stream_bury(w, c->legacy, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	stream_put(w, c->legacy);
	if (c->green) {
		w->drv.cuCtxSetCurrent(w->home);
		r = w->drv.cuGreenCtxDestroy(c->green);
	} else if (!c->primary) {
		r = w->drv.cuCtxDestroy_v2(c->driver);
	} else {
		r = w->drv.cuDevicePrimaryCtxRelease_v2(w->devices[c->device]);
		if (lost || needs_reset(w, c)) {
			if (c->home) {
				r = home_again(w);
			} else {
				grants_context_lost(w, c->device);
				w->own[c->device].open = false;
				w->drv.cuDevicePrimaryCtxReset_v2(w->devices[c->device]);
			}
		}
	}
	w->current_known = false;

	pthread_mutex_lock(&w->lock);
	for (struct stream *s = w->streams; s; s = s->next)
		if (s->context == c)
			s->context = NULL;
	c->open = false;
	c->legacy = NULL;
	__atomic_store_n(&c->latched, CUDA_SUCCESS, __ATOMIC_RELEASE);
	c->faulted = false;
	pthread_mutex_unlock(&w->lock);
	w->drv.cuCtxSetCurrent(w->home);
	return lost ? CUDA_SUCCESS : r;
}

CUresult worker_do_gleamContextClose(struct worker *w, struct cmd *cmd, const struct msg_gleamContextClose *m)
{
	if (m->index >= SESSION_CONTEXTS)
		return CMD_BROKEN;
	if (!w->contexts[m->index].open)
		return CUDA_ERROR_INVALID_CONTEXT;
	return context_close(w, &w->contexts[m->index]);
}

void contexts_close(struct worker *w)
{
	/* Parts before what they are parts of. */
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (w->contexts[i].open && w->contexts[i].green)
			context_close(w, &w->contexts[i]);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (w->contexts[i].open)
			context_close(w, &w->contexts[i]);
	for (uint32_t i = 0; i < w->device_count; i++)
		if (w->own[i].open) {
			w->drv.cuDevicePrimaryCtxRelease_v2(w->devices[i]);
			w->own[i].open = false;
		}
}
