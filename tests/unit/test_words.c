// SPDX-License-Identifier: Apache-2.0
/* Bytes that are stored while others look: whole words, neighbours that stay, ends of ranges. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/lib/words.h"

#define TURNS 200000u

static uint64_t words[8];

static uint64_t address(uint32_t byte)
{
	return (uint64_t)(uintptr_t)words + byte;
}

static void store(uint32_t at, const void *bytes, uint32_t size)
{
	words_store(address(at), bytes, size, address(0), address(sizeof(words)));
}

static void every_place_and_size(void **state)
{
	uint8_t bytes[sizeof(words)], want[sizeof(words)];

	(void)state;
	for (uint32_t at = 0; at < sizeof(words); at++) {
		for (uint32_t size = 0; size <= sizeof(words) - at; size++) {
			memset(words, 0xee, sizeof(words));
			memset(want, 0xee, sizeof(want));
			for (uint32_t i = 0; i < size; i++)
				want[at + i] = bytes[i] = (uint8_t)(at + 3 * i);
			store(at, bytes, size);
			assert_memory_equal(words, want, sizeof(words));
		}
	}
}

/* The range is bytes 3 to 29: the words that it has no more than a part of are written by bytes. */
static void ends_of_a_range(void **state)
{
	uint8_t bytes[26], want[sizeof(words)];

	(void)state;
	memset(words, 0xee, sizeof(words));
	memset(want, 0xee, sizeof(want));
	for (uint32_t i = 0; i < sizeof(bytes); i++)
		want[3 + i] = bytes[i] = (uint8_t)i;
	words_store(address(3), bytes, sizeof(bytes), address(3), address(29));
	assert_memory_equal(words, want, sizeof(words));
}

static volatile bool over;

/* Three and five bytes of a word change at once, back and forth. */
static void *flip(void *arg)
{
	static const uint8_t three[2][3] = { { 0xff, 0xff, 0x00 }, { 0x00, 0x00, 0x01 } };
	static const uint8_t five[2][5] = { { 0xff, 0xff, 0xff, 0xff, 0x00 }, { 0x00, 0x00, 0x00, 0x00, 0x01 } };

	for (uint32_t i = 0; i < TURNS; i++) {
		store(1, three[i & 1], 3);
		store(8 + 2, five[i & 1], 5);
	}
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	return arg;
}

/* Its neighbour in the same word, which is somebody else's. */
static void *count(void *arg)
{
	uint64_t *turns = arg;
	uint8_t value = 0;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		value++;
		store(7, &value, 1);
		if ((uint8_t)(__atomic_load_n(&words[0], __ATOMIC_RELAXED) >> 56) != value)
			return NULL;
		++*turns;
	}
	return arg;
}

static void nobody_sees_a_half(void **state)
{
	uint64_t turns = 0, halves = 0;
	pthread_t one, two;
	void *stayed;

	(void)state;
	memset(words, 0, sizeof(words));
	store(1, "\xff\xff", 3);
	store(8 + 2, "\xff\xff\xff\xff", 5);
	assert_int_equal(pthread_create(&one, NULL, flip, NULL), 0);
	assert_int_equal(pthread_create(&two, NULL, count, &turns), 0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		uint64_t a = __atomic_load_n(&words[0], __ATOMIC_RELAXED) >> 8 & 0xffffff;
		uint64_t b = __atomic_load_n(&words[1], __ATOMIC_RELAXED) >> 16 & 0xffffffffff;

		halves += (a != 0x00ffff && a != 0x010000) || (b != 0x00ffffffff && b != 0x0100000000);
	}
	pthread_join(one, NULL);
	pthread_join(two, &stayed);
	assert_int_equal(halves, 0);
	assert_ptr_equal(stayed, &turns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_and_size),
		cmocka_unit_test(ends_of_a_range),
		cmocka_unit_test(nobody_sees_a_half),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
