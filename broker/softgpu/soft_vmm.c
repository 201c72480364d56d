// SPDX-License-Identifier: Apache-2.0
/*
 * Virtual memory management: reservations of address space, physical memory (a memfd each), and mapping one into
 * the other. Any thread.
 *
 * Physical memory counts against its device until its handle and its last mapping are gone. Pages of a mapping that
 * was undone stay until kernels that may be in them have ended (soft_map.h); what was mapped there since is left
 * alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/softgpu/soft_memory.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* The address space a program could reserve on a real device: 47 bits. */
#define RESERVE_MAX ((uint64_t)1 << 47)
/* Marks descriptors of ours, so that an import can tell what it was given. */
#define PHYSICAL_NAME "softgpu-memory"

struct physical {
	struct soft_object object;
	struct soft_device *device; /* NULL: host memory */
	CUmemAllocationProp prop;
	uint64_t size;
	int fd;
	bool imported; /* counted by the process that made it */
	/* Handle references: cuMemCreate, import and retain add one, cuMemRelease takes one. Guarded by vmm_lock. */
	unsigned int handle_count;
	unsigned int map_count;
};

struct reservation {
	struct reservation *next;
	uint64_t base;
	uint64_t size;
};

static pthread_mutex_t vmm_lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by vmm_lock */
static struct reservation *reservations;

/* ---- address space ---- */

static void *reserve_at(uint64_t address, uint64_t size, int flags)
{
	void *at = mmap((void *)(uintptr_t)address, size, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

static void *reserve_aligned(uint64_t size, uint64_t alignment)
{
	uint64_t address, start;
	void *at = reserve_at(0, size + alignment, 0);

	if (!at)
		return NULL;
	address = (uint64_t)(uintptr_t)at;
	start = (address + alignment - 1) & ~(alignment - 1);
	if (start > address)
		munmap(at, start - address);
	munmap((void *)(uintptr_t)(start + size), alignment - (start - address));
	return (void *)(uintptr_t)start;
}

SOFT_API(cuMemAddressReserve, CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr hint,
	 unsigned long long flags)
{
	struct reservation *reservation;
	void *at = NULL;

	TRY(soft_ready());
	if (!alignment)
		alignment = SOFT_GRANULARITY;
	if (!pointer || !size || size % SOFT_GRANULARITY || size > RESERVE_MAX || flags || alignment & (alignment - 1) ||
	    alignment > RESERVE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	alignment = MAX(alignment, SOFT_GRANULARITY);
	reservation = malloc(sizeof(*reservation));
	if (!reservation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (hint && hint % alignment == 0) {
		at = reserve_at(hint, size, MAP_FIXED_NOREPLACE);
		/* A kernel without the flag takes it for a mere hint. */
		if (at && (uint64_t)(uintptr_t)at != hint) {
			munmap(at, size);
			at = NULL;
		}
	}
	/* A hint that can't be met is no error: the range lies elsewhere then. */
	if (!at)
		at = reserve_aligned(size, alignment);
	if (!at) {
		free(reservation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	reservation->base = (uint64_t)(uintptr_t)at;
	reservation->size = size;
	pthread_mutex_lock(&vmm_lock);
	reservation->next = reservations;
	reservations = reservation;
	pthread_mutex_unlock(&vmm_lock);
	*pointer = reservation->base;
	return CUDA_SUCCESS;
}

static void reservation_release(const struct soft_range *range)
{
	munmap((void *)(uintptr_t)range->base, range->size);
}

SOFT_API(cuMemAddressFree, CUdeviceptr pointer, size_t size)
{
	struct soft_range range = { .release = reservation_release };
	struct reservation **link, *found;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	TRY(soft_ready());
	pthread_mutex_lock(&vmm_lock);
	for (link = &reservations; *link && (*link)->base != pointer; link = &(*link)->next)
		;
	found = *link;
	if (found && found->size == size && !soft_map_touches(pointer, size)) {
		*link = found->next;
		result = CUDA_SUCCESS;
	} else {
		found = NULL;
	}
	pthread_mutex_unlock(&vmm_lock);
	if (found) {
		range.base = found->base;
		range.size = found->size;
		free(found);
		soft_map_release(&range);
	}
	return result;
}

static bool reserved_locked(uint64_t address, uint64_t size)
{
	for (const struct reservation *at = reservations; at; at = at->next)
		if (address >= at->base && address - at->base < at->size && size <= at->size - (address - at->base))
			return true;
	return false;
}

/* ---- physical memory ---- */

static void physical_free(struct soft_object *object)
{
	struct physical *physical = (struct physical *)object;

	close(physical->fd);
	if (physical->device && !physical->imported)
		soft_device_uncharge(physical->device, physical->size);
	free(physical);
}

static CUresult prop_check(const CUmemAllocationProp *prop, struct soft_device **device_out)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		*device_out = soft_device_find(prop->location.id);
		return *device_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		/* As the attributes say: no virtual memory management for host memory. */
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* A descriptor for each piece of memory is more than the usual soft limit allows. */
static void descriptors_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static pthread_once_t descriptors_once = PTHREAD_ONCE_INIT;

static CUresult physical_new(struct soft_device *device, const CUmemAllocationProp *prop, uint64_t size, int fd,
			     struct physical **physical_out)
{
	struct physical *physical = calloc(1, sizeof(*physical));
	CUresult result;

	if (!physical)
		return CUDA_ERROR_OUT_OF_MEMORY;
	soft_object_init(&physical->object, SOFT_PHYSICAL, NULL, physical_free);
	physical->device = device;
	physical->prop = *prop;
	physical->size = size;
	physical->fd = fd;
	physical->handle_count = 1;
	result = soft_object_publish(&physical->object);
	if (result != CUDA_SUCCESS)
		free(physical);
	else
		*physical_out = physical;
	return result;
}

SOFT_API(cuMemCreate, CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
	 unsigned long long flags)
{
	struct physical *physical;
	struct soft_device *device;
	CUresult result;
	int fd;

	TRY(soft_ready());
	if (!handle || !size || size % SOFT_GRANULARITY || flags)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(prop_check(prop, &device));
	TRY(soft_device_charge(device, size));
	pthread_once(&descriptors_once, descriptors_raise);
	fd = memfd_create(PHYSICAL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0) {
		soft_log("cuMemCreate: no descriptor for %zu bytes: %s", size, strerror(errno));
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto close_fd;
	}
	/* Nobody who imports it can take the pages away from under us. */
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	result = physical_new(device, prop, size, fd, &physical);
	if (result != CUDA_SUCCESS)
		goto close_fd;
	*handle = atomic_load(&physical->object.handle);
	return CUDA_SUCCESS;
close_fd:
	if (fd >= 0)
		close(fd);
	soft_device_uncharge(device, size);
	return result;
}

/* Lets go of the physical memory when neither a handle nor a mapping is left. Takes no reference. */
static void physical_settle(struct physical *physical, bool last)
{
	struct soft_object *object;

	if (!last)
		return;
	object = soft_object_retire(atomic_load(&physical->object.handle), SOFT_PHYSICAL);
	soft_object_put(object);
}

#define PHYSICAL_ARG(name, handle)                                                               \
	SOFT_HELD struct physical *name = (struct physical *)soft_object_find(handle, SOFT_PHYSICAL); \
	if (!name)                                                                               \
	return CUDA_ERROR_INVALID_VALUE

SOFT_API(cuMemRelease, CUmemGenericAllocationHandle handle)
{
	bool released = false, last = false;

	TRY(soft_ready());
	PHYSICAL_ARG(physical, handle);
	pthread_mutex_lock(&vmm_lock);
	if (physical->handle_count) {
		physical->handle_count--;
		released = true;
		last = !physical->handle_count && !physical->map_count;
	}
	pthread_mutex_unlock(&vmm_lock);
	physical_settle(physical, last);
	return released ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFT_API(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *handle, void *address)
{
	struct soft_range range;

	TRY(soft_ready());
	if (!handle || !soft_map_find((uint64_t)(uintptr_t)address, &range) || range.kind != SOFT_RANGE_PHYSICAL)
		return CUDA_ERROR_INVALID_VALUE;
	PHYSICAL_ARG(physical, range.owner);
	pthread_mutex_lock(&vmm_lock);
	physical->handle_count++;
	pthread_mutex_unlock(&vmm_lock);
	*handle = range.owner;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
	TRY(soft_ready());
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	PHYSICAL_ARG(physical, handle);
	*prop = physical->prop;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemGetAllocationGranularity, size_t *granularity, const CUmemAllocationProp *prop, int option)
{
	struct soft_device *device;

	TRY(soft_ready());
	if (!granularity || (option != 0 && option != 1))
		return CUDA_ERROR_INVALID_VALUE;
	TRY(prop_check(prop, &device));
	*granularity = SOFT_GRANULARITY;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemExportToShareableHandle, void *shareable, CUmemGenericAllocationHandle handle, int type,
	 unsigned long long flags)
{
	int fd;

	TRY(soft_ready());
	if (!shareable || flags)
		return CUDA_ERROR_INVALID_VALUE;
	PHYSICAL_ARG(physical, handle);
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(physical->prop.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)shareable = fd;
	return CUDA_SUCCESS;
}

SOFT_API(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	struct physical *physical;
	struct stat info;
	CUresult result;
	int fd;

	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	SOFT_ENTER(context);
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	prop.location.id = context->device->ordinal;
	/* The caller keeps its descriptor. */
	fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* Only sealed memory of whole granules: anything else could lose its pages while a kernel is in them. */
	if (fstat(fd, &info) < 0 || info.st_size <= 0 || (uint64_t)info.st_size % SOFT_GRANULARITY ||
	    !(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK)) {
		close(fd);
		return CUDA_ERROR_INVALID_VALUE;
	}
	result = physical_new(context->device, &prop, (uint64_t)info.st_size, fd, &physical);
	if (result != CUDA_SUCCESS) {
		close(fd);
		return result;
	}
	physical->imported = true;
	*handle = atomic_load(&physical->object.handle);
	return CUDA_SUCCESS;
}

/* ---- mapping ---- */

/* Makes the parts of an undone mapping inaccessible that nothing has been mapped into since. */
static void mapping_release(const struct soft_range *range)
{
	uint64_t end = range->base + range->size;

	pthread_mutex_lock(&vmm_lock);
	for (uint64_t at = range->base; at < end; at += SOFT_GRANULARITY)
		if (reserved_locked(at, SOFT_GRANULARITY) && !soft_map_touches(at, SOFT_GRANULARITY))
			reserve_at(at, SOFT_GRANULARITY, MAP_FIXED);
	pthread_mutex_unlock(&vmm_lock);
}

SOFT_API(cuMemMap, CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
	 unsigned long long flags)
{
	struct soft_range range = { .kind = SOFT_RANGE_PHYSICAL, .blocked = true, .release = mapping_release };
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	TRY(soft_ready());
	PHYSICAL_ARG(physical, handle);
	if (!size || flags || size % SOFT_GRANULARITY || offset % SOFT_GRANULARITY || pointer % SOFT_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	if (offset > physical->size || size > physical->size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	/* A handle is mapped whole or not at all, as the real driver has it. */
	if (size != physical->size)
		return CUDA_ERROR_NOT_SUPPORTED;
	range.base = pointer;
	range.size = size;
	range.device = physical->prop.location.id;
	range.flags = (unsigned int)physical->prop.requestedHandleTypes;
	range.owner = handle;
	pthread_mutex_lock(&vmm_lock);
	if (!reserved_locked(pointer, size) || !physical->handle_count || soft_map_touches(pointer, size))
		goto unlock;
	if (mmap((void *)(uintptr_t)pointer, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) == MAP_FAILED) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto unlock;
	}
	if (soft_map_add(&range) < 0) {
		reserve_at(pointer, size, MAP_FIXED);
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto unlock;
	}
	physical->map_count++;
	result = CUDA_SUCCESS;
unlock:
	pthread_mutex_unlock(&vmm_lock);
	return result;
}

static bool range_inside(const struct soft_range *range, const void *key)
{
	return range->kind == SOFT_RANGE_PHYSICAL && range->size <= *(const uint64_t *)key;
}

/* Where the next mapping may begin: behind what lies at @at, if @range is it, or at the next granule. */
static uint64_t mapping_end(uint64_t at, const struct soft_range *range)
{
	return at - range->base < range->size ? range->base + range->size : (at | (SOFT_GRANULARITY - 1)) + 1;
}

SOFT_API(cuMemUnmap, CUdeviceptr pointer, size_t size)
{
	struct soft_range range = { .size = 0 };
	uint64_t end = pointer + size;
	bool reserved;

	TRY(soft_ready());
	if (!size || end < pointer)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&vmm_lock);
	reserved = reserved_locked(pointer, 1);
	pthread_mutex_unlock(&vmm_lock);
	if (!reserved)
		return CUDA_ERROR_INVALID_VALUE;
	/* No mapping may be cut; gaps are taken. */
	for (uint64_t at = pointer; at < end; at = mapping_end(at, &range))
		if (soft_map_find(at, &range) && (range.kind != SOFT_RANGE_PHYSICAL || range.base < pointer || range.size > end - range.base))
			return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = pointer; at < end; at = mapping_end(at, &range)) {
		SOFT_HELD struct physical *physical = NULL;
		uint64_t left = end - at;
		bool last = false;

		if (!soft_map_find(at, &range))
			continue;
		if (soft_map_remove(at, range_inside, &left, &range) < 0)
			return CUDA_ERROR_INVALID_VALUE; /* someone else was faster */
		physical = (struct physical *)soft_object_find(range.owner, SOFT_PHYSICAL);
		soft_map_release(&range);
		if (!physical)
			continue;
		pthread_mutex_lock(&vmm_lock);
		last = --physical->map_count == 0 && !physical->handle_count;
		pthread_mutex_unlock(&vmm_lock);
		physical_settle(physical, last);
	}
	return CUDA_SUCCESS;
}

SOFT_API(cuMemSetAccess, CUdeviceptr pointer, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	bool readable = false;
	CUresult result = CUDA_SUCCESS;

	TRY(soft_ready());
	if (!size || !desc || !count || pointer > UINT64_MAX - size)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return desc[i].location.type == CU_MEM_LOCATION_TYPE_HOST ? CUDA_ERROR_NOT_SUPPORTED
										   : CUDA_ERROR_INVALID_VALUE;
		if (!soft_device_find(desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		switch (desc[i].flags) {
		case CU_MEM_ACCESS_FLAGS_PROT_NONE:
			break;
		case CU_MEM_ACCESS_FLAGS_PROT_READ:
		case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
			readable = true;
			break;
		default:
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	for (uint64_t at = pointer; at < pointer + size;) {
		struct soft_range range;

		if (!soft_map_find(at, &range) || range.kind != SOFT_RANGE_PHYSICAL || range.base != at ||
		    range.size > pointer + size - at)
			return CUDA_ERROR_INVALID_VALUE;
		at += range.size;
	}
	pthread_mutex_lock(&vmm_lock);
	/*
	 * Devices of one process share the mapping: its pages are opened before the map says so, and never closed, for a
	 * kernel may be inside. What each device may do is the map's to decide.
	 */
	if (readable)
		mprotect((void *)(uintptr_t)pointer, size, PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
		if (!soft_map_protect(pointer, size, desc[i].location.id, desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
				      desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&vmm_lock);
	return result;
}

SOFT_API(cuMemGetAccess, unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
	struct soft_range range;

	TRY(soft_ready());
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!soft_device_find(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!soft_map_find(pointer, &range) || range.kind != SOFT_RANGE_PHYSICAL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = range.writers >> location->id & 1   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
		 : range.readers >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
						     : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}
