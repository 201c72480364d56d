/* SPDX-License-Identifier: Apache-2.0 */
/* LZ4 for bulk: where the link is slow and bytes shrink, there alone; and packed bytes of any content are refused or right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/pack.h"

#define SLOW 10000000ull   /* bytes a second: a lane of four at 300 Mbit/s */
#define FAST 5000000000ull /* loopback */
#define SIZE (1u << 20)

static uint8_t *bytes, *back;

static void fill(bool shrinks, unsigned seed)
{
	for (uint32_t i = 0; i < SIZE; i++) {
		seed = seed * 1664525u + 1013904223u;
		/* Zeros with a few others, as activations behind a ReLU are. */
		bytes[i] = shrinks && (seed >> 16) % 8 ? 0 : (uint8_t)(seed >> 24);
	}
}

static void test_what_shrinks_on_a_slow_link(void **state)
{
	struct packer packer = { 0 };
	uint32_t sizes[] = { 16384, 100001, SIZE }, stored;

	fill(true, 1);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_true(pack_try(&packer, bytes, sizes[i], SLOW, &stored));
		assert_true(stored < sizes[i]);
		memset(back, 0x55, SIZE);
		assert_int_equal(unpack(packer.packed, stored, back, sizes[i]), 0);
		assert_memory_equal(bytes, back, sizes[i]);
	}
	assert_true(packer.saved > 0 && packer.speed > 0);
	pack_fini(&packer);
}

static void test_where_it_does_not_pay(void **state)
{
	struct packer packer = { .speed = 500000000 };
	uint32_t stored;

	fill(true, 2);
	assert_false(pack_try(&packer, bytes, SIZE, FAST, &stored)); /* the link is faster than compressing */
	assert_false(pack_try(&packer, bytes, SIZE, 0, &stored));    /* nobody knows how fast it is */
	assert_false(pack_try(&packer, bytes, 1000, SLOW, &stored)); /* too little */
	assert_null(packer.packed);
	/* A core that compresses too slowly for this link, which another one would suit. */
	packer.speed = SLOW;
	assert_false(pack_try(&packer, bytes, SIZE, SLOW, &stored));
	assert_null(packer.packed);
	pack_fini(&packer);
}

/* Bytes that don't shrink are looked at less and less; when they begin to, that is noticed. */
static void test_what_does_not_shrink(void **state)
{
	struct packer packer = { .speed = 500000000 };
	unsigned tries = 0;
	uint32_t stored;

	fill(false, 3);
	for (int i = 0; i < 500; i++) {
		tries += packer.skip == 0;
		assert_false(pack_try(&packer, bytes, SIZE, SLOW, &stored));
	}
	assert_in_range(tries, 7, 16);
	fill(true, 4);
	for (tries = 0; tries < 100 && !pack_try(&packer, bytes, SIZE, SLOW, &stored); tries++)
		;
	assert_true(tries <= 64);
	assert_true(pack_try(&packer, bytes, SIZE, SLOW, &stored));
	pack_fini(&packer);
}

static void test_packed_bytes_of_others(void **state)
{
	struct packer packer = { 0 };
	uint32_t size = 50000, stored;
	unsigned seed = 5, wrong = 0;
	uint8_t *copy;

	fill(true, 6);
	assert_true(pack_try(&packer, bytes, size, SLOW, &stored));
	/* Cut, stretched, of another size. Copies of exact size, so that a sanitizer sees what is read behind them. */
	for (uint32_t cut = 0; cut < stored; cut += cut < 300 ? 1 : 97) {
		copy = malloc(cut + 1);
		memcpy(copy, packer.packed, cut);
		assert_int_equal(unpack(copy, cut, back, size), -EPROTO);
		free(copy);
	}
	assert_int_equal(unpack(packer.packed, stored, back, size - 1), -EPROTO);
	assert_int_equal(unpack(packer.packed, stored, back, size + 1), -EPROTO);
	for (int i = 0; i < 2000; i++) {
		copy = malloc(stored);
		memcpy(copy, packer.packed, stored);
		seed = seed * 1664525u + 1013904223u;
		copy[(seed >> 8) % stored] ^= (uint8_t)(1u << seed % 8);
		wrong += unpack(copy, stored, back, size) != 0;
		free(copy);
	}
	assert_true(wrong > 0);
	pack_fini(&packer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_shrinks_on_a_slow_link),
		cmocka_unit_test(test_where_it_does_not_pay),
		cmocka_unit_test(test_what_does_not_shrink),
		cmocka_unit_test(test_packed_bytes_of_others),
	};
	int failed;

	bytes = malloc(SIZE);
	back = malloc(SIZE);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(bytes);
	free(back);
	return failed;
}
