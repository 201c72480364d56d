/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the client and device memory, and the pieces of the up arena. Executor thread.
 */
#ifndef GLEAM_WORKER_COPY_H
#define GLEAM_WORKER_COPY_H

#include "broker/worker/state.h"

/* A frame refers to an up piece. False: it lies outside the window that the arena can have. */
bool copy_piece_arrived(struct worker *w, const struct bulk_ref *ref);
/* The bytes of an up piece are in the arena. */
bool copy_piece_landed(const struct worker *w, const struct bulk_ref *ref);
/* A command that has no more use for its up piece: it is given back, as soon as its bytes have come. */
void copy_consumed(struct worker *w, struct cmd *cmd);
/* Pieces given back whose bytes have come since. True if there was one. */
bool copy_look(struct worker *w);
void copy_stop(struct worker *w);

/*
 * A box of bytes between an arena, where they lie row after row and slice after slice without a gap, and what @copy says
 * of its other side; its size is checked already. CMD_PARK like handlers.
 */
CUresult copy_box_up(struct worker *w, struct cmd *cmd, const struct bulk_ref *data, CUDA_MEMCPY3D *copy);
CUresult copy_box_down(struct worker *w, struct cmd *cmd, const struct bulk_ref *cells, uint32_t size, CUDA_MEMCPY3D *copy);

#endif
