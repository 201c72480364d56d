/* SPDX-License-Identifier: Apache-2.0 */
/* Copies by several threads: every byte, no other, also when many copy at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libgleamcuda/crew.h"
#include "libgleamcuda/log.h"

#define MOST (3u << 20)
#define EDGE 64u

void gleam_log(const char *format, ...)
{
	(void)format;
}

static uint32_t random_next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* NULL: right; else what was wrong. */
static void *copies_run(void *arg)
{
	uint32_t seed = *(const uint32_t *)arg;
	uint8_t *from = malloc(MOST), *to = malloc(MOST + 2 * EDGE);
	const char *wrong = from && to ? NULL : "no memory";

	for (size_t i = 0; !wrong && i < MOST; i++)
		from[i] = (uint8_t)random_next(&seed);
	for (int round = 0; !wrong && round < 60; round++) {
		/* Around the border below which nobody helps, and any. */
		size_t size = round % 3 ? random_next(&seed) % MOST : (256u << 10) + random_next(&seed) % 3 - 1;
		size_t at = random_next(&seed) % (MOST - size + 1);

		memset(to, round, size + 2 * EDGE);
		crew_copy(to + EDGE, from + at, size);
		if (memcmp(to + EDGE, from + at, size) != 0)
			wrong = "bytes are wrong";
		for (size_t i = 0; i < EDGE; i++)
			if (to[i] != (uint8_t)round || to[EDGE + size + i] != (uint8_t)round)
				wrong = "bytes beside it were written";
	}
	free(from);
	free(to);
	return (void *)wrong;
}

static void test_each_byte_is_copied(void **state)
{
	uint32_t seed = 1;

	(void)state;
	assert_null(copies_run(&seed));
}

static void test_many_copy_at_once(void **state)
{
	pthread_t threads[4];
	uint32_t seeds[4] = { 2, 3, 4, 5 };

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, copies_run, &seeds[i]), 0);
	for (int i = 0; i < 4; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_null(wrong);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_byte_is_copied),
		cmocka_unit_test(test_many_copy_at_once),
	};

	setenv("GLEAM_COPIERS", "3", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
