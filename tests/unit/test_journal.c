/* SPDX-License-Identifier: Apache-2.0 */
/* What a broker remembers for a lost link: the pieces that haven't landed, and which frames have come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "broker/local/journal.h"
#include "broker/proto/progress.h"

static struct journal_pieces pieces;
static uint32_t *const landed = pieces.landed;

/* Piece @n of one granule, of the command at position 100 n. */
static int add(uint64_t n, uint64_t up_tail)
{
	struct journal_piece piece = {
		.position = 100 * n, .seq = n, .cookie = n * SESSION_GRANULE, .size = 5,
		.offset = (uint32_t)(n * SESSION_GRANULE % SESSION_UP_SIZE),
	};

	return journal_piece_add(&pieces, &piece, up_tail);
}

static unsigned missing(uint64_t up_tail, uint64_t *first_out, uint64_t *last_out)
{
	const struct journal_piece *piece;
	uint64_t at = 0;
	unsigned count = 0;

	while ((piece = journal_piece_missing(&pieces, up_tail, &at))) {
		if (count++ == 0)
			*first_out = piece->seq;
		*last_out = piece->seq;
	}
	return count;
}

static void test_pieces(void **state)
{
	uint64_t first = 0, last = 0;

	memset(&pieces, 0, sizeof(pieces));
	for (uint64_t n = 0; n < 10; n++)
		assert_int_equal(add(n, 0), 0);
	/* The words of the pieces of an earlier turn of the arena are no landings. */
	assert_int_equal(missing(0, &first, &last), 10);
	assert_int_equal(first, 0);
	pieces.known = 2000;
	landed[0] = landed_value(0);
	landed[4] = landed_value(4 * SESSION_GRANULE);
	landed[5] = landed_value(5 * SESSION_GRANULE + SESSION_UP_SIZE);
	assert_int_equal(missing(0, &first, &last), 8);
	assert_int_equal(first, 1);
	/* Freed ones aren't sent again: their places may have other bytes. */
	assert_int_equal(missing(3 * SESSION_GRANULE, &first, &last), 6);
	assert_int_equal(first, 3);
	/* Commands that the node doesn't have bring their pieces with them. */
	journal_pieces_cut(&pieces, 700);
	assert_int_equal(missing(3 * SESSION_GRANULE, &first, &last), 3);
	assert_int_equal(first, 3);
	assert_int_equal(last, 6);
	assert_int_equal(add(7, 3 * SESSION_GRANULE), 0);
	assert_int_equal(missing(3 * SESSION_GRANULE, &first, &last), 4);
	assert_int_equal(last, 7);
	journal_pieces_cut(&pieces, 0);
	assert_int_equal(missing(0, &first, &last), 0);
	/* What the words say holds for commands that had been sent by then. */
	assert_int_equal(add(4, 0), 0);
	assert_int_equal(missing(0, &first, &last), 0);
	pieces.known = 400;
	assert_int_equal(missing(0, &first, &last), 1);
}

static void test_pieces_of_a_full_arena(void **state)
{
	uint64_t first = 0, last = 0;

	memset(&pieces, 0, sizeof(pieces));
	for (uint64_t n = 0; n < JOURNAL_PIECES; n++)
		assert_int_equal(add(n, 0), 0);
	assert_int_equal(add(JOURNAL_PIECES, 0), -ENOBUFS);
	for (uint64_t n = JOURNAL_PIECES; n < 5 * JOURNAL_PIECES; n++)
		assert_int_equal(add(n, (n - JOURNAL_PIECES + 1) * SESSION_GRANULE), 0);
	assert_int_equal(missing(0, &first, &last), JOURNAL_PIECES);
	assert_int_equal(first, 4 * JOURNAL_PIECES);
	assert_int_equal(last, 5 * JOURNAL_PIECES - 1);
}

static void test_seen(void **state)
{
	struct journal_seen seen = { 0 };

	assert_int_equal(journal_seen_frame(&seen, 0, 40), 0);
	assert_int_equal(seen.frames, 1);
	assert_int_equal(journal_seen_frame(&seen, 2, 40), 0);
	assert_int_equal(seen.bulk, 0);
	assert_int_equal(journal_seen_frame(&seen, 2, 40), -EPROTO);
	assert_int_equal(journal_seen_frame(&seen, 4, 40), 0);
	assert_int_equal(journal_seen_frame(&seen, 1, 40), 0);
	assert_int_equal(seen.bulk, 2);
	assert_int_equal(journal_seen_frame(&seen, 2, 40), -EPROTO);
	assert_int_equal(journal_seen_frame(&seen, 3, 40), 0);
	assert_int_equal(seen.bulk, 4);
	assert_int_equal(journal_seen_frame(&seen, 4 + RESUME_WINDOW + 1, 40), -EPROTO);
	assert_int_equal(journal_seen_frame(&seen, 4 + RESUME_WINDOW, 40), 0);
	for (uint64_t n = 5; n < 4 + RESUME_WINDOW; n++)
		assert_int_equal(journal_seen_frame(&seen, n, 0), 0);
	assert_int_equal(seen.bulk, 4 + RESUME_WINDOW);
	for (size_t i = 0; i < sizeof(seen.bits); i++)
		assert_int_equal(seen.bits[i], 0);
	assert_true(journal_seen_due(&seen));
	seen.untold = 0;
	seen.untold_bytes = 0;
	assert_false(journal_seen_due(&seen));
	assert_int_equal(journal_seen_frame(&seen, 0, FRAME_SIZE_MAX), 0);
	assert_true(journal_seen_due(&seen));
}

/* Any order within the window: what is known at any moment is exactly what has come. */
static void test_seen_random(void **state)
{
	struct journal_seen seen = { 0 };
	static bool came[20000];
	uint64_t random = 7;

	for (uint64_t count = 0; count < 20000 - RESUME_WINDOW; count++) {
		random = random * 6364136223846793005u + 1442695040888963407u;

		uint64_t number = seen.bulk + 1 + (random >> 33) % (random >> 63 ? 3 : RESUME_WINDOW);
		int err = journal_seen_frame(&seen, number, 1);

		if (number >= 20000)
			break;
		assert_int_equal(err, came[number] ? -EPROTO : 0);
		came[number] = true;
		assert_false(came[seen.bulk + 1]);
		for (uint64_t n = seen.bulk + 1; n <= seen.bulk + RESUME_WINDOW && n < 20000; n++)
			assert_int_equal(!!(seen.bits[n % RESUME_WINDOW / 8] & 1u << n % 8), came[n]);
	}
	assert_true(seen.bulk > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_pieces_of_a_full_arena),
		cmocka_unit_test(test_seen),
		cmocka_unit_test(test_seen_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
