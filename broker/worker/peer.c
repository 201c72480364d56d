/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access between the GPUs of this node. Pieces of device memory are mapped by us, so they are opened by cuMemSetAccess, those
 * that are mapped later included (grant.c); what the driver itself has allocated (variables of modules) by cuCtxEnablePeerAccess.
 * Executor thread; see peer.h.
 */
#include "broker/worker/peer.h"

#include "broker/worker/context.h"
#include "broker/worker/grant.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

/* P2P as the snapshot says: the driver is not asked for each copy. */
static bool reachable(const struct worker *w, uint32_t device, uint32_t owner)
{
	return w->snapshot->p2p[device][owner][CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] == 1;
}

static CUresult contexts_turn(struct worker *w, uint32_t index, uint32_t owner_index, bool on)
{
	struct context *c, *owner;
	CUresult r;

	if (index >= SESSION_CONTEXTS || owner_index >= SESSION_CONTEXTS)
		return CMD_BROKEN;
	c = &w->contexts[index];
	owner = &w->contexts[owner_index];
	if (!c->open || !owner->open)
		return CUDA_ERROR_INVALID_CONTEXT;
	r = context_use(w, c);
	if (r != CUDA_SUCCESS)
		return r;
	r = on ? w->drv.cuCtxEnablePeerAccess(owner->driver, 0) : w->drv.cuCtxDisablePeerAccess(owner->driver);
	/* Primary contexts live on here when the client has given them back: they may be as they are to be. */
	return r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED || r == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED ? CUDA_SUCCESS : r;
}

CUresult worker_do_gleamPeer(struct worker *w, struct cmd *cmd, const struct msg_gleamPeer *m)
{
	CUresult r = CUDA_SUCCESS;

	if (m->device >= w->device_count || m->owner >= w->device_count || m->device == m->owner ||
	    !(w->ordinals & 1ull << m->device) || !(w->ordinals & 1ull << m->owner))
		return CUDA_ERROR_INVALID_DEVICE;
	if (w->moving && m->on && !reachable(w, m->device, m->owner))
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
			       "its GPUs can't reach each other's memory, as those that the program uses do");
	if (m->index != CTX_NONE)
		r = contexts_turn(w, m->index, m->owner_index, m->on);
	if (r == CUDA_SUCCESS)
		r = grants_open(w, m->device, m->owner, m->on);
	return r;
}

/* The device whose range @address lies in; false for any other address. */
static bool device_of(const struct worker *w, uint64_t address, uint32_t *device_out)
{
	uint64_t device = (address - w->settings.range_device) / w->settings.range_size;

	if (address < w->settings.range_device || device >= w->device_count)
		return false;
	*device_out = (uint32_t)device;
	return true;
}

void peer_copies(struct worker *w, const struct cmd *cmd, uint64_t address)
{
	uint32_t device, owner;

	if (w->device_count < 2 || cmd->hdr->ctx >= SESSION_CONTEXTS || !device_of(w, address, &owner))
		return;
	device = w->contexts[cmd->hdr->ctx].device;
	if (device != owner && reachable(w, device, owner) && grants_open(w, device, owner, true) != CUDA_SUCCESS)
		note(w, "memory of device %u can't be opened to device %u for a copy", owner, device);
}

static CUcontext context_on(struct worker *w, uint32_t device)
{
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (w->contexts[i].open && w->contexts[i].device == device)
			return w->contexts[i].driver;
	return NULL;
}

bool peer_apart(struct worker *w, uint64_t dst, uint64_t src, CUcontext *dst_out, CUcontext *src_out)
{
	uint32_t a, b;

	if (w->device_count < 2 || !device_of(w, dst, &a) || !device_of(w, src, &b) || a == b || reachable(w, a, b))
		return false;
	*dst_out = context_on(w, a);
	*src_out = context_on(w, b);
	return *dst_out && *src_out;
}
