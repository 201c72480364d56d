/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives a daemon. Threads as in baton.h. */
#include "broker/local/baton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct session_baton *baton_of(const struct shm *shm)
{
	return (struct session_baton *)(void *)(shm->base + SESSION_AT_BATON);
}

/* Stores are in this order for whoever looks when the writer is dead, so the compiler is all that must be told. */
#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* ---- writing ---- */

static void name_put(struct session_baton *baton, const struct baton_name *name)
{
	memcpy(baton->token, name->token, sizeof(baton->token));
	snprintf(baton->server, sizeof(baton->server), "%s", name->server);
	snprintf(baton->program, sizeof(baton->program), "%s", name->program);
	snprintf(baton->settings, sizeof(baton->settings), "%s", name->settings);
}

void baton_open(const struct shm *shm, enum baton_state state, const struct baton_name *name)
{
	struct session_baton *baton = baton_of(shm);

	STORE(baton->state, BATON_NONE);
	name_put(baton, name);
	STORE(baton->state, state);
}

void baton_state_set(const struct shm *shm, enum baton_state state)
{
	STORE(baton_of(shm)->state, state);
}

static void bulk_put(struct session_baton *baton, const struct journal_seen *seen)
{
	uint32_t next = seen->turn & 1;

	baton->bulk[next].number = seen->bulk;
	memcpy(baton->bulk[next].bits, seen->bits, sizeof(baton->bulk[next].bits));
	STORE(baton->which, next);
}

void baton_moved(const struct shm *shm, const struct baton_name *name, uint64_t delta, const struct journal_seen *seen)
{
	struct session_baton *baton = baton_of(shm);

	STORE(baton->state, BATON_NONE);
	name_put(baton, name);
	baton->delta = delta;
	baton->frames = seen->frames;
	bulk_put(baton, seen);
	baton->moved = 0;
}

void baton_delta_set(const struct shm *shm, uint64_t delta)
{
	STORE(baton_of(shm)->delta, delta);
}

void baton_asked_set(const struct shm *shm, bool asked)
{
	STORE(baton_of(shm)->moved, asked);
}

void baton_seq_set(const struct shm *shm, uint64_t seq)
{
	STORE(baton_of(shm)->seq, seq);
}

void baton_piece_put(const struct shm *shm, uint64_t count, const struct journal_piece *piece, uint32_t file, uint64_t file_offset)
{
	struct baton_piece *kept = &baton_of(shm)->pieces[count % SESSION_GRANULES];

	/* It is sent when all of it is here. */
	STORE(kept->size, 0);
	kept->position = piece->position;
	kept->seq = piece->seq;
	kept->cookie = piece->cookie;
	kept->offset = piece->offset;
	kept->file = file;
	kept->file_offset = file_offset;
	STORE(kept->size, piece->size);
}

void baton_do(const struct shm *shm, enum baton_doing doing, const struct baton_frame *frame, const struct journal_seen *seen, uint64_t at,
	     uint32_t index, uint32_t op)
{
	struct session_baton *baton = baton_of(shm);

	baton->at = at;
	baton->index = index;
	baton->op = op;
	baton->number = frame->number;
	baton->counted = seen->frames;
	baton->overflow_tail = frame->overflow_tail;
	STORE(baton->doing, doing);
	/* The effect stays behind this. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void baton_done(const struct shm *shm, const struct baton_frame *frame, const struct journal_seen *seen)
{
	struct session_baton *baton = baton_of(shm);

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* One of the overflow was counted when it got there; now the tail has moved. */
	if (!frame->overflow_tail && frame->number == 0)
		STORE(baton->frames, seen->frames);
	else if (!frame->overflow_tail)
		bulk_put(baton, seen);
	STORE(baton->doing, BATON_IDLE);
}

void baton_adopted(const struct shm *shm, const struct baton *kept)
{
	struct session_baton *baton = baton_of(shm);

	/* What was settled by what was being done says the same in these words now. */
	STORE(baton->frames, kept->seen.frames);
	bulk_put(baton, &kept->seen);
	STORE(baton->overflow.tail, kept->overflow_tail);
	STORE(baton->doing, BATON_IDLE);
}

/* ---- reading: nothing here is believed ---- */

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)

static bool text_take(char *out, size_t out_size, const char *from, size_t size)
{
	memcpy(out, from, size < out_size ? size : out_size);
	return memchr(out, 0, size < out_size ? size : out_size);
}

static bool ring_take(const struct ring_ctl *ctl, uint32_t size, uint64_t *tail_out, uint64_t *head_out)
{
	*tail_out = LOAD(ctl->tail);
	*head_out = LOAD(ctl->head);
	return *tail_out <= *head_out && *head_out - *tail_out <= size && !((*tail_out | *head_out) & (FRAME_ALIGN - 1));
}

/* Frame @number has come. Nothing new: it had been counted. */
static bool bulk_mark(struct journal_seen *seen, uint64_t number)
{
	if (number <= seen->bulk || number - seen->bulk > RESUME_WINDOW)
		return number <= seen->bulk;
	if (seen->bits[number % RESUME_WINDOW / 8] & 1u << number % 8)
		return true;
	return journal_seen_frame(seen, number, 0) == 0;
}

/* Whether what was being done has been done. */
static bool doing_is_done(const struct shm *shm, const struct session_baton *copy, const struct baton *baton)
{
	switch (copy->doing) {
	case BATON_NOTICE:
		return baton->n2c_head == copy->at;
	case BATON_OVERFLOW:
		return baton->overflow_head == copy->at;
	case BATON_REPLY: {
		const struct reply_slot *slot = shm_slot(shm, copy->index % SESSION_SLOTS);
		uint32_t state = LOAD(slot->state);

		return (state != SLOT_SENT && state != SLOT_SLEEPING) || LOAD(slot->seq) != copy->at;
	}
	case BATON_ERROR: {
		const struct error_word *word = shm_error(shm, copy->index % SESSION_CONTEXTS);

		/* It writes op to 0 first, and with the code last: see session_error_post(). */
		return LOAD(word->code) || (LOAD(word->op) == copy->op && LOAD(word->seq) == copy->at);
	}
	default:
		return false;
	}
}

static bool doing_settle(const struct shm *shm, const struct session_baton *copy, struct baton *baton)
{
	if (copy->doing == BATON_IDLE || !doing_is_done(shm, copy, baton))
		return true;
	if (copy->overflow_tail) {
		if (copy->overflow_tail < baton->overflow_tail || copy->overflow_tail > baton->overflow_head ||
		    copy->overflow_tail % FRAME_ALIGN)
			return false;
		baton->overflow_tail = copy->overflow_tail;
		return true;
	}
	if (copy->number)
		return bulk_mark(&baton->seen, copy->number);
	if (copy->counted != baton->seen.frames && copy->counted != baton->seen.frames + 1)
		return false;
	baton->seen.frames = copy->counted;
	return true;
}

static bool piece_is_kept(const struct baton_piece *kept, const struct baton *baton)
{
	return kept->size && kept->cookie >= baton->up_tail;
}

/* As flow.c checks it when it is sent first. */
static bool piece_is_sane(const struct baton_piece *kept, const struct baton *baton)
{
	return kept->offset < SESSION_UP_SIZE && kept->size <= SESSION_UP_SIZE - kept->offset && kept->size <= SESSION_CELL_SIZE &&
	       kept->offset % SESSION_GRANULE == 0 && kept->cookie % SESSION_UP_SIZE == kept->offset && !kept->file &&
	       kept->position < baton->c2n_head;
}

/*
 * From the oldest on as they follow each other. One that was being written is a gap, and what lies behind it is older writing about
 * commands that will be read from the ring again. Each keeps its place, so that nothing has to be written anew.
 */
static bool pieces_take(const struct session_baton *copy, const struct baton *baton, struct journal_pieces *pieces)
{
	const struct baton_piece *oldest = NULL, *last;

	memset(pieces, 0, sizeof(*pieces));
	for (uint32_t i = 0; i < SESSION_GRANULES; i++) {
		const struct baton_piece *kept = &copy->pieces[i];

		if (!piece_is_kept(kept, baton))
			continue;
		if (!piece_is_sane(kept, baton))
			return false;
		if (!oldest || kept->position < oldest->position)
			oldest = kept;
	}
	if (!oldest)
		return true;
	pieces->tail = pieces->head = (uint64_t)(oldest - copy->pieces);
	last = NULL;
	do {
		const struct baton_piece *kept = &copy->pieces[pieces->head % SESSION_GRANULES];

		if (!piece_is_kept(kept, baton) || (last && kept->position <= last->position))
			break;
		pieces->pieces[pieces->head++ % JOURNAL_PIECES] = (struct journal_piece){
			.position = kept->position, .seq = kept->seq, .cookie = kept->cookie, .offset = kept->offset, .size = kept->size,
		};
		last = kept;
	} while (pieces->head - pieces->tail < JOURNAL_PIECES);
	return true;
}

static enum session_end copy_read(const struct shm *shm, const struct session_baton *copy, struct baton *baton,
				  struct journal_pieces *pieces, const char **why)
{
	const struct session_header *hdr = shm_header(shm);
	const struct baton_bulk *bulk = &copy->bulk[copy->which & 1];

	*why = "there is no session in its memory that a restarted gleamd could go on with";
	if (copy->state == BATON_NONE || LOAD(hdr->state) != SESSION_LIVE)
		return END_PROTOCOL;
	*why = "its worker was this machine's, and ended with the gleamd before this one";
	if (copy->state == BATON_DIRECT)
		return END_LINK_LOST;
	*why = "what its memory says of the session is nonsense";
	if (copy->state != BATON_LIVE && copy->state != BATON_MOVING)
		return END_PROTOCOL;
	baton->taken = copy->state == BATON_MOVING;
	memcpy(baton->token, copy->token, sizeof(baton->token));
	if (!text_take(baton->server, sizeof(baton->server), copy->server, sizeof(copy->server)) ||
	    !text_take(baton->program, sizeof(baton->program), copy->program, sizeof(copy->program)) ||
	    !text_take(baton->settings, sizeof(baton->settings), copy->settings, sizeof(copy->settings)))
		return END_PROTOCOL;
	baton->delta = copy->delta;
	baton->seq = copy->seq;
	baton->moved = copy->moved || baton->taken;
	baton->up_tail = LOAD(hdr->up_tail);
	if (baton->delta % SESSION_C2N_SIZE || !ring_take(&hdr->c2n, SESSION_C2N_SIZE, &baton->c2n_tail, &baton->c2n_head) ||
	    !ring_take(&hdr->n2c, SESSION_N2C_SIZE, &baton->n2c_tail, &baton->n2c_head) ||
	    !ring_take(&copy->overflow, SESSION_OVERFLOW_SIZE, &baton->overflow_tail, &baton->overflow_head))
		return END_PROTOCOL;
	baton->seen.frames = copy->frames;
	baton->seen.bulk = bulk->number;
	baton->seen.turn = copy->which & 1;
	memcpy(baton->seen.bits, bulk->bits, sizeof(baton->seen.bits));
	if (!doing_settle(shm, copy, baton) || !pieces_take(copy, baton, pieces))
		return END_PROTOCOL;
	*why = "";
	return END_NONE;
}

enum session_end baton_read(const struct shm *shm, struct baton *baton_out, struct journal_pieces *pieces_out, const char **why_out)
{
	struct session_baton *copy = malloc(sizeof(*copy));
	enum session_end end = END_REFUSED;

	*why_out = "out of memory";
	memset(baton_out, 0, sizeof(*baton_out));
	if (!copy)
		return end;
	memcpy(copy, baton_of(shm), sizeof(*copy));
	end = copy_read(shm, copy, baton_out, pieces_out, why_out);
	free(copy);
	return end;
}
