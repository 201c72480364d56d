/* SPDX-License-Identifier: Apache-2.0 */
/* The client's own pages; see pages.h. */
#include "broker/worker/pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/proto/space.h"
#include "broker/worker/note.h"
#include "broker/worker/peer.h"
#include "broker/worker/post.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "gen/worker_bodies.h"

#define PAGE	     4096u
#define PAGES_FIRST  64u
#define PAGES_MAX    65536u
#define BYTES_MAX    (256ull << 30) /* of a client; what is really there its own limits say */
#define PAGES_BEYOND (2ull << 40)   /* they lie so far behind the client's address: beyond Gleam's range, where nothing else is */

static_assert(SESSION_PAGES_SIZE >= SPACE_SPAN, "offsets in the file are those in Gleam's range");

struct run {
	uint64_t address; /* the client's */
	uint64_t bytes;
	uint8_t *map;
	bool leaving;
};

struct pages {
	int fd;
	struct run *runs; /* by address */
	uint32_t count;
	uint32_t room;
	uint64_t bytes;
};

/* The first run that ends after @address. */
static uint32_t run_at(const struct pages *pages, uint64_t address)
{
	uint32_t low = 0, high = pages->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (pages->runs[middle].address + pages->runs[middle].bytes <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct run *run_find(const struct pages *pages, uint64_t address)
{
	uint32_t at = pages ? run_at(pages, address) : 0;

	return pages && at < pages->count && pages->runs[at].address <= address ? &pages->runs[at] : NULL;
}

static bool in_range(const struct worker *w, uint64_t address, uint64_t bytes)
{
	uint64_t start = w->settings.range_host;

	return address >= start && address - start < w->settings.range_size && bytes <= w->settings.range_size - (address - start);
}

static bool runs_grow(struct pages *pages)
{
	uint32_t room = pages->room ? 2 * pages->room : PAGES_FIRST;
	struct run *runs;

	if (pages->count < pages->room)
		return true;
	if (pages->count >= PAGES_MAX)
		return false;
	runs = realloc(pages->runs, room * sizeof(*runs));
	if (!runs)
		return false;
	pages->runs = runs;
	pages->room = room;
	return true;
}

static CUresult run_open(struct worker *w, const struct msg_gleamPages *m)
{
	struct pages *pages = w->pages;
	uint32_t at;
	void *map;
	CUresult r;

	if (!m->bytes || m->address % PAGE || m->bytes % PAGE)
		return CMD_BROKEN;
	if (!in_range(w, m->address, m->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	at = run_at(pages, m->address);
	if (at < pages->count && pages->runs[at].address < m->address + m->bytes)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (m->bytes > BYTES_MAX - pages->bytes || !runs_grow(pages))
		return CUDA_ERROR_OUT_OF_MEMORY;
	map = mmap((void *)(uintptr_t)(m->address + PAGES_BEYOND), m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pages->fd,
		   (off_t)(m->address - w->settings.range_host));
	if (map == MAP_FAILED) {
		note(w, "%llu bytes of the client's memory can't be mapped: %s", (unsigned long long)m->bytes, strerror(errno));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	r = w->drv.cuMemHostRegister_v2(map, m->bytes, CU_MEMHOSTREGISTER_PORTABLE);
	if (r != CUDA_SUCCESS) {
		note(w, "registering %llu bytes of the client's memory: %d", (unsigned long long)m->bytes, (int)r);
		munmap(map, m->bytes);
		return r;
	}
	memmove(pages->runs + at + 1, pages->runs + at, (pages->count - at) * sizeof(*pages->runs));
	pages->runs[at] = (struct run){ .address = m->address, .bytes = m->bytes, .map = map };
	pages->count++;
	pages->bytes += m->bytes;
	return CUDA_SUCCESS;
}

/* Nothing issued before its end uses it any more, and the client waits for that. */
static void run_left(struct worker *w, struct join *join)
{
	struct pages *pages = w->pages;
	struct run *run = run_find(pages, join->a);

	/* As in host.c: the driver may wait for what was sent since, and that for a host function whose end only this thread hears of. */
	if (host_calls_pending(w, NULL)) {
		streams_join(w, NULL, join);
		return;
	}
	if (run && run->leaving) {
		w->drv.cuMemHostUnregister(run->map);
		munmap(run->map, run->bytes);
		pages->bytes -= run->bytes;
		pages->count--;
		memmove(run, run + 1, (size_t)(pages->runs + pages->count - run) * sizeof(*run));
	}
	post_reply(w, &join->hdr, CUDA_SUCCESS, w->answer, sizeof(uint32_t), NULL);
	free(join);
}

CUresult worker_do_gleamPages(struct worker *w, struct cmd *cmd, const struct msg_gleamPages *m)
{
	struct join *join;
	struct run *run;

	/* A client that has come from elsewhere: what it has no more it can end all the same. */
	if (!w->pages)
		return m->open ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	if (m->open)
		return run_open(w, m);
	run = run_find(w->pages, m->address);
	if (!run || run->address != m->address || run->leaving)
		return CUDA_SUCCESS;
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	run->leaving = true;
	join->done = run_left;
	join->a = m->address;
	join->hdr = *cmd->hdr;
	streams_join(w, NULL, join);
	return CMD_LATER;
}

/* Where the client's @bytes at @address lie here; NULL: nowhere. */
static uint8_t *place(const struct worker *w, uint64_t address, uint64_t bytes)
{
	struct run *run = run_find(w->pages, address);

	if (!run || bytes > run->bytes - (address - run->address))
		return NULL;
	return run->map + (address - run->address);
}

CUresult worker_do_gleamPagesUp(struct worker *w, struct cmd *cmd, const struct msg_gleamPagesUp *m)
{
	const uint8_t *host = place(w, m->host, m->size);

	if (!host)
		return CUDA_ERROR_INVALID_VALUE;
	peer_copies(w, cmd, m->dst);
	return w->drv.cuMemcpyHtoDAsync_v2(m->dst, host, m->size, cmd->stream);
}

CUresult worker_do_gleamPagesDown(struct worker *w, struct cmd *cmd, const struct msg_gleamPagesDown *m)
{
	uint8_t *host = place(w, m->host, m->size);

	if (!host)
		return CUDA_ERROR_INVALID_VALUE;
	peer_copies(w, cmd, m->src);
	/* The client looks whether it is there by the stream's word. */
	cmd->write_now = true;
	return w->drv.cuMemcpyDtoHAsync_v2(host, m->src, m->size, cmd->stream);
}

int pages_start(struct worker *w, int fd)
{
	w->pages = calloc(1, sizeof(*w->pages));
	if (!w->pages)
		return -ENOMEM;
	w->pages->fd = fd;
	return 0;
}

void pages_stop(struct worker *w)
{
	struct pages *pages = w->pages;

	if (!pages)
		return;
	for (uint32_t i = 0; i < pages->count; i++) {
		w->drv.cuMemHostUnregister(pages->runs[i].map);
		munmap(pages->runs[i].map, pages->runs[i].bytes);
	}
	close(pages->fd);
	free(pages->runs);
	free(pages);
	w->pages = NULL;
}
