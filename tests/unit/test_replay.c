// SPDX-License-Identifier: Apache-2.0
/*
 * What a session has done since its checkpoint, and how it is done again: in the same order, once, with each command behind what was heard before
 * it; what is heard otherwise the second time ends it, and what is new is kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/hash.h"
#include "broker/lib/ring.h"
#include "broker/local/replay.h"
#include "gen/ops.h"

static struct shm client, scratch;
static struct record *record;
static uint64_t seq;

/* ---- instead of the wire and the lanes ---- */

static uint64_t sent[64];
static unsigned sent_count, room;
static uint8_t piece[64];
static uint32_t piece_size;

bool wire_put(struct wire *wire, const uint8_t *frame, uint32_t size)
{
	struct frame_hdr hdr;

	(void)wire;
	memcpy(&hdr, frame, sizeof(hdr));
	assert_int_equal(hdr.size, size);
	if (!room)
		return false;
	room--;
	sent[sent_count++] = hdr.seq;
	return true;
}

void link_bulk(struct link *link, struct mirror *mirror, struct bulk_item *item)
{
	(void)link;
	piece_size = item->size;
	memcpy(piece, shm_up(&mirror->shm) + item->offset, item->size < sizeof(piece) ? item->size : sizeof(piece));
	free(item);
}

/* ---- frames ---- */

static uint8_t bytes[FRAME_SIZE_MAX] __attribute__((aligned(8)));

static struct frame_hdr *frame(uint8_t kind, uint16_t op, uint64_t number, uint8_t flags, const void *payload, uint32_t size)
{
	struct frame_hdr *hdr = (struct frame_hdr *)(void *)bytes;

	*hdr = (struct frame_hdr){ .size = (uint32_t)sizeof(*hdr) + size, .kind = kind, .op = op, .seq = number, .flags = flags };
	memcpy(bytes + sizeof(*hdr), payload, size);
	return hdr;
}

static void command(uint16_t op, uint8_t flags)
{
	uint64_t payload = 7;

	record_command(record, frame(FRAME_COMMAND, op, ++seq, flags, &payload, sizeof(payload)), bytes, &client);
}

static void answer(uint16_t op, uint64_t number, uint32_t value)
{
	uint32_t payload[2] = { 0, value };

	record_answer(record, frame(FRAME_REPLY, op, number, 0, payload, sizeof(payload)), bytes, &client);
}

static void notice(uint16_t op, uint32_t a, uint32_t b)
{
	uint32_t payload[2] = { a, b };

	record_answer(record, frame(FRAME_NOTICE, op, 0, 0, payload, sizeof(payload)), bytes, &client);
}

static void hears(struct replay *p, uint8_t kind, uint16_t op, uint64_t number, uint32_t a, uint32_t b)
{
	uint32_t payload[2] = { a, b };

	assert_true(replay_frame(p, bytes, frame(kind, op, number, 0, payload, sizeof(payload))->size));
}

/* ---- */

static int begin(void **state)
{
	(void)state;
	seq = 10;
	record = record_new(10, 1000);
	sent_count = 0;
	room = 1000;
	return record ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	record_free(record);
	return 0;
}

static enum replay_result step(struct replay *p)
{
	struct wire wire = { .at = 0 };
	const char *why = NULL;
	enum replay_result result = replay_step(p, &wire, &why);

	assert_int_equal(result == REPLAY_FAILED, why != NULL);
	return result;
}

static struct replay *replay(void)
{
	static struct mirror mirror;

	mirror = (struct mirror){ .shm = scratch };
	return replay_new(record, &mirror);
}

static unsigned given;
static uint64_t given_seq[16];

static void give(void *arg, const uint8_t *got, uint32_t size, const uint8_t *cells)
{
	struct frame_hdr hdr;

	(void)arg;
	(void)size;
	(void)cells;
	memcpy(&hdr, got, sizeof(hdr));
	given_seq[given++] = hdr.seq;
}

static void test_in_the_same_order(void **state)
{
	struct replay *p;

	(void)state;
	command(OP_gleamLaunch, 0);
	command(OP_gleamCopyDown, FRAME_WANTS_REPLY);
	answer(OP_gleamCopyDown, 12, 77);
	command(OP_gleamLaunch, 0);
	notice(NOTICE_PROGRESS, 5, 13);
	command(OP_gleamLaunch, 0);
	command(OP_gleamCopyDown, FRAME_WANTS_REPLY);
	p = replay();
	/* Up to what was waited for. */
	assert_int_equal(step(p), REPLAY_GOES);
	assert_int_equal(sent_count, 2);
	assert_int_equal(step(p), REPLAY_WAITS);
	hears(p, FRAME_REPLY, OP_gleamCopyDown, 12, 0, 77);
	assert_int_equal(step(p), REPLAY_GOES);
	assert_int_equal(sent_count, 3);
	hears(p, FRAME_NOTICE, NOTICE_PROGRESS, 0, 5, 12);
	assert_int_equal(step(p), REPLAY_WAITS);
	/* More than was heard is as well. */
	hears(p, FRAME_NOTICE, NOTICE_PROGRESS, 0, 5, 14);
	assert_int_equal(step(p), REPLAY_GOES);
	assert_int_equal(sent_count, 5);
	/* The last answer is on its way, and then it is the program's. */
	assert_int_equal(step(p), REPLAY_WAITS);
	hears(p, FRAME_REPLY, OP_gleamCopyDown, 15, 0, 3);
	assert_int_equal(step(p), REPLAY_DONE);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(sent[i], 11 + i);
	given = 0;
	replay_rest(p, give, NULL);
	assert_int_equal(given, 2);
	assert_int_equal(given_seq[0], 15);
	replay_free(p);
}

static void test_something_else_is_refused(void **state)
{
	struct replay *p;

	(void)state;
	command(OP_gleamCopyDown, FRAME_WANTS_REPLY);
	answer(OP_gleamCopyDown, 11, 77);
	command(OP_gleamMemInfo, FRAME_WANTS_REPLY);
	answer(OP_gleamMemInfo, 12, 1000);
	p = replay();
	step(p);
	hears(p, FRAME_REPLY, OP_gleamCopyDown, 11, 0, 78);
	assert_int_equal(step(p), REPLAY_FAILED);
	replay_free(p);
	/* What others leave free is nobody's word. */
	p = replay();
	step(p);
	hears(p, FRAME_REPLY, OP_gleamCopyDown, 11, 0, 77);
	step(p);
	hears(p, FRAME_REPLY, OP_gleamMemInfo, 12, 0, 999);
	assert_int_equal(step(p), REPLAY_DONE);
	replay_free(p);
	/* Nor may a command fail that had not. */
	p = replay();
	step(p);
	hears(p, FRAME_NOTICE, NOTICE_ERROR, 11, 0, 1);
	assert_int_equal(step(p), REPLAY_FAILED);
	replay_free(p);
}

/* The bytes of cells count, and those of pieces go. */
static void test_bytes(void **state)
{
	struct bulk_ref ref = { .offset = SESSION_GRANULE, .size = 13, .cookie = SESSION_GRANULE }, cells = { .offset = 4096, .size = 5 };
	struct replay *p;

	(void)state;
	memcpy(shm_up(&client) + ref.offset, "thirteen byte", 13);
	record_command(record, frame(FRAME_COMMAND, OP_gleamCopyUpBulk, ++seq, FRAME_BULK_UP, &ref, sizeof(ref)), bytes, &client);
	/* Again behind a lost link: once. */
	record_command(record, frame(FRAME_COMMAND, OP_gleamCopyUpBulk, seq, FRAME_BULK_UP, &ref, sizeof(ref)), bytes, &client);
	memset(shm_up(&client) + ref.offset, 0, 13);
	notice(NOTICE_CONSUMED, 2 * SESSION_GRANULE, 0);
	memcpy(shm_down(&client) + cells.offset, "whole", 5);
	record_command(record, frame(FRAME_COMMAND, OP_gleamCopyDownLate, ++seq, FRAME_BULK_DOWN, &cells, sizeof(cells)), bytes, &client);
	record_answer(record, frame(FRAME_NOTICE, NOTICE_LANDED, seq, FRAME_BULK_DOWN, &cells, sizeof(cells)), bytes, &client);
	p = replay();
	step(p);
	assert_int_equal(sent_count, 1);
	assert_int_equal(piece_size, 13);
	assert_memory_equal(piece, "thirteen byte", 13);
	hears(p, FRAME_NOTICE, NOTICE_CONSUMED, 0, 2 * SESSION_GRANULE, 0);
	step(p);
	assert_int_equal(sent_count, 2);
	memcpy(shm_down(&scratch) + cells.offset, "other", 5);
	assert_true(replay_frame(p, bytes, frame(FRAME_NOTICE, NOTICE_LANDED, seq, FRAME_BULK_DOWN, &cells, sizeof(cells))->size));
	assert_int_equal(step(p), REPLAY_FAILED);
	replay_free(p);
	p = replay();
	step(p);
	hears(p, FRAME_NOTICE, NOTICE_CONSUMED, 0, 3 * SESSION_GRANULE, 0);
	step(p);
	memcpy(shm_down(&scratch) + cells.offset, "whole", 5);
	assert_true(replay_frame(p, bytes, frame(FRAME_NOTICE, NOTICE_LANDED, seq, FRAME_BULK_DOWN, &cells, sizeof(cells))->size));
	assert_int_equal(step(p), REPLAY_DONE);
	/* Frames and cells that can't be. */
	assert_false(replay_frame(p, bytes, 3));
	frame(FRAME_NOTICE, NOTICE_LANDED, seq, FRAME_BULK_DOWN, &cells, 8);
	assert_false(replay_frame(p, bytes, (uint32_t)sizeof(struct frame_hdr) + 8));
	frame(FRAME_COMMAND, OP_gleamLaunch, seq, 0, &cells, 8);
	assert_false(replay_frame(p, bytes, (uint32_t)sizeof(struct frame_hdr) + 8));
	frame(FRAME_NOTICE, NOTICE_PROGRESS, 0, 0, &(uint32_t[2]){ SESSION_PROGRESS_WORDS, 1 }, 8);
	assert_false(replay_frame(p, bytes, (uint32_t)sizeof(struct frame_hdr) + 8));
	cells.offset = SESSION_DOWN_SIZE - 1;
	assert_false(replay_frame(p, bytes, frame(FRAME_NOTICE, NOTICE_LANDED, seq, FRAME_BULK_DOWN, &cells, sizeof(cells))->size));
	replay_free(p);
}

static void test_what_cant_be_done_again(void **state)
{
	static const struct {
		uint16_t op;
		const char *why;
	} notices[] = {
		{ NOTICE_HOST_BYTES, "kernels have written to page-locked memory of the program since" },
		{ NOTICE_PRINT, "kernels have printed since" },
		{ NOTICE_ERROR, "a command of it has failed since" },
		{ 99, "it has heard something since that can't be said again" },
	};

	for (unsigned i = 0; i < sizeof(notices) / sizeof(notices[0]); i++) {
		assert_null(record_trouble(record));
		command(OP_gleamLaunch, 0);
		notice(notices[i].op, 1, 2);
		assert_string_equal(record_trouble(record), notices[i].why);
		assert_int_equal(record_bytes(record), 0);
		/* For good. */
		command(OP_gleamLaunch, 0);
		assert_int_equal(record_bytes(record), 0);
		record_free(record);
		begin(state);
	}
	command(OP_gleamShareOpen, 0);
	assert_string_equal(record_trouble(record), "it has shared memory with other programs since");
}

static void host_call(uint64_t number, uint32_t id)
{
	uint64_t payload = id;

	record_answer(record, frame(FRAME_NOTICE, NOTICE_HOST_CALL, number, 0, &payload, sizeof(payload)), bytes, &client);
}

/* A function that has run isn't run again: its end comes from the record, behind its beginning. One that hadn't begun is the program's. */
static void test_host_functions(void **state)
{
	struct replay *p;

	(void)state;
	command(OP_gleamHostFunc, 0);
	command(OP_gleamLaunch, 0);
	host_call(11, 1);
	command(OP_gleamHostDone, 0);
	command(OP_gleamHostFunc, 0);
	command(OP_gleamCopyDown, FRAME_WANTS_REPLY);
	assert_null(record_trouble(record));
	p = replay();
	step(p);
	assert_int_equal(sent_count, 2);
	/* Not another one's. */
	hears(p, FRAME_NOTICE, NOTICE_HOST_CALL, 10, 1, 0);
	assert_int_equal(step(p), REPLAY_WAITS);
	hears(p, FRAME_NOTICE, NOTICE_HOST_CALL, 11, 1, 0);
	assert_int_equal(step(p), REPLAY_GOES);
	assert_int_equal(sent_count, 5);
	hears(p, FRAME_NOTICE, NOTICE_HOST_CALL, 14, 2, 0);
	hears(p, FRAME_REPLY, OP_gleamCopyDown, 15, 0, 3);
	assert_int_equal(step(p), REPLAY_DONE);
	given = 0;
	replay_rest(p, give, NULL);
	assert_int_equal(given, 3);
	assert_int_equal(given_seq[1], 14);
	replay_free(p);
}

/* A synchronise behind a function that the program has yet to run: both have to wait for each other until the program has its session. */
static void test_answers_behind_a_host_function(void **state)
{
	struct replay *p;

	(void)state;
	command(OP_gleamHostFunc, 0);
	command(OP_gleamStreamSync, FRAME_WANTS_REPLY);
	p = replay();
	assert_int_equal(step(p), REPLAY_GOES);
	/* It may come as long as no function is due. */
	usleep(700000);
	assert_int_equal(step(p), REPLAY_WAITS);
	hears(p, FRAME_NOTICE, NOTICE_HOST_CALL, 11, 1, 0);
	assert_int_equal(step(p), REPLAY_WAITS);
	usleep(700000);
	assert_int_equal(step(p), REPLAY_DONE);
	given = 0;
	replay_rest(p, give, NULL);
	assert_int_equal(given, 1);
	assert_int_equal(given_seq[0], 11);
	replay_free(p);
}

static void test_it_is_bounded(void **state)
{
	struct bulk_ref ref = { .offset = 0, .size = SESSION_CELL_SIZE };
	uint64_t most = 0;

	(void)state;
	for (unsigned i = 0; i < 2 * (RECORD_MAX / SESSION_CELL_SIZE) && !record_trouble(record); i++) {
		record_command(record, frame(FRAME_COMMAND, OP_gleamCopyUpBulk, ++seq, FRAME_BULK_UP, &ref, sizeof(ref)), bytes, &client);
		if (record_bytes(record))
			most = record_bytes(record);
	}
	assert_true(most > RECORD_MAX - 2 * SESSION_CELL_SIZE && most <= RECORD_MAX);
	assert_non_null(strstr(record_trouble(record), "more than is remembered"));
	assert_int_equal(record_bytes(record), 0);
	assert_true(record_ends_at(record, seq, 1000));
	record_position(record, 5000);
	record_position(record, 4000);
	assert_true(record_ends_at(record, seq, 5000));
}

/* Lanes hear while the control thread goes on. */
static void *lane(void *arg)
{
	struct replay *p = arg;

	for (uint64_t number = 11; number <= 42; number++) {
		struct {
			struct frame_hdr hdr;
			uint32_t payload[2];
		} reply = { .hdr = { .size = sizeof(reply), .kind = FRAME_REPLY, .op = OP_gleamCopyDown, .seq = number },
			    .payload = { 0, (uint32_t)number } };

		replay_frame(p, (const uint8_t *)&reply, sizeof(reply));
	}
	return NULL;
}

static void test_lanes_beside(void **state)
{
	enum replay_result result;
	struct replay *p;
	pthread_t thread;

	(void)state;
	for (uint32_t number = 11; number <= 42; number++) {
		command(OP_gleamCopyDown, FRAME_WANTS_REPLY);
		answer(OP_gleamCopyDown, number, number);
	}
	p = replay();
	assert_int_equal(pthread_create(&thread, NULL, lane, p), 0);
	while ((result = step(p)) == REPLAY_GOES || result == REPLAY_WAITS)
		;
	assert_int_equal(result, REPLAY_DONE);
	pthread_join(thread, NULL);
	replay_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_in_the_same_order, begin, end),
		cmocka_unit_test_setup_teardown(test_something_else_is_refused, begin, end),
		cmocka_unit_test_setup_teardown(test_bytes, begin, end),
		cmocka_unit_test_setup_teardown(test_what_cant_be_done_again, begin, end),
		cmocka_unit_test_setup_teardown(test_answers_behind_a_host_function, begin, end),
		cmocka_unit_test_setup_teardown(test_host_functions, begin, end),
		cmocka_unit_test_setup_teardown(test_it_is_bounded, begin, end),
		cmocka_unit_test_setup_teardown(test_lanes_beside, begin, end),
	};
	int failed;

	if (shm_make(&client, protocol_hash, 1) || shm_make(&scratch, protocol_hash, 1))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	shm_close(&client);
	shm_close(&scratch);
	return failed;
}
