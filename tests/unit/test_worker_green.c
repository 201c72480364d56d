// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: green contexts. Resources by number, contexts of them with streams of their own over the primary context's memory, and
 * what breaks the protocol.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "tests/unit/worker_session.h"

#define GREEN 5u

/* Splits @from into at most @want groups of @least; entries in @out, the last one what remains. */
static uint32_t split(struct client *c, uint32_t from, uint32_t want, uint32_t least, struct resource_entry *out)
{
	struct ans_gleamResourceSplit a;
	struct seen *seen;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamResourceSplit, &seen, .from = from, .least = least, .want = want), 0);
	r = reader_on(seen->payload, seen->size);
	get_u32(&r);
	CHECK(ans_gleamResourceSplit_get(&r, &a));
	CHECK_EQUAL(a.entries_size, want ? (a.count + 1) * sizeof(*out) : 0);
	if (want)
		memcpy(out, a.entries, a.entries_size);
	return a.count;
}

static void parts_work_beside_each_other(struct client *c)
{
	uint64_t p = map_memory(c, 4096), own = stream(c, 1, 1), s;
	struct resource_entry all = resource(c, CTX_NONE), parts[4];

	CHECK(all.count > 16 && all.least && all.unit);
	CHECK_EQUAL(split(c, all.number, 0, all.least, NULL), all.count / all.least);
	CHECK_EQUAL(split(c, all.number, 2, all.least, parts), 2);
	CHECK_EQUAL(parts[0].count, all.least);
	CHECK_EQUAL(parts[2].count, all.count - 2 * all.least);
	CHECK_EQUAL(CALL(c, gleamGreenOpen, NULL, .index = GREEN, .device = 0, .parts = (uint32_t[]){ parts[0].number, parts[1].number },
			 .parts_count = 2), 0);
	CHECK_EQUAL(resource(c, GREEN).count, 2 * all.least);
	c->ctx = GREEN;
	s = stream(c, 2, 1);
	SEND(c, cuMemsetD32Async, .hStream = s, .dstDevice = p, .ui = 5, .N = 4);
	SEND(c, cuMemsetD32Async, .hStream = WIRE_STREAM_LEGACY, .dstDevice = p + 64, .ui = 6, .N = 4);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = GREEN), 0);
	c->ctx = CTX;
	CHECK_EQUAL(read_u32(c, own, p), 5);
	CHECK_EQUAL(read_u32(c, own, p + 64), 6);
	SEND(c, gleamContextClose, .index = GREEN);
	/* What it shared goes on; its index can be used again. */
	CHECK_EQUAL(read_u32(c, own, p), 5);
	CHECK_EQUAL(CALL(c, gleamGreenOpen, NULL, .index = GREEN, .device = 0, .parts = (uint32_t[]){ parts[0].number }, .parts_count = 1), 0);
}

static void wrong_numbers_are_the_programs(struct client *c)
{
	struct resource_entry all = resource(c, CTX_NONE);

	CHECK_EQUAL(CALL(c, gleamResourceSplit, NULL, .from = 77, .least = 8, .want = 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamResourceSplit, NULL, .from = all.number, .least = all.count + 1, .want = 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	CHECK_EQUAL(CALL(c, gleamResource, NULL, .index = 9, .device = 0), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(CALL(c, gleamResource, NULL, .index = CTX_NONE, .device = 9), CUDA_ERROR_INVALID_DEVICE);
	CHECK_EQUAL(CALL(c, gleamGreenOpen, NULL, .index = GREEN, .device = 0, .parts = (uint32_t[]){ 77 }, .parts_count = 1),
		    CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamGreenOpen, NULL, .index = GREEN, .device = 0), CUDA_ERROR_INVALID_VALUE);
}

static void an_index_twice(struct client *c)
{
	struct resource_entry all = resource(c, CTX_NONE);

	SEND_FLAGS(c, gleamGreenOpen, FRAME_WANTS_REPLY, NULL, .index = CTX, .device = 0, .parts = (uint32_t[]){ all.number }, .parts_count = 1);
}

static void more_groups_than_an_answer_holds(struct client *c)
{
	struct resource_entry all = resource(c, CTX_NONE);

	SEND_FLAGS(c, gleamResourceSplit, FRAME_WANTS_REPLY, NULL, .from = all.number, .least = 8, .want = RESOURCE_GROUPS + 1);
}

static void test_green_contexts(void **state)
{
	assert_true(soft_run(parts_work_beside_each_other, 0));
	assert_true(soft_run(wrong_numbers_are_the_programs, 0));
}

static void test_broken_ones(void **state)
{
	assert_true(soft_run(an_index_twice, EXIT_PROTOCOL));
	assert_true(soft_run(more_groups_than_an_answer_holds, EXIT_PROTOCOL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_green_contexts),
		cmocka_unit_test(test_broken_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
