/* SPDX-License-Identifier: Apache-2.0 */
/* A session leaves. Executor thread; see move_out.h. */
#include "broker/worker/move_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/sum128.h"
#include "broker/worker/aside.h"
#include "broker/worker/context.h"
#include "broker/worker/direct.h"
#include "broker/worker/fault.h"
#include "broker/worker/grant.h"
#include "broker/worker/host.h"
#include "broker/worker/image.h"
#include "broker/worker/keep.h"
#include "broker/worker/link.h"
#include "broker/worker/move_in.h"
#include "broker/worker/note.h"
#include "broker/worker/pinned.h"
#include "broker/worker/post.h"
#include "broker/worker/print.h"
#include "broker/worker/stream.h"
#include "broker/worker/sync.h"
#include "broker/worker/variable.h"
#include "broker/worker/vmm.h"
#include "gen/worker_bodies.h"

#define REASON_SIZE 256

#define MOVE_BLOCK (2u << 20) /* read at once: a wake-up for each chunk would cost more than the chunk */

/* Where memory is read to, two blocks or a chunk, and a stream of each device that waits for nobody. */
struct move {
	struct pinned room;
	CUstream streams[DEVICES_MAX];
	bool begun;
	bool last; /* the last turn over all contents has begun */
};

/* ---- saying ---- */

void move_say_frame(struct worker *w, const void *frame, uint32_t size)
{
	post_notice(w, NOTICE_MOVE, 0, CTX_NONE, frame, size);
}

void move_say(struct worker *w, uint16_t op, uint16_t ctx, bool reply, const void *payload, uint32_t size)
{
	uint8_t frame[FRAME_SIZE_MAX] __attribute__((aligned(8)));
	struct frame_hdr hdr = {
		.size = (uint32_t)sizeof(hdr) + size, .op = op, .kind = FRAME_COMMAND, .ctx = ctx,
		.flags = reply ? FRAME_WANTS_REPLY : 0,
		/* Progress is told by it: never one that the client has heard of already. */
		.seq = op_info[op].flags & OP_SCOPE_STREAM ? w->seq : 0,
	};

	memcpy(frame, &hdr, sizeof(hdr));
	memcpy(frame + sizeof(hdr), payload, size);
	move_say_frame(w, frame, hdr.size);
}

/* ---- contents ---- */

struct move_hash move_hash_of(const void *bytes, size_t size)
{
	struct sum128 sum = sum128_add(SUM128_SEED, bytes, size);

	/* Both 0 says that it was never said. */
	return (struct move_hash){ sum.a || sum.b ? sum.a : 1, sum.b };
}

bool move_hash_same(struct move_hash x, struct move_hash y)
{
	return x.a == y.a && x.b == y.b;
}

bool move_all_zero(const uint8_t *bytes, size_t size)
{
	return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static void bytes_say(struct worker *w, const struct move_place *place, uint64_t offset, const uint8_t *bytes, uint64_t size)
{
	uint8_t payload[MOVE_DATA + 64] __attribute__((aligned(8)));
	bool zero = move_all_zero(bytes, size);

	/* A session that is over says nothing that anybody would miss. */
	if (!zero && aside_is_open(w)) {
		aside_say(w, place, offset, bytes, size);
		return;
	}
	for (uint64_t at = 0; at < size;) {
		uint64_t part = zero ? size : size - at < MOVE_DATA ? size - at : MOVE_DATA;
		struct msg_gleamMoveBytes m = {
			.address = place->address + offset + at, .zeros = zero ? part : 0, .data = bytes + at,
			.data_size = zero ? 0 : (uint32_t)part,
		};
		struct msg_gleamMoveVmm of_handle = {
			.handle = place->handle, .offset = offset + at, .zeros = m.zeros, .data = m.data, .data_size = m.data_size,
		};
		struct writer out = writer_on(payload, sizeof(payload));

		if (place->handle)
			msg_gleamMoveVmm_put(&out, &of_handle);
		else
			msg_gleamMoveBytes_put(&out, &m);
		move_say(w, place->handle ? OP_gleamMoveVmm : OP_gleamMoveBytes, CTX_NONE, false, payload, (uint32_t)out.at);
		at += part;
	}
}

static struct move *moves(struct worker *w)
{
	if (w->move)
		return w->move;
	w->move = calloc(1, sizeof(*w->move));
	if (w->move && (context_use(w, context_own(w, 0)) != CUDA_SUCCESS || pinned_make(w, 2 * MOVE_BLOCK, &w->move->room))) {
		free(w->move);
		w->move = NULL;
	}
	return w->move;
}

void move_stop(struct worker *w)
{
	if (!w->move)
		return;
	for (uint32_t i = 0; i < DEVICES_MAX; i++)
		if (w->move->streams[i])
			w->drv.cuStreamDestroy_v2(w->move->streams[i]);
	pinned_free(w, &w->move->room);
	free(w->move);
	w->move = NULL;
}

/* Of device memory: one block is looked at while the next one is read, by a stream that waits for nothing that the client queued. */
struct reading {
	CUstream stream;
	uint64_t address;
	uint64_t bytes;
	uint64_t asked; /* reads up to there have been queued, those before it but the last are done */
};

static uint8_t *block_of(const struct move *move, uint64_t at)
{
	return move->room.bytes + at / MOVE_BLOCK % 2 * MOVE_BLOCK;
}

static bool block_ask(struct worker *w, struct reading *reading)
{
	uint64_t at = reading->asked;
	uint64_t size = reading->bytes - at < MOVE_BLOCK ? reading->bytes - at : MOVE_BLOCK;

	reading->asked += size;
	return size == 0 || w->drv.cuMemcpyDtoHAsync_v2(block_of(w->move, at), reading->address + at, size, reading->stream) == CUDA_SUCCESS;
}

static bool reading_begin(struct worker *w, const struct move_place *place, uint64_t bytes, uint64_t at, struct reading *reading)
{
	struct move *move = moves(w);

	if (!move || context_use(w, context_own(w, place->device)) != CUDA_SUCCESS)
		return false;
	if (!move->streams[place->device] && w->drv.cuStreamCreate(&move->streams[place->device], CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		return false;
	*reading = (struct reading){
		.stream = move->streams[place->device], .address = place->address, .bytes = bytes, .asked = at / MOVE_BLOCK * MOVE_BLOCK,
	};
	return block_ask(w, reading);
}

static bool reading_end(struct worker *w, const struct reading *reading)
{
	return w->drv.cuStreamSynchronize(reading->stream) == CUDA_SUCCESS;
}

/* The chunk there; NULL: it can't be read. Chunks are asked for in their order. */
static const uint8_t *reading_chunk(struct worker *w, struct reading *reading, uint64_t at)
{
	/* Its block is the last that was asked for: the next one is, when this one is here. */
	if (at / MOVE_BLOCK == (reading->asked - 1) / MOVE_BLOCK && (!reading_end(w, reading) || !block_ask(w, reading)))
		return NULL;
	return block_of(w->move, at) + at % MOVE_BLOCK;
}

uint8_t *move_room(struct worker *w)
{
	struct move *move = moves(w);

	return move ? move->room.bytes : NULL;
}

/* Looking costs something, too, so that the program goes on soon. */
void move_count(uint64_t *limit, uint64_t size, bool said)
{
	uint64_t cost = size / 16 + (said ? size : 0);

	*limit -= *limit < cost ? *limit : cost;
}

bool move_contents(struct worker *w, const struct move_place *place, uint64_t bytes, struct move_hash *hashes, uint64_t *limit,
		   uint64_t *at)
{
	bool device = place->device < DEVICES_MAX && *at < bytes && *limit;
	struct reading reading;

	if (device && !reading_begin(w, place, bytes, *at, &reading))
		return false;
	for (; *at < bytes && *limit; *at += MOVE_CHUNK) {
		uint64_t size = bytes - *at < MOVE_CHUNK ? bytes - *at : MOVE_CHUNK;
		const uint8_t *from = device ? reading_chunk(w, &reading, *at) : (const void *)(uintptr_t)(place->address + *at);
		struct move_hash hash;

		if (!from) {
			reading_end(w, &reading);
			return false;
		}
		if (w->move && w->move->last)
			variables_held_by(w, place, *at, from, size);
		hash = move_hash_of(from, size);
		move_count(limit, size, !move_hash_same(hash, hashes[*at / MOVE_CHUNK]));
		if (move_hash_same(hash, hashes[*at / MOVE_CHUNK]))
			continue;
		hashes[*at / MOVE_CHUNK] = hash;
		bytes_say(w, place, *at, from, size);
	}
	/* The last block asked for may not have been looked at: its room is for others. */
	return !device || reading_end(w, &reading);
}

/* ---- the steps ---- */

/* The client has heard of all of it when it doesn't. */
static bool stream_runs_locked(const struct stream *s)
{
	if (s->failed || !s->context)
		return false;
	return !stream_is_idle(s) || (!s->own && !progress_reached(s->told, s->written));
}

/* Work that isn't done, or isn't known to be. NULL: none. */
static const char *busy_with(struct worker *w)
{
	const char *why = NULL;

	streams_flush(w);
	if (w->parked_count || w->late_head)
		return "commands wait for room in their streams";
	if (w->stalled || w->unwanted || images_busy(w))
		return "bytes are on their way";
	if (host_calls_pending(w, NULL))
		return "a stream waits for a function of the host";
	if (!grants_settled(w))
		return "freed memory is still in use";
	if (direct_waits(w))
		return "the program doesn't read what it was told";
	pthread_mutex_lock(&w->lock);
	if (w->joined)
		why = "something waits for streams";
	/* Nothing of it would be known elsewhere: answers take failures along, landings are counted. */
	if (w->telling)
		why = "the end of work is being told";
	for (struct stream *s = w->streams; s && !why; s = s->next)
		if (s->waits_head || stream_runs_locked(s))
			why = s->own ? "the worker's own work runs" : "work is running";
	pthread_mutex_unlock(&w->lock);
	return why;
}

/* A context that a kernel has broken answers every call with that, and its memory can't be read any more. */
static const char *failed_context(struct worker *w)
{
	bool failed = false;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		failed |= w->contexts[i].open && (fault_is_sticky(w->contexts[i].latched) || w->contexts[i].faulted);
	pthread_mutex_unlock(&w->lock);
	return failed ? "a kernel of it has failed: its context is lost, and there is nothing that could be moved until it has begun another one" : NULL;
}

/* Failures that the program is still to be told. */
static void latches_say(struct worker *w)
{
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++) {
		uint8_t payload[64] __attribute__((aligned(8)));
		struct writer out = writer_on(payload, sizeof(payload));
		struct msg_gleamMoveLatch m = { .index = i };

		pthread_mutex_lock(&w->lock);
		if (w->contexts[i].open) {
			m.code = (uint32_t)w->contexts[i].latched;
			m.op = w->contexts[i].latched_op;
			m.sequence = w->contexts[i].latched_seq;
		}
		pthread_mutex_unlock(&w->lock);
		if (!m.code)
			continue;
		msg_gleamMoveLatch_put(&out, &m);
		move_say(w, OP_gleamMoveLatch, CTX_NONE, false, payload, (uint32_t)out.at);
	}
}

/* What kernels have printed is in the driver until somebody synchronises. Their work is done, so nothing is waited for. */
static void prints_tell(struct worker *w)
{
	if (!print_wanted())
		return;
	for (uint32_t i = 0; i < SESSION_CONTEXTS; i++)
		if (w->contexts[i].open)
			print_context(w, w->contexts[i].driver);
}

static void turn(struct worker *w)
{
	grants_turn(w);
	vmms_turn(w);
	keep_arrays_turn(w);
}

static bool begin_say(struct worker *w)
{
	uint8_t payload[20000] __attribute__((aligned(8)));
	uint8_t devices[16384] __attribute__((aligned(8)));
	struct writer list = writer_on(devices, sizeof(devices));
	struct writer out = writer_on(payload, sizeof(payload));
	struct msg_gleamMoveBegin m = { .ordinals = w->ordinals, .driver = w->snapshot->driver_version, .first = w->first };

	for (uint32_t i = 0; i < w->device_count; i++)
		if (w->ordinals & 1ull << i)
			move_device_put(w, i, &list);
	m.devices = devices;
	m.devices_size = (uint32_t)list.at;
	msg_gleamMoveBegin_put(&out, &m);
	if (list.fault || out.fault)
		return false;
	move_say(w, OP_gleamMoveBegin, CTX_NONE, true, payload, (uint32_t)out.at);
	return true;
}

/* Events that were recorded are done; a record of their own tells them from those that never were. */
static void event_say(void *arg, uint64_t handle, struct object *o)
{
	struct worker *w = arg;
	struct event *e = o->own;
	uint64_t payload[2] = { WIRE_STREAM_LEGACY, handle };

	if (e && e->stream && o->ctx < SESSION_CONTEXTS && w->contexts[o->ctx].open)
		move_say(w, OP_cuEventRecord, o->ctx, false, payload, sizeof(payload));
}

/* The reason is a literal. */
static CUresult move_copy(struct worker *w, uint64_t limit, bool last, struct ans_gleamMoveOut *a, const char **why)
{
	uint64_t start = limit;

	if (!moves(w)) {
		*why = "its server has too little memory for the move (of the machine, not of the GPU)";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!w->move->begun) {
		if (!begin_say(w)) {
			*why = "its devices can't be described: it has more of them than a move can carry";
			return CUDA_ERROR_NOT_SUPPORTED;
		}
		w->move->begun = true;
	}
	/* Memory first: textures lie over it. */
	if (!grants_say(w) || !vmms_say(w)) {
		*why = "its server has too little memory for the move (of the machine, not of the GPU)";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!keep_say(w)) {
		*why = keep_trouble(w);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (last && (!w->move->last || !variables_are_known(w))) {
		turn(w);
		if (!variables_look(w)) {
			*why = "its driver doesn't say where variables of its modules lie";
			return CUDA_ERROR_UNKNOWN;
		}
	}
	w->move->last = last;
	if (!last)
		variables_prepare(w, &limit);
	host_ranges_say(w);
	if (!grants_contents_say(w, &limit, &a->left, &a->total) || !vmms_contents_say(w, &limit, &a->left, &a->total) ||
	    !keep_arrays_say(w, &limit, &a->left, &a->total) || !host_contents_say(w, &limit, &a->left, &a->total)) {
		*why = "memory can't be read: the driver of its GPU refuses that, as after a failure of the GPU";
		return CUDA_ERROR_UNKNOWN;
	}
	/* Variables belong to modules; kernels change them, so they are read when none runs. Who points to them is known when all has been read. */
	if (last && limit && a->left == 0 && !variables_say(w, &limit, &a->left)) {
		*why = "variables of its modules can't be read: the driver of its GPU refuses that, as after a failure of the GPU";
		return CUDA_ERROR_UNKNOWN;
	}
	if (last && limit == 0 && a->left == 0)
		a->left = 1; /* once more, for what the limit left out */
	/* A turn is over: the next one looks at all of it again. */
	if (a->left == 0) {
		turn(w);
		w->move->last = false;
	}
	if (last && a->left == 0) {
		prints_tell(w);
		object_each(w->tables, OBJECT_EVENT, event_say, w);
		links_say(w);
		latches_say(w);
	}
	note(w, "move: %llu bytes said or looked at, %llu left", (unsigned long long)(start - limit), (unsigned long long)a->left);
	return CUDA_SUCCESS;
}

CUresult worker_do_gleamMoveOut(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveOut *m, struct ans_gleamMoveOut *a)
{
	static char reason[REASON_SIZE]; /* until the answer is made, right behind */
	const char *why = keep_trouble(w);
	CUresult r = why ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;

	if (m->step > MOVE_GO_ON)
		return CMD_BROKEN;
	aside_begin(w, m->way);
	if (m->step == MOVE_HOLD || m->step == MOVE_GO_ON) {
		w->holds = m->step == MOVE_HOLD;
		why = NULL;
		r = CUDA_SUCCESS;
	} else if (m->step == MOVE_FORGET) {
		keep_forget(w);
		grants_forget(w);
		vmms_forget(w);
		host_forget(w);
		if (w->move)
			w->move->begun = false;
		why = NULL;
		r = CUDA_SUCCESS;
	} else if (why) {
		if (m->step == MOVE_CHECK)
			keep_troubles_tell(w);
	} else {
		why = failed_context(w);
		r = why ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	}
	if (r == CUDA_SUCCESS && m->step == MOVE_LAST) {
		why = busy_with(w);
		if (why)
			r = host_calls_pending(w, NULL) ? (CUresult)MOVE_WANTS_CLIENT : CUDA_ERROR_NOT_READY;
		/* What runs may change what has been looked at. */
		if (why && w->move)
			w->move->last = false;
	}
	if (r == CUDA_SUCCESS && (m->step == MOVE_COPY || m->step == MOVE_LAST))
		r = move_copy(w, m->limit, m->step == MOVE_LAST, a, &why);
	w->current_known = false;
	/* What has been said to the client in frames with bytes, for whoever must know that all of it came. */
	pthread_mutex_lock(&w->post_lock);
	a->bulk = w->bulk_posted;
	a->landings = w->landings;
	pthread_mutex_unlock(&w->post_lock);
	a->sequence = w->seq;
	snprintf(reason, sizeof(reason), "%s", why ? why : "");
	a->reason = reason;
	a->reason_size = (uint32_t)strlen(reason) + 1;
	/* A refusal is told in words, which the answer to an error wouldn't have. */
	a->code = (uint32_t)r;
	return CUDA_SUCCESS;
}
