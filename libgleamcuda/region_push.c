// SPDX-License-Identifier: Apache-2.0
/*
 * Managed memory: what the host has written goes out before a command that lets the device reach it, and the device has the pages from
 * then on. See region.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/region_private.h"
#include "libgleamcuda/segv.h"
#include "libgleamcuda/stream.h"

#define RUNS 16

/* atomic: somebody sends the host's bytes, and other streams don't know yet that they come after those. Set before fresh_any falls. */
static uint32_t giving;

/* GLEAM_MANAGED=eager: everything is brought by waits, for programs that give managed memory to system calls. */
static bool is_eager(void)
{
	static int8_t eager = -1; /* atomic */
	int8_t value = __atomic_load_n(&eager, __ATOMIC_RELAXED);

	if (value < 0) {
		const char *text = secure_getenv("GLEAM_MANAGED");

		value = text && !strcmp(text, "eager");
		__atomic_store_n(&eager, value, __ATOMIC_RELAXED);
	}
	return value;
}

CUresult region_parts_each(struct region *r, uint64_t from, uint64_t end,
			   CUresult (*each)(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream),
			   struct call *call, uint64_t stream)
{
	uint64_t low = region_address(r, from), high = region_address(r, end);
	CUresult result = CUDA_SUCCESS;

	for (struct part *p = r->parts; p && !result; p = p->next) {
		uint64_t start = p->start > low ? p->start : low;
		uint64_t stop = p->start + p->size < high ? p->start + p->size : high;

		if (start < stop)
			result = each(call, r, start, stop - start, stream);
	}
	return result;
}

static CUresult bytes_up(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream)
{
	struct copy c = { .dst = address, .src = (uint64_t)(uintptr_t)(r->alias + (address - r->start)), .width = size,
			  .rows = 1, .dst_place = PLACE_DEVICE, .src_place = PLACE_PAGEABLE, .stream = stream, .async = true };

	return copy_bytes_up(call, &c);
}

/* What was written of pages whose holes tell it. */
static CUresult virgin_push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream)
{
	CUresult result = CUDA_SUCCESS;
	off_t at = (off_t)(from * PAGE), last = (off_t)(end * PAGE);

	while (at < last && !result) {
		off_t data = lseek(r->fd, at, SEEK_DATA);
		off_t hole;

		if (data < 0 || data >= last)
			break; /* ENXIO: holes to the end */
		hole = lseek(r->fd, data, SEEK_HOLE);
		if (hole < 0 || hole > last)
			hole = last;
		result = region_parts_each(r, (uint64_t)data / PAGE, ((uint64_t)hole + PAGE - 1) / PAGE, bytes_up, call, stream);
		at = hole;
	}
	return result;
}

/* The end of the run of fresh pages that begins at @from or later; @from is moved to its beginning. */
static uint64_t fresh_run(const struct region *r, uint64_t *from, uint64_t end)
{
	uint64_t run;

	while (*from < end && !r->state[*from])
		++*from;
	for (run = *from; run < end && r->state[run];)
		run++;
	return run;
}

static CUresult fresh_push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint64_t run; !result && (run = fresh_run(r, &from, end)) > from; from = run)
		result = region_parts_each(r, from, run, bytes_up, call, stream);
	return result;
}

static bool fresh_protect_locked(const struct region *r, uint64_t from, uint64_t end, int how)
{
	for (uint64_t run; (run = fresh_run(r, &from, end)) > from; from = run)
		if (!region_protect(r, from, run, how))
			return false;
	return true;
}

static CUresult tracked_push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream,
				    uint64_t *sent)
{
	uint64_t at = region_address(r, from), stop = region_address(r, end);
	CUresult result = CUDA_SUCCESS;

	while (at < stop && !result) {
		struct track_run runs[RUNS];
		int count = track_written(at, stop, runs, RUNS, &at);

		if (count < 0) {
			gleam_log("written pages of managed memory: %s; from now on by faults", strerror(-count));
			r->tracked = false;
			*sent += end - from;
			return fresh_push_locked(call, r, from, end, stream);
		}
		for (int i = 0; i < count && !result; i++) {
			*sent += (runs[i].end - runs[i].start) / PAGE;
			result = region_parts_each(r, region_page(r, runs[i].start), region_page(r, runs[i].end), bytes_up, call, stream);
		}
	}
	return result;
}

static CUresult dirty_push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream,
				  uint64_t *sent)
{
	CUresult result = CUDA_SUCCESS;

	for (uint64_t page = from; page < end && !result;) {
		uint64_t run = page;

		while (run < end && r->state[run] & PAGE_DIRTY)
			r->state[run++] &= (uint8_t)~PAGE_DIRTY;
		if (run == page) {
			page++;
			continue;
		}
		*sent += run - page;
		result = region_parts_each(r, page, run, bytes_up, call, stream);
		page = run;
	}
	return result;
}

/*
 * What the host has written of the pages goes out on @stream. @take: the device has them from now on. They are closed before
 * they are read, so that no write is lost. @sent_out counts pages that went out.
 */
static CUresult push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream, bool take,
			    uint64_t *sent_out)
{
	CUresult result;

	if (from < r->fresh_from)
		from = r->fresh_from;
	if (end > r->fresh_end)
		end = r->fresh_end;
	if (from >= end)
		return CUDA_SUCCESS;
	/* Without tracking they are closed for writing at least: the next write is to be seen. */
	if (take ? !region_protect(r, from, end, PROT_NONE) : !r->tracked && !fresh_protect_locked(r, from, end, PROT_READ))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (r->fd >= 0) {
		*sent_out += 1;
		result = virgin_push_locked(call, r, from, end, stream);
	} else if (r->tracked) {
		result = tracked_push_locked(call, r, from, end, stream, sent_out);
		if (!r->tracked && !take)
			fresh_protect_locked(r, from, end, PROT_READ);
	} else {
		result = dirty_push_locked(call, r, from, end, stream, sent_out);
	}
	if (take)
		region_stale_locked(r, from, end);
	if (r->fd >= 0) {
		/* From here on by faults; pages that were left open count as written. */
		for (uint64_t page = r->fresh_from; page < r->fresh_end; page++)
			if (r->state[page] && (take || page < from || page >= end))
				r->state[page] |= PAGE_DIRTY;
		close(r->fd);
		r->fd = -1;
	}
	return result;
}

/* ---- commands ---- */

static CUresult give_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream, bool take,
			    bool *fence)
{
	uint64_t sent = 0;
	CUresult result = push_locked(call, r, from, end, stream, take, &sent);

	/* Other streams come after these bytes, too; of memory that is one stream's they look at nothing. */
	*fence |= sent && (r->attach != REGION_STREAM || r->stream != stream);
	return result;
}

/* Pairs with the releases of `giving`: who sees that nothing is fresh sees that somebody is at it, or comes after its fence. */
static bool is_to_give(void)
{
	return __atomic_load_n(&region_books.fresh_any, __ATOMIC_ACQUIRE) || __atomic_load_n(&giving, __ATOMIC_ACQUIRE);
}

/*
 * Other streams come after what was sent here, and this one after what other threads have sent since the call looked for a
 * fence, at its beginning.
 */
static CUresult given_locked(struct call *call, uint64_t stream, bool fence, CUresult result)
{
	if (!result && fence)
		result = fence_raise(call, stream);
	return result ? result : fence_pass(call, stream);
}

/* They went by another stream, which waits for none itself: nobody starts anything before the bytes are there. */
static CUresult given_by_locked(struct call *call, uint64_t by, bool fence, CUresult result)
{
	return !result && fence ? stream_wait(call, stream_find(call, by)) : result;
}

/* May a kernel on the stream use it? */
static bool is_given(const struct call *call, const struct region *r, uint64_t stream)
{
	if (r->context->session != call->session)
		return false; /* another server's device has it, or none */
	return r->attach == REGION_GLOBAL || (r->attach == REGION_STREAM && r->stream == stream);
}

CUresult region_give_by(struct call *call, uint64_t stream, uint64_t by)
{
	CUresult result = CUDA_SUCCESS;
	bool fence = false;
	struct region *next;

	if (!is_to_give() && !region_wished())
		return by == stream ? fence_pass(call, stream) : CUDA_SUCCESS;
	segv_install();
	region_lock();
	__atomic_store_n(&giving, 1, __ATOMIC_RELEASE);
	/* What was to come to the host is the device's again, also where it has not come yet. */
	for (uint32_t i = 0; region_wished() && i < region_count; i++)
		if (!region_books.table[i]->wish.quiet && is_given(call, region_books.table[i], stream))
			region_wish_end_locked(region_books.table[i]);
	for (struct region *r = region_books.fresh; r && !result; r = next) {
		next = r->fresh_next;
		if (!is_given(call, r, stream))
			continue;
		result = give_locked(call, r, 0, r->pages, by, true, &fence);
		region_wish_end_locked(r);
		if (is_eager()) {
			r->wish.end = r->pages;
			r->wish.quiet = true;
			__atomic_add_fetch(&region_wishes, 1, __ATOMIC_RELAXED);
		}
	}
	result = by == stream ? given_locked(call, stream, fence, result) : given_by_locked(call, by, fence, result);
	__atomic_store_n(&giving, 0, __ATOMIC_RELEASE);
	region_unlock();
	return result;
}

/*
 * The stream by which the bytes of the host go for work on @stream. Not that one while a host function is outstanding: the bytes, which are of now,
 * would come behind it, over what it has written.
 */
static uint64_t by_of(struct call *call, uint64_t stream)
{
	const struct stream *side = hostfunc_outstanding() && !hostfunc_here() ? stream_side(call) : NULL;

	return side ? side->handle : stream;
}

CUresult region_give(struct call *call, uint64_t stream)
{
	uint64_t by = is_to_give() ? by_of(call, stream) : stream;
	CUresult result = region_give_by(call, stream, by);

	return by == stream || result ? result : fence_pass(call, stream);
}

/* Calls for each region of [address, address + size) with the pages that are meant. */
static CUresult range_give(struct call *call, uint64_t stream, uint64_t address, uint64_t size, bool take)
{
	CUresult result = CUDA_SUCCESS;
	bool fence = false;
	uint64_t by;

	if (!size || !is_to_give())
		return size ? fence_pass(call, stream) : CUDA_SUCCESS;
	by = by_of(call, stream);
	if (take)
		segv_install();
	region_lock();
	__atomic_store_n(&giving, 1, __ATOMIC_RELEASE);
	for (uint32_t i = region_place_locked(address); i < region_count && region_books.table[i]->start < address + size && !result; i++) {
		struct region *r = region_books.table[i];
		uint64_t from = address > r->start ? region_page(r, address) : 0;
		uint64_t end = region_page(r, address + size - 1) + 1;

		/* The pages of another server's device are given where the copy is sent to it. */
		if (r->context->session != call->session)
			continue;
		result = give_locked(call, r, from, end < r->pages ? end : r->pages, by, take, &fence);
	}
	result = by == stream ? given_locked(call, stream, fence, result) : given_by_locked(call, by, fence, result);
	__atomic_store_n(&giving, 0, __ATOMIC_RELEASE);
	region_unlock();
	return by == stream || result ? result : fence_pass(call, stream);
}

CUresult region_use(struct call *call, uint64_t stream, uint64_t address, uint64_t size, bool write)
{
	return range_give(call, stream, address, size, write);
}

CUresult region_push(struct call *call, uint64_t stream, uint64_t address, uint64_t size)
{
	return range_give(call, stream, address, size, false);
}
