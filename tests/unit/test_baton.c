/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon leaves for the next one: whole at each moment at which it may die, and not believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/slot.h"
#include "broker/local/baton.h"
#include "tests/lib/fdcheck.h"

static const uint8_t hash[32];
static const uint8_t token[RESUME_TOKEN_SIZE] = "0123456789abcde";
static const struct baton_name name = { .server = "lab", .program = "/bin/app", .settings = "A=1\n", .token = token };
static struct shm shm;
static struct baton baton;
static struct journal_pieces pieces;
static struct journal_seen seen;
static const char *why;

static struct session_baton *record(void)
{
	return (struct session_baton *)(void *)(shm.base + SESSION_AT_BATON);
}

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	shm.fd = -1;
	assert_int_equal(shm_make(&shm, hash, 1), 0);
	shm_header(&shm)->c2n.head = 1 << 20;
	baton_open(&shm, BATON_LIVE, &name);
	session_live_post(&shm);
	return 0;
}

static int teardown(void **state)
{
	shm_close(&shm);
	return 0;
}

static enum session_end look(void)
{
	enum session_end end = baton_read(&shm, &baton, &pieces, &why);

	assert_true(end ? *why != 0 : *why == 0);
	return end;
}

static void test_name(void **state)
{
	baton_delta_set(&shm, 3 * SESSION_C2N_SIZE);
	baton_seq_set(&shm, 77);
	assert_int_equal(look(), END_NONE);
	assert_string_equal(baton.server, "lab");
	assert_string_equal(baton.program, "/bin/app");
	assert_string_equal(baton.settings, "A=1\n");
	assert_memory_equal(baton.token, token, sizeof(token));
	assert_int_equal(baton.delta, 3 * SESSION_C2N_SIZE);
	assert_int_equal(baton.seq, 77);
	assert_false(baton.moved);
	baton_asked_set(&shm, true);
	assert_int_equal(look(), END_NONE);
	assert_true(baton.moved);
}

static void test_states(void **state)
{
	assert_int_equal(look(), END_NONE);
	assert_false(baton.taken || baton.moved);
	baton_state_set(&shm, BATON_MOVING);
	assert_int_equal(look(), END_NONE);
	assert_true(baton.taken && baton.moved);
	baton_state_set(&shm, BATON_DIRECT);
	assert_int_equal(look(), END_LINK_LOST);
	baton_state_set(&shm, BATON_NONE);
	assert_int_equal(look(), END_PROTOCOL);
	baton_state_set(&shm, (enum baton_state)9);
	assert_int_equal(look(), END_PROTOCOL);
	baton_state_set(&shm, BATON_LIVE);
	assert_int_equal(look(), END_NONE);
	session_end_post(&shm, END_WORKER_DIED);
	assert_int_equal(look(), END_PROTOCOL);
}

/* What is written when another worker has the session. */
static void test_moved(void **state)
{
	static const uint8_t other[RESUME_TOKEN_SIZE] = "other";
	const struct baton_name there = { .server = "far", .program = name.program, .settings = name.settings, .token = other };
	struct journal_seen fresh = { .frames = 3 };

	for (int i = 1; i <= 5; i++) {
		const struct baton_frame frame = { .number = (uint64_t)i };

		assert_int_equal(journal_seen_frame(&seen, frame.number, 8), 0);
		baton_done(&shm, &frame, &seen);
	}
	baton_asked_set(&shm, true);
	baton_state_set(&shm, BATON_MOVING);
	baton_moved(&shm, &there, 2 * SESSION_C2N_SIZE, &fresh);
	baton_state_set(&shm, BATON_LIVE);
	assert_int_equal(look(), END_NONE);
	assert_string_equal(baton.server, "far");
	assert_memory_equal(baton.token, other, sizeof(other));
	assert_int_equal(baton.seen.frames, 3);
	assert_int_equal(baton.seen.bulk, 0);
	assert_false(baton.moved);
	/* The numbers of its bulk frames go on from there. */
	const struct baton_frame frame = { .number = 2 };

	seen = fresh;
	assert_int_equal(journal_seen_frame(&seen, 2, 8), 0);
	baton_done(&shm, &frame, &seen);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.bulk, 0);
	assert_int_equal(baton.seen.bits[0], 4);
}

/* Whatever had been stored when it died: a frame has come if and only if its effect is there. */
static void test_notice(void **state)
{
	const struct baton_frame frame = { 0 };
	struct ring_ctl *n2c = &shm_header(&shm)->n2c;

	assert_int_equal(journal_seen_frame(&seen, 0, 40), 0);
	baton_do(&shm, BATON_NOTICE, &frame, &seen, 40, 0, 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 0);
	n2c->head = 40;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
	assert_int_equal(baton.n2c_head, 40);
	/* Died after the count: it isn't counted twice. */
	record()->frames = 1;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
	baton_done(&shm, &frame, &seen);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
}

static void test_bulk(void **state)
{
	struct baton_frame frame = { .number = 2 };
	struct ring_ctl *n2c = &shm_header(&shm)->n2c;

	assert_int_equal(journal_seen_frame(&seen, 2, 40), 0);
	baton_do(&shm, BATON_NOTICE, &frame, &seen, 40, 0, 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.bits[0], 0);
	n2c->head = 40;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(look(), END_NONE);
		assert_int_equal(baton.seen.bulk, 0);
		assert_int_equal(baton.seen.bits[0], 4);
		baton_done(&shm, &frame, &seen);
	}
	/* The one before it: both have come. It dies between effect and count, and so does the next daemon. */
	frame.number = 1;
	assert_int_equal(journal_seen_frame(&seen, 1, 40), 0);
	baton_do(&shm, BATON_NOTICE, &frame, &seen, 80, 0, 0);
	n2c->head = 80;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(look(), END_NONE);
		assert_int_equal(baton.seen.bulk, 2);
		assert_int_equal(baton.seen.bits[0], 0);
		baton_adopted(&shm, &baton);
	}
	seen = baton.seen;
	for (frame.number = 3; frame.number < 3 * RESUME_WINDOW; frame.number++) {
		assert_int_equal(journal_seen_frame(&seen, frame.number, 40), 0);
		baton_done(&shm, &frame, &seen);
	}
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.bulk, 3 * RESUME_WINDOW - 1);
}

static void test_reply(void **state)
{
	const struct baton_frame frame = { 0 };
	struct frame_hdr hdr = { .size = sizeof(hdr), .kind = FRAME_REPLY, .slot = 7, .seq = 99 };
	struct reply_slot *slot = shm_slot(&shm, 7);

	slot->seq = 99;
	slot->state = SLOT_SLEEPING;
	assert_int_equal(journal_seen_frame(&seen, 0, 40), 0);
	baton_do(&shm, BATON_REPLY, &frame, &seen, 99, 7, 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 0);
	assert_int_equal(session_reply_post(&shm, &hdr), 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
	/* Taken, and the slot is another call's already. */
	slot->seq = 100;
	slot->state = SLOT_SENT;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
}

static void test_error(void **state)
{
	const struct baton_frame frame = { 0 };
	struct error_word *word = shm_error(&shm, 3);

	/* An earlier one of the same function, told and cleared. */
	assert_int_equal(session_error_post(&shm, 3, 700, 12, 5), 0);
	word->code = 0;
	assert_int_equal(journal_seen_frame(&seen, 0, 40), 0);
	baton_do(&shm, BATON_ERROR, &frame, &seen, 6, 3, 12);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 0);
	/* In the middle of session_error_post(). */
	word->op = 0;
	word->seq = 6;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 0);
	assert_int_equal(session_error_post(&shm, 3, 701, 12, 6), 0);
	assert_int_equal(word->code, 701);
	assert_int_equal(word->op, 12);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
	/* The client has been told. */
	word->code = 0;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
}

static void test_overflow(void **state)
{
	struct baton_frame frame = { 0 };
	struct ring_ctl *overflow = &record()->overflow;

	/* It gets there. */
	assert_int_equal(journal_seen_frame(&seen, 0, 40), 0);
	baton_do(&shm, BATON_OVERFLOW, &frame, &seen, 40, 0, 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 0);
	overflow->head = 40;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.seen.frames, 1);
	assert_int_equal(baton.overflow_head - baton.overflow_tail, 40);
	baton_done(&shm, &frame, &seen);
	/* And on to where it belongs. */
	frame.overflow_tail = 40;
	baton_do(&shm, BATON_NOTICE, &frame, &seen, 40, 0, 0);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.overflow_tail, 0);
	shm_header(&shm)->n2c.head = 40;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(baton.overflow_tail, 40);
	assert_int_equal(baton.seen.frames, 1);
	baton_adopted(&shm, &baton);
	assert_int_equal(overflow->tail, 40);
	/* A tail that isn't there. */
	frame.overflow_tail = 48;
	baton_do(&shm, BATON_NOTICE, &frame, &seen, 40, 0, 0);
	assert_int_equal(look(), END_PROTOCOL);
}

static void piece(uint64_t count)
{
	const struct journal_piece put = {
		.position = 64 * count, .seq = count, .cookie = count * SESSION_GRANULE, .size = 100,
		.offset = (uint32_t)(count * SESSION_GRANULE % SESSION_UP_SIZE),
	};

	baton_piece_put(&shm, count, &put, 0, 0);
}

static void test_pieces(void **state)
{
	assert_int_equal(look(), END_NONE);
	assert_int_equal(pieces.head, pieces.tail);
	/* Over the end of the table, and over old ones. */
	for (uint64_t count = 0; count < 1500; count++)
		piece(count);
	shm_header(&shm)->up_tail = 1000 * SESSION_GRANULE;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(pieces.head - pieces.tail, 500);
	assert_int_equal(pieces.tail % JOURNAL_PIECES, 1000 % JOURNAL_PIECES);
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(pieces.pieces[(pieces.tail + i) % JOURNAL_PIECES].seq, 1000 + i);
	/* One was being written: what lies behind it will be read again. */
	record()->pieces[1200 % SESSION_GRANULES].size = 0;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(pieces.head - pieces.tail, 200);
	shm_header(&shm)->up_tail = 1500 * SESSION_GRANULE;
	assert_int_equal(look(), END_NONE);
	assert_int_equal(pieces.head, pieces.tail);
}

static void test_all_pieces(void **state)
{
	for (uint64_t count = 0; count < 1024; count++)
		piece(count);
	assert_int_equal(look(), END_NONE);
	assert_int_equal(pieces.head - pieces.tail, 1024);
}

/* Each of these is the client's own doing. */
static void test_nonsense(void **state)
{
	struct session_header *hdr = shm_header(&shm);
	struct session_baton *rec = record();
	struct session_baton good;
	struct session_header good_hdr = *hdr;

	piece(1);
	good = *rec;
#define BAD(what)                                                                                                                          \
	do {                                                                                                                               \
		what;                                                                                                                      \
		assert_int_equal(look(), END_PROTOCOL);                                                                                    \
		*rec = good;                                                                                                               \
		*hdr = good_hdr;                                                                                                           \
		assert_int_equal(look(), END_NONE);                                                                                        \
	} while (0)
	BAD(memset(rec->server, 'x', sizeof(rec->server)));
	BAD(memset(rec->program, 'x', sizeof(rec->program)));
	BAD(memset(rec->settings, 'x', sizeof(rec->settings)));
	BAD(rec->delta = 8);
	BAD(hdr->c2n.tail = hdr->c2n.head + 8);
	BAD(hdr->c2n.head = hdr->c2n.tail + SESSION_C2N_SIZE + 8);
	BAD(hdr->c2n.head += 4);
	BAD(hdr->n2c.head = SESSION_N2C_SIZE + 8);
	BAD(hdr->n2c.tail = 8);
	BAD(rec->overflow.head = SESSION_OVERFLOW_SIZE + 8);
	BAD(rec->overflow.tail = 3);
	BAD(rec->pieces[1].offset += 1);
	BAD(rec->pieces[1].offset = SESSION_UP_SIZE);
	BAD(rec->pieces[1].size = SESSION_CELL_SIZE + 1);
	BAD(rec->pieces[1].size = UINT32_MAX);
	BAD(rec->pieces[1].cookie += SESSION_GRANULE);
	BAD(rec->pieces[1].position = hdr->c2n.head);
	BAD(rec->pieces[1].file = 1); /* its bytes are nowhere */
	BAD({ rec->doing = BATON_NOTICE; rec->at = 0; rec->counted = 5; });
	BAD({ rec->doing = BATON_NOTICE; rec->at = 0; rec->number = 1ull << 40; });
#undef BAD
	/* No such slot or context: whatever it says, nothing outside is looked at. */
	rec->doing = BATON_REPLY;
	rec->index = UINT32_MAX;
	look();
	rec->doing = BATON_ERROR;
	look();
	rec->doing = 99;
	assert_int_equal(look(), END_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_name, setup, teardown),
		cmocka_unit_test_setup_teardown(test_states, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moved, setup, teardown),
		cmocka_unit_test_setup_teardown(test_notice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bulk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reply, setup, teardown),
		cmocka_unit_test_setup_teardown(test_error, setup, teardown),
		cmocka_unit_test_setup_teardown(test_overflow, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_pieces, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
