// SPDX-License-Identifier: Apache-2.0
/*
 * Managed memory; see region.h for the rules and the threads. Regions are kept in the order of their addresses; those with
 * pages that the host has are in a list of their own, so that a launch looks at nothing else.
 */
#include "libgleamcuda/region.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/fence.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/segv.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/track.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define PAGE	     TRACK_PAGE
#define WINDOW_FIRST 16u   /* pages that one touch brings: 64 KiB take a LAN no longer than one page */
#define WINDOW_LAST  2048u /* and at most, after touches in a row: 8 MiB */
#define WHOLE	     64u   /* a region of so many pages comes as one */
#define RUNS	     16

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

uint32_t region_count;
uint32_t region_wishes;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct region **regions; /* by address */
static uint32_t room;
static struct region *fresh;
static uint64_t sides[SESSION_CONTEXTS]; /* streams for bringing pages, which wait for no other */
static uint32_t side_epochs[SESSION_CONTEXTS];
/* atomic: the list `fresh` has entries */
static uint32_t fresh_any;
/* atomic: somebody sends the host's bytes, and other streams don't know yet that they come after those. Set before fresh_any falls. */
static uint32_t giving;

/* This thread holds the lock: waits inside of it bring nothing. */
static __thread bool inside;

static void region_lock(void)
{
	pthread_mutex_lock(&lock);
	inside = true;
}

static void region_unlock(void)
{
	inside = false;
	pthread_mutex_unlock(&lock);
}

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

/* ---- finding ---- */

/* Index of the first region that ends behind @address. */
static uint32_t place_locked(uint64_t address)
{
	uint32_t from = 0, end = region_count;

	while (from < end) {
		uint32_t middle = from + (end - from) / 2;

		if (regions[middle]->start + regions[middle]->pages * PAGE <= address)
			from = middle + 1;
		else
			end = middle;
	}
	return from;
}

static struct region *find_locked(uint64_t address)
{
	uint32_t at = place_locked(address);

	return at < region_count && regions[at]->start <= address ? regions[at] : NULL;
}

static uint64_t page_at(const struct region *r, uint64_t address)
{
	return (address - r->start) / PAGE;
}

static uint64_t address_of(const struct region *r, uint64_t page)
{
	return r->start + page * PAGE;
}

/* ---- states ---- */

static void fresh_unlink_locked(struct region *r)
{
	if (r->fresh_before)
		r->fresh_before->fresh_next = r->fresh_next;
	else
		fresh = r->fresh_next;
	if (r->fresh_next)
		r->fresh_next->fresh_before = r->fresh_before;
	r->fresh_next = r->fresh_before = NULL;
	__atomic_store_n(&fresh_any, fresh != NULL, __ATOMIC_RELEASE);
}

static void fresh_mark_locked(struct region *r, uint64_t from, uint64_t end, uint8_t state)
{
	memset(r->state + from, state, end - from);
	if (r->fresh_from == r->fresh_end) {
		r->fresh_from = from;
		r->fresh_end = end;
		r->fresh_next = fresh;
		if (fresh)
			fresh->fresh_before = r;
		fresh = r;
		__atomic_store_n(&fresh_any, 1, __ATOMIC_RELEASE);
		return;
	}
	if (from < r->fresh_from)
		r->fresh_from = from;
	if (end > r->fresh_end)
		r->fresh_end = end;
}

static void stale_mark_locked(struct region *r, uint64_t from, uint64_t end)
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

static bool protect(const struct region *r, uint64_t from, uint64_t end, int how)
{
	return from == end || !mprotect((void *)(uintptr_t)address_of(r, from), (end - from) * PAGE, how);
}

static void wish_end_locked(struct region *r)
{
	if (r->wish.from == r->wish.end)
		return;
	r->wish.from = r->wish.end = 0;
	__atomic_sub_fetch(&region_wishes, 1, __ATOMIC_RELAXED);
}

/* ---- bytes ---- */

/* Calls @each for what of the pages belongs to somebody; its first failure. */
static CUresult parts_each(struct region *r, uint64_t from, uint64_t end,
			   CUresult (*each)(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream),
			   struct call *call, uint64_t stream)
{
	uint64_t low = address_of(r, from), high = address_of(r, end);
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

static CUresult bytes_down(struct call *call, struct region *r, uint64_t address, uint64_t size, uint64_t stream)
{
	struct copy c = { .dst = (uint64_t)(uintptr_t)(r->alias + (address - r->start)), .src = address, .width = size,
			  .rows = 1, .dst_place = PLACE_PAGEABLE, .src_place = PLACE_DEVICE, .stream = stream };

	return copy_bytes_down(call, &c);
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
		result = parts_each(r, (uint64_t)data / PAGE, ((uint64_t)hole + PAGE - 1) / PAGE, bytes_up, call, stream);
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
		result = parts_each(r, from, run, bytes_up, call, stream);
	return result;
}

static bool fresh_protect_locked(const struct region *r, uint64_t from, uint64_t end, int how)
{
	for (uint64_t run; (run = fresh_run(r, &from, end)) > from; from = run)
		if (!protect(r, from, run, how))
			return false;
	return true;
}

static CUresult tracked_push_locked(struct call *call, struct region *r, uint64_t from, uint64_t end, uint64_t stream,
				    uint64_t *sent)
{
	uint64_t at = address_of(r, from), stop = address_of(r, end);
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
			result = parts_each(r, page_at(r, runs[i].start), page_at(r, runs[i].end), bytes_up, call, stream);
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
		result = parts_each(r, page, run, bytes_up, call, stream);
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
	if (take ? !protect(r, from, end, PROT_NONE) : !r->tracked && !fresh_protect_locked(r, from, end, PROT_READ))
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
		stale_mark_locked(r, from, end);
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

/* ---- bringing ---- */

/* The stream that pages come by. It is there since the region was opened. */
static bool side_of_locked(struct call *call, uint64_t *stream_out)
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
	if (__atomic_load_n(&r->context->active, __ATOMIC_ACQUIRE) && side_of_locked(&call, &stream)) {
		result = parts_each(r, from, end, bytes_down, &call, stream);
		/* A failure of the program's that came with the answer, and is told by it: again without. */
		if (result && !result_is_sticky(result) && !session_is_dead(r->context->session)) {
			owe(r->context, result);
			result = parts_each(r, from, end, bytes_down, &call, stream);
		}
	}
	call_leave(&call, CUDA_SUCCESS);
	if (result)
		gleam_log("managed memory at %#llx: the device's contents are lost (%d)",
			  (unsigned long long)address_of(r, from), (int)result);
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
		if (!protect(r, page, run, how))
			return false;
		fresh_mark_locked(r, page, run, state);
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
	if (!protect(r, 0, r->pages, PROT_READ | PROT_WRITE))
		return false;
	fresh_mark_locked(r, 0, r->pages, r->tracked ? PAGE_FRESH : PAGE_FRESH | PAGE_DIRTY);
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
		return protect(r, from, end, r->tracked || write ? PROT_READ | PROT_WRITE : PROT_READ) || open_all_locked(r);
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
	if (!region_any() || inside || process_is_forked())
		return false;
	region_lock();
	r = find_locked(address);
	stale = r && !r->state[page_at(r, address)];
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
	r = find_locked(address);
	if (r)
		done = touched_locked(r, page_at(r, address), write);
	region_unlock();
	return done;
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
	return __atomic_load_n(&fresh_any, __ATOMIC_ACQUIRE) || __atomic_load_n(&giving, __ATOMIC_ACQUIRE);
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
		if (!regions[i]->wish.quiet && is_given(call, regions[i], stream))
			wish_end_locked(regions[i]);
	for (struct region *r = fresh; r && !result; r = next) {
		next = r->fresh_next;
		if (!is_given(call, r, stream))
			continue;
		result = give_locked(call, r, 0, r->pages, by, true, &fence);
		wish_end_locked(r);
		if (is_eager()) {
			r->wish.end = r->pages;
			r->wish.quiet = true;
			__atomic_add_fetch(&region_wishes, 1, __ATOMIC_RELAXED);
		}
	}
	/* By another stream, which must wait for none itself: nobody starts anything before the bytes are there. */
	if (by == stream)
		result = given_locked(call, stream, fence, result);
	else if (!result && fence)
		result = stream_wait(call, stream_find(call, by));
	__atomic_store_n(&giving, 0, __ATOMIC_RELEASE);
	region_unlock();
	return result;
}

CUresult region_give(struct call *call, uint64_t stream)
{
	return region_give_by(call, stream, stream);
}

/* Calls for each region of [address, address + size) with the pages that are meant. */
static CUresult range_give(struct call *call, uint64_t stream, uint64_t address, uint64_t size, bool take)
{
	CUresult result = CUDA_SUCCESS;
	bool fence = false;

	if (!size || !is_to_give())
		return size ? fence_pass(call, stream) : CUDA_SUCCESS;
	if (take)
		segv_install();
	region_lock();
	__atomic_store_n(&giving, 1, __ATOMIC_RELEASE);
	for (uint32_t i = place_locked(address); i < region_count && regions[i]->start < address + size && !result; i++) {
		struct region *r = regions[i];
		uint64_t from = address > r->start ? page_at(r, address) : 0;
		uint64_t end = page_at(r, address + size - 1) + 1;

		result = give_locked(call, r, from, end < r->pages ? end : r->pages, stream, take, &fence);
	}
	result = given_locked(call, stream, fence, result);
	__atomic_store_n(&giving, 0, __ATOMIC_RELEASE);
	region_unlock();
	return result;
}

CUresult region_use(struct call *call, uint64_t stream, uint64_t address, uint64_t size, bool write)
{
	return range_give(call, stream, address, size, write);
}

CUresult region_push(struct call *call, uint64_t stream, uint64_t address, uint64_t size)
{
	return range_give(call, stream, address, size, false);
}

/* ---- wishes ---- */

void region_wish(struct call *call, uint64_t stream, uint64_t address, uint64_t size)
{
	const struct stream *s = stream_find(call, stream);

	if (!s || !size)
		return;
	region_lock();
	for (uint32_t i = place_locked(address); i < region_count && regions[i]->start < address + size; i++) {
		struct region *r = regions[i];
		uint64_t from = address > r->start ? page_at(r, address) : 0;
		uint64_t end = page_at(r, address + size - 1) + 1;

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
	bool was_inside = inside;

	/* The program may have installed a handler since pages were taken. */
	if (!was_inside)
		segv_install();
	if (was_inside || !region_wished() || hostfunc_here())
		return;
	region_lock();
	for (uint32_t i = 0; i < region_count; i++) {
		struct region *r = regions[i];
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
		wish_end_locked(r);
	}
	region_unlock();
}

/* ---- attachment ---- */

CUresult region_attach(uint64_t start, enum region_attach attach, uint64_t stream)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct region *r;

	region_lock();
	r = find_locked(start);
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
		if (regions[i]->attach == REGION_STREAM && regions[i]->stream == stream)
			regions[i]->attach = REGION_GLOBAL;
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

	if (region_count < room)
		return true;
	more = realloc(regions, (room ? room * 2 : 64) * sizeof(struct region *));
	if (!more)
		return false;
	regions = more;
	room = room ? room * 2 : 64;
	return true;
}

/* A part more of a region that is there: its pages may be the host's already. */
static CUresult share_locked(struct region *r, uint64_t start, uint64_t size)
{
	struct part *p;

	if (!part_add(r, start, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = r->parts;
	for (uint64_t page = page_at(r, p->start); page <= page_at(r, p->start + p->size - 1); page++) {
		uint64_t low = address_of(r, page) > p->start ? address_of(r, page) : p->start;
		uint64_t high = address_of(r, page + 1) < p->start + p->size ? address_of(r, page + 1) : p->start + p->size;
		struct call call;
		uint64_t stream;

		if (!r->state[page])
			continue;
		call_start(&call, r->context->session, r->context);
		if (side_of_locked(&call, &stream))
			bytes_down(&call, r, low, high - low, stream);
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
	at = place_locked(from);
	memmove(regions + at + 1, regions + at, (region_count - at) * sizeof(struct region *));
	regions[at] = r;
	__atomic_add_fetch(&region_count, 1, __ATOMIC_RELEASE);
	if (!filled)
		fresh_mark_locked(r, 0, r->pages, PAGE_FRESH);
	return CUDA_SUCCESS;
}

static CUresult side_make(struct call *call)
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

CUresult region_open(struct call *call, uint64_t start, uint64_t size, bool ours, bool filled)
{
	uint64_t at = start & ~(PAGE - 1), end = (start + size + PAGE - 1) & ~(PAGE - 1);
	CUresult result = side_make(call);

	if (result)
		return result;
	segv_install();
	region_lock();
	while (at < end && !result) {
		uint32_t i = place_locked(at);
		struct region *r = i < region_count ? regions[i] : NULL;

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
	for (uint32_t i = place_locked(start); i < region_count && regions[i]->start < start + size;) {
		struct region *r = regions[i];

		if (!part_remove(r, start, &size) || r->parts) {
			i++;
			continue;
		}
		stale_mark_locked(r, 0, r->pages);
		wish_end_locked(r);
		memmove(regions + i, regions + i + 1, (region_count - i - 1) * sizeof(struct region *));
		__atomic_sub_fetch(&region_count, 1, __ATOMIC_RELEASE);
		region_free(r);
	}
	region_unlock();
}
