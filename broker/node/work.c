/* SPDX-License-Identifier: Apache-2.0 */
/* What of a client's commands isn't finished. Control thread; see work.h. */
#include "broker/node/work.h"

#include <string.h>

#include "broker/lib/ring.h"
#include "broker/proto/progress.h"
#include "gen/ops.h"

static bool word_is_finished(const struct work *work, uint32_t word)
{
	return progress_reached(work->reached[word], work->issued[word]);
}

/* A command of the stream of @word that waits for the piece @ref. */
static void piece_add(struct work *work, uint32_t word, uint64_t seq, const struct bulk_ref *ref)
{
	if (ref->offset >= SESSION_UP_SIZE)
		return;
	/* The arena is a ring: who writes there again was told that the piece is used. */
	while (work->piece_tail != work->piece_head) {
		const struct work_piece *oldest = &work->pieces[work->piece_tail % WORK_PIECES];

		if (work->piece_head - work->piece_tail < WORK_PIECES && oldest->cookie + SESSION_UP_SIZE > ref->cookie)
			break;
		work->piece_tail++;
	}
	work->pieces[work->piece_head++ % WORK_PIECES] = (struct work_piece){
		.word = word, .before = work->issued[word], .seq = (uint32_t)seq, .offset = ref->offset, .cookie = ref->cookie,
	};
}

static bool piece_is_there(const struct work *work, const struct work_piece *piece, const uint32_t *landed)
{
	return progress_reached(work->reached[piece->word], piece->seq) ||
	       __atomic_load_n(&landed[landed_word(piece->offset)], __ATOMIC_RELAXED) == landed_value(piece->cookie);
}

bool work_is_on(struct work *work, const uint32_t *landed)
{
	uint32_t waiting = 0;

	while (work->piece_tail != work->piece_head &&
	       piece_is_there(work, &work->pieces[work->piece_tail % WORK_PIECES], landed))
		work->piece_tail++;
	for (uint64_t at = work->piece_tail; at != work->piece_head; at++) {
		const struct work_piece *piece = &work->pieces[at % WORK_PIECES];

		/* One of a stream at most: what is in front of the next one is not reached. */
		waiting += progress_reached(work->reached[piece->word], piece->before) && !piece_is_there(work, piece, landed);
	}
	if (work->unfinished > waiting)
		return true;
	/* Who waits for an answer beside streams that wait for bytes, waits for these. */
	return !waiting && work->asked > work->answered;
}

static void word_issued(struct work *work, uint32_t word, uint64_t seq, uint64_t now_ns)
{
	bool finished = word_is_finished(work, word);

	work->issued[word] = (uint32_t)seq;
	work->unfinished += finished && !word_is_finished(work, word);
	if (!work->timing) {
		work->timing = true;
		work->timed_word = word;
		work->timed_seq = (uint32_t)seq;
		work->timed_ns = now_ns;
	}
}

static void word_timed(struct work *work, uint32_t value, uint64_t now_ns)
{
	uint64_t took = now_ns - work->timed_ns;

	if (!progress_reached(value, work->timed_seq))
		return;
	work->timing = false;
	work->latency_ns = work->latency_ns ? work->latency_ns - work->latency_ns / 4 + took / 4 : took + 1;
}

void work_reached(struct work *work, uint32_t word, uint32_t value, uint64_t now_ns)
{
	bool finished = word_is_finished(work, word);

	work->reached[word] = value;
	if (work->timing && word == work->timed_word)
		word_timed(work, value, now_ns);
	if (!finished && word_is_finished(work, word))
		work->unfinished--;
	else if (finished && !word_is_finished(work, word))
		work->unfinished++;
}

/* Of a command's payload the stream is looked at, which stands first so that one needn't decode. */
void work_note(struct work *work, const uint8_t *bytes, uint32_t size, uint64_t now_ns)
{
	struct frame_hdr hdr;

	for (uint32_t at = 0; size - at >= sizeof(hdr) && at < size; at += RING_ALIGN(hdr.size)) {
		uint32_t payload;
		uint64_t stream;
		uint32_t word;

		memcpy(&hdr, bytes + at, sizeof(hdr));
		if (hdr.size < FRAME_ALIGN || hdr.size > size - at)
			break;
		if (hdr.kind != FRAME_COMMAND)
			continue;
		if (hdr.flags & FRAME_WANTS_REPLY)
			work->asked = hdr.seq;
		payload = ring_frame_head(&hdr);
		/* Its streams go with it; those of other contexts count again with their next command. */
		if (hdr.op == OP_gleamContextClose) {
			memcpy(work->reached, work->issued, sizeof(work->reached));
			work->unfinished = 0;
			work->timing = false;
		}
		if (hdr.op >= OP_MAX || !(op_info[hdr.op].flags & OP_SCOPE_STREAM) || hdr.size < payload + sizeof(stream))
			continue;
		memcpy(&stream, bytes + at + payload, sizeof(stream));
		if (!progress_word(stream, hdr.ctx, &word))
			continue;
		if (hdr.flags & FRAME_BULK_UP) {
			struct bulk_ref ref = ring_bulk_ref(bytes + at);

			piece_add(work, word, hdr.seq, &ref);
		}
		/* Of a stream that is gone nothing more is told. */
		if (hdr.op == OP_cuStreamDestroy_v2)
			work_reached(work, word, work->issued[word], now_ns);
		else
			word_issued(work, word, hdr.seq, now_ns);
	}
}
