/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session begins with. Executor thread.
 */
#include "broker/worker/device.h"
#include "broker/worker/pages.h"
#include "broker/worker/post.h"
#include "gen/worker_bodies.h"

CUresult worker_do_gleamAsk(struct worker *w, struct cmd *cmd, const struct msg_gleamAsk *m, struct ans_gleamAsk *a)
{
	CUdevice device;
	int value = 0;
	CUresult result = w->drv.cuDeviceGet(&device, m->device);

	if (!result)
		result = w->drv.cuDeviceGetAttribute(&value, (CUdevice_attribute)m->attribute, device);
	a->value = value;
	return result;
}

CUresult worker_do_gleamAttach(struct worker *w, struct cmd *cmd, const struct msg_gleamAttach *m)
{
	uint64_t all = w->device_count < 64 ? (1ull << w->device_count) - 1 : ~0ull;
	uint64_t ordinals = m->ordinals ? m->ordinals & all : all;
	uint8_t payload[8] __attribute__((aligned(8)));
	struct writer out = writer_on(shm_down(&w->shm) + m->snapshot.offset, m->snapshot.size);

	/*
	 * Once, before anything is answered: the word lies in memory that a client of this machine writes. One that lies about it
	 * gets its answers where it doesn't look for them.
	 */
	if (!w->ordinals && __atomic_load_n(&w->header->direct, __ATOMIC_ACQUIRE) == 1)
		__atomic_store_n(&w->direct, true, __ATOMIC_RELAXED);
	else if (!w->ordinals)
		pages_stop(w);
	if (!ordinals)
		return CUDA_ERROR_NO_DEVICE;
	if (m->first > DEVICES_MAX - w->device_count)
		return CUDA_ERROR_INVALID_VALUE;
	/* GPUs of other servers have the ranges before. Once: what is mapped stays where it is. */
	if (!w->ordinals && m->first && ranges_move(w, m->first))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!w->ordinals)
		w->first = m->first;
	snapshot_write(w, ordinals, &out);
	if (out.fault)
		return CUDA_ERROR_INVALID_VALUE; /* the cells are smaller than SNAPSHOT_SIZE_MAX */
	w->ordinals = ordinals;
	post_reply(w, cmd->hdr, CUDA_SUCCESS, payload, 4,
		   &(struct bulk_ref){ .offset = m->snapshot.offset, .size = (uint32_t)out.at, .cookie = m->snapshot.cookie });
	return CMD_LATER;
}
