// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: contents that go aside in a move. What is said of them, where they came from once, how the node's room is waited for; and
 * the worker that waits for them to land.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/lib/futex.h"
#include "broker/lib/slot.h"
#include "broker/proto/aside.h"
#include "tests/unit/worker_broker.h"

#define WAY   7u
#define CHUNK (256u << 10)

/* A node between two workers: takes what @a has said aside, and lays it into @b's arena. */
struct between {
	struct client *a, *b;
	uint64_t head; /* of @b's arena */
	unsigned pieces;
	unsigned known; /* with an origin */
	unsigned boxes, images; /* of arrays, and parts of images */
	uint64_t bytes;
	bool late; /* pieces land behind their commands */
};

static struct session_aside *aside_of(const struct client *c)
{
	return (struct session_aside *)(void *)(c->shm.base + SESSION_AT_ASIDE);
}

static void aside_take(struct between *n, struct seen *s)
{
	uint8_t frame[512] __attribute__((aligned(8)));
	struct session_aside *words = aside_of(n->a);
	struct aside_hdr aside;
	struct frame_hdr hdr;
	struct bulk_ref ref;
	const uint8_t *bytes;

	CHECK(s->size >= sizeof(aside) + sizeof(hdr) + sizeof(ref) && s->size <= sizeof(frame));
	memcpy(&aside, s->payload, sizeof(aside));
	memcpy(frame, s->payload + sizeof(aside), s->size - sizeof(aside));
	memcpy(&hdr, frame, sizeof(hdr));
	memcpy(&ref, frame + sizeof(hdr), sizeof(ref));
	CHECK_EQUAL(aside.way, WAY);
	CHECK_EQUAL(aside.how, 0);
	CHECK(aside_carries(hdr.op));
	n->boxes += hdr.op == OP_gleamMoveArrayBulk;
	n->images += hdr.op == OP_gleamMoveImageBulk;
	CHECK_EQUAL(hdr.flags, FRAME_BULK_UP);
	CHECK_EQUAL(hdr.size, s->size - sizeof(aside));
	CHECK(ref.size > 0 && ref.size <= MOVE_ASIDE_MAX);
	CHECK(aside.position % SESSION_ASIDE_SIZE + ref.size <= SESSION_ASIDE_SIZE);
	bytes = n->a->shm.base + SESSION_AT_SAID + aside.position % SESSION_ASIDE_SIZE;
	n->pieces++;
	n->bytes += ref.size;
	n->known += aside.origin != ORIGIN_NONE;
	/* What was known of the bytes is true: they lie there in the client's arena, which nobody has used again. */
	if (aside.origin != ORIGIN_NONE)
		CHECK(memcmp(shm_up(&n->a->shm) + aside.origin % SESSION_UP_SIZE, bytes, ref.size) == 0);
	if (n->b) {
		if (n->head % SESSION_UP_SIZE + ref.size > SESSION_UP_SIZE)
			n->head += SESSION_UP_SIZE - n->head % SESSION_UP_SIZE;
		ref.cookie = n->head;
		ref.offset = (uint32_t)(n->head % SESSION_UP_SIZE);
		n->head += (ref.size + SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);
		memcpy(frame + sizeof(hdr), &ref, sizeof(ref));
		if (n->late) {
			frame_put(n->b, &hdr, frame + sizeof(hdr));
			pause_ms(2);
		}
		memcpy(shm_up(&n->b->shm) + ref.offset, bytes, ref.size);
		session_landed_post(&n->b->shm, ref.offset, ref.cookie);
		if (!n->late)
			frame_put(n->b, &hdr, frame + sizeof(hdr));
	}
	__atomic_store_n(&words->tail, aside.position + ref.size, __ATOMIC_RELEASE);
	__atomic_fetch_add(&words->room, 1, __ATOMIC_RELEASE);
	futex_wake(&words->room, 1);
	s->hdr.kind = FRAME_PAD;
}

/* Plays all that has been said so far, in its order. */
static void between_play(struct between *n)
{
	settle(n->a);
	for (struct seen *s = n->a->seen; s; s = s->next) {
		if (s->hdr.kind == FRAME_NOTICE && s->hdr.op == NOTICE_MOVE_ASIDE) {
			aside_take(n, s);
		} else if (is_said(s)) {
			CHECK(inner(s)->op != OP_gleamMoveBytes || word_of(s->payload + sizeof(struct frame_hdr), 8));
			CHECK(inner(s)->op != OP_gleamMoveImage);
			/* Zeros have no bytes. */
			CHECK(inner(s)->op != OP_gleamMoveArray || inner(s)->size < 128);
			if (n->b)
				frame_put(n->b, inner(s), s->payload + sizeof(struct frame_hdr));
			s->hdr.kind = FRAME_PAD;
		}
	}
}

/* A step by that way, until nothing is left. */
static void between_ask(struct between *n, uint32_t step)
{
	struct ans_gleamMoveOut a;
	struct reader r;
	struct seen *s;

	do {
		BROKER(n->a, gleamMoveOut, CTX_NONE, FRAME_WANTS_REPLY, .step = step, .limit = 64 * MIB, .way = WAY);
		for (s = NULL; !s;) {
			between_play(n);
			for (s = n->a->seen; s && !(s->hdr.kind == FRAME_REPLY && s->hdr.seq == 0); s = s->next)
				;
			pause_ms(1);
		}
		s->hdr.kind = FRAME_PAD;
		between_play(n);
		r = reader_on(s->payload, s->size);
		CHECK_EQUAL(get_u32(&r), 0);
		CHECK(ans_gleamMoveOut_get(&r, &a));
		CHECK(a.code == 0 || a.code == MOVE_NOT_READY);
	} while (a.code || a.left);
}

static void upload(struct client *c, uint64_t to, uint8_t *bytes, uint32_t size, uint32_t seed)
{
	struct bulk_ref piece = up_take(c, size);

	for (uint32_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)((seed = seed * 1664525 + 1013904223) >> 24);
	up_land(c, &piece, bytes);
	SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = LEGACY, .dst = to);
}

static void memory_is(struct client *c, uint64_t at, const uint8_t *bytes, uint32_t size)
{
	for (uint32_t done = 0; done < size; done += 4000) {
		uint32_t part = size - done < 4000 ? size - done : 4000;
		struct seen *s;

		CHECK_EQUAL(CALL(c, gleamCopyDown, &s, .stream = LEGACY, .src = at + done, .size = part), 0);
		/* A result, a size, and the bytes at a multiple of eight. */
		CHECK(memcmp(s->payload + 8, bytes + done, part) == 0);
	}
}

static uint8_t first[MIB], second[MIB];

static void there_and_on(struct client *a)
{
	struct client b;
	pid_t worker = worker_begin(&b);
	struct between n = { .a = a, .b = &b, .head = MOVE_UP_START };
	uint64_t p = map_memory(a, 4 * MIB), f = function(1);

	load(a, MODULE, f);
	grow(a, f, 100);
	array_make(a, ARRAY(1), 300, 300, 0);
	/* Rows that are longer than a command without its bytes aside. */
	array_make(a, ARRAY(2), 30000, 2, 0);
	/* Until it is the client's, what it uses up is ours. */
	b.consumed = MOVE_UP_START;
	b.up_head = 2 * MOVE_UP_START;
	CHECK_EQUAL(ask(a, MOVE_CHECK, 0).code, 0);
	upload(a, p + 1000, first, 700001, 1);
	upload(a, p + 2 * MIB, second, MIB, 2);
	SEND(a, gleamArrayCopy, .stream = LEGACY, .dst_array = ARRAY(1), .src = p + 2 * MIB, .src_pitch = 1200, .src_height = 300, .width = 1200,
	     .rows = 300, .depth = 1);
	SEND(a, gleamArrayCopy, .stream = LEGACY, .dst_array = ARRAY(2), .src = p + 2 * MIB, .src_pitch = 120000, .src_height = 2,
	     .width = 120000, .rows = 2, .depth = 1);
	/* Over the end of one, and behind both. */
	SEND(a, cuMemsetD8Async, .hStream = LEGACY, .dstDevice = p + 3 * MIB, .uc = 7, .N = CHUNK);
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = CTX), 0);
	between_ask(&n, MOVE_COPY);
	/* Three chunks and the one at each end of the first; four of the second; what was never uploaded. */
	CHECK_EQUAL(n.known, 3 + 4);
	CHECK(n.pieces > n.known);
	CHECK_EQUAL(n.boxes, 2 + 2 * 3);
	CHECK_EQUAL(n.images, 1);
	n.late = true;
	SEND(a, cuMemsetD8Async, .hStream = LEGACY, .dstDevice = p, .uc = 3, .N = 500);
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = CTX), 0);
	between_ask(&n, MOVE_LAST);
	CHECK_EQUAL(strlen(move_end(a, &b)), 0);
	/* It is the client's now, and nothing that came so can be taken for a piece of it. */
	for (uint32_t i = 0; i < SESSION_GRANULES; i++)
		CHECK_EQUAL(*shm_landed(&b.shm, i), 0);
	memory_is(&b, p + 1000, first, 700001);
	memory_is(&b, p + 2 * MIB, second, MIB);
	SEND(&b, gleamArrayCopy, .stream = LEGACY, .dst = p + MIB, .dst_pitch = 1200, .dst_height = 300, .src_array = ARRAY(1), .width = 1200,
	     .rows = 300, .depth = 1);
	memory_is(&b, p + MIB, second, 360000);
	SEND(&b, gleamArrayCopy, .stream = LEGACY, .dst = p + MIB, .dst_pitch = 120000, .dst_height = 2, .src_array = ARRAY(2),
	     .width = 120000, .rows = 2, .depth = 1);
	memory_is(&b, p + MIB, second, 240000);
	grow(&b, f, 1);
	CHECK_EQUAL(CALL(&b, gleamContextSync, NULL, .index = CTX), 0);
	upload(&b, p + MIB, first, MIB, 3);
	memory_is(&b, p + MIB, first, MIB);
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
}

/* More than there is room for: the worker waits, and goes on. */
static void waits_for_room(struct client *a)
{
	struct between n = { .a = a };
	uint64_t p = map_memory(a, 24 * MIB);

	SEND(a, cuMemsetD8Async, .hStream = LEGACY, .dstDevice = p, .uc = 7, .N = 24 * MIB);
	CHECK_EQUAL(CALL(a, gleamContextSync, NULL, .index = CTX), 0);
	between_ask(&n, MOVE_COPY);
	CHECK_EQUAL(n.bytes, 24 * MIB);
	CHECK_EQUAL(n.pieces, 24 * MIB / CHUNK);
	/* Without a way it says all that there is to say in its commands. */
	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	drop(a);
	ask_well(a, MOVE_COPY);
	CHECK_EQUAL(said(a, OP_gleamMoveBytes), 24 * MIB / CHUNK * 5);
	CHECK(!have_notice(a, NOTICE_MOVE_ASIDE));
}

/* A piece that never lands: whoever waits for it ends with its session. */
static void ends_while_it_waits(struct client *a)
{
	struct bulk_ref ref = { .size = CHUNK, .cookie = MOVE_UP_START };
	struct frame_hdr hdr = { .op = OP_gleamMoveBulk, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .flags = FRAME_BULK_UP };
	struct msg_gleamMoveBulk m = { .at = DEVICE_AT(a) };
	uint8_t payload[64] __attribute__((aligned(8)));
	struct writer w = writer_on(payload, sizeof(payload));
	struct client b;
	pid_t worker = worker_begin(&b);

	memcpy(payload, &ref, sizeof(ref));
	w.at = sizeof(ref);
	msg_gleamMoveBulk_put(&w, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + w.at);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	frame_put(&b, &hdr, payload);
	pause_ms(150);
	session_end(&b);
	CHECK_EQUAL(process_end(&b, worker), EXIT_DONE);
	/* Before its arena's beginning: no worker's node sends that. */
	worker = worker_begin(&b);
	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	ref.cookie = 0;
	memcpy(payload, &ref, sizeof(ref));
	frame_put(&b, &hdr, payload);
	CHECK_EQUAL(process_end(&b, worker), EXIT_PROTOCOL);
	/* And before it is to become anybody. */
	worker = worker_begin(&b);
	frame_put(&b, &hdr, payload);
	CHECK_EQUAL(process_end(&b, worker), EXIT_PROTOCOL);
}

/* Boxes that are no boxes of the array, and images that nobody has begun. */
static void aside_fails(struct client *a, uint16_t op, const void *message, size_t size, const char *why)
{
	struct bulk_ref ref = { .size = 64, .cookie = MOVE_UP_START };
	struct frame_hdr hdr = { .op = op, .kind = FRAME_COMMAND, .ctx = CTX, .flags = FRAME_BULK_UP };
	uint8_t payload[256] __attribute__((aligned(8)));
	struct client b;
	pid_t worker = worker_begin(&b);

	memcpy(payload, &ref, sizeof(ref));
	memcpy(payload + sizeof(ref), message, size);
	hdr.size = (uint32_t)(sizeof(hdr) + sizeof(ref) + size);
	CHECK_EQUAL(ask(a, MOVE_FORGET, 0).code, 0);
	ask_well(a, MOVE_COPY);
	play(a, &b);
	b.consumed = MOVE_UP_START;
	b.up_head = 2 * MOVE_UP_START;
	session_landed_post(&b.shm, 0, MOVE_UP_START);
	frame_put(&b, &hdr, payload);
	if (why) {
		CHECK(strstr(move_end(NULL, &b), why));
		session_end(&b);
	}
	CHECK_EQUAL(process_end(&b, worker), why ? EXIT_DONE : EXIT_PROTOCOL);
}

static void lies(struct client *a)
{
	/* array, level (4 bytes, and 4 between), x, y, z, width, rows */
	uint64_t box[7] = { ARRAY(1), UINT32_MAX, 0, 0, 0, 64, 1 }, part[2] = { MODULE, 0 };

	array_make(a, ARRAY(1), 16, 16, 0);
	box[3] = 16;
	aside_fails(a, OP_gleamMoveArrayBulk, box, sizeof(box), "gleamMoveArrayBulk gives 1 there");
	box[3] = 0;
	box[5] = 32;
	aside_fails(a, OP_gleamMoveArrayBulk, box, sizeof(box), NULL);
	box[0] = ARRAY(5);
	box[5] = 64;
	aside_fails(a, OP_gleamMoveArrayBulk, box, sizeof(box), "gleamMoveArrayBulk gives 400 there");
	aside_fails(a, OP_gleamMoveArrayBulk, box, sizeof(box) - 4, NULL);
	aside_fails(a, OP_gleamMoveImageBulk, part, sizeof(part), "too little memory for the images");
	aside_fails(a, OP_gleamMoveImageBulk, part, sizeof(part) - 4, NULL);
}

static void test_lies(void **state)
{
	(void)state;
	assert_true(session_run(lies, 0));
}

static void test_contents_arrive_and_go_on(void **state)
{
	(void)state;
	assert_true(session_run(there_and_on, 0));
}

static void test_room_is_waited_for(void **state)
{
	(void)state;
	assert_true(session_run(waits_for_room, 0));
}

static void test_a_session_ends_while_its_worker_waits(void **state)
{
	(void)state;
	assert_true(session_run(ends_while_it_waits, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_contents_arrive_and_go_on),
		cmocka_unit_test(test_room_is_waited_for),
		cmocka_unit_test(test_a_session_ends_while_its_worker_waits),
		cmocka_unit_test(test_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
