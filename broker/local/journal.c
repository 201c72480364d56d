/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives a link. Threads as in journal.h. */
#include "broker/local/journal.h"

#include <errno.h>
#include <stddef.h>

#include "broker/proto/progress.h"

/* The node keeps what it hasn't heard of in a ring of SESSION_N2C_SIZE, so it is told long before that is full. */
#define SEEN_DUE_FRAMES 128u
#define SEEN_DUE_BYTES	(64u << 10)

static void pieces_drop_freed(struct journal_pieces *pieces, uint64_t up_tail)
{
	while (pieces->tail < pieces->head && pieces->pieces[pieces->tail % JOURNAL_PIECES].cookie < up_tail)
		pieces->tail++;
}

int journal_piece_add(struct journal_pieces *pieces, const struct journal_piece *piece, uint64_t up_tail)
{
	pieces_drop_freed(pieces, up_tail);
	if (pieces->head - pieces->tail == JOURNAL_PIECES)
		return -ENOBUFS;
	pieces->pieces[pieces->head++ % JOURNAL_PIECES] = *piece;
	return 0;
}

void journal_pieces_cut(struct journal_pieces *pieces, uint64_t position)
{
	while (pieces->head > pieces->tail && pieces->pieces[(pieces->head - 1) % JOURNAL_PIECES].position >= position)
		pieces->head--;
}

bool journal_piece_landed(const struct journal_pieces *pieces, const struct journal_piece *piece)
{
	return piece->position < pieces->known && pieces->landed[landed_word(piece->offset)] == landed_value(piece->cookie);
}

const struct journal_piece *journal_piece_missing(const struct journal_pieces *pieces, uint64_t up_tail, uint64_t *at)
{
	if (*at < pieces->tail)
		*at = pieces->tail;
	while (*at < pieces->head) {
		const struct journal_piece *piece = &pieces->pieces[(*at)++ % JOURNAL_PIECES];

		if (piece->cookie >= up_tail && !journal_piece_landed(pieces, piece))
			return piece;
	}
	return NULL;
}

int journal_seen_frame(struct journal_seen *seen, uint64_t number, uint32_t size)
{
	if (number == 0) {
		seen->frames++;
	} else {
		uint8_t *byte = &seen->bits[number % RESUME_WINDOW / 8];
		uint8_t bit = (uint8_t)(1u << number % 8);

		if (number <= seen->bulk || number - seen->bulk > RESUME_WINDOW || (*byte & bit))
			return -EPROTO;
		*byte |= bit;
		seen->turn++;
		for (;;) {
			uint64_t next = seen->bulk + 1;

			byte = &seen->bits[next % RESUME_WINDOW / 8];
			bit = (uint8_t)(1u << next % 8);
			if (!(*byte & bit))
				break;
			*byte &= (uint8_t)~bit;
			seen->bulk = next;
		}
	}
	seen->untold++;
	seen->untold_bytes += size;
	return 0;
}

bool journal_seen_due(const struct journal_seen *seen)
{
	return seen->untold >= SEEN_DUE_FRAMES || seen->untold_bytes >= SEEN_DUE_BYTES;
}
