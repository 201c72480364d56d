/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a broker remembers of a session so that it outlives its link, beside the command ring, which is its own journal:
 * the pieces of the up arena that are on their way (their bytes stay in the arena), and which frames of the node have come.
 * No locks: the pieces belong to the control thread, what has come to whoever holds the client's deliver_lock.
 */
#ifndef GLEAM_LOCAL_JOURNAL_H
#define GLEAM_LOCAL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/ring.h"
#include "broker/proto/wire.h"

#define JOURNAL_PIECES SESSION_GRANULES /* each holds a granule at least, so an honest client has no more */

struct journal_piece {
	uint64_t position; /* of its command in ring c2n */
	uint64_t seq;
	uint64_t cookie;
	uint32_t offset;
	uint32_t size;
};

/* Control thread. Counts run freely; a count modulo JOURNAL_PIECES is the place. */
struct journal_pieces {
	uint64_t head;
	uint64_t tail;
	struct journal_piece pieces[JOURNAL_PIECES];
	uint32_t landed[SESSION_GRANULES]; /* the words at the node when the session was resumed last, and */
	uint64_t known; /* the position in ring c2n up to which commands had been sent by then */
};

/* Those that the worker has freed (it freed all before @up_tail) make room. -ENOBUFS: more than an arena can hold. */
int journal_piece_add(struct journal_pieces *pieces, const struct journal_piece *piece, uint64_t up_tail);
/* The commands from @position on will be sent again, and their pieces with them. */
void journal_pieces_cut(struct journal_pieces *pieces, uint64_t position);
/*
 * Whether its bytes had landed when the session was resumed. Such a piece must not be sent again, with its command or without: once
 * its first copy has been consumed its place may have a later piece, which the second copy could overtake.
 */
bool journal_piece_landed(const struct journal_pieces *pieces, const struct journal_piece *piece);
/* The oldest piece at or after *@at that hasn't been freed and hasn't landed; NULL: no more. Moves *@at behind it. */
const struct journal_piece *journal_piece_missing(const struct journal_pieces *pieces, uint64_t up_tail, uint64_t *at);

/* Guarded by deliver_lock. */
struct journal_seen {
	uint64_t frames; /* of the command lane: that many have come */
	uint64_t bulk;	 /* by bulk lanes: all up to this number have come */
	uint8_t bits[RESUME_WINDOW / 8]; /* later ones, by number modulo RESUME_WINDOW */
	uint32_t turn;	       /* counts changes of the two above: baton.h */
	uint32_t untold;       /* frames since the node was told */
	uint32_t untold_bytes; /* and their bytes, which it keeps until then */
};

/* Frame @number (0: of the command lane) of @size bytes has come. -EPROTO: it was there, or can't be yet. */
int journal_seen_frame(struct journal_seen *seen, uint64_t number, uint32_t size);
/* Time to tell the node. */
bool journal_seen_due(const struct journal_seen *seen);

#endif
