// SPDX-License-Identifier: Apache-2.0
/*
 * What is ordered before what, by the rules of docs/consistency.md and by nothing else: where the driver happens to
 * order more, the model doesn't count on it.
 *
 * Two orders are kept. On the host, each object (stream, event, buffer ...) has readers and writers among the operations,
 * and an operation starts when those of other threads that it depends on have returned. On the device, every stream
 * counts its operations; a vector of such counts says what a stream's next operation comes after, what an event stands
 * for, and what a thread knows to be done.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/differ.h"

#define IDS	 32 /* streams ever: legacy, each thread's own, created ones, which never share a number */
#define ID_OWN	 1
#define ID_FIRST (ID_OWN + DIFFER_THREADS)
#define ACCESSES 512 /* outstanding ones of an object; more, and an operation is left out */

struct clock {
	uint16_t at[IDS];
};

struct access {
	uint8_t id;
	bool write;
	uint16_t n;
	uint32_t off, size;
};

struct accesses {
	uint32_t count;
	struct access list[ACCESSES];
};

enum { SPACE_BUF, SPACE_HOST = SPACE_BUF + DIFFER_BUFS, SPACE_CELL = SPACE_HOST + DIFFER_HOSTS,
       SPACE_MODULE = SPACE_CELL + DIFFER_CELLS, SPACES = SPACE_MODULE + DIFFER_MODULES };

/* Objects of the host order. */
enum { O_STREAM, O_EVENT = O_STREAM + 1 + DIFFER_THREADS + DIFFER_CREATED, O_SPACE = O_EVENT + DIFFER_EVENTS,
       O_POOL = O_SPACE + SPACES, O_HANDLES = O_POOL + DIFFER_POOLS, OBJECTS };

struct object {
	uint32_t written[DIFFER_THREADS]; /* position + 1 of the last writer, in its thread */
	uint32_t read[DIFFER_THREADS];
};

struct model {
	struct object objects[OBJECTS];
	struct clock known[DIFFER_THREADS];
	struct clock streams[IDS];
	uint16_t counts[IDS];
	bool blocking[IDS];
	int created[DIFFER_CREATED]; /* id, 0: not there */
	int ids;
	struct {
		bool there, recorded, timing;
		struct clock clock;
	} events[DIFFER_EVENTS];
	struct {
		size_t size;
		int pool; /* 0: by cuMemAlloc, 1: the device's, 2...: the program's */
		enum alloc_how how; /* without a pool */
	} bufs[DIFFER_BUFS];
	struct {
		size_t size;
		int how;
	} hosts[DIFFER_HOSTS];
	bool modules[DIFFER_MODULES];
	bool pools[DIFFER_POOLS];
	struct accesses accesses[SPACES];
	uint32_t positions[DIFFER_THREADS];
	/* What a thread knew when each of its operations had returned. */
	struct clock *history[DIFFER_THREADS];
};

enum waits { WAITS_NOTHING, WAITS_STREAM, WAITS_EVENT, WAITS_CONTEXT };

struct use {
	bool valid;
	int id;	 /* the stream's, -1 without one */
	int slot; /* of it, among the objects */
	enum waits waits;
	bool idle; /* the host may do it only while the device does nothing */
	int event;
	unsigned objects;
	struct {
		uint8_t object;
		bool write;
	} object[48];
	unsigned device, host;
	struct {
		uint8_t space;
		bool write;
		uint32_t off, size;
	} on_device[3], on_host[2];
};

struct model *model_new(void)
{
	struct model *m = calloc(1, sizeof(*m));

	assert(m);
	m->ids = ID_FIRST;
	for (int id = 0; id < ID_FIRST; id++)
		m->blocking[id] = true;
	for (int t = 0; t < DIFFER_THREADS; t++) {
		m->history[t] = calloc(DIFFER_OPS, sizeof(struct clock));
		assert(m->history[t]);
	}
	return m;
}

void model_free(struct model *m)
{
	for (int t = 0; t < DIFFER_THREADS; t++)
		free(m->history[t]);
	free(m);
}

static void merge(struct clock *to, const struct clock *from)
{
	for (int id = 0; id < IDS; id++)
		if (from->at[id] > to->at[id])
			to->at[id] = from->at[id];
}

/* ---- what an operation uses ---- */

static void uses(struct use *u, int object, bool write)
{
	assert(u->objects < 48);
	u->object[u->objects].object = (uint8_t)object;
	u->object[u->objects++].write = write;
}

static void touch(struct use *u, bool on_host, int space, bool write, int64_t off, int64_t size)
{
	unsigned *count = on_host ? &u->host : &u->device;

	assert(*count < (on_host ? 2 : 3));
	if (on_host) {
		u->on_host[*count].space = (uint8_t)space;
		u->on_host[*count].write = write;
		u->on_host[*count].off = (uint32_t)off;
		u->on_host[*count].size = (uint32_t)size;
	} else {
		u->on_device[*count].space = (uint8_t)space;
		u->on_device[*count].write = write;
		u->on_device[*count].off = (uint32_t)off;
		u->on_device[*count].size = (uint32_t)size;
	}
	++*count;
}

static bool in(int64_t value, int64_t count)
{
	return value >= 0 && value < count;
}

static bool fits(int64_t off, int64_t size, size_t room)
{
	return off >= 0 && size >= 0 && (uint64_t)off <= room && (uint64_t)size <= room - (uint64_t)off;
}

/* @stream as operations name it; its id and its object. */
static bool stream_of(const struct model *m, int thread, int64_t stream, int *id_out, int *slot_out)
{
	if (!in(stream, DIFFER_STREAMS))
		return false;
	if (stream == 0) {
		*id_out = *slot_out = 0;
	} else if (stream == 1) {
		*id_out = *slot_out = ID_OWN + thread;
	} else {
		*id_out = m->created[stream - 2];
		*slot_out = 1 + DIFFER_THREADS + (int)stream - 2;
		return *id_out != 0;
	}
	return true;
}

/* A command for a stream: after the last one there, and after those of the legacy stream, or the other way round. */
static bool queue(const struct model *m, struct use *u, const struct op *op, int64_t stream)
{
	if (!stream_of(m, op->thread, stream, &u->id, &u->slot))
		return false;
	uses(u, O_STREAM + u->slot, true);
	if (u->id == 0) {
		for (int slot = 1; slot < O_EVENT; slot++)
			uses(u, O_STREAM + slot, false);
	} else if (m->blocking[u->id]) {
		uses(u, O_STREAM, false);
	}
	return true;
}

static bool span(const struct model *m, struct use *u, int64_t buf, int64_t off, int64_t size, bool write)
{
	if (!in(buf, DIFFER_BUFS) || !m->bufs[buf].size || !fits(off, size, m->bufs[buf].size))
		return false;
	/* Where the host touches it, too: after what threads have read there, as the stream may get to it at once. */
	uses(u, O_SPACE + SPACE_BUF + (int)buf, write && !m->bufs[buf].pool && m->bufs[buf].how >= ALLOC_MANAGED);
	touch(u, false, SPACE_BUF + (int)buf, write, off, size);
	return true;
}

/* Copies between two places of the host's are in no stream's order on some drivers: mapped memory is left out of those. */
static bool is_far(const struct model *m, int64_t buf)
{
	return in(buf, DIFFER_BUFS) && (m->bufs[buf].pool || m->bufs[buf].how != ALLOC_MAPPED);
}

/* The host's side of a copy: pageable memory during the call, page-locked memory when the stream gets there. */
static bool host_side(const struct model *m, struct use *u, int64_t host, int64_t off, int64_t size, bool write,
		      bool sync)
{
	if (!in(host, DIFFER_HOSTS) || !m->hosts[host].size || !fits(off, size, m->hosts[host].size))
		return false;
	if (m->hosts[host].how == HOST_PAGEABLE) {
		uses(u, O_SPACE + SPACE_HOST + (int)host, write);
		touch(u, true, SPACE_HOST + (int)host, write, off, size);
		if (write)
			u->waits = WAITS_STREAM;
	} else {
		/* Also after what threads have read and written there: the stream may get to it at once. */
		uses(u, O_SPACE + SPACE_HOST + (int)host, write);
		touch(u, false, SPACE_HOST + (int)host, write, off, size);
		if (!write && real_driver)
			touch(u, true, SPACE_HOST + (int)host, false, off, size);
		if (sync)
			u->waits = WAITS_STREAM;
	}
	return true;
}

static int64_t rows_size(int64_t pitch, int64_t width, int64_t rows)
{
	if (rows < 1 || width < 1 || pitch < width || pitch > DIFFER_SIZE_MAX || rows > DIFFER_SIZE_MAX)
		return -1;
	return (rows - 1) * pitch + width;
}

static bool sync_on(int64_t form, int64_t stream)
{
	return !(form & FORM_SYNC) || stream < 2;
}

static bool event_there(const struct model *m, int64_t event)
{
	return in(event, DIFFER_EVENTS) && m->events[event].there;
}

static bool bits_fit(int64_t bits, int64_t off)
{
	return (bits == 8 || bits == 16 || bits == 32) && off % (bits / 8) == 0;
}

static void use_of(const struct model *m, const struct op *op, struct use *u)
{
	const int64_t *a = op->a;

	memset(u, 0, sizeof(*u));
	u->id = -1;
	switch (op->kind) {
	case OP_ALLOC:
		u->valid = in(a[0], DIFFER_BUFS) && !m->bufs[a[0]].size && a[1] > 0 && a[1] <= DIFFER_SIZE_MAX &&
			   in(a[2], ALLOC_HOWS);
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_BUF + (int)a[0], true);
		/* It is cleared in the legacy stream, which is waited for. */
		queue(m, u, op, 0);
		u->waits = WAITS_STREAM;
		break;
	case OP_FREE:
		u->valid = in(a[0], DIFFER_BUFS) && m->bufs[a[0]].size;
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_BUF + (int)a[0], true);
		/* cuMemFree waits for what still uses the memory, but takes a pool's to be unused; so is what the host frees. */
		if (m->bufs[a[0]].pool || m->bufs[a[0]].how >= ALLOC_MANAGED)
			touch(u, true, SPACE_BUF + (int)a[0], true, 0, (int64_t)m->bufs[a[0]].size);
		break;
	case OP_ALLOC_ASYNC:
		u->valid = in(a[0], DIFFER_BUFS) && !m->bufs[a[0]].size && a[1] > 0 && a[1] <= DIFFER_SIZE_MAX &&
			   in(a[2], DIFFER_POOLS + 1) && (!a[2] || m->pools[a[2] - 1]) && queue(m, u, op, a[3]);
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		if (a[2])
			uses(u, O_POOL + (int)a[2] - 1, false);
		uses(u, O_SPACE + SPACE_BUF + (int)a[0], true);
		touch(u, false, SPACE_BUF + (int)a[0], true, 0, a[1]);
		break;
	case OP_FREE_ASYNC:
		u->valid = in(a[0], DIFFER_BUFS) && m->bufs[a[0]].size && m->bufs[a[0]].pool && queue(m, u, op, a[1]);
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_BUF + (int)a[0], true);
		touch(u, false, SPACE_BUF + (int)a[0], true, 0, (int64_t)m->bufs[a[0]].size);
		break;
	case OP_HOST_NEW:
		u->valid = in(a[0], DIFFER_HOSTS) && !m->hosts[a[0]].size && a[1] > 0 && a[1] <= DIFFER_SIZE_MAX &&
			   in(a[2], HOST_HOWS);
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_SPACE + SPACE_HOST + (int)a[0], true);
		break;
	case OP_HOST_END:
		u->valid = in(a[0], DIFFER_HOSTS) && m->hosts[a[0]].size;
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_HOST + (int)a[0], true);
		touch(u, true, SPACE_HOST + (int)a[0], true, 0, (int64_t)m->hosts[a[0]].size);
		break;
	case OP_HOST_FILL:
	case OP_HOST_READ:
		u->valid = in(a[0], DIFFER_HOSTS) && m->hosts[a[0]].size && fits(a[1], a[2], m->hosts[a[0]].size);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_HOST + (int)a[0], op->kind == OP_HOST_FILL);
		touch(u, true, SPACE_HOST + (int)a[0], op->kind == OP_HOST_FILL, a[1], a[2]);
		break;
	case OP_BUF_FILL:
	case OP_BUF_READ:
		u->valid = in(a[0], DIFFER_BUFS) && m->bufs[a[0]].size && m->bufs[a[0]].how >= ALLOC_MANAGED &&
			   fits(a[1], a[2], m->bufs[a[0]].size);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_BUF + (int)a[0], op->kind == OP_BUF_FILL);
		touch(u, true, SPACE_BUF + (int)a[0], op->kind == OP_BUF_FILL, a[1], a[2]);
		/* The rules of a device without concurrent access: nothing runs, and nobody starts something. */
		u->idle = m->bufs[a[0]].how == ALLOC_MANAGED;
		for (int slot = 0; u->idle && slot < O_EVENT; slot++)
			uses(u, O_STREAM + slot, true);
		break;
	case OP_UP:
	case OP_DOWN:
		u->valid = a[2] > 0 && is_far(m, a[0]) && sync_on(a[6], a[5]) && queue(m, u, op, a[5]) &&
			   span(m, u, a[0], a[1], a[2], op->kind == OP_UP) &&
			   host_side(m, u, a[3], a[4], a[2], op->kind == OP_DOWN, a[6] & FORM_SYNC);
		break;
	case OP_DEV:
		u->valid = a[2] > 0 && sync_on(a[6], a[5]) && queue(m, u, op, a[5]) && span(m, u, a[0], a[1], a[2], true) &&
			   span(m, u, a[3], a[4], a[2], false) &&
			   (a[0] != a[3] || a[1] + a[2] <= a[4] || a[4] + a[2] <= a[1]);
		break;
	case OP_UP2D:
	case OP_DOWN2D:
		u->valid = is_far(m, a[0]) && sync_on(a[9], a[8]) && queue(m, u, op, a[8]) &&
			   span(m, u, a[0], a[1], rows_size(a[2], a[3], a[4]), op->kind == OP_UP2D) &&
			   host_side(m, u, a[5], a[6], rows_size(a[7], a[3], a[4]), op->kind == OP_DOWN2D,
				     a[9] & FORM_SYNC);
		break;
	case OP_DEV2D:
		u->valid = sync_on(a[9], a[8]) && queue(m, u, op, a[8]) && a[0] != a[5] &&
			   span(m, u, a[0], a[1], rows_size(a[2], a[3], a[4]), true) &&
			   span(m, u, a[5], a[6], rows_size(a[7], a[3], a[4]), false);
		break;
	case OP_SET:
		u->valid = sync_on(a[6], a[5]) && bits_fit(a[2], a[1]) && in(a[4], DIFFER_SIZE_MAX + 1) && a[4] &&
			   queue(m, u, op, a[5]) && span(m, u, a[0], a[1], a[4] * (a[2] / 8), true);
		break;
	case OP_SET2D:
		u->valid = sync_on(a[8], a[7]) && bits_fit(a[3], a[1]) && a[2] % (a[3] / 8) == 0 &&
			   in(a[5], DIFFER_SIZE_MAX + 1) && queue(m, u, op, a[7]) &&
			   span(m, u, a[0], a[1], rows_size(a[2], a[5] * (a[3] / 8), a[6]), true);
		break;
	case OP_LAUNCH:
		u->valid = in(a[0], DIFFER_MODULES) && m->modules[a[0]] && in(a[1], FUNCTIONS) && in(a[8], 10000000) &&
			   a[3] % 4 == 0 && in(a[4], DIFFER_SIZE_MAX / 4 + 1) && a[4] && queue(m, u, op, a[9]) &&
			   span(m, u, a[2], a[3], a[4] * 4, true);
		if (!u->valid)
			break;
		if (a[1] == FN_MIX)
			u->valid = a[7] % 4 == 0 && (a[2] != a[6] || a[3] + a[4] * 4 <= a[7] || a[7] + a[4] * 4 <= a[3]) &&
				   span(m, u, a[6], a[7], a[4] * 4, false);
		/* Kernels run out of the module, and some change its word. */
		uses(u, O_SPACE + SPACE_MODULE + (int)a[0], false);
		touch(u, false, SPACE_MODULE + (int)a[0], a[1] == FN_GLOBAL, a[1] == FN_GLOBAL ? 0 : 4, 4);
		break;
	case OP_GLOBAL_SET:
		u->valid = in(a[0], DIFFER_MODULES) && m->modules[a[0]] && queue(m, u, op, a[2]);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_MODULE + (int)a[0], false);
		touch(u, false, SPACE_MODULE + (int)a[0], true, 0, 4);
		break;
	case OP_HOSTFUNC:
		u->valid = in(a[0], DIFFER_CELLS) && queue(m, u, op, a[2]);
		if (!u->valid)
			break;
		touch(u, false, SPACE_CELL + (int)a[0], true, 0, 1);
		break;
	case OP_HOSTLOOK:
		u->valid = in(a[0], DIFFER_CELLS) && in(a[1], DIFFER_HOSTS) && m->hosts[a[1]].how != HOST_PAGEABLE && queue(m, u, op, a[4]) &&
			   host_side(m, u, a[1], a[2], a[3], false, false);
		if (!u->valid)
			break;
		touch(u, false, SPACE_CELL + (int)a[0], true, 0, 1);
		break;
	case OP_WRITE_VALUE:
		u->valid = a[1] % 4 == 0 && queue(m, u, op, a[3]) && span(m, u, a[0], a[1], 4, true);
		break;
	case OP_GRAPH:
		u->valid = in(a[0], DIFFER_MODULES) && m->modules[a[0]] && a[2] % 4 == 0 &&
			   in(a[3], DIFFER_SIZE_MAX / 4 + 1) && a[3] && a[5] > 0 && a[5] <= 16 && queue(m, u, op, a[6]) &&
			   span(m, u, a[1], a[2], a[3] * 4, true);
		if (!u->valid)
			break;
		uses(u, O_HANDLES, false);
		uses(u, O_SPACE + SPACE_MODULE + (int)a[0], false);
		touch(u, false, SPACE_MODULE + (int)a[0], false, 4, 4);
		break;
	case OP_CAPTURE:
		u->valid = in(a[0], DIFFER_MODULES) && m->modules[a[0]] && a[2] % 4 == 0 &&
			   in(a[3], DIFFER_SIZE_MAX / 4 + 1) && a[3] >= 2 && a[5] > 0 && a[5] <= 16 && queue(m, u, op, a[6]) &&
			   span(m, u, a[1], a[2], a[3] * 4, true);
		/* A graph's copy arrives when the stream has been waited for, in pageable memory too: that isn't used. */
		if (u->valid && a[8] >= 0)
			u->valid = is_far(m, a[1]) && in(a[8], DIFFER_HOSTS) && m->hosts[a[8]].how != HOST_PAGEABLE &&
				   host_side(m, u, a[8], a[9], a[3] * 4, true, false);
		if (!u->valid)
			break;
		uses(u, O_HANDLES, false);
		uses(u, O_SPACE + SPACE_MODULE + (int)a[0], false);
		touch(u, false, SPACE_MODULE + (int)a[0], false, 4, 4);
		break;
	case OP_STREAM_NEW:
		u->valid = in(a[0] - 2, DIFFER_CREATED) && !m->created[a[0] - 2] && m->ids < IDS && in(a[1], 2);
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_STREAM + 1 + DIFFER_THREADS + (int)a[0] - 2, true);
		break;
	case OP_STREAM_END:
		u->valid = a[0] >= 2 && stream_of(m, op->thread, a[0], &u->id, &u->slot);
		u->id = -1;
		uses(u, O_HANDLES, false);
		uses(u, O_STREAM, true); /* commands of the legacy stream look at which streams there are */
		if (u->valid)
			uses(u, O_STREAM + u->slot, true);
		break;
	case OP_EVENT_NEW:
		u->valid = in(a[0], DIFFER_EVENTS) && !m->events[a[0]].there && in(a[1], 4);
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_EVENT + (int)a[0], true);
		break;
	case OP_EVENT_END:
		u->valid = event_there(m, a[0]);
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_EVENT + (int)a[0], true);
		break;
	case OP_RECORD:
	case OP_WAIT:
		u->valid = event_there(m, a[0]) && queue(m, u, op, a[1]);
		u->event = (int)a[0];
		if (u->valid)
			uses(u, O_EVENT + (int)a[0], op->kind == OP_RECORD);
		break;
	case OP_SYNC_STREAM:
		u->valid = stream_of(m, op->thread, a[0], &u->id, &u->slot);
		if (u->valid)
			uses(u, O_STREAM + u->slot, false);
		u->waits = WAITS_STREAM;
		break;
	case OP_QUERY_STREAM:
		u->valid = stream_of(m, op->thread, a[0], &u->id, &u->slot);
		if (u->valid)
			uses(u, O_STREAM + u->slot, false);
		/* A query of the legacy stream is about all blocking ones. */
		if (u->valid && u->id == 0)
			for (int slot = 1; slot < O_EVENT; slot++)
				uses(u, O_STREAM + slot, false);
		break;
	case OP_SYNC_EVENT:
	case OP_QUERY_EVENT:
		u->valid = event_there(m, a[0]);
		u->event = (int)a[0];
		if (u->valid)
			uses(u, O_EVENT + (int)a[0], false);
		u->waits = op->kind == OP_SYNC_EVENT ? WAITS_EVENT : WAITS_NOTHING;
		break;
	case OP_SYNC_CONTEXT:
		u->valid = true;
		u->waits = WAITS_CONTEXT;
		for (int slot = 0; slot < O_EVENT; slot++)
			uses(u, O_STREAM + slot, false);
		break;
	case OP_ELAPSED:
		u->valid = event_there(m, a[0]) && event_there(m, a[1]);
		if (!u->valid)
			break;
		uses(u, O_EVENT + (int)a[0], false);
		uses(u, O_EVENT + (int)a[1], false);
		break;
	case OP_MODULE_NEW:
		u->valid = in(a[0], DIFFER_MODULES) && !m->modules[a[0]];
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_SPACE + SPACE_MODULE + (int)a[0], true);
		break;
	case OP_MODULE_END:
		u->valid = in(a[0], DIFFER_MODULES) && m->modules[a[0]];
		uses(u, O_HANDLES, false);
		if (!u->valid)
			break;
		uses(u, O_SPACE + SPACE_MODULE + (int)a[0], true);
		touch(u, true, SPACE_MODULE + (int)a[0], true, 0, 8);
		break;
	case OP_POOL_NEW:
	case OP_POOL_END:
	case OP_POOL_TRIM:
		u->valid = in(a[0], DIFFER_POOLS) && m->pools[a[0]] == (op->kind != OP_POOL_NEW);
		uses(u, O_HANDLES, false);
		if (u->valid)
			uses(u, O_POOL + (int)a[0], op->kind != OP_POOL_TRIM);
		break;
	case OP_ASK:
		u->valid = in(a[0], ASKS);
		if (!u->valid)
			break;
		if (a[0] < 3) {
			u->valid = stream_of(m, op->thread, a[1], &u->id, &u->slot);
			u->id = -1;
			if (u->valid)
				uses(u, O_STREAM + u->slot, false);
		} else if (a[0] < 6) {
			u->valid = in(a[1], DIFFER_BUFS) && m->bufs[a[1]].size && m->bufs[a[1]].how < ALLOC_MANAGED &&
				   fits(a[2], 1, m->bufs[a[1]].size);
			if (u->valid)
				uses(u, O_SPACE + SPACE_BUF + (int)a[1], false);
		} else if (a[0] < 7) {
			u->valid = in(a[1], DIFFER_HOSTS) && m->hosts[a[1]].size;
			if (u->valid)
				uses(u, O_SPACE + SPACE_HOST + (int)a[1], false);
		} else {
			u->valid = in(a[1], DIFFER_MODULES) && m->modules[a[1]];
			if (u->valid)
				uses(u, O_SPACE + SPACE_MODULE + (int)a[1], false);
		}
		break;
	case OP_ILLEGAL:
		/* Nothing may be born while a dead handle or address is tried: it could be the same. */
		u->valid = in(a[0], illegal_count) && in(a[1], DIFFER_BUFS) && m->bufs[a[1]].size &&
			   m->bufs[a[1]].how < ALLOC_MANAGED && m->modules[0] &&
			   stream_of(m, op->thread, a[2], &u->id, &u->slot);
		u->id = -1;
		uses(u, O_HANDLES, true);
		if (!u->valid)
			break;
		uses(u, O_STREAM + u->slot, false);
		uses(u, O_SPACE + SPACE_BUF + (int)a[1], false);
		uses(u, O_SPACE + SPACE_MODULE, false);
		break;
	default:
		break;
	}
}

/* ---- the orders ---- */

static void host_order(const struct model *m, const struct use *u, int thread, uint32_t after[DIFFER_THREADS],
		       struct clock *known)
{
	memset(after, 0, sizeof(*after) * DIFFER_THREADS);
	for (unsigned i = 0; i < u->objects; i++) {
		const struct object *o = &m->objects[u->object[i].object];

		for (int t = 0; t < DIFFER_THREADS; t++) {
			if (o->written[t] > after[t])
				after[t] = o->written[t];
			if (u->object[i].write && o->read[t] > after[t])
				after[t] = o->read[t];
		}
	}
	after[thread] = 0; /* its own order is enough */
	*known = m->known[thread];
	for (int t = 0; t < DIFFER_THREADS; t++)
		if (after[t])
			merge(known, &m->history[t][after[t] - 1]);
}

/*
 * What a command comes after. An event wait and a stream-ordered free need be nothing that a stream gets to: the legacy
 * stream's rule isn't counted on for them (@whole is false), but by the next command.
 */
static void stream_order(const struct model *m, const struct use *u, const struct op *op, const struct clock *known,
			 bool whole, struct clock *stream)
{
	*stream = m->streams[u->id];
	merge(stream, known);
	if (!whole) {
		;
	} else if (u->id == 0) {
		for (int id = 1; id < ID_FIRST; id++)
			merge(stream, &m->streams[id]);
		for (int i = 0; i < DIFFER_CREATED; i++)
			if (m->created[i] && m->blocking[m->created[i]])
				merge(stream, &m->streams[m->created[i]]);
	} else if (m->blocking[u->id]) {
		merge(stream, &m->streams[0]);
	}
	if (op->kind == OP_WAIT)
		merge(stream, &m->events[u->event].clock);
}

static const struct access *race(const struct model *m, int space, bool write, uint32_t off, uint32_t size,
				 const struct clock *clock)
{
	const struct accesses *list = &m->accesses[space];

	for (uint32_t i = 0; i < list->count; i++) {
		const struct access *a = &list->list[i];

		if ((write || a->write) && a->off < off + size && off < a->off + a->size && clock->at[a->id] < a->n)
			return a;
	}
	return NULL;
}

static bool is_idle(const struct model *m, const struct clock *known)
{
	for (int id = 0; id < m->ids; id++)
		if (known->at[id] < m->counts[id])
			return false;
	return true;
}

static bool is_command(const struct op *op, const struct use *u)
{
	return u->id >= 0 && op->kind != OP_SYNC_STREAM && op->kind != OP_QUERY_STREAM;
}

enum verdict model_check(struct model *m, const struct op *op, int *stream_out, int *thread_out)
{
	const struct access *a = NULL;
	struct clock known, stream;
	uint32_t after[DIFFER_THREADS];
	struct use u;

	use_of(m, op, &u);
	if (!u.valid || m->positions[op->thread] >= DIFFER_OPS)
		return MODEL_INVALID;
	for (unsigned i = 0; i < u.device; i++)
		if (m->accesses[u.on_device[i].space].count == ACCESSES)
			return MODEL_INVALID;
	host_order(m, &u, op->thread, after, &known);
	for (unsigned i = 0; i < u.host && !a; i++)
		a = race(m, u.on_host[i].space, u.on_host[i].write, u.on_host[i].off, u.on_host[i].size, &known);
	if (!a && u.idle && !is_idle(m, &known)) {
		*thread_out = op->thread;
		*stream_out = -1;
		return MODEL_RACES;
	}
	if (is_command(op, &u)) {
		stream_order(m, &u, op, &known, op->kind != OP_WAIT, &stream);
		for (unsigned i = 0; i < u.device && !a; i++)
			a = race(m, u.on_device[i].space, u.on_device[i].write, u.on_device[i].off, u.on_device[i].size,
				 &stream);
	}
	if (!a)
		return MODEL_FINE;
	*thread_out = op->thread;
	*stream_out = -1;
	if (a->id == 0) {
		*stream_out = 0;
	} else if (a->id < ID_FIRST) {
		*stream_out = 1;
		*thread_out = a->id - ID_OWN;
	} else {
		for (int i = 0; i < DIFFER_CREATED; i++)
			if (m->created[i] == a->id)
				*stream_out = 2 + i;
	}
	return MODEL_RACES;
}

static void access_add(struct model *m, int space, bool write, uint32_t off, uint32_t size, int id)
{
	struct accesses *list = &m->accesses[space];
	uint32_t kept = 0;

	/* What every thread knows to be done can't race any more. */
	for (uint32_t i = 0; i < list->count; i++) {
		bool done = true;

		for (int t = 0; t < DIFFER_THREADS; t++)
			done = done && m->known[t].at[list->list[i].id] >= list->list[i].n;
		if (!done)
			list->list[kept++] = list->list[i];
	}
	list->count = kept;
	list->list[list->count++] =
		(struct access){ .id = (uint8_t)id, .write = write, .n = m->counts[id], .off = off, .size = size };
}

/* Everything queued is done, as far as @known goes: what a query has to find. */
static bool all_done(const struct model *m, const struct clock *known, int id)
{
	if (known->at[id] < m->counts[id])
		return false;
	for (int i = 1; !id && i < m->ids; i++)
		if (m->blocking[i] && known->at[i] < m->counts[i])
			return false;
	return true;
}

static bool clock_within(const struct clock *clock, const struct clock *known)
{
	for (int id = 0; id < IDS; id++)
		if (clock->at[id] > known->at[id])
			return false;
	return true;
}

static void born_and_died(struct model *m, const struct op *op)
{
	const int64_t *a = op->a;

	switch (op->kind) {
	case OP_ALLOC:
		m->bufs[a[0]].size = (size_t)a[1];
		m->bufs[a[0]].pool = 0;
		m->bufs[a[0]].how = (enum alloc_how)a[2];
		m->accesses[SPACE_BUF + a[0]].count = 0;
		break;
	case OP_ALLOC_ASYNC:
		m->bufs[a[0]].size = (size_t)a[1];
		m->bufs[a[0]].pool = 1 + (int)a[2];
		m->bufs[a[0]].how = ALLOC_PLAIN;
		break;
	case OP_FREE:
	case OP_FREE_ASYNC:
		m->bufs[a[0]].size = 0;
		m->accesses[SPACE_BUF + a[0]].count = 0;
		break;
	case OP_HOST_NEW:
		m->hosts[a[0]].size = (size_t)a[1];
		m->hosts[a[0]].how = (int)a[2];
		break;
	case OP_HOST_END:
		m->hosts[a[0]].size = 0;
		break;
	case OP_STREAM_NEW:
		m->created[a[0] - 2] = m->ids;
		m->blocking[m->ids++] = !(a[1] & 1);
		break;
	case OP_STREAM_END:
		m->created[a[0] - 2] = 0;
		break;
	case OP_EVENT_NEW:
		memset(&m->events[a[0]], 0, sizeof(m->events[0]));
		m->events[a[0]].there = true;
		m->events[a[0]].timing = !(a[1] & 2);
		break;
	case OP_EVENT_END:
		m->events[a[0]].there = false;
		break;
	case OP_MODULE_NEW:
	case OP_MODULE_END:
		m->modules[a[0]] = op->kind == OP_MODULE_NEW;
		m->accesses[SPACE_MODULE + a[0]].count = 0;
		break;
	case OP_POOL_NEW:
	case OP_POOL_END:
		m->pools[a[0]] = op->kind == OP_POOL_NEW;
		break;
	default:
		break;
	}
}

void model_apply(struct model *m, struct op *op)
{
	struct clock known, stream;
	struct use u;

	use_of(m, op, &u);
	assert(u.valid);
	host_order(m, &u, op->thread, op->after, &known);
	/* Queries: is it surely done already? Elapsed times want both. */
	if (op->kind == OP_QUERY_STREAM)
		op->known = all_done(m, &known, u.id);
	else if (op->kind == OP_QUERY_EVENT)
		op->known = clock_within(&m->events[u.event].clock, &known);
	else if (op->kind == OP_ELAPSED)
		op->known = clock_within(&m->events[op->a[0]].clock, &known) &&
			    clock_within(&m->events[op->a[1]].clock, &known);
	born_and_died(m, op);
	if (is_command(op, &u)) {
		stream_order(m, &u, op, &known,
			     op->kind != OP_WAIT && op->kind != OP_FREE_ASYNC, &stream);
		stream.at[u.id] = ++m->counts[u.id];
		m->streams[u.id] = stream;
		if (op->kind == OP_RECORD) {
			m->events[u.event].recorded = true;
			m->events[u.event].clock = stream;
		}
		if (op->kind != OP_FREE_ASYNC)
			for (unsigned i = 0; i < u.device; i++)
				access_add(m, u.on_device[i].space, u.on_device[i].write, u.on_device[i].off,
					   u.on_device[i].size, u.id);
	}
	switch (u.waits) {
	case WAITS_STREAM:
		merge(&known, &m->streams[u.id]);
		break;
	case WAITS_EVENT:
		merge(&known, &m->events[u.event].clock);
		break;
	case WAITS_CONTEXT:
		for (int id = 0; id < m->ids; id++)
			if (m->counts[id] > known.at[id])
				known.at[id] = m->counts[id];
		break;
	default:
		break;
	}
	m->known[op->thread] = known;
	m->history[op->thread][m->positions[op->thread]] = known;
	m->positions[op->thread]++;
	for (unsigned i = 0; i < u.objects; i++) {
		struct object *o = &m->objects[u.object[i].object];

		(u.object[i].write ? o->written : o->read)[op->thread] = m->positions[op->thread];
	}
}

/* ---- questions ---- */

size_t model_buf_size(const struct model *m, int buf)
{
	return m->bufs[buf].size;
}

bool model_buf_pooled(const struct model *m, int buf)
{
	return m->bufs[buf].pool != 0;
}

enum alloc_how model_buf_how(const struct model *m, int buf)
{
	return m->bufs[buf].how;
}

size_t model_host_size(const struct model *m, int host)
{
	return m->hosts[host].size;
}

bool model_host_pinned(const struct model *m, int host)
{
	return m->hosts[host].how != HOST_PAGEABLE;
}

bool model_stream(const struct model *m, int stream)
{
	return stream < 2 || m->created[stream - 2];
}

bool model_event(const struct model *m, int event)
{
	return m->events[event].there;
}

bool model_module(const struct model *m, int module)
{
	return m->modules[module];
}

bool model_pool(const struct model *m, int pool)
{
	return m->pools[pool];
}

bool model_stream_room(const struct model *m)
{
	return m->ids < IDS;
}
