/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The completion thread: reads the words that the GPU writes, tells the node about progress, answers calls that waited,
 * and finds contexts that were lost while somebody waits for them.
 */
#ifndef GLEAM_WORKER_COMPLETION_H
#define GLEAM_WORKER_COMPLETION_H

#include "broker/worker/state.h"

int completion_start(struct worker *w);
void completion_stop(struct worker *w);

/* Something about streams has changed that a look might find, other than the words that the GPU writes. Lock held. */
static inline void completion_changed_locked(struct worker *w)
{
	/* Pairs with the acquire in look_pays(). */
	__atomic_store_n(&w->watch_changes, w->watch_changes + 1, __ATOMIC_RELEASE);
}

/* The thread looks at @s until its last write was seen and nothing waits for it. Lock held. */
void completion_watch_locked(struct worker *w, struct stream *s);
/* After that, without the lock. */
void completion_wake(struct worker *w);
/* Instead, where somebody is known to wait for what comes: a nap between looks ends, too. */
void completion_hurry(struct worker *w);

/* The granules of an up piece are used up; tells the node how far the arena is free now. Any thread. */
void completion_consume(struct worker *w, const struct frame_hdr *hdr, const struct bulk_ref *piece);

/* One look at all watched streams; true if something had happened. For the thread and for tests. */
bool completion_look(struct worker *w);
/* Asks the driver whether the contexts of watched streams are still well. */
void completion_check_contexts(struct worker *w);

#endif
