/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that the driver chooses and kernels know: those of textures and surfaces. A worker that becomes another one makes objects
 * until the driver gives out the number that the program has; those that were made on the way (fillers) are kept until the move is over, so
 * that none is given out twice. Executor thread.
 */
#ifndef GLEAM_WORKER_NUMBER_H
#define GLEAM_WORKER_NUMBER_H

#include "broker/worker/state.h"

/* Makes one object in the current context, a texture or surface of @arg. */
typedef CUresult number_maker(struct worker *w, void *arg, uint64_t *number_out);

/* What @make makes; with the number that gleamMoveNumber has asked for, if it has for @object. */
CUresult number_make(struct worker *w, enum object_type type, uint64_t object, number_maker *make, void *arg, uint64_t *number_out);
/* The move is over, or the worker ends: what was made on the way goes. */
void numbers_end(struct worker *w);

#endif
