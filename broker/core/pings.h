/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the pings of a link say of it: round trip, jitter, and, by padded ones that follow a small one each, bandwidth. Nanoseconds and
 * bytes. Of the thread that its link is of; no memory of its own. A peer can spoil what is said of itself, and nothing else.
 */
#ifndef GLEAM_CORE_PINGS_H
#define GLEAM_CORE_PINGS_H

#include <stdbool.h>
#include <stdint.h>

#define PINGS_KEPT 4u /* that are looked back at: two seconds */

/* A padded ping: it fits the first window of a connection, so it is not slowed by TCP. */
#define PINGS_PADDING	(12u << 10)
#define PINGS_RATE_MAX	125000000ull /* bytes a second: 1 Gbit/s takes 98 us for a probe, and to wake up takes about as long */

/* Begins as zeros. */
struct pings {
	uint64_t rtt_ns; /* of the newest small one; 0: none yet */
	uint64_t rtt_min_ns;
	uint64_t rtt_mean_ns; /* the newest counting an eighth, as in TCP */
	uint64_t jitter_ns;   /* mean deviation from it */
	uint64_t small[PINGS_KEPT]; /* what they took, the last times */
	uint64_t padded[PINGS_KEPT];
	uint32_t padding[PINGS_KEPT]; /* bytes that each of those had */
	uint64_t small_count;
	uint64_t padded_count;
};

/* A small ping has come back after @took. */
void pings_small(struct pings *pings, uint64_t took);
/* And one with @padding bytes, 1 at least: what it took longer than the small one before it, its bytes took. */
void pings_padded(struct pings *pings, uint64_t took, uint32_t padding);

/* The least of the last small ones: what a late wake-up adds isn't the network's. 0: none yet. */
uint64_t pings_least(const struct pings *pings);
/*
 * Bytes a second by what the padding takes; 0 and true: more than that can tell; false: nothing can be told, since pings
 * without padding differ by as much.
 */
bool pings_rate(const struct pings *pings, uint64_t *rate_out);

#endif
