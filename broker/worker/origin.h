/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of the up arena went where in device memory, as far back as is remembered: for a move, whose node may know those bytes as a
 * chunk of the weight cache. A guess, since kernels and copies write over them without our knowing: whoever uses it compares. Executor thread.
 */
#ifndef GLEAM_WORKER_ORIGIN_H
#define GLEAM_WORKER_ORIGIN_H

#include "broker/worker/state.h"

/* A piece has been copied to @address, or is about to be. Forgets old ones rather than fail. */
void origin_note(struct worker *w, uint64_t address, const struct bulk_ref *piece);
/*
 * Where in the up arena the bytes at @address came by, or ORIGIN_NONE. *@run: bytes that are asked about, and for how many of them
 * the answer holds: of one piece.
 */
uint64_t origin_find(struct worker *w, uint64_t address, uint64_t *run);
void origins_free(struct worker *w);

#endif
