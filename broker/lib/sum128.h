/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 128 bits over words, two independent chains: whether bytes of one program have changed, or come out again. It guards nothing against
 * anybody. 256 KiB take some 30 us. Pure.
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

/* @sum and behind it @size bytes. */
static inline struct sum128 sum128_add(struct sum128 sum, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t x;

	sum.a ^= size;
	sum.b += size;
	for (; size >= 8; size -= 8, at += 8) {
		memcpy(&x, at, 8);
		sum.a = (sum.a ^ x) * 0x9fb21c651e98df25ull;
		sum.a ^= sum.a >> 28;
		sum.b = (sum.b + x) * 0xff51afd7ed558ccdull;
		sum.b ^= sum.b >> 31;
	}
	x = 0;
	memcpy(&x, at, size);
	sum.a = sum128_mix(sum.a ^ x);
	sum.b = sum128_mix(sum.b + x);
	return sum;
}

#endif
