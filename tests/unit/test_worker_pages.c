// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: page-locked memory of a client of its machine, which both have mapped. Copies read and write it when their stream comes to
 * them, its end waits for them, and what a client may not name is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "broker/worker/pages.h"
#include "tests/unit/worker_session.h"

#define MIB   (1u << 20)
#define HOST(c, at) ((c)->worker.settings.range_host + (at))

/* Our own mapping of the file, as the client's at HOST(c, 0). */
static uint8_t *client_pages(struct client *c, size_t size)
{
	int fd = shm_pages_make();
	uint8_t *at;

	CHECK(fd >= 0);
	at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	/* An attached worker whose client isn't of this machine has none: it is idle, and gets them now. */
	CHECK(!c->worker.pages);
	CHECK(pages_start(&c->worker, fd) == 0);
	return at;
}

static void copies_are_made_where_it_lies(struct client *c)
{
	uint8_t *pages;
	uint64_t p, s, last;

	open_context(c);
	p = map_memory(c, 4 * MIB);
	load_functions(c);
	s = stream(c, 1, 1);
	pages = client_pages(c, 8 * MIB);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, MIB), .bytes = 2 * MIB, .open = 1), 0);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 4 * MIB), .bytes = MIB, .open = 1), 0);
	/* Read when the stream is there. */
	memset(pages, 1, 8 * MIB);
	launch_hold(c, s);
	SEND(c, gleamPagesUp, .stream = s, .dst = p, .host = HOST(c, MIB + 100), .size = MIB);
	last = SEND(c, gleamPagesDown, .stream = s, .host = HOST(c, 4 * MIB + 5), .src = p, .size = MIB - 5);
	pause_ms(10);
	memset(pages + MIB, 2, 2 * MIB);
	CHECK(!reached(c, 1, last));
	CHECK_EQUAL(pages[4 * MIB + 5], 1);
	c->fake.release(1);
	wait_progress(c, 1, last);
	CHECK_EQUAL(*(uint8_t *)p, 2);
	CHECK_EQUAL(((uint8_t *)p)[MIB - 1], 2);
	CHECK_EQUAL(pages[4 * MIB + 4], 1);
	CHECK_EQUAL(pages[4 * MIB + 5], 2);
	CHECK_EQUAL(pages[5 * MIB - 1], 2);
	CHECK_EQUAL(pages[5 * MIB], 1);
	munmap(pages, 8 * MIB);
}

static void its_end_waits_for_copies(struct client *c)
{
	uint8_t *pages;
	uint64_t p, s, last, end;

	open_context(c);
	p = map_memory(c, 2 * MIB);
	load_functions(c);
	s = stream(c, 1, 1);
	pages = client_pages(c, MIB);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0), .bytes = MIB, .open = 1), 0);
	memset(pages, 3, MIB);
	launch_hold(c, s);
	last = SEND(c, gleamPagesUp, .stream = s, .dst = p, .host = HOST(c, 0), .size = MIB);
	end = SEND_FLAGS(c, gleamPages, FRAME_WANTS_REPLY, NULL, .address = HOST(c, 0), .bytes = MIB);
	pause_ms(20);
	CHECK(!have_reply(c, end));
	CHECK_EQUAL(c->fake.calls("cuMemHostUnregister"), 0);
	c->fake.release(1);
	CHECK_EQUAL(wait_reply(c, end, NULL), 0);
	CHECK_EQUAL(c->fake.calls("cuMemHostUnregister"), 1);
	wait_progress(c, 1, last);
	CHECK_EQUAL(((uint8_t *)p)[MIB - 1], 3);
	/* It has gone: nothing to end, nothing to copy from, and its addresses can be had again. */
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0), .bytes = MIB), 0);
	SEND(c, gleamPagesUp, .stream = s, .dst = p, .host = HOST(c, 0), .size = 4096);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 4096), .bytes = MIB - 4096, .open = 1), 0);
	munmap(pages, MIB);
}

static void what_it_may_not_name_is_refused(struct client *c)
{
	const uint64_t size = c->worker.settings.range_size;
	uint64_t p, s;

	open_context(c);
	p = map_memory(c, 2 * MIB);
	s = stream(c, 1, 1);
	/* Of another machine: there is none, and ending it is no failure. */
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0), .bytes = MIB, .open = 1), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0), .bytes = MIB), 0);
	SEND(c, gleamPagesUp, .stream = s, .dst = p, .host = HOST(c, 0), .size = MIB);
	CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);

	munmap(client_pages(c, MIB), MIB);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, MIB), .bytes = MIB, .open = 1), 0);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 2 * MIB - 4096), .bytes = MIB, .open = 1),
		    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0), .bytes = MIB + 4096, .open = 1), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, size - 4096), .bytes = 8192, .open = 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 0) - 4096, .bytes = 4096, .open = 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = 0x10000, .bytes = 4096, .open = 1), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 2 * MIB), .bytes = ~4095ull - HOST(c, 2 * MIB), .open = 1), CUDA_ERROR_INVALID_VALUE);
	/* The driver's refusal is the client's answer, and leaves nothing. */
	c->fake.plan("cuMemHostRegister_v2", CUDA_ERROR_OUT_OF_MEMORY, 0);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 4 * MIB), .bytes = MIB, .open = 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(CALL(c, gleamPages, NULL, .address = HOST(c, 4 * MIB), .bytes = MIB, .open = 1), 0);
	/* Beyond its end, before its beginning, and sizes that wrap. */
	for (int i = 0; i < 4; i++) {
		static const uint64_t at[] = { MIB + 1, MIB - 1, MIB, 2 * MIB }, bytes[] = { MIB, MIB, ~0ull - 100, 1 };

		if (i % 2)
			SEND(c, gleamPagesDown, .stream = s, .host = HOST(c, at[i]), .src = p, .size = bytes[i]);
		else
			SEND(c, gleamPagesUp, .stream = s, .dst = p, .host = HOST(c, at[i]), .size = bytes[i]);
		CHECK_EQUAL(CALL(c, gleamStreamSync, NULL, .stream = s), CUDA_ERROR_INVALID_VALUE);
	}
	/* Parts of pages end the session. */
	SEND_FLAGS(c, gleamPages, FRAME_WANTS_REPLY, NULL, .address = HOST(c, 8 * MIB) + 1, .bytes = 4096, .open = 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

#define IN_CHILD(name)                                                                                                 \
	static void test_##name(void **state)                                                                         \
	{                                                                                                              \
		(void)state;                                                                                           \
		assert_true(child_run(name, NULL));                                                                    \
	}
IN_CHILD(copies_are_made_where_it_lies)
IN_CHILD(its_end_waits_for_copies)
IN_CHILD(what_it_may_not_name_is_refused)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_are_made_where_it_lies),
		cmocka_unit_test(test_its_end_waits_for_copies),
		cmocka_unit_test(test_what_it_may_not_name_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
