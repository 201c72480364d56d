// SPDX-License-Identifier: Apache-2.0
/*
 * The program's own virtual memory management: physical memory is one real handle at the worker, addresses are ours.
 * Creating asks, for the answer may be "out of memory"; mapping, access and release are messages. Unmapping first waits
 * for what may still use the memory, since commands may still be queued behind others. Application threads.
 */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "gen/bodies.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/handle.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/share.h"
#include "libgleamcuda/stable.h"
#include "libgleamcuda/stream.h"

struct vmm {
	uint64_t handle;
	uint64_t size;
	CUmemAllocationProp prop;
	uint32_t node_device;
	struct session *session; /* whose worker has it */
	bool imported; /* another program's: not counted as ours */
	/* guarded by lock */
	uint32_t refs; /* of the program: create and retain */
	uint32_t maps;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stable vmms = STABLE(struct vmm);

static struct vmm *vmm_of(CUmemGenericAllocationHandle handle)
{
	return handle_data(OBJECT_VMM, handle);
}

/* The device of a location; NULL if it is none of ours. */
static const struct device *location_device(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? device_at(location->id) : NULL;
}

/* What follows is about @session's memory: a current context of another server's has nothing to do with it. */
static void call_about(struct call *call, struct session *session)
{
	if (!session || call->session == session)
		return;
	call->context = NULL;
	call_to(call, session);
}

static CUresult prop_check(struct call *call, const CUmemAllocationProp *prop, const struct device **device_out)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST || prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	    prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		return call_refuse(call, "host memory of the server is not the program's");
	*device_out = location_device(&prop->location);
	if (!*device_out)
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return call_refuse(call, "memory can be shared with other processes by file descriptor only");
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAllocationGranularity(struct call *call, size_t *granularity, const CUmemAllocationProp *prop,
					  CUmemAllocationGranularity_flags option)
{
	const struct device *device = NULL;
	CUresult result;

	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	result = prop_check(call, prop, &device);
	if (result)
		return result;
	*granularity = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ? device->raw->granularity :
								     device->raw->granularity_recommended;
	return CUDA_SUCCESS;
}

/* ---- physical memory ---- */

CUresult do_cuMemCreate(struct call *call, CUmemGenericAllocationHandle *handle, size_t size,
			const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct msg_gleamVmmCreate m = { .size = size };
	const struct device *device = NULL;
	struct vmm *vmm;
	CUresult result;

	if (!handle || !size || flags)
		return CUDA_ERROR_INVALID_VALUE;
	result = prop_check(call, prop, &device);
	if (result)
		return result;
	m.device = device->node_device;
	call_about(call, device->session);
	if (size % device->raw->granularity)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > DEVICE_SPAN)
		return CUDA_ERROR_OUT_OF_MEMORY;
	vmm = stable_take(&vmms);
	if (!vmm)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*vmm = (struct vmm){ .size = size, .prop = *prop, .node_device = m.device, .session = device->session, .refs = 1 };
	/* Physical memory belongs to no context: it outlives a reset. */
	vmm->handle = handle_new(OBJECT_VMM, NULL, vmm);
	if (!vmm->handle) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto give_vmm;
	}
	m.handle = vmm->handle;
	result = CALL_ASK(call, gleamVmmCreate, &m);
	if (result)
		goto end_handle;
	*handle = vmm->handle;
	session_memory_count(call->session, (int64_t)size);
	return CUDA_SUCCESS;

end_handle:
	handle_end(vmm->handle);
give_vmm:
	stable_give(&vmms, vmm);
	return result;
}

/* Nobody of the program holds it, and nothing is mapped: the worker can let go. */
static CUresult release_post(struct call *call, struct vmm *vmm)
{
	struct msg_gleamVmmRelease m = { .handle = vmm->handle };
	CUresult result;

	call_about(call, vmm->session);
	result = call_open(call, OP_gleamVmmRelease, msg_gleamVmmRelease_size(&m));

	if (result)
		return result;
	msg_gleamVmmRelease_put(&call->w, &m);
	call_post(call);
	if (!vmm->imported)
		session_memory_count(call->session, -(int64_t)vmm->size);
	stable_give(&vmms, handle_end(vmm->handle));
	return CUDA_SUCCESS;
}

static CUresult vmm_put(struct call *call, struct vmm *vmm, uint32_t *count)
{
	bool last;

	pthread_mutex_lock(&lock);
	if (!*count) {
		pthread_mutex_unlock(&lock);
		return CUDA_ERROR_INVALID_VALUE;
	}
	--*count;
	last = !vmm->refs && !vmm->maps;
	pthread_mutex_unlock(&lock);
	return last ? release_post(call, vmm) : CUDA_SUCCESS;
}

CUresult do_cuMemRelease(struct call *call, CUmemGenericAllocationHandle handle)
{
	struct vmm *vmm = vmm_of(handle);

	return vmm ? vmm_put(call, vmm, &vmm->refs) : CUDA_ERROR_INVALID_VALUE;
}

CUresult do_cuMemRetainAllocationHandle(struct call *call, CUmemGenericAllocationHandle *handle, void *addr)
{
	struct range range;
	struct vmm *vmm;

	if (!handle || !range_find((uint64_t)(uintptr_t)addr, &range) || range.kind != RANGE_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	vmm = range.owner;
	pthread_mutex_lock(&lock);
	vmm->refs++;
	pthread_mutex_unlock(&lock);
	*handle = vmm->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetAllocationPropertiesFromHandle(struct call *call, CUmemAllocationProp *prop,
						   CUmemGenericAllocationHandle handle)
{
	struct vmm *vmm = vmm_of(handle);

	if (!prop || !vmm)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = vmm->prop;
	return CUDA_SUCCESS;
}

/* ---- addresses ---- */

CUresult do_cuMemAddressReserve(struct call *call, CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
				unsigned long long flags)
{
	struct range range = { .kind = RANGE_RESERVED, .device = -1, .size = size };
	uint32_t unit = call->context ? call->context->unit : device_at(0)->unit;
	uint64_t align = alignment < PIECE_SMALL ? PIECE_SMALL : alignment;

	if (!ptr || !size || size % PIECE_SMALL || flags || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	range.start = memory_space_take(unit, size, align, addr);
	if (!range.start)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (range_add(&range)) {
		memory_space_give(range.start, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ptr = range.start;
	return CUDA_SUCCESS;
}

CUresult do_cuMemAddressFree(struct call *call, CUdeviceptr ptr, size_t size)
{
	struct range range;

	if (!range_find_reserved(ptr, &range) || range.start != ptr || range.size != size || range_overlaps(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (range_remove(ptr, true, NULL))
		return CUDA_ERROR_INVALID_VALUE;
	memory_space_give(ptr, size);
	return CUDA_SUCCESS;
}

CUresult do_cuMemMap(struct call *call, CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		     unsigned long long flags)
{
	struct msg_gleamVmmMap m = { .address = ptr, .size = size, .handle = handle };
	struct range range = { .start = ptr, .size = size, .kind = RANGE_MAPPED, .flags = RANGE_NO_ACCESS, .dev = ptr };
	struct range reserved;
	struct vmm *vmm = vmm_of(handle);
	CUresult result;

	if (!vmm || !size || flags || ptr % PIECE_SMALL || offset > vmm->size || size > vmm->size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	/* As the driver: a handle is mapped whole. */
	if (offset || size != vmm->size)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!range_find_reserved(ptr, &reserved) || ptr - reserved.start > reserved.size - size ||
	    size > reserved.size)
		return CUDA_ERROR_INVALID_VALUE;
	/* A worker has the ranges of its own devices. */
	if (session_of_unit(memory_unit(ptr)) != vmm->session)
		return call_refuse(call, "addresses that were reserved while a GPU of one server was current can't hold another server's memory");
	call_about(call, vmm->session);
	range.device = vmm->prop.location.id;
	range.handle_types = (uint32_t)vmm->prop.requestedHandleTypes;
	range.block_id = handle;
	range.owner = vmm;
	if (range_add(&range))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	vmm->maps++;
	pthread_mutex_unlock(&lock);
	result = call_open(call, OP_gleamVmmMap, msg_gleamVmmMap_size(&m));
	if (result)
		return result; /* the session has ended */
	msg_gleamVmmMap_put(&call->w, &m);
	call_post(call);
	return CUDA_SUCCESS;
}

/* Do mappings cover [ptr, ptr + size) exactly, each of them whole? */
static bool mappings_whole(uint64_t ptr, uint64_t size)
{
	struct range range;
	uint64_t at = ptr;

	if (!size || size > DEVICE_SPAN)
		return false;
	while (at < ptr + size) {
		if (!range_find(at, &range) || range.kind != RANGE_MAPPED || range.start != at ||
		    range.size > ptr + size - at)
			return false;
		at += range.size;
	}
	return true;
}

/* The next mapping that lies in [at, end), or ends behind @at. */
static bool mapping_next(uint64_t at, uint64_t end, struct range *range_out)
{
	return at < end && range_find_next(at, range_out) && range_out->start < end;
}

/* The driver takes gaps, and ends that are no multiples of pages, as long as no mapping is cut. */
CUresult do_cuMemUnmap(struct call *call, CUdeviceptr ptr, size_t size)
{
	uint64_t end = ptr + size;
	CUresult result = CUDA_SUCCESS;
	struct range range, reserved;
	bool any = false;

	if (!size || size > DEVICE_SPAN || !range_find_reserved(ptr, &reserved))
		return CUDA_ERROR_INVALID_VALUE;
	if (end > reserved.start + reserved.size)
		end = reserved.start + reserved.size;
	for (uint64_t at = ptr; mapping_next(at, end, &range); at = range.start + range.size, any = true)
		if (range.kind != RANGE_MAPPED || range.start < ptr || range.start + range.size > end)
			return CUDA_ERROR_INVALID_VALUE;
	if (!any)
		return CUDA_SUCCESS;
	if (session_of_unit(memory_unit(ptr)) != call->session)
		call_in(call, context_primary(device_of_unit(memory_unit(ptr))));
	if (call->context && __atomic_load_n(&call->context->active, __ATOMIC_ACQUIRE)) {
		result = context_wait(call);
		if (result)
			return result;
	}
	for (uint64_t at = ptr; mapping_next(at, end, &range); at = range.start + range.size) {
		struct msg_gleamVmmUnmap m = { .address = range.start, .size = range.size };

		result = CALL_SEND(call, gleamVmmUnmap, &m);
		if (result)
			return result;
		if (range_remove(range.start, false, &range))
			break;
		vmm_put(call, range.owner, &((struct vmm *)range.owner)->maps);
	}
	return CUDA_SUCCESS;
}

/* Can @device reach what is mapped there? Its own memory, and that of a peer. */
static bool mappings_in_reach(const struct call *call, uint64_t ptr, uint64_t size, int device)
{
	struct range range;

	for (uint64_t at = ptr; at < ptr + size && range_find(at, &range); at = range.start + range.size)
		if (range.device != device && range.device >= 0 && !peer_possible(call, device, range.device))
			return false;
	return true;
}

static void mappings_note(uint64_t ptr, uint64_t size, int device, uint32_t access)
{
	struct range range;

	for (uint64_t at = ptr; at < ptr + size && range_find(at, &range); at = range.start + range.size) {
		range_access(at, device, access);
		/* Questions about the pointer alone are about the memory's own device. */
		if (range.device == device)
			range_flags(at, RANGE_NO_ACCESS | RANGE_READ_ONLY,
				    access == CU_MEM_ACCESS_FLAGS_PROT_NONE ? RANGE_NO_ACCESS :
				    access == CU_MEM_ACCESS_FLAGS_PROT_READ ? RANGE_READ_ONLY :
									      0);
	}
}

CUresult do_cuMemSetAccess(struct call *call, CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct msg_gleamVmmAccess m = { .address = ptr, .size = size };
	CUresult result = CUDA_SUCCESS;

	if (!desc || !count || !mappings_whole(ptr, size))
		return CUDA_ERROR_INVALID_VALUE;
	call_about(call, session_of_unit(memory_unit(ptr)));
	for (size_t i = 0; i < count && !result; i++) {
		const struct device *device = location_device(&desc[i].location);

		if (!device)
			return desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE :
										       CUDA_ERROR_NOT_SUPPORTED;
		m.device = device->node_device;
		m.access = desc[i].flags;
		if (m.access != CU_MEM_ACCESS_FLAGS_PROT_NONE && m.access != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    m.access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		if (m.access != CU_MEM_ACCESS_FLAGS_PROT_NONE && !mappings_in_reach(call, ptr, size, desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		/* Taking away what another server's device can't have. */
		if (device->session != call->session)
			continue;
		result = call_open(call, OP_gleamVmmAccess, msg_gleamVmmAccess_size(&m));
		if (result)
			break;
		msg_gleamVmmAccess_put(&call->w, &m);
		call_post(call);
		mappings_note(ptr, size, desc[i].location.id, m.access);
	}
	return result;
}

CUresult do_cuMemGetAccess(struct call *call, unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
	struct range range;

	if (!flags || !location || !range_find(ptr, &range) || range.kind != RANGE_MAPPED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!location_device(location))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = range.access >> 2 * location->id & 3;
	return CUDA_SUCCESS;
}

/* ---- between processes ---- */

/* Descriptors alone: what their file says is a token, and the memory stays where it is. */
CUresult do_cuMemExportToShareableHandle(struct call *call, void *shareableHandle, CUmemGenericAllocationHandle handle,
					 CUmemAllocationHandleType handleType, unsigned long long flags)
{
	struct vmm *vmm = vmm_of(handle);
	struct share_token token;
	CUresult result;
	int fd;

	if (!shareableHandle || !vmm || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return call_refuse(call, "memory can be shared with other processes by file descriptor only");
	if (!(vmm->prop.requestedHandleTypes & handleType))
		return CUDA_ERROR_INVALID_VALUE;
	if (vmm->imported)
		return call_refuse(call, "memory of another program is that program's to share");
	call_about(call, vmm->session);
	result = share_handle(call, handle, vmm->size, vmm->node_device, &token);
	if (!result)
		result = share_fd_make(&token, &fd);
	if (!result)
		memcpy(shareableHandle, &fd, sizeof(fd));
	return result;
}

CUresult do_cuMemImportFromShareableHandle(struct call *call, CUmemGenericAllocationHandle *handle, void *osHandle,
					   CUmemAllocationHandleType shHandleType)
{
	struct share_token token;
	struct vmm *vmm;
	CUresult result;
	int device;

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return call_refuse(call, "memory can be shared with other processes by file descriptor only");
	if (!share_fd_read((int)(intptr_t)osHandle, &token) || token.kind != SHARE_HANDLE)
		return CUDA_ERROR_INVALID_VALUE;
	vmm = stable_take(&vmms);
	if (!vmm)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*vmm = (struct vmm){ .refs = 1, .imported = true };
	vmm->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	vmm->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	vmm->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	vmm->handle = handle_new(OBJECT_VMM, NULL, vmm);
	if (!vmm->handle) {
		stable_give(&vmms, vmm);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = share_fetch(call, &token, vmm->handle, &vmm->size, &device);
	if (result) {
		handle_end(vmm->handle);
		stable_give(&vmms, vmm);
		return result;
	}
	/* A GPU that this program doesn't see has no number here: its memory counts as the current device's, which maps it. */
	if (device < 0)
		device = call->context ? call->context->device : 0;
	vmm->prop.location.id = device;
	vmm->node_device = device_at(device)->node_device;
	vmm->session = call->session;
	*handle = vmm->handle;
	return CUDA_SUCCESS;
}

CUresult do_cuMemGetHandleForAddressRange(struct call *call, void *handle, CUdeviceptr dptr, size_t size,
					  CUmemRangeHandleType handleType, unsigned long long flags)
{
	return call_refuse(call, "devices on this machine can't reach a GPU of another (dma-buf)");
}
