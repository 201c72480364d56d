// SPDX-License-Identifier: Apache-2.0
/*
 * gleam-worker: a client that shares its memory, and the daemon's own commands beside the client's (the side rings): the client is held
 * and goes on, what is said of a move goes to the daemon alone, and what the one may say isn't for the other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "broker/lib/slot.h"
#include "tests/unit/worker_session.h"

static struct ring side_c2n, side_n2c; /* the daemon's ends */

static void share(struct client *c)
{
	struct bulk_ref cells = { .offset = 0, .size = SESSION_CELL_SIZE, .cookie = 77 };
	struct reply_slot *slot = shm_slot(&c->shm, (uint32_t)(c->seq % SESSION_SLOTS));

	shm_ring_side_c2n(&c->shm, &side_c2n);
	shm_ring_side_n2c(&c->shm, &side_n2c);
	__atomic_store_n(&shm_header(&c->shm)->direct, 1, __ATOMIC_RELEASE);
	slot->seq = c->seq + 1;
	__atomic_store_n(&slot->state, SLOT_SENT, __ATOMIC_RELEASE);
	SEND_FLAGS(c, gleamAttach, FRAME_WANTS_REPLY | FRAME_BULK_DOWN, &cells, .ordinals = 0);
	while (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) != SLOT_DONE)
		pause_ms(1);
	SEND(c, gleamContextOpen, .index = CTX, .device = 0, .primary = 1);
}

static void daemon_put(struct client *c, struct ring *ring, uint32_t step, uint64_t seq)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct msg_gleamMoveOut m = { .step = step, .limit = 1u << 20 };
	struct writer w = writer_on(payload, sizeof(payload));
	struct frame_hdr hdr = { .op = OP_gleamMoveOut, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .flags = FRAME_WANTS_REPLY, .seq = seq };
	uint8_t *room;

	msg_gleamMoveOut_put(&w, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + w.at);
	CHECK(ring_reserve(ring, hdr.size, &room) == 0);
	memcpy(room, &hdr, sizeof(hdr));
	memcpy(room + sizeof(hdr), payload, w.at);
	ring_commit(ring, hdr.size);
	if (ring_publish(ring))
		ring_wake_futex(&shm_header(&c->shm)->c2n);
}

/* The answer to @step, and how many notices of a move came before it. */
static struct ans_gleamMoveOut ask(struct client *c, uint32_t step, unsigned *said_out)
{
	struct ans_gleamMoveOut a = { 0 };
	unsigned said = 0;

	daemon_put(c, &side_c2n, step, 0);
	for (;;) {
		struct frame_hdr hdr;
		const uint8_t *frame;
		int got = ring_peek(&side_n2c, &hdr, &frame);

		CHECK(got >= 0);
		if (!got) {
			pause_ms(1);
			continue;
		}
		ring_next(&side_n2c, &hdr);
		ring_release(&side_n2c);
		if (hdr.kind == FRAME_NOTICE) {
			CHECK_EQUAL(hdr.op, NOTICE_MOVE);
			said++;
			continue;
		}
		struct reader r = reader_on(frame + sizeof(hdr), hdr.size - sizeof(hdr));

		CHECK_EQUAL(hdr.seq, 0);
		CHECK_EQUAL(get_u32(&r), 0);
		CHECK(ans_gleamMoveOut_get(&r, &a));
		if (said_out)
			*said_out = said;
		return a;
	}
}

static void consumed(struct client *c)
{
	while (ring_tail(&c->c2n) != c->c2n.at)
		pause_ms(1);
}

static void held(struct client *c)
{
	unsigned said;
	uint64_t tail;

	share(c);
	consumed(c);
	CHECK_EQUAL(ask(c, MOVE_HOLD, NULL).sequence, c->seq);
	tail = ring_tail(&c->c2n);
	SEND(c, cuCtxSetCacheConfig, .config = 2);
	/* It has had time to look: it has answered since. */
	for (int i = 0; i < 3; i++)
		CHECK_EQUAL(ask(c, MOVE_CHECK, NULL).sequence, c->seq - 1);
	CHECK_EQUAL(ring_tail(&c->c2n), tail);
	/* What it says goes to the daemon, and to nobody else. */
	CHECK_EQUAL(ask(c, MOVE_COPY, &said).code, 0);
	CHECK(said > 0);
	CHECK_EQUAL(shm_header(&c->shm)->n2c.head, 0);
	/* A client that goes on writing wakes it in vain. */
	for (int i = 0; i < 100; i++)
		SEND(c, cuCtxSetCacheConfig, .config = 1);
	CHECK_EQUAL(ask(c, MOVE_CHECK, NULL).sequence, c->seq - 101);
	CHECK_EQUAL(ask(c, MOVE_FORGET, NULL).code, 0);
	ask(c, MOVE_GO_ON, NULL);
	consumed(c);
	CHECK_EQUAL(ask(c, MOVE_CHECK, NULL).sequence, c->seq);
}

static void test_a_client_is_held_and_goes_on(void **state)
{
	(void)state;
	assert_true(child_run(held, NULL));
}

/* Asleep, held: the daemon's command wakes it. */
static void woken(struct client *c)
{
	share(c);
	consumed(c);
	ask(c, MOVE_HOLD, NULL);
	while (!__atomic_load_n(&shm_header(&c->shm)->side_c2n.sleeping, __ATOMIC_ACQUIRE))
		pause_ms(1);
	ask(c, MOVE_GO_ON, NULL);
	while (!__atomic_load_n(&shm_header(&c->shm)->c2n.sleeping, __ATOMIC_ACQUIRE))
		pause_ms(1);
	SEND(c, cuCtxSetCacheConfig, .config = 1);
	consumed(c);
}

static void test_sleep_ends_by_either(void **state)
{
	(void)state;
	assert_true(child_run(woken, NULL));
}

static void client_asks(struct client *c)
{
	share(c);
	daemon_put(c, &c->c2n, MOVE_CHECK, 0);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void daemon_numbers(struct client *c)
{
	share(c);
	consumed(c);
	daemon_put(c, &side_c2n, MOVE_CHECK, c->seq + 1);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void nonsense(struct client *c)
{
	share(c);
	consumed(c);
	__atomic_store_n(&shm_header(&c->shm)->side_c2n.head, 3, __ATOMIC_RELEASE);
	ring_wake_futex(&shm_header(&c->shm)->c2n);
	CHECK_EQUAL(wait_exit(c), EXIT_PROTOCOL);
}

static void test_each_has_its_own(void **state)
{
	(void)state;
	assert_true(child_run(client_asks, NULL));
	assert_true(child_run(daemon_numbers, NULL));
	assert_true(child_run(nonsense, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_client_is_held_and_goes_on),
		cmocka_unit_test(test_sleep_ends_by_either),
		cmocka_unit_test(test_each_has_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
