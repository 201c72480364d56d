/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking gleamd for a verdict, and leaving one with it: what it knows is an answer as a server's; a gleamd that lies, is silent or has gone costs its
 * time once. gleamd is the other end of a pair of sockets, which has said everything before it is asked.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/proto/wire.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/verdicts.h"
#include "libgleamcuda/weights.h"
#include "tests/lib/fdcheck.h"

static struct session session;
static int gleamd = -1;
static bool gone; /* there is none at the moment */
static const struct verdict_key key = { .hash = { 1, 2 }, .size = 3 };
static uint8_t verdict[8192] __attribute__((aligned(8)));
static size_t verdict_size;

/* ---- what the library would have ---- */

void weights_lock(void)
{
}

void weights_unlock(void)
{
}

bool weights_daemon_is_there_locked(const struct session *s)
{
	return !gone;
}

bool session_has_ended(const struct session *s)
{
	char byte;

	return recv(s->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

void gleam_log(const char *format, ...)
{
}

/* ---- gleamd ---- */

static int set_up(void **state)
{
	int pair[2], size = 1 << 20;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	session.socket = pair[0];
	gleamd = pair[1];
	/* One that nothing is known of yet. */
	session.returns++;
	session.kernel = gone = false;
	return 0;
}

static int take_down(void **state)
{
	close(session.socket);
	close(gleamd);
	return 0;
}

static void again(void)
{
	take_down(NULL);
	assert_int_equal(set_up(NULL), 0);
}

static void says(const void *packet, size_t size)
{
	assert_int_equal(send(gleamd, packet, size, MSG_DONTWAIT), size);
}

static size_t part_make(uint8_t packet[LOCAL_MSG_MAX], const struct verdict_key *of, uint32_t total, uint32_t at, const void *bytes, uint32_t size)
{
	struct writer w = writer_on(packet, LOCAL_MSG_MAX);

	put_u32(&w, LOCAL_VERDICT_PART);
	put_u64(&w, of->hash[0]);
	put_u64(&w, of->hash[1]);
	put_u64(&w, of->size);
	put_u32(&w, total);
	put_u32(&w, at);
	put_bytes(&w, bytes, size);
	assert_false(w.fault);
	return w.at;
}

static void says_part(uint32_t total, uint32_t at, const void *bytes, uint32_t size)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));

	says(packet, part_make(packet, &key, total, at, bytes, size));
}

/* What it was sent: the packet's kind, 0: nothing. */
static uint32_t heard(struct reader *r)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	ssize_t size = recv(gleamd, packet, sizeof(packet), MSG_DONTWAIT);

	if (size <= 0)
		return 0;
	*r = reader_on(packet, (size_t)size);
	return get_u32(r);
}

static uint32_t questions(void)
{
	struct reader r;
	uint32_t count = 0;

	while (heard(&r) == LOCAL_VERDICT) {
		assert_int_equal(get_u64(&r), key.hash[0]);
		assert_int_equal(get_u64(&r), key.hash[1]);
		assert_int_equal(get_u64(&r), key.size);
		assert_false(r.fault);
		count++;
	}
	return count;
}

static void verdict_make(const char *second_name, uint32_t code)
{
	static const struct verdict_param params[] = { { 0, 8 }, { 8, 4 } };
	static const int32_t attributes[VERDICT_ATTRIBUTES] = { 1024 };
	struct verdict v = { .code = code, .function_count = 2 };
	struct writer w = writer_on(verdict, sizeof(verdict)), head = writer_on(verdict, sizeof(verdict));

	memset(verdict, 0, sizeof(verdict));
	verdict_put(&w, &v);
	verdict_logs_put(&w, "", "");
	verdict_function_put(&w, "first", params, 2, VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES, attributes);
	verdict_function_put(&w, second_name, NULL, 0, 0, NULL);
	assert_false(w.fault);
	v.size = verdict_size = w.at;
	verdict_put(&head, &v);
}

/* The record of a function that was learnt later, behind the verdict. */
static void record_add(const char *name)
{
	static const struct verdict_param params[] = { { 0, 4 } };
	static const int32_t attributes[VERDICT_ATTRIBUTES] = { 256 };
	size_t at = (verdict_size + 7) & ~(size_t)7;
	struct writer w = writer_on(verdict + at + 8, sizeof(verdict) - at - 8);
	uint32_t size;

	verdict_function_put(&w, name, params, 1, VERDICT_HAS_PARAMS | VERDICT_HAS_ATTRIBUTES, attributes);
	assert_false(w.fault);
	size = (uint32_t)w.at;
	memcpy(verdict + at, &size, sizeof(size));
	verdict_size = (at + 8 + size + 7) & ~(size_t)7;
}

/* Not found, and its gleamd isn't asked any more. */
static void check_distrusts(void)
{
	uint64_t start = clock_ns();

	assert_null(verdicts_find(&session, &key));
	assert_null(verdicts_find(&session, &key));
	assert_int_equal(questions(), 1);
	assert_true(clock_ns() - start < NS_PER_S);
}

/* ---- asking ---- */

static void test_what_it_knows_is_an_answer(void **state)
{
	struct answer_function *f;
	struct answer *answer;

	verdict_make("second", 0);
	says_part((uint32_t)verdict_size, 0, verdict, (uint32_t)verdict_size);
	answer = verdicts_find(&session, &key);
	assert_non_null(answer);
	assert_int_equal(answer_count(answer), 2);
	f = answer_find(answer, "first");
	assert_non_null(f);
	assert_true(f->has_params && f->has_attributes);
	assert_int_equal(f->params_size, 12);
	assert_int_equal(f->attributes[0], 1024);
	f = answer_find(answer, "second");
	assert_non_null(f);
	assert_false(f->has_params);
	assert_null(answer_find(answer, "third"));
	answer_put(answer);
	assert_int_equal(questions(), 1);
}

static void test_what_was_learnt_later_comes_with_it(void **state)
{
	struct answer_function *f;
	struct answer *answer;

	verdict_make("second", 0);
	record_add("second");
	record_add("not of this image");
	says_part((uint32_t)verdict_size, 0, verdict, (uint32_t)verdict_size);
	answer = verdicts_find(&session, &key);
	assert_non_null(answer);
	f = answer_find(answer, "second");
	assert_true(f && f->has_params && f->has_attributes);
	assert_int_equal(f->params_size, 4);
	assert_int_equal(f->attributes[0], 256);
	assert_null(answer_find(answer, "not of this image"));
	answer_put(answer);
}

/* In parts of any size, late answers about files between them. */
static void test_parts_come_among_late_answers(void **state)
{
	static const uint32_t sizes[] = { 1, 8, 50, 100 };
	static const uint8_t other[] = { LOCAL_FILE_KNOWN, 0, 0, 0, 1, 2, 3 };

	verdict_make("second", 0);
	record_add("second");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct answer *answer;

		for (uint32_t at = 0; at < verdict_size; at += sizes[i]) {
			uint32_t left = (uint32_t)verdict_size - at;

			if (at % 3 == 0)
				says(other, sizeof(other));
			says_part((uint32_t)verdict_size, at, verdict + at, left < sizes[i] ? left : sizes[i]);
		}
		answer = verdicts_find(&session, &key);
		assert_non_null(answer);
		assert_true(answer_find(answer, "second")->has_params);
		answer_put(answer);
		again();
	}
}

static void test_nothing_known_is_an_answer_too(void **state)
{
	says_part(0, 0, NULL, 0);
	assert_null(verdicts_find(&session, &key));
	says_part(0, 0, NULL, 0);
	assert_null(verdicts_find(&session, &key));
	assert_int_equal(questions(), 2);
}

/* ---- a gleamd that lies ---- */

static void test_parts_that_make_no_sense_end_the_questions(void **state)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	static const struct {
		uint32_t first_total, first_at, first_size; /* 0: the other one alone */
		uint32_t total, at, size;
	} cases[] = {
		{ 0, 0, 0, VERDICT_KEPT_MAX + 1, 0, 8 },
		{ 0, 0, 0, UINT32_MAX, 0, 8 },
		{ 0, 0, 0, 16, 8, 8 },	    /* doesn't begin at the beginning */
		{ 0, 0, 0, 16, 0, 0 },	    /* without bytes */
		{ 0, 0, 0, 8, 0, 16 },	    /* more than all */
		{ 0, 0, 0, 0, 8, 8 },	    /* of nothing: an answer of its own, with bytes */
		{ 16, 0, 8, 16, 8, 0 },	    /* without bytes */
		{ 16, 0, 8, 16, 0, 8 },	    /* twice */
		{ 16, 0, 8, 16, 12, 4 },    /* with a gap */
		{ 16, 0, 8, 16, 8, 16 },    /* beyond the end */
		{ 16, 0, 8, 16, UINT32_MAX - 3, 8 },
		{ 16, 0, 8, 24, 8, 8 },	    /* of something longer */
		{ 16, 0, 8, 12, 8, 4 },	    /* shorter */
		{ 16, 0, 8, 0, 0, 0 },	    /* of nothing */
	};
	struct verdict_key other;
	size_t size;

	verdict_make("second", 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (cases[i].first_size)
			says_part(cases[i].first_total, cases[i].first_at, verdict, cases[i].first_size);
		says_part(cases[i].total, cases[i].at, verdict, cases[i].size);
		/* That nothing is known needs no bytes, and is no lie by having some. */
		if (!cases[i].first_size && !cases[i].total)
			assert_null(verdicts_find(&session, &key));
		else
			check_distrusts();
		again();
	}
	/* Another key, by any bit; any part of a packet. */
	for (size_t bit = 0; bit < 8 * sizeof(other); bit += 7) {
		other = key;
		((uint8_t *)&other)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		says(packet, part_make(packet, &other, (uint32_t)verdict_size, 0, verdict, (uint32_t)verdict_size));
		check_distrusts();
		again();
	}
	size = part_make(packet, &key, 64, 0, verdict, 64);
	for (size_t i = 4; i < size; i += 4) {
		says(packet, i);
		check_distrusts();
		again();
	}
}

/* Whole, but no verdict: nothing is known, and the next question may have a better answer. */
static void test_bytes_that_are_no_verdict(void **state)
{
	uint8_t good[sizeof(verdict)] __attribute__((aligned(8)));
	size_t good_size;

	verdict_make("second", 0);
	for (size_t size = 1; size < verdict_size; size += 5) {
		says_part((uint32_t)size, 0, verdict, (uint32_t)size);
		assert_null(verdicts_find(&session, &key));
	}
	/* Of a load that failed. */
	verdict_make("second", CUDA_ERROR_INVALID_IMAGE);
	says_part((uint32_t)verdict_size, 0, verdict, (uint32_t)verdict_size);
	assert_null(verdicts_find(&session, &key));
	/* Records that lie about their size, are cut, or garbage: the verdict is good without. */
	verdict_make("second", 0);
	good_size = (verdict_size + 7) & ~(size_t)7;
	memcpy(good, verdict, sizeof(good));
	for (uint32_t lie = 0; lie < 4; lie++) {
		static const uint32_t sizes[] = { 0, 24, 1000, UINT32_MAX };
		struct answer *answer;

		memset(good + good_size, 0xff, 64);
		memcpy(good + good_size, &sizes[lie], 4);
		for (uint32_t tail = 1; tail <= 64; tail += 9) {
			says_part((uint32_t)good_size + tail, 0, good, (uint32_t)good_size + tail);
			answer = verdicts_find(&session, &key);
			assert_non_null(answer);
			assert_false(answer_find(answer, "second")->has_params);
			answer_put(answer);
		}
	}
	/* It is heard all the while. */
	assert_true(questions() > 30);
}

static void test_silence_costs_its_time_once(void **state)
{
	uint64_t start = clock_ns();

	assert_null(verdicts_find(&session, &key));
	assert_true(clock_ns() - start >= NS_PER_S);
	start = clock_ns();
	assert_null(verdicts_find(&session, &key));
	verdicts_keep(&session, &key, verdict, 64);
	verdicts_more(&session, &key, verdict, 64);
	assert_true(clock_ns() - start < NS_PER_S);
	assert_int_equal(questions(), 1);
	/* The gleamd that comes after it is asked. */
	again();
	says_part(0, 0, NULL, 0);
	assert_null(verdicts_find(&session, &key));
	assert_int_equal(questions(), 1);
}

/* The end is no silence: there will be another one. */
static void test_one_that_ends_is_waited_for_by_nobody(void **state)
{
	uint64_t start = clock_ns();

	says_part(16, 0, "the first", 8);
	shutdown(gleamd, SHUT_WR);
	assert_null(verdicts_find(&session, &key));
	close(gleamd);
	gleamd = -1;
	assert_null(verdicts_find(&session, &key));
	verdicts_keep(&session, &key, verdict, 64);
	verdicts_more(&session, &key, verdict, 64);
	assert_true(clock_ns() - start < NS_PER_S);
	session.returns--;
	again();
	says_part(0, 0, NULL, 0);
	assert_null(verdicts_find(&session, &key));
	assert_int_equal(questions(), 1);
	/* While there is none, and through the kernel module, nobody is asked. */
	gone = true;
	assert_null(verdicts_find(&session, &key));
	verdicts_keep(&session, &key, verdict, 64);
	gone = false;
	session.kernel = true;
	assert_null(verdicts_find(&session, &key));
	verdicts_more(&session, &key, verdict, 64);
	session.kernel = false;
	assert_int_equal(questions(), 0);
}

/* ---- leaving ---- */

static void test_it_is_left_in_parts(void **state)
{
	const size_t size = 2 * VERDICT_PART_SIZE + 5;
	uint8_t *bytes = malloc(VERDICT_KEPT_MAX + 1);
	uint32_t part_size, at = 0;
	struct reader r;
	const void *part;
	int room = 1 << 20;

	setsockopt(session.socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	verdicts_keep(&session, &key, bytes, size);
	while (at < size) {
		assert_int_equal(heard(&r), LOCAL_VERDICT_KEEP);
		assert_int_equal(get_u64(&r), key.hash[0]);
		assert_int_equal(get_u64(&r), key.hash[1]);
		assert_int_equal(get_u64(&r), key.size);
		assert_int_equal(get_u32(&r), size);
		assert_int_equal(get_u32(&r), at);
		part = get_bytes(&r, LOCAL_MSG_MAX, &part_size);
		assert_false(r.fault);
		assert_memory_equal(part, bytes + at, part_size);
		at += part_size;
	}
	assert_int_equal(at, size);
	verdicts_more(&session, &key, "a record", 8);
	assert_int_equal(heard(&r), LOCAL_VERDICT_MORE);
	r.at += 4 + 3 * 8;
	part = get_bytes(&r, LOCAL_MSG_MAX, &part_size);
	assert_int_equal(part_size, 8);
	assert_memory_equal(part, "a record", 8);
	/* What is none, and what is too large, isn't begun. */
	verdicts_keep(&session, &key, bytes, 0);
	verdicts_keep(&session, &key, bytes, VERDICT_KEPT_MAX + 1);
	verdicts_more(&session, &key, bytes, 0);
	verdicts_more(&session, &key, bytes, VERDICT_PART_SIZE + 1);
	assert_int_equal(heard(&r), 0);
	free(bytes);
}

/* One that doesn't read holds nobody up: what was begun is given up. */
static void test_a_full_socket_holds_nobody_up(void **state)
{
	uint8_t *bytes = calloc(1, VERDICT_KEPT_MAX);
	uint64_t start = clock_ns();

	verdicts_keep(&session, &key, bytes, VERDICT_KEPT_MAX);
	verdicts_keep(&session, &key, bytes, VERDICT_KEPT_MAX);
	verdicts_more(&session, &key, bytes, VERDICT_PART_SIZE);
	assert_null(verdicts_find(&session, &key));
	assert_true(clock_ns() - start < NS_PER_S);
	free(bytes);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, take_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_what_it_knows_is_an_answer),
		TEST(test_what_was_learnt_later_comes_with_it),
		TEST(test_parts_come_among_late_answers),
		TEST(test_nothing_known_is_an_answer_too),
		TEST(test_parts_that_make_no_sense_end_the_questions),
		TEST(test_bytes_that_are_no_verdict),
		TEST(test_silence_costs_its_time_once),
		TEST(test_one_that_ends_is_waited_for_by_nobody),
		TEST(test_it_is_left_in_parts),
		TEST(test_a_full_socket_holds_nobody_up),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
