/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lane takes a piece of bulk for the host: the first that has nothing to do, for its threads may be looking for work still, and those of the last have slept
 * since there was much. What a lane has sent lies in sockets, and has yet to be decrypted: a lane counts as busy for as long as that should take. When all
 * are busy, the one that has least queued, from another one each time, so that equals take turns. The link's control thread.
 */
#ifndef GLEAM_CORE_LANE_CHOICE_H
#define GLEAM_CORE_LANE_CHOICE_H

#include <stdint.h>

#define LANE_RATE 1000000000ull /* bytes a second that a lane is thought to carry, encryption and all; a guess on the low side spreads more */
#define LANE_BUSY_MAX 4000000ull /* what sockets hold: 4 MiB, usually */

/* For the host: a piece of up to this size is of a copy that somebody waits for. Larger ones are a stream, where all lanes and few sends are what counts. */
#define LANE_AWAITED_MAX (256u << 10)

struct lane_load {
	uint64_t queued;  /* bytes that wait to be sent; UINT64_MAX: there is no such lane */
	uint64_t busy_ns; /* until then it has something to do */
};

/* The first that has nothing to do, or @count. */
static inline unsigned lane_idle(const struct lane_load *lanes, unsigned count, uint64_t now_ns)
{
	unsigned i = 0;

	while (i < count && (lanes[i].queued || now_ns < lanes[i].busy_ns))
		i++;
	return i;
}

/* The one that has least queued, beginning with another one each time; @count if there is none. */
static inline unsigned lane_least(const struct lane_load *lanes, unsigned count, unsigned turn)
{
	uint64_t least = UINT64_MAX;
	unsigned best = count;

	for (unsigned i = 0; i < count; i++) {
		unsigned at = (turn + i) % count;

		if (lanes[at].queued < least) {
			best = at;
			least = lanes[at].queued;
		}
	}
	return best;
}

/* When a lane that takes @size bytes at @now_ns has done with them. */
static inline uint64_t lane_busy(uint64_t busy_ns, uint64_t now_ns, uint32_t size)
{
	uint64_t until = (busy_ns > now_ns ? busy_ns : now_ns) + size * 1000000000ull / LANE_RATE;

	return until < now_ns + LANE_BUSY_MAX ? until : now_ns + LANE_BUSY_MAX;
}

#endif
