/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon leaves in a session's memory for the one that comes after it (struct session_baton), so that a program goes on whose
 * gleamd was killed or restarted. The command ring is its own journal; this is what the broker knows beside it: token and server, the
 * pieces that are on their way, and which frames of the node have come.
 *
 * A daemon may die between any two stores. A frame's effect on the memory (a notice in the ring, an answer in its slot) and its count
 * are two, so what is being done is written down first: whoever comes later sees from the memory whether it was done
 * (baton_do() .. effect .. baton_done()). What can be repeated without harm (words) is counted alone.
 *
 * The memory is the client's. A daemon writes here and reads nothing back, but for the first look of the one that comes after
 * (baton_read()), which copies all of it and checks it: a client that has written it itself gets nothing but its own session.
 *
 * Pieces and the ring: control thread. Frames: whoever holds the client's deliver_lock.
 */
#ifndef GLEAM_LOCAL_BATON_H
#define GLEAM_LOCAL_BATON_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/conf.h"
#include "broker/lib/shm.h"
#include "broker/local/journal.h"

static_assert(SESSION_TOKEN_SIZE == RESUME_TOKEN_SIZE && SESSION_WINDOW == RESUME_WINDOW, "kept as they travel");

#define BATON_PROGRAM_SIZE  256
#define BATON_SETTINGS_SIZE 4096

/* Whose it is; strings are borrowed. */
struct baton_name {
	const char *server;
	const char *program;
	const char *settings;
	const uint8_t *token;
};

/* The session is live, or has got another worker (a move): everything that isn't said here is 0. */
void baton_open(const struct shm *shm, enum baton_state state, const struct baton_name *name);
void baton_state_set(const struct shm *shm, enum baton_state state);
/* After a move, or when a saved one goes on elsewhere. Its state is BATON_NONE behind this. */
void baton_moved(const struct shm *shm, const struct baton_name *name, uint64_t delta, const struct journal_seen *seen);
void baton_delta_set(const struct shm *shm, uint64_t delta);
/* Its worker has been asked about a move, or has forgotten it. */
void baton_asked_set(const struct shm *shm, bool asked);
void baton_seq_set(const struct shm *shm, uint64_t seq);
/* The piece with that count in the journal; @file: number + 1 if the client has left its bytes out, else 0. */
void baton_piece_put(const struct shm *shm, uint64_t count, const struct journal_piece *piece, uint32_t file, uint64_t file_offset);

/* A frame of the node, or of the overflow. */
struct baton_frame {
	uint64_t number;	/* of a bulk frame; 0: of the command lane */
	uint64_t overflow_tail; /* it comes from the overflow, which ends here behind it; 0: from the node */
};
/* Before its effect: see enum baton_doing. @seen counts it already. */
void baton_do(const struct shm *shm, enum baton_doing doing, const struct baton_frame *frame, const struct journal_seen *seen, uint64_t at,
	     uint32_t index, uint32_t op);
/* Behind it. */
void baton_done(const struct shm *shm, const struct baton_frame *frame, const struct journal_seen *seen);

/* What was left, copied and checked. */
struct baton {
	uint8_t token[RESUME_TOKEN_SIZE];
	char server[CONF_NAME_SIZE];
	char program[BATON_PROGRAM_SIZE];
	char settings[BATON_SETTINGS_SIZE];
	uint64_t delta;
	uint64_t seq;
	bool moved;
	bool taken; /* the worker's ring was the broker's; the client's commands up to c2n_tail had been sent, and consumed */
	struct journal_seen seen;
	uint64_t c2n_tail; /* what the worker has consumed, as it was told */
	uint64_t c2n_head; /* what the client has written */
	uint64_t n2c_tail;
	uint64_t n2c_head;
	uint64_t overflow_tail;
	uint64_t overflow_head;
	uint64_t up_tail;
};

/*
 * Of a memory whose header has been checked (shm_map()). @pieces_out: those that were on their way, in the order of their commands;
 * their counts are where they lie in the memory; landed and known are 0. Nonzero: why the session can't go on, enum session_end, and a line in *@why_out, a literal.
 */
enum session_end baton_read(const struct shm *shm, struct baton *baton_out, struct journal_pieces *pieces_out, const char **why_out);
/* Another daemon goes on from there. */
void baton_adopted(const struct shm *shm, const struct baton *kept);

#endif
