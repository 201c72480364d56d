/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session has done since its checkpoint: the commands that went out, with the bytes that they sent, and what came back in between,
 * in the order in which it happened here. Another worker that has become what the checkpoint says can do it again (replay.h): a command goes to it
 * when all that the program had heard before that command has come again, and is what the program heard.
 *
 * Bounded: a session that has done more, or something that can't be done again, has a record that says so, and nothing else.
 * The caller's lock: the client's deliver_lock.
 */
#ifndef GLEAM_LOCAL_RECORD_H
#define GLEAM_LOCAL_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/sum128.h"
#include "broker/lib/shm.h"
#include "broker/proto/wire.h"

#define RECORD_MAX (256u << 20) /* bytes */

struct record;

/* Nothing has been done since command @sequence, which ends at @position in the client's ring. NULL: out of memory. */
struct record *record_new(uint64_t sequence, uint64_t position);
void record_free(struct record *r); /* NULL: nothing */
/* A command that goes out, of which @frame lies in a client's memory and @hdr was checked; with the bytes of its piece in the up arena. Again: nothing. */
void record_command(struct record *r, const struct frame_hdr *hdr, const uint8_t *frame, const struct shm *shm);
/* The client's ring has been read up to there; padding is no command. */
void record_position(struct record *r, uint64_t position);
/* A frame that comes back, checked; its cells lie in the down arena. */
void record_answer(struct record *r, const struct frame_hdr *hdr, const uint8_t *frame, const struct shm *shm);
/* Why it can't be done again; NULL: it can. */
const char *record_trouble(const struct record *r);
/* Whether it ends there, with that command. */
bool record_ends_at(const struct record *r, uint64_t sequence, uint64_t position);
uint64_t record_bytes(const struct record *r);

/* ---- what it has ---- */

enum step_kind { STEP_COMMAND, STEP_ANSWER, STEP_PROGRESS, STEP_CONSUMED };

/* What an answer is known by. */
struct answer_name {
	uint8_t kind; /* of its frame */
	uint16_t op;
	uint64_t seq;
};

struct step {
	uint32_t size; /* of this, what follows included */
	uint8_t kind;
	bool same; /* ANSWER: it must be the same, not only come */
	bool answered; /* COMMAND: one answer of it will come, by which its cells are free again */
	uint32_t bulk; /* COMMAND: bytes of its piece, behind the frame */
	uint32_t word; /* PROGRESS */
	uint32_t value;
	uint64_t tail; /* CONSUMED */
	struct answer_name name;
	struct sum128 sum;
	uint8_t frame[] __attribute__((aligned(8))); /* COMMAND */
};

/* The step at *@at, which moves behind it; NULL: no more. */
const struct step *record_next(const struct record *r, uint64_t *at);
/* Of an answer's frame with its cells in @cells. @same_out: whether it says what a program may rely on. */
struct sum128 record_sum(const struct frame_hdr *hdr, const uint8_t *frame, const uint8_t *cells, bool *same_out);

#endif
