/* SPDX-License-Identifier: Apache-2.0 */
/* gleamd's store of verdicts: what is left is found by the same user, server and driver alone, within its bounds; parts that are none are refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/local/verdicts.h"

#define ROOM (1u << 20)

static const struct verdict_scope own = { .uid = 1000, .server = "lab", .driver = "libcuda.so.1 580.65" };
static struct verdicts *verdicts;

static struct verdict_key key_of(uint64_t number)
{
	return (struct verdict_key){ .hash = { number, number * 7 }, .size = 100 };
}

static void keep_for(const struct verdict_scope *scope, uint64_t number, size_t size)
{
	struct verdict_key key = key_of(number);
	uint8_t *bytes = malloc(size);

	memset(bytes, (int)(number % 251), size);
	verdicts_keep(verdicts, scope, &key, bytes, size);
}

static const uint8_t *find_for(const struct verdict_scope *scope, uint64_t number, size_t *size_out)
{
	struct verdict_key key = key_of(number);

	*size_out = 0;
	return verdicts_find(verdicts, scope, &key, size_out);
}

/* Its first byte, -1: nothing is known. */
static int find(uint64_t number)
{
	size_t size;
	const uint8_t *bytes = find_for(&own, number, &size);

	return bytes ? bytes[0] : -1;
}

static void more(uint64_t number, const void *record, size_t size)
{
	struct verdict_key key = key_of(number);

	verdicts_more(verdicts, &own, &key, record, size);
}

static struct verdicts_stats stats(void)
{
	struct verdicts_stats now;

	verdicts_stats(verdicts, &now);
	return now;
}

static int set_up(void **state)
{
	verdicts = verdicts_new(ROOM);
	return !verdicts;
}

static int take_down(void **state)
{
	verdicts_free(verdicts);
	verdicts = NULL;
	return 0;
}

static void test_what_was_left_is_found(void **state)
{
	size_t size;

	assert_int_equal(find(1), -1);
	keep_for(&own, 1, 77);
	keep_for(&own, 2, 78);
	assert_int_equal(find(1), 1);
	assert_int_equal(find(2), 2);
	assert_non_null(find_for(&own, 2, &size));
	assert_int_equal(size, 78);
	assert_int_equal(stats().entries, 2);
	assert_int_equal(stats().hits, 3);
	assert_int_equal(stats().misses, 1);
	assert_in_range(stats().bytes, 77 + 78, 77 + 78 + 1000);
	/* One bit of the key, wherever. */
	for (size_t bit = 0; bit < 8 * sizeof(struct verdict_key); bit++) {
		struct verdict_key key = key_of(1);

		((uint8_t *)&key)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_null(verdicts_find(verdicts, &own, &key, &size));
	}
}

static void test_others_find_nothing(void **state)
{
	struct verdict_scope user = own, server = own, driver = own;
	size_t size;

	user.uid = 0;
	server.server = "lab2";
	driver.driver = "libcuda.so.1 580.66";
	keep_for(&own, 1, 64);
	assert_null(find_for(&user, 1, &size));
	assert_null(find_for(&server, 1, &size));
	assert_null(find_for(&driver, 1, &size));
	/* And each has its own under one key. */
	keep_for(&user, 1, 65);
	keep_for(&server, 1, 66);
	keep_for(&driver, 1, 67);
	assert_non_null(find_for(&own, 1, &size));
	assert_int_equal(size, 64);
	assert_non_null(find_for(&user, 1, &size));
	assert_int_equal(size, 65);
	assert_non_null(find_for(&server, 1, &size));
	assert_int_equal(size, 66);
	assert_non_null(find_for(&driver, 1, &size));
	assert_int_equal(size, 67);
}

/* Two programs that were told the same; one that was told something else. */
static void test_what_is_left_twice(void **state)
{
	struct verdict_key key = key_of(1);
	size_t size, with_record;
	uint8_t *other;

	keep_for(&own, 1, 64);
	more(1, "record", 6);
	find_for(&own, 1, &with_record);
	keep_for(&own, 1, 64);
	assert_int_equal(stats().entries, 1);
	assert_non_null(find_for(&own, 1, &size));
	assert_int_equal(size, with_record);

	other = calloc(1, 64);
	other[63] = 9;
	verdicts_keep(verdicts, &own, &key, other, 64);
	assert_int_equal(find(1), 0);
	find_for(&own, 1, &size);
	assert_int_equal(size, 64);
	assert_int_equal(stats().entries, 1);
	assert_int_equal(stats().evictions, 0);
}

static void test_records_come_behind_it_once(void **state)
{
	const uint8_t *bytes;
	uint64_t before;
	uint32_t head[2];
	size_t size;

	more(1, "of nothing", 10);
	assert_int_equal(find(1), -1);
	keep_for(&own, 1, 61);
	before = stats().bytes;
	more(1, "the first", 9);
	more(1, "another one", 11);
	more(1, "the first", 9);
	more(1, "another one", 11);
	/* One may begin as another does. */
	more(1, "the firs", 8);
	bytes = find_for(&own, 1, &size);
	assert_int_equal(size, 64 + 8 + 16 + 8 + 16 + 8 + 8);
	assert_int_equal(stats().bytes, before + size - 61);
	memcpy(head, bytes + 64, sizeof(head));
	assert_int_equal(head[0], 9);
	assert_int_equal(head[1], 0);
	assert_memory_equal(bytes + 72, "the first\0\0\0\0\0\0\0", 16);
	memcpy(head, bytes + 88, sizeof(head));
	assert_int_equal(head[0], 11);
	assert_memory_equal(bytes + 96, "another one", 11);
	assert_memory_equal(bytes + 120, "the firs", 8);
}

static void test_records_end_at_the_limit(void **state)
{
	static uint8_t record[60000];
	size_t size = 0, before = 1;
	uint32_t number = 0;

	take_down(state);
	verdicts = verdicts_new(64u << 20);
	keep_for(&own, 1, 100);
	for (; size != before; number++) {
		before = size;
		memcpy(record, &number, sizeof(number));
		more(1, record, sizeof(record));
		find_for(&own, 1, &size);
	}
	assert_in_range(size, VERDICT_KEPT_MAX - 2 * sizeof(record), VERDICT_KEPT_MAX);
	/* A smaller one still has room. */
	more(1, "small", 5);
	find_for(&own, 1, &before);
	assert_int_equal(before, size + 16);
}

static void test_the_oldest_by_use_go(void **state)
{
	uint64_t had;

	for (uint64_t i = 1; i <= 8; i++)
		keep_for(&own, i, ROOM / 20);
	assert_int_equal(stats().evictions, 0);
	assert_int_equal(find(1), 1);
	keep_for(&own, 2, ROOM / 20);
	for (uint64_t i = 9; i <= 14; i++)
		keep_for(&own, i, ROOM / 20);
	/* Half of the room is for one user: nine. */
	assert_int_equal(stats().entries, 9);
	assert_int_equal(stats().evictions, 5);
	assert_true(stats().bytes <= ROOM / 2);
	assert_int_equal(find(1), 1);
	assert_int_equal(find(2), 2);
	for (uint64_t i = 3; i <= 7; i++)
		assert_int_equal(find(i), -1);
	for (uint64_t i = 8; i <= 14; i++)
		assert_int_equal(find(i), (int)i);
	/* What is larger than a user's part isn't kept, and nothing goes for it. */
	had = stats().evictions;
	keep_for(&own, 99, ROOM / 2);
	assert_int_equal(find(99), -1);
	assert_int_equal(stats().evictions, had);
}

/* A record takes room, but not that of its own verdict, though that be the oldest. */
static void test_a_record_does_not_push_out_its_own(void **state)
{
	static uint8_t record[60000];

	for (uint64_t i = 1; i <= 9; i++)
		keep_for(&own, i, ROOM / 20);
	more(1, record, sizeof(record));
	assert_int_equal(find(1), 1);
	assert_int_equal(find(2), -1);
	assert_int_equal(find(3), 3);
	assert_true(stats().bytes <= ROOM / 2);
}

static void test_a_user_has_half(void **state)
{
	struct verdict_scope user = own, third = own;
	size_t size;

	user.uid = 1001;
	third.uid = 1002;
	for (uint64_t i = 0; i < 9; i++)
		keep_for(&own, i, ROOM / 20);
	for (uint64_t i = 0; i < 100; i++)
		keep_for(&user, i, ROOM / 20);
	assert_int_equal(stats().entries, 18);
	for (uint64_t i = 0; i < 9; i++)
		assert_int_equal(find(i), (int)i);
	assert_non_null(find_for(&user, 99, &size));
	assert_non_null(find_for(&user, 91, &size));
	assert_null(find_for(&user, 90, &size));
	/* A third one has room, too: the oldest of all go. */
	for (uint64_t i = 0; i < 9; i++)
		keep_for(&third, i, ROOM / 20);
	for (uint64_t i = 0; i < 9; i++)
		assert_non_null(find_for(&third, i, &size));
	assert_true(stats().bytes <= ROOM);
}

static void test_entries_are_counted(void **state)
{
	struct verdict_scope user = own;

	take_down(state);
	verdicts = verdicts_new(1ull << 30);
	user.uid = 7;
	for (uint64_t i = 1; i <= VERDICTS_ENTRIES_MAX / 2 + 100; i++)
		keep_for(&own, i, 1);
	assert_int_equal(stats().entries, VERDICTS_ENTRIES_MAX / 2);
	assert_int_equal(find(100), -1);
	assert_int_not_equal(find(101), -1);
	for (uint64_t i = 1; i <= VERDICTS_ENTRIES_MAX / 2 + 100; i++)
		keep_for(&user, i, 1);
	assert_int_equal(stats().entries, VERDICTS_ENTRIES_MAX);
	assert_int_not_equal(find(101), -1);
	/* All the room that there is was given back in the end. */
	verdicts_free(verdicts);
	verdicts = verdicts_new(ROOM);
	assert_int_equal(stats().bytes, 0);
}

static void test_without_room_nothing_is_kept(void **state)
{
	take_down(state);
	verdicts = verdicts_new(0);
	keep_for(&own, 1, 1);
	more(1, "record", 6);
	assert_int_equal(find(1), -1);
	assert_int_equal(stats().entries, 0);
	assert_int_equal(stats().bytes, 0);
	assert_int_equal(stats().misses, 1);
}

/* ---- parts ---- */

static struct verdict_parts parts;
static uint8_t *whole;

static int part(uint64_t number, uint32_t total, uint32_t at, const void *bytes, uint32_t size)
{
	struct verdict_key key = key_of(number);

	whole = NULL;
	return verdict_part(&parts, &key, total, at, bytes, size, &whole);
}

static void test_parts_make_a_whole(void **state)
{
	assert_int_equal(part(1, 10, 0, "0123", 4), 0);
	assert_int_equal(part(1, 10, 4, "4567", 4), 0);
	assert_int_equal(part(1, 10, 8, "89", 2), 1);
	assert_memory_equal(whole, "0123456789", 10);
	free(whole);
	/* At once, and the end of one is no beginning of the next. */
	assert_int_equal(part(1, 3, 0, "abc", 3), 1);
	assert_memory_equal(whole, "abc", 3);
	free(whole);
	assert_int_equal(part(1, 3, 3, "abc", 3), -EPROTO);
	/* Another one begins: what there was of the first is dropped. */
	assert_int_equal(part(1, 10, 0, "0123", 4), 0);
	assert_int_equal(part(2, 4, 0, "x", 1), 0);
	assert_int_equal(part(2, 4, 1, "yzw", 3), 1);
	assert_memory_equal(whole, "xyzw", 4);
	free(whole);
	verdict_parts_drop(&parts);
}

static void test_parts_that_are_none(void **state)
{
	static uint8_t large[64];

	/* Nothing has begun. */
	assert_int_equal(part(1, 10, 4, "4567", 4), -EPROTO);
	assert_int_equal(part(1, 0, 0, "", 0), -EPROTO);
	assert_int_equal(part(1, 0, 4, "", 0), -EPROTO);
	/* Too large, and the largest. */
	assert_int_equal(part(1, VERDICT_KEPT_MAX + 1, 0, large, sizeof(large)), -EPROTO);
	assert_int_equal(part(1, UINT32_MAX, 0, large, sizeof(large)), -EPROTO);
	assert_int_equal(part(1, VERDICT_KEPT_MAX, 0, large, sizeof(large)), 0);
	verdict_parts_drop(&parts);
	/* More than all, at the beginning and later; an offset that would wrap. */
	assert_int_equal(part(1, 3, 0, "0123", 4), -EPROTO);
	assert_int_equal(part(1, 8, 0, "0123", 4), 0);
	assert_int_equal(part(1, 8, 4, "45678", 5), -EPROTO);
	assert_int_equal(part(1, 8, UINT32_MAX - 1, "0123", 4), -EPROTO);
	/* Twice, with a gap, none, of another, of another size: each leaves what there is. */
	assert_int_equal(part(1, 8, 3, "3", 1), -EPROTO);
	assert_int_equal(part(1, 8, 5, "5", 1), -EPROTO);
	assert_int_equal(part(1, 8, 4, "", 0), -EPROTO);
	assert_int_equal(part(2, 8, 4, "4567", 4), -EPROTO);
	assert_int_equal(part(1, 9, 4, "4567", 4), -EPROTO);
	assert_int_equal(part(1, 8, 4, "4567", 4), 1);
	assert_memory_equal(whole, "01234567", 8);
	free(whole);
	/* A beginning without bytes is none. */
	assert_int_equal(part(1, 8, 0, "", 0), -EPROTO);
	verdict_parts_drop(&parts);
	verdict_parts_drop(&parts);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_was_left_is_found),
		TEST(test_others_find_nothing),
		TEST(test_what_is_left_twice),
		TEST(test_records_come_behind_it_once),
		TEST(test_records_end_at_the_limit),
		TEST(test_the_oldest_by_use_go),
		TEST(test_a_record_does_not_push_out_its_own),
		TEST(test_a_user_has_half),
		TEST(test_entries_are_counted),
		TEST(test_without_room_nothing_is_kept),
		TEST(test_parts_make_a_whole),
		TEST(test_parts_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
