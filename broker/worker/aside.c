/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a session that moves, apart from what is said of them. Executor thread; see aside.h. */
#include "broker/worker/aside.h"

#include <string.h>

#include "broker/lib/futex.h"
#include "broker/worker/copy.h"
#include "broker/worker/origin.h"
#include "broker/worker/post.h"
#include "gen/worker_bodies.h"

#define ROOM_WAIT_NS 100000000 /* the node wakes us; this only bounds how late its end is noticed */
#define LANDED_SPINS 2000u
#define ASIDE_MESSAGE_MAX 64u /* of the longest of these commands, without its bytes */

static_assert(MOVE_UP_START % SESSION_UP_SIZE == 0, "a lap of the arena begins there");
static_assert(MOVE_ASIDE_MAX <= SESSION_CELL_SIZE && MOVE_ASIDE_MAX <= SESSION_ASIDE_SIZE / 4, "said aside by pieces");

static bool over(const struct worker *w)
{
	return __atomic_load_n(&w->stop, __ATOMIC_RELAXED) || __atomic_load_n(&w->header->state, __ATOMIC_ACQUIRE) == SESSION_DEAD;
}

/* ---- said ---- */

static struct session_aside *aside_of(const struct worker *w)
{
	return (struct session_aside *)(void *)(w->shm.base + SESSION_AT_ASIDE);
}

void aside_begin(struct worker *w, uint32_t way)
{
	/* Where the memory is the client's, too, that has the place. */
	w->way = __atomic_load_n(&w->header->direct, __ATOMIC_ACQUIRE) ? 0 : way;
}

bool aside_is_open(const struct worker *w)
{
	return w->way != 0;
}

/* Up to @end. */
static bool room_wait(struct worker *w, uint64_t end)
{
	struct session_aside *aside = aside_of(w);

	for (;;) {
		uint32_t room = __atomic_load_n(&aside->room, __ATOMIC_ACQUIRE);

		if (end - __atomic_load_n(&aside->tail, __ATOMIC_ACQUIRE) <= SESSION_ASIDE_SIZE)
			return true;
		if (over(w))
			return false;
		/* Nobody makes room by what he hasn't been shown. */
		post_show(w);
		futex_wait(&aside->room, room, ROOM_WAIT_NS);
	}
}

struct piece {
	uint16_t op;
	uint16_t ctx;
	uint8_t message[ASIDE_MESSAGE_MAX] __attribute__((aligned(8)));
	uint32_t message_size;
};

/* What the command says beside its bytes. */
#define PIECE_PUT(piece, name, ...)                                                                                    \
	do {                                                                                                           \
		struct msg_##name m_ = { __VA_ARGS__ };                                                                \
		struct writer w_ = writer_on((piece)->message, sizeof((piece)->message));                              \
                                                                                                                       \
		msg_##name##_put(&w_, &m_);                                                                            \
		(piece)->op = OP_##name;                                                                               \
		(piece)->message_size = (uint32_t)w_.at;                                                               \
	} while (0)

static bool piece_say(struct worker *w, const struct piece *piece, const uint8_t *bytes, uint32_t size, uint64_t origin)
{
	uint8_t payload[sizeof(struct aside_hdr) + sizeof(struct frame_hdr) + sizeof(struct bulk_ref) + ASIDE_MESSAGE_MAX];
	struct frame_hdr hdr = { .op = piece->op, .kind = FRAME_COMMAND, .flags = FRAME_BULK_UP, .ctx = piece->ctx };
	struct bulk_ref ref = { .size = size }; /* where it comes to lie the node says */
	struct aside_hdr aside = { .way = w->way, .origin = origin };
	uint64_t place = w->aside_at % SESSION_ASIDE_SIZE;

	if (place + size > SESSION_ASIDE_SIZE)
		w->aside_at += SESSION_ASIDE_SIZE - place;
	aside.position = w->aside_at;
	if (!room_wait(w, w->aside_at + size))
		return false;
	memcpy(w->shm.base + SESSION_AT_SAID + w->aside_at % SESSION_ASIDE_SIZE, bytes, size);
	w->aside_at += size;
	hdr.size = (uint32_t)(sizeof(hdr) + sizeof(ref) + piece->message_size);
	memcpy(payload, &aside, sizeof(aside));
	memcpy(payload + sizeof(aside), &hdr, sizeof(hdr));
	memcpy(payload + sizeof(aside) + sizeof(hdr), &ref, sizeof(ref));
	memcpy(payload + sizeof(aside) + sizeof(hdr) + sizeof(ref), piece->message, piece->message_size);
	post_notice(w, NOTICE_MOVE_ASIDE, 0, CTX_NONE, payload, (uint32_t)sizeof(aside) + hdr.size);
	return true;
}

bool aside_say(struct worker *w, const struct move_place *place, uint64_t offset, const uint8_t *bytes, uint64_t size)
{
	for (uint64_t at = 0; at < size;) {
		uint64_t part = size - at < MOVE_ASIDE_MAX ? size - at : MOVE_ASIDE_MAX;
		uint64_t origin = ORIGIN_NONE;
		struct piece piece = { .ctx = CTX_NONE };

		/* Only what is known by the address that the program uses. */
		if (place->device < DEVICES_MAX && !place->handle)
			origin = origin_find(w, place->address + offset + at, &part);
		PIECE_PUT(&piece, gleamMoveBulk, .handle = place->handle, .at = (place->handle ? 0 : place->address) + offset + at);
		if (!piece_say(w, &piece, bytes + at, (uint32_t)part, origin))
			return false;
		at += part;
	}
	return true;
}

bool aside_say_box(struct worker *w, uint16_t ctx, const struct msg_gleamMoveArray *m, const uint8_t *bytes)
{
	struct piece piece = { .ctx = ctx };

	PIECE_PUT(&piece, gleamMoveArrayBulk, .array = m->array, .level = m->level, .x = m->x, .y = m->y, .z = m->z, .width = m->width,
		  .rows = m->rows);
	return piece_say(w, &piece, bytes, (uint32_t)(m->width * m->rows), ORIGIN_NONE);
}

bool aside_say_image(struct worker *w, uint16_t ctx, uint64_t object, const uint8_t *bytes, uint64_t size)
{
	for (uint64_t at = 0; at < size; at += MOVE_ASIDE_MAX) {
		struct piece piece = { .ctx = ctx };

		PIECE_PUT(&piece, gleamMoveImageBulk, .object = object, .offset = at);
		if (!piece_say(w, &piece, bytes + at, (uint32_t)(size - at < MOVE_ASIDE_MAX ? size - at : MOVE_ASIDE_MAX), ORIGIN_NONE))
			return false;
	}
	return true;
}

/* ---- taken ---- */

/*
 * Whoever is becoming somebody has nothing else to do: commands for it come in their order, and none of them is a program's that waits.
 */
static bool landed_wait(struct worker *w, const struct bulk_ref *piece)
{
	for (unsigned spins = 0; !copy_piece_landed(w, piece); spins++) {
		uint32_t bell;

		if (over(w))
			return false;
		if (spins < LANDED_SPINS)
			continue;
		/* Pairs with session_bell_ring(): it sees us wait, or we see what it has written. */
		__atomic_fetch_add(&w->header->progress_waiters, 1, __ATOMIC_SEQ_CST);
		bell = __atomic_load_n(&w->header->progress_bell, __ATOMIC_SEQ_CST);
		if (!copy_piece_landed(w, piece))
			futex_wait(&w->header->progress_bell, bell, ROOM_WAIT_NS);
		__atomic_fetch_sub(&w->header->progress_waiters, 1, __ATOMIC_SEQ_CST);
	}
	return true;
}

CUresult worker_do_gleamMoveBulk(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveBulk *m)
{
	const uint8_t *bytes = shm_up(&w->shm) + m->data.offset;
	CUresult r;

	if (!w->moving)
		return CMD_BROKEN;
	if (!landed_wait(w, &m->data))
		return CUDA_ERROR_UNKNOWN;
	if (m->handle) {
		struct msg_gleamMoveVmm vmm = { .handle = m->handle, .offset = m->at, .data = bytes, .data_size = m->data.size };

		r = worker_do_gleamMoveVmm(w, cmd, &vmm);
	} else {
		struct msg_gleamMoveBytes plain = { .address = m->at, .data = bytes, .data_size = m->data.size };

		/* Should it move on, its next node may know them by that. */
		origin_note(w, m->at, &m->data);
		r = worker_do_gleamMoveBytes(w, cmd, &plain);
	}
	copy_consumed(w, cmd);
	return r;
}

CUresult worker_do_gleamMoveArrayBulk(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveArrayBulk *m)
{
	struct msg_gleamMoveArray box = {
		.array = m->array, .level = m->level, .x = m->x, .y = m->y, .z = m->z, .width = m->width, .rows = m->rows,
		.data = shm_up(&w->shm) + m->data.offset, .data_size = m->data.size,
	};
	CUresult r;

	if (!w->moving)
		return CMD_BROKEN;
	if (!landed_wait(w, &m->data))
		return CUDA_ERROR_UNKNOWN;
	r = worker_do_gleamMoveArray(w, cmd, &box);
	copy_consumed(w, cmd);
	return r;
}

CUresult worker_do_gleamMoveImageBulk(struct worker *w, struct cmd *cmd, const struct msg_gleamMoveImageBulk *m)
{
	struct msg_gleamMoveImage part = {
		.object = m->object, .offset = m->offset, .data = shm_up(&w->shm) + m->data.offset, .data_size = m->data.size,
	};
	CUresult r;

	if (!w->moving)
		return CMD_BROKEN;
	if (!landed_wait(w, &m->data))
		return CUDA_ERROR_UNKNOWN;
	r = worker_do_gleamMoveImage(w, cmd, &part);
	copy_consumed(w, cmd);
	return r;
}
