// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: green contexts and the numbers of what they are made of, in a move. The other worker has the same under the same numbers, also
 * what was asked of a context that is gone; and a GPU that is split in another way is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker_broker.h"

#define GREEN 5u

/* Two groups and what remains: how many multiprocessors each has. The numbers follow the newest one. */
static void split(struct client *c, uint32_t from, uint32_t counts_out[3])
{
	struct ans_gleamResourceSplit a;
	struct seen *seen;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamResourceSplit, &seen, .from = from, .least = 8, .want = 2), 0);
	r = reader_on(seen->payload, seen->size);
	get_u32(&r);
	CHECK(ans_gleamResourceSplit_get(&r, &a));
	CHECK_EQUAL(a.entries_size, 3 * sizeof(struct resource_entry));
	for (unsigned i = 0; i < 3; i++)
		counts_out[i] = word_of((const uint8_t *)a.entries + i * sizeof(struct resource_entry), 0) >> 32;
}

static void green(struct client *c, uint32_t index, uint32_t part)
{
	CHECK_EQUAL(CALL(c, gleamGreenOpen, NULL, .index = index, .device = 0, .parts = &part, .parts_count = 1), 0);
}

static void whole(struct client *a, struct client *b)
{
	ask_well(a, MOVE_COPY);
	play(a, b);
	ask_well(a, MOVE_LAST);
	play(a, b);
	CHECK_EQUAL(strlen(move_end(a, b)), 0);
}

static void moves(struct client *a)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	uint64_t p = map_memory(a, 4096), own = stream(a, 1, 1), s;
	uint32_t all = resource(a, CTX_NONE).number, of_context = resource(a, CTX).number, counts[3], again[3];

	CHECK_EQUAL(of_context, all + 1);
	split(a, all, counts);
	CHECK_EQUAL(CALL(a, gleamResourceSplit, NULL, .from = all, .least = 8, .want = 0), 0);
	green(a, GREEN, all + 2);
	/* One that is gone, and was asked; and one that wasn't. */
	green(a, GREEN + 1, all + 3);
	CHECK_EQUAL(resource(a, GREEN + 1).number, all + 5);
	a->ctx = GREEN + 1;
	stream(a, 7, 1);
	a->ctx = CTX;
	ask_well(a, MOVE_COPY);
	play(a, &b);
	SEND(a, gleamContextClose, .index = GREEN + 1);
	green(a, GREEN + 1, all + 4);
	SEND(a, gleamContextClose, .index = GREEN + 1);
	green(a, GREEN + 1, all + 2);
	CHECK_EQUAL(resource(a, GREEN).number, all + 6);
	a->ctx = GREEN;
	s = stream(a, 2, 1);
	SEND(a, cuMemsetD32Async, .hStream = s, .dstDevice = p, .ui = 5, .N = 4);
	a->ctx = CTX;
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = GREEN), 0);
	ask_well(a, MOVE_LAST);
	play(a, &b);
	CHECK_EQUAL(strlen(move_end(a, &b)), 0);

	/* Their streams work, and all numbers are what they were. */
	b.ctx = GREEN;
	SEND(&b, cuMemsetD32Async, .hStream = s, .dstDevice = p + 16, .ui = 6, .N = 4);
	b.ctx = CTX;
	CHECK_EQUAL(CALL(&b, gleamContextSync, NULL, .index = GREEN), 0);
	CHECK_EQUAL(read_u32(&b, own, p), 5);
	CHECK_EQUAL(read_u32(&b, own, p + 16), 6);
	SEND(&b, gleamContextClose, .index = GREEN + 1);
	green(&b, GREEN + 1, all + 5);
	CHECK_EQUAL(resource(&b, GREEN + 1).number, all + 7);
	split(&b, of_context, again);
	CHECK(memcmp(counts, again, sizeof(counts)) == 0);
	green(&b, GREEN + 2, all + 8);
	/* And on. */
	{
		struct client c;
		pid_t third = worker_begin(&c);

		whole(&b, &c);
		CHECK_EQUAL(resource(&c, GREEN + 2).number, all + 11);
		green(&c, GREEN + 3, all + 7);
		session_end(&c);
		CHECK_EQUAL(process_end(&c, third), EXIT_DONE);
	}
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

/* What the old worker says of the first resource; "": all is well. */
static const char *said_of_it(struct client *a, const struct resource_entry *entry, uint32_t first, uint32_t size)
{
	static char got[256];
	struct client b;
	pid_t worker = worker_begin(&b);
	const char *why;

	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	drop(a);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	BROKER(&b, gleamMoveResource, CTX_NONE, 0, .first = first, .entries = entry, .entries_size = size);
	if (size != sizeof(*entry)) {
		CHECK_EQUAL(process_end(&b, worker), EXIT_PROTOCOL);
		return NULL;
	}
	why = move_end(NULL, &b);
	snprintf(got, sizeof(got), "%s", why);
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
	return got;
}

static void others(struct client *a)
{
	struct resource_entry entry = resource(a, CTX_NONE);

	CHECK_EQUAL(strlen(said_of_it(a, &entry, entry.number, sizeof(entry))), 0);
	entry.count++;
	CHECK(strstr(said_of_it(a, &entry, entry.number, sizeof(entry)), "split in another way"));
	entry.count--;
	CHECK(strstr(said_of_it(a, &entry, entry.number + 1, sizeof(entry)), "split in another way"));
	CHECK(strstr(said_of_it(a, &entry, UINT32_MAX, sizeof(entry)), "split in another way"));
	CHECK(!said_of_it(a, &entry, 0, 0));
	CHECK(!said_of_it(a, &entry, 0, sizeof(entry) - 1));
	resource(a, CTX_NONE);
	CHECK(strstr(said_of_it(a, &entry, entry.number, sizeof(entry)), "into more parts"));
}

static void test_they_move(void **state)
{
	(void)state;
	assert_true(session_run(moves, 0));
}

static void test_another_split_is_refused(void **state)
{
	(void)state;
	assert_true(session_run(others, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_they_move),
		cmocka_unit_test(test_another_split_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
