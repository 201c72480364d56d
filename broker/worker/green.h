/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources of green contexts: parts of a device's multiprocessors. The driver's structures, which hold what only it understands, stay
 * here; the client has their numbers. They are never given back, as natively. Executor thread.
 */
#ifndef GLEAM_WORKER_GREEN_H
#define GLEAM_WORKER_GREEN_H

#include "broker/proto/resource.h"
#include "broker/worker/state.h"

#define RESOURCES_MAX 65536u /* of a session: programs split once at their start */

/* NULL: no such number. */
const CUdevResource *resource_at(const struct worker *w, uint32_t number);
/* How many there are; the numbers of the next ones begin there. */
uint32_t resources_count(const struct worker *w);
/* Another worker has made those with these numbers, and must have come to the same (gleamMoveResource). */
void resources_say(struct worker *w, uint32_t first, uint32_t count);
void resources_free(struct worker *w);

#endif
