// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: what is ordered behind what, and that the executor never stands still.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/worker/completion.h"
#include "tests/unit/worker_session.h"

#define LEGACY WIRE_STREAM_LEGACY

static void memory_goes_there_and_back(struct client *c)
{
	uint64_t p, s;
	uint32_t value = 41;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	/* The piece came with somebody's bytes; it was wiped. */
	CHECK_EQUAL(read_u32(c, LEGACY, p), 0);
	SEND(c, gleamCopyUp, .stream = s, .dst = p, .data = &value, .data_size = 4);
	launch_add(c, s, p, 1);
	CHECK_EQUAL(read_u32(c, s, p), 42);
	SEND(c, gleamCopyDev, .stream = s, .dst = p + 64, .src = p, .size = 4);
	SEND(c, cuMemsetD8Async, .hStream = s, .dstDevice = p, .uc = 1, .N = 4);
	CHECK_EQUAL(read_u32(c, s, p + 64), 42);
	CHECK_EQUAL(read_u32(c, s, p), 0x01010101);
	CHECK_EQUAL(c->fake.ask(FAKE_PAGEABLE), 0);
}

static void progress_comes_without_asking(struct client *c)
{
	uint64_t p, s, last;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 7, 1);
	last = launch_add(c, s, p, 1);
	wait_progress(c, 7, last);
	last = launch_add(c, LEGACY, p, 1);
	wait_progress(c, PROGRESS_STREAMS + CTX, last);
	last = launch_hold(c, s);
	pause_ms(20);
	CHECK(!reached(c, 7, last));
	c->fake.release(1);
	wait_progress(c, 7, last);
}

/* More than the driver takes: the rest waits in the worker, and another stream does not notice. */
static void full_stream_parks_alone(struct client *c)
{
	uint64_t p, a, b, sync;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 1);
	b = stream(c, 2, 1);
	launch_hold(c, a);
	for (int i = 0; i < 3000; i++)
		launch_add(c, a, p, 1);
	sync = SEND_FLAGS(c, gleamStreamSync, FRAME_WANTS_REPLY, NULL, .stream = a);
	for (int i = 0; i < 100; i++)
		launch_add(c, b, p + 64, 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = b), 0);
	CHECK_EQUAL(read_u32(c, b, p + 64), 100);
	CHECK(!have_reply(c, sync));
	CHECK(c->fake.ask(FAKE_PENDING_MOST) < 1000);
	c->fake.release(1);
	CHECK_EQUAL(wait_reply(c, sync, NULL), 0);
	CHECK_EQUAL(read_u32(c, a, p), 3000);
	CHECK(c->fake.ask(FAKE_PENDING_MOST) < 1000);
	CHECK_EQUAL(c->worker.parked_count, 0);
	CHECK_EQUAL(c->worker.parked_bytes, 0);
}

/* A legacy command waits for what is parked on blocking streams, and what comes after waits for it. */
static void legacy_stream_keeps_its_rule(struct client *c)
{
	uint64_t p, a, free_stream;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 0);
	free_stream = stream(c, 2, 1);
	launch_hold(c, a);
	for (int i = 0; i < 900; i++)
		launch_add(c, a, p, 1);
	SEND(c, gleamCopyDev, .stream = LEGACY, .dst = p + 64, .src = p, .size = 4);
	launch_add(c, a, p, 1000);
	SEND(c, gleamCopyDev, .stream = LEGACY, .dst = p + 128, .src = p, .size = 4);
	/* One that does not synchronise with the legacy stream goes on. */
	launch_add(c, free_stream, p + 192, 5);
	CHECK_EQUAL(read_u32(c, free_stream, p + 192), 5);
	c->fake.release(1);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	CHECK_EQUAL(read_u32(c, free_stream, p + 64), 900);
	CHECK_EQUAL(read_u32(c, free_stream, p + 128), 1900);
}

static void legacy_full_holds_blocking_streams(struct client *c)
{
	uint64_t p, a;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 0);
	launch_hold(c, LEGACY);
	for (int i = 0; i < 900; i++)
		launch_add(c, LEGACY, p, 1);
	SEND(c, gleamCopyDev, .stream = a, .dst = p + 64, .src = p, .size = 4);
	launch_add(c, LEGACY, p, 7);
	c->fake.release(1);
	CHECK_EQUAL(read_u32(c, a, p + 64), 900);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	CHECK_EQUAL(read_u32(c, a, p), 907);
}

/* The record is parked behind a full stream: a wait for it on another stream must not see an older one. */
static void parked_record_orders_other_streams(struct client *c)
{
	uint64_t event = handle_make(OBJECT_EVENT, 3, 9);
	uint64_t p, a, b, last;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 1);
	b = stream(c, 2, 1);
	SEND(c, cuEventCreate, .phEvent = event, .Flags = 0);
	SEND(c, cuEventRecord, .hStream = a, .hEvent = event);
	launch_hold(c, a);
	for (int i = 0; i < 900; i++)
		launch_add(c, a, p, 1);
	SEND(c, cuEventRecord, .hStream = a, .hEvent = event);
	SEND(c, cuStreamWaitEvent, .hStream = b, .hEvent = event, .Flags = 0);
	last = SEND(c, gleamCopyDev, .stream = b, .dst = p + 64, .src = p, .size = 4);
	pause_ms(10);
	CHECK(!reached(c, 2, last));
	/* Its time can't be told yet, also where the driver knows an older record. */
	CHECK_EQUAL(CALL(c, cuEventElapsedTime_v2, NULL, .hStart = event, .hEnd = event), CUDA_ERROR_NOT_READY);
	c->fake.release(1);
	CHECK_EQUAL(read_u32(c, b, p + 64), 900);
	CHECK_EQUAL(CALL(c, cuEventElapsedTime_v2, NULL, .hStart = event, .hEnd = event), 0);
}

/* Destroying what parked commands use, and using the same index again at once. */
static void death_waits_for_parked_commands(struct client *c)
{
	uint64_t old = handle_make(OBJECT_EVENT, 1, 5);
	uint64_t new = handle_make(OBJECT_EVENT, 2, 5);
	uint64_t p, a, b;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 1);
	b = stream(c, 2, 1);
	SEND(c, cuEventCreate, .phEvent = old, .Flags = 0);
	launch_hold(c, a);
	for (int i = 0; i < 900; i++)
		launch_add(c, a, p, 1);
	SEND(c, cuEventRecord, .hStream = a, .hEvent = old);
	SEND(c, cuStreamWaitEvent, .hStream = b, .hEvent = old, .Flags = 0);
	SEND(c, gleamCopyDev, .stream = b, .dst = p + 64, .src = p, .size = 4);
	SEND(c, cuEventDestroy_v2, .hEvent = old);
	SEND(c, cuEventCreate, .phEvent = new, .Flags = 0);
	SEND(c, cuEventRecord, .hStream = b, .hEvent = new);
	SEND(c, cuStreamDestroy_v2, .hStream = a);
	uint64_t again = handle_make(OBJECT_STREAM, 2, 1);
	uint64_t last;

	SEND(c, cuStreamCreateWithPriority, .phStream = again, .flags = 1, .priority = 0);
	last = launch_add(c, again, p + 128, 3);
	/* It runs, but the word still speaks of the old stream, whose events may be asked for. */
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = again), 0);
	CHECK(!reached(c, 1, last));
	c->fake.release(1);
	wait_progress(c, 1, last);
	CHECK_EQUAL(read_u32(c, b, p + 64), 900);
	CHECK_EQUAL(read_u32(c, again, p + 128), 3);
	settle(c);
	CHECK(!have_notice(c, NOTICE_ERROR));
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/*
 * What the driver would wait for before it changes a limit includes what is parked here: who sets it waits, and nobody else does. Limits
 * that the driver changes at once are changed at once.
 */
static void limit_waits_for_parked_commands(struct client *c)
{
	uint64_t event = handle_make(OBJECT_EVENT, 1, 5);
	uint64_t p, a, b, limit;
	unsigned int before;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	a = stream(c, 1, 1);
	b = stream(c, 2, 1);
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_STACK_SIZE, .value = 4096), 0);
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_STACK_SIZE, .value = 1u << 30), CUDA_ERROR_INVALID_VALUE);
	before = c->fake.calls("cuCtxSetLimit");
	SEND(c, cuEventCreate, .phEvent = event, .Flags = 0);
	launch_hold(c, a);
	for (int i = 0; i < 900; i++)
		launch_add(c, a, p, 1);
	limit = SEND_FLAGS(c, cuCtxSetLimit, FRAME_WANTS_REPLY, NULL, .limit = CU_LIMIT_STACK_SIZE, .value = 2048);
	SEND(c, cuEventDestroy_v2, .hEvent = event);
	launch_add(c, b, p + 64, 5);
	CHECK_EQUAL(read_u32(c, b, p + 64), 5);
	CHECK(!have_reply(c, limit));
	CHECK_EQUAL(c->fake.calls("cuCtxSetLimit"), before);
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_PRINTF_FIFO_SIZE, .value = 2 << 20), 0);
	/* As it is. */
	CHECK_EQUAL(CALL(c, cuCtxSetLimit, NULL, .limit = CU_LIMIT_STACK_SIZE, .value = 4096), 0);
	CHECK(!have_reply(c, limit));
	before += 2;
	c->fake.release(1);
	CHECK_EQUAL(wait_reply(c, limit, NULL), 0);
	CHECK_EQUAL(c->fake.calls("cuCtxSetLimit"), before + 1);
	CHECK_EQUAL(read_u32(c, a, p), 900);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	CHECK_EQUAL(c->worker.parked_count, 0);
}

static void host_function_stops_its_stream(struct client *c)
{
	uint64_t p, s, other, call, after;
	struct seen *seen;
	struct reader r;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	other = stream(c, 2, 1);
	launch_add(c, s, p, 1);
	call = SEND(c, gleamHostFunc, .stream = s, .id = 99);
	after = launch_add(c, s, p, 10);
	seen = wait_notice(c, NOTICE_HOST_CALL);
	r = reader_on(seen->payload, seen->size);
	CHECK_EQUAL(get_u64(&r), 99);
	CHECK_EQUAL(read_u32(c, other, p), 1);
	/* All before it is done; it is not. */
	CHECK(reached(c, 1, call - 1));
	CHECK(!reached(c, 1, call));
	SEND(c, gleamHostDone, .id = 99);
	wait_progress(c, 1, after);
	CHECK_EQUAL(read_u32(c, other, p), 11);
	/* The words come back: more functions than there are words. */
	for (uint64_t i = 0; i < 300; i++) {
		SEND(c, gleamHostFunc, .stream = s, .id = i);
		wait_notice(c, NOTICE_HOST_CALL);
		SEND(c, gleamHostDone, .id = i);
	}
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
}

/* A driver that waits for the context when it makes a stream: it would wait for a function whose end only the executor hears of. */
static void streams_are_made_beside_a_host_function(struct client *c)
{
	uint64_t p, s, next, last = 0;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	/* Not loaded at its first launch: that would wait, too. */
	launch_add(c, s, p, 1);
	SEND(c, gleamHostFunc, .stream = s, .id = 5);
	wait_notice(c, NOTICE_HOST_CALL);
	c->fake.wait_in("cuStreamCreateWithPriority");
	for (uint32_t i = 0; i < SPARES; i++) {
		/* That does not wait for the legacy stream, nor it for this one. */
		next = stream(c, 2 + i, 1);
		last = launch_add(c, next, p, 1);
		wait_progress(c, 2 + i, last);
	}
	/* There are no more: the worker's thread waits in the driver, and the end of the function is heard of all the same. */
	next = stream(c, 2 + SPARES, 1);
	last = launch_add(c, next, p, 1);
	pause_ms(20);
	CHECK(!reached(c, 2 + SPARES, last));
	SEND(c, gleamHostDone, .id = 5);
	wait_progress(c, 2 + SPARES, last);
	CHECK_EQUAL(read_u32(c, s, p), SPARES + 2);
	/* They are made again with the next function. */
	SEND(c, gleamHostFunc, .stream = s, .id = 6);
	wait_notice(c, NOTICE_HOST_CALL);
	next = stream(c, 3 + SPARES, 1);
	wait_progress(c, 3 + SPARES, launch_add(c, next, p, 1));
	SEND(c, gleamHostDone, .id = 6);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
}

/* The end of a function is heard of while the worker's thread is in the driver, but doesn't overtake bytes that were there before. */
static void ends_of_host_functions_are_heard_early(struct client *c)
{
	uint64_t p, s, call;
	uint32_t bytes = 7;

	open_context(c);
	p = map_memory(c, 4096);
	load_functions(c);
	s = stream(c, 1, 1);
	for (uint32_t id = 0; id < 50; id++) {
		call = SEND(c, gleamHostFunc, .stream = s, .id = id);
		wait_notice(c, NOTICE_HOST_CALL);
		c->fake.wait_in("cuEventCreate");
		SEND(c, cuEventCreate, .phEvent = handle_make(OBJECT_EVENT, 3, 9 + id), .Flags = 0);
		if (id % 10 == 9) {
			SEND(c, gleamCopyUp, .stream = s, .dst = p, .data = (uint8_t *)&bytes, .data_size = sizeof(bytes));
			SEND(c, gleamHostDone, .id = id);
			pause_ms(10);
			CHECK(!reached(c, 1, call));
			c->fake.wait_in(NULL);
		} else {
			SEND(c, gleamHostDone, .id = id);
		}
		CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	}
	CHECK_EQUAL(read_u32(c, s, p), 7);
}

static void few_blocks(struct client *c)
{
	c->worker.settings.staging_small = 2;
	c->worker.settings.staging_large = 2;
}

/* The completion thread may hold the lock for a while: a launch does without. */
static void launch_takes_no_lock(struct client *c)
{
	uint64_t p, s;
	unsigned int before, now;

	open_context(c);
	p = map_memory(c, 2 << 20);
	load_functions(c);
	s = stream(c, 1, 1);
	launch_add(c, s, p, 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	settle(c);
	before = c->fake.calls("cuLaunchKernel");
	pthread_mutex_lock(&c->worker.lock);
	launch_add(c, s, p, 1);
	for (int i = 0; i < 5000 && c->fake.calls("cuLaunchKernel") == before; i++)
		pause_ms(1);
	now = c->fake.calls("cuLaunchKernel");
	pthread_mutex_unlock(&c->worker.lock);
	CHECK_EQUAL(now, before + 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
}

/* Staging runs out behind a kernel that does not end: the stream parks, others take what comes back. */
static void staging_is_waited_for(struct client *c)
{
	uint64_t p, s;
	uint8_t bytes[20000];

	open_context(c);
	p = map_memory(c, 2 << 20);
	load_functions(c);
	s = stream(c, 1, 1);
	launch_hold(c, s);
	for (int i = 0; i < 50; i++) {
		memset(bytes, i, sizeof(bytes));
		SEND(c, gleamCopyUp, .stream = s, .dst = p + (uint64_t)i * sizeof(bytes), .data = bytes,
		     .data_size = i % 2 ? sizeof(bytes) : 4);
	}
	pause_ms(10);
	c->fake.release(1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), 0);
	for (int i = 0; i < 50; i++)
		CHECK_EQUAL(read_u32(c, s, p + (uint64_t)i * sizeof(bytes)), 0x01010101u * (unsigned int)i);
}

/* Whoever waits ends a nap of the completion thread; what only counts lets it nap, but not sleep. */
static void test_waiting_ends_naps(void **state)
{
	static struct worker w;

	(void)state;
	w.watch_sleeps = WATCH_NAPS;
	completion_wake(&w);
	assert_int_equal(w.watch_sleeps, WATCH_NAPS);
	assert_int_equal(w.watch_bell, 0);
	completion_hurry(&w);
	assert_int_equal(w.watch_sleeps, WATCH_LOOKS);
	/* What it sleeps on has changed, also if it is only about to nap. */
	assert_int_equal(w.watch_bell, 1);
	completion_hurry(&w);
	assert_int_equal(w.watch_bell, 2);
	w.watch_sleeps = WATCH_SLEEPS;
	completion_wake(&w);
	assert_int_equal(w.watch_sleeps, WATCH_LOOKS);
	assert_int_equal(w.watch_bell, 3);
}

#define IN_CHILD(name, prepare)                                                                                        \
	static void test_##name(void **state)                                                                         \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, prepare));                                                                 \
	}
IN_CHILD(memory_goes_there_and_back, NULL)
IN_CHILD(progress_comes_without_asking, NULL)
IN_CHILD(full_stream_parks_alone, NULL)
IN_CHILD(legacy_stream_keeps_its_rule, NULL)
IN_CHILD(legacy_full_holds_blocking_streams, NULL)
IN_CHILD(parked_record_orders_other_streams, NULL)
IN_CHILD(death_waits_for_parked_commands, NULL)
IN_CHILD(limit_waits_for_parked_commands, NULL)
IN_CHILD(host_function_stops_its_stream, NULL)
IN_CHILD(streams_are_made_beside_a_host_function, NULL)
IN_CHILD(ends_of_host_functions_are_heard_early, NULL)
IN_CHILD(launch_takes_no_lock, NULL)
IN_CHILD(staging_is_waited_for, few_blocks)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_goes_there_and_back),
		cmocka_unit_test(test_progress_comes_without_asking),
		cmocka_unit_test(test_full_stream_parks_alone),
		cmocka_unit_test(test_legacy_stream_keeps_its_rule),
		cmocka_unit_test(test_legacy_full_holds_blocking_streams),
		cmocka_unit_test(test_parked_record_orders_other_streams),
		cmocka_unit_test(test_death_waits_for_parked_commands),
		cmocka_unit_test(test_limit_waits_for_parked_commands),
		cmocka_unit_test(test_host_function_stops_its_stream),
		cmocka_unit_test(test_streams_are_made_beside_a_host_function),
		cmocka_unit_test(test_ends_of_host_functions_are_heard_early),
		cmocka_unit_test(test_launch_takes_no_lock),
		cmocka_unit_test(test_waiting_ends_naps),
		cmocka_unit_test(test_staging_is_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
