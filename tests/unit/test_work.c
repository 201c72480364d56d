// SPDX-License-Identifier: Apache-2.0
/* What of a client's commands isn't finished: streams, answers, and bytes on their way, which aren't the GPU's work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/node/work.h"
#include "broker/proto/handle.h"
#include "broker/proto/progress.h"
#include "broker/proto/wire.h"
#include "gen/ops.h"

#define STREAM(n) handle_make(OBJECT_STREAM, 1, n)

struct state {
	struct work work;
	uint32_t landed[SESSION_GRANULES];
	uint64_t seq;
	uint64_t now_ns;
	uint64_t cookie; /* of the next piece */
};

static int state_new(void **state)
{
	*state = calloc(1, sizeof(struct state));
	return *state ? 0 : -1;
}

static int state_free(void **state)
{
	free(*state);
	return 0;
}

/* A command whose payload begins with @stream. */
static uint64_t command(struct state *s, enum op op, uint8_t flags, uint64_t stream, const struct bulk_ref *ref)
{
	uint8_t bytes[sizeof(struct frame_hdr) + sizeof(*ref) + sizeof(stream)];
	struct frame_hdr hdr = { .op = (uint16_t)op, .kind = FRAME_COMMAND, .flags = (uint8_t)(flags | (ref ? FRAME_BULK_UP : 0)), .seq = ++s->seq };
	uint32_t size = sizeof(hdr);

	if (ref) {
		memcpy(bytes + size, ref, sizeof(*ref));
		size += (uint32_t)sizeof(*ref);
	}
	memcpy(bytes + size, &stream, sizeof(stream));
	hdr.size = size += (uint32_t)sizeof(stream);
	memcpy(bytes, &hdr, sizeof(hdr));
	work_note(&s->work, bytes, size, s->now_ns);
	return s->seq;
}

static uint64_t launch(struct state *s, uint64_t stream)
{
	return command(s, OP_gleamLaunch, 0, stream, NULL);
}

/* A copy to the device whose bytes travel by a lane. */
static struct bulk_ref upload(struct state *s, uint64_t stream, uint32_t size)
{
	struct bulk_ref ref = { .offset = (uint32_t)(s->cookie % SESSION_UP_SIZE), .size = size, .cookie = s->cookie };

	s->cookie += (size + SESSION_GRANULE - 1) / SESSION_GRANULE * SESSION_GRANULE;
	command(s, OP_gleamCopyUpBulk, 0, stream, &ref);
	return ref;
}

static void land(struct state *s, struct bulk_ref ref)
{
	s->landed[landed_word(ref.offset)] = landed_value(ref.cookie);
}

static void reach(struct state *s, uint64_t stream, uint64_t seq)
{
	uint32_t word;

	assert_true(progress_word(stream, 0, &word));
	work_reached(&s->work, word, (uint32_t)seq, s->now_ns);
}

static bool is_on(struct state *s)
{
	return work_is_on(&s->work, s->landed);
}

static void streams_and_answers(void **state)
{
	struct state *s = *state;
	uint64_t a, b;

	assert_false(is_on(s) || work_is_open(&s->work));
	a = launch(s, STREAM(1));
	b = launch(s, WIRE_STREAM_LEGACY);
	assert_true(is_on(s) && work_is_open(&s->work));
	reach(s, STREAM(1), a);
	assert_true(is_on(s));
	s->now_ns = 3000;
	reach(s, WIRE_STREAM_LEGACY, b);
	assert_false(is_on(s) || work_is_open(&s->work));
	a = command(s, OP_gleamMemInfo, FRAME_WANTS_REPLY, 0, NULL);
	assert_true(is_on(s) && work_is_open(&s->work));
	work_answered(&s->work, a);
	assert_false(is_on(s) || work_is_open(&s->work));
	/* What is gone with its stream or context is told by nobody. */
	launch(s, STREAM(2));
	command(s, OP_cuStreamDestroy_v2, 0, STREAM(2), NULL);
	assert_false(work_is_open(&s->work));
	launch(s, STREAM(3));
	command(s, OP_gleamContextClose, 0, 0, NULL);
	assert_false(work_is_open(&s->work));
}

static void bytes_on_their_way_are_no_work(void **state)
{
	struct state *s = *state;
	struct bulk_ref first, second;
	uint64_t before, after;

	first = upload(s, STREAM(1), 1 << 20);
	second = upload(s, STREAM(1), 1 << 20);
	after = launch(s, STREAM(1));
	assert_true(work_is_open(&s->work));
	assert_false(is_on(s));
	/* One of them is there: it is copied, then the stream waits again. */
	land(s, first);
	assert_true(is_on(s));
	reach(s, STREAM(1), after - 2);
	assert_false(is_on(s));
	/* Who asks for the end of that waits for the bytes, too. */
	command(s, OP_gleamStreamSync, FRAME_WANTS_REPLY, STREAM(1), NULL);
	assert_false(is_on(s));
	land(s, second);
	assert_true(is_on(s));
	reach(s, STREAM(1), s->seq);
	work_answered(&s->work, s->seq);
	assert_false(is_on(s));

	/* Work in front of them is work, and so is that of another stream. */
	before = launch(s, STREAM(1));
	first = upload(s, STREAM(1), 1000);
	assert_true(is_on(s));
	reach(s, STREAM(1), before);
	assert_false(is_on(s));
	after = launch(s, STREAM(2));
	assert_true(is_on(s));
	reach(s, STREAM(2), after);
	assert_false(is_on(s));
	land(s, first);
	assert_true(is_on(s));
	reach(s, STREAM(1), s->seq);
	assert_false(is_on(s) || work_is_open(&s->work));
}

/* Ten times round the arena, with many on their way at once. */
static void arena_goes_round(void **state)
{
	enum { PIECES = SESSION_UP_SIZE / (4 << 20) };
	struct bulk_ref refs[PIECES];
	struct state *s = *state;

	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < PIECES; i++)
			refs[i] = upload(s, STREAM(1 + i % 3), 4 << 20);
		assert_false(is_on(s));
		for (int i = PIECES - 1; i > 2; i--)
			land(s, refs[i]);
		assert_false(is_on(s));
		land(s, refs[1]);
		assert_true(is_on(s));
		land(s, refs[0]);
		land(s, refs[2]);
		for (int i = 0; i < 3; i++)
			reach(s, STREAM(1 + i), s->seq);
		assert_false(is_on(s));
	}
}

/* Forged headers spoil the load and nothing else. */
static void nonsense_is_borne(void **state)
{
	struct state *s = *state;
	uint32_t random = 12345;

	for (int i = 0; i < 20000; i++) {
		uint8_t bytes[96];
		struct frame_hdr hdr;

		for (size_t b = 0; b < sizeof(bytes); b++) {
			random = random * 1664525u + 1013904223u;
			bytes[b] = (uint8_t)(random >> 24);
		}
		memcpy(&hdr, bytes, sizeof(hdr));
		hdr.size = random >> 8 & 127;
		hdr.kind = FRAME_COMMAND;
		hdr.op = (uint16_t)(random >> 16) % OP_MAX;
		memcpy(bytes, &hdr, sizeof(hdr));
		work_note(&s->work, bytes, random >> 12 & 1 ? sizeof(bytes) : random >> 20 & 63, i);
		work_reached(&s->work, random % SESSION_PROGRESS_WORDS, random, i);
		is_on(s);
		assert_true(s->work.piece_head - s->work.piece_tail <= WORK_PIECES);
		assert_true(s->work.unfinished <= SESSION_PROGRESS_WORDS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(streams_and_answers, state_new, state_free),
		cmocka_unit_test_setup_teardown(bytes_on_their_way_are_no_work, state_new, state_free),
		cmocka_unit_test_setup_teardown(arena_goes_round, state_new, state_free),
		cmocka_unit_test_setup_teardown(nonsense_is_borne, state_new, state_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
