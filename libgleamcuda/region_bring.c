// SPDX-License-Identifier: Apache-2.0
/*
 * Managed memory: what the host touches is brought when the device's work is done, and so is what it has wished for. See region.h.
 */
#include <sys/mman.h>

#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/region_private.h"
#include "libgleamcuda/segv.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"

#define WINDOW_FIRST 16u   /* pages that one touch brings: 64 KiB take a LAN no longer than one page */
#define WINDOW_LAST  2048u /* and at most, after touches in a row: 8 MiB */
#define WHOLE	     64u   /* a region of so many pages comes as one */

/* guarded by the lock: streams for bringing pages, which wait for no other */
static uint64_t sides[SESSION_CONTEXTS];
static uint32_t side_epochs[SESSION_CONTEXTS];

CUresult region_bytes_down(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream)
{
	struct copy c = { .dst = (uint64_t)(uintptr_t)(r->alias + (address - r->start)), .src = address, .width = size,
			  .rows = 1, .dst_place = PLACE_PAGEABLE, .src_place = PLACE_DEVICE, .stream = stream };

	return copy_bytes_down(call, &c);
}

CUresult region_side_make(struct call *call)
{
	struct context *context = call->context;
	uint32_t epoch = __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);
	CUresult result = CUDA_SUCCESS;

	region_lock();
	if (!sides[context->index] || side_epochs[context->index] != epoch) {
		result = stream_side_make(call, &sides[context->index]);
		if (!result)
			side_epochs[context->index] = epoch;
	}
	region_unlock();
	return result;
}

/* The stream that pages come by. It is there since the region was opened. */
bool region_side_locked(struct call *call, uint64_t *stream_out)
{
	const struct context *context = call->context;

	*stream_out = sides[context->index];
	return *stream_out && side_epochs[context->index] == __atomic_load_n(&context->epoch, __ATOMIC_ACQUIRE);
}

/* Failures belong to the program's next wait, not to whoever happened to touch memory. */
static void owe(struct context *context, CUresult result)
{
	if (result && !result_is_sticky(result))
		__atomic_store_n(&context->owed, (uint32_t)result, __ATOMIC_RELAXED);
}

/* What can't be brought any more is left as it was: the calls tell why, and the process lives. */
static void pull_locked(struct region *r, uint64_t from, uint64_t end)
{
	struct call call;
	uint64_t stream;
	CUresult result = CUDA_ERROR_INVALID_CONTEXT;

	call_start(&call, r->context->session, r->context);
	call.api = API_cuMemAllocManaged;
	if (__atomic_load_n(&r->context->active, __ATOMIC_ACQUIRE) && region_side_locked(&call, &stream)) {
		result = region_parts_each(r, from, end, region_bytes_down, &call, stream);
		/* A failure of the program's that came with the answer, and is told by it: again without. */
		if (result && !result_is_sticky(result) && !session_is_dead(r->context->session)) {
			owe(r->context, result);
			result = region_parts_each(r, from, end, region_bytes_down, &call, stream);
		}
	}
	call_leave(&call, CUDA_SUCCESS);
	if (result)
		gleam_log("managed memory at %#llx: the device's contents are lost (%d)",
			  (unsigned long long)region_address(r, from), (int)result);
}

/* Brings stale pages of [from, end), and opens all of it for the program. False: the system gives no more mappings. */
static bool open_locked(struct region *r, uint64_t from, uint64_t end, bool write)
{
	int how = r->tracked || write ? PROT_READ | PROT_WRITE : PROT_READ;
	uint8_t state = !r->tracked && write ? PAGE_FRESH | PAGE_DIRTY : PAGE_FRESH;

	for (uint64_t page = from; page < end;) {
		uint64_t run = page;

		while (run < end && !r->state[run])
			run++;
		if (run == page) {
			page++;
			continue;
		}
		pull_locked(r, page, run);
		if (!region_protect(r, page, run, how))
			return false;
		region_fresh_locked(r, page, run, state);
		page = run;
	}
	return true;
}

/* Many small pieces of differing access cost a mapping each, and there are only so many: one for all then. */
static bool open_all_locked(struct region *r)
{
	for (uint64_t page = 0; page < r->pages;) {
		uint64_t run = page;

		while (run < r->pages && !r->state[run])
			run++;
		if (run > page)
			pull_locked(r, page, run);
		page = run > page ? run : page + 1;
	}
	if (!region_protect(r, 0, r->pages, PROT_READ | PROT_WRITE))
		return false;
	region_fresh_locked(r, 0, r->pages, r->tracked ? PAGE_FRESH : PAGE_FRESH | PAGE_DIRTY);
	return true;
}

static bool touched_locked(struct region *r, uint64_t page, bool write)
{
	uint64_t end;

	if (r->state[page]) {
		uint64_t from = page;

		/* The first write to pages that are only tracked by faults; or another thread was here first. */
		r->window = page == r->next && r->window ? r->window * 2 : 1;
		if (r->window > WHOLE)
			r->window = WHOLE;
		for (end = page; end < r->pages && end < page + r->window && r->state[end]; end++)
			if (write && !r->tracked)
				r->state[end] |= PAGE_DIRTY;
		r->next = end;
		return region_protect(r, from, end, r->tracked || write ? PROT_READ | PROT_WRITE : PROT_READ) || open_all_locked(r);
	}
	if (r->pages <= WHOLE)
		return open_locked(r, 0, r->pages, write) || open_all_locked(r);
	r->window = page == r->next && r->window >= WINDOW_FIRST ? r->window * 2 : WINDOW_FIRST;
	if (r->window > WINDOW_LAST)
		r->window = WINDOW_LAST;
	for (end = page; end < r->pages && end < page + r->window && !r->state[end];)
		end++;
	r->next = end;
	return open_locked(r, page, end, write) || open_all_locked(r);
}

/* The device's work that may still use the region. */
static void work_wait(struct context *context, enum region_attach attach, uint64_t handle)
{
	struct session *session = context->session;

	/* A host function stands between the work before it, which is done, and the work behind it, which waits for it. */
	if (hostfunc_here())
		return;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		struct context *c = context_at(i);
		struct stream *stream = NULL;
		struct call call;

		if (!c || !__atomic_load_n(&c->active, __ATOMIC_ACQUIRE) || c->session != session ||
		    (attach == REGION_STREAM && c != context))
			continue;
		call_start(&call, session, c);
		call.api = API_cuMemAllocManaged;
		if (attach == REGION_STREAM)
			stream = stream_find(&call, handle);
		if (stream)
			owe(c, stream_wait(&call, stream));
		else if (!context_is_quiet(&call))
			owe(c, context_wait(&call));
		call_leave(&call, CUDA_SUCCESS);
	}
}

bool region_fault(uint64_t address, bool write)
{
	enum region_attach attach;
	struct context *context;
	struct region *r;
	uint64_t stream;
	bool stale, done = false;

	/* A fork's child has none of it. */
	if (!region_any() || region_inside || process_is_forked())
		return false;
	region_lock();
	r = region_find_locked(address);
	stale = r && !r->state[region_page(r, address)];
	if (r) {
		attach = r->attach;
		stream = r->stream;
		context = r->context;
	}
	region_unlock();
	if (!r)
		return false;
	if (stale)
		work_wait(context, attach, stream);
	region_lock();
	/* It may have gone meanwhile, as any memory may that a thread uses while another frees it. */
	r = region_find_locked(address);
	if (r)
		done = touched_locked(r, region_page(r, address), write);
	region_unlock();
	return done;
}

/* ---- wishes ---- */

void region_wish(struct call *call, uint64_t stream, uint64_t address, uint64_t size)
{
	const struct stream *s = stream_find(call, stream);

	if (!s || !size)
		return;
	region_lock();
	for (uint32_t i = region_place_locked(address); i < region_count && region_books.table[i]->start < address + size; i++) {
		struct region *r = region_books.table[i];
		uint64_t from = address > r->start ? region_page(r, address) : 0;
		uint64_t end = region_page(r, address + size - 1) + 1;

		if (end > r->pages)
			end = r->pages;
		if (r->wish.from == r->wish.end)
			__atomic_add_fetch(&region_wishes, 1, __ATOMIC_RELAXED);
		else
			from = r->wish.from < from ? r->wish.from : from, end = r->wish.end > end ? r->wish.end : end;
		r->wish.from = from;
		r->wish.end = end;
		r->wish.word = s->word;
		r->wish.seq = __atomic_load_n(&s->last_seq, __ATOMIC_ACQUIRE);
		r->wish.quiet = false;
	}
	region_unlock();
}

void region_bring(struct call *call)
{
	bool was_inside = region_inside;

	/* The program may have installed a handler since pages were taken. */
	if (!was_inside)
		segv_install();
	if (was_inside || !region_wished() || hostfunc_here())
		return;
	region_lock();
	for (uint32_t i = 0; i < region_count; i++) {
		struct region *r = region_books.table[i];
		struct call other;
		bool due;

		if (r->wish.from == r->wish.end || !__atomic_load_n(&r->context->active, __ATOMIC_ACQUIRE))
			continue;
		call_start(&other, r->context->session, r->context);
		due = r->wish.quiet ? context_is_quiet(&other) :
				      !r->wish.seq || session_reached(r->context->session, r->wish.word, r->wish.seq);
		call_leave(&other, CUDA_SUCCESS);
		if (!due)
			continue;
		if (!open_locked(r, r->wish.from, r->wish.end, false))
			open_all_locked(r);
		region_wish_end_locked(r);
	}
	region_unlock();
}
