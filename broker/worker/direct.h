/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client on the worker's own machine has the worker's session memory itself: nobody carries frames between them. What its
 * gleamd would do with a frame (broker/local/flow.c) is done here: replies go into their slots, some notices become words, the
 * others go into ring n2c, whose consumer is the library.
 *
 * Called with post_lock held.
 */
#ifndef GLEAM_WORKER_DIRECT_H
#define GLEAM_WORKER_DIRECT_H

#include "broker/worker/state.h"

#define DIRECT_OVERFLOW_MAX (16u << 20) /* bytes of frames that wait for room in n2c; then the session ends */
#define DIRECT_FLUSH_NS	    250000u	/* to look again for that room: nothing wakes us for it */

/* @hdr has its final size and flags. */
void direct_post_locked(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *bulk, const void *payload,
			uint32_t size);
/* Frames that waited, oldest first. */
void direct_flush_locked(struct worker *w);
/* Behind one or several of the two: wakes the client's service thread, if it sleeps and there is something for it. */
void direct_ring_locked(struct worker *w);

/* Without the lock: whether frames wait. */
static inline bool direct_waits(const struct worker *w)
{
	return __atomic_load_n(&w->direct_waiting, __ATOMIC_ACQUIRE);
}

#endif
