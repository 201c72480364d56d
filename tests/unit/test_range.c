// SPDX-License-Identifier: Apache-2.0
/*
 * The range map: look-ups at every edge, overlaps, second addresses, reservations, removal by context; against a plain
 * list with random operations; and with readers beside a writer.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libgleamcuda/range.h"

#define BASE 0x200000000000ull

/* Contexts are only compared. */
#define CONTEXT(number) ((struct context *)(uintptr_t)(0x1000 * (number)))

static uint64_t add(uint64_t start, uint64_t size, enum range_kind kind, struct context *context)
{
	struct range range = { .start = start, .size = size, .kind = kind, .context = context, .dev = start };

	assert_int_equal(range_add(&range), 0);
	assert_int_not_equal(range.buffer_id, 0);
	return range.buffer_id;
}

static void drop(uint64_t start)
{
	assert_int_equal(range_remove(start, false, NULL), 0);
}

static void edges(void **state)
{
	struct range range;

	add(BASE, 1000, RANGE_DEVICE, CONTEXT(1));
	assert_false(range_find(BASE - 1, &range));
	assert_true(range_find(BASE, &range));
	assert_true(range_find(BASE + 999, &range));
	assert_int_equal(range.start, BASE);
	assert_int_equal(range.size, 1000);
	assert_false(range_find(BASE + 1000, &range));
	assert_false(range_find(0, &range));
	assert_false(range_find(UINT64_MAX, &range));
	assert_int_equal(range_remove(BASE + 1, false, NULL), -ENOENT);
	assert_int_equal(range_remove(BASE, true, NULL), -ENOENT);
	assert_int_equal(range_remove(BASE, false, &range), 0);
	assert_int_equal(range.size, 1000);
	assert_false(range_find(BASE, &range));
	assert_int_equal(range_count(), 0);
}

static void bad_extents(void **state)
{
	struct range range = { .start = BASE };

	assert_int_equal(range_add(&range), -EINVAL);
	range = (struct range){ .start = UINT64_MAX - 3, .size = 5 };
	assert_int_equal(range_add(&range), -EINVAL);
	range = (struct range){ .size = 5 };
	assert_int_equal(range_add(&range), -EINVAL);
	/* The last bytes there are. */
	range = (struct range){ .start = UINT64_MAX - 3, .size = 4 };
	assert_int_equal(range_add(&range), 0);
	assert_true(range_find(UINT64_MAX, &range));
	assert_int_equal(range_remove_context(CONTEXT(9), NULL), 0);
	drop(UINT64_MAX - 3);
}

static void overlaps(void **state)
{
	struct range range = { .start = BASE + 50, .size = 10 };

	add(BASE, 100, RANGE_DEVICE, NULL);
	assert_int_equal(range_add(&range), -EEXIST);
	range = (struct range){ .start = BASE - 10, .size = 11 };
	assert_int_equal(range_add(&range), -EEXIST);
	range = (struct range){ .start = BASE - 10, .size = 1000 };
	assert_int_equal(range_add(&range), -EEXIST);
	range = (struct range){ .start = BASE + 99, .size = 1 };
	assert_int_equal(range_add(&range), -EEXIST);
	add(BASE - 10, 10, RANGE_DEVICE, NULL);
	add(BASE + 100, 1, RANGE_DEVICE, NULL);
	assert_true(range_overlaps(BASE + 99, 1));
	assert_true(range_overlaps(BASE - 100, 91));
	assert_false(range_overlaps(BASE - 100, 90));
	assert_false(range_overlaps(BASE + 101, UINT64_MAX));
	assert_false(range_overlaps(BASE, 0));
	drop(BASE);
	drop(BASE - 10);
	drop(BASE + 100);
}

static void buffer_ids_are_never_used_again(void **state)
{
	uint64_t first = add(BASE, 1, RANGE_DEVICE, NULL), second;

	drop(BASE);
	second = add(BASE, 1, RANGE_DEVICE, NULL);
	assert_true(second > first);
	drop(BASE);
}

static void second_address(void **state)
{
	struct range range = { .start = BASE, .size = 100, .kind = RANGE_HOST_REGISTERED, .host = BASE, .dev = 2 * BASE };
	struct range other = { .start = 2 * BASE + 99, .size = 1 };

	assert_int_equal(range_add(&range), 0);
	assert_true(range_find(2 * BASE + 7, &range));
	assert_int_equal(range.start, BASE);
	assert_int_equal(range_add(&other), -EEXIST);
	assert_true(range_overlaps(2 * BASE + 99, 1));
	other = (struct range){ .start = 3 * BASE, .size = 100, .dev = 2 * BASE + 50 };
	assert_int_equal(range_add(&other), -EEXIST);
	assert_int_equal(range_count(), 1);
	drop(BASE);
	assert_false(range_find(2 * BASE + 7, &range));
	assert_false(range_overlaps(2 * BASE, 100));
}

static void address_given_later(void **state)
{
	struct range range = { .start = BASE, .size = 100, .kind = RANGE_HOST_REGISTERED, .host = BASE };

	assert_int_equal(range_add(&range), 0);
	assert_int_equal(range_place(BASE + 1, 2 * BASE), -ENOENT);
	assert_int_equal(range_place(BASE, 2 * BASE), 0);
	assert_int_equal(range_place(BASE, 2 * BASE), 0);
	assert_int_equal(range_place(BASE, 3 * BASE), -EEXIST);
	assert_true(range_find(2 * BASE + 99, &range));
	assert_int_equal(range.dev, 2 * BASE);
	drop(BASE);
	assert_false(range_find(2 * BASE, &range));
}

static void reservations_hold_ranges(void **state)
{
	struct range range = { .start = BASE, .size = 1000, .kind = RANGE_RESERVED };

	assert_int_equal(range_add(&range), 0);
	assert_int_equal(range_add(&range), -EEXIST);
	add(BASE + 100, 100, RANGE_MAPPED, NULL);
	assert_true(range_find(BASE + 150, &range));
	assert_int_equal(range.kind, RANGE_MAPPED);
	assert_true(range_find(BASE + 250, &range));
	assert_int_equal(range.kind, RANGE_RESERVED);
	assert_true(range_find_reserved(BASE + 150, &range));
	assert_int_equal(range.size, 1000);
	assert_true(range_find_next(BASE, &range));
	assert_int_equal(range.start, BASE + 100);
	assert_true(range_find_next(BASE + 199, &range));
	assert_false(range_find_next(BASE + 200, &range));
	assert_false(range_overlaps(BASE, 100));
	drop(BASE + 100);
	assert_int_equal(range_remove(BASE, true, NULL), 0);
	assert_false(range_find(BASE, &range));
}

static void flags(void **state)
{
	struct range range;

	add(BASE, 10, RANGE_HOST_MADE, NULL);
	assert_int_equal(range_flags(BASE, 0, RANGE_SYNC_MEMOPS | RANGE_IPC), 0);
	assert_int_equal(range_flags(BASE, RANGE_IPC, RANGE_READ_ONLY), 0);
	assert_true(range_find(BASE, &range));
	assert_int_equal(range.flags, RANGE_SYNC_MEMOPS | RANGE_READ_ONLY);
	assert_int_equal(range_flags(BASE + 1, 0, 1), -ENOENT);
	drop(BASE);
	assert_int_equal(range_flags(BASE, 0, 1), -ENOENT);
}

static size_t ended;

static void count_ended(const struct range *range)
{
	assert_ptr_equal(range->context, CONTEXT(1));
	ended++;
	/* No lock is held. */
	assert_false(range_overlaps(range->start, range->size));
}

static void context_ends(void **state)
{
	struct range range;

	for (uint64_t i = 0; i < 1000; i++) {
		struct range r = { .start = BASE + i * 16, .size = 16, .context = CONTEXT(1 + i % 2), .dev = 2 * BASE + i * 16 };

		assert_int_equal(range_add(&r), 0);
	}
	assert_int_equal(range_remove_context(CONTEXT(1), count_ended), 500);
	assert_int_equal(ended, 500);
	assert_int_equal(range_count(), 500);
	assert_false(range_find(BASE, &range));
	assert_false(range_find(2 * BASE, &range));
	assert_true(range_find(BASE + 16, &range));
	assert_true(range_find(2 * BASE + 16, &range));
	assert_int_equal(range_remove_context(CONTEXT(2), NULL), 500);
	assert_int_equal(range_count(), 0);
}

/* ---- against a plain list ---- */

#define CELLS 512

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(uint64_t bound)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % bound;
}

static void like_a_plain_list(void **state)
{
	static uint32_t owner[CELLS]; /* start + 1 of the range that holds each byte */

	memset(owner, 0, sizeof(owner));
	for (int round = 0; round < 20000; round++) {
		uint32_t at = (uint32_t)random_next(CELLS);

		if (random_next(2)) {
			uint32_t size = 1 + (uint32_t)random_next(12);
			struct range range = { .start = BASE + at, .size = size, .dev = BASE + at };
			bool taken = at + size > CELLS;

			for (uint32_t i = at; i < at + size && i < CELLS; i++)
				taken |= owner[i] != 0;
			if (at + size > CELLS)
				continue;
			assert_int_equal(range_add(&range), taken ? -EEXIST : 0);
			for (uint32_t i = at; i < at + size && !taken; i++)
				owner[i] = at + 1;
		} else {
			bool begins = owner[at] == at + 1;

			assert_int_equal(range_remove(BASE + at, false, NULL), begins ? 0 : -ENOENT);
			for (uint32_t i = at; i < CELLS && begins && owner[i] == at + 1; i++)
				owner[i] = 0;
		}
		for (int probe = 0; probe < 4; probe++) {
			uint32_t where = (uint32_t)random_next(CELLS);
			struct range range;
			bool found = range_find(BASE + where, &range);

			assert_int_equal(found, owner[where] != 0);
			if (found)
				assert_int_equal(range.start, BASE + owner[where] - 1);
		}
	}
	for (uint32_t i = 0; i < CELLS; i++)
		if (owner[i] == i + 1)
			drop(BASE + i);
	assert_int_equal(range_count(), 0);
}

/* ---- threads ---- */

static uint32_t stop;

static void *read_always(void *arg)
{
	struct range range;
	uintptr_t wrong = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		/* Always there, beside what comes and goes. */
		if (!range_find(BASE + 5, &range) || range.start != BASE || range.size != 10)
			wrong++;
		if (range_find(BASE + 0x1005, &range) && range.start != BASE + 0x1000)
			wrong++;
	}
	return (void *)wrong;
}

static void readers_beside_a_writer(void **state)
{
	pthread_t threads[3];
	void *wrong;

	add(BASE, 10, RANGE_DEVICE, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_always, NULL), 0);
	for (int i = 0; i < 5000; i++) {
		add(BASE + 0x1000, 10, RANGE_DEVICE, NULL);
		add(BASE + 0x800, 10, RANGE_DEVICE, NULL);
		drop(BASE + 0x1000);
		drop(BASE + 0x800);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &wrong);
		assert_ptr_equal(wrong, NULL);
	}
	drop(BASE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(edges),
		cmocka_unit_test(bad_extents),
		cmocka_unit_test(overlaps),
		cmocka_unit_test(buffer_ids_are_never_used_again),
		cmocka_unit_test(second_address),
		cmocka_unit_test(address_given_later),
		cmocka_unit_test(reservations_hold_ranges),
		cmocka_unit_test(flags),
		cmocka_unit_test(context_ends),
		cmocka_unit_test(like_a_plain_list),
		cmocka_unit_test(readers_beside_a_writer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
