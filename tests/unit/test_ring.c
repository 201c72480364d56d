/* SPDX-License-Identifier: Apache-2.0 */
/* Rings, session memory and its words: what goes in comes out, nonsense is refused, nobody sleeps for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/lib/slot.h"
#include "tests/lib/fdcheck.h"

static const uint8_t hash[32] = { 1, 2, 3 };

static uint32_t random_next(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void frame_make(uint8_t *room, uint32_t size, uint64_t seq)
{
	struct frame_hdr hdr = { .size = size, .kind = FRAME_COMMAND, .op = 7, .seq = seq };

	memcpy(room, &hdr, sizeof(hdr));
	memset(room + sizeof(hdr), (int)seq, size - sizeof(hdr));
}

static int setup(void **state)
{
	struct shm *shm = calloc(1, sizeof(*shm));

	assert_int_equal(shm_make(shm, hash, 42), 0);
	*state = shm;
	return 0;
}

static int teardown(void **state)
{
	shm_close(*state);
	free(*state);
	return 0;
}

/* Many random sizes through a ring, and over its end many times; the mirror of it gets the same frames by spans. */
static void test_frames_pass(void **state)
{
	const struct shm *shm = *state;
	struct shm other;
	struct ring producer, consumer, mirror, last;
	uint64_t random = 1, sent = 0, got = 0;

	assert_int_equal(shm_make(&other, hash, 42), 0);
	shm_ring_n2c(shm, &producer);
	shm_ring_n2c(shm, &consumer);
	shm_ring_n2c(&other, &mirror);
	shm_ring_n2c(&other, &last);
	while (got < 20000) {
		uint8_t *room;
		struct frame_hdr hdr;
		const uint8_t *frame;
		uint64_t start = consumer.at;

		for (uint32_t n = random_next(&random) % 20; n; n--) {
			uint32_t size = 24 + random_next(&random) % (n % 5 ? 300 : FRAME_SIZE_MAX - 24);

			if (ring_reserve(&producer, size, &room))
				break;
			frame_make(room, size, ++sent);
			ring_commit(&producer, size);
		}
		ring_publish(&producer);
		/* Span by span, each in one piece. */
		while (ring_look(&consumer, &hdr, &frame) == 1) {
			ring_next(&consumer, &hdr);
			if ((consumer.at & (SESSION_N2C_SIZE - 1)) == 0 || consumer.at - start > 64000) {
				assert_int_equal(ring_put_span(&mirror, start, ring_place(&consumer, start),
							       (uint32_t)(consumer.at - start)), 0);
				start = consumer.at;
			}
		}
		if (start != consumer.at)
			assert_int_equal(ring_put_span(&mirror, start, ring_place(&consumer, start),
						       (uint32_t)(consumer.at - start)), 0);
		ring_publish(&mirror);
		while (ring_peek(&last, &hdr, &frame) == 1) {
			assert_int_equal(hdr.seq, ++got);
			for (uint32_t i = sizeof(hdr); i < hdr.size; i++)
				assert_int_equal(frame[i], (uint8_t)got);
			ring_next(&last, &hdr);
		}
		ring_release(&last);
		ring_release_to(&consumer, ring_tail(&last));
		assert_int_equal(consumer.at, last.at);
	}
	assert_true(consumer.at > 20 * (uint64_t)SESSION_N2C_SIZE);
	shm_close(&other);
}

static void test_full_ring_refuses(void **state)
{
	const struct shm *shm = *state;
	struct ring producer, consumer;
	struct frame_hdr hdr;
	const uint8_t *frame;
	uint8_t *room;
	uint32_t count = 0;

	shm_ring_n2c(shm, &producer);
	shm_ring_n2c(shm, &consumer);
	assert_int_equal(ring_reserve(&producer, FRAME_SIZE_MAX + 1, &room), -EMSGSIZE);
	assert_int_equal(ring_reserve(&producer, 8, &room), -EMSGSIZE);
	while (ring_reserve(&producer, FRAME_SIZE_MAX, &room) == 0) {
		frame_make(room, FRAME_SIZE_MAX, ++count);
		ring_commit(&producer, FRAME_SIZE_MAX);
	}
	assert_int_equal(count, SESSION_N2C_SIZE / FRAME_SIZE_MAX);
	assert_int_equal(ring_room_wait(producer.ctl, ring_tail(&producer), 1000000), -ETIMEDOUT);
	assert_int_equal(producer.ctl->waiting, 1);
	ring_publish(&producer);
	assert_int_equal(ring_peek(&consumer, &hdr, &frame), 1);
	ring_next(&consumer, &hdr);
	ring_release(&consumer);
	assert_int_equal(producer.ctl->waiting, 0);
	assert_int_equal(ring_room_wait(producer.ctl, 0, 1000000), 0);
	assert_int_equal(ring_reserve(&producer, FRAME_SIZE_MAX, &room), 0);
	/* A span that doesn't continue, isn't aligned, or has no room. */
	assert_int_equal(ring_put_span(&producer, producer.at + 8, room, 64), -EPROTO);
	assert_int_equal(ring_put_span(&producer, producer.at, room, 63), -EPROTO);
	assert_int_equal(ring_put_span(&producer, producer.at, consumer.bytes, FRAME_SIZE_MAX + 8), -EPROTO);
}

/* Each kind of nonsense in a header or a position. */
static void test_nonsense_is_refused(void **state)
{
	const struct shm *shm = *state;
	struct ring producer, consumer;
	const struct frame_hdr good = { .size = 64, .kind = FRAME_COMMAND };
	struct frame_hdr hdr;
	const uint8_t *frame;
	uint8_t *room;

#define BAD(change)                                                                                            \
	do {                                                                                                   \
		struct frame_hdr bad = good;                                                                   \
		shm_ring_n2c(shm, &consumer);                                                                  \
		consumer.ctl->head = 64;                                                                       \
		change;                                                                                        \
		memcpy(consumer.bytes, &bad, sizeof(bad));                                                     \
		assert_int_equal(ring_look(&consumer, &hdr, &frame), -EPROTO);                                 \
		assert_int_equal(ring_peek(&consumer, &hdr, &frame), -EPROTO);                                 \
	} while (0)
	BAD(bad.size = 0);
	BAD(bad.size = 23);
	BAD(bad.size = 65);
	BAD(bad.size = FRAME_SIZE_MAX + 1);
	BAD(bad.size = UINT32_MAX);
	BAD(bad.kind = 4);
	BAD(bad.kind = FRAME_PAD);
	BAD(bad.flags = 16);
	BAD(bad.flags = FRAME_BULK_UP | FRAME_BULK_DOWN);
	BAD(bad.size = 32; bad.flags = FRAME_BULK_UP);
	BAD(bad.size = 48; bad.flags = FRAME_BULK_UP | FRAME_BULK_FILE);
	BAD(bad.size = 64; bad.flags = FRAME_BULK_DOWN | FRAME_BULK_FILE);
	BAD(consumer.ctl->head = 63);
	BAD(consumer.ctl->head = SESSION_N2C_SIZE + 8);
	BAD(consumer.ctl->head = UINT64_MAX - 7);
	BAD(consumer.ctl->head = 8);
#undef BAD
	/* Tails: ahead of the head, back, crooked. */
	for (int i = 0; i < 3; i++) {
		static const uint64_t tails[] = { 2 << 20, 0, 4099 };

		shm_ring_n2c(shm, &producer);
		ring_init(&producer, producer.ctl, producer.bytes, producer.size, 1 << 20);
		producer.seen = 4096;
		producer.ctl->tail = tails[i];
		assert_int_equal(ring_reserve(&producer, FRAME_SIZE_MAX, &room), -EPROTO);
	}
}

/* Random bytes and positions: never out of bounds (ASan looks), never a frame that doesn't fit. */
static void test_random_memory(void **state)
{
	const struct shm *shm = *state;
	uint64_t random = 99;

	for (int round = 0; round < 3000; round++) {
		struct ring consumer;
		struct frame_hdr hdr;
		const uint8_t *frame;
		uint64_t at = (uint64_t)random_next(&random) * 8 % (3ull * SESSION_N2C_SIZE);

		shm_ring_n2c(shm, &consumer);
		ring_init(&consumer, consumer.ctl, consumer.bytes, consumer.size, at);
		for (int i = 0; i < 64; i++) {
			uint64_t place = (at + 8 * (uint64_t)i) & (SESSION_N2C_SIZE - 1);
			struct frame_hdr some = { .size = random_next(&random) % 200, .kind = (uint8_t)(random_next(&random) % 4) };

			if (place + sizeof(some) <= SESSION_N2C_SIZE)
				memcpy(consumer.bytes + place, &some, sizeof(some));
		}
		consumer.ctl->head = at + random_next(&random) % 1024 * (round % 3 ? 8 : 1);
		for (int i = 0; i < 100 && ring_peek(&consumer, &hdr, &frame) == 1; i++) {
			assert_true(hdr.size >= sizeof(hdr) && hdr.size <= FRAME_SIZE_MAX);
			assert_true(frame >= consumer.bytes && hdr.size <= (size_t)(consumer.bytes + SESSION_N2C_SIZE - frame));
			ring_next(&consumer, &hdr);
			assert_true(consumer.at <= consumer.ctl->head);
		}
	}
}

#define WAKES 30000

static void *wakes_produce(void *arg)
{
	const struct shm *shm = arg;
	struct ring producer;
	uint64_t random = 5;

	shm_ring_n2c(shm, &producer);
	for (uint64_t seq = 1; seq <= WAKES;) {
		uint64_t tail = ring_tail(&producer);
		uint32_t size = 24 + random_next(&random) % 20000;
		uint8_t *room;

		if (ring_reserve(&producer, size, &room)) {
			ring_room_wait(producer.ctl, tail, -1);
			continue;
		}
		frame_make(room, size, seq++);
		ring_commit(&producer, size);
		if (ring_publish(&producer))
			ring_wake_futex(producer.ctl);
	}
	return NULL;
}

/* Both sides sleep without a time limit: a lost wake-up hangs the test. */
static void test_nobody_sleeps_for_ever(void **state)
{
	struct shm *shm = *state;
	struct ring consumer;
	pthread_t thread;

	shm_ring_n2c(shm, &consumer);
	pthread_create(&thread, NULL, wakes_produce, shm);
	for (uint64_t seq = 1; seq <= WAKES;) {
		struct frame_hdr hdr;
		const uint8_t *frame;

		if (ring_peek(&consumer, &hdr, &frame) == 1) {
			assert_int_equal(hdr.seq, seq++);
			ring_next(&consumer, &hdr);
			ring_release(&consumer);
		} else if (ring_sleep_begin(&consumer)) {
			ring_sleep_futex(&consumer, -1);
			ring_sleep_end(&consumer);
		}
	}
	pthread_join(thread, NULL);
}

static void reply_make(uint8_t *frame, uint16_t slot, uint64_t seq, uint32_t size)
{
	struct frame_hdr hdr = { .size = size, .kind = FRAME_REPLY, .slot = slot, .seq = seq };

	memset(frame, 0x55, size);
	memcpy(frame, &hdr, sizeof(hdr));
}

static void test_replies(void **state)
{
	const struct shm *shm = *state;
	static uint8_t frame[SESSION_SLOT_SIZE] __attribute__((aligned(8)));
	struct reply_slot *slot = shm_slot(shm, 3);

	reply_make(frame, 3, 10, 64);
	assert_int_equal(session_reply_post(shm, frame), -ENOENT); /* nobody waits */
	slot->state = SLOT_SENT;
	slot->seq = 11;
	assert_int_equal(session_reply_post(shm, frame), -ENOENT); /* an older call's */
	slot->seq = 10;
	assert_int_equal(session_reply_post(shm, frame), 0);
	assert_int_equal(slot->state, SLOT_DONE);
	assert_int_equal(slot->size, 64);
	assert_memory_equal(slot->data, frame, 64);
	assert_int_equal(session_reply_post(shm, frame), -ENOENT); /* twice */
	reply_make(frame, SESSION_SLOTS, 10, 64);
	assert_int_equal(session_reply_post(shm, frame), -EPROTO);
	reply_make(frame, 3, 10, sizeof(slot->data) + 1);
	assert_int_equal(session_reply_post(shm, frame), -EPROTO);
	reply_make(frame, 3, 10, 64);
	frame[6] = FRAME_NOTICE;
	assert_int_equal(session_reply_post(shm, frame), -EPROTO);
}

static void test_words(void **state)
{
	const struct shm *shm = *state;
	uint32_t bell = shm_header(shm)->progress_bell;

	assert_int_equal(session_progress_post(shm, SESSION_PROGRESS_WORDS, 1), -EPROTO);
	assert_int_equal(session_progress_post(shm, SESSION_PROGRESS_WORDS - 1, 77), 0);
	assert_int_equal(*shm_progress(shm, SESSION_PROGRESS_WORDS - 1), 77);
	assert_int_not_equal(shm_header(shm)->progress_bell, bell);
	assert_int_equal(session_error_post(shm, SESSION_CONTEXTS, 700, 1, 1), -EPROTO);
	assert_int_equal(session_error_post(shm, 0, 0, 1, 1), -EPROTO);
	assert_int_equal(session_error_post(shm, 1, 700, 9, 5), 0);
	assert_int_equal(session_error_post(shm, 1, 701, 9, 6), 0);
	assert_int_equal(shm_error(shm, 1)->code, 700);
	assert_int_equal(shm_error(shm, 1)->seq, 5);
	session_landed_post(shm, 3 * SESSION_GRANULE, SESSION_UP_SIZE + 3 * SESSION_GRANULE);
	assert_int_equal(*shm_landed(shm, 3), landed_value(SESSION_UP_SIZE + 3 * SESSION_GRANULE));
	session_up_tail_post(shm, 4096);
	assert_int_equal(session_up_wait(shm, 0, 1000000), 0);
	assert_int_equal(session_up_wait(shm, 4096, 1000000), -ETIMEDOUT);
}

static void *end_later(void *arg)
{
	usleep(50000);
	session_end_post(arg, END_LINK_LOST);
	return NULL;
}

/* A call, a producer without room and somebody who waits for the arena all wake when the session ends. */
static void test_end_wakes(void **state)
{
	struct shm *shm = *state;
	struct session_header *hdr = shm_header(shm);
	struct reply_slot *slot = shm_slot(shm, 200);
	pthread_t thread;

	session_live_post(shm);
	slot->seq = 1;
	slot->state = SLOT_SENT;
	pthread_create(&thread, NULL, end_later, shm);
	assert_int_equal(ring_room_wait(&hdr->c2n, 0, 5000000000), 0);
	assert_int_equal(hdr->state, SESSION_DEAD);
	assert_int_equal(hdr->reason, END_LINK_LOST);
	pthread_join(thread, NULL);
	assert_int_equal(slot->state, SLOT_DONE);
	assert_int_equal(slot->size, 0);
}

static void test_foreign_memory_is_checked(void **state)
{
	const struct shm *shm = *state;
	static const uint8_t other[32] = { 9 };
	struct shm mapped = { .fd = -1 };
	int fd;

	assert_int_equal(shm_map(&mapped, dup(shm->fd), hash), 0);
	assert_int_equal(shm_header(&mapped)->client_pid, 42);
	shm_close(&mapped);
	shm_close(&mapped); /* harmless */
	assert_int_equal(shm_map(&mapped, dup(shm->fd), other), -EPROTONOSUPPORT);
	assert_int_equal(ftruncate(shm->fd, 4096), -1);
	/* Not sealed: it could shrink under us. */
	fd = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, SESSION_SIZE), 0);
	assert_int_equal(shm_map(&mapped, dup(fd), NULL), -EPROTO);
	/* Sealed, but not a session's. */
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	assert_int_equal(shm_map(&mapped, fd, NULL), -EPROTO);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(shm_map(&mapped, fd, NULL), -EPROTO);
	shm_header(shm)->version = 99;
	assert_int_equal(shm_map(&mapped, dup(shm->fd), hash), -EPROTONOSUPPORT);
}

static bool resident(const uint8_t *at)
{
	unsigned char there = 0;

	assert_int_equal(mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 4096, &there), 0);
	return there & 1;
}

/* Whole units, and nothing of what was in them is lost. */
static void test_arenas_are_mapped_ahead(void **state)
{
	struct shm *shm = *state;

	memset(shm_up(shm) + SHM_UNIT - 8, 0x5a, 16);
	assert_false(resident(shm_up(shm) + 3 * SHM_UNIT));
	assert_false(resident(shm_down(shm)));
	/* The last byte of one unit, and the first of the next. */
	shm_up_touch(shm, SHM_UNIT - 1, 2, true);
	shm_up_touch(shm, SHM_UNIT - 1, 2, false);
	for (int i = -8; i < 8; i++)
		assert_int_equal(shm_up(shm)[(int)SHM_UNIT + i], 0x5a);
	assert_false(resident(shm_up(shm) + 3 * SHM_UNIT));
	shm_down_touch(shm, SESSION_DOWN_SIZE - 4096, 4096, true);
	assert_false(resident(shm_down(shm)));
	shm_down_touch(shm, 0, 0, true);
	assert_false(resident(shm_down(shm)));
	assert_true(shm->touched[0] & 3 && !(shm->touched[0] & 4));
	assert_int_equal(shm->touched[SHM_UNITS / 64 - 1], 1ull << 63);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_frames_pass, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_ring_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nonsense_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_sleeps_for_ever, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end_wakes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_arenas_are_mapped_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(test_foreign_memory_is_checked, setup, teardown),
	};
	struct fdcheck fds;
	int failed;

	fdcheck_begin(&fds);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return fdcheck_end(&fds) ? 1 : failed;
}
