/* SPDX-License-Identifier: Apache-2.0 */
/* Patches: what was put in comes out, a full one says so, and nonsense of somebody else's is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/lib/patch.h"

#define SIZE (200u << 10)

/* Into @to, which is at @base; how many bytes it was. */
static uint64_t apply(uint8_t *to, uint64_t base, const struct patch *patch)
{
	uint64_t address = patch->address, bytes = 0;
	uint32_t offset = 0, size;
	const uint8_t *run;
	int got;

	while ((got = patch_next(patch->bytes, patch->size, &offset, &address, &run, &size)) > 0) {
		assert_in_range(address, base, base + SIZE - size);
		memcpy(to + (address - base), run, size);
		address += size;
		bytes += size;
	}
	assert_int_equal(got, 0);
	return bytes;
}

/* Runs of all lengths with gaps of all lengths, in as many patches as it takes. */
static void test_runs_come_out(void **state)
{
	static uint8_t from[SIZE], to[SIZE], was[SIZE], room[4096];
	const uint64_t base = 0x7f0000000003;
	struct patch patch;
	unsigned patches = 1;
	uint64_t bytes = 0, wanted = 0;

	srand(7);
	for (uint32_t i = 0; i < SIZE; i++)
		from[i] = (uint8_t)rand();
	patch_begin(&patch, room, sizeof(room));
	for (uint32_t at = 0; at < SIZE;) {
		uint32_t size = (uint32_t)rand() % (rand() % 4 ? 9 : 9000) + 1;

		if (size > SIZE - at)
			size = SIZE - at;
		memcpy(was + at, from + at, size);
		wanted += size;
		for (uint32_t done = 0; done < size;) {
			uint32_t some = patch_run(&patch, base + at + done, from + at + done, size - done);

			if (!some) {
				bytes += apply(to, base, &patch);
				patch_begin(&patch, room, sizeof(room));
				patches++;
			}
			done += some;
		}
		at += size + (uint32_t)rand() % (rand() % 50 ? 9 : 70000);
	}
	bytes += apply(to, base, &patch);
	assert_int_equal(bytes, wanted);
	assert_memory_equal(to, was, SIZE);
	assert_in_range(patches, 2, SIZE / 1000);
}

/* A byte in four: five bytes of patch each. */
static void test_scattered_bytes_share_a_patch(void **state)
{
	uint8_t room[5000];
	struct patch patch;

	patch_begin(&patch, room, sizeof(room));
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(patch_run(&patch, 4096 + 4 * i, (const uint8_t *)"x", 1), 1);
	assert_int_equal(patch_run(&patch, 4096 + 4000, (const uint8_t *)"x", 1), 0);
	assert_int_equal(patch.size, 5000);
	assert_int_equal(patch.address, 4096);
}

static void test_wide_gaps_begin_another(void **state)
{
	uint8_t room[64];
	struct patch patch;

	patch_begin(&patch, room, sizeof(room));
	assert_int_equal(patch_run(&patch, 10, (const uint8_t *)"abc", 3), 3);
	assert_int_equal(patch_run(&patch, 13 + PATCH_RUN, (const uint8_t *)"d", 1), 1);
	assert_int_equal(patch_run(&patch, 14 + PATCH_RUN + PATCH_RUN + 1, (const uint8_t *)"e", 1), 0);
	/* With a byte's own way behind a run. */
	assert_true(patch_byte(&patch, 14 + PATCH_RUN, 'e'));
	assert_int_equal(patch.size, 2 * PATCH_RECORD + 5);
}

static void test_nonsense(void **state)
{
	const uint8_t cut[] = { 0, 0, 5 }, longer[] = { 0, 0, 5, 0, 1, 2, 3, 4 }, empty[] = { 0, 0, 0, 0 };
	uint64_t address = 0;
	uint32_t offset = 0, size;
	const uint8_t *run;

	assert_int_equal(patch_next(cut, sizeof(cut), &offset, &address, &run, &size), -1);
	offset = 0;
	assert_int_equal(patch_next(longer, sizeof(longer), &offset, &address, &run, &size), -1);
	offset = 0;
	assert_int_equal(patch_next(empty, sizeof(empty), &offset, &address, &run, &size), 1);
	assert_int_equal(size, 0);
	assert_int_equal(patch_next(empty, sizeof(empty), &offset, &address, &run, &size), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs_come_out),
		cmocka_unit_test(test_scattered_bytes_share_a_patch),
		cmocka_unit_test(test_wide_gaps_begin_another),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
