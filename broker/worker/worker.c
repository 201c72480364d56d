/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker as a whole: its birth over a session memory, its end, and what the generated dispatch asks of it.
 * Main thread, then the executor (which is the same one).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/completion.h"
#include "broker/worker/context.h"
#include "broker/worker/copy.h"
#include "broker/worker/cost.h"
#include "broker/worker/device.h"
#include "broker/worker/grant.h"
#include "broker/worker/green.h"
#include "broker/worker/host.h"
#include "broker/worker/image.h"
#include "broker/worker/keep.h"
#include "broker/worker/move_out.h"
#include "broker/worker/note.h"
#include "broker/worker/number.h"
#include "broker/worker/origin.h"
#include "broker/worker/pages.h"
#include "broker/worker/pinned.h"
#include "broker/worker/share.h"
#include "broker/worker/start.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "broker/worker/variable.h"
#include "broker/worker/vmm.h"

/* ---- for the dispatch ---- */

const struct drv *worker_drv(const struct worker *w)
{
	return &w->drv;
}

bool object_get(struct worker *w, enum object_type type, uint64_t handle, bool null_ok, void **object_out)
{
	struct object *o;

	*object_out = NULL;
	if (handle == 0)
		return null_ok;
	if (type == OBJECT_STREAM && handle == WIRE_STREAM_LEGACY)
		return true;
	/* The driver takes a kernel wherever it takes a function. */
	if (type == OBJECT_FUNCTION && handle_type(handle) == OBJECT_KERNEL)
		type = OBJECT_KERNEL;
	o = object_find(w->tables, type, handle);
	if (!o)
		return false;
	*object_out = o->driver;
	return true;
}

bool object_add(struct worker *w, enum object_type type, uint64_t handle, void *driver)
{
	uint16_t ctx = w->cmd ? w->cmd->hdr->ctx : CTX_NONE;
	struct context *c = ctx < SESSION_CONTEXTS && w->contexts[ctx].open ? &w->contexts[ctx] : NULL;
	struct object *o = object_insert(w->tables, type, handle);
	unsigned int flags = 0;

	if (!o)
		return false;
	o->driver = driver;
	o->ctx = ctx;
	if (type == OBJECT_STREAM) {
		if (c && w->drv.cuStreamGetFlags(driver, &flags) == CUDA_SUCCESS)
			o->own = stream_new(w, c, handle, driver, !(flags & CU_STREAM_NON_BLOCKING));
	} else if (type == OBJECT_EVENT) {
		o->own = event_new(driver);
	} else {
		return true;
	}
	if (o->own)
		return true;
	object_erase(w->tables, handle);
	return false;
}

void object_remove(struct worker *w, uint64_t handle)
{
	enum object_type type = handle_type(handle);
	struct object *o = object_find(w->tables, type, handle);

	if (!o)
		return;
	switch (type) {
	case OBJECT_STREAM:
		stream_bury(w, o->own, 0);
		stream_put(w, o->own);
		break;
	case OBJECT_EVENT:
		event_put(w, o->own);
		break;
	case OBJECT_MODULE:
	case OBJECT_LIBRARY:
		image_own_free(o->own);
		keep_image_gone(w, handle);
		break;
	default:
		break;
	}
	object_erase(w->tables, handle);
}

/* ---- birth and end ---- */

int worker_start(struct worker *w, int session_fd, const uint8_t *protocol_hash, const char *driver, char *why, size_t size)
{
	int err;

	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->post_lock, NULL);
	if (!w->settings.grant_max)
		w->settings.grant_max = GRANT_BYTES_MAX;
	if (!w->settings.range_size) {
		w->settings.range_device = SPACE_DEVICE;
		w->settings.range_host = SPACE_HOST;
		w->settings.range_size = SPACE_SPAN;
	}
	w->frame = aligned_alloc(64, FRAME_SIZE_MAX);
	w->answer = aligned_alloc(64, FRAME_SIZE_MAX);
	w->direct_frame = aligned_alloc(64, FRAME_SIZE_MAX);
	w->params = aligned_alloc(LAUNCH_PARAMS_ALIGN, (LAUNCH_PARAMS_MAX + LAUNCH_PARAMS_ALIGN - 1) & ~(LAUNCH_PARAMS_ALIGN - 1));
	if (!w->frame || !w->answer || !w->direct_frame || !w->params)
		return -ENOMEM;
	err = shm_map(&w->shm, session_fd, protocol_hash);
	if (err) {
		snprintf(why, size, "session memory: %s", strerror(-err));
		return err;
	}
	w->header = shm_header(&w->shm);
	shm_ring_c2n(&w->shm, &w->c2n);
	shm_ring_n2c(&w->shm, &w->n2c);
	shm_ring_side_c2n(&w->shm, &w->side_c2n);
	shm_ring_side_n2c(&w->shm, &w->side_n2c);
	err = driver_open(w, driver, why, size);
	if (!err)
		cost_start(&w->drv);
	if (!err)
		err = devices_start(w, why, size);
	if (!err)
		err = ranges_reserve(w, why, size);
	if (err)
		return err;
	device_arenas_map(w);
	err = staging_start(w);
	if (err) {
		snprintf(why, size, "page-locked memory for the worker: %s", strerror(-err));
		return err;
	}
	err = completion_start(w);
	if (err)
		snprintf(why, size, "completion thread: %s", strerror(-err));
	return err;
}

/* Everything that waited ends, with the code that its stream was buried with. */
static void queues_end(struct worker *w)
{
	while (completion_look(w) || joins_run(w))
		;
	streams_flush(w);
	while (w->wait_pool) {
		struct wait *next = w->wait_pool->next;

		free(w->wait_pool);
		w->wait_pool = next;
	}
	host_calls_end(w);
}

void worker_stop(struct worker *w)
{
	completion_stop(w);
	shares_stop(w);
	move_stop(w);
	origins_free(w);
	keep_stop(w);
	variables_in_stop(w);
	numbers_end(w);
	if (w->staging) {
		contexts_close(w);
		resources_free(w);
		grants_stop(w);
		vmms_stop(w);
		host_ranges_stop(w);
		pages_stop(w);
	}
	images_stop(w);
	copy_stop(w);
	queues_end(w);
	if (w->staging)
		staging_stop(w);
	if (w->arenas_mapped) {
		w->drv.cuMemHostUnregister(w->shm.base + SESSION_AT_DOWN);
		w->drv.cuMemHostUnregister(w->shm.base + SESSION_AT_UP);
		w->drv.cuMemHostUnregister(w->shm.base + SESSION_AT_LANDED);
	}
	object_tables_free(w->tables);
	free(w->snapshot);
	free(w->frame);
	free(w->answer);
	free(w->direct_frame);
	free(w->params);
	free(w->overflow);
	shm_close(&w->shm);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->post_lock);
}
