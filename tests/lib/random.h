/* SPDX-License-Identifier: Apache-2.0 */
/* A small seeded generator (splitmix64): the same seed gives the same trouble on every machine. */
#ifndef TESTS_LIB_RANDOM_H
#define TESTS_LIB_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

static inline uint64_t random_next(struct random *random)
{
	uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
	return mixed ^ mixed >> 31;
}

/* In [0, 1). */
static inline double random_share(struct random *random)
{
	return (double)(random_next(random) >> 11) * 0x1p-53;
}

#endif
