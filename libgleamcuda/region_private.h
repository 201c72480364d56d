/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of managed memory share: region.c (which regions there are, and who has their pages), region_push.c (what the host has
 * written goes out), region_bring.c (what it touches comes). Functions that end in _locked want region_lock(). See region.h.
 */
#ifndef GLEAM_REGION_PRIVATE_H
#define GLEAM_REGION_PRIVATE_H

#include <stddef.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/region.h"
#include "libgleamcuda/track.h"

#define PAGE TRACK_PAGE

enum page_state {
	PAGE_FRESH = 1, /* the host has it; otherwise it is stale, and can't be touched */
	PAGE_DIRTY = 2, /* written since it was fresh; only where the kernel doesn't track */
};

/* Memory of the program in a region: what is copied. The rest of its pages is nobody's. */
struct part {
	struct part *next;
	uint64_t start, size;
	uint64_t whole, whole_size; /* what was opened: it may have parts in several regions */
};

struct region {
	uint64_t start;
	uint64_t pages;
	uint8_t *alias; /* the second mapping, always accessible */
	struct context *context;
	struct part *parts;
	uint8_t *state; /* enum page_state of each page */
	uint64_t fresh_from, fresh_end; /* pages outside are stale; equal: all are, and it isn't in the list */
	struct region *fresh_next, *fresh_before;
	int fd;	      /* -1, or of memory whose holes tell what was never written: until it is first taken, without tracking */
	bool ours;    /* addresses that the library has reserved */
	bool tracked;
	enum region_attach attach;
	uint64_t stream; /* of REGION_STREAM */
	uint64_t next;	 /* page after the last that was brought */
	uint32_t window;
	struct {
		uint64_t from, end; /* pages; equal: none */
		uint32_t word;	    /* progress word and number that have to be reached */
		uint64_t seq;
		bool quiet; /* instead: when all work of its context is done */
	} wish;
};

struct region_books {
	/* guarded by the lock */
	struct region **table; /* by address; region_count of them */
	uint32_t room;
	struct region *fresh; /* those with pages that the host has */
	/* atomic: the list `fresh` has entries */
	uint32_t fresh_any;
};
extern struct region_books region_books;

void region_lock(void);
void region_unlock(void);
/* This thread holds the lock: waits inside of it bring nothing. */
extern __thread bool region_inside;

static inline uint64_t region_page(const struct region *r, uint64_t address)
{
	return (address - r->start) / PAGE;
}

static inline uint64_t region_address(const struct region *r, uint64_t page)
{
	return r->start + page * PAGE;
}

/* Index of the first region that ends behind @address. */
uint32_t region_place_locked(uint64_t address);
struct region *region_find_locked(uint64_t address); /* NULL: it is in none */

/* The host has these pages, in @state; has them no more. */
void region_fresh_locked(struct region *r, uint64_t from, uint64_t end, uint8_t state);
void region_stale_locked(struct region *r, uint64_t from, uint64_t end);
/* As mprotect(). False: the system gives no more mappings. */
bool region_protect(const struct region *r, uint64_t from, uint64_t end, int how);
void region_wish_end_locked(struct region *r);

/* Calls @each for what of the pages belongs to somebody; its first failure. */
CUresult region_parts_each(struct region *r, uint64_t from, uint64_t end,
			   CUresult (*each)(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream),
			   struct call *call, uint64_t stream);
/* From the device; waits. */
CUresult region_bytes_down(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream);

/* Bringing has a stream of its own in each context, which waits for no other: made, and found. */
CUresult region_side_make(struct call *call);
bool region_side_locked(struct call *call, uint64_t *stream_out);

#endif
