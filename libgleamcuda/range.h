/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The range map: every piece of device and page-locked host memory that the program got through Gleam, by address.
 * Whoever makes memory adds its range, whoever frees it removes it; pointer questions and checks of copies read.
 * Any thread; readers share a lock, writers exclude them for the time of one tree operation.
 */
#ifndef GLEAM_RANGE_H
#define GLEAM_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct context;

enum range_kind {
	RANGE_DEVICE,	       /* cuMemAlloc and its kin, pools too (pool says which) */
	RANGE_MAPPED,	       /* cuMemMap: device memory that belongs to no context */
	RANGE_RESERVED,	       /* cuMemAddressReserve; what is mapped inside is removed and added apart, see range_add() */
	RANGE_GLOBAL,	       /* a variable of a module: an address that the driver chose */
	RANGE_HOST_MADE,       /* cuMemHostAlloc */
	RANGE_HOST_REGISTERED, /* cuMemHostRegister */
	RANGE_MANAGED,	       /* cuMemAllocManaged, __managed__ variables */
};

enum range_flag {
	RANGE_SYNC_MEMOPS = 1, /* cuPointerSetAttribute */
	RANGE_IPC = 2,	       /* may be exported with cuIpcGetMemHandle */
	RANGE_READ_ONLY = 4,   /* the device may not write it */
	RANGE_FREEING = 8,     /* cuMemFreeAsync has been called; still there until its stream has come so far */
	RANGE_NO_ACCESS = 16,  /* mapped, but cuMemSetAccess has given nobody access yet */
	RANGE_SHARED = 64,	/* another program's memory (share.c) */
	RANGE_HOST_PLACED = 32, /* cuMemCreate with a host location */
	RANGE_PAGES = 128,	/* made host memory that the worker of this machine has mapped, too (pages.h) */
	RANGE_VARIABLE = 64,	/* managed memory that is a variable of a module: not to be freed */
};

/* A copy of what the map holds: nothing in it has to be released. */
struct range {
	uint64_t start; /* the address that the program knows it by: host address of host and managed memory */
	uint64_t size;	/* as asked for */
	enum range_kind kind;
	uint32_t flags;	 /* enum range_flag */
	int device;	 /* ordinal as the program sees it; -1 where none is tied to it */
	uint32_t access; /* of mapped memory: two bits per device as the program counts, CUmemAccess_flags */
	uint32_t handle_types; /* CUmemAllocationHandleType bits of mapped and pool memory */
	struct context *context; /* NULL for mapped memory and pools */
	uint64_t buffer_id; /* range_add() gives the next one where this is 0; never used again */
	uint64_t block_id;  /* of the physical memory, if it may be mapped more than once; 0: the same as buffer_id */
	uint64_t host;	    /* address for the host, 0: it has none */
	uint64_t dev;	    /* address for the device, 0: it has none */
	uint64_t pool;	    /* handle of the memory pool, or 0 */
	void *owner;	    /* whatever the maker wants to find again */
};

/*
 * Add a range; @range->buffer_id is filled in if it was 0. Memory with a device address that differs from its start is
 * found by that one too. -EEXIST if it overlaps another range, -EINVAL if it is empty or wraps, -ENOMEM. A range may be
 * added inside a RANGE_RESERVED one: look-ups prefer it.
 */
int range_add(struct range *range);
/* Remove what begins exactly at @start (@reserved: the reservation that does). -ENOENT. @range_out may be NULL. */
int range_remove(uint64_t start, bool reserved, struct range *range_out);
/* The range that holds @address; a reservation only where nothing is mapped. False if there is none. */
bool range_find(uint64_t address, struct range *range_out);
/* The reservation that holds @address. */
bool range_find_reserved(uint64_t address, struct range *range_out);
/* The first range (no reservation) that ends after @address: it holds the address or lies above it. */
bool range_find_next(uint64_t address, struct range *range_out);
/* True if [address, address + size) overlaps any range that isn't a reservation. */
bool range_overlaps(uint64_t address, uint64_t size);
/* Clear and set flags of the range that begins at @start. -ENOENT. */
int range_flags(uint64_t start, uint32_t clear, uint32_t set);
/* Set what device @device may do with the mapped range that begins at @start: CUmemAccess_flags. -ENOENT. */
int range_access(uint64_t start, int device, uint32_t access);
/* Give the range that begins at @start its device address (mapping that was put off). -ENOENT, -EEXIST. */
int range_place(uint64_t start, uint64_t dev);
/* Remove all ranges of @context and hand each to @each (NULL is fine), outside of the lock. Returns their number. */
size_t range_remove_context(const struct context *context, void (*each)(const struct range *range));
/* How many ranges there are, reservations included. */
size_t range_count(void);

#endif
