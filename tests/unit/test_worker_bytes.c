// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: bytes on their way, device memory, images.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/proto/verdict.h"
#include "tests/unit/worker_session.h"

#define LEGACY WIRE_STREAM_LEGACY
#define MIB (1u << 20)

static void pattern(uint8_t *bytes, uint32_t size, uint32_t seed)
{
	for (uint32_t i = 0; i < size; i++) {
		seed = seed * 1664525u + 1013904223u;
		bytes[i] = (uint8_t)(seed >> 24);
	}
}

/* The command is there long before its bytes. */
static void upload_waits_for_its_landing(struct client *c)
{
	uint8_t *bytes = malloc(MIB);
	struct bulk_ref cells = { .offset = 4 * MIB, .size = MIB, .cookie = 5 };
	struct bulk_ref first, second;
	struct seen *seen;
	uint64_t p, s, other, last;

	open_context(c);
	p = map_memory(c, 4 * MIB);
	load_functions(c);
	s = stream(c, 1, 1);
	other = stream(c, 2, 1);
	first = up_take(c, MIB);
	second = up_take(c, 1000);
	last = SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &first, .stream = s, .dst = p);
	SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &second, .stream = other, .dst = p + 2 * MIB);
	pattern(bytes, 1000, 2);
	up_land(c, &second, bytes);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = other), 0);
	CHECK(memcmp((void *)(p + 2 * MIB), bytes, 1000) == 0);
	CHECK(!reached(c, 1, last));
	/* The arena is freed in its order: not before the first piece. */
	CHECK(c->consumed <= first.cookie);
	pattern(bytes, MIB, 1);
	up_land(c, &first, bytes);
	wait_progress(c, 1, last);
	wait_consumed(c, c->up_head);
	CHECK_EQUAL(wait_reply(c,
			       SEND_FLAGS(c, gleamCopyDownBulk, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .stream = s,
					  .src = p, .size = MIB),
			       &seen),
		    0);
	CHECK_EQUAL(seen->bulk.size, MIB);
	CHECK_EQUAL(seen->bulk.cookie, 5);
	CHECK(memcmp(shm_down(&c->shm) + seen->bulk.offset, bytes, MIB) == 0);
	free(bytes);
}

static void late_copy_lands_before_its_progress(struct client *c)
{
	struct bulk_ref cells = { .offset = 6 * MIB, .size = 2 * MIB, .cookie = 9 };
	struct seen *seen;
	uint64_t p, s, last;

	open_context(c);
	p = map_memory(c, 4 * MIB);
	load_functions(c);
	s = stream(c, 1, 1);
	launch_hold(c, s);
	launch_fill(c, s, p, 0x5a, 2 * MIB);
	last = SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = s, .src = p, .size = 2 * MIB);
	pause_ms(10);
	CHECK(!have_notice(c, NOTICE_LANDED));
	c->fake.release(1);
	wait_progress(c, 1, last);
	/* It is there when the word is. */
	CHECK(have_notice(c, NOTICE_LANDED));
	seen = wait_notice(c, NOTICE_LANDED);
	CHECK_EQUAL(seen->bulk.offset, cells.offset);
	CHECK_EQUAL(seen->bulk.size, 2 * MIB);
	CHECK_EQUAL(seen->bulk.cookie, 9);
	CHECK_EQUAL(shm_down(&c->shm)[8 * MIB - 1], 0x5a);
}

/* However many wait for a stream whose newest command is a copy to the host: its end is written once. */
static void synchronise_waits_for_the_copys_write(struct client *c)
{
	struct bulk_ref cells = { .offset = 6 * MIB, .size = 4096, .cookie = 9 };
	uint64_t syncs[16];
	uint64_t p, s, last;
	unsigned before;

	open_context(c);
	p = map_memory(c, 4 * MIB);
	load_functions(c);
	s = stream(c, 1, 1);
	before = c->fake.calls("cuStreamWriteValue32_v2");
	launch_hold(c, s);
	launch_fill(c, s, p, 0x5a, 4096);
	last = SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = s, .src = p, .size = 4096);
	for (unsigned i = 0; i < 16; i++)
		syncs[i] = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = s);
	for (unsigned i = 0; i < 5000 && ring_tail(&c->c2n) != c->c2n.at; i++)
		pause_ms(1);
	CHECK_EQUAL(ring_tail(&c->c2n), c->c2n.at);
	settle(c);
	CHECK(!have_reply(c, syncs[0]));
	c->fake.release(1);
	for (unsigned i = 0; i < 16; i++) {
		CHECK_EQUAL(wait_reply(c, syncs[i], NULL), 0);
		/* Bytes and word are there before. */
		CHECK(have_notice(c, NOTICE_LANDED));
		CHECK(reached(c, 1, last));
		/* A record of what was told, made with other timing, is played until the same is told again. */
		CHECK(reached(c, 1, syncs[i]));
	}
	CHECK_EQUAL(shm_down(&c->shm)[6 * MIB + 4095], 0x5a);
	/* The copy's, and where the worker had nothing else to do meanwhile one behind each launch. */
	CHECK(c->fake.calls("cuStreamWriteValue32_v2") - before >= 1);
	CHECK(c->fake.calls("cuStreamWriteValue32_v2") - before <= 3);
}

/* The arena many times round, with pieces that do not fit its end. */
static void arena_goes_round(struct client *c)
{
	uint8_t *bytes = malloc(MIB);
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 2 * MIB);
	s = stream(c, 1, 1);
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t size = i % 3 ? MIB - 70000 * (i % 5) : 5000;
		struct bulk_ref piece = up_take(c, size);

		pattern(bytes, size, i);
		if (i % 2)
			up_land(c, &piece, bytes);
		SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = p);
		if (!(i % 2))
			up_land(c, &piece, bytes);
		if (i % 50 == 49) {
			CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
			CHECK(memcmp((void *)p, bytes, size) == 0);
		}
		if (i % 100 == 79) {
			/* Nothing is in the arena: its beginning is taken again, wherever it had come to. */
			wait_consumed(c, c->up_head);
			c->up_head += SESSION_UP_SIZE - c->up_head % SESSION_UP_SIZE;
		}
	}
	wait_consumed(c, c->up_head);
	free(bytes);
}

/* What was passed over of an empty arena is free before the piece behind it has been used up: as many as fit are on their way then. */
static void passed_over_room_is_free_at_once(struct client *c)
{
	enum { PIECES = SESSION_UP_SIZE / MIB };
	struct bulk_ref pieces[PIECES];
	uint8_t *bytes = malloc(MIB);
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 2 * MIB);
	s = stream(c, 1, 1);
	for (int lap = 0; lap < 3; lap++) {
		struct bulk_ref piece = up_take(c, MIB);

		pattern(bytes, MIB, (uint32_t)lap);
		up_land(c, &piece, bytes);
		SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = p);
		wait_consumed(c, c->up_head);
		c->up_head += SESSION_UP_SIZE - c->up_head % SESSION_UP_SIZE;
		c->consumed = c->up_head;
		for (uint32_t i = 0; i < PIECES; i++) {
			pieces[i] = up_take(c, MIB);
			SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &pieces[i], .stream = s, .dst = p + i % 2 * MIB);
		}
		for (uint32_t i = 0; i < PIECES; i++) {
			pattern(bytes, MIB, i);
			up_land(c, &pieces[i], bytes);
		}
		CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
		CHECK(memcmp((void *)(p + MIB), bytes, MIB) == 0);
		pattern(bytes, MIB, PIECES - 2);
		CHECK(memcmp((void *)p, bytes, MIB) == 0);
		wait_consumed(c, c->up_head);
		/* Somewhere else in the next lap. */
		for (int i = 0; i <= lap; i++) {
			piece = up_take(c, 5000);
			up_land(c, &piece, bytes);
			SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = p);
		}
	}
	wait_consumed(c, c->up_head);
	free(bytes);
}

static void rows_are_copied_with_their_pitch(struct client *c)
{
	uint8_t bytes[8 * 100];
	struct bulk_ref cells = { .offset = 2 * MIB, .size = sizeof(bytes) };
	struct bulk_ref piece;
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 2 * MIB);
	s = stream(c, 1, 1);
	pattern(bytes, sizeof(bytes), 3);
	piece = up_take(c, sizeof(bytes));
	SEND_FLAGS(c, gleamCopyUp2D, FRAME_BULK_UP, &piece, .stream = s, .dst = p, .pitch = 512, .width = 100, .rows = 8);
	up_land(c, &piece, bytes);
	SEND(c, gleamCopyDev2D, .stream = s, .dst = p + 65536, .dst_pitch = 256, .src = p, .src_pitch = 512, .width = 100,
	     .rows = 8);
	SEND_FLAGS(c, gleamCopyDown2D, FRAME_BULK_DOWN, &cells, .stream = s, .src = p + 65536, .pitch = 256, .width = 100,
		   .rows = 8);
	wait_notice(c, NOTICE_LANDED);
	CHECK(memcmp(shm_down(&c->shm) + cells.offset, bytes, sizeof(bytes)) == 0);
	CHECK(memcmp((void *)(p + 7 * 512), bytes + 700, 100) == 0);
	CHECK_EQUAL(((uint8_t *)p)[100], 0);
}

/* A box into an array, from there into another, and to the host; with one byte an element. */
static void boxes_of_arrays(struct client *c)
{
	const uint64_t a = handle_make(OBJECT_ARRAY, 1, 1), b = handle_make(OBJECT_ARRAY, 1, 2);
	uint8_t bytes[3 * 4 * 10];
	struct bulk_ref cells = { .offset = 2 * MIB, .size = MIB, .cookie = 3 };
	struct bulk_ref piece = up_take(c, sizeof(bytes));
	struct seen *seen;
	uint64_t s;

	open_context(c);
	s = stream(c, 1, 1);
	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = a, .width = 20, .height = 8, .depth = 5, .format = 1,
			 .channels = 1), 0);
	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = b, .width = 20, .height = 8, .depth = 5, .format = 1,
			 .channels = 1), 0);
	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = handle_make(OBJECT_ARRAY, 1, 3), .width = 20, .format = 2,
			 .channels = 1), CUDA_ERROR_INVALID_VALUE);
	pattern(bytes, sizeof(bytes), 4);
	SEND_FLAGS(c, gleamArrayUp, FRAME_BULK_UP, &piece, .stream = s, .array = a, .x = 2, .y = 3, .z = 1, .width = 10,
		   .rows = 4, .depth = 3);
	SEND(c, gleamArrayCopy, .stream = s, .dst_array = b, .dst_x = 5, .dst_y = 1, .dst_z = 2, .src_array = a, .src_x = 2,
	     .src_y = 3, .src_z = 1, .width = 10, .rows = 4, .depth = 3);
	SEND_FLAGS(c, gleamArrayDown, FRAME_BULK_DOWN, &cells, .stream = s, .array = b, .x = 5, .y = 1, .z = 2, .width = 10,
		   .rows = 4, .depth = 3);
	pause_ms(5);
	CHECK(!have_notice(c, NOTICE_LANDED));
	up_land(c, &piece, bytes);
	seen = wait_notice(c, NOTICE_LANDED);
	CHECK_EQUAL(seen->bulk.size, sizeof(bytes));
	CHECK_EQUAL(seen->bulk.cookie, 3);
	CHECK(memcmp(shm_down(&c->shm) + cells.offset, bytes, sizeof(bytes)) == 0);
	wait_consumed(c, c->up_head);

	/* What can't be done is told to whoever waits for the bytes, in either form. */
	SEND_FLAGS(c, gleamArrayDown, FRAME_BULK_DOWN, &cells, .stream = s, .array = handle_make(OBJECT_ARRAY, 2, 1),
		   .width = 10, .rows = 4, .depth = 3);
	CHECK_EQUAL(wait_notice(c, NOTICE_LANDED)->bulk.cookie, 3);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_HANDLE);
	c->fake.plan("cuMemcpy3DAsync_v2", CUDA_ERROR_INVALID_VALUE, 0);
	SEND_FLAGS(c, gleamCopyDown2D, FRAME_BULK_DOWN, &cells, .stream = s, .src = DEVICE_AT(c), .pitch = 256, .width = 100,
		   .rows = 8);
	CHECK_EQUAL(wait_notice(c, NOTICE_LANDED)->bulk.cookie, 3);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
	/* An array ends when what was sent before has run. */
	load_functions(c);
	launch_hold(c, s);
	SEND(c, gleamArrayEnd, .array = a);
	SEND(c, gleamArrayEnd, .array = b);
	pause_ms(10);
	CHECK_EQUAL(c->fake.calls("cuArrayDestroy"), 0);
	c->fake.release(1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	for (int i = 0; i < 500 && c->fake.calls("cuArrayDestroy") < 2; i++)
		pause_ms(10);
	CHECK_EQUAL(c->fake.calls("cuArrayDestroy"), 2);
}

static void box_that_lies_ends_the_session(struct client *c)
{
	const uint64_t a = handle_make(OBJECT_ARRAY, 1, 1);
	struct bulk_ref piece = up_take(c, 100);
	uint64_t s;

	open_context(c);
	s = stream(c, 1, 1);
	CHECK_EQUAL(CALL(c, gleamArrayCreate, NULL, .array = a, .width = 20, .height = 8, .format = 1, .channels = 1), 0);
	/* The product wraps to what came. */
	SEND_FLAGS(c, gleamArrayUp, FRAME_BULK_UP, &piece, .stream = s, .array = a, .width = 1ull << 32, .rows = 1ull << 32,
		   .depth = 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void unregistered_boxes(struct client *c)
{
	boxes_of_arrays(c);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

static void no_registering(struct client *c)
{
	c->fake.refuse_register(true);
}

static void unregistered_session_memory_works(struct client *c)
{
	CHECK(!c->worker.arenas_mapped);
	upload_waits_for_its_landing(c);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

static void unregistered_late_copy(struct client *c)
{
	late_copy_lands_before_its_progress(c);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

static void unregistered_rows(struct client *c)
{
	rows_are_copied_with_their_pitch(c);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

/* ---- device memory ---- */

static uint32_t grant_spare(struct client *c, uint64_t bytes, uint64_t spare, uint64_t pieces[480], CUresult expect)
{
	struct ans_gleamGrant a = { 0 };
	struct seen *s;
	struct reader r;

	CHECK_EQUAL(CALL(c, gleamGrant, &s, .device = 0, .bytes = bytes, .spare = spare), expect);
	if (expect)
		return 0;
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_gleamGrant_get(&r, &a));
	memcpy(pieces, a.pieces, a.pieces_count * 8);
	return a.pieces_count;
}

static uint32_t grant(struct client *c, uint64_t bytes, uint64_t pieces[480], CUresult expect)
{
	return grant_spare(c, bytes, 0, pieces, expect);
}

static void spare_pieces_are_small_and_of_plenty(struct client *c)
{
	uint64_t pieces[480];
	uint32_t count;

	open_context(c);
	/* What is needed in large pieces, and 40 MiB beside it in small ones. */
	count = grant_spare(c, 36ull << 20, 40ull << 20, pieces, 0);
	CHECK_EQUAL(count, 1 + 2 + 20);
	CHECK_EQUAL(pieces[0] & 0xff, 1);
	for (uint32_t i = 1; i < count; i++)
		CHECK_EQUAL(pieces[i] & 0xff, 0);
	/* However much is asked for. */
	CHECK_EQUAL(grant_spare(c, 2ull << 20, UINT64_MAX, pieces, 0), 1 + 128);
	/* The last of a device stays with it. */
	c->fake.memory(256ull << 20);
	CHECK_EQUAL(grant_spare(c, 2ull << 20, 40ull << 20, pieces, 0), 1);
	CHECK_EQUAL(grant_spare(c, 2ull << 20, 30ull << 20, pieces, 0), 1 + 15);
}

static void free_waits_for_work_before_it(struct client *c)
{
	uint64_t address = DEVICE_AT(c) + (16ull << 30);
	uint64_t pieces[480], names[480], s, sync;
	struct seen *seen;
	struct reader r;
	uint32_t count, size;
	const void *bytes;

	open_context(c);
	load_functions(c);
	s = stream(c, 1, 1);
	count = grant(c, (256ull << 20) + (32ull << 20) + (5ull << 20), pieces, 0);
	CHECK_EQUAL(count, 1 + 1 + 3);
	CHECK_EQUAL(pieces[0] & 0xff, 2);
	CHECK_EQUAL(pieces[1] & 0xff, 1);
	CHECK_EQUAL(pieces[4] & 0xff, 0);
	SEND(c, gleamMap, .address = address, .device = 0, .pieces = pieces, .pieces_count = count);
	launch_hold(c, s);
	launch_fill(c, s, address, 1, 100);
	SEND(c, gleamFree, .address = address, .bytes = (256ull << 20) + (32ull << 20) + (6ull << 20));
	/* Work after the free doesn't count. */
	launch_hold(c, s);
	sync = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = s);
	pause_ms(20);
	CHECK(!have_notice(c, NOTICE_FREED));
	CHECK_EQUAL(c->fake.calls("cuMemUnmap"), 1); /* the wipe's */
	c->fake.release(1);
	seen = wait_notice(c, NOTICE_FREED);
	CHECK(!have_reply(c, sync));
	r = reader_on(seen->payload, seen->size);
	CHECK_EQUAL(get_u64(&r), address);
	bytes = get_bytes(&r, 4096, &size);
	CHECK_EQUAL(size, count * 8);
	memcpy(names, bytes, size);
	CHECK(memcmp(names, pieces, size) == 0);
	/* The same pieces, somewhere else, with what was in them: it is the same client. */
	SEND(c, gleamMap, .address = address + (1ull << 30), .device = 0, .pieces = pieces, .pieces_count = count);
	CHECK_EQUAL(read_u32(c, LEGACY, address + (1ull << 30)), 0x01010101);
	SEND(c, gleamFree, .address = address + (1ull << 30), .bytes = 1);
	wait_notice(c, NOTICE_ERROR);
	c->fake.release(1);
	CHECK_EQUAL(wait_reply(c, sync, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void short_memory_waits_for_the_quarantine(struct client *c)
{
	uint64_t address = DEVICE_AT(c) + (32ull << 30);
	uint64_t pieces[480], s, ask;
	uint32_t count;
	struct ans_gleamMemInfo info;
	struct seen *seen;
	struct reader r;

	open_context(c);
	load_functions(c);
	s = stream(c, 1, 1);
	c->fake.memory(64ull << 20);
	/* More than there is: nothing at all. */
	CHECK_EQUAL(grant(c, 1ull << 30, pieces, CUDA_ERROR_OUT_OF_MEMORY), 0);
	count = grant(c, 64ull << 20, pieces, 0);
	CHECK_EQUAL(count, 2); /* two of 32 MiB */
	SEND(c, gleamMap, .address = address, .device = 0, .pieces = pieces, .pieces_count = count);
	CHECK_EQUAL(CALL(c, gleamMemInfo, &seen, .device = 0), 0);
	r = reader_on(seen->payload, seen->size);
	get_u32(&r);
	CHECK(ans_gleamMemInfo_get(&r, &info));
	CHECK_EQUAL(info.free, 0);
	CHECK_EQUAL(info.total, 8ull << 30);
	launch_hold(c, s);
	SEND(c, gleamFree, .address = address, .bytes = 64ull << 20);
	ask = SEND_FLAGS(c, gleamGrant, FRAME_WANTS_REPLY, NULL, .device = 0, .bytes = 2 << 20);
	pause_ms(20);
	CHECK(!have_reply(c, ask));
	c->fake.release(1);
	/* The pieces are the client's again, and it hears of them first. */
	CHECK_EQUAL(wait_reply(c, ask, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(have_notice(c, NOTICE_FREED));
	SEND(c, gleamGrantReturn, .device = 0, .pieces = pieces, .pieces_count = 1);
	CHECK_EQUAL(grant(c, 2 << 20, pieces, 0), 1);
	CHECK_EQUAL(c->fake.ask(FAKE_PIECES), 2);
}

/* ---- images ---- */

static CUresult load(struct client *c, uint64_t object, const char *text, bool late, const void *options,
		     uint32_t options_size, uint32_t room, struct seen **seen_out)
{
	uint32_t size = (uint32_t)strlen(text) + 1;
	struct bulk_ref first = up_take(c, 5);
	struct bulk_ref second = up_take(c, size - 5);
	struct bulk_ref cells = { .offset = SESSION_CELL_SIZE, .size = room };
	uint64_t seq;

	SEND(c, gleamLoadBegin, .object = object, .total_size = size);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &first, .object = object, .offset = 0);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &second, .object = object, .offset = 5);
	up_land(c, &second, text + 5);
	if (!late)
		up_land(c, &first, text);
	seq = SEND_FLAGS(c, gleamLoadImage, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = object, .kind = 2,
			 .total_size = size, .options = options, .options_size = options_size);
	if (late) {
		pause_ms(10);
		CHECK(!have_reply(c, seq));
		/* Other threads' commands go on meanwhile. */
		CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
		up_land(c, &first, text);
	}
	return wait_reply(c, seq, seen_out);
}

static void verdict_tells_all_functions(struct client *c)
{
	uint64_t module = handle_make(OBJECT_MODULE, 4, 2);
	struct verdict_function f;
	struct verdict v;
	struct bulk_ref cells = { .offset = 3 * SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE };
	const char *info, *error;
	struct seen *s;
	struct reader r;

	open_context(c);
	CHECK_EQUAL(load(c, module, "// fake hold fill", true, NULL, 0, SESSION_CELL_SIZE, &s), 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.code, 0);
	CHECK_EQUAL(v.flags, 0);
	CHECK_EQUAL(v.size, s->bulk.size);
	CHECK_EQUAL(v.function_count, 2);
	CHECK(verdict_logs_get(&r, &info, &error));
	CHECK(verdict_function_get(&r, &f));
	CHECK(strcmp(f.name, "hold") == 0);
	CHECK_EQUAL(f.param_count, 0);
	CHECK(verdict_function_get(&r, &f));
	CHECK(strcmp(f.name, "fill") == 0);
	CHECK_EQUAL(f.flags, VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES);
	CHECK_EQUAL(f.param_count, 3);
	CHECK_EQUAL(verdict_param_at(&f, 1).offset, 8);
	CHECK_EQUAL(verdict_param_at(&f, 1).size, 4);
	CHECK_EQUAL(f.attributes[6], 106);
	CHECK_EQUAL(reader_left(&r), 0);

	/* One function alone. */
	CHECK_EQUAL(wait_reply(c,
			       SEND_FLAGS(c, gleamFunctionInfo, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = module,
					  .name = "fill"),
			       &s),
		    0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_function_get(&r, &f));
	CHECK(strcmp(f.name, "fill") == 0);
	CHECK_EQUAL(f.param_count, 3);
	CHECK_EQUAL(wait_reply(c,
			       SEND_FLAGS(c, gleamFunctionInfo, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = module,
					  .name = "nothing"),
			       NULL),
		    CUDA_ERROR_NOT_FOUND);
	SEND(c, cuModuleUnload, .hmod = module);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

static void small_cells_are_asked_again(struct client *c)
{
	uint64_t module = handle_make(OBJECT_MODULE, 4, 2);
	struct bulk_ref cells = { .offset = 3 * SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE };
	struct verdict v;
	struct seen *s;
	struct reader r;

	open_context(c);
	CHECK_EQUAL(load(c, module, "// fake hold fill", false, NULL, 0, VERDICT_HEADER_SIZE, &s), 0);
	CHECK_EQUAL(s->bulk.size, VERDICT_HEADER_SIZE);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK(v.flags & VERDICT_LARGER);
	CHECK_EQUAL(wait_reply(c,
			       SEND_FLAGS(c, gleamVerdict, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .object = module), &s),
		    0);
	CHECK_EQUAL(s->bulk.size, v.size);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.flags, 0);
	CHECK_EQUAL(v.function_count, 2);
}

static void bad_images_are_told_with_their_log(struct client *c)
{
	uint64_t module = handle_make(OBJECT_MODULE, 4, 2);
	uint8_t options[32];
	struct writer w = writer_on(options, sizeof(options));
	struct verdict v;
	const char *info, *error;
	struct seen *s;
	struct reader r;

	open_context(c);
	put_u32(&w, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
	put_u32(&w, 0);
	put_u64(&w, 1000);
	CHECK_EQUAL(load(c, module, ".version nonsense", false, options, (uint32_t)w.at, SESSION_CELL_SIZE, &s), 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.code, CUDA_ERROR_INVALID_PTX);
	CHECK_EQUAL(v.function_count, 0);
	CHECK(verdict_logs_get(&r, &info, &error));
	CHECK(strcmp(error, "no fake image") == 0);

	/* A pointer among the options, in place of a value. */
	w = writer_on(options, sizeof(options));
	put_u32(&w, CU_JIT_GLOBAL_SYMBOL_NAMES);
	put_u32(&w, 0);
	put_u64(&w, 0x1234);
	CHECK_EQUAL(load(c, module, "// fake hold", false, options, (uint32_t)w.at, SESSION_CELL_SIZE, &s), 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.code, CUDA_ERROR_INVALID_VALUE);

	/* A cubin whose section table lies outside of what came. */
	static const char elf[] = "\x7f" "ELF\x02\x01\x01";
	CHECK_EQUAL(load(c, module, elf, false, NULL, 0, SESSION_CELL_SIZE, &s), 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.code, CUDA_ERROR_INVALID_IMAGE);
	/* Nothing was left behind: the handle is free. */
	CHECK_EQUAL(load(c, module, "// fake hold", false, NULL, 0, SESSION_CELL_SIZE, &s), 0);
	r = reader_on(shm_down(&c->shm) + s->bulk.offset, s->bulk.size);
	CHECK(verdict_get(&r, &v));
	CHECK_EQUAL(v.code, 0);
	wait_consumed(c, c->up_head);
}

/* Nobody waits for it, and the next commands need it. */
static void load_again_is_waited_for_by_what_follows(struct client *c)
{
	static const char text[] = "// fake hold fill add";
	uint64_t module = handle_make(OBJECT_MODULE, 4, 2);
	struct bulk_ref piece = up_take(c, sizeof(text));
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 4096);
	s = stream(c, 1, 1);
	SEND(c, gleamLoadBegin, .object = module, .total_size = sizeof(text));
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &piece, .object = module, .offset = 0);
	SEND(c, gleamLoadAgain, .object = module, .kind = 2, .total_size = sizeof(text));
	SEND(c, cuModuleGetFunction, .hfunc = function(FUNCTION_ADD), .hmod = module, .name = "add");
	launch_add(c, s, p, 5);
	pause_ms(10);
	up_land(c, &piece, text);
	CHECK_EQUAL(read_u32(c, s, p), 5);
}

#define IN_CHILD(name, prepare)                                                                                        \
	static void test_##name(void **state)                                                                         \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, prepare));                                                                 \
	}
IN_CHILD(upload_waits_for_its_landing, NULL)
IN_CHILD(late_copy_lands_before_its_progress, NULL)
IN_CHILD(synchronise_waits_for_the_copys_write, NULL)
IN_CHILD(arena_goes_round, NULL)
IN_CHILD(passed_over_room_is_free_at_once, NULL)
IN_CHILD(rows_are_copied_with_their_pitch, NULL)
IN_CHILD(boxes_of_arrays, NULL)
IN_CHILD(unregistered_boxes, no_registering)
IN_CHILD(box_that_lies_ends_the_session, NULL)
IN_CHILD(unregistered_session_memory_works, no_registering)
IN_CHILD(unregistered_late_copy, no_registering)
IN_CHILD(unregistered_rows, no_registering)
IN_CHILD(spare_pieces_are_small_and_of_plenty, NULL)
IN_CHILD(free_waits_for_work_before_it, NULL)
IN_CHILD(short_memory_waits_for_the_quarantine, NULL)
IN_CHILD(verdict_tells_all_functions, NULL)
IN_CHILD(small_cells_are_asked_again, NULL)
IN_CHILD(bad_images_are_told_with_their_log, NULL)
IN_CHILD(load_again_is_waited_for_by_what_follows, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_upload_waits_for_its_landing),
		cmocka_unit_test(test_late_copy_lands_before_its_progress),
		cmocka_unit_test(test_synchronise_waits_for_the_copys_write),
		cmocka_unit_test(test_arena_goes_round),
		cmocka_unit_test(test_passed_over_room_is_free_at_once),
		cmocka_unit_test(test_rows_are_copied_with_their_pitch),
		cmocka_unit_test(test_boxes_of_arrays),
		cmocka_unit_test(test_unregistered_boxes),
		cmocka_unit_test(test_box_that_lies_ends_the_session),
		cmocka_unit_test(test_unregistered_session_memory_works),
		cmocka_unit_test(test_unregistered_late_copy),
		cmocka_unit_test(test_unregistered_rows),
		cmocka_unit_test(test_free_waits_for_work_before_it),
		cmocka_unit_test(test_spare_pieces_are_small_and_of_plenty),
		cmocka_unit_test(test_short_memory_waits_for_the_quarantine),
		cmocka_unit_test(test_verdict_tells_all_functions),
		cmocka_unit_test(test_small_cells_are_asked_again),
		cmocka_unit_test(test_bad_images_are_told_with_their_log),
		cmocka_unit_test(test_load_again_is_waited_for_by_what_follows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
