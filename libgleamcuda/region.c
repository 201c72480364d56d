// SPDX-License-Identifier: Apache-2.0
/*
 * Managed memory: which regions there are, and who has their pages; see region.h for the rules and the threads. Regions are kept in the
 * order of their addresses; those with pages that the host has are in a list of their own, so that a launch looks at nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libgleamcuda/context.h"
#include "libgleamcuda/region_private.h"
#include "libgleamcuda/segv.h"
#include "libgleamcuda/session.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

uint32_t region_count;
uint32_t region_wishes;

struct region_books region_books;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__thread bool region_inside;

void region_lock(void)
{
	pthread_mutex_lock(&lock);
	region_inside = true;
}

void region_unlock(void)
{
	region_inside = false;
	pthread_mutex_unlock(&lock);
}

/* ---- finding ---- */

/* Index of the first region that ends behind @address. */
uint32_t region_place_locked(uint64_t address)
{
	uint32_t from = 0, end = region_count;

	while (from < end) {
		uint32_t middle = from + (end - from) / 2;

		if (region_books.table[middle]->start + region_books.table[middle]->pages * PAGE <= address)
			from = middle + 1;
		else
			end = middle;
	}
	return from;
}

struct region *region_find_locked(uint64_t address)
{
	uint32_t at = region_place_locked(address);

	return at < region_count && region_books.table[at]->start <= address ? region_books.table[at] : NULL;
}

/* ---- states ---- */

static void fresh_unlink_locked(struct region *r)
{
	if (r->fresh_before)
		r->fresh_before->fresh_next = r->fresh_next;
	else
		region_books.fresh = r->fresh_next;
	if (r->fresh_next)
		r->fresh_next->fresh_before = r->fresh_before;
	r->fresh_next = r->fresh_before = NULL;
	__atomic_store_n(&region_books.fresh_any, region_books.fresh != NULL, __ATOMIC_RELEASE);
}

void region_fresh_locked(struct region *r, uint64_t from, uint64_t end, uint8_t state)
{
	memset(r->state + from, state, end - from);
	if (r->fresh_from == r->fresh_end) {
		r->fresh_from = from;
		r->fresh_end = end;
		r->fresh_next = region_books.fresh;
		if (region_books.fresh)
			region_books.fresh->fresh_before = r;
		region_books.fresh = r;
		__atomic_store_n(&region_books.fresh_any, 1, __ATOMIC_RELEASE);
		return;
	}
	if (from < r->fresh_from)
		r->fresh_from = from;
	if (end > r->fresh_end)
		r->fresh_end = end;
}

void region_stale_locked(struct region *r, uint64_t from, uint64_t end)
{
	if (r->fresh_from == r->fresh_end)
		return;
	memset(r->state + from, 0, end - from);
	while (r->fresh_from < r->fresh_end && !r->state[r->fresh_from])
		r->fresh_from++;
	while (r->fresh_from < r->fresh_end && !r->state[r->fresh_end - 1])
		r->fresh_end--;
	if (r->fresh_from == r->fresh_end)
		fresh_unlink_locked(r);
}

bool region_protect(const struct region *r, uint64_t from, uint64_t end, int how)
{
	return from == end || !mprotect((void *)(uintptr_t)region_address(r, from), (end - from) * PAGE, how);
}

void region_wish_end_locked(struct region *r)
{
	if (r->wish.from == r->wish.end)
		return;
	r->wish.from = r->wish.end = 0;
	__atomic_sub_fetch(&region_wishes, 1, __ATOMIC_RELAXED);
}

/* ---- attachment ---- */

CUresult region_attach(uint64_t start, enum region_attach attach, uint64_t stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct region *r;

	region_lock();
	r = region_find_locked(start);
	if (r && r->start == start && r->ours) {
		r->attach = attach;
		r->stream = stream;
		result = CUDA_SUCCESS;
	}
	region_unlock();
	return result;
}

void region_stream_gone(uint64_t stream)
{
	region_lock();
	for (uint32_t i = 0; i < region_count; i++)
		if (region_books.table[i]->attach == REGION_STREAM && region_books.table[i]->stream == stream)
			region_books.table[i]->attach = REGION_GLOBAL;
	region_unlock();
}

/* ---- birth and death ---- */

static void unmap(const struct region *r)
{
	void *at = (void *)(uintptr_t)r->start;

	if (r->ours)
		mmap(at, r->pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap(at, r->pages * PAGE);
}

static void region_free(struct region *r)
{
	if (r->tracked)
		track_end(r->start, r->pages * PAGE);
	unmap(r);
	munmap(r->alias, r->pages * PAGE);
	if (r->fd >= 0)
		close(r->fd);
	free(r->state);
	free(r);
}

static CUresult region_new(struct context *context, uint64_t start, uint64_t pages, bool ours, bool filled,
			   struct region **region_out)
{
	struct region *r = calloc(1, sizeof(*r));
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	void *want = (void *)(uintptr_t)start, *at;

	if (!r)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*r = (struct region){ .start = start, .pages = pages, .context = context, .ours = ours };
	r->state = calloc(1, pages);
	r->fd = memfd_create("gleam-managed", MFD_CLOEXEC);
	if (!r->state || r->fd < 0 || ftruncate(r->fd, (off_t)(pages * PAGE)))
		goto free_region;
	r->alias = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->fd, 0);
	if (r->alias == MAP_FAILED)
		goto free_region;
	at = mmap(want, pages * PAGE, filled ? PROT_NONE : PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_NORESERVE | (ours ? MAP_FIXED : MAP_FIXED_NOREPLACE), r->fd, 0);
	if (at != want) {
		if (at != MAP_FAILED)
			munmap(at, pages * PAGE);
		else if (errno == EEXIST)
			result = CUDA_ERROR_NOT_SUPPORTED;
		goto free_alias;
	}
	/* Natively a child finds none of it either, and what it wrote would be ours. */
	madvise(want, pages * PAGE, MADV_DONTFORK);
	madvise(r->alias, pages * PAGE, MADV_DONTFORK);
	r->tracked = track_begin(start, pages * PAGE);
	if (r->tracked || filled) {
		close(r->fd);
		r->fd = -1;
	}
	*region_out = r;
	return CUDA_SUCCESS;

free_alias:
	munmap(r->alias, pages * PAGE);
free_region:
	if (r->fd >= 0)
		close(r->fd);
	free(r->state);
	free(r);
	return result;
}

static bool part_add(struct region *r, uint64_t whole, uint64_t whole_size)
{
	struct part *p = calloc(1, sizeof(*p));
	uint64_t end = whole + whole_size, last = r->start + r->pages * PAGE;

	if (!p)
		return false;
	p->whole = whole;
	p->whole_size = whole_size;
	p->start = whole > r->start ? whole : r->start;
	p->size = (end < last ? end : last) - p->start;
	p->next = r->parts;
	r->parts = p;
	return true;
}

static bool room_make_locked(void)
{
	struct region **more;

	if (region_count < region_books.room)
		return true;
	more = realloc(region_books.table, (region_books.room ? region_books.room * 2 : 64) * sizeof(struct region *));
	if (!more)
		return false;
	region_books.table = more;
	region_books.room = region_books.room ? region_books.room * 2 : 64;
	return true;
}

/* A part more of a region that is there: its pages may be the host's already. */
static CUresult share_locked(struct region *r, uint64_t start, uint64_t size)
{
	struct part *p;

	if (!part_add(r, start, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = r->parts;
	for (uint64_t page = region_page(r, p->start); page <= region_page(r, p->start + p->size - 1); page++) {
		uint64_t low = region_address(r, page) > p->start ? region_address(r, page) : p->start;
		uint64_t high = region_address(r, page + 1) < p->start + p->size ? region_address(r, page + 1) : p->start + p->size;
		struct call call;
		uint64_t stream;

		if (!r->state[page])
			continue;
		call_start(&call, r->context->session, r->context);
		if (region_side_locked(&call, &stream))
			region_bytes_down(&call, r, low, high - low, stream);
		call_leave(&call, CUDA_SUCCESS);
	}
	return CUDA_SUCCESS;
}

static CUresult fresh_region_locked(struct call *call, uint64_t from, uint64_t end, uint64_t start, uint64_t size, bool ours,
				    bool filled)
{
	struct region *r;
	uint32_t at;
	CUresult result = room_make_locked() ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!result)
		result = region_new(call->context, from, (end - from) / PAGE, ours, filled, &r);
	if (result)
		return result;
	if (!part_add(r, start, size)) {
		region_free(r);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	at = region_place_locked(from);
	memmove(region_books.table + at + 1, region_books.table + at, (region_count - at) * sizeof(struct region *));
	region_books.table[at] = r;
	__atomic_add_fetch(&region_count, 1, __ATOMIC_RELEASE);
	if (!filled)
		region_fresh_locked(r, 0, r->pages, PAGE_FRESH);
	return CUDA_SUCCESS;
}

CUresult region_open(struct call *call, uint64_t start, uint64_t size, bool ours, bool filled)
{
	uint64_t at = start & ~(PAGE - 1), end = (start + size + PAGE - 1) & ~(PAGE - 1);
	CUresult result = region_side_make(call);

	if (result)
		return result;
	segv_install();
	region_lock();
	while (at < end && !result) {
		uint32_t i = region_place_locked(at);
		struct region *r = i < region_count ? region_books.table[i] : NULL;

		if (r && r->start <= at) {
			result = share_locked(r, start, size);
			at = r->start + r->pages * PAGE;
		} else {
			uint64_t stop = r && r->start < end ? r->start : end;

			result = fresh_region_locked(call, at, stop, start, size, ours, filled);
			at = stop;
		}
	}
	region_unlock();
	if (result)
		region_close(start);
	return result;
}

static bool part_remove(struct region *r, uint64_t whole, uint64_t *size_out)
{
	for (struct part **at = &r->parts; *at; at = &(*at)->next) {
		struct part *p = *at;

		if (p->whole != whole)
			continue;
		*size_out = p->whole_size;
		*at = p->next;
		free(p);
		return true;
	}
	return false;
}

void region_close(uint64_t start)
{
	uint64_t size = 1;

	region_lock();
	for (uint32_t i = region_place_locked(start); i < region_count && region_books.table[i]->start < start + size;) {
		struct region *r = region_books.table[i];

		if (!part_remove(r, start, &size) || r->parts) {
			i++;
			continue;
		}
		region_stale_locked(r, 0, r->pages);
		region_wish_end_locked(r);
		memmove(region_books.table + i, region_books.table + i + 1, (region_count - i - 1) * sizeof(struct region *));
		__atomic_sub_fetch(&region_count, 1, __ATOMIC_RELEASE);
		region_free(r);
	}
	region_unlock();
}
