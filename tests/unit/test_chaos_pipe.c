/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of gleam-chaos on a clock of the test's own, and its settings by name. */
#include "tests/fault/chaos_conf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MS 1000000u

static struct pipe *made(const struct pipe_conf *conf, uint64_t seed)
{
	struct pipe *pipe = malloc(sizeof(*pipe));

	assert_non_null(pipe);
	pipe_init(pipe, conf, seed);
	return pipe;
}

static struct pipe_conf with(const char *name, const char *value)
{
	struct pipe_conf conf[CHAOS_LANES];

	pipe_conf_default(&conf[0]);
	pipe_conf_default(&conf[1]);
	assert_int_equal(chaos_conf_set(conf, name, value), 0);
	return conf[CHAOS_UP];
}

/* Puts as much of @text as there is room for; how much that was. */
static size_t put(struct pipe *pipe, const char *text, uint64_t now_ns)
{
	size_t size = strlen(text), room;
	uint8_t *where;

	room = pipe_room(pipe, &where);
	if (size > room)
		size = room;
	if (size) {
		memcpy(where, text, size);
		pipe_put(pipe, size, now_ns);
	}
	return size;
}

/* Takes what is ready as a string. */
static const char *take(struct pipe *pipe, uint64_t now_ns)
{
	static char text[64];
	const uint8_t *data;
	size_t size = pipe_ready(pipe, now_ns, &data);

	assert_true(size < sizeof(text));
	if (size) {
		memcpy(text, data, size);
		pipe_took(pipe, size, now_ns);
	}
	text[size] = 0;
	return text;
}

static void plain_bytes_pass(void **state)
{
	struct pipe_conf conf;
	struct pipe *pipe;

	pipe_conf_default(&conf);
	pipe = made(&conf, 1);
	assert_int_equal(pipe_next_ns(pipe), PIPE_NEVER);
	assert_true(pipe_empty(pipe));
	put(pipe, "hello ", 1);
	put(pipe, "world", 2);
	assert_string_equal(take(pipe, 2), "hello world");
	assert_true(pipe_empty(pipe));
	assert_false(pipe_cut_now(pipe));
	free(pipe);
}

static void delay_is_of_each_portion(void **state)
{
	struct pipe_conf conf = with("delay", "5");
	struct pipe *pipe = made(&conf, 1);

	put(pipe, "one", 0);
	put(pipe, "two", 1 * MS);
	assert_int_equal(pipe_next_ns(pipe), 5 * MS);
	assert_string_equal(take(pipe, 5 * MS - 1), "");
	assert_string_equal(take(pipe, 5 * MS), "one");
	assert_int_equal(pipe_next_ns(pipe), 6 * MS);
	assert_string_equal(take(pipe, 6 * MS), "two");
	free(pipe);
}

static void pieces_have_a_size_and_a_gap(void **state)
{
	struct pipe_conf conf = with("piece", "1");
	struct pipe *pipe;

	conf.gap_ns = 2 * MS;
	pipe = made(&conf, 1);
	put(pipe, "abc", 0);
	assert_string_equal(take(pipe, 0), "a");
	assert_string_equal(take(pipe, 0), "");
	assert_int_equal(pipe_next_ns(pipe), 2 * MS);
	assert_string_equal(take(pipe, 2 * MS), "b");
	assert_string_equal(take(pipe, 4 * MS), "c");
	free(pipe);
}

static void rate_limits(void **state)
{
	struct pipe_conf conf = with("rate", "8000"); /* a byte a millisecond, in portions of 5 ms */
	struct pipe *pipe = made(&conf, 1);

	put(pipe, "0123456789abcdefghij", 0);
	assert_string_equal(take(pipe, 0), "012345");
	assert_int_equal(pipe_next_ns(pipe), 6 * MS);
	assert_string_equal(take(pipe, 5 * MS), "");
	assert_string_equal(take(pipe, 6 * MS), "6789ab");
	free(pipe);
}

static void cut_and_stall_are_exact(void **state)
{
	struct pipe_conf conf = with("cut-at", "4");
	struct pipe *pipe = made(&conf, 1);

	assert_int_equal(put(pipe, "123456", 0), 4);
	assert_int_equal(put(pipe, "56", 0), 0);
	assert_false(pipe_cut_now(pipe));
	assert_string_equal(take(pipe, 0), "1234");
	assert_true(pipe_cut_now(pipe));
	free(pipe);

	conf = with("stall-at", "3");
	pipe = made(&conf, 1);
	assert_int_equal(put(pipe, "123456", 0), 3);
	assert_string_equal(take(pipe, 0), "123");
	assert_int_equal(put(pipe, "456", 0), 0);
	assert_false(pipe_cut_now(pipe));
	pipe_forgive(pipe);
	assert_int_equal(put(pipe, "456", 0), 3);
	assert_string_equal(take(pipe, 0), "456");
	free(pipe);
}

static int bits_that_differ(const char *one, const char *other)
{
	int bits = 0;

	for (; *one || *other; one++, other++)
		bits += __builtin_popcount((unsigned char)(*one ^ *other));
	return bits;
}

static void flip_at_turns_one_bit_of_that_byte(void **state)
{
	struct pipe_conf conf = with("flip-at", "7");
	struct pipe *pipe = made(&conf, 3);
	char got[32] = "";

	put(pipe, "01234", 0);
	put(pipe, "56789", 0);
	strcpy(got, take(pipe, 0));
	assert_int_equal(strlen(got), 10);
	assert_int_equal(bits_that_differ(got, "0123456789"), 1);
	assert_true(got[7] != '7');
	assert_int_equal(pipe->flipped, 1);
	free(pipe);
}

static void positions_are_drawn_by_the_seed(void **state)
{
	struct pipe_conf conf = with("cut-at", "100:100000");
	uint64_t first = 0;
	int different = 0;

	for (uint64_t seed = 0; seed < 20; seed++) {
		struct pipe *one = made(&conf, seed), *same = made(&conf, seed);

		assert_int_equal(one->cut_at, same->cut_at);
		assert_in_range(one->cut_at, 100, 100000);
		different += one->cut_at != first;
		first = one->cut_at;
		free(one);
		free(same);
	}
	assert_true(different >= 18);
}

/* All of a long stream comes out as it went in, with wrap-around and odd portions. */
static void a_long_stream_is_whole(void **state)
{
	struct pipe_conf conf;
	struct pipe *pipe;
	uint64_t in = 0, out = 0, now = 0;
	struct random random = { 5 };

	pipe_conf_default(&conf);
	conf.delay_ns = 100;
	pipe = made(&conf, 1);
	while (out < 3u * PIPE_SIZE) {
		const uint8_t *data;
		uint8_t *where;
		size_t size = pipe_room(pipe, &where), wanted = 1 + random_next(&random) % 5000;

		if (size > wanted)
			size = wanted;
		for (size_t i = 0; i < size; i++)
			where[i] = (uint8_t)((in + i) * 7 >> 3);
		if (size)
			pipe_put(pipe, size, now);
		in += size;
		now += 40;
		size = pipe_ready(pipe, now, &data);
		wanted = 1 + random_next(&random) % 5000;
		if (size > wanted)
			size = wanted;
		for (size_t i = 0; i < size; i++)
			assert_int_equal(data[i], (uint8_t)((out + i) * 7 >> 3));
		pipe_took(pipe, size, now);
		out += size;
	}
	free(pipe);
}

static void settings(void **state)
{
	struct pipe_conf conf[CHAOS_LANES], before[CHAOS_LANES];

	pipe_conf_default(&conf[0]);
	pipe_conf_default(&conf[1]);
	assert_int_equal(chaos_conf_set(conf, "delay-down", "3"), 0);
	assert_int_equal(conf[CHAOS_UP].delay_ns, 0);
	assert_int_equal(conf[CHAOS_DOWN].delay_ns, 3 * MS);
	assert_int_equal(chaos_conf_set(conf, "cut-at-up", "5:9"), 0);
	assert_int_equal(conf[CHAOS_UP].cut_at[0], 5);
	assert_int_equal(conf[CHAOS_UP].cut_at[1], 9);
	assert_true(conf[CHAOS_DOWN].cut_at[0] == PIPE_NEVER);
	assert_int_equal(chaos_conf_set(conf, "cut-at", "off"), 0);
	assert_true(conf[CHAOS_UP].cut_at[0] == PIPE_NEVER);
	memcpy(before, conf, sizeof(conf));
	assert_int_equal(chaos_conf_set(conf, "cut-at", "9:5"), -EINVAL);
	assert_int_equal(chaos_conf_set(conf, "cut-at", ":5"), -EINVAL);
	assert_int_equal(chaos_conf_set(conf, "cut-at", "5:"), -EINVAL);
	assert_int_equal(chaos_conf_set(conf, "cut-at", "5:6:7"), -EINVAL);
	assert_int_equal(chaos_conf_set(conf, "flip", "2"), -ERANGE);
	assert_int_equal(chaos_conf_set(conf, "cut", "2"), -ENOENT);
	assert_int_equal(chaos_conf_set(conf, "delay-left", "2"), -ENOENT);
	assert_memory_equal(conf, before, sizeof(conf));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain_bytes_pass),
		cmocka_unit_test(delay_is_of_each_portion),
		cmocka_unit_test(pieces_have_a_size_and_a_gap),
		cmocka_unit_test(rate_limits),
		cmocka_unit_test(cut_and_stall_are_exact),
		cmocka_unit_test(flip_at_turns_one_bit_of_that_byte),
		cmocka_unit_test(positions_are_drawn_by_the_seed),
		cmocka_unit_test(a_long_stream_is_whole),
		cmocka_unit_test(settings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
