// SPDX-License-Identifier: Apache-2.0
/*
 * Exposed host memory. A shadow of each range holds what both sides agreed on last; what differs from it is what this
 * side has changed, and exactly those bytes travel, so that words of both sides beside each other survive. Each server has a
 * mirror and a shadow of its own: what came from one differs from the others' and goes on to them. Of ranges of
 * some size the kernel tells which pages were written (track.h); small ones, and all where it can't, are compared whole
 * before each launch.
 */
#include "libgleamcuda/exposed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/patch.h"
#include "broker/lib/tsan.h"
#include "broker/lib/words.h"
#include "gen/msg.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/hostfunc.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/pages.h"
#include "libgleamcuda/range.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/streamword.h"
#include "libgleamcuda/track.h"

#define PAGE  4096ull
#define BLOCK 256u /* compared at once; only in those that differ single bytes are looked at */
#define TRACKED_LEAST (16ull << 10) /* comparing less takes no longer than asking the kernel */
#define RUNS	      16

struct exposed {
	struct exposed *next;
	uint64_t start;
	uint64_t size;
	uint64_t mirror; /* where the workers have it: there, too, unless that is taken at one of them */
	uint8_t *shadows[SESSIONS_MAX]; /* by session; NULL: that one has no mirror */
	bool tracked; /* whole pages, which the kernel watches */
	bool whole;   /* the next exchange compares everything */
};

/* More words than that are waited for by few programs; the oldest is then an ordinary one again. */
#define WORDS 64

/* Pointers into page-locked memory that one push looks after; more of them are seen by the next launch. */
#define POINTERS 32
/* Ranges whose landings a launch waits for; programs map few. */
#define LANDINGS 64

struct word {
	uint64_t address;
	uint32_t size;
	uint64_t value; /* as it was when the exchange began */
};

uint32_t exposed_count;
uint32_t exposed_everywhere;
uint32_t exposed_moved;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct exposed *all;
static struct word words[WORDS];
static uint32_t word_count;
static uint32_t word_next;
static uint64_t pointers[POINTERS]; /* seen, and not yet looked after */
static uint32_t pointer_count;

static struct exposed **find_locked(uint64_t start)
{
	struct exposed **at = &all;

	while (*at && (*at)->start != start)
		at = &(*at)->next;
	return at;
}

bool exposed_is(uint64_t start)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = *find_locked(start) != NULL;
	pthread_mutex_unlock(&lock);
	return is;
}

bool exposed_holds(uint64_t address)
{
	bool holds = false;

	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e && !holds; e = e->next)
		holds = address - e->start < e->size;
	pthread_mutex_unlock(&lock);
	return holds;
}

uint64_t exposed_device_slow(uint64_t address)
{
	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e; e = e->next)
		if (address - e->start < e->size) {
			address = e->mirror + (address - e->start);
			break;
		}
	pthread_mutex_unlock(&lock);
	return address;
}

CUresult exposed_ops(const CUstreamBatchMemOpParams *ops, uint32_t count, CUstreamBatchMemOpParams **ops_out)
{
	CUstreamBatchMemOpParams *moved;

	*ops_out = NULL;
	if (!__atomic_load_n(&exposed_moved, __ATOMIC_RELAXED))
		return CUDA_SUCCESS;
	moved = malloc(count * sizeof(*moved));
	if (!moved)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(moved, ops, count * sizeof(*moved));
	/* Waits and writes have one layout; the others have no address. */
	for (uint32_t i = 0; i < count; i++)
		if (moved[i].operation != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && moved[i].operation != CU_STREAM_MEM_OP_BARRIER)
			moved[i].waitValue.address = exposed_device(moved[i].waitValue.address);
	*ops_out = moved;
	return CUDA_SUCCESS;
}

/*
 * What all servers are told: @call itself to its own, calls in @room to the others; NULL for those that are gone. To be given to
 * every_leave().
 */
static uint32_t every(struct call *call, struct call room[SESSIONS_MAX], struct call *to[SESSIONS_MAX])
{
	uint32_t count = 0;
	struct session *s;

	for (; (s = session_at(count)); count++) {
		to[count] = call;
		if (s == call->session)
			continue;
		to[count] = session_is_dead(s) ? NULL : &room[count];
		call_start(&room[count], s, NULL);
	}
	return count;
}

static void every_leave(struct call room[SESSIONS_MAX], struct call *to[SESSIONS_MAX], uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (to[i] == &room[i])
			call_leave(to[i], CUDA_SUCCESS);
}

/* The worker mirrors whole pages. */
static struct msg_gleamHostRange range_message(uint64_t start, uint64_t size, uint32_t open)
{
	uint64_t first = start & ~(PAGE - 1);

	return (struct msg_gleamHostRange){ .address = first, .bytes = ((start + size + PAGE - 1) & ~(PAGE - 1)) - first,
					    .open = open };
}

static CUresult range_tell(struct call *call, const struct msg_gleamHostRange *m)
{
	return CALL_ASK(call, gleamHostRange, m);
}

static void exposed_free(struct exposed *exposed)
{
	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		free(exposed->shadows[i]);
	free(exposed);
}

/* A mirror at every server, or at none. NOT_SUPPORTED: the address is taken at one. */
static CUresult mirrors_open(struct call *call, struct exposed *exposed)
{
	struct msg_gleamHostRange m = range_message(exposed->mirror, exposed->size, 1);
	struct call room[SESSIONS_MAX], *to[SESSIONS_MAX];
	uint32_t count = every(call, room, to), done = 0;
	CUresult result = CUDA_SUCCESS;

	for (; done < count && !result; done++) {
		if (!to[done])
			continue;
		/* The fresh mirror is zero, and so is this. */
		exposed->shadows[done] = calloc(1, exposed->size);
		result = exposed->shadows[done] ? range_tell(to[done], &m) : CUDA_ERROR_OUT_OF_MEMORY;
		if (!result)
			continue;
		free(exposed->shadows[done]);
		exposed->shadows[done] = NULL;
		/* Another server that is lost meanwhile is no reason. */
		if (to[done] != call && session_is_dead(to[done]->session))
			result = CUDA_SUCCESS;
	}
	m.open = 0;
	for (uint32_t i = 0; result && i < done; i++) {
		if (exposed->shadows[i])
			range_tell(to[i], &m);
		free(exposed->shadows[i]);
		exposed->shadows[i] = NULL;
	}
	every_leave(room, to, count);
	return result;
}

CUresult exposed_open(struct call *call, uint64_t start, uint64_t size)
{
	struct exposed *exposed;
	CUresult result;

	if (exposed_is(start))
		return CUDA_SUCCESS;
	/* What copies write there goes to the mirror with the bytes of the host. */
	result = pages_any() ? pages_wait(call, start, size) : CUDA_SUCCESS;
	if (result)
		return result;
	exposed = calloc(1, sizeof(*exposed));
	if (!exposed)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exposed->start = exposed->mirror = start;
	exposed->size = size;
	result = mirrors_open(call, exposed);
	if (result == CUDA_ERROR_NOT_SUPPORTED) {
		uint64_t pages = host_space_take(start % PAGE + size);

		exposed->mirror = pages + start % PAGE;
		result = pages ? mirrors_open(call, exposed) : CUDA_ERROR_OUT_OF_MEMORY;
		if (result && pages)
			host_space_give(pages, start % PAGE + size);
	}
	if (result) {
		exposed_free(exposed);
		return result;
	}
	/* A registered range may share its first and last page with others, and may be a file's. */
	exposed->tracked = size >= TRACKED_LEAST && !(start % PAGE) && track_begin(start, (size + PAGE - 1) & ~(PAGE - 1));
	exposed->whole = true;
	gleam_log("%llu KiB of host memory can be reached by kernels from now on%s%s", (unsigned long long)(size >> 10),
		  exposed->tracked || size < TRACKED_LEAST ? "" : ", and are compared before each launch",
		  exposed->mirror == start ? "" : ", by another address, since theirs is taken at the server");
	pthread_mutex_lock(&lock);
	exposed->next = all;
	all = exposed;
	if (!host_is_made_at(start))
		__atomic_fetch_add(&exposed_everywhere, 1, __ATOMIC_RELEASE);
	if (exposed->mirror != start)
		__atomic_fetch_add(&exposed_moved, 1, __ATOMIC_RELEASE);
	__atomic_fetch_add(&exposed_count, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult exposed_need(struct call *call, uint64_t address)
{
	struct range range;
	CUresult result;

	if (!range_find(address, &range) ||
	    (range.kind != RANGE_HOST_MADE && range.kind != RANGE_HOST_REGISTERED))
		return CUDA_SUCCESS; /* a number that looks like an address, or memory that needs nothing */
	call->touches = true;
	if (range.dev && exposed_is(range.start))
		return CUDA_SUCCESS;
	result = exposed_open(call, range.start, range.size);
	if (!result)
		range_place(range.start, exposed_device(range.start));
	return result;
}

CUresult exposed_params_slow(struct call *call, const void *params, uint32_t size)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i + 8 <= size && !result; i += 8) {
		uint64_t word;

		memcpy(&word, (const char *)params + i, sizeof(word));
		if (host_is_made_at(word))
			result = exposed_need(call, word);
	}
	return result;
}

void exposed_close(struct call *call, uint64_t start)
{
	struct call room[SESSIONS_MAX], *to[SESSIONS_MAX];
	struct msg_gleamHostRange m;
	struct exposed *exposed;
	uint32_t count;

	pthread_mutex_lock(&lock);

	struct exposed **at = find_locked(start);

	exposed = *at;
	if (exposed) {
		*at = exposed->next;
		if (!host_is_made_at(start))
			__atomic_fetch_sub(&exposed_everywhere, 1, __ATOMIC_RELEASE);
		if (exposed->mirror != start)
			__atomic_fetch_sub(&exposed_moved, 1, __ATOMIC_RELEASE);
		__atomic_fetch_sub(&exposed_count, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	if (!exposed)
		return;
	m = range_message(exposed->mirror, exposed->size, 0);
	if (exposed->tracked)
		track_end(start, (exposed->size + PAGE - 1) & ~(PAGE - 1));
	count = every(call, room, to);
	for (uint32_t i = 0; i < count; i++)
		if (to[i] && exposed->shadows[i])
			range_tell(to[i], &m);
	every_leave(room, to, count);
	if (exposed->mirror != start)
		host_space_give(m.address, m.bytes);
	exposed_free(exposed);
}

/* Changed bytes of the mirror on their way, packed: changes of every fourth byte would else be a command each. False: the session has ended. */
static bool patch_post(struct call *call, struct patch *patch)
{
	struct msg_gleamHostWrite m = { .address = patch->address, .patch = patch->bytes, .patch_size = patch->size };

	if (!patch->size)
		return true;
	if (call_open(call, OP_gleamHostWrite, msg_gleamHostWrite_size(&m)))
		return false;
	msg_gleamHostWrite_put(&call->w, &m);
	call_post(call);
	patch_begin(patch, patch->bytes, patch->room);
	return true;
}

static bool patch_add(struct call *call, struct patch *patch, uint64_t address, const uint8_t *bytes, uint64_t size)
{
	while (size) {
		uint32_t some = patch_run(patch, address, bytes, size < PATCH_RUN ? (uint32_t)size : PATCH_RUN);

		if (!some && !patch_post(call, patch))
			return false;
		address += some;
		bytes += some;
		size -= some;
	}
	return true;
}

/* ---- words that streams wait for ---- */

void exposed_watch(uint64_t address, uint32_t size)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < word_count; i++)
		if (words[i].address == address && words[i].size == size)
			goto unlock;
	/* What the ordinary exchange has left out of the oldest one is looked at again. */
	for (struct exposed *e = all; e && word_count == WORDS; e = e->next)
		e->whole = true;
	words[word_next] = (struct word){ .address = address, .size = size };
	word_next = (word_next + 1) % WORDS;
	if (word_count < WORDS)
		word_count++;
unlock:
	pthread_mutex_unlock(&lock);
}

static uint64_t word_now(uint64_t address, uint32_t size)
{
	uint64_t value;

	/* Pairs with whatever release the program stores the word with: what it wrote before is seen after. */
	foreign_begin();
	value = size == 4 ? __atomic_load_n((const uint32_t *)(uintptr_t)address, __ATOMIC_ACQUIRE) :
			    __atomic_load_n((const uint64_t *)(uintptr_t)address, __ATOMIC_ACQUIRE);
	foreign_end();
	return value;
}

static struct exposed *holder_locked(uint64_t address, uint32_t size)
{
	struct exposed *e = all;

	while (e && (address < e->start || address - e->start > e->size || e->size - (address - e->start) < size))
		e = e->next;
	return e;
}

/* Words of ranges that are gone: forgotten. */
static void words_begin_locked(void)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < word_count; i++) {
		if (!holder_locked(words[i].address, words[i].size))
			continue;
		words[kept] = words[i];
		words[kept].value = word_now(words[kept].address, words[kept].size);
		kept++;
	}
	if (kept != word_count)
		word_next = kept;
	word_count = kept;
}

static void words_end_locked(struct call *call)
{
	uint8_t bytes[PATCH_RECORD + 8];
	struct patch patch;

	for (uint32_t i = 0; i < word_count; i++) {
		const struct word *word = &words[i];
		struct exposed *e = holder_locked(word->address, word->size);
		uint8_t *shadow = e->shadows[call->session->index];

		if (!shadow)
			continue;
		shadow += word->address - e->start;
		if (!memcmp(shadow, &word->value, word->size))
			continue;
		memcpy(shadow, &word->value, word->size);
		/* Each for itself, in their order. */
		patch_begin(&patch, bytes, sizeof(bytes));
		if (!patch_add(call, &patch, e->mirror + (word->address - e->start), shadow, word->size) || !patch_post(call, &patch))
			return;
	}
}

static bool word_overlaps(uint64_t address, uint64_t size)
{
	for (uint32_t i = 0; i < word_count; i++)
		if (words[i].address < address + size && address < words[i].address + words[i].size)
			return true;
	return false;
}

/* ---- the rest ---- */

/* A byte of the range now; bytes of one word are of one moment, for whoever counts in words on the other side. */
struct moment {
	uint64_t value;
	uint64_t address; /* of its first byte; 0: none yet */
};

static uint8_t moment_byte(struct moment *moment, uint64_t address, uint64_t end)
{
	uint64_t first = address & ~7ull;

	uint8_t byte;

	foreign_begin();
	if (address == first && end - address >= 8) {
		moment->value = __atomic_load_n((const uint64_t *)(uintptr_t)first, __ATOMIC_RELAXED);
		moment->address = first;
	}
	byte = moment->address == first ? (uint8_t)(moment->value >> 8 * (address - first)) :
					  *(const volatile uint8_t *)(uintptr_t)address;
	foreign_end();
	return byte;
}

/* The host may be writing: what is missed now is seen the next time. */
static bool is_as_before(uint64_t address, const uint8_t *shadow, uint64_t size)
{
	bool same;

	foreign_begin();
	same = !memcmp((const void *)(uintptr_t)address, shadow, size);
	foreign_end();
	return same;
}

/* Words that have changed, and may be pointers by which kernels go on. */
static void pointers_note_locked(const struct exposed *e, const uint8_t *shadow, uint64_t run, uint64_t size)
{
	uint64_t from = (e->start + run) & ~7ull;

	for (uint64_t at = from < e->start ? from + 8 : from; at < e->start + run + size; at += 8) {
		uint64_t word;

		if (e->size - (at - e->start) < 8)
			break;
		memcpy(&word, shadow + (at - e->start), sizeof(word));
		if (host_is_made_at(word) && pointer_count < POINTERS)
			pointers[pointer_count++] = word;
	}
}

/* Runs of changed bytes go out from the shadow, which has them by then: the host may go on writing. */
static bool push_part(struct call *call, struct exposed *e, uint64_t from, uint64_t end)
{
	static uint8_t bytes[INLINE_MAX]; /* guarded by lock */
	uint8_t *shadow = e->shadows[call->session->index];
	struct moment moment = { 0 };
	uint64_t run = 0, run_size = 0;
	struct patch patch;

	if (!shadow)
		return true;
	patch_begin(&patch, bytes, sizeof(bytes));
	for (uint64_t block = from; block < end; block += BLOCK) {
		uint64_t size = end - block < BLOCK ? end - block : BLOCK;
		bool watched;

		if (!run_size && is_as_before(e->start + block, shadow + block, size))
			continue;
		watched = word_count && word_overlaps(e->start + block, size);
		for (uint64_t at = block; at < block + size; at++) {
			uint8_t now = moment_byte(&moment, e->start + at, e->start + end);

			if (now != shadow[at] && !(watched && word_overlaps(e->start + at, 1))) {
				shadow[at] = now;
				if (!run_size)
					run = at;
				if (++run_size < INLINE_MAX)
					continue;
			} else if (!run_size) {
				continue;
			}
			pointers_note_locked(e, shadow, run, run_size);
			if (!patch_add(call, &patch, e->mirror + run, shadow + run, run_size))
				return false;
			run_size = 0;
		}
	}
	if (run_size)
		pointers_note_locked(e, shadow, run, run_size);
	return patch_add(call, &patch, e->mirror + run, shadow + run, run_size) && patch_post(call, &patch);
}

/* To all; one that has ended meanwhile is left out from here on. */
static void push_parts(struct call *to[SESSIONS_MAX], struct exposed *e, uint64_t from, uint64_t end)
{
	for (uint32_t i = 0; i < SESSIONS_MAX; i++)
		if (to[i] && !push_part(to[i], e, from, end))
			to[i] = NULL;
}

static void push_one(struct call *to[SESSIONS_MAX], struct exposed *e)
{
	uint64_t end = e->start + e->size;
	uint64_t at = e->start;

	if (!e->tracked || e->whole) {
		e->whole = false;
		push_parts(to, e, 0, e->size);
		return;
	}
	while (at < end) {
		struct track_run runs[RUNS];
		int count = track_written(at, (end + PAGE - 1) & ~(PAGE - 1), runs, RUNS, &at);

		if (count < 0) {
			e->tracked = false;
			push_parts(to, e, 0, e->size);
			return;
		}
		for (int i = 0; i < count; i++) {
			uint64_t last = runs[i].end < end ? runs[i].end : end;

			push_parts(to, e, runs[i].start - e->start, last - e->start);
		}
	}
}

/* Returns pointers that were seen, as many as there are. */
static uint32_t push_all(struct call *call, uint64_t seen[POINTERS])
{
	struct call room[SESSIONS_MAX], *to[SESSIONS_MAX] = { NULL }, *still[SESSIONS_MAX];
	uint32_t count, sessions = every(call, room, to);

	memcpy(still, to, sizeof(to));
	pthread_mutex_lock(&lock);
	words_begin_locked();
	for (struct exposed *e = all; e; e = e->next)
		push_one(still, e);
	for (uint32_t i = 0; i < sessions; i++)
		if (still[i])
			words_end_locked(still[i]);
	/* The service thread waits for no answer: what it has seen is left for the next launch. */
	count = call->context ? pointer_count : 0;
	memcpy(seen, pointers, count * sizeof(seen[0]));
	pointer_count -= count;
	pthread_mutex_unlock(&lock);
	every_leave(room, to, sessions);
	return count;
}

/*
 * Copies to the host that are on their way into exposed memory: kernels behind them look at the mirror, so the bytes have to be
 * here before they can go out. Not while a stream waits for a word of the host's, which may be written after this call.
 */
static void landings_wait(struct call *call)
{
	struct {
		uint64_t start, size;
	} ranges[LANDINGS];
	uint32_t count = 0;

	if (!call->context || !late_any() || hostfunc_here() || streamword_waiting())
		return;
	pthread_mutex_lock(&lock);
	for (struct exposed *e = all; e && count < LANDINGS; e = e->next) {
		ranges[count].start = e->start;
		ranges[count++].size = e->size;
	}
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; i < count; i++)
		late_wait_range((void *)(uintptr_t)ranges[i].start, ranges[i].size);
}

void exposed_push(struct call *call)
{
	uint64_t seen[POINTERS];
	uint32_t count, before;

	landings_wait(call);
	count = push_all(call, seen);

	for (int round = 0; count && round < 8; round++) {
		before = __atomic_load_n(&exposed_count, __ATOMIC_RELAXED);
		for (uint32_t i = 0; i < count; i++)
			if (exposed_need(call, seen[i]))
				return; /* the address is taken there, or the session has ended: a kernel that follows it says so */
		if (__atomic_load_n(&exposed_count, __ATOMIC_RELAXED) == before)
			return;
		count = push_all(call, seen);
	}
}

/* What of a notice lies in the range. Lock held. */
static void apply_one(struct exposed *e, uint8_t *shadow, uint64_t address, const uint8_t *bytes, uint64_t size)
{
	uint64_t end = address + size < e->start + e->size ? address + size : e->start + e->size;
	uint64_t at = address > e->start ? address : e->start;

	bytes += at - address;
	foreign_begin();
	words_store(at, bytes, end - at, e->start, e->start + e->size);
	foreign_end();
	memcpy(shadow + (at - e->start), bytes, end - at);
}

void exposed_apply(struct session *s, struct reader *r)
{
	uint64_t address = get_u64(r);
	uint32_t size = 0, offset = 0, run_size;
	const uint8_t *bytes = get_bytes(r, FRAME_SIZE_MAX, &size);
	const uint8_t *run;

	if (r->fault)
		return;
	pthread_mutex_lock(&lock);
	while (patch_next(bytes, size, &offset, &address, &run, &run_size) > 0 && address <= UINT64_MAX - run_size) {
		for (struct exposed *e = all; e; e = e->next)
			if (e->shadows[s->index] && address < e->mirror + e->size && e->mirror < address + run_size)
				apply_one(e, e->shadows[s->index], e->start + (address - e->mirror), run, run_size);
		address += run_size;
	}
	pthread_mutex_unlock(&lock);
}
