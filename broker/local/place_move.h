/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves that the scheduler thinks of: its own wish ([scheduler] migrate), and where a program goes that has to leave its server. What is decided, and
 * what came of it, is among the scheduler's decisions. Control thread.
 */
#ifndef GLEAM_LOCAL_PLACE_MOVE_H
#define GLEAM_LOCAL_PLACE_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/local/move_ask.h"

struct place;

/* A wish of the scheduler's that is under way. */
struct place_wish {
	struct place_moves *moves;
	uint32_t session; /* before the move; 0: free */
	uint64_t decision;
};

struct place_moves {
	struct broker *broker;
	struct place *place;
	bool on;
	struct place_wish wish; /* one at a time: the next one sees what has become of it */
};

void place_moves_init(struct place_moves *moves, struct broker *broker, struct place *place, bool on);
/* Twice a second: begins what pays. */
void place_moves_tick(struct place_moves *moves);

/* The server for a client that has to leave where it is, as a decision; NULL and why there is none. @tried: bit per server. */
struct server *place_leave(struct broker *broker, const struct client *client, uint64_t tried, uint64_t *decision_out, char *why,
			   size_t why_size);
/* What came of it. @session: of the client before it moved. */
void place_leave_ended(struct broker *broker, uint64_t decision, uint32_t session, const struct move_news *news);

#endif
