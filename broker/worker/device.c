/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver and its devices. Main thread, before the session begins; see device.h.
 */
#include "broker/worker/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/worker/note.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

int driver_open(struct worker *w, const char *path, char *why, size_t size)
{
	void *dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!dl) {
		snprintf(why, size, "%s; is that the path of the driver's libcuda.so.1?", dlerror());
		return -ENOENT;
	}
	if (dlsym(dl, "gleam_version")) {
		snprintf(why, size, "%s: this is Gleam's own client library; give the real driver's path", path);
		dlclose(dl);
		return -EINVAL;
	}
	if (!dlsym(dl, "cuInit")) {
		snprintf(why, size, "%s: this is no CUDA driver library (it lacks cuInit)", path);
		dlclose(dl);
		return -ENOEXEC;
	}
	w->driver_dl = dl;

	int missing = drv_load(&w->drv, dl);

	/* An older driver, or a software one: what it lacks answers NOT_FOUND. */
	if (missing)
		note(w, "%s lacks %d of the functions that the worker knows", path, missing);
	return 0;
}

/* ---- the snapshot ---- */

/* slot 4: two new arrays with an entry per two multiprocessors; 13 frees them. */
static void tpcs_read(struct worker *w, struct snapshot_device *d)
{
	/* The name 1734dc26-800d-4745-8726-c0f1e7dd8bca as bytes: in the order in which it is written. */
	static const unsigned char written[16] = { 0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45, 0x87, 0x26, 0xc0, 0xf1,
						   0xe7, 0xdd, 0x8b, 0xca };
	typedef CUresult (*tpcs_get)(uint8_t **place, uint8_t **group);
	typedef CUresult (*tpcs_free)(uint8_t *place, uint8_t *group);
	const void *const *slots = NULL;
	CUuuid name;
	uint32_t count = (uint32_t)d->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] / 2;
	uint8_t *place = NULL;
	uint8_t *group = NULL;
	uint64_t bytes;

	memcpy(name.bytes, written, sizeof(written));
	if (w->drv.cuGetExportTable((const void **)&slots, &name) != CUDA_SUCCESS || !slots)
		return;
	/* The first word is the table's size in bytes. */
	memcpy(&bytes, slots, sizeof(bytes));
	if (bytes < 14 * sizeof(void *) || bytes > 4096 || !slots[4] || !slots[13]) {
		complain("private table 1734dc26 has %llu bytes: its arrays are not read", (unsigned long long)bytes);
		return;
	}
	if (count > SNAPSHOT_TPCS)
		count = SNAPSHOT_TPCS;

	tpcs_get get;
	tpcs_free give;

	memcpy(&get, &slots[4], sizeof(get));
	memcpy(&give, &slots[13], sizeof(give));
	if (get(&place, &group) != CUDA_SUCCESS || !place || !group)
		return;
	memcpy(d->tpc_place, place, count);
	memcpy(d->tpc_group, group, count);
	d->tpcs = count;
	give(place, group);
}

/* What only a context tells. Taken on a primary context that goes away again, unless it is the home one. */
static int device_context_read(struct worker *w, uint32_t index, struct snapshot_device *d)
{
	CUdevice device = w->devices[index];
	CUcontext context;
	CUresult r = w->drv.cuDevicePrimaryCtxRetain(&context, device);
	CUfunc_cache cache = 0;
	unsigned int number = 0;
	int least = 0, greatest = 0;

	if (r == CUDA_SUCCESS)
		r = w->drv.cuCtxSetCurrent(context);
	if (r != CUDA_SUCCESS) {
		complain("device %u: no context: the driver says %d", index, (int)r);
		return -EIO;
	}
	if (w->drv.cuCtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS) {
		d->priority_least = least;
		d->priority_greatest = greatest;
	}
	for (int limit = 0; limit < SNAPSHOT_LIMITS; limit++) {
		size_t value = 0;

		if (limit >= CU_LIMIT_MAX || w->drv.cuCtxGetLimit(&value, (CUlimit)limit) != CUDA_SUCCESS)
			continue;
		d->limits[limit] = value;
		d->limits_known |= 1u << limit;
	}
	if (w->drv.cuCtxGetCacheConfig(&cache) == CUDA_SUCCESS)
		d->cache_config = (uint32_t)cache;
	if (w->drv.cuCtxGetFlags(&number) == CUDA_SUCCESS)
		d->context_flags = number;
	if (w->drv.cuCtxGetApiVersion(context, &number) == CUDA_SUCCESS)
		d->api_version = number;
	tpcs_read(w, d);
	if (index == 0)
		w->home = context;
	else
		w->drv.cuDevicePrimaryCtxRelease_v2(device);
	return 0;
}

static void device_read(struct worker *w, uint32_t index, struct snapshot_device *d)
{
	CUdevice device = w->devices[index];
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
	CUuuid uuid;
	size_t size = 0;
	unsigned int mask = 0;

	w->drv.cuDeviceGetName(d->name, sizeof(d->name) - 1, device);
	if (w->drv.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS)
		memcpy(d->uuid, uuid.bytes, sizeof(d->uuid));
	if (w->drv.cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
		memcpy(d->uuid_v1, uuid.bytes, sizeof(d->uuid_v1));
	if (w->drv.cuDeviceGetLuid((char *)d->luid, &mask, device) == CUDA_SUCCESS) {
		d->luid_known = 1;
		d->luid_mask = mask;
	}
	w->drv.cuDeviceGetPCIBusId(d->pci, sizeof(d->pci), device);
	d->pci[sizeof(d->pci) - 1] = '\0';
	if (w->drv.cuDeviceTotalMem_v2(&size, device) == CUDA_SUCCESS)
		d->memory = size;
	if (w->drv.cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS)
		d->granularity = size;
	if (w->drv.cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS)
		d->granularity_recommended = size;
	for (int i = 1; i < SNAPSHOT_ATTRIBUTES; i++) {
		int value = 0;

		if (w->drv.cuDeviceGetAttribute(&value, (CUdevice_attribute)i, device) == CUDA_SUCCESS)
			d->attributes[i] = value;
	}
	for (int type = 0; type < 32 && type < CU_EXEC_AFFINITY_TYPE_MAX; type++) {
		int supported = 0;

		if (w->drv.cuDeviceGetExecAffinitySupport(&supported, (CUexecAffinityType)type, device) == CUDA_SUCCESS &&
		    supported)
			d->exec_affinity |= 1u << type;
	}
}

static void peers_read(struct worker *w, struct snapshot *s)
{
	for (uint32_t a = 0; a < s->device_count; a++)
		for (uint32_t b = 0; b < s->device_count; b++)
			for (int i = 1; i < SNAPSHOT_P2P && a != b; i++) {
				int value = 0;

				if (w->drv.cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)i, w->devices[a],
								   w->devices[b]) == CUDA_SUCCESS)
					s->p2p[a][b][i] = value;
			}
}

int devices_start(struct worker *w, char *why, size_t size)
{
	int count = 0;
	int version = 0;
	CUresult r = w->drv.cuInit(0);

	if (r != CUDA_SUCCESS) {
		snprintf(why, size, "the driver's cuInit says %d%s", (int)r,
			 r == CUDA_ERROR_NO_DEVICE ? " (no GPU is visible to it)" : "");
		return r == CUDA_ERROR_NO_DEVICE ? -ENODEV : -EIO;
	}
	r = w->drv.cuDeviceGetCount(&count);
	if (r != CUDA_SUCCESS || count < 1) {
		snprintf(why, size, "the driver shows no GPU (%d devices, result %d)", count, (int)r);
		return -ENODEV;
	}
	if (count > DEVICES_MAX) {
		complain("the driver shows %d devices; the first %d are used", count, DEVICES_MAX);
		count = DEVICES_MAX;
	}
	w->snapshot = calloc(1, sizeof(*w->snapshot));
	if (!w->snapshot)
		return -ENOMEM;
	w->drv.cuDriverGetVersion(&version);
	w->snapshot->driver_version = (uint32_t)version;
	w->snapshot->worker_pid = (uint32_t)getpid();
	w->snapshot->device_count = w->device_count = (uint32_t)count;
	for (uint32_t i = 0; i < w->device_count; i++) {
		r = w->drv.cuDeviceGet(&w->devices[i], (int)i);
		if (r != CUDA_SUCCESS) {
			snprintf(why, size, "device %u: cuDeviceGet says %d", i, (int)r);
			return -EIO;
		}
		device_read(w, i, &w->snapshot->devices[i]);
	}
	peers_read(w, w->snapshot);
	/* The home context last, so that it is the one that stays current. */
	for (uint32_t i = w->device_count; i-- > 0;)
		if (device_context_read(w, i, &w->snapshot->devices[i])) {
			snprintf(why, size, "device %u gives no context (is its memory full?)", i);
			return -EIO;
		}
	return 0;
}

void snapshot_write(const struct worker *w, uint64_t ordinals, struct writer *out)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	uint32_t from[SNAPSHOT_DEVICES];

	if (!s) {
		out->fault = true;
		return;
	}
	*s = *w->snapshot;
	s->device_count = 0;
	s->mirrors_host = w->arenas_mapped;
	s->given = w->settings.given;
	for (uint32_t i = 0; i < w->device_count; i++)
		if (ordinals & 1ull << i) {
			from[s->device_count] = i;
			s->devices[s->device_count++] = w->snapshot->devices[i];
		}
	for (uint32_t a = 0; a < s->device_count; a++)
		for (uint32_t b = 0; b < s->device_count; b++)
			memcpy(s->p2p[a][b], w->snapshot->p2p[from[a]][from[b]], sizeof(s->p2p[a][b]));
	snapshot_put(out, s);
	free(s);
}

/* ---- addresses ---- */

int ranges_reserve(struct worker *w, char *why, size_t size)
{
	void *host_at = (void *)(uintptr_t)w->settings.range_host;
	uint64_t range = w->settings.range_size;
	void *host = mmap(host_at, range, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (host != host_at) {
		snprintf(why, size, "address range %p for host memory is taken (%s)", host_at,
			 host == MAP_FAILED ? strerror(errno) : "moved");
		return -EADDRINUSE;
	}
	for (uint32_t i = 0; i < w->device_count; i++) {
		CUdeviceptr want = w->settings.range_device + i * range;
		CUdeviceptr got = 0;
		CUresult r = w->drv.cuMemAddressReserve(&got, range, 0, want, 0);

		if (r != CUDA_SUCCESS || got != want) {
			snprintf(why, size, "address range 0x%llx of device %u: the driver says %d, gave 0x%llx",
				 (unsigned long long)want, i, (int)r, (unsigned long long)got);
			return -EADDRINUSE;
		}
	}
	return 0;
}

int ranges_move(struct worker *w, uint32_t first)
{
	uint64_t range = w->settings.range_size;

	/* Some may be the worker's already, for others of its devices. */
	for (uint32_t i = first > w->device_count ? first : w->device_count; i < first + w->device_count; i++) {
		CUdeviceptr want = w->settings.range_device + i * range;
		CUdeviceptr got = 0;
		CUresult r = w->drv.cuMemAddressReserve(&got, range, 0, want, 0);

		if (r == CUDA_SUCCESS && got == want)
			continue;
		complain("address range 0x%llx: the driver says %d, gave 0x%llx", (unsigned long long)want, (int)r,
			 (unsigned long long)got);
		if (r == CUDA_SUCCESS)
			w->drv.cuMemAddressFree(got, range);
		return -EADDRINUSE;
	}
	w->settings.range_device += first * range;
	return 0;
}

static CUresult part_register(struct worker *w, uint32_t at, size_t size)
{
	return w->drv.cuMemHostRegister_v2(w->shm.base + at, size, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

#define LANDED_SIZE (SESSION_AT_ERRORS - SESSION_AT_LANDED)
static_assert(SESSION_AT_LANDED % 4096 == 0 && LANDED_SIZE % 4096 == 0, "landed words are whole pages");

void device_arenas_map(struct worker *w)
{
	CUresult r = part_register(w, SESSION_AT_LANDED, LANDED_SIZE);

	if (r != CUDA_SUCCESS)
		goto refused;
	r = w->drv.cuMemHostGetDevicePointer_v2(&w->landed_at, shm_landed(&w->shm, 0), 0);
	if (r != CUDA_SUCCESS)
		goto undo_landed;
	r = part_register(w, SESSION_AT_UP, SESSION_UP_SIZE);
	if (r != CUDA_SUCCESS)
		goto undo_landed;
	r = part_register(w, SESSION_AT_DOWN, SESSION_DOWN_SIZE);
	if (r != CUDA_SUCCESS)
		goto undo_up;
	w->arenas_mapped = true;
	return;

undo_up:
	w->drv.cuMemHostUnregister(w->shm.base + SESSION_AT_UP);
undo_landed:
	w->drv.cuMemHostUnregister(w->shm.base + SESSION_AT_LANDED);
refused:
	complain("the driver does not register the session memory (%d): bulk goes through staging, at the cost of a copy",
		 (int)r);
}

int device_arenas_again(struct worker *w)
{
	CUdeviceptr before = w->landed_at;

	if (!w->arenas_mapped)
		return 0;
	w->arenas_mapped = false;
	device_arenas_map(w);
	return w->arenas_mapped && w->landed_at == before ? 0 : -EIO;
}
