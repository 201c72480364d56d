// SPDX-License-Identifier: Apache-2.0
/*
 * Resources of green contexts by number; see green.h. Executor thread.
 */
#include "broker/worker/green.h"

#include <stdlib.h>
#include <string.h>

#include "broker/worker/move_in.h"
#include "broker/worker/move_out.h"
#include "gen/worker_bodies.h"

struct resources {
	uint32_t count;
	uint32_t room;
	CUdevResource *at;
};

const CUdevResource *resource_at(const struct worker *w, uint32_t number)
{
	return w->resources && number < w->resources->count ? &w->resources->at[number] : NULL;
}

uint32_t resources_count(const struct worker *w)
{
	return w->resources ? w->resources->count : 0;
}

void resources_free(struct worker *w)
{
	if (w->resources)
		free(w->resources->at);
	free(w->resources);
	w->resources = NULL;
}

static struct resource_entry entry_of(const struct worker *w, uint32_t number)
{
	const CUdevResource *resource = resource_at(w, number);

	return (struct resource_entry){ .number = number, .count = resource->sm.smCount, .least = resource->sm.minSmPartitionSize,
					.unit = resource->sm.smCoscheduledAlignment };
}

static CUresult resource_add(struct worker *w, const CUdevResource *resource, struct resource_entry *entry_out)
{
	struct resources *r = w->resources;

	*entry_out = (struct resource_entry){ .number = RESOURCE_NONE };
	if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_SUCCESS; /* nothing remains */
	if (!r)
		r = w->resources = calloc(1, sizeof(*r));
	if (!r || r->count == RESOURCES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (r->count == r->room) {
		uint32_t room = r->room ? r->room * 2 : 16;
		CUdevResource *at = realloc(r->at, room * sizeof(*at));

		if (!at)
			return CUDA_ERROR_OUT_OF_MEMORY;
		r->at = at;
		r->room = room;
	}
	r->at[r->count++] = *resource;
	*entry_out = entry_of(w, r->count - 1);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamResource(struct worker *w, struct cmd *cmd, const struct msg_gleamResource *m, struct ans_gleamResource *a)
{
	struct resource_entry entry;
	CUdevResource resource;
	CUresult r;

	memset(&resource, 0, sizeof(resource));
	if (m->index < SESSION_CONTEXTS) {
		if (!w->contexts[m->index].open)
			return CUDA_ERROR_INVALID_CONTEXT;
		r = w->drv.cuCtxGetDevResource(w->contexts[m->index].driver, &resource, CU_DEV_RESOURCE_TYPE_SM);
	} else {
		if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
			return CUDA_ERROR_INVALID_DEVICE;
		r = w->drv.cuDeviceGetDevResource(w->devices[m->device], &resource, CU_DEV_RESOURCE_TYPE_SM);
	}
	if (r == CUDA_SUCCESS)
		r = resource_add(w, &resource, &entry);
	if (r == CUDA_SUCCESS)
		memcpy(a->entry, &entry, sizeof(entry));
	/* A driver from before 12.4. */
	return r == CUDA_ERROR_NOT_FOUND ? CUDA_ERROR_NOT_SUPPORTED : r;
}

CUresult worker_do_gleamResourceSplit(struct worker *w, struct cmd *cmd, const struct msg_gleamResourceSplit *m,
				      struct ans_gleamResourceSplit *a)
{
	static struct resource_entry entries[RESOURCE_GROUPS + 1]; /* the answer's, which is written when this has returned */
	CUdevResource groups[RESOURCE_GROUPS], remaining;
	const CUdevResource *from = resource_at(w, m->from);
	CUdevResource input;
	unsigned int count = m->want;
	uint32_t before = resources_count(w);
	CUresult r;

	if (m->want > RESOURCE_GROUPS)
		return CMD_BROKEN;
	if (!from)
		return CUDA_ERROR_INVALID_VALUE;
	input = *from;
	memset(&remaining, 0, sizeof(remaining));
	r = w->drv.cuDevSmResourceSplitByCount(m->want ? groups : NULL, &count, &input, &remaining, m->flags, m->least);
	if (r != CUDA_SUCCESS)
		return r;
	a->count = count;
	a->entries = entries;
	a->entries_size = 0;
	if (!m->want)
		return CUDA_SUCCESS;
	if (count > m->want)
		return CUDA_ERROR_UNKNOWN;
	for (unsigned int i = 0; i <= count && r == CUDA_SUCCESS; i++)
		r = resource_add(w, i < count ? &groups[i] : &remaining, &entries[i]);
	a->entries_size = (count + 1) * (uint32_t)sizeof(entries[0]);
	/* Of a split that has failed nobody knows a number. */
	if (r != CUDA_SUCCESS && w->resources)
		w->resources->count = before;
	return r;
}

/* ---- moves ---- */

void resources_say(struct worker *w, uint32_t first, uint32_t count)
{
	struct resource_entry entries[RESOURCE_GROUPS + 1];
	uint8_t payload[sizeof(entries) + 64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	struct msg_gleamMoveResource m = { .first = first, .entries = entries, .entries_size = count * (uint32_t)sizeof(entries[0]) };

	for (uint32_t i = 0; i < count; i++)
		entries[i] = entry_of(w, first + i);
	msg_gleamMoveResource_put(&out, &m);
	move_say(w, OP_gleamMoveResource, CTX_NONE, false, payload, (uint32_t)out.at);
}

CUresult worker_do_gleamMoveResource(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveResource *m)
{
	uint32_t count = m->entries_size / (uint32_t)sizeof(struct resource_entry);

	if (!w->moving || !count || m->entries_size % sizeof(struct resource_entry))
		return CMD_BROKEN;
	for (uint32_t i = 0; i < count; i++) {
		struct resource_entry known, made;

		memcpy(&known, (const uint8_t *)m->entries + i * sizeof(known), sizeof(known));
		if (resource_at(w, m->first + i)) {
			made = entry_of(w, m->first + i);
			if (memcmp(&known, &made, sizeof(known)) == 0)
				continue;
		}
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
			       "its GPU's multiprocessors are split in another way than the program knows");
		return CUDA_SUCCESS;
	}
	/* The answer to the next one begins there. */
	if (m->first + count != resources_count(w))
		move_in_failed(w, cmd->hdr->op, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
			       "its GPU's multiprocessors are split into more parts than the program knows");
	return CUDA_SUCCESS;
}
