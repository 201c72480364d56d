// SPDX-License-Identifier: Apache-2.0
/* Words that point into ranges: beside a look at every word, and at the ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/lib/pointers.h"

static uint32_t random_state = 1;

static uint32_t draw(uint32_t below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

struct heard {
	uint64_t sum;
	unsigned count;
};

static void hear(void *arg, uint64_t at, uint64_t value)
{
	struct heard *heard = arg;

	heard->sum = (heard->sum ^ at ^ value * 31) * 0x100000001b3ull;
	heard->count++;
}

/* As pointers_look() must find it. */
static void look_slowly(const struct pointer_range *ranges, unsigned count, const uint8_t *bytes, size_t size, uint64_t address,
			struct heard *heard)
{
	for (size_t at = -address & 7; at + 8 <= size; at += 8) {
		bool in = false;
		uint64_t value;

		memcpy(&value, bytes + at, 8);
		for (unsigned i = 0; i < count; i++)
			in |= value >= ranges[i].from && value <= ranges[i].end;
		if (in)
			hear(heard, address + at, value);
	}
}

static void test_all_are_found(void **state)
{
	static uint8_t bytes[8192];

	(void)state;
	for (int turn = 0; turn < 3000; turn++) {
		struct pointer_range ranges[40];
		unsigned count = 1 + draw(40), highs = 1 + draw(7);
		size_t size = draw(sizeof(bytes) - 8), from = draw(8);
		uint64_t address = 0x10000 + draw(64);
		struct heard fast = { 0 }, slow = { 0 };
		struct pointers p = { .count = 0 };

		memset(bytes, turn & 1 ? 0 : 0x5a, sizeof(bytes));
		for (unsigned i = 0; i < count; i++) {
			uint64_t at = (0x7f00ull + i % highs) << 32 | (0xfffff000u + i / highs * 256);

			ranges[i] = (struct pointer_range){ at, at + draw(200), i };
			assert_true(pointers_add(&p, ranges[i].from, ranges[i].end, i));
		}
		pointers_seal(&p);
		/* Into ranges, beside them, and with their upper halves alone. */
		for (unsigned i = draw(40); i; i--) {
			uint64_t value = ranges[draw(count)].from + draw(400) - 100;

			memcpy(bytes + draw(sizeof(bytes) - 8), &value, 8);
		}
		pointers_look(&p, bytes + from, size, address, hear, &fast);
		look_slowly(ranges, count, bytes + from, size, address, &slow);
		assert_int_equal(fast.count, slow.count);
		assert_int_equal(fast.sum, slow.sum);
		pointers_free(&p);
	}
}

static void test_ends(void **state)
{
	struct pointers p = { .count = 0 };
	struct heard heard = { 0 };
	uint64_t word = 0x7f0000001008;

	(void)state;
	assert_null(pointers_find(&p, 5));
	pointers_look(&p, &word, 8, 0, hear, &heard);
	assert_int_equal(heard.count, 0);
	/* Behind the first is the second; one has two names; one is a place alone. */
	assert_true(pointers_add(&p, 0x7f0000001008, 0x7f0000001010, 2));
	assert_true(pointers_add(&p, 0x7f0000001000, 0x7f0000001008, 1));
	assert_true(pointers_add(&p, 0x7f0000002000, 0x7f0000002004, 4));
	assert_true(pointers_add(&p, 0x7f0000002000, 0x7f0000002004, 3));
	assert_true(pointers_add(&p, 0x7e0000000000, 0x7e0000000000, 5));
	pointers_seal(&p);
	assert_int_equal(pointers_find(&p, 0x7f0000001007)->id, 1);
	assert_int_equal(pointers_find(&p, 0x7f0000001008)->id, 2);
	assert_int_equal(pointers_find(&p, 0x7f0000001010)->id, 2);
	assert_null(pointers_find(&p, 0x7f0000001011));
	assert_int_equal(pointers_find(&p, 0x7f0000002004)->id, 3);
	assert_int_equal(pointers_find(&p, 0x7f0000002004)[1].id, 4);
	assert_int_equal(pointers_find(&p, 0x7e0000000000)->id, 5);
	assert_null(pointers_find(&p, 0x7e0000000001));
	assert_null(pointers_find(&p, 0x7dffffffffff));
	assert_null(pointers_find(&p, UINT64_MAX));
	/* Fewer bytes than a word, and than what leads to the first. */
	for (size_t size = 0; size < 8; size++)
		pointers_look(&p, &word, size, 0, hear, &heard);
	pointers_look(&p, &word, 3, 3, hear, &heard);
	assert_int_equal(heard.count, 0);
	pointers_look(&p, &word, 8, 0, hear, &heard);
	assert_int_equal(heard.count, 1);
	pointers_free(&p);
}

static void test_anywhere(void **state)
{
	struct pointers p = { .count = 0 };
	struct heard heard = { 0 };
	uint8_t bytes[32] = { 0 };
	uint64_t word = 0x7f0000001000;

	(void)state;
	assert_true(pointers_add(&p, word, word + 8, 1));
	pointers_seal(&p);
	memcpy(bytes + 12, &word, 8);
	pointers_look(&p, bytes, sizeof(bytes), 0, hear, &heard);
	assert_int_equal(heard.count, 0);
	pointers_look_anywhere(&p, bytes, sizeof(bytes), 4, hear, &heard);
	assert_int_equal(heard.count, 1);
	pointers_look_anywhere(&p, bytes, 19, 4, hear, &heard);
	assert_int_equal(heard.count, 1);
	pointers_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_are_found),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
