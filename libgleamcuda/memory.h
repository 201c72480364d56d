/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: addresses are chosen here, physical pieces come from the worker in grants, so an allocation within the
 * grant costs no trip. Freed memory comes back when the work issued before has completed. Any thread.
 */
#ifndef GLEAM_MEMORY_H
#define GLEAM_MEMORY_H

#include <stdint.h>

#include "broker/lib/codec.h"
#include "broker/proto/cuda_abi.h"
#include "broker/proto/space.h"

struct call;
struct context;
struct session;

#define DEVICE_BASE   SPACE_DEVICE
#define DEVICE_SPAN   SPACE_SPAN
#define PIECE_SMALL   (2ull << 20)
#define MEMORY_ALIGN  512u	 /* of every allocation, as the driver's */
#define MEMORY_PAGE   4096u	 /* of the host: managed memory shares none */
#define SLAB_LIMIT    (1u << 20) /* smaller allocations share a piece */

/* Reserve the addresses of @count units in this process, where that isn't done yet; called by cuInit. */
CUresult memory_start(uint32_t first, uint32_t count);
/* @size bytes in the call's context. */
CUresult memory_alloc(struct call *call, uint64_t size, uint64_t *address_out);
CUresult memory_free(struct call *call, uint64_t address);

/*
 * The same without a range in the map, for pools: @owner_out names what memory_give() takes back, together with what
 * memory_take() was asked. Given memory is used again when the work issued before has completed.
 */
CUresult memory_take(struct call *call, uint64_t size, uint64_t *address_out, void **owner_out);
/* The same at a multiple of MEMORY_PAGE, which @size is one of. */
CUresult memory_take_pages(struct call *call, uint64_t size, uint64_t *address_out, void **owner_out);
CUresult memory_give(struct call *call, uint64_t address, uint64_t size, void *owner);

/* Where the mapping begins that holds the allocation at @start, which the worker knows it by; 0: there is none. */
uint64_t memory_block(uint64_t start);

/* Service thread: NOTICE_FREED, NOTICE_RECALL. */
void memory_freed(struct session *s, struct reader *r);
void memory_recall(struct session *s, uint32_t device, uint64_t bytes);
/* A context ends: everything that was allocated in it is freed. */
void memory_context_closed(struct context *context);

/* A range of addresses of a unit for something else that maps memory there; 0: none. */
uint64_t memory_space_take(uint32_t unit, uint64_t size, uint64_t align, uint64_t hint);
void memory_space_give(uint64_t address, uint64_t size);

/* The unit whose range @address lies in; a number that no device has for any other address. */
static inline uint64_t memory_unit(uint64_t address)
{
	return address < DEVICE_BASE ? UINT64_MAX : (address - DEVICE_BASE) / DEVICE_SPAN;
}

#endif
