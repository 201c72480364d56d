/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mirrors of the client's page-locked memory. Executor thread; see host.h.
 *
 * A range is mapped at its address and registered, so that kernels, stream words and copies find it there. Exchanging
 * contents with the client is another matter, which no command asks for yet: a fresh mirror is zero.
 */
#include "broker/worker/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "broker/worker/note.h"
#include "broker/worker/stream.h"
#include "gen/worker_bodies.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define HOST_BYTES_MAX (64ull << 30) /* mirrors of a session; pages that nobody touches take no memory, pinned ones do */
#define HOST_RANGES_MAX 65536u
#define PAGE 4096u

struct host_range {
	struct host_range *next;
	uint64_t address;
	uint64_t bytes;
	bool leaving;
};

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
	*range = (struct host_range){ .next = w->host_ranges, .address = m->address, .bytes = m->bytes };
	r = w->drv.cuMemHostRegister_v2(got, m->bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
	if (r != CUDA_SUCCESS) {
		range_give(w, range);
		free(range);
		return r;
	}
	w->host_ranges = range;
	return CUDA_SUCCESS;
}

/* Nothing issued before its end uses it any more. */
static void range_left(struct worker *w, struct join *join)
{
	struct host_range *range = join->object;
	struct host_range **link = range_at(w, range->address);

	w->drv.cuMemHostUnregister((void *)(uintptr_t)range->address);
	range_give(w, range);
	if (*link == range)
		*link = range->next;
	free(range);
	free(join);
}

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
	streams_join(w, NULL, join);
	return CUDA_SUCCESS;
}

void host_ranges_stop(struct worker *w)
{
	while (w->host_ranges) {
		struct host_range *range = w->host_ranges;

		w->host_ranges = range->next;
		w->drv.cuMemHostUnregister((void *)(uintptr_t)range->address);
		range_give(w, range);
		free(range);
	}
}
