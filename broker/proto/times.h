/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long calls of a function take: counts by length in session memory, written by the library, read by daemons. Four buckets
 * to an octave, so that a quantile is right within a tenth. Of a function's calls the first 256 are timed, later one of 64.
 */
#ifndef GLEAM_PROTO_TIMES_H
#define GLEAM_PROTO_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/ring.h"

#define TIMES_FIRST 256u

/* Is the call timed that comes after @before others of its function? */
static inline bool times_wants(uint64_t before)
{
	/* By a hash, so that no rhythm of the program's decides. */
	return before < TIMES_FIRST || (uint32_t)before * 0x9e3779b1u >> 26 == 0;
}

/* The bucket of @ns: below 16 ns the first, from a minute on the last. */
static inline uint32_t times_bucket(uint64_t ns)
{
	uint32_t octave, bucket;

	if (ns < 16)
		return 0;
	octave = 63 - (uint32_t)__builtin_clzll(ns);
	bucket = (octave - 4) * 4 + (uint32_t)(ns >> (octave - 2) & 3);
	return bucket < SESSION_TIMES ? bucket : SESSION_TIMES - 1;
}

/* The middle of a bucket, in ns. */
static inline uint64_t times_value(uint32_t bucket)
{
	uint64_t quarter = 1ull << (bucket / 4 + 2); /* of the octave that begins at 16 << bucket / 4 */

	return bucket ? quarter * 4 + quarter * (bucket % 4) + quarter / 2 : 8;
}

/* The value that @share (0 to 1) of the timed calls don't exceed; 0: none was timed. */
static inline uint64_t times_quantile(const uint32_t *buckets, double share)
{
	uint64_t all = 0, seen = 0;

	for (uint32_t i = 0; i < SESSION_TIMES; i++)
		all += buckets[i];
	for (uint32_t i = 0; i < SESSION_TIMES && all; i++) {
		seen += buckets[i];
		if ((double)seen >= share * (double)all)
			return times_value(i);
	}
	return 0;
}

#endif
