/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of arrays and mipmapped arrays in a move. Executor thread.
 */
#ifndef GLEAM_WORKER_MOVE_ARRAY_H
#define GLEAM_WORKER_MOVE_ARRAY_H

#include "broker/worker/state.h"

/* What was said of one array's contents. */
struct move_array;

/*
 * Of an array (@levels 0) or mipmapped array of that shape, as it was made. NULL and @why: its bytes can't be counted, or there is no
 * memory for it.
 */
struct move_array *move_array_new(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t levels, const char **why);
void move_array_free(struct move_array *a);
uint64_t move_array_bytes(const struct move_array *a);
/* As move_contents() in move_out.h, of the driver's @object in the context @ctx, which the client calls @handle. */
bool move_array_say(struct worker *w, struct move_array *a, uint64_t handle, void *object, uint16_t ctx, uint64_t *limit, uint64_t *left);
/* All of it is looked at once more. */
void move_array_turn(struct move_array *a);

#endif
