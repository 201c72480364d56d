/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical device memory in pieces: granted to the client, mapped at its addresses, unmapped after a quarantine.
 * Executor thread.
 */
#ifndef GLEAM_WORKER_GRANT_H
#define GLEAM_WORKER_GRANT_H

#include "broker/worker/state.h"

void grants_stop(struct worker *w);
/* Each round: a request that waits for other programs' memory is tried again now and then. */
void grants_look(struct worker *w);
/* There is such a request: no long sleep. */
bool grants_wait(const struct worker *w);
/*
 * Pieces of device @owner can be reached from device @device, or not any more: what is mapped, and what will be. What is so
 * already is no work. The client has waited for what used them.
 */
CUresult grants_open(struct worker *w, uint32_t device, uint32_t owner, bool on);
/*
 * The pieces of the mapping that begins at @address, in order, and their device; 0 where there is none. The caller frees both.
 */
uint32_t grants_pieces(struct worker *w, uint64_t address, CUmemGenericAllocationHandle **handles_out, uint64_t **sizes_out,
		       uint32_t *device_out);
/* The worker's own context of a device is about to be reset: the stream that wipes there is given up. */
void grants_context_lost(struct worker *w, uint32_t device);

/* ---- a move (move_out.h) ---- */

/* Nothing is in quarantine, and nobody waits for memory. */
bool grants_settled(const struct worker *w);
/* Pieces, mappings, and which devices reach them: what has come and gone since it was said. False: no memory for the books. */
bool grants_say(struct worker *w);
/* Contents, *@limit bytes at most; adds up what is left to look at in this turn, and what there is. False: a device can't be read. */
bool grants_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total);
/* Looks at all contents once more, from the beginning. */
void grants_turn(struct worker *w);
void grants_forget(struct worker *w);
/* Where the mapping of @address ends; 0: nothing is mapped there. */
uint64_t grants_end_of(const struct worker *w, uint64_t address);

#endif
