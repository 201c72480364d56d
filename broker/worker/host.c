/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors of the client's page-locked memory. Executor thread; see host.h.
 *
 * A range is mapped at its address and registered, so that kernels, stream words and copies find it there. A shadow holds
 * what client and worker agreed on last. What the client has changed comes by gleamHostWrite; what the device has changed
 * is found by comparing, before anybody is told that work is done (completion thread), and goes out byte for byte.
 */
#include "broker/worker/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/lib/patch.h"
#include "broker/lib/tsan.h"
#include "broker/lib/words.h"
#include "broker/worker/move_out.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define HOST_BYTES_MAX (64ull << 30) /* mirrors of a session; pages that nobody touches take no memory, pinned ones do */
#define HOST_RANGES_MAX 65536u
#define PAGE 4096u
#define BLOCK 256u		/* compared at once; a page is a multiple */
#define RUN_MAX (32u << 10)	/* bytes of a notice */

struct host_range {
	struct host_range *next;
	uint64_t address;
	uint64_t bytes;
	bool leaving;
	uint32_t flags;
	uint8_t *shadow;
	/* a move: */
	bool said;
	struct move_hash *hashes;
};

/* Ranges that have been said to the worker that is to become this one, and are gone since. */
struct host_gone {
	struct host_gone *next;
	uint64_t address;
	uint64_t bytes;
};

static struct host_gone *gone_first;

/* The list and the shadows: executor and completion thread. */
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t ranges_open; /* atomic: how many, so that looking for none costs nothing */

static struct host_range **range_at(struct worker *w, uint64_t address)
{
	struct host_range **link = &w->host_ranges;

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	return link;
}

static bool in_gleam_range(const struct worker *w, uint64_t address, uint64_t bytes)
{
	uint64_t start = w->settings.range_host;
	uint64_t size = w->settings.range_size;

	return address >= start && address - start < size && bytes <= size - (address - start);
}

/* Gleam's range stays reserved. */
static void range_give(const struct worker *w, const struct host_range *range)
{
	if (in_gleam_range(w, range->address, range->bytes))
		mmap((void *)(uintptr_t)range->address, range->bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		munmap((void *)(uintptr_t)range->address, range->bytes);
}

static CUresult range_open(struct worker *w, const struct msg_gleamHostRange *m)
{
	bool ours = in_gleam_range(w, m->address, m->bytes);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (ours ? MAP_FIXED : MAP_FIXED_NOREPLACE);
	struct host_range *range;
	uint64_t bytes = m->bytes;
	uint32_t count = 0;
	void *got;
	CUresult r;

	if (!m->bytes || m->address % PAGE || m->bytes % PAGE)
		return CMD_BROKEN;
	for (range = w->host_ranges; range; range = range->next) {
		/* MAP_FIXED inside our own range: what is mirrored there already must not be replaced. */
		if (m->address < range->address + range->bytes && range->address < m->address + m->bytes)
			return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		bytes += range->bytes;
		count++;
	}
	if (bytes > HOST_BYTES_MAX || bytes < m->bytes || count >= HOST_RANGES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range = calloc(1, sizeof(*range));
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	got = mmap((void *)(uintptr_t)m->address, m->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (got != (void *)(uintptr_t)m->address) {
		note(w, "page-locked range 0x%llx can't be mirrored at its address: %s", (unsigned long long)m->address,
		     got == MAP_FAILED ? strerror(errno) : "taken");
		if (got != MAP_FAILED)
			munmap(got, m->bytes);
		free(range);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*range = (struct host_range){ .address = m->address, .bytes = m->bytes, .flags = m->flags,
					.shadow = calloc(1, m->bytes) };
	if (!range->shadow) {
		range_give(w, range);
		free(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = w->drv.cuMemHostRegister_v2(got, m->bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (r != CUDA_SUCCESS) {
		range_give(w, range);
		free(range->shadow);
		free(range);
		return r;
	}
	pthread_mutex_lock(&ranges_lock);
	range->next = w->host_ranges;
	w->host_ranges = range;
	__atomic_fetch_add(&ranges_open, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&ranges_lock);
	return CUDA_SUCCESS;
}

/* Nothing issued before its end uses it any more. */
static void range_left(struct worker *w, struct join *join)
{
	struct host_range *range = join->object;
	struct host_range **link = range_at(w, range->address);

	/* The driver waits for what was sent since, too, and that may wait for a host function whose end only this thread hears of. */
	if (host_calls_pending(w, NULL)) {
		streams_join(w, NULL, join);
		return;
	}
	pthread_mutex_lock(&ranges_lock);
	if (*link == range) {
		*link = range->next;
		__atomic_fetch_sub(&ranges_open, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&ranges_lock);
	if (range->said) {
		struct host_gone *gone = malloc(sizeof(*gone));

		if (gone) {
			*gone = (struct host_gone){ .next = gone_first, .address = range->address, .bytes = range->bytes };
			gone_first = gone;
		}
	}
	w->drv.cuMemHostUnregister((void *)(uintptr_t)range->address);
	range_give(w, range);
	free(range->shadow);
	free(range->hashes);
	free(range);
	/* The client may use the addresses again from here on. */
	if (join->hdr.flags & FRAME_WANTS_REPLY)
		post_reply(w, &join->hdr, CUDA_SUCCESS, w->answer, sizeof(uint32_t), NULL);
	free(join);
}

/* ---- contents ---- */

CUresult worker_do_gleamHostWrite(struct worker *w, struct cmd *cmd, const struct msg_gleamHostWrite *m)
{
	struct host_range *range;
	uint64_t address = m->address;
	uint32_t offset = 0, size;
	const uint8_t *run;
	int got;

	pthread_mutex_lock(&ranges_lock);
	range = w->host_ranges;
	while (range && (address < range->address || address - range->address >= range->bytes))
		range = range->next;
	while (range && (got = patch_next(m->patch, m->patch_size, &offset, &address, &run, &size)) > 0) {
		uint64_t at = address - range->address;

		/* A patch is of one range, and goes on in it. */
		if (at > range->bytes || size > range->bytes - at) {
			got = -1;
			break;
		}
		/* Streams and kernels may be waiting for a word of it. */
		foreign_begin();
		words_store(address, run, size, range->address, range->address + range->bytes);
		foreign_end();
		memcpy(range->shadow + at, run, size);
		address += size;
	}
	pthread_mutex_unlock(&ranges_lock);
	/* Of a range whose beginning was refused, as was told then. */
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	return got ? CMD_BROKEN : CUDA_SUCCESS;
}

static void patch_post(struct worker *w, struct patch *patch)
{
	static uint8_t payload[RUN_MAX + 32] __attribute__((aligned(8))); /* guarded by ranges_lock */
	struct writer p = writer_on(payload, sizeof(payload));

	if (!patch->size)
		return;
	put_u64(&p, patch->address);
	put_bytes(&p, patch->bytes, patch->size);
	post_notice(w, NOTICE_HOST_BYTES, 0, 0, payload, (uint32_t)p.at);
	patch_begin(patch, patch->bytes, patch->room);
}

static bool block_is_as_before(const struct host_range *range, uint64_t block)
{
	bool same;

	/* The device may be writing: what is missed now is seen the next time. */
	foreign_begin();
	same = !memcmp((const void *)(uintptr_t)(range->address + block), range->shadow + block, BLOCK);
	foreign_end();
	return same;
}

/* Many small changes, as of an array of numbers, share a notice. */
static void range_compare(struct worker *w, struct host_range *range)
{
	static uint8_t bytes[RUN_MAX]; /* guarded by ranges_lock */
	uint64_t word = 0; /* of the mirror: its bytes are of one moment */
	struct patch patch;

	patch_begin(&patch, bytes, sizeof(bytes));
	for (uint64_t block = 0; block < range->bytes; block += BLOCK) {
		if (block_is_as_before(range, block))
			continue;
		for (uint64_t at = block; at < block + BLOCK; at++) {
			uint8_t now;

			if (at % 8 == 0) {
				foreign_begin();
				word = __atomic_load_n((const uint64_t *)(uintptr_t)(range->address + at), __ATOMIC_ACQUIRE);
				foreign_end();
			}
			now = (uint8_t)(word >> 8 * (at % 8));
			if (now == range->shadow[at])
				continue;
			range->shadow[at] = now;
			if (!patch_byte(&patch, range->address + at, now)) {
				patch_post(w, &patch);
				patch_byte(&patch, range->address + at, now);
			}
		}
	}
	patch_post(w, &patch);
}

bool host_ranges_any(void)
{
	return __atomic_load_n(&ranges_open, __ATOMIC_ACQUIRE) != 0;
}

void host_ranges_tell(struct worker *w)
{
	if (!host_ranges_any())
		return;
	pthread_mutex_lock(&ranges_lock);
	for (struct host_range *range = w->host_ranges; range; range = range->next)
		range_compare(w, range);
	pthread_mutex_unlock(&ranges_lock);
}

/* ---- ranges ---- */

CUresult worker_do_gleamHostRange(struct worker *w, struct cmd *cmd, const struct msg_gleamHostRange *m)
{
	struct host_range *range;
	struct join *join;

	if (m->open)
		return range_open(w, m);
	range = *range_at(w, m->address);
	if (!range || range->leaving)
		return CUDA_SUCCESS; /* its beginning was refused, and told then */
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->leaving = true;
	join->done = range_left;
	join->object = range;
	join->hdr = *cmd->hdr;
	streams_join(w, NULL, join);
	return CMD_LATER;
}

void host_ranges_stop(struct worker *w)
{
	while (w->host_ranges) {
		struct host_range *range = w->host_ranges;

		w->host_ranges = range->next;
		w->drv.cuMemHostUnregister((void *)(uintptr_t)range->address);
		range_give(w, range);
		free(range->shadow);
		free(range->hashes);
		free(range);
	}
}

/* ---- a move ---- */

static void range_say(struct worker *w, uint64_t address, uint64_t bytes, uint32_t flags, bool open)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct msg_gleamHostRange m = { .address = address, .bytes = bytes, .flags = flags, .open = open };
	struct writer out = writer_on(payload, sizeof(payload));

	msg_gleamHostRange_put(&out, &m);
	move_say(w, OP_gleamHostRange, CTX_NONE, true, payload, (uint32_t)out.at);
}

void host_ranges_say(struct worker *w)
{
	while (gone_first) {
		struct host_gone *gone = gone_first;

		gone_first = gone->next;
		range_say(w, gone->address, gone->bytes, 0, false);
		free(gone);
	}
	for (struct host_range *range = w->host_ranges; range; range = range->next) {
		if (range->said || range->leaving)
			continue;
		range->hashes = calloc((range->bytes + MOVE_CHUNK - 1) / MOVE_CHUNK, sizeof(*range->hashes));
		if (!range->hashes)
			continue; /* the contents say so */
		range->said = true;
		range_say(w, range->address, range->bytes, range->flags, true);
	}
}

/* What client and worker have agreed on; after work has ended and been told that is what lies there. */
bool host_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total)
{
	for (struct host_range *range = w->host_ranges; range; range = range->next) {
		struct move_place place = { .device = DEVICES_MAX, .address = range->address };
		uint64_t at = 0;

		*total += range->bytes;
		if (range->leaving)
			continue;
		if (!range->said || !move_contents(w, &place, range->bytes, range->hashes, limit, &at))
			return false;
		*left += at < range->bytes ? range->bytes - at : 0;
	}
	return true;
}

CUresult host_contents_take(struct worker *w, uint64_t address, const void *bytes, uint64_t size, bool zero)
{
	for (struct host_range *range = w->host_ranges; range; range = range->next) {
		uint64_t at = address - range->address;

		if (address < range->address || at > range->bytes || size > range->bytes - at)
			continue;
		pthread_mutex_lock(&ranges_lock);
		if (zero) {
			memset((void *)(uintptr_t)address, 0, size);
			memset(range->shadow + at, 0, size);
		} else {
			memcpy((void *)(uintptr_t)address, bytes, size);
			memcpy(range->shadow + at, bytes, size);
		}
		pthread_mutex_unlock(&ranges_lock);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

void host_forget(struct worker *w)
{
	while (gone_first) {
		struct host_gone *next = gone_first->next;

		free(gone_first);
		gone_first = next;
	}
	for (struct host_range *range = w->host_ranges; range; range = range->next) {
		range->said = false;
		free(range->hashes);
		range->hashes = NULL;
	}
}
