/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker does before it has a client: loads the driver, counts its devices, takes the snapshot, reserves Gleam's
 * address ranges, and registers the session memory. Main thread.
 */
#ifndef GLEAM_WORKER_DEVICE_H
#define GLEAM_WORKER_DEVICE_H

#include <stddef.h>

#include "broker/worker/state.h"

/* -errno, and why in @why. */
int driver_open(struct worker *w, const char *path, char *why, size_t size);
int devices_start(struct worker *w, char *why, size_t size);
int ranges_reserve(struct worker *w, char *why, size_t size);
/* Registers arenas and landed words; where the driver refuses, w->arenas_mapped stays false, and that is no failure. */
void device_arenas_map(struct worker *w);
int device_arenas_again(struct worker *w);

/* The snapshot of the devices with a bit in @ordinals, in their order, into @w. */
/* Ranges from the @first one on are the devices': 0, or -EADDRINUSE (and said). Executor thread, before anything is mapped. */
int ranges_move(struct worker *w, uint32_t first);
void snapshot_write(const struct worker *w, uint64_t ordinals, struct writer *out);

#endif
