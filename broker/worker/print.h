/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device printf: the driver writes what kernels have printed to this process's stdout when a stream is synchronised. The
 * worker catches it there and sends it to the client before the answer that says that the work is done.
 */
#ifndef GLEAM_WORKER_PRINT_H
#define GLEAM_WORKER_PRINT_H

#include "broker/worker/state.h"

/* Catch stdout; before the driver is loaded. 0 or -errno (then text goes where stdout went). */
int print_start(void);
/* Do kernels of an image call vprintf? Once one does, synchronising costs a call of the driver more. Executor. */
void print_look(const void *image, uint64_t size);
bool print_wanted(void);
/* Work of @driver (in context @context) is done: flush and send what was printed. Any thread. */
void print_stream(struct worker *w, CUcontext context, CUstream driver);
/* The same for all work of a context. */
void print_context(struct worker *w, CUcontext context);
/*
 * Some work of context @index is done and its progress is about to be told, by which an event wait or a query of the client ends:
 * flush and send what was printed, without waiting for anything else. Completion thread, between begin and end of that context.
 */
void print_soon(struct worker *w, uint32_t index);
/* @context is open as @index; it is about to be closed (@alive: its objects can still be destroyed). Executor. */
void print_begin(uint32_t index, CUcontext context);
void print_end(struct worker *w, uint32_t index, bool alive);

#endif
