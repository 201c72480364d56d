// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: which host functions are told of before the ones before them have returned, and which are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker_session.h"

#define LEGACY WIRE_STREAM_LEGACY

/* Streams by index. */
enum { COMPUTE = 1, CALLS, OTHER };

struct rig {
	struct client *c;
	uint64_t p, compute, calls, event;
};

static struct rig rig_make(struct client *c)
{
	struct rig r = { .c = c, .event = handle_make(OBJECT_EVENT, 3, 9) };

	open_context(c);
	r.p = map_memory(c, 4096);
	load_functions(c);
	r.compute = stream(c, COMPUTE, 1);
	r.calls = stream(c, CALLS, 1);
	SEND(c, cuEventCreate, .phEvent = r.event, .Flags = 0);
	/* The first launch of a kernel waits until no function is outstanding. */
	launch_hold(c, r.compute);
	launch_add(c, r.compute, r.p, 0);
	c->fake.release(1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = r.compute), 0);
	return r;
}

static uint64_t event_of(const struct rig *r, uint64_t on)
{
	SEND(r->c, cuEventRecord, .hStream = on, .hEvent = r->event);
	return r->event;
}

static void wait_on(const struct rig *r, uint64_t stream)
{
	SEND(r->c, cuStreamWaitEvent, .hStream = stream, .hEvent = r->event, .Flags = 0);
}

static uint64_t function_on(const struct rig *r, uint64_t stream, uint64_t id)
{
	return SEND(r->c, gleamHostFunc, .stream = stream, .id = id);
}

/* The next one that is told is @id. */
static void told(struct client *c, uint64_t id)
{
	struct seen *seen = wait_notice(c, NOTICE_HOST_CALL);
	struct reader r = reader_on(seen->payload, seen->size);

	CHECK_EQUAL(get_u64(&r), id);
}

static void is_not_told(struct client *c)
{
	pause_ms(20);
	settle(c);
	CHECK(!have_notice(c, NOTICE_HOST_CALL));
}

static void done(struct client *c, uint64_t id)
{
	SEND(c, gleamHostDone, .id = id);
}

/* What a program does that wants to hear of each of its computations. */
static void told_behind_events(struct client *c)
{
	enum { COUNT = 100 };
	struct rig r = rig_make(c);
	uint64_t first = 0, last = 0, calls[COUNT];

	for (uint64_t turn = 0; turn < 3; turn++) {
		for (uint64_t i = 0; i < COUNT; i++) {
			launch_add(c, r.compute, r.p, 1);
			event_of(&r, r.compute);
			wait_on(&r, r.calls);
			calls[i] = function_on(&r, r.calls, i);
			/* They only ask. */
			if (i % 10 == 3)
				SEND(c, gleamFlush, .stream = r.calls);
		}
		first = calls[0];
		last = launch_add(c, r.calls, r.p + 64, 1);
		for (uint64_t i = 0; i < COUNT; i++)
			told(c, i);
		/* The stream itself has not come past any. */
		CHECK(!reached(c, CALLS, first));
		for (uint64_t i = 0; i < COUNT; i++) {
			CHECK(!reached(c, CALLS, calls[i]));
			done(c, i);
			if (i % 16 == 0)
				wait_progress(c, CALLS, calls[i]);
		}
		wait_progress(c, CALLS, last);
		CHECK_EQUAL(read_u32(c, r.calls, r.p + 64), turn + 1);
		settle(c);
		CHECK(!have_notice(c, NOTICE_HOST_CALL));
	}
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
	CHECK_EQUAL(read_u32(c, r.calls, r.p), 3 * COUNT);
}

/* Not before the event, nor before the one before it was told. */
static void told_when_its_event_has_happened(struct client *c)
{
	struct rig r = rig_make(c);
	uint64_t other = stream(c, OTHER, 1);

	launch_hold(c, r.compute);
	event_of(&r, r.compute);
	function_on(&r, r.calls, 1);
	wait_on(&r, r.calls);
	function_on(&r, r.calls, 2);
	/* That one is done, but the second comes first. */
	event_of(&r, other);
	wait_on(&r, r.calls);
	function_on(&r, r.calls, 3);
	function_on(&r, r.calls, 4);
	told(c, 1);
	is_not_told(c);
	c->fake.release(1);
	told(c, 2);
	told(c, 3);
	told(c, 4);
	/* With one that has long been told. */
	function_on(&r, r.calls, 5);
	told(c, 5);
	event_of(&r, other);
	wait_on(&r, r.calls);
	function_on(&r, r.calls, 6);
	told(c, 6);
	for (uint64_t id = 1; id <= 6; id++)
		done(c, id);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = r.calls), 0);
}

/* What the stream itself has to do between two. */
static void work_between_is_waited_for(struct client *c)
{
	struct rig r = rig_make(c);
	uint64_t other = stream(c, OTHER, 1);

	for (int kind = 0; kind < 5; kind++) {
		function_on(&r, r.calls, 1);
		switch (kind) {
		case 0:
			launch_add(c, r.calls, r.p, 1);
			break;
		case 1:
			event_of(&r, r.calls);
			break;
		case 2:
			SEND(c, gleamCopyDev, .stream = r.calls, .dst = r.p + 64, .src = r.p, .size = 4);
			break;
		case 3:
			launch_add(c, r.calls, r.p, 1);
			event_of(&r, r.compute);
			wait_on(&r, r.calls);
			break;
		default:
			/* Done behind the first function, on the way over another stream. */
			event_of(&r, r.calls);
			wait_on(&r, other);
			event_of(&r, other);
			wait_on(&r, r.calls);
			break;
		}
		function_on(&r, r.calls, 2);
		told(c, 1);
		is_not_told(c);
		done(c, 1);
		told(c, 2);
		done(c, 2);
		CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = r.calls), 0);
	}
	CHECK_EQUAL(read_u32(c, r.calls, r.p), 2);
	CHECK_EQUAL(read_u32(c, r.calls, r.p + 64), 1);
}

/* The record that a wait stands for is the one before it, also where all three are parked and a younger one is known. */
static void wait_stands_for_its_record(struct client *c)
{
	struct rig r = rig_make(c);

	function_on(&r, r.calls, 1);
	told(c, 1);
	launch_hold(c, r.compute);
	for (int i = 0; i < 900; i++)
		launch_add(c, r.compute, r.p, 1);
	event_of(&r, r.compute);
	wait_on(&r, r.calls);
	launch_hold(c, r.compute);
	event_of(&r, r.compute);
	function_on(&r, r.calls, 2);
	is_not_told(c);
	c->fake.release(1);
	told(c, 2);
	c->fake.release(1);
	done(c, 1);
	done(c, 2);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/* The legacy stream's work is between two functions of a blocking stream, and theirs between two of its. */
static void legacy_rule_is_kept(struct client *c)
{
	struct rig r = rig_make(c);
	uint64_t blocking = stream(c, OTHER, 0);

	function_on(&r, blocking, 1);
	launch_add(c, LEGACY, r.p, 1);
	function_on(&r, blocking, 2);
	told(c, 1);
	is_not_told(c);
	done(c, 1);
	told(c, 2);
	done(c, 2);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);

	function_on(&r, LEGACY, 3);
	launch_add(c, blocking, r.p, 1);
	function_on(&r, LEGACY, 4);
	told(c, 3);
	is_not_told(c);
	done(c, 3);
	told(c, 4);
	done(c, 4);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);

	/* Others don't count. */
	function_on(&r, r.calls, 5);
	launch_add(c, LEGACY, r.p, 1);
	function_on(&r, r.calls, 6);
	function_on(&r, LEGACY, 7);
	launch_add(c, r.compute, r.p, 1);
	function_on(&r, LEGACY, 8);
	for (int i = 0; i < 4; i++)
		wait_notice(c, NOTICE_HOST_CALL);
	for (uint64_t id = 5; id <= 8; id++)
		done(c, id);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/* Streams and events that are destroyed meanwhile; a second run of the two that had waited for each other. */
static void streams_may_go(struct client *c)
{
	struct rig r = rig_make(c);
	uint64_t other = stream(c, OTHER, 1);
	uint64_t last;

	for (uint64_t id = 1; id <= 4; id++) {
		event_of(&r, id % 2 ? other : r.calls);
		wait_on(&r, id % 2 ? r.calls : other);
		function_on(&r, id % 2 ? r.calls : other, id);
		told(c, id);
		done(c, id);
	}
	function_on(&r, r.calls, 5);
	launch_hold(c, r.compute);
	event_of(&r, r.compute);
	wait_on(&r, r.calls);
	last = function_on(&r, r.calls, 6);
	SEND(c, cuStreamDestroy_v2, .hStream = r.compute);
	SEND(c, cuEventDestroy_v2, .hEvent = r.event);
	SEND(c, cuStreamDestroy_v2, .hStream = r.calls);
	SEND(c, cuStreamDestroy_v2, .hStream = other);
	told(c, 5);
	is_not_told(c);
	c->fake.release(1);
	told(c, 6);
	CHECK(!reached(c, CALLS, last - 1));
	done(c, 5);
	done(c, 6);
	wait_progress(c, CALLS, last);
	CHECK_EQUAL(CALL(c, gleamContextSync, NULL, .index = CTX), 0);
}

/* Functions behind work that is lost are never told, nor those behind them. */
static void lost_context_calls_nobody(struct client *c)
{
	struct rig r = rig_make(c);

	launch_hold(c, r.compute);
	launch_crash(c, r.compute);
	event_of(&r, r.compute);
	function_on(&r, r.calls, 1);
	told(c, 1);
	wait_on(&r, r.calls);
	function_on(&r, r.calls, 2);
	function_on(&r, r.calls, 3);
	c->fake.release(1);
	wait_notice(c, NOTICE_ERROR);
	is_not_told(c);
	done(c, 1);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = r.calls), CUDA_ERROR_ILLEGAL_ADDRESS);
	SEND(c, gleamContextClose, .index = CTX);
	is_not_told(c);
}

#define IN_CHILD(name, prepare)                                                                                        \
	static void test_##name(void **state)                                                                         \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, prepare));                                                                 \
	}
IN_CHILD(told_behind_events, NULL)
IN_CHILD(told_when_its_event_has_happened, NULL)
IN_CHILD(work_between_is_waited_for, NULL)
IN_CHILD(wait_stands_for_its_record, NULL)
IN_CHILD(legacy_rule_is_kept, NULL)
IN_CHILD(streams_may_go, NULL)
IN_CHILD(lost_context_calls_nobody, NULL)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_behind_events),
		cmocka_unit_test(test_told_when_its_event_has_happened),
		cmocka_unit_test(test_work_between_is_waited_for),
		cmocka_unit_test(test_wait_stands_for_its_record),
		cmocka_unit_test(test_legacy_rule_is_kept),
		cmocka_unit_test(test_streams_may_go),
		cmocka_unit_test(test_lost_context_calls_nobody),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
