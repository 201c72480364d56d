// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: failures that are told later, lost contexts, and clients that do not keep the rules.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/worker_session.h"

#define LEGACY WIRE_STREAM_LEGACY

static uint64_t launch_refused(struct client *c, uint64_t s)
{
	return SEND(c, gleamLaunch, .stream = s, .function = function(FUNCTION_HOLD), .grid_x = 0, .grid_y = 1, .grid_z = 1,
		    .block_x = 1, .block_y = 1, .block_z = 1);
}

static void first_failure_is_kept_until_told(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = 4096 };
	struct bulk_ref piece;
	uint64_t event = handle_make(OBJECT_EVENT, 1, 1);
	uint64_t p, s, bad;
	struct seen *seen;
	struct reader r;
	char line[1024] = "";
	int said, usual;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	launch_add(c, s, p, 1);
	/* The worker's log names the kernel. */
	CHECK((said = memfd_create("said", MFD_CLOEXEC)) >= 0 && (usual = dup(STDERR_FILENO)) >= 0 && dup2(said, STDERR_FILENO) >= 0);
	bad = launch_refused(c, s);
	/* Skipped: the program would not have come here. What they hold comes back. */
	launch_add(c, s, p, 100);
	piece = up_take(c, 4);
	SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = p);
	SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = s, .src = p, .size = 4096);
	SEND(c, cuEventCreate, .phEvent = event, .Flags = 0);
	seen = wait_notice(c, NOTICE_ERROR);
	CHECK(dup2(usual, STDERR_FILENO) >= 0);
	CHECK(pread(said, line, sizeof(line) - 1, 0) > 0);
	CHECK(strstr(line, "the launch of hold failed with 1: grid 0 1 1"));
	close(usual);
	close(said);
	r = reader_on(seen->payload, seen->size);
	CHECK_EQUAL(get_u32(&r), CTX);
	CHECK_EQUAL(get_u32(&r), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(get_u32(&r), OP_gleamLaunch);
	CHECK_EQUAL(seen->hdr.seq, bad);
	seen = wait_notice(c, NOTICE_LANDED);
	CHECK_EQUAL(seen->bulk.size, 0);
	/* Not before its bytes have come: they would be written over the next piece there. */
	pause_ms(10);
	settle(c);
	CHECK(c->consumed <= piece.cookie);
	up_land(c, &piece, "abcd");
	wait_consumed(c, c->up_head);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
	/* Told once. */
	CHECK(!have_notice(c, NOTICE_ERROR));
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	CHECK_EQUAL(read_u32(c, s, p), 1);
	launch_add(c, s, p, 10);
	SEND(c, cuEventRecord, .hStream = s, .hEvent = event);
	CHECK_EQUAL(read_u32(c, s, p), 11);
}

static void lost_context_ends_all_waits(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = 4096 };
	uint64_t p, a, b, sync_a, sync_b, sync_c;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 1);
	b = stream(c, 2, 1);
	launch_hold(c, b);
	for (int i = 0; i < 900; i++)
		launch_add(c, b, p, 1);
	sync_b = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = b);
	SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = b, .src = p, .size = 4096);
	launch_crash(c, a);
	sync_a = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = a);
	sync_c = SEND_FLAGS(c, gleamContextSync, FRAME_WANTS_REPLY, NULL, .index = CTX);
	CHECK_EQUAL(wait_reply(c, sync_a, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_EQUAL(wait_reply(c, sync_b, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_EQUAL(wait_reply(c, sync_c, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_EQUAL(wait_notice(c, NOTICE_LANDED)->bulk.size, 0);
	wait_notice(c, NOTICE_ERROR);
	/* It stays lost. */
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = a), CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK_EQUAL(CALL(c, gleamCopyDown, NULL, .stream = LEGACY, .src = p, .size = 4), CUDA_ERROR_ILLEGAL_ADDRESS);
	/* Until it is given back: then another one works, with the worker's memory registered again. */
	SEND(c, gleamContextClose, .index = CTX);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
	c->fake.release(1);
	CHECK_EQUAL(read_u32(c, LEGACY, p), 0);
	a = handle_make(OBJECT_STREAM, 2, 1);
	SEND(c, cuStreamCreateWithPriority, .phStream = a, .flags = 1, .priority = 0);
	wait_progress(c, 1, SEND(c, cuMemsetD8Async, .hStream = a, .dstDevice = p, .uc = 7, .N = 4));
	CHECK_EQUAL(read_u32(c, LEGACY, p), 0x07070707);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

static void contexts_are_apart(struct client *c)
{
	uint64_t s;

	open_context(c);
	load_functions(c);
	s = stream(c, 1, 1);
	SEND(c, gleamContextOpen, .index = 5, .device = 0, .primary = 0);
	launch_refused(c, s);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_VALUE);
	SEND(c, gleamContextClose, .index = 5);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = 5), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	/* Given back with everything in it: stale handles are told from live ones. */
	SEND(c, gleamContextClose, .index = CTX);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/* While the driver destroys a stream, nobody asks it about that one: it would be taken for a context that is lost. */
static void destroyed_streams_are_not_asked_about(struct client *c)
{
	uint64_t s;

	open_context(c);
	load_functions(c);
	s = stream(c, 1, 1);
	launch_hold(c, s);
	SEND(c, cuStreamDestroy_v2, .hStream = s);
	pause_ms(40); /* it takes the fake driver 20 */
	c->fake.release(1);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	CHECK(!have_notice(c, NOTICE_ERROR));
}

/* The driver refuses progress writes: whoever waits hears of it. */
static void failing_words_hang_nobody(struct client *c)
{
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	c->fake.plan("cuStreamWriteValue32_v2", CUDA_ERROR_UNKNOWN, 0);
	launch_add(c, s, p, 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_UNKNOWN);
}

static void failing_copies_give_everything_back(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = 4096 };
	struct bulk_ref piece;
	uint64_t p, s;
	uint32_t value = 1;

	open_context(c);
	p = map_memory(c, 4096);
	s = stream(c, 1, 1);
	for (int i = 0; i < 200; i++) {
		c->fake.plan("cuMemcpyHtoDAsync_v2", CUDA_ERROR_INVALID_VALUE, 0);
		SEND(c, gleamCopyUp, .stream = s, .dst = p, .data = &value, .data_size = 4);
		CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
		c->fake.plan("cuMemcpyDtoHAsync_v2", CUDA_ERROR_INVALID_VALUE, 0);
		CHECK_EQUAL(CALL(c, gleamCopyDown, NULL, .stream = s, .src = p, .size = 4), CUDA_ERROR_INVALID_VALUE);
	}
	c->fake.plan("cuMemcpyHtoDAsync_v2", CUDA_ERROR_INVALID_VALUE, 0);
	piece = up_take(c, 100);
	up_land(c, &piece, "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789");
	SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &piece, .stream = s, .dst = p);
	wait_consumed(c, c->up_head);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
	c->fake.plan("cuMemcpyDtoHAsync_v2", CUDA_ERROR_INVALID_VALUE, 0);
	SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &cells, .stream = s, .src = p, .size = 4);
	CHECK_EQUAL(wait_notice(c, NOTICE_LANDED)->bulk.size, 0);
}

static void stale_handles_are_failures_only(struct client *c)
{
	uint64_t stale = handle_make(OBJECT_STREAM, 7, 3);

	open_context(c);
	load_functions(c);
	launch_add(c, stale, 0, 0);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = stale), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = function(FUNCTION_ADD)), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamMemInfo, NULL, .device = 5), CUDA_ERROR_INVALID_DEVICE);
	SEND(c, cuEventRecord, .hStream = LEGACY, .hEvent = handle_make(OBJECT_EVENT, 1, 1));
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), CUDA_ERROR_INVALID_HANDLE);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/* ---- who does not keep the rules ---- */

static void unknown_op(struct client *c)
{
	send_frame(c, OP_MAX + 3, 0, NULL, NULL, 0);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void hole_in_the_numbers(struct client *c)
{
	c->seq += 5;
	send_frame(c, OP_gleamHostDone, 0, NULL, "12345678", 8);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void truncated_message(struct client *c)
{
	open_context(c);
	send_frame(c, OP_gleamMap, 0, NULL, "1234", 4);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void reference_outside_the_arena(struct client *c)
{
	struct bulk_ref ref = { .offset = SESSION_UP_SIZE - SESSION_GRANULE, .size = SESSION_GRANULE + 1,
				.cookie = SESSION_UP_SIZE - SESSION_GRANULE };

	open_context(c);
	SEND_FLAGS(c, gleamCopyUpBulk, FRAME_BULK_UP, &ref, .stream = LEGACY, .dst = 0);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void cells_outside_the_arena(struct client *c)
{
	struct bulk_ref ref = { .offset = SESSION_DOWN_SIZE - SESSION_CELL_SIZE, .size = SESSION_CELL_SIZE + 1 };

	open_context(c);
	SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &ref, .stream = LEGACY, .src = DEVICE_AT(c), .size = 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void more_bytes_than_cells(struct client *c)
{
	struct bulk_ref ref = { .offset = 0, .size = 100 };

	open_context(c);
	SEND_FLAGS(c, gleamCopyDownLate, FRAME_BULK_DOWN, &ref, .stream = LEGACY, .src = DEVICE_AT(c), .size = 101);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void pieces_that_are_not_ones_own(struct client *c)
{
	uint64_t pieces[2] = { 77 << 8, 1 << 8 };

	open_context(c);
	map_memory(c, 4096);
	SEND(c, gleamMap, .address = DEVICE_AT(c) + (1ull << 35), .device = 0, .pieces = pieces, .pieces_count = 2);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void address_of_another_range(struct client *c)
{
	struct ans_gleamGrant a;
	struct seen *s;
	struct reader r;

	open_context(c);
	CHECK_EQUAL(CALL(c, gleamGrant, &s, .device = 0, .bytes = 1), 0);
	r = reader_on(s->payload, s->size);
	get_u32(&r);
	CHECK(ans_gleamGrant_get(&r, &a));
	SEND(c, gleamMap, .address = DEVICE_AT(c) - (2u << 20), .device = 0, .pieces = a.pieces, .pieces_count = 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void image_part_outside(struct client *c)
{
	uint64_t module = handle_make(OBJECT_MODULE, 1, 1);
	struct bulk_ref piece = up_take(c, 100);

	open_context(c);
	SEND(c, gleamLoadBegin, .object = module, .total_size = 100);
	SEND_FLAGS(c, gleamLoadPart, FRAME_BULK_UP, &piece, .object = module, .offset = 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void ring_head_of_a_liar(struct client *c)
{
	__atomic_store_n(&c->c2n.ctl->head, 1ull << 40, __ATOMIC_RELEASE);
	executor_wake(&c->worker);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

/* Well-formed frames with any content at all: failures, or the end of the session, and nothing else. */
static unsigned int garbage_seed;

static void garbage(struct client *c)
{
	unsigned int seed = garbage_seed;
	uint8_t payload[256];

	open_context(c);
	map_memory(c, 8 << 20);
	load_functions(c);
	stream(c, 1, 0);
	stream(c, 2, 1);
	for (int i = 0; i < 400 && __atomic_load_n(&c->exit_code, __ATOMIC_ACQUIRE) < 0; i++) {
		struct bulk_ref ref = { .offset = (unsigned int)(rand_r(&seed) % 8) * SESSION_CELL_SIZE,
					.size = (unsigned int)rand_r(&seed) % 100000 };
		uint32_t size = (unsigned int)rand_r(&seed) % sizeof(payload);
		uint16_t op;
		uint8_t flags;

		do
			op = (uint16_t)(rand_r(&seed) % OP_MAX);
		while (!op_info[op].name);
		for (uint32_t k = 0; k < size; k++)
			payload[k] = rand_r(&seed) % 3 ? 0 : (uint8_t)rand_r(&seed);
		if (op_info[op].flags & OP_SCOPE_STREAM) {
			uint64_t s = rand_r(&seed) % 2 ? handle_make(OBJECT_STREAM, 1, 1 + (unsigned int)rand_r(&seed) % 2) : 1;

			memcpy(payload, &s, 8);
		}
		/* Addresses of the test's own process would be written to by the fake GPU: those are the fake's matter. */
		if (op == OP_cuStreamWaitValue32_v2 || op == OP_cuStreamWriteValue32_v2 || op == OP_gleamCopyDev ||
		    op == OP_gleamCopyDev2D || op == OP_gleamCopyDown || op == OP_gleamCopyDownBulk ||
		    op == OP_gleamCopyDownLate || op == OP_gleamCopyDown2D || op == OP_gleamCopyUp ||
		    op == OP_gleamCopyUpBulk || op == OP_gleamCopyUp2D || op == OP_cuMemsetD8Async || op == OP_gleamLaunch ||
		    op == OP_gleamHostRange)
			size = size > 12 ? 12 : size;
		flags = (op_info[op].flags & OP_HAS_REPLY ? FRAME_WANTS_REPLY : 0) |
			(op_info[op].flags & OP_BULK_DOWN ? FRAME_BULK_DOWN : 0) |
			(op_info[op].flags & OP_BULK_UP ? FRAME_BULK_UP : 0);
		send_frame(c, op, flags, flags & (FRAME_BULK_DOWN | FRAME_BULK_UP) ? &ref : NULL, payload, size);
		settle(c);
	}
}

static void test_garbage_is_survived(void **state)
{
	(void)state;
	for (garbage_seed = 1; garbage_seed <= 40; garbage_seed++)
		assert_true(child_run(garbage, NULL));
}

#define IN_CHILD(name, prepare)                                                                                        \
	static void test_##name(void **state)                                                                         \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, prepare));                                                                 \
	}
IN_CHILD(first_failure_is_kept_until_told, NULL)
IN_CHILD(lost_context_ends_all_waits, NULL)
IN_CHILD(contexts_are_apart, NULL)
IN_CHILD(destroyed_streams_are_not_asked_about, NULL)
IN_CHILD(failing_words_hang_nobody, NULL)
IN_CHILD(failing_copies_give_everything_back, NULL)
IN_CHILD(stale_handles_are_failures_only, NULL)
IN_CHILD(unknown_op, NULL)
IN_CHILD(hole_in_the_numbers, NULL)
IN_CHILD(truncated_message, NULL)
IN_CHILD(reference_outside_the_arena, NULL)
IN_CHILD(cells_outside_the_arena, NULL)
IN_CHILD(more_bytes_than_cells, NULL)
IN_CHILD(pieces_that_are_not_ones_own, NULL)
IN_CHILD(address_of_another_range, NULL)
IN_CHILD(image_part_outside, NULL)
IN_CHILD(ring_head_of_a_liar, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_failure_is_kept_until_told),
		cmocka_unit_test(test_lost_context_ends_all_waits),
		cmocka_unit_test(test_contexts_are_apart),
		cmocka_unit_test(test_destroyed_streams_are_not_asked_about),
		cmocka_unit_test(test_failing_words_hang_nobody),
		cmocka_unit_test(test_failing_copies_give_everything_back),
		cmocka_unit_test(test_stale_handles_are_failures_only),
		cmocka_unit_test(test_unknown_op),
		cmocka_unit_test(test_hole_in_the_numbers),
		cmocka_unit_test(test_truncated_message),
		cmocka_unit_test(test_reference_outside_the_arena),
		cmocka_unit_test(test_cells_outside_the_arena),
		cmocka_unit_test(test_more_bytes_than_cells),
		cmocka_unit_test(test_pieces_that_are_not_ones_own),
		cmocka_unit_test(test_address_of_another_range),
		cmocka_unit_test(test_image_part_outside),
		cmocka_unit_test(test_ring_head_of_a_liar),
		cmocka_unit_test(test_garbage_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
