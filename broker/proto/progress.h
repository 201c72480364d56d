/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which word of the session memory says what, and with which numbers: the rules that client, brokers and worker share.
 *
 * Progress words: one a stream. A created stream has the word of its handle's index, the legacy stream of a context
 * has one of the last SESSION_CONTEXTS words. The value is the low half of the sequence number of the newest command
 * of that stream which has completed together with everything before it on the stream; it never goes back. After an
 * event record, a copy that reads an up piece and a command that waits for a reply the worker has it written at once,
 * otherwise every few dozen commands, and for the last command when the stream has been quiet for a moment.
 *
 * Word PROGRESS_LANDINGS, which no stream has, counts the NOTICE_LANDED that the worker has sent. It is told before every
 * other word and before every reply that comes after them: bytes travel beside the words, and whoever reads a word knows
 * from the count how many landings it stands for, those of other streams included. Bytes overtake each other, too, and the count is told
 * beside them: a landing says which one it is (1, 2, 3 ...), so that a younger one that came early isn't taken for an older one.
 *
 * Landed words: one a granule of the up arena. Whoever stores a piece into the arena writes landed_value(cookie) to
 * the word of the piece's first granule, after the bytes (release). The GPU waits for equality.
 */
#ifndef GLEAM_PROTO_PROGRESS_H
#define GLEAM_PROTO_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/handle.h"
#include "broker/proto/ring.h"

/* Handles of streams have indices 1 .. PROGRESS_STREAMS - 1. */
#define PROGRESS_STREAMS (SESSION_PROGRESS_WORDS - SESSION_CONTEXTS)
#define PROGRESS_LANDINGS 0u

/* False for a handle that is no stream, an index beyond the words, or a context that can't be. */
static inline bool progress_word(uint64_t stream, uint32_t ctx, uint32_t *word_out)
{
	if (stream == WIRE_STREAM_LEGACY || stream == 0) {
		if (ctx >= SESSION_CONTEXTS)
			return false;
		*word_out = PROGRESS_STREAMS + ctx;
		return true;
	}

	uint32_t index = handle_index(stream);

	if (handle_type(stream) != OBJECT_STREAM || index == 0 || index >= PROGRESS_STREAMS)
		return false;
	*word_out = index;
	return true;
}

/* Has a word with @value passed command @seq? Right as long as they are less than 2^31 commands apart. */
static inline bool progress_reached(uint32_t value, uint64_t seq)
{
	return (int32_t)(value - (uint32_t)seq) >= 0;
}

/* @cookie: free-running position of an up piece, as in its bulk_ref. Never 0, which is a word that was never written. */
static inline uint32_t landed_value(uint64_t cookie)
{
	return (uint32_t)(cookie / SESSION_GRANULE) | 0x80000000u;
}

static inline uint32_t landed_word(uint32_t offset)
{
	return offset / SESSION_GRANULE;
}

#endif
