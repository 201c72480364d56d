/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own physical memory and where it is mapped. Executor thread.
 */
#ifndef GLEAM_WORKER_VMM_H
#define GLEAM_WORKER_VMM_H

#include "broker/worker/state.h"

void vmms_stop(struct worker *w);

/* ---- a move (move_out.h) ---- */

/* NULL: all of it can be moved. */
const char *vmms_trouble(struct worker *w);
/* Memory, mappings and who reaches them: what has come, changed and gone since it was said. False: no memory for the books. */
bool vmms_say(struct worker *w);
/* Contents; as grants_contents_say() in grant.h. */
bool vmms_contents_say(struct worker *w, uint64_t *limit, uint64_t *left, uint64_t *total);
void vmms_turn(struct worker *w);
void vmms_forget(struct worker *w);
/* What was mapped only to be read or written here is no more. */
void vmms_window_close(struct worker *w);
/* Where the mapping of @address ends; 0: nothing is mapped there. */
uint64_t vmms_end_of(const struct worker *w, uint64_t address);

#endif
