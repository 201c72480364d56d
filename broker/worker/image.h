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
void images_stop(struct worker *w);

/* What belongs to a loaded module or library (object.own). */
void image_own_free(void *own);

#endif
