/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in a move: what the other worker is told of pieces, mappings and contents, and what it does then. Executor thread. */
#include <stdlib.h>
#include <string.h>

#include "broker/worker/context.h"
#include "broker/worker/grant_private.h"
#include "broker/worker/move_in.h"
#include "gen/worker_bodies.h"

/* ---- what is said ---- */

#define NAMES_MAX 512u /* of a command, as gleamMap says */

bool grants_settled(const struct worker *w)
{
	return !w->grant || (!w->grant->leaving && !w->grant->asks);
}

static void names_say(struct worker *w, uint16_t op, uint32_t device, const uint64_t *names, uint32_t count)
{
	uint8_t payload[NAMES_MAX * 8 + 64] __attribute__((aligned(8)));
	/* Both messages are alike. */
	struct msg_gleamMovePieces m = { .device = device, .pieces = names, .pieces_count = count };
	struct writer out = writer_on(payload, sizeof(payload));

	if (!count)
		return;
	msg_gleamMovePieces_put(&out, &m);
	move_say(w, op, CTX_NONE, false, payload, (uint32_t)out.at);
}

static void gone_say(struct worker *w, struct grant *g)
{
	for (uint32_t i = 0; i < g->gone_count; i++)
		move_say(w, OP_gleamMoveUnmap, CTX_NONE, false, &g->gone[i], sizeof(g->gone[i]));
	g->gone_count = 0;
	for (uint32_t i = 0; i < g->dropped_count; i++) {
		uint64_t name = g->dropped[i] & ~(0xffull << 56);

		names_say(w, OP_gleamMoveDrop, (uint32_t)(g->dropped[i] >> 56), &name, 1);
	}
	g->dropped_count = 0;
}

static void pieces_say(struct worker *w, struct grant *g)
{
	for (uint32_t device = 0; device < w->device_count; device++) {
		uint64_t names[NAMES_MAX];
		uint32_t count = 0;

		for (uint32_t id = 1; id < g->size; id++) {
			struct piece *piece = &g->pieces[id];

			if (piece->state == PIECE_NONE || piece->state == PIECE_WIPING || piece->said || piece->device != device)
				continue;
			piece->said = true;
			names[count++] = piece_name(g, id);
			if (count == NAMES_MAX) {
				names_say(w, OP_gleamMovePieces, device, names, count);
				count = 0;
			}
		}
		names_say(w, OP_gleamMovePieces, device, names, count);
	}
}

static bool map_say(struct worker *w, struct grant *g, struct mapping *map)
{
	uint8_t payload[NAMES_MAX * 8 + 64] __attribute__((aligned(8)));
	struct writer out = writer_on(payload, sizeof(payload));
	uint64_t names[NAMES_MAX];
	struct msg_gleamMoveMap m = {
		.address = map->address, .device = map->device, .pieces = names, .pieces_count = map->count,
	};

	map->hashes = calloc((map->bytes + MOVE_CHUNK - 1) / MOVE_CHUNK, sizeof(*map->hashes));
	if (!map->hashes || map->count > NAMES_MAX)
		return false;
	for (uint32_t i = 0; i < map->count; i++)
		names[i] = piece_name(g, map->pieces[i]);
	msg_gleamMoveMap_put(&out, &m);
	move_say(w, OP_gleamMoveMap, CTX_NONE, false, payload, (uint32_t)out.at);
	return true;
}

static void peers_say(struct worker *w, struct grant *g)
{
	for (uint32_t owner = 0; owner < w->device_count; owner++)
		for (uint32_t device = 0; device < w->device_count; device++) {
			uint8_t payload[64] __attribute__((aligned(8)));
			struct writer out = writer_on(payload, sizeof(payload));
			struct msg_gleamPeer m = {
				.device = device, .owner = owner, .on = g->open[owner] >> device & 1, .index = CTX_NONE,
				.owner_index = CTX_NONE,
			};

			if (((g->open[owner] ^ g->open_said[owner]) >> device & 1) == 0)
				continue;
			g->open_said[owner] ^= 1u << device;
			msg_gleamPeer_put(&out, &m);
			move_say(w, OP_gleamPeer, CTX_NONE, false, payload, (uint32_t)out.at);
		}
}

bool grants_say(struct worker *w)
{
	struct grant *g = w->grant;

	if (!g)
		return true;
	gone_say(w, g);
	pieces_say(w, g);
	for (uint32_t i = 0; i < MAP_BUCKETS; i++)
		for (struct mapping *map = g->buckets[i]; map; map = map->next)
			if (!map->leaving && !map->hashes && !map_say(w, g, map))
				return false;
	peers_say(w, g);
	return true;
}

bool grants_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total)
{
	for (uint32_t i = 0; w->grant && i < MAP_BUCKETS; i++)
		for (struct mapping *map = w->grant->buckets[i]; map; map = map->next) {
			struct move_place place = { .device = map->device, .address = map->address };

			*total += map->bytes;
			if (map->leaving)
				continue;
			if (!move_contents(w, &place, map->bytes, map->hashes, limit, &map->looked))
				return false;
			*left += map->looked < map->bytes ? map->bytes - map->looked : 0;
		}
	return true;
}

uint64_t grants_end_of(const struct worker *w, uint64_t address)
{
	for (uint32_t i = 0; w->grant && i < MAP_BUCKETS; i++)
		for (const struct mapping *map = w->grant->buckets[i]; map; map = map->next)
			if (!map->leaving && address >= map->address && address - map->address < map->bytes)
				return map->address + map->bytes;
	return 0;
}

void grants_turn(struct worker *w)
{
	for (uint32_t i = 0; w->grant && i < MAP_BUCKETS; i++)
		for (struct mapping *map = w->grant->buckets[i]; map; map = map->next)
			map->looked = 0;
}

void grants_forget(struct worker *w)
{
	struct grant *g = w->grant;

	if (!g)
		return;
	g->gone_count = g->dropped_count = 0;
	memset(g->open_said, 0, sizeof(g->open_said));
	for (uint32_t id = 1; id < g->size; id++)
		g->pieces[id].said = false;
	for (uint32_t i = 0; i < MAP_BUCKETS; i++)
		for (struct mapping *map = g->buckets[i]; map; map = map->next) {
			free(map->hashes);
			map->hashes = NULL;
			map->looked = 0;
		}
}

/* ---- what is heard ---- */

/* The ids up to @id exist, and @id is free. */
static bool piece_id_take(struct grant *g, uint64_t id)
{
	while (id >= g->size)
		if (!piece_ids_grow(g))
			return false;
	return g->pieces[id].state == PIECE_NONE;
}

static CUresult piece_clean(struct worker *w, uint32_t id)
{
	struct grant *g = w->grant;
	uint64_t bytes = piece_class_size[g->pieces[id].class];
	struct context *c = context_own(w, g->pieces[id].device);
	CUdeviceptr scratch = 0;
	CUresult r = c ? context_use(w, c) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemAddressReserve(&scratch, bytes, 0, 0, 0);
	if (r != CUDA_SUCCESS)
		return r;
	r = range_map(w, scratch, g->pieces[id].device, &id, 1);
	if (r == CUDA_SUCCESS) {
		r = w->drv.cuMemsetD8_v2(scratch, 0, bytes);
		if (r == CUDA_SUCCESS)
			r = w->drv.cuCtxSynchronize();
		range_unmap(w, scratch, bytes);
	}
	w->drv.cuMemAddressFree(scratch, bytes);
	return r;
}

CUresult worker_do_gleamMovePieces(struct worker *w, struct cmd *cmd, const struct msg_gleamMovePieces *m)
{
	struct grant *g = grants(w);
	CUmemAllocationProp prop;

	if (!w->moving || m->device >= w->device_count)
		return CMD_BROKEN;
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	prop = piece_prop(w, m->device);
	for (uint32_t i = 0; i < m->pieces_count; i++) {
		uint64_t id = m->pieces[i] >> 8;
		uint32_t class = m->pieces[i] & 0xff;
		CUmemGenericAllocationHandle handle;
		CUresult r;

		if (!id || id >= PIECES_MAX || class >= PIECE_CLASSES)
			return CMD_BROKEN;
		if (g->bytes + piece_class_size[class] > w->settings.grant_max)
			return CUDA_ERROR_OUT_OF_MEMORY;
		r = w->drv.cuMemCreate(&handle, piece_class_size[class], &prop, 0);
		if (r != CUDA_SUCCESS)
			return r;
		if (!piece_id_take(g, id)) {
			w->drv.cuMemRelease(handle);
			return CUDA_ERROR_INVALID_VALUE;
		}
		g->pieces[id] = (struct piece){ .driver = handle, .class = (uint8_t)class, .device = (uint8_t)m->device };
		piece_is(w, (uint32_t)id, PIECE_UNSPENT);
		g->bytes += piece_class_size[class];
		r = w->settings.wipe ? piece_clean(w, (uint32_t)id) : CUDA_SUCCESS;
		if (r != CUDA_SUCCESS)
			return r;
	}
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveMap(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveMap *m)
{
	struct msg_gleamMap map = { .address = m->address, .device = m->device, .pieces = m->pieces, .pieces_count = m->pieces_count };

	return w->moving ? worker_do_gleamMap(w, cmd, &map) : CMD_BROKEN;
}

CUresult worker_do_gleamMoveUnmap(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveUnmap *m)
{
	struct grant *g = grants(w);
	struct mapping **link = g ? mapping_at(g, m->address) : NULL;
	struct mapping *map = link ? *link : NULL;

	if (!w->moving)
		return CMD_BROKEN;
	if (!map)
		return CUDA_ERROR_INVALID_VALUE;
	move_in_settle(w);
	range_unmap(w, map->address, map->bytes);
	for (uint32_t i = 0; i < map->count; i++)
		piece_is(w, map->pieces[i], PIECE_UNSPENT);
	*link = map->next;
	free(map->hashes);
	free(map);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveDrop(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveDrop *m)
{
	struct msg_gleamGrantReturn back = { .device = m->device, .pieces = m->pieces, .pieces_count = m->pieces_count };

	return w->moving ? worker_do_gleamGrantReturn(w, cmd, &back) : CMD_BROKEN;
}
