// SPDX-License-Identifier: Apache-2.0
/*
 * Frames of a worker straight into the memory that it shares with a client of its machine: into slots, words and the notice
 * ring; in order also when the client does not read its notices for a while; and a client that breaks the rules loses only its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "broker/worker/direct.h"
#include "gen/ops.h"
#include "tests/lib/fdcheck.h"

#define PAYLOAD 1000u

static struct worker w;
static struct ring library; /* its end of n2c */

static int begin(void **state)
{
	static const uint8_t hash[32];

	memset(&w, 0, sizeof(w));
	assert_int_equal(shm_make(&w.shm, hash, 1), 0);
	w.header = shm_header(&w.shm);
	w.direct_frame = malloc(FRAME_SIZE_MAX);
	shm_ring_n2c(&w.shm, &w.n2c);
	shm_ring_n2c(&w.shm, &library);
	return 0;
}

static int end(void **state)
{
	free(w.direct_frame);
	free(w.overflow);
	shm_close(&w.shm);
	return 0;
}

static void notice(enum notice op, uint64_t seq, const void *payload, uint32_t size)
{
	struct frame_hdr hdr = { .size = (uint32_t)sizeof(hdr) + size, .op = (uint16_t)op, .kind = FRAME_NOTICE, .seq = seq };

	direct_post_locked(&w, &hdr, NULL, payload, size);
}

static void reply(uint16_t slot, uint64_t seq, const void *payload, uint32_t size)
{
	struct frame_hdr hdr = { .size = (uint32_t)sizeof(hdr) + size, .op = 1, .kind = FRAME_REPLY, .slot = slot, .seq = seq };

	direct_post_locked(&w, &hdr, NULL, payload, size);
}

static void test_replies_and_words(void **state)
{
	struct reply_slot *slot = shm_slot(&w.shm, 5);
	uint64_t tail = 65536;
	uint32_t words[3] = { 7, 42, 0 };

	slot->seq = 9;
	slot->state = SLOT_SENT;
	reply(5, 8, "late", 4); /* of an older call: nobody waits */
	assert_int_equal(slot->state, SLOT_SENT);
	reply(5, 9, "data", 4);
	assert_int_equal(slot->state, SLOT_DONE);
	assert_int_equal(slot->size, sizeof(struct frame_hdr) + 4);
	assert_memory_equal(slot->data + sizeof(struct frame_hdr), "data", 4);
	notice(NOTICE_PROGRESS, 0, words, 8);
	assert_int_equal(*shm_progress(&w.shm, 7), 42);
	notice(NOTICE_CONSUMED, 0, &tail, sizeof(tail));
	assert_int_equal(w.header->up_tail, 65536);
	words[0] = 3;
	words[1] = 700;
	words[2] = 77;
	notice(NOTICE_ERROR, 12, words, sizeof(words));
	assert_int_equal(shm_error(&w.shm, 3)->code, 700);
	assert_int_equal(shm_error(&w.shm, 3)->seq, 12);
	/* None of them was for the ring. */
	assert_int_equal(w.header->n2c.head, 0);
}

/* Reads @count notices, numbered from @from on. */
static void read_notices(uint64_t from, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		struct frame_hdr hdr;
		const uint8_t *frame;

		assert_int_equal(ring_peek(&library, &hdr, &frame), 1);
		assert_int_equal(hdr.op, NOTICE_PRINT);
		assert_int_equal(hdr.seq, from + i);
		ring_next(&library, &hdr);
		ring_release(&library);
	}
}

/* What waits for room keeps its place: a word behind it isn't seen before it is there. */
static void test_notices_that_wait_for_room(void **state)
{
	uint8_t payload[PAYLOAD] = { 0 };
	uint32_t words[2] = { 1, 5 };
	uint64_t shown = 0, total = 3000; /* three times what the ring holds */

	for (uint64_t i = 0; i < total; i++) {
		notice(NOTICE_PRINT, i, payload, sizeof(payload));
		shown += !direct_waits(&w);
	}
	assert_in_range(shown, 500, 1500);
	notice(NOTICE_PROGRESS, 0, words, sizeof(words));
	assert_int_equal(*shm_progress(&w.shm, 1), 0);
	for (uint64_t at = 0; at < total;) {
		uint64_t part = total - at < 400 ? total - at : 400;

		read_notices(at, part);
		at += part;
		direct_flush_locked(&w);
		/* Once all that came before it is in the ring. */
		assert_int_equal(*shm_progress(&w.shm, 1), direct_waits(&w) ? 0 : 5);
	}
	assert_int_equal(*shm_progress(&w.shm, 1), 5);
	assert_false(direct_waits(&w));
	notice(NOTICE_PRINT, total, payload, sizeof(payload));
	read_notices(total, 1);
	assert_int_equal(w.direct_failed, 0);
}

/* A notice is there at once; who sleeps is woken when the words behind it are there, too, and once. */
static void test_the_sleeper_is_woken_behind(void **state)
{
	uint32_t words[2] = { 1, 5 }, bell = w.header->n2c.bell;

	assert_true(ring_sleep_begin(&library));
	notice(NOTICE_PRINT, 0, words, sizeof(words));
	assert_int_equal(w.header->n2c.head, library.at + sizeof(struct frame_hdr) + sizeof(words));
	notice(NOTICE_PROGRESS, 0, words, 8);
	assert_int_equal(w.header->n2c.bell, bell);
	direct_ring_locked(&w);
	assert_int_equal(w.header->n2c.bell, bell + 1);
	direct_ring_locked(&w);
	read_notices(0, 1);
	/* Nobody sleeps: nobody is woken. */
	notice(NOTICE_PRINT, 1, words, sizeof(words));
	direct_ring_locked(&w);
	assert_int_equal(w.header->n2c.bell, bell + 1);
}

/* Landings that somebody takes who gets his answer behind them; others wake the sleeper, and so does all else. */
static void test_landings_before_an_answer(void **state)
{
	static const struct {
		enum notice first, second;
		uint16_t op; /* of an answer behind them; 0: none */
		bool wakes;
	} cases[] = {
		{ NOTICE_LANDED, NOTICE_LANDED, OP_gleamStreamSync, false },
		{ NOTICE_LANDED, NOTICE_LANDED, OP_gleamContextSync, false },
		{ NOTICE_LANDED, NOTICE_LANDED, OP_gleamMemInfo, true },
		{ NOTICE_LANDED, NOTICE_LANDED, 0, true },
		{ NOTICE_PRINT, NOTICE_LANDED, OP_gleamStreamSync, true },
		{ NOTICE_LANDED, NOTICE_HOST_CALL, OP_gleamStreamSync, true },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct frame_hdr answer = { .size = sizeof(answer) + 4, .op = cases[i].op, .kind = FRAME_REPLY, .slot = 5, .seq = 9 };
		uint32_t payload[2] = { 0 }, bell = w.header->n2c.bell;
		struct frame_hdr hdr;
		const uint8_t *frame;

		assert_true(ring_sleep_begin(&library));
		notice(cases[i].first, 1, payload, sizeof(payload));
		notice(cases[i].second, 2, payload, sizeof(payload));
		shm_slot(&w.shm, 5)->seq = 9;
		shm_slot(&w.shm, 5)->state = SLOT_SENT;
		if (answer.op)
			direct_post_locked(&w, &answer, NULL, payload, 4);
		direct_ring_locked(&w);
		assert_int_equal(w.header->n2c.bell, bell + cases[i].wakes);
		/* Who isn't woken is still known to sleep. */
		assert_int_equal(w.header->n2c.sleeping, !cases[i].wakes);
		for (unsigned n = 0; n < 2; n++) {
			assert_int_equal(ring_peek(&library, &hdr, &frame), 1);
			ring_next(&library, &hdr);
		}
		ring_release(&library);
		ring_sleep_end(&library);
	}
}

static void test_a_client_that_never_reads(void **state)
{
	uint8_t payload[60000] = { 0 };

	for (unsigned i = 0; i < 280 + 20; i++)
		notice(NOTICE_PRINT, i, payload, sizeof(payload));
	assert_int_equal(w.direct_failed, 1);
	assert_false(direct_waits(&w));
	assert_null(w.overflow);
	notice(NOTICE_PRINT, 0, payload, sizeof(payload));
	assert_null(w.overflow);
}

static void test_a_client_that_writes_nonsense(void **state)
{
	uint8_t payload[60000] = { 0 };

	w.header->n2c.tail = 1ull << 60;
	for (unsigned i = 0; i < 20; i++)
		notice(NOTICE_PRINT, i, payload, sizeof(payload));
	assert_int_equal(w.direct_failed, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_replies_and_words, begin, end),
		cmocka_unit_test_setup_teardown(test_notices_that_wait_for_room, begin, end),
		cmocka_unit_test_setup_teardown(test_the_sleeper_is_woken_behind, begin, end),
		cmocka_unit_test_setup_teardown(test_landings_before_an_answer, begin, end),
		cmocka_unit_test_setup_teardown(test_a_client_that_never_reads, begin, end),
		cmocka_unit_test_setup_teardown(test_a_client_that_writes_nonsense, begin, end),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
