/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's own page-locked memory: words that the GPU writes and waits for, and staging blocks for bytes on their
 * way. Words: executor. Staging: any thread, behind a lock of its own.
 */
#ifndef GLEAM_WORKER_PINNED_H
#define GLEAM_WORKER_PINNED_H

#include "broker/worker/state.h"

#define PINNED_WORDS (2u * SESSION_PROGRESS_WORDS + 4096u) /* live streams, dead ones with work, host functions in flight */
#define STAGING_SMALL 4096u
#define STAGING_LARGE (32u << 10)  /* INLINE_MAX */
#define STAGING_PIECE SESSION_CELL_SIZE /* only where the GPU can't reach the session memory */
#define STAGING_SMALL_COUNT 2048u
#define STAGING_LARGE_COUNT 256u
#define STAGING_PIECE_COUNT 24u

struct staging_block {
	struct staging_block *next;
	uint8_t *bytes;
	CUdeviceptr at;
	uint32_t size;
};

/* Page-locked memory of whole pages that the GPU reads and writes. */
struct pinned {
	uint8_t *bytes;
	size_t size;
	CUdeviceptr at;
	bool registered; /* ours and registered; otherwise the driver's */
};

/* Needs a current context. -errno; the reason was logged. */
int pinned_make(struct worker *w, size_t size, struct pinned *pinned_out);
void pinned_free(struct worker *w, struct pinned *p);

/* After the home context is there and the session memory is mapped (or not, which decides about STAGING_PIECE blocks). */
int staging_start(struct worker *w);
void staging_stop(struct worker *w);
/* After the home context was reset: everything is registered again. */
int staging_again(struct worker *w);

/* NULL: all blocks of that size are in use. */
struct staging_block *staging_take(struct worker *w, uint32_t size);
void staging_give(struct worker *w, struct staging_block *block);

/* A word with @value; NULL when all are in use. */
uint32_t *word_take(struct worker *w, uint32_t value, CUdeviceptr *at_out);
void word_give(struct worker *w, uint32_t *word);

#endif
