/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical device memory in pieces. Executor thread; see grant.h.
 *
 * A piece is made for this client and wiped before the client hears of it, so that no wipe stands in the way of its
 * first use. It goes UNSPENT -> MAPPED -> LEAVING (its range is freed; work issued before may still use it) -> UNSPENT.
 */
#include "broker/worker/grant.h"

#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/worker/context.h"
#include "broker/worker/grant_private.h"
#include "broker/worker/note.h"
#include "broker/worker/post.h"
#include "broker/worker/share.h"
#include "broker/worker/shortage.h"
#include "gen/worker_bodies.h"

struct grant *grants(struct worker *w)
{
	if (!w->grant)
		w->grant = calloc(1, sizeof(*w->grant));
	return w->grant;
}

/* ---- pieces ---- */

bool piece_ids_grow(struct grant *g)
{
	uint32_t size = g->size ? g->size * 2 : 1024;
	struct piece *pieces;

	if (g->size >= PIECES_MAX)
		return false;
	pieces = realloc(g->pieces, size * sizeof(*pieces));
	if (!pieces)
		return false;
	memset(pieces + g->size, 0, (size - g->size) * sizeof(*pieces));
	g->pieces = pieces;
	g->size = size;
	return true;
}

/* The lowest that is free, so that the same commands get the same names from any worker. */
uint32_t piece_id_new(struct grant *g)
{
	uint32_t id = g->free_first ? g->free_first : 1;

	while (id < g->size && g->pieces[id].state != PIECE_NONE)
		id++;
	g->free_first = id;
	return id < g->size || piece_ids_grow(g) ? id : 0;
}

void piece_id_free(struct grant *g, uint32_t id)
{
	g->pieces[id] = (struct piece){ .state = PIECE_NONE };
	if (id < g->free_first)
		g->free_first = id;
}

CUmemAllocationProp piece_prop(struct worker *w, uint32_t device)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = w->devices[device] },
	};
}

static CUresult piece_make(struct worker *w, uint32_t device, uint32_t class, uint32_t *id_out)
{
	struct grant *g = w->grant;
	CUmemAllocationProp prop = piece_prop(w, device);
	CUmemGenericAllocationHandle handle;
	CUresult r;
	uint32_t id;

	if (g->bytes + piece_class_size[class] > w->settings.grant_max)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = w->drv.cuMemCreate(&handle, piece_class_size[class], &prop, 0);
	if (r != CUDA_SUCCESS)
		return r;
	id = piece_id_new(g);
	if (!id) {
		w->drv.cuMemRelease(handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	g->pieces[id] = (struct piece){ .driver = handle, .state = PIECE_WIPING, .class = (uint8_t)class,
					.device = (uint8_t)device };
	g->bytes += piece_class_size[class];
	*id_out = id;
	return CUDA_SUCCESS;
}

/* For the next time that something is said; without memory the move fails at its end, where the books differ. */
static void later_add(uint64_t **list, uint32_t *count, uint32_t *room, uint64_t value)
{
	if (*count == *room) {
		uint32_t size = *room ? 2 * *room : 64;
		uint64_t *more = realloc(*list, size * sizeof(*more));

		if (!more)
			return;
		*list = more;
		*room = size;
	}
	(*list)[(*count)++] = value;
}

void piece_is(struct worker *w, uint32_t id, enum piece_state state)
{
	struct piece *piece = &w->grant->pieces[id];

	if ((piece->state == PIECE_UNSPENT) != (state == PIECE_UNSPENT))
		shortage_idle(w, state == PIECE_UNSPENT ? piece_class_size[piece->class] : -piece_class_size[piece->class]);
	piece->state = state;
}

static void piece_release(struct worker *w, uint32_t id)
{
	struct grant *g = w->grant;

	piece_is(w, id, PIECE_NONE);

	if (g->pieces[id].said)
		later_add(&g->dropped, &g->dropped_count, &g->dropped_room,
			  ((uint64_t)id << 8 | g->pieces[id].class) | (uint64_t)g->pieces[id].device << 56);
	w->drv.cuMemRelease(g->pieces[id].driver);
	g->bytes -= piece_class_size[g->pieces[id].class];
	piece_id_free(g, id);
}

uint64_t piece_name(const struct grant *g, uint32_t id)
{
	return (uint64_t)id << 8 | g->pieces[id].class;
}

/* 0 unless the client's name is that of a piece of @device in @state. */
static uint32_t piece_of(const struct grant *g, uint64_t name, uint32_t device, enum piece_state state)
{
	uint64_t id = name >> 8;

	if (!id || id >= g->size || g->pieces[id].state != state || g->pieces[id].class != (name & 0xff) ||
	    g->pieces[id].device != device)
		return 0;
	return (uint32_t)id;
}

/* ---- mapping ---- */

static CUmemAccessDesc access_of(const struct worker *w, uint32_t device, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = w->devices[device] }, .flags = flags,
	};
}

CUresult grants_open(struct worker *w, uint32_t device, uint32_t owner, bool on)
{
	CUmemAccessDesc access =
		access_of(w, device, on ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
	struct grant *g = grants(w);
	CUresult r = CUDA_SUCCESS;

	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((g->open[owner] >> device & 1) == on)
		return CUDA_SUCCESS;
	for (uint32_t i = 0; i < MAP_BUCKETS && r == CUDA_SUCCESS; i++)
		for (const struct mapping *map = g->buckets[i]; map && r == CUDA_SUCCESS; map = map->next)
			if (map->device == owner)
				r = w->drv.cuMemSetAccess(map->address, map->bytes, &access, 1);
	if (r == CUDA_SUCCESS)
		g->open[owner] ^= 1u << device;
	return r;
}

CUresult range_map(struct worker *w, CUdeviceptr address, uint32_t device, const uint32_t *ids, uint32_t count)
{
	struct grant *g = w->grant;
	CUmemAccessDesc access[DEVICES_MAX];
	uint32_t devices = 0;
	uint64_t at = 0;
	CUresult r = CUDA_SUCCESS;
	uint32_t i;

	for (i = 0; i < count && r == CUDA_SUCCESS; i++) {
		uint64_t size = piece_class_size[g->pieces[ids[i]].class];

		r = w->drv.cuMemMap(address + at, size, 0, g->pieces[ids[i]].driver, 0);
		if (r == CUDA_SUCCESS)
			at += size;
	}
	for (uint32_t d = 0; d < w->device_count; d++)
		if (d == device || g->open[device] >> d & 1)
			access[devices++] = access_of(w, d, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemSetAccess(address, at, access, devices);
	if (r != CUDA_SUCCESS && at)
		w->drv.cuMemUnmap(address, at);
	return r;
}

/* Mapped, so that it can be freed; the driver takes single mappings or, as documented, a run of whole ones. */
void range_unmap(struct worker *w, CUdeviceptr address, uint64_t bytes)
{
	CUresult r = w->drv.cuMemUnmap(address, bytes);

	if (r != CUDA_SUCCESS)
		complain("unmapping %llu bytes at 0x%llx: %d", (unsigned long long)bytes, (unsigned long long)address, (int)r);
}

/* ---- grants ---- */

static void ask_answer(struct worker *w, struct grant_ask *ask, CUresult result)
{
	struct grant *g = w->grant;
	uint64_t names[PIECES_ANSWER];
	struct ans_gleamGrant a = { .pieces = names, .pieces_count = ask->count };
	struct writer out = { .start = w->answer, .at = 4, .size = FRAME_SIZE_MAX }; /* behind the CUresult */

	for (uint32_t i = 0; i < ask->count; i++) {
		piece_is(w, ask->ids[i], PIECE_UNSPENT);
		names[i] = piece_name(g, ask->ids[i]);
	}
	ans_gleamGrant_put(&out, &a);
	post_reply(w, &ask->hdr, result, w->answer, (uint32_t)out.at, NULL);
	free(ask);
}

static void ask_wiped(struct worker *w, struct join *join)
{
	struct grant_ask *ask = join->object;

	range_unmap(w, ask->scratch, ask->scratch_bytes);
	w->drv.cuMemAddressFree(ask->scratch, ask->scratch_bytes);
	if (join->result == CUDA_SUCCESS) {
		ask_answer(w, ask, CUDA_SUCCESS);
		return;
	}
	complain("wiping %llu bytes of device %u: %d; they are not given out", (unsigned long long)ask->scratch_bytes,
		 ask->device, (int)join->result);
	for (uint32_t i = 0; i < ask->count; i++)
		piece_release(w, ask->ids[i]);
	ask->count = 0;
	ask_answer(w, ask, join->result);
}

/* A stream of the worker's own, which no client's work holds up. */
static struct stream *wiper(struct worker *w, uint32_t device, struct context *c)
{
	struct stream **s = &w->grant->wipers[device];
	CUstream driver;
	int least = 0, greatest = 0;

	if (*s)
		return *s;
	w->drv.cuCtxGetStreamPriorityRange(&least, &greatest);
	if (w->drv.cuStreamCreateWithPriority(&driver, CU_STREAM_NON_BLOCKING, greatest) != CUDA_SUCCESS)
		return NULL;
	*s = stream_new_own(w, c, driver);
	if (!*s)
		w->drv.cuStreamDestroy_v2(driver);
	return *s;
}

void grants_context_lost(struct worker *w, uint32_t device)
{
	struct stream *s = w->grant ? w->grant->wipers[device] : NULL;

	if (!s)
		return;
	w->grant->wipers[device] = NULL;
	w->drv.cuStreamSynchronize(s->driver);
	stream_bury(w, s, CUDA_ERROR_CONTEXT_IS_DESTROYED);
	stream_put(w, s);
}

/* Takes @ask on success: it is answered when the memory is clean. */
static CUresult ask_wipe(struct worker *w, struct grant_ask *ask)
{
	struct context *c = context_own(w, ask->device);
	CUresult r = c ? context_use(w, c) : CUDA_ERROR_OUT_OF_MEMORY;
	struct stream *s;

	for (uint32_t i = 0; i < ask->count; i++)
		ask->scratch_bytes += piece_class_size[w->grant->pieces[ask->ids[i]].class];
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemAddressReserve(&ask->scratch, ask->scratch_bytes, 0, 0, 0);
	if (r != CUDA_SUCCESS)
		return r;
	r = range_map(w, ask->scratch, ask->device, ask->ids, ask->count);
	if (r != CUDA_SUCCESS)
		goto free_range;
	s = wiper(w, ask->device, c);
	r = s ? w->drv.cuMemsetD8Async(ask->scratch, 0, ask->scratch_bytes, s->driver) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r != CUDA_SUCCESS)
		goto unmap;
	ask->join = (struct join){ .done = ask_wiped, .object = ask };
	/* Streams of the worker's own count for themselves: one number per wipe. */
	s->arrived++;
	stream_note_issued(w, s, s->arrived, 1, true);
	if (!stream_join(w, s, s->arrived, &ask->join)) {
		/* Rare enough to wait for it here. */
		w->drv.cuStreamSynchronize(s->driver);
		ask_wiped(w, &ask->join);
	}
	return CUDA_SUCCESS;

unmap:
	range_unmap(w, ask->scratch, ask->scratch_bytes);
free_range:
	w->drv.cuMemAddressFree(ask->scratch, ask->scratch_bytes);
	return r;
}

/* What the device has free, by the driver's own book. 0 if it does not say. */
static uint64_t device_free(struct worker *w, uint32_t device)
{
	struct context *c = context_own(w, device);
	size_t free_bytes = 0, total = 0;

	if (!c || context_use(w, c) != CUDA_SUCCESS || w->drv.cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
		return 0;
	return free_bytes;
}

/*
 * Small pieces for what the client will allocate next, so that it needn't ask each time. Nobody needs them yet: where the device hasn't
 * several times as much they stay with it.
 */
static void ask_spare(struct worker *w, struct grant_ask *ask)
{
	uint64_t left = ask->spare < GRANT_SPARE_MAX ? ask->spare : GRANT_SPARE_MAX;

	if (left && device_free(w, ask->device) / GRANT_SPARE_PART < left)
		return;
	while (left >= piece_class_size[0] && ask->count < PIECES_ANSWER &&
	       piece_make(w, ask->device, 0, &ask->ids[ask->count]) == CUDA_SUCCESS) {
		ask->count++;
		left -= piece_class_size[0];
	}
}

/*
 * Makes all that was asked for, large pieces first, or nothing: what is too little for an allocation would only be
 * missing elsewhere. Takes @ask, unless memory is short and may come back, from the client's own quarantine (not if @settled) or from
 * other programs: false then.
 */
static bool ask_serve(struct worker *w, struct grant_ask *ask, bool settled)
{
	uint64_t left = ask->bytes;
	CUresult r = CUDA_SUCCESS;
	int class = PIECE_CLASSES - 1;

	/* Not even begun where it can't be enough: a hundred GiB of pieces take their time. */
	if (left > device_free(w, ask->device)) {
		r = CUDA_ERROR_OUT_OF_MEMORY;
		class = -1;
	}
	while (left && class >= 0 && ask->count < PIECES_ANSWER) {
		/* What is less than the smallest piece takes one. */
		if (class > 0 && piece_class_size[class] > left) {
			class--;
			continue;
		}
		r = piece_make(w, ask->device, (uint32_t)class, &ask->ids[ask->count]);
		if (r != CUDA_SUCCESS) {
			/* A large piece may fail where small ones still fit. */
			class--;
			continue;
		}
		left -= left < piece_class_size[class] ? left : piece_class_size[class];
		ask->count++;
	}
	if (left && r != CUDA_SUCCESS) {
		for (uint32_t i = 0; i < ask->count; i++)
			piece_release(w, ask->ids[i]);
		ask->count = 0;
		if (w->grant->leaving && !settled)
			return false;
		/* A limit of this session's own is no lack of the device's. */
		if (r == CUDA_ERROR_OUT_OF_MEMORY && ask->bytes <= w->settings.grant_max - w->grant->bytes &&
		    shortage_waits(w, &ask->shortage, ask->device, ask->bytes))
			return false;
		ask_answer(w, ask, r);
		return true;
	}
	ask_spare(w, ask);
	if (!w->settings.wipe) {
		ask_answer(w, ask, CUDA_SUCCESS);
		return true;
	}
	r = ask_wipe(w, ask);
	if (r != CUDA_SUCCESS) {
		for (uint32_t i = 0; i < ask->count; i++)
			piece_release(w, ask->ids[i]);
		ask->count = 0;
		ask_answer(w, ask, r);
	}
	return true;
}

CUresult worker_do_gleamGrant(struct worker *w, struct cmd *cmd, const struct msg_gleamGrant *m, struct ans_gleamGrant *a)
{
	struct grant_ask *ask;

	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!m->bytes)
		return CUDA_SUCCESS;
	ask = grants(w) ? calloc(1, sizeof(*ask)) : NULL;
	if (!ask)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ask->hdr = *cmd->hdr;
	ask->device = m->device;
	ask->bytes = m->bytes;
	ask->spare = m->spare;
	if (!ask_serve(w, ask, false)) {
		ask->next = w->grant->asks;
		w->grant->asks = ask;
	}
	return CMD_LATER;
}

/* The quarantine is empty, or others may have given: what waits is tried again. */
static void asks_again(struct worker *w)
{
	struct grant_ask *ask = w->grant->asks;

	w->grant->asks = NULL;
	w->grant->looked_ns = clock_ns();
	while (ask) {
		struct grant_ask *next = ask->next;

		if (!ask_serve(w, ask, !w->grant->leaving || ask->shortage.asked)) {
			ask->next = w->grant->asks;
			w->grant->asks = ask;
		}
		ask = next;
	}
}

bool grants_wait(const struct worker *w)
{
	const struct grant_ask *ask = w->grant ? w->grant->asks : NULL;

	while (ask && !ask->shortage.asked)
		ask = ask->next;
	return ask != NULL;
}

void grants_look(struct worker *w)
{
	if (grants_wait(w) && clock_ns() - w->grant->looked_ns >= SHORTAGE_LOOK_NS)
		asks_again(w);
}

CUresult worker_do_gleamGrantReturn(struct worker *w, struct cmd *cmd, const struct msg_gleamGrantReturn *m)
{
	struct grant *g = grants(w);

	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < m->pieces_count; i++) {
		uint32_t id = piece_of(g, m->pieces[i], m->device, PIECE_UNSPENT);

		if (!id)
			return CMD_BROKEN;
		piece_release(w, id);
	}
	return CUDA_SUCCESS;
}

/* ---- map and free ---- */

struct mapping **mapping_at(struct grant *g, uint64_t address)
{
	struct mapping **link = &g->buckets[address / piece_class_size[0] % MAP_BUCKETS];

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	return link;
}

CUresult worker_do_gleamMap(struct worker *w, struct cmd *cmd, const struct msg_gleamMap *m)
{
	struct grant *g = grants(w);
	struct mapping *map;
	uint64_t bytes = 0;
	uint64_t start;
	CUresult r;

	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (m->device >= w->device_count || !m->pieces_count)
		return CMD_BROKEN;
	start = w->settings.range_device + m->device * w->settings.range_size;
	map = calloc(1, sizeof(*map) + m->pieces_count * sizeof(map->pieces[0]));
	if (!map)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < m->pieces_count; i++) {
		uint32_t id = piece_of(g, m->pieces[i], m->device, PIECE_UNSPENT);

		if (!id) {
			/* Not the client's to map, or named twice. */
			for (uint32_t j = 0; j < i; j++)
				piece_is(w, map->pieces[j], PIECE_UNSPENT);
			free(map);
			return CMD_BROKEN;
		}
		piece_is(w, id, PIECE_MAPPED);
		map->pieces[i] = id;
		bytes += piece_class_size[g->pieces[id].class];
	}
	if (m->address % piece_class_size[0] || m->address < start || m->address - start >= w->settings.range_size ||
	    bytes > w->settings.range_size - (m->address - start)) {
		r = CMD_BROKEN;
		goto unspend;
	}
	if (*mapping_at(g, m->address)) {
		r = CUDA_ERROR_ALREADY_MAPPED;
		goto unspend;
	}

	r = range_map(w, m->address, m->device, map->pieces, m->pieces_count);
	if (r != CUDA_SUCCESS)
		goto unspend;
	map->address = m->address;
	map->bytes = bytes;
	map->device = m->device;
	map->count = m->pieces_count;

	struct mapping **link = mapping_at(g, m->address);

	map->next = *link;
	*link = map;
	return CUDA_SUCCESS;

unspend:
	for (uint32_t i = 0; i < m->pieces_count; i++)
		piece_is(w, map->pieces[i], PIECE_UNSPENT);
	free(map);
	return r;
}

uint32_t grants_pieces(struct worker *w, uint64_t address, CUmemGenericAllocationHandle **handles_out, uint64_t **sizes_out,
		       uint32_t *device_out)
{
	struct grant *g = w->grant;
	const struct mapping *map = g ? *mapping_at(g, address) : NULL;

	if (!map || map->leaving)
		return 0;
	*handles_out = malloc(map->count * sizeof(**handles_out));
	*sizes_out = malloc(map->count * sizeof(**sizes_out));
	if (!*handles_out || !*sizes_out)
		return 0;
	for (uint32_t i = 0; i < map->count; i++) {
		(*handles_out)[i] = g->pieces[map->pieces[i]].driver;
		(*sizes_out)[i] = piece_class_size[g->pieces[map->pieces[i]].class];
	}
	*device_out = map->device;
	return map->count;
}

/* All work that was issued before the free has completed. */
static void mapping_left(struct worker *w, struct join *join)
{
	struct grant *g = w->grant;
	struct mapping *map = join->object;
	uint64_t names[PIECES_FRAME];
	uint8_t payload[16 + PIECES_FRAME * 8] __attribute__((aligned(8)));
	struct writer p = writer_on(payload, sizeof(payload));
	struct mapping **link = mapping_at(g, map->address);

	range_unmap(w, map->address, map->bytes);
	for (uint32_t i = 0; i < map->count; i++) {
		piece_is(w, map->pieces[i], PIECE_UNSPENT);
		names[i] = piece_name(g, map->pieces[i]);
	}
	put_u64(&p, map->address);
	put_bytes(&p, names, map->count * 8);
	post_notice(w, NOTICE_FREED, join->hdr.seq, join->hdr.ctx, payload, (uint32_t)p.at);
	if (*link == map)
		*link = map->next;
	if (map->hashes)
		later_add(&g->gone, &g->gone_count, &g->gone_room, map->address);
	free(map->hashes);
	free(map);
	free(join);
	if (--g->leaving == 0)
		asks_again(w);
}

CUresult worker_do_gleamFree(struct worker *w, struct cmd *cmd, const struct msg_gleamFree *m)
{
	struct grant *g = grants(w);
	struct mapping *map = g ? *mapping_at(g, m->address) : NULL;
	struct join *join;

	if (!map || map->leaving || map->bytes != m->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	join = calloc(1, sizeof(*join));
	if (!join)
		return CUDA_ERROR_OUT_OF_MEMORY;
	map->leaving = true;
	share_end(w, m->address);
	for (uint32_t i = 0; i < map->count; i++)
		piece_is(w, map->pieces[i], PIECE_LEAVING);
	g->leaving++;
	join->done = mapping_left;
	join->object = map;
	join->hdr = *cmd->hdr;
	/* Any stream of any context may have been given the address. */
	streams_join(w, NULL, join);
	return CUDA_SUCCESS;
}

/*
 * What the client holds of a device without using it: unspent, and freed but not yet out of quarantine. Commands come in order, so
 * this is exact for the moment at which the question was asked, which the client's own books are not: they learn of pieces that
 * return by notices.
 */
static uint64_t grant_idle_bytes(const struct worker *w, uint32_t device)
{
	const struct grant *g = w->grant;
	uint64_t bytes = 0;

	for (uint32_t id = 1; g && id < g->size; id++) {
		const struct piece *p = &g->pieces[id];

		if (p->device == device && (p->state == PIECE_UNSPENT || p->state == PIECE_LEAVING))
			bytes += piece_class_size[p->class];
	}
	return bytes;
}

CUresult worker_do_gleamMemInfo(struct worker *w, struct cmd *cmd, const struct msg_gleamMemInfo *m,
				struct ans_gleamMemInfo *a)
{
	struct context *c = NULL;
	size_t free_bytes = 0, total = 0;
	CUresult r;

	if (m->device >= w->device_count || !(w->ordinals & 1ull << m->device))
		return CUDA_ERROR_INVALID_DEVICE;
	/* One of the client's there, so that asking costs no context. */
	for (uint32_t i = 0; i < SESSION_CONTEXTS && !c; i++)
		if (w->contexts[i].open && w->contexts[i].device == m->device)
			c = &w->contexts[i];
	if (!c)
		c = context_own(w, m->device);
	r = context_use(w, c);
	if (r == CUDA_SUCCESS)
		r = w->drv.cuMemGetInfo_v2(&free_bytes, &total);
	a->free = free_bytes + grant_idle_bytes(w, m->device);
	a->total = total;
	return r;
}

void grants_stop(struct worker *w)
{
	struct grant *g = w->grant;

	if (!g)
		return;
	for (uint32_t i = 0; i < MAP_BUCKETS; i++)
		while (g->buckets[i]) {
			struct mapping *map = g->buckets[i];

			g->buckets[i] = map->next;
			w->drv.cuMemUnmap(map->address, map->bytes);
			free(map->hashes);
			free(map);
		}
	for (uint32_t i = 0; i < DEVICES_MAX; i++)
		if (g->wipers[i]) {
			stream_bury(w, g->wipers[i], CUDA_ERROR_CONTEXT_IS_DESTROYED);
			w->drv.cuStreamDestroy_v2(g->wipers[i]->driver);
			stream_put(w, g->wipers[i]);
		}
	for (uint32_t id = 1; id < g->size; id++)
		if (g->pieces[id].state != PIECE_NONE)
			w->drv.cuMemRelease(g->pieces[id].driver);
	while (g->asks) {
		struct grant_ask *next = g->asks->next;

		free(g->asks);
		g->asks = next;
	}
	free(g->pieces);
	free(g->gone);
	free(g->dropped);
	free(g);
	w->grant = NULL;
}
