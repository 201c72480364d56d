/* SPDX-License-Identifier: Apache-2.0 */
/* A session arrives. Executor thread; see move_in.h. */
#include "broker/worker/move_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/context.h"
#include "broker/worker/device.h"
#include "broker/worker/host.h"
#include "broker/worker/move_out.h"
#include "broker/worker/note.h"
#include "broker/worker/number.h"
#include "broker/worker/pages.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/variable.h"
#include "broker/worker/vmm.h"
#include "gen/worker_bodies.h"

void move_in_failed(struct worker *w, uint16_t op, CUresult code, const char *why)
{
	if (w->moving_failed[0]) {
		complain("move: besides: %s", why ? why : op_info[op].name);
		return;
	}
	if (why)
		snprintf(w->moving_failed, sizeof(w->moving_failed), "%s", why);
	else if (code == CUDA_ERROR_OUT_OF_MEMORY)
		snprintf(w->moving_failed, sizeof(w->moving_failed),
			 "its GPU has too little free memory (%s); free some there, or name another server or GPU", op_info[op].name);
	else
		snprintf(w->moving_failed, sizeof(w->moving_failed), "%s gives %d there", op_info[op].name, (int)code);
	note(w, "move: %s", w->moving_failed);
	/* At once, before a lot of bytes has come for nothing. */
	post_notice(w, NOTICE_MOVE, 0, CTX_NONE, w->moving_failed, (uint32_t)strlen(w->moving_failed) + 1);
}

void move_device_put(struct worker *w, uint32_t index, struct writer *out)
{
	const struct snapshot_device *d = &w->snapshot->devices[index];

	put_u32(out, index);
	put_str(out, d->name);
	put_u64(out, d->granularity);
	for (int i = 0; i < SNAPSHOT_ATTRIBUTES; i++) {
		/* Where it sits: bus, device, domain; and NUMA nodes. */
		bool place = i == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID || i == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ||
			     i == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID || i == CU_DEVICE_ATTRIBUTE_NUMA_CONFIG ||
			     i == CU_DEVICE_ATTRIBUTE_NUMA_ID || i == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID ||
			     i == CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID;

		put_i32(out, place ? 0 : d->attributes[i]);
	}
}

void move_in_settle(struct worker *w)
{
	for (uint32_t i = 0; i < w->device_count; i++)
		if (w->own[i].open && context_use(w, &w->own[i]) == CUDA_SUCCESS)
			w->drv.cuCtxSynchronize();
}

CUresult worker_do_gleamMoveFill(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveFill *m)
{
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveBegin(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveBegin *m,
				  struct ans_gleamMoveBegin *a)
{
	static char reason[256];
	uint8_t devices[16384] __attribute__((aligned(8)));
	struct writer list = writer_on(devices, sizeof(devices));
	uint64_t all = w->device_count < 64 ? (1ull << w->device_count) - 1 : ~0ull;

	a->reason = reason;
	reason[0] = '\0';
	if (w->seq || w->moving)
		return CMD_BROKEN; /* it is somebody already */
	if (m->ordinals & ~all) {
		snprintf(reason, sizeof(reason), "it has fewer GPUs than the program sees");
	} else if (w->snapshot->driver_version != m->driver) {
		snprintf(reason, sizeof(reason), "its driver is of version %u, and the program has begun with %u: name a server with the same",
			 w->snapshot->driver_version, m->driver);
	} else {
		for (uint32_t i = 0; i < w->device_count; i++)
			if (m->ordinals & 1ull << i)
				move_device_put(w, i, &list);
		if (list.at != m->devices_size || memcmp(devices, m->devices, list.at) != 0)
			snprintf(reason, sizeof(reason), "its GPU (%.100s) isn't like the one that the program has begun with: name a server with the same model (gleamctl servers)",
				 w->snapshot->devices[0].name);
	}
	if (reason[0]) {
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_INVALID_DEVICE, reason);
	} else if (m->first > DEVICES_MAX - w->device_count || (m->first && ranges_move(w, m->first))) {
		snprintf(reason, sizeof(reason), "its driver has no room at the program's addresses");
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_OUT_OF_MEMORY, reason);
	} else {
		w->first = m->first;
	}
	a->reason_size = (uint32_t)strlen(reason) + 1;
	w->ordinals = m->ordinals;
	w->moving = true;
	/* Its client is reached through the node from here on. */
	pages_stop(w);
	pthread_mutex_lock(&w->lock);
	w->up_tail = w->up_seen = MOVE_UP_START;
	pthread_mutex_unlock(&w->lock);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveBytes(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveBytes *m)
{
	uint64_t start = w->settings.range_device;
	uint64_t device = (m->address - start) / w->settings.range_size;
	uint64_t size = m->zeros ? m->zeros : m->data_size;
	CUresult r;

	if (!w->moving)
		return CMD_BROKEN;
	variables_in_doubt(w, cmd->hdr->op);
	if (!size || w->moving_failed[0])
		return CUDA_SUCCESS;
	if (m->address < start || device >= w->device_count)
		return host_contents_take(w, m->address, m->data, size, m->zeros != 0);
	r = context_use(w, context_own(w, (uint32_t)device));
	if (r != CUDA_SUCCESS)
		return r;
	return m->zeros ? w->drv.cuMemsetD8_v2(m->address, 0, size) : w->drv.cuMemcpyHtoD_v2(m->address, m->data, size);
}

/* The last of all: commands of a context that has failed are skipped. Its client has heard of it from the worker that it leaves. */
CUresult worker_do_gleamMoveLatch(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveLatch *m)
{
	struct context *c = m->index < SESSION_CONTEXTS ? &w->contexts[m->index] : NULL;

	if (!w->moving || !c || !m->code || m->op >= OP_MAX)
		return CMD_BROKEN;
	if (!c->open)
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&w->lock);
	c->latched_op = (uint16_t)m->op;
	c->latched_seq = m->sequence;
	__atomic_store_n(&c->latched, (CUresult)m->code, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&w->lock);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveEnd(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveEnd *m, struct ans_gleamMoveEnd *a)
{
	CUresult r = CUDA_SUCCESS;

	if (!w->moving)
		return CMD_BROKEN;
	for (uint32_t i = 0; i < SESSION_CONTEXTS && r == CUDA_SUCCESS; i++) {
		if (!w->contexts[i].open)
			continue;
		r = context_use(w, &w->contexts[i]);
		if (r == CUDA_SUCCESS)
			r = w->drv.cuCtxSynchronize();
	}
	if (r != CUDA_SUCCESS)
		move_in_failed(w, cmd->hdr->op, r, NULL);
	variables_in_end(w, cmd->hdr->op);
	a->reason = w->moving_failed;
	a->reason_size = (uint32_t)strlen(w->moving_failed) + 1;
	if (w->moving_failed[0])
		return CUDA_SUCCESS;
	numbers_end(w);
	vmms_window_close(w);
	/* From here on this is the client's worker. */
	streams_flush(w);
	w->moving = false;
	w->seq = m->sequence;
	pthread_mutex_lock(&w->lock);
	w->up_tail = w->up_seen = m->up;
	/* Nothing comes aside any more: the broker has seen to that before it asked. */
	for (uint32_t i = 0; i < SESSION_GRANULES; i++)
		__atomic_store_n(shm_landed(&w->shm, i), 0, __ATOMIC_RELAXED);
	memset(w->up_consumed, 0, sizeof(w->up_consumed));
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_lock(&w->post_lock);
	w->landings = w->landings_told = m->landings;
	pthread_mutex_unlock(&w->post_lock);
	return CUDA_SUCCESS;
}
