/* SPDX-License-Identifier: Apache-2.0 */
/* By which chunks pieces came: what is found of them, what takes another's place, and what is forgotten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/node/origin.h"

#define PIECE (1u << 20)

static void add(struct origins *origins, uint64_t position, uint32_t size, uint32_t at, uint64_t mark)
{
	const struct origin origin = { .position = position, .size = size, .at = at, .total = 4 * PIECE, .mark = mark };

	origins_add(origins, &origin);
}

static void parts_are_found(void **state)
{
	struct origins *origins = origins_new();
	struct origin got;

	(void)state;
	assert_false(origins_find(origins, 0, 1, &got));
	/* Lanes are not in order. */
	add(origins, 2 * PIECE, PIECE, 0, 12);
	add(origins, 0, 100000, PIECE, 10);
	assert_true(origins_find(origins, 0, 100000, &got));
	assert_int_equal(got.mark, 10);
	assert_int_equal(got.at, PIECE);
	assert_true(origins_find(origins, 2 * PIECE + 77, 1000, &got));
	assert_int_equal(got.mark, 12);
	assert_int_equal(got.at, 77);
	assert_int_equal(got.size, 1000);
	assert_int_equal(got.total, 4 * PIECE);
	/* Over its end, behind it, between both. */
	assert_false(origins_find(origins, 0, 100001, &got));
	assert_false(origins_find(origins, 99999, 2, &got));
	assert_false(origins_find(origins, 100000, 1, &got));
	assert_false(origins_find(origins, 3 * PIECE, 1, &got));
	assert_false(origins_find(origins, UINT64_MAX, 1, &got));
	/* Sent again after a lost link. */
	add(origins, 2 * PIECE, PIECE, 5, 13);
	assert_true(origins_find(origins, 2 * PIECE, 1, &got));
	assert_int_equal(got.mark, 13);
	origins_free(origins);
}

static void what_came_by_a_move_is_apart(void **state)
{
	struct origins *origins = origins_new();
	struct origin got;

	(void)state;
	add(origins, MOVE_UP_START, PIECE, 0, 1);
	add(origins, 0, PIECE, 0, 2);
	assert_true(origins_find(origins, MOVE_UP_START + 1, 1, &got));
	assert_int_equal(got.mark, 1);
	assert_true(origins_find(origins, 1, 1, &got));
	assert_int_equal(got.mark, 2);
	origins_free(origins);
}

static void the_oldest_are_forgotten(void **state)
{
	struct origins *origins = origins_new();
	const uint64_t count = 150000;
	struct origin got;

	(void)state;
	for (uint64_t i = 0; i < count; i++)
		add(origins, i * PIECE, PIECE, 0, i + 1);
	assert_false(origins_find(origins, 0, 1, &got));
	for (uint64_t i = count - 30000; i < count; i++) {
		assert_true(origins_find(origins, i * PIECE + 5, 10, &got));
		assert_int_equal(got.mark, i + 1);
		assert_int_equal(got.at, 5);
	}
	origins_free(origins);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_are_found),
		cmocka_unit_test(what_came_by_a_move_is_apart),
		cmocka_unit_test(the_oldest_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
