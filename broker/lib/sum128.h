/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 128 bits over words: whether bytes of one program have changed, or come out again. It guards nothing against anybody. Each half is a chain
 * of its own; of many bytes there are four chains for each, since one waits for itself: three times as fast. Pure.
 */
#ifndef GLEAM_LIB_SUM128_H
#define GLEAM_LIB_SUM128_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sum128 {
	uint64_t a, b;
};

/* What a sum begins with. */
#define SUM128_SEED ((struct sum128){ 0x9e3779b97f4a7c15ull, 0xc2b2ae3d27d4eb4full })

static inline uint64_t sum128_mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return x ^ x >> 29;
}

static inline struct sum128 sum128_word(struct sum128 sum, uint64_t x)
{
	sum.a = (sum.a ^ x) * 0x9fb21c651e98df25ull;
	sum.a ^= sum.a >> 28;
	sum.b = (sum.b + x) * 0xff51afd7ed558ccdull;
	sum.b ^= sum.b >> 31;
	return sum;
}

static inline struct sum128 sum128_both(struct sum128 sum, struct sum128 other)
{
	return (struct sum128){ sum128_mix(sum.a ^ other.a) + other.b, sum128_mix(sum.b + other.b) ^ other.a };
}

#define SUM128_MANY 256u /* bytes from which on it pays */

/* The words of @size bytes, a multiple of 32, go to four sums in turn; @sum and they are the next one. */
static inline struct sum128 sum128_lanes(struct sum128 sum, const uint8_t *at, size_t size)
{
	/* By name, so that compilers keep them where they are quick. */
	struct sum128 one = sum, two = { sum.a + 1, sum.b ^ 1 }, three = { sum.a + 2, sum.b ^ 2 }, four = { sum.a + 3, sum.b ^ 3 };
	uint64_t x[4];

	for (; size; size -= sizeof(x), at += sizeof(x)) {
		memcpy(x, at, sizeof(x));
		one = sum128_word(one, x[0]);
		two = sum128_word(two, x[1]);
		three = sum128_word(three, x[2]);
		four = sum128_word(four, x[3]);
	}
	sum = sum128_both(sum, one);
	sum = sum128_both(sum, two);
	sum = sum128_both(sum, three);
	return sum128_both(sum, four);
}

/* @sum and behind it @size bytes. The same bytes in other pieces come to something else. */
static inline struct sum128 sum128_add(struct sum128 sum, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t x;

	sum.a ^= size;
	sum.b += size;
	if (size >= SUM128_MANY) {
		size_t many = size & ~(size_t)31;

		sum = sum128_lanes(sum, at, many);
		at += many;
		size -= many;
	}
	for (; size >= 8; size -= 8, at += 8) {
		memcpy(&x, at, 8);
		sum = sum128_word(sum, x);
	}
	x = 0;
	memcpy(&x, at, size);
	sum.a = sum128_mix(sum.a ^ x);
	sum.b = sum128_mix(sum.b + x);
	return sum;
}

#endif
