/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a client's commands isn't finished, as far as a node sees it from frame headers and progress: for the load that it reports, so
 * what a client or worker forges here spoils nothing else. Control thread. Times are nanoseconds of the loop's clock.
 *
 * A stream whose next command waits for bytes that are on their way has no work: the GPU is anybody's meanwhile.
 */
#ifndef GLEAM_NODE_WORK_H
#define GLEAM_NODE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/ring.h"

/* A piece of the up arena that a command of the stream @word waits for. */
struct work_piece {
	uint32_t word;
	uint32_t before; /* command of the stream in front of it, low half of its sequence number */
	uint32_t seq;
	uint32_t offset; /* in the arena */
	uint64_t cookie; /* position in it, free-running */
};

#define WORK_PIECES SESSION_GRANULES /* more don't lie in the arena at a time */

/* Begins as zeros. */
struct work {
	uint64_t asked;	   /* sequence number of the newest command that wants a reply */
	uint64_t answered; /* of the newest reply */
	/* by progress word */
	uint32_t issued[SESSION_PROGRESS_WORDS];
	uint32_t reached[SESSION_PROGRESS_WORDS];
	uint32_t unfinished; /* words with issued beyond reached */
	/* a command whose completion is timed; one at a time */
	bool timing;
	uint32_t timed_word;
	uint32_t timed_seq;
	uint64_t timed_ns;
	uint64_t latency_ns; /* mean, the newest counting a quarter; 0: none yet */
	/* in order; counts run freely */
	struct work_piece pieces[WORK_PIECES];
	uint64_t piece_head;
	uint64_t piece_tail;
};

/* Whole frames that the client has written; @bytes need not be aligned. */
void work_note(struct work *work, const uint8_t *bytes, uint32_t size, uint64_t now_ns);
/* Progress word @word, less than SESSION_PROGRESS_WORDS, has come to @value. */
void work_reached(struct work *work, uint32_t word, uint32_t value, uint64_t now_ns);
/* A reply to command @seq has come. */
static inline void work_answered(struct work *work, uint64_t seq)
{
	work->answered = seq;
}

/* Something isn't finished. */
static inline bool work_is_open(const struct work *work)
{
	return work->asked > work->answered || work->unfinished;
}
/* GPU or worker have something to do that doesn't wait for bytes; @landed: the landed words of the session's memory, read as they are. */
bool work_is_on(struct work *work, const uint32_t *landed);

#endif
