/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: they arrive in parts, are loaded by the driver, and answered by a verdict (broker/proto/verdict.h).
 * Executor thread.
 */
#ifndef GLEAM_WORKER_IMAGE_H
#define GLEAM_WORKER_IMAGE_H

#include "broker/worker/state.h"

/* Parts that have landed since, and loads that waited for them. True if there was something. */
bool images_look(struct worker *w);
/* Some are on their way. */
bool images_busy(const struct worker *w);
void images_stop(struct worker *w);

/* Is every part of it that the driver would walk inside the bytes? A zero stands behind them. INVALID_IMAGE. */
CUresult image_check(const uint8_t *bytes, uint64_t size);
/* Copies a verdict into the client's cells, as far as it fits, and replies. */
void verdict_answer(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *cells, const uint8_t *blob,
		    size_t size);

/* What belongs to a loaded module or library (object.own). */
void image_own_free(void *own);

#endif
