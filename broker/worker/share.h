/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that goes from worker to worker of a node: descriptors of the pieces, over a socket that only holders of a random key get
 * an answer from, and only of the same tenant. One thread answers; all else is the executor's.
 */
#ifndef GLEAM_WORKER_SHARE_H
#define GLEAM_WORKER_SHARE_H

#include "broker/worker/state.h"

/* What OBJECT_VMM has in `own` where the memory is another worker's: its pieces, in order. */
struct share_pieces {
	uint32_t count;
	uint32_t pid; /* of the program whose it is, as its worker says */
	struct {
		CUmemGenericAllocationHandle driver;
		uint64_t size;
	} pieces[];
};

/* The memory named @object (the address of a mapping, the handle of physical memory) is its client's no more. */
void share_end(struct worker *w, uint64_t object);
/*
 * NULL: no memory of its client's is in the hands of others, as far as the client still has it. Otherwise which programs have it, as a
 * reason not to move; valid until the next call.
 */
const char *share_trouble(struct worker *w);
/* Lets go of what came from another worker. */
void share_pieces_free(struct worker *w, struct share_pieces *pieces);
void shares_stop(struct worker *w);

#endif
