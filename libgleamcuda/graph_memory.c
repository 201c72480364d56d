// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of allocation nodes. Its address is chosen when the node is made and stays; physical memory is there as long as
 * the graph or anything made of it, and while the program holds what a launch has allocated. Natively the driver shares
 * physical memory between graphs that don't run at once; here each has its own, which only costs memory. Any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "gen/bodies.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/graph.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"

struct graph_memory {
	struct graph_memory *next; /* in memories, or in dead */
	uint64_t address;
	uint64_t size;
	void *owner; /* memory_give()'s */
	int device;
	struct context *context;
	uint32_t refs;
	bool live; /* a launch has allocated it and nothing has freed it since; counted as a reference */
};

/* all guarded by graph_lock(), but @any, which is read without it */
static struct graph_memory *memories;
static struct graph_memory *dead;
static uint32_t any;
static struct {
	uint64_t used, used_high;
	uint64_t reserved, reserved_high;
} books[SNAPSHOT_DEVICES];

CUresult graph_memory_new(struct call *call, int device, uint64_t size, struct graph_memory **memory_out)
{
	struct graph_memory *memory;
	struct range range = { .size = size, .kind = RANGE_DEVICE, .device = device };
	CUresult result;

	if (!size || device < 0 || device >= device_count())
		return CUDA_ERROR_INVALID_VALUE;
	if (call->context->device != device)
		return call_refuse(call, "a graph's memory on a device other than the current one is not built yet");
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->size = size;
	memory->device = device;
	memory->context = call->context;
	memory->refs = 1;
	result = memory_take(call, size, &memory->address, &memory->owner);
	if (result)
		goto free_memory;
	range.start = range.dev = memory->address;
	range.owner = memory;
	if (range_add(&range)) {
		result = CUDA_ERROR_OUT_OF_MEMORY;
		goto give;
	}
	graph_lock();
	memory->next = memories;
	memories = memory;
	__atomic_fetch_add(&any, 1, __ATOMIC_RELAXED);
	books[device].reserved += size;
	if (books[device].reserved > books[device].reserved_high)
		books[device].reserved_high = books[device].reserved;
	graph_unlock();
	*memory_out = memory;
	return CUDA_SUCCESS;

give:
	memory_give(call, memory->address, size, memory->owner);
free_memory:
	free(memory);
	return result;
}

uint64_t graph_memory_address(const struct graph_memory *memory)
{
	return memory->address;
}

void graph_memory_get(struct graph_memory *memory)
{
	memory->refs++;
}

void graph_memory_put(struct graph_memory *memory)
{
	struct graph_memory **link = &memories;

	if (--memory->refs)
		return;
	while (*link != memory)
		link = &(*link)->next;
	*link = memory->next;
	memory->next = dead;
	dead = memory;
	books[memory->device].reserved -= memory->size;
}

void graph_memory_sweep(struct call *call)
{
	struct graph_memory *list;

	if (!__atomic_load_n(&any, __ATOMIC_RELAXED))
		return;
	graph_lock();
	list = dead;
	dead = NULL;
	graph_unlock();
	while (list) {
		struct graph_memory *memory = list;
		struct call giving;

		list = memory->next;
		range_remove(memory->address, false, NULL);
		call_start(&giving, memory->context->session, memory->context);
		memory_give(&giving, memory->address, memory->size, memory->owner);
		call_leave(&giving, CUDA_SUCCESS);
		__atomic_fetch_sub(&any, 1, __ATOMIC_RELAXED);
		free(memory);
	}
}

struct graph_memory *graph_memory_find(uint64_t address)
{
	struct graph_memory *memory = memories;

	while (memory && memory->address != address)
		memory = memory->next;
	return memory;
}

bool graph_memory_is_live(const struct graph_memory *memory)
{
	return memory->live;
}

void graph_memory_set_live(struct graph_memory *memory, bool live)
{
	uint64_t *used = &books[memory->device].used;

	if (memory->live == live)
		return;
	memory->live = live;
	if (live) {
		memory->refs++;
		*used += memory->size;
		if (*used > books[memory->device].used_high)
			books[memory->device].used_high = *used;
	} else {
		*used -= memory->size;
		graph_memory_put(memory);
	}
}

bool graph_memory_has(uint64_t address)
{
	bool has;

	graph_lock();
	has = graph_memory_find(address) != NULL;
	graph_unlock();
	return has;
}

bool graph_memory_free(uint64_t address, CUresult *result_out)
{
	struct graph_memory *memory;

	if (!__atomic_load_n(&any, __ATOMIC_RELAXED))
		return false;
	graph_lock();
	memory = graph_memory_find(address);
	if (memory) {
		*result_out = memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
		graph_memory_set_live(memory, false);
	}
	graph_unlock();
	return memory != NULL;
}

/* ---- attributes of a device ---- */

CUresult do_cuDeviceGetGraphMemAttribute(struct call *call, CUdevice device, CUgraphMem_attribute attr, void *value)
{
	uint64_t number;

	if (device < 0 || device >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	graph_lock();
	switch (attr) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		number = books[device].used;
		break;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		number = books[device].used_high;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		number = books[device].reserved;
		break;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		number = books[device].reserved_high;
		break;
	default:
		graph_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	graph_unlock();
	memcpy(value, &number, sizeof(number));
	return CUDA_SUCCESS;
}

CUresult do_cuDeviceSetGraphMemAttribute(struct call *call, CUdevice device, CUgraphMem_attribute attr, void *value)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t number;

	if (device < 0 || device >= device_count())
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	/* A high-water mark can only be put back, to what is there now. */
	memcpy(&number, value, sizeof(number));
	graph_lock();
	if (number)
		result = CUDA_ERROR_INVALID_VALUE;
	else if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
		books[device].used_high = books[device].used;
	else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		books[device].reserved_high = books[device].reserved;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	graph_unlock();
	return result;
}

/* Nothing is kept beyond what graphs hold: there is nothing to trim. */
CUresult do_cuDeviceGraphMemTrim(struct call *call, CUdevice device)
{
	return device < 0 || device >= device_count() ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
