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

/* Bytes that the node is to keep, and how: see LINK_BULK_KEEP. total 0: they aren't. */
struct bulk_keep {
	uint64_t tag;
	uint32_t at;
	uint32_t total;
	uint64_t mark; /* node: what its chunk is known by before it has a name; 0: nothing */
};

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
	struct bulk_keep keep; /* up only */
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
	bool is_move; /* at a broker: of a session that is being made (broker/local/move.h), not a client's */
	/* Lane thread: the bytes of bulk frame @number have landed, now the frame. */
	void (*deliver)(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size);
	/* Node, lane thread, may be NULL: bytes of the piece at @cookie lie in the arena, and are to be kept. Before their landed word. */
	void (*keep)(struct mirror *mirror, const struct bulk_keep *keep, uint64_t cookie, uint32_t offset, uint32_t size);
	void *keep_arg;
	struct origins *origins; /* node: of its pieces, as far as the cache knows them; NULL: nobody asks for them */
	bool depot; /* node: has no worker, see broker/node/cache.h; else it is a seat's */
	bool fill;  /* node: a depot in so far: the memory is a seat's, which another node fills; see broker/node/fill.h */
	void (*room)(struct mirror *mirror); /* any thread: bulk_pending fell below MIRROR_BULK_MAX again */
	void (*free)(struct mirror *mirror); /* any thread: the last count is gone */

	/* atomic */
	uint32_t refs;
	uint32_t fetches; /* node: pieces that the store is about to put into the arena */
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

/* Bulk that waits for something, a lane or a hash. */
static inline void mirror_bulk_begin(struct mirror *mirror)
{
	__atomic_fetch_add(&mirror->bulk_pending, 1, __ATOMIC_ACQ_REL);
}

static inline void mirror_bulk_end(struct mirror *mirror)
{
	if (__atomic_fetch_sub(&mirror->bulk_pending, 1, __ATOMIC_ACQ_REL) == MIRROR_BULK_MAX && mirror->room)
		mirror->room(mirror);
}

static inline bool mirror_is_full(const struct mirror *mirror)
{
	return __atomic_load_n(&mirror->bulk_pending, __ATOMIC_ACQUIRE) >= MIRROR_BULK_MAX;
}

#endif
