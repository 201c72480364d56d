// SPDX-License-Identifier: Apache-2.0
/*
 * Access to the memory of another GPU. CUDA lets contexts into contexts; memory here belongs to devices, so a device's memory is
 * open to another device as long as some pair of their contexts, or some pool, asks for it. Any thread; see peer.h.
 */
#include "libgleamcuda/peer.h"

#include <pthread.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define WORDS (SESSION_CONTEXTS / 64)
static_assert(SESSION_CONTEXTS % 64 == 0, "a bit per context");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock: [context] may reach those of which it has the bit */
static uint64_t let[SESSION_CONTEXTS][WORDS];
/* guarded by lock: reasons why [device] reaches the memory of [owner], as the program counts them */
static uint32_t reasons[SNAPSHOT_DEVICES][SNAPSHOT_DEVICES];

bool peer_possible(const struct call *call, int device, int owner)
{
	const struct device *a = device_at(device), *b = device_at(owner);

	/* Of one server: nothing else is reached by a kernel. */
	return a && b && a != b && a->session == b->session &&
	       a->session->snapshot.p2p[a->node_device][b->node_device][CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] == 1;
}

/* The contexts are CTX_NONE where none asks. */
static CUresult peer_tell(struct call *call, int device, int owner, bool on, uint32_t index, uint32_t owner_index)
{
	struct msg_gleamPeer m = { .device = device_at(device)->node_device, .owner = device_at(owner)->node_device, .on = on,
				   .index = index, .owner_index = owner_index };
	CUresult result;

	/* A pool may be opened while a GPU of another server is current. */
	if (device_at(owner)->session != call->session)
		call_in(call, context_primary(owner));
	result = CALL_SEND(call, gleamPeer, &m);
	if (result)
		return result;
	return CUDA_SUCCESS;
}

/* True for the first reason, or when the last has gone. */
static bool reason_count(int device, int owner, bool on)
{
	bool turned;

	pthread_mutex_lock(&lock);
	if (on)
		turned = reasons[device][owner]++ == 0;
	else
		turned = reasons[device][owner] && --reasons[device][owner] == 0;
	pthread_mutex_unlock(&lock);
	return turned;
}

bool peer_reaches(int device, int owner)
{
	return device == owner || (device_at(device) && device_at(owner) &&
				   __atomic_load_n(&reasons[device][owner], __ATOMIC_RELAXED));
}

CUresult peer_device(struct call *call, int device, int owner, bool on)
{
	CUresult result;

	if (!reason_count(device, owner, on))
		return CUDA_SUCCESS;
	result = peer_tell(call, device, owner, on, CTX_NONE, CTX_NONE);
	if (result && on)
		reason_count(device, owner, false);
	return result;
}

/* The device whose memory @address is; that of the current context for anything else. */
static int device_at_address(const struct call *call, uint64_t address)
{
	struct range range;

	return range_find(address, &range) && range.device >= 0 ? range.device : call->context->device;
}

CUresult peer_copy_order(struct call *call, uint64_t dst, uint64_t src, bool after)
{
	struct context *current = call->context;
	int to, from;
	CUresult result = CUDA_SUCCESS;

	if (device_count() < 2)
		return CUDA_SUCCESS;
	to = device_at_address(call, dst);
	from = device_at_address(call, src);
	if (to == current->device && from == current->device)
		return CUDA_SUCCESS;
	for (uint32_t i = 0; i < SESSION_CONTEXTS && !after && !result; i++) {
		struct context *other = context_at(i);

		if (!other || other == current || (other->device != to && other->device != from) ||
		    !__atomic_load_n(&other->active, __ATOMIC_ACQUIRE))
			continue;
		call_in(call, other);
		result = context_wait(call);
	}
	call_in(call, current);
	return after ? context_wait(call) : result;
}

static bool let_in(uint32_t context, uint32_t owner)
{
	return let[context][owner / 64] >> owner % 64 & 1;
}

/* Sets or clears the bit; false if it was so already. */
static bool let_turn(uint32_t context, uint32_t owner, bool on)
{
	bool turned;

	pthread_mutex_lock(&lock);
	turned = let_in(context, owner) != on;
	if (turned)
		let[context][owner / 64] ^= 1ull << owner % 64;
	pthread_mutex_unlock(&lock);
	return turned;
}

/* The context to be let into, which lives. */
static CUresult peer_arg(CUcontext handle, struct context **peer_out)
{
	struct context *peer = context_find(handle);

	if (!peer || !__atomic_load_n(&peer->active, __ATOMIC_ACQUIRE))
		return CUDA_ERROR_INVALID_CONTEXT;
	*peer_out = peer;
	return CUDA_SUCCESS;
}

CUresult do_cuCtxEnablePeerAccess(struct call *call, CUcontext peerContext, unsigned int Flags)
{
	struct context *context = call->context, *peer;
	CUresult result;

	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = peer_arg(peerContext, &peer);
	if (result)
		return result;
	if (peer == context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!peer_possible(call, context->device, peer->device))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (!let_turn(context->index, peer->index, true))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	reason_count(context->device, peer->device, true);
	result = peer_tell(call, context->device, peer->device, true, context->index, peer->index);
	if (result) {
		reason_count(context->device, peer->device, false);
		let_turn(context->index, peer->index, false);
	}
	return result;
}

CUresult do_cuCtxDisablePeerAccess(struct call *call, CUcontext peerContext)
{
	struct context *context = call->context, *peer;
	CUresult result = peer_arg(peerContext, &peer);

	if (result)
		return result;
	/* What is under way may still use it. */
	if (let_in(context->index, peer->index)) {
		result = context_wait(call);
		if (result)
			return result;
	}
	if (!let_turn(context->index, peer->index, false))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	/* The memory stays open while others of the two devices' contexts need it. */
	if (!reason_count(context->device, peer->device, false))
		return CUDA_SUCCESS;
	return peer_tell(call, context->device, peer->device, false, context->index, peer->index);
}

void peer_context_closed(struct context *context)
{
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		struct context *other = context_at(i);

		/* Without a word to the worker: its context ends as well, and memory that stays open a while does no harm. */
		if (let_turn(context->index, i, false) && other)
			reason_count(context->device, other->device, false);
		if (let_turn(i, context->index, false) && other)
			reason_count(other->device, context->device, false);
	}
}
