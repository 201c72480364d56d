// SPDX-License-Identifier: Apache-2.0
/*
 * The program's own physical memory: one driver handle each, mapped inside the address range of the device, which the
 * worker has reserved whole. Executor thread.
 */
#include "broker/worker/context.h"
#include "broker/worker/note.h"
#include "broker/worker/share.h"
#include "broker/worker/state.h"
#include "gen/worker_bodies.h"

#define VMM_SIZE_MAX (1ull << 40) /* a device's range */

/* Inside the range of some device that this client sees. */
static bool inside(const struct worker *w, uint64_t address, uint64_t size)
{
	uint64_t start = w->settings.range_device;
	uint64_t range = w->settings.range_size;
	uint64_t device = (address - start) / range;

	return address >= start && device < w->device_count && size && size <= range &&
	       address - (start + device * range) <= range - size;
}

static CUmemAllocationProp prop_of(uint32_t device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device },
	};
}

CUresult worker_do_gleamVmmCreate(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmCreate *m)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	CUresult r;

	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!m->size || m->size > VMM_SIZE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	prop = prop_of(m->device);
	r = w->drv.cuMemCreate(&handle, m->size, &prop, 0);
	if (r != CUDA_SUCCESS)
		return r;
	if (!object_add(w, OBJECT_VMM, m->handle, (void *)(uintptr_t)handle)) {
		w->drv.cuMemRelease(handle);
		return CMD_BROKEN;
	}
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamVmmRelease(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmRelease *m)
{
	struct object *o = object_find(w->tables, OBJECT_VMM, m->handle);
	struct share_pieces *pieces;
	void *handle;

	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	pieces = o->own;
	handle = o->driver;
	object_remove(w, m->handle);
	if (pieces) {
		share_pieces_free(w, pieces);
		return CUDA_SUCCESS;
	}
	share_end(w, m->handle);
	return w->drv.cuMemRelease((CUmemGenericAllocationHandle)(uintptr_t)handle);
}

/* What came from another worker may be many pieces: one after the other. */
static CUresult pieces_map(struct worker *w, const struct share_pieces *pieces, uint64_t address, uint64_t size)
{
	uint64_t at = 0;
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < pieces->count && r == CUDA_SUCCESS; i++) {
		if (pieces->pieces[i].size > size - at)
			return CUDA_ERROR_INVALID_VALUE;
		r = w->drv.cuMemMap(address + at, pieces->pieces[i].size, 0, pieces->pieces[i].driver, 0);
		if (r == CUDA_SUCCESS)
			at += pieces->pieces[i].size;
	}
	if (r != CUDA_SUCCESS && at)
		w->drv.cuMemUnmap(address, at);
	return r;
}

CUresult worker_do_gleamVmmMap(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmMap *m)
{
	struct object *o;

	if (!inside(w, m->address, m->size))
		return CMD_BROKEN;
	o = object_find(w->tables, OBJECT_VMM, m->handle);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	if (o->own)
		return pieces_map(w, o->own, m->address, m->size);
	return w->drv.cuMemMap(m->address, m->size, 0, (CUmemGenericAllocationHandle)(uintptr_t)o->driver, 0);
}

CUresult worker_do_gleamVmmUnmap(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmUnmap *m)
{
	if (!inside(w, m->address, m->size))
		return CMD_BROKEN;
	return w->drv.cuMemUnmap(m->address, m->size);
}

CUresult worker_do_gleamVmmAccess(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmAccess *m)
{
	CUmemAccessDesc desc = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)m->device },
		.flags = (CUmemAccess_flags)m->access,
	};

	if (!inside(w, m->address, m->size) || m->device >= w->device_count)
		return CMD_BROKEN;
	return w->drv.cuMemSetAccess(m->address, m->size, &desc, 1);
}
