// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: what it does when device memory is short, and when another program lacks it. The test is the node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/lib/clock.h"
#include "broker/worker/shortage.h"
#include "tests/unit/worker_session.h"

#define MIB (1ull << 20)

static uint32_t grant(struct client *c, CUresult result, const uint64_t **names_out, uint64_t mib)
{
	struct ans_gleamGrant a;
	struct seen *seen;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamGrant, &seen, .device = 0, .bytes = mib * MIB), result);
	if (result)
		return 0;
	r = reader_on(seen->payload, seen->size);
	get_u32(&r);
	CHECK(ans_gleamGrant_get(&r, &a));
	*names_out = a.pieces;
	return a.pieces_count;
}

/* The node has the answer at once. The quickest of some tries, since the machine may be busy. */
static void nobody_has_any(struct client *c)
{
	uint64_t least = UINT64_MAX;

	open_context(c);
	c->fake.memory(8 * MIB);
	for (uint32_t i = 1; i <= 5; i++) {
		uint64_t began = clock_ns();

		c->worker.header->short_others = 0;
		__atomic_store_n(&c->worker.header->short_told, i, __ATOMIC_RELEASE);
		grant(c, CUDA_ERROR_OUT_OF_MEMORY, NULL, 64);
		CHECK_EQUAL(c->worker.header->short_asked, i);
		if (clock_ns() - began < least)
			least = clock_ns() - began;
	}
	CHECK_EQUAL(c->worker.header->short_bytes, 64 * MIB);
	CHECK_EQUAL(c->worker.header->short_gpu, 0);
	CHECK(least < SHORTAGE_WAIT_NS / 2);
}

/* Without an answer, or with one that promises too much, it is refused all the same, and later. */
static void others_do_not_give(struct client *c)
{
	uint64_t began = clock_ns();

	open_context(c);
	c->fake.memory(8 * MIB);
	c->worker.header->short_others = 3;
	c->worker.header->short_told = 1;
	grant(c, CUDA_ERROR_OUT_OF_MEMORY, NULL, 64);
	CHECK(clock_ns() - began >= SHORTAGE_WAIT_NS);
}

static void *give(void *arg)
{
	struct client *c = arg;

	while (!__atomic_load_n(&c->worker.header->short_asked, __ATOMIC_ACQUIRE))
		pause_ms(1);
	pause_ms(20);
	c->fake.memory(512 * MIB);
	return NULL;
}

static void others_give(struct client *c)
{
	const uint64_t *names;
	pthread_t node;

	open_context(c);
	c->fake.memory(8 * MIB);
	c->worker.header->short_others = 3;
	c->worker.header->short_told = 1;
	CHECK_EQUAL(pthread_create(&node, NULL, give, c), 0);
	CHECK_EQUAL(grant(c, CUDA_SUCCESS, &names, 64), 2);
	pthread_join(node, NULL);
}

/* Others' commands don't stand behind a request that waits. */
static void waiting_holds_nobody_up(struct client *c)
{
	uint64_t asked, p;

	open_context(c);
	p = map_memory(c, 4096);
	c->fake.memory(0);
	c->worker.header->short_others = 1;
	c->worker.header->short_told = 1;
	asked = SEND_FLAGS(c, gleamGrant, FRAME_WANTS_REPLY, NULL, .device = 0, .bytes = 64 * MIB);
	CHECK_EQUAL(read_u32(c, WIRE_STREAM_LEGACY, p), 0);
	CHECK(!have_reply(c, asked));
	CHECK_EQUAL(wait_reply(c, asked, NULL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Its client is asked, with what was asked for, once each time; what it doesn't use is counted. */
static void another_program_lacks_it(struct client *c)
{
	struct session_header *hdr = c->worker.header;
	const uint64_t *names;
	struct seen *seen;
	struct reader r;
	uint64_t idle, kept;
	uint32_t count;

	open_context(c);
	idle = hdr->idle_bytes;
	count = grant(c, CUDA_SUCCESS, &names, 64);
	CHECK_EQUAL(count, 2);
	CHECK_EQUAL(hdr->idle_bytes, idle + 64 * MIB);
	kept = names[0];
	CHECK_EQUAL(CALL(c, gleamMap, NULL, .address = DEVICE_AT(c) + (1ull << 30), .device = 0, .pieces = &kept, .pieces_count = 1), 0);
	CHECK_EQUAL(hdr->idle_bytes, idle + 32 * MIB);

	hdr->recall_gpu = 0;
	hdr->recall_bytes = 5 * MIB;
	__atomic_store_n(&hdr->recall_count, 1, __ATOMIC_RELEASE);
	ring_wake_futex(c->worker.c2n.ctl);
	seen = wait_notice(c, NOTICE_RECALL);
	r = reader_on(seen->payload, seen->size);
	CHECK_EQUAL(get_u32(&r), 0);
	CHECK_EQUAL(get_u64(&r), 5 * MIB);
	settle(c);
	CHECK(!have_notice(c, NOTICE_RECALL));

	kept = names[1];
	SEND(c, gleamGrantReturn, .device = 0, .pieces = &kept, .pieces_count = 1);
	CHECK_EQUAL(CALL(c, gleamFree, NULL, .address = DEVICE_AT(c) + (1ull << 30), .bytes = 32 * MIB), 0);
	wait_notice(c, NOTICE_FREED);
	CHECK_EQUAL(hdr->idle_bytes, idle + 32 * MIB);
}

static void small(struct client *c)
{
	c->worker.settings.grant_max = 32 * MIB;
}

/* A limit of the session's own isn't what others could help with. */
static void own_limits_ask_nobody(struct client *c)
{
	open_context(c);
	grant(c, CUDA_ERROR_OUT_OF_MEMORY, NULL, 64);
	CHECK_EQUAL(c->worker.header->short_asked, 0);
}

#define CASE(name, prepare)                                                                                            \
	static void test_##name(void **state)                                                                          \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, prepare));                                                                 \
	}

CASE(nobody_has_any, NULL)
CASE(others_do_not_give, NULL)
CASE(others_give, NULL)
CASE(waiting_holds_nobody_up, NULL)
CASE(another_program_lacks_it, NULL)
CASE(own_limits_ask_nobody, small)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nobody_has_any),	       cmocka_unit_test(test_others_do_not_give),
		cmocka_unit_test(test_others_give),	       cmocka_unit_test(test_waiting_holds_nobody_up),
		cmocka_unit_test(test_another_program_lacks_it), cmocka_unit_test(test_own_limits_ask_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
