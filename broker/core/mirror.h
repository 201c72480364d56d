/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lanes may touch of a session, on either side of a link: its memory, and its queues of bulk bytes that wait for a
 * lane. Embedded in the session objects of both roles; counted, because lane threads hold it while bytes move.
 */
#ifndef GLEAM_CORE_MIRROR_H
#define GLEAM_CORE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "broker/lib/shm.h"
#include "broker/proto/off.h"
#include "broker/proto/wire.h"

/* Bulk pieces of a session that wait for lanes; then its ring is not read any further. As many as the up arena has. */
#define MIRROR_BULK_MAX SESSION_GRANULES

struct mirror;

/* Bytes on their way out. Up: a piece. Down: bytes of a frame, and the frame, which goes behind the last of them. */
struct bulk_item {
	struct bulk_item *next;
	uint64_t seq;
	uint64_t cookie; /* up only */
	uint64_t number; /* down only: counts the session's bulk frames */
	uint32_t offset; /* in its arena */
	uint32_t size;
	uint32_t done;	     /* of size */
	uint32_t frame_size; /* down only */
	uint8_t frame[] __attribute__((aligned(8)));
};

/* One a session and lane; guarded by the lane's lock. */
struct lane_queue {
	struct mirror *mirror;
	struct bulk_item *first;
	struct bulk_item **last;
	struct lane_queue *next_ready;
	bool ready; /* in the lane's list, which holds a count of the mirror */
};

struct mirror {
	/* set before it is added to a link, then only read */
	struct shm shm;
	uint32_t id;
	uint32_t off; /* techniques that the client has switched off: broker/proto/off.h */
	/* Lane thread: the bytes of bulk frame @number have landed, now the frame. */
	void (*deliver)(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size);
	void (*room)(struct mirror *mirror); /* any thread: bulk_pending fell below MIRROR_BULK_MAX again */
	void (*free)(struct mirror *mirror); /* any thread: the last count is gone */

	/* atomic */
	uint32_t refs;
	uint32_t bulk_pending;
	bool live; /* its memory stays until the last count is gone: lanes may receive into it */
	bool dead; /* lanes drop what they have for it */

	/* guarded by the link's table lock */
	struct mirror *next;

	struct lane_queue queues[LINK_LANES_MAX];
};

static inline void mirror_init(struct mirror *mirror)
{
	mirror->refs = 1;
	for (unsigned i = 0; i < LINK_LANES_MAX; i++) {
		mirror->queues[i].mirror = mirror;
		mirror->queues[i].last = &mirror->queues[i].first;
	}
}

static inline void mirror_get(struct mirror *mirror)
{
	__atomic_fetch_add(&mirror->refs, 1, __ATOMIC_RELAXED);
}

static inline void mirror_put(struct mirror *mirror)
{
	/* Acquire and release: whoever frees sees what the others wrote. */
	if (__atomic_sub_fetch(&mirror->refs, 1, __ATOMIC_ACQ_REL) == 0)
		mirror->free(mirror);
}

static inline bool mirror_is_full(const struct mirror *mirror)
{
	return __atomic_load_n(&mirror->bulk_pending, __ATOMIC_ACQUIRE) >= MIRROR_BULK_MAX;
}

#endif
