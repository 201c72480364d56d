// SPDX-License-Identifier: Apache-2.0
/*
 * The program's own physical memory: one driver handle each, mapped inside the address range of the device, which the
 * worker has reserved whole. Executor thread; see vmm.h.
 *
 * Books are kept of what is mapped where, for a move: the contents of memory are there also when it is mapped nowhere, so they
 * are moved by handle. What has no mapping through which its device could read it gets one for the moment: the window.
 */
#include "broker/worker/vmm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/context.h"
#include "broker/worker/move_in.h"
#include "broker/worker/move_out.h"
#include "broker/worker/note.h"
#include "broker/worker/share.h"
#include "broker/worker/stream.h"
#include "broker/worker/variable.h"
#include "gen/worker_bodies.h"

#define VMM_SIZE_MAX (1ull << 40) /* a device's range */
#define BUCKETS	     4096u
#define PAGE	     (2u << 20) /* mappings begin at multiples: the library sees to it */

struct vmm_map {
	struct vmm_map *next;	 /* in a bucket, by address */
	struct vmm_map *next_of; /* of the same memory */
	struct vmm *of;
	uint64_t address;
	uint64_t size;
	uint8_t access[DEVICES_MAX]; /* CUmemAccess_flags */
	/* a move: */
	bool said;
	uint8_t access_said[DEVICES_MAX];
};

struct vmm {
	struct vmm *next; /* in a bucket, by handle */
	struct vmm_map *maps;
	uint64_t handle;
	uint64_t size;
	CUmemGenericAllocationHandle driver;
	uint32_t device;
	/* a move: */
	struct move_hash *hashes; /* NULL: the other worker doesn't have it */
	uint64_t looked;	  /* how far, in this turn */
};

/* What the other worker has and we haven't any more. */
struct vmm_gone {
	struct vmm_gone *next;
	uint64_t address; /* a mapping, if @size isn't 0; else a handle */
	uint64_t size;
};

struct vmms {
	struct vmm *memory[BUCKETS];
	struct vmm_map *maps[BUCKETS];
	struct vmm_gone *gone;
	struct vmm_gone **gone_last;
	bool gone_lost; /* no memory to remember one: the move can't go on */
	uint32_t orphans; /* mappings of memory that was let go of: an honest library unmaps it first */
	/* The window. */
	const struct vmm *window_of;
	CUdeviceptr window;
};

static struct vmms *vmms(struct worker *w)
{
	if (!w->vmms) {
		w->vmms = calloc(1, sizeof(*w->vmms));
		if (w->vmms)
			w->vmms->gone_last = &w->vmms->gone;
	}
	return w->vmms;
}

static struct vmm **memory_at(struct vmms *v, uint64_t handle)
{
	struct vmm **link = &v->memory[handle_index(handle) % BUCKETS];

	while (*link && (*link)->handle != handle)
		link = &(*link)->next;
	return link;
}

static struct vmm_map **map_at(struct vmms *v, uint64_t address)
{
	struct vmm_map **link = &v->maps[address / PAGE % BUCKETS];

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	return link;
}

/* In their order: a mapping goes before its memory does. */
static void gone_add(struct vmms *v, uint64_t address, uint64_t size)
{
	struct vmm_gone *gone = malloc(sizeof(*gone));

	if (!gone) {
		v->gone_lost = true;
		return;
	}
	*gone = (struct vmm_gone){ .address = address, .size = size };
	*v->gone_last = gone;
	v->gone_last = &gone->next;
}

static void gone_free(struct vmms *v)
{
	while (v->gone) {
		struct vmm_gone *next = v->gone->next;

		free(v->gone);
		v->gone = next;
	}
	v->gone_last = &v->gone;
	v->gone_lost = false;
}

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
	struct vmms *v = vmms(w);
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop;
	struct vmm *vmm;
	CUresult r;

	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!m->size || m->size > VMM_SIZE_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	vmm = v ? calloc(1, sizeof(*vmm)) : NULL;
	if (!vmm)
		return CUDA_ERROR_OUT_OF_MEMORY;
	prop = prop_of(m->device);
	r = w->drv.cuMemCreate(&handle, m->size, &prop, 0);
	if (r != CUDA_SUCCESS) {
		free(vmm);
		return r;
	}
	if (!object_add(w, OBJECT_VMM, m->handle, (void *)(uintptr_t)handle)) {
		w->drv.cuMemRelease(handle);
		free(vmm);
		return CMD_BROKEN;
	}

	struct vmm **link = memory_at(v, m->handle);

	*vmm = (struct vmm){ .next = *link, .handle = m->handle, .size = m->size, .driver = handle, .device = m->device };
	*link = vmm;
	return CUDA_SUCCESS;
}

/* It lives on in the driver while it is mapped; whether the client has let it go before is its own business. */
static void vmm_gone(struct worker *w, uint64_t handle)
{
	struct vmms *v = w->vmms;
	struct vmm **link = v ? memory_at(v, handle) : NULL;
	struct vmm *vmm = link ? *link : NULL;

	if (!vmm)
		return;
	if (v->window_of == vmm)
		vmms_window_close(w);
	if (vmm->hashes)
		gone_add(v, handle, 0);
	*link = vmm->next;
	for (struct vmm_map *map = vmm->maps; map; map = map->next_of) {
		map->of = NULL;
		v->orphans++;
	}
	free(vmm->hashes);
	free(vmm);
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
	vmm_gone(w, m->handle);
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
	struct vmms *v = vmms(w);
	struct vmm_map *map;
	struct object *o;
	struct vmm *vmm;
	CUresult r;

	if (!inside(w, m->address, m->size))
		return CMD_BROKEN;
	o = object_find(w->tables, OBJECT_VMM, m->handle);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	if (o->own)
		return pieces_map(w, o->own, m->address, m->size);
	vmm = v ? *memory_at(v, m->handle) : NULL;
	map = vmm ? calloc(1, sizeof(*map)) : NULL;
	if (!map)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = w->drv.cuMemMap(m->address, m->size, 0, (CUmemGenericAllocationHandle)(uintptr_t)o->driver, 0);
	if (r != CUDA_SUCCESS) {
		free(map);
		return r;
	}

	struct vmm_map **link = map_at(v, m->address);

	*map = (struct vmm_map){ .next = *link, .next_of = vmm->maps, .of = vmm, .address = m->address, .size = m->size };
	*link = map;
	vmm->maps = map;
	return CUDA_SUCCESS;
}

/* The books' mappings in a range, one after the other; NULL: no more. What came from another worker isn't in them. */
static struct vmm_map *map_next(struct worker *w, uint64_t *address, uint64_t end)
{
	for (; w->vmms && *address < end; *address += PAGE) {
		struct vmm_map *map = *map_at(w->vmms, *address);

		if (map) {
			*address += map->size;
			return map;
		}
	}
	return NULL;
}

static void map_gone(struct worker *w, struct vmm_map *map)
{
	struct vmm_map **link = map_at(w->vmms, map->address);

	if (map->said)
		gone_add(w->vmms, map->address, map->size);
	*link = map->next;
	if (!map->of)
		w->vmms->orphans--;
	else
		for (link = &map->of->maps; *link; link = &(*link)->next_of)
			if (*link == map) {
				*link = map->next_of;
				break;
			}
	free(map);
}

CUresult worker_do_gleamVmmUnmap(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmUnmap *m)
{
	uint64_t at = m->address;
	struct vmm_map *map;
	CUresult r;

	if (!inside(w, m->address, m->size))
		return CMD_BROKEN;
	if (w->moving)
		move_in_settle(w);
	r = w->drv.cuMemUnmap(m->address, m->size);
	while (r == CUDA_SUCCESS && (map = map_next(w, &at, m->address + m->size)))
		map_gone(w, map);
	return r;
}

CUresult worker_do_gleamVmmAccess(struct worker *w, struct cmd *cmd, const struct msg_gleamVmmAccess *m)
{
	CUmemAccessDesc desc = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)m->device },
		.flags = (CUmemAccess_flags)m->access,
	};
	uint64_t at = m->address;
	struct vmm_map *map;
	CUresult r;

	if (!inside(w, m->address, m->size) || m->device >= w->device_count)
		return CMD_BROKEN;
	r = w->drv.cuMemSetAccess(m->address, m->size, &desc, 1);
	while (r == CUDA_SUCCESS && (map = map_next(w, &at, m->address + m->size)))
		map->access[m->device] = (uint8_t)m->access;
	return r;
}

void vmms_stop(struct worker *w)
{
	struct vmms *v = w->vmms;

	if (!v)
		return;
	vmms_window_close(w);
	for (uint32_t i = 0; i < BUCKETS; i++) {
		while (v->maps[i]) {
			struct vmm_map *map = v->maps[i];

			v->maps[i] = map->next;
			w->drv.cuMemUnmap(map->address, map->size);
			free(map);
		}
		while (v->memory[i]) {
			struct vmm *vmm = v->memory[i];

			v->memory[i] = vmm->next;
			w->drv.cuMemRelease(vmm->driver);
			free(vmm->hashes);
			free(vmm);
		}
	}
	gone_free(v);
	free(v);
	w->vmms = NULL;
}

/* ---- a move ---- */

void vmms_window_close(struct worker *w)
{
	struct vmms *v = w->vmms;

	if (!v || !v->window_of)
		return;
	/* The driver's unmap waits for nothing: not for what has been written there, either. What reads has waited. */
	if (w->moving)
		move_in_settle(w);
	w->drv.cuMemUnmap(v->window, v->window_of->size);
	w->drv.cuMemAddressFree(v->window, v->window_of->size);
	v->window_of = NULL;
}

/* Where the memory's own device can read and write it. */
static CUresult window_open(struct worker *w, const struct vmm *vmm, CUdeviceptr *at_out)
{
	CUmemAccessDesc desc = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)vmm->device }, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	struct vmms *v = w->vmms;
	CUdeviceptr at = 0;
	CUresult r;

	for (const struct vmm_map *map = vmm->maps; map; map = map->next_of)
		if (map->access[vmm->device] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
			*at_out = map->address;
			return CUDA_SUCCESS;
		}
	if (v->window_of == vmm) {
		*at_out = v->window;
		return CUDA_SUCCESS;
	}
	vmms_window_close(w);
	r = w->drv.cuMemAddressReserve(&at, vmm->size, 0, 0, 0);
	if (r != CUDA_SUCCESS)
		return r;
	r = w->drv.cuMemMap(at, vmm->size, 0, vmm->driver, 0);
	if (r != CUDA_SUCCESS)
		goto free_range;
	r = w->drv.cuMemSetAccess(at, vmm->size, &desc, 1);
	if (r != CUDA_SUCCESS)
		goto unmap;
	v->window_of = vmm;
	*at_out = v->window = at;
	return CUDA_SUCCESS;

unmap:
	w->drv.cuMemUnmap(at, vmm->size);
free_range:
	w->drv.cuMemAddressFree(at, vmm->size);
	return r;
}

static void others_found(void *arg, uint64_t handle, struct object *o)
{
	const struct share_pieces *pieces = o->own;

	if (pieces)
		*(const struct share_pieces **)arg = pieces;
}

const char *vmms_trouble(struct worker *w)
{
	static char why[256]; /* the executor's */
	const struct share_pieces *others = NULL;

	object_each(w->tables, OBJECT_VMM, others_found, &others);
	if (others) {
		snprintf(why, sizeof(why), "it has memory of pid %u open (cuMemImportFromShareableHandle, cuIpcOpenMemHandle), and they have to stay "
			 "on one server; it can move when it has closed that", others->pid);
		return why;
	}
	return w->vmms && w->vmms->orphans ? "it has let go of physical memory that is mapped" : NULL;
}

static void map_say(struct worker *w, struct vmm_map *map)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));

	if (!map->said) {
		struct msg_gleamVmmMap m = { .address = map->address, .size = map->size, .handle = map->of->handle };

		map->said = true;
		msg_gleamVmmMap_put(&out, &m);
		move_say(w, OP_gleamVmmMap, CTX_NONE, false, payload, (uint32_t)out.at);
	}
	for (uint32_t d = 0; d < w->device_count; d++) {
		struct msg_gleamVmmAccess m = { .address = map->address, .size = map->size, .device = d, .access = map->access[d] };

		if (map->access[d] == map->access_said[d])
			continue;
		map->access_said[d] = map->access[d];
		out = writer_on(payload, sizeof(payload));
		msg_gleamVmmAccess_put(&out, &m);
		move_say(w, OP_gleamVmmAccess, CTX_NONE, false, payload, (uint32_t)out.at);
	}
}

static bool memory_say(struct worker *w, struct vmm *vmm)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	struct msg_gleamVmmCreate m = { .handle = vmm->handle, .device = vmm->device, .size = vmm->size };

	vmm->hashes = calloc((vmm->size + MOVE_CHUNK - 1) / MOVE_CHUNK, sizeof(*vmm->hashes));
	if (!vmm->hashes)
		return false;
	msg_gleamVmmCreate_put(&out, &m);
	move_say(w, OP_gleamVmmCreate, CTX_NONE, true, payload, (uint32_t)out.at);
	return true;
}

static void gone_say(struct worker *w, const struct vmm_gone *gone)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));

	if (gone->size) {
		struct msg_gleamVmmUnmap m = { .address = gone->address, .size = gone->size };

		msg_gleamVmmUnmap_put(&out, &m);
		move_say(w, OP_gleamVmmUnmap, CTX_NONE, false, payload, (uint32_t)out.at);
	} else {
		struct msg_gleamVmmRelease m = { .handle = gone->address };

		msg_gleamVmmRelease_put(&out, &m);
		move_say(w, OP_gleamVmmRelease, CTX_NONE, false, payload, (uint32_t)out.at);
	}
}

bool vmms_say(struct worker *w)
{
	struct vmms *v = w->vmms;

	if (!v)
		return true;
	if (v->gone_lost)
		return false;
	for (const struct vmm_gone *gone = v->gone; gone; gone = gone->next)
		gone_say(w, gone);
	gone_free(v);
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (struct vmm *vmm = v->memory[i]; vmm; vmm = vmm->next)
			if (!vmm->hashes && !memory_say(w, vmm))
				return false;
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (struct vmm_map *map = v->maps[i]; map; map = map->next)
			if (map->of)
				map_say(w, map);
	return true;
}

bool vmms_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total)
{
	struct vmms *v = w->vmms;
	bool sound = true;

	for (uint32_t i = 0; v && i < BUCKETS && sound; i++)
		for (struct vmm *vmm = v->memory[i]; vmm && sound; vmm = vmm->next) {
			struct move_place place = { .device = vmm->device, .handle = vmm->handle };

			CUdeviceptr at = 0;

			*total += vmm->size;
			if (*limit && vmm->looked < vmm->size) {
				sound = context_use(w, context_own(w, vmm->device)) == CUDA_SUCCESS && window_open(w, vmm, &at) == CUDA_SUCCESS;
				place.address = at;
				sound = sound && move_contents(w, &place, vmm->size, vmm->hashes, limit, &vmm->looked);
			}
			*left += vmm->size - (vmm->looked < vmm->size ? vmm->looked : vmm->size);
		}
	vmms_window_close(w);
	return sound;
}

void vmms_turn(struct worker *w)
{
	for (uint32_t i = 0; w->vmms && i < BUCKETS; i++)
		for (struct vmm *vmm = w->vmms->memory[i]; vmm; vmm = vmm->next)
			vmm->looked = 0;
}

void vmms_forget(struct worker *w)
{
	struct vmms *v = w->vmms;

	if (!v)
		return;
	gone_free(v);
	for (uint32_t i = 0; i < BUCKETS; i++) {
		for (struct vmm *vmm = v->memory[i]; vmm; vmm = vmm->next) {
			free(vmm->hashes);
			vmm->hashes = NULL;
			vmm->looked = 0;
		}
		for (struct vmm_map *map = v->maps[i]; map; map = map->next) {
			map->said = false;
			memset(map->access_said, 0, sizeof(map->access_said));
		}
	}
}

uint64_t vmms_end_of(const struct worker *w, uint64_t address)
{
	for (uint32_t i = 0; w->vmms && i < BUCKETS; i++)
		for (const struct vmm_map *map = w->vmms->maps[i]; map; map = map->next)
			if (address >= map->address && address - map->address < map->size)
				return map->address + map->size;
	return 0;
}

CUresult worker_do_gleamMoveVmm(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveVmm *m)
{
	const struct vmm *vmm = w->vmms ? *memory_at(w->vmms, m->handle) : NULL;
	uint64_t size = m->zeros ? m->zeros : m->data_size;
	CUdeviceptr at;
	CUresult r;

	if (!w->moving)
		return CMD_BROKEN;
	variables_in_doubt(w, cmd->hdr->op);
	if (w->moving_failed[0])
		return CUDA_SUCCESS;
	if (!vmm)
		return CUDA_ERROR_INVALID_HANDLE;
	if (m->offset > vmm->size || size > vmm->size - m->offset)
		return CUDA_ERROR_INVALID_VALUE;
	if (!size)
		return CUDA_SUCCESS;
	r = context_use(w, context_own(w, vmm->device));
	if (r == CUDA_SUCCESS)
		r = window_open(w, vmm, &at);
	if (r != CUDA_SUCCESS)
		return r;
	return m->zeros ? w->drv.cuMemsetD8_v2(at + m->offset, 0, size) : w->drv.cuMemcpyHtoD_v2(at + m->offset, m->data, size);
}
