/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker without a driver: takes the command line of gleam-worker and answers frames as tests/fake/fake.h says. One
 * thread. Environment by --driver: a path whose last part begins with "fail" makes it refuse to get ready, "never"
 * makes it say nothing, "slow" ready after 6 s, "crash" makes it die.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/ring.h"
#include "broker/lib/shm.h"
#include "broker/proto/progress.h"
#include "tests/fake/fake.h"

static struct shm shm;
static struct ring c2n, n2c;
static int doorbell;
static uint64_t up_tail;

static uint8_t *frame_begin(uint32_t size)
{
	uint8_t *room;
	int err;

	for (;;) {
		uint64_t tail = ring_tail(&n2c);

		err = ring_reserve(&n2c, size, &room);
		if (err != -EAGAIN)
			break;
		ring_room_wait(n2c.ctl, tail, 1000000000);
	}
	if (err) {
		fprintf(stderr, "fake worker: reserve: %d\n", err);
		exit(3);
	}
	return room;
}

static void frame_end(uint32_t size)
{
	ring_commit(&n2c, size);
	if (ring_publish(&n2c))
		ring_wake_fd(doorbell);
}

static void frame_post(const struct frame_hdr *hdr, const void *a, size_t a_size, const void *b, size_t b_size)
{
	struct frame_hdr own = *hdr;
	uint8_t *room;

	own.size = (uint32_t)(sizeof(own) + a_size + b_size);
	room = frame_begin(own.size);
	memcpy(room, &own, sizeof(own));
	if (a_size)
		memcpy(room + sizeof(own), a, a_size);
	if (b_size)
		memcpy(room + sizeof(own) + a_size, b, b_size);
	frame_end(own.size);
}

static void reply(const struct frame_hdr *to, const struct bulk_ref *ref, const void *out, size_t size)
{
	uint8_t body[FRAME_SIZE_MAX];
	struct frame_hdr hdr = { .op = to->op, .kind = FRAME_REPLY, .flags = ref ? FRAME_BULK_DOWN : 0, .slot = to->slot,
				 .seq = to->seq };
	size_t at = 0;
	uint64_t result = 0; /* CUDA_SUCCESS, and a gap up to 8 bytes */

	if (ref) {
		memcpy(body, ref, sizeof(*ref));
		at = sizeof(*ref);
	}
	memcpy(body + at, &result, sizeof(result));
	frame_post(&hdr, body, at + sizeof(result), out, size);
}

static void notice(enum notice op, uint64_t seq, const void *bytes, size_t size)
{
	struct frame_hdr hdr = { .op = (uint16_t)op, .kind = FRAME_NOTICE, .seq = seq };

	frame_post(&hdr, bytes, size, NULL, 0);
}

/* Until the bytes of an up piece lie in our arena. */
static void landed_wait(const struct bulk_ref *ref)
{
	uint32_t *word = shm_landed(&shm, landed_word(ref->offset));

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != landed_value(ref->cookie)) {
		if (!ring_sleep_begin(&c2n))
			continue;
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != landed_value(ref->cookie))
			ring_sleep_futex(&c2n, 100000000);
		ring_sleep_end(&c2n);
	}
}

static void handle(const struct frame_hdr *hdr, const uint8_t *frame)
{
	const uint8_t *payload = frame + sizeof(*hdr);
	size_t size = hdr->size - sizeof(*hdr);
	struct bulk_ref ref = { 0 };
	uint64_t argument = 0, out;

	if (hdr->flags & (FRAME_BULK_UP | FRAME_BULK_DOWN)) {
		ref = ring_bulk_ref(frame);
		payload += sizeof(ref);
		size -= sizeof(ref);
	}
	if (size >= sizeof(argument))
		memcpy(&argument, payload, sizeof(argument));
	switch ((enum fake_op)hdr->op) {
	case FAKE_ECHO:
		if (hdr->flags & FRAME_WANTS_REPLY)
			reply(hdr, NULL, payload, size);
		break;
	case FAKE_SUM:
	case FAKE_SINK:
		landed_wait(&ref);
		out = hdr->op == FAKE_SINK ? 0 : fake_sum(shm_up(&shm) + ref.offset, ref.size, 0);
		up_tail = ref.cookie + ((ref.size + SESSION_GRANULE - 1) & ~(SESSION_GRANULE - 1));
		notice(NOTICE_CONSUMED, hdr->seq, &up_tail, sizeof(up_tail));
		if (hdr->flags & FRAME_WANTS_REPLY)
			reply(hdr, NULL, &out, sizeof(out));
		break;
	case FAKE_FILL:
		fake_fill(shm_down(&shm) + ref.offset, ref.size, argument);
		out = fake_sum(shm_down(&shm) + ref.offset, ref.size, 0);
		reply(hdr, &ref, &out, sizeof(out));
		break;
	case FAKE_PROGRESS: {
		uint32_t words[2] = { (uint32_t)(argument >> 32), (uint32_t)argument };

		notice(NOTICE_PROGRESS, hdr->seq, words, sizeof(words));
		break;
	}
	case FAKE_ERROR: {
		uint32_t words[3] = { 0, (uint32_t)argument, hdr->op };

		notice(NOTICE_ERROR, hdr->seq, words, sizeof(words));
		break;
	}
	case FAKE_PRINT:
		for (uint64_t i = 0; i < argument; i++)
			notice(NOTICE_PRINT, i, payload, size);
		break;
	case FAKE_CRASH:
		abort();
	case FAKE_EXIT:
		exit((int)argument);
	case FAKE_LIE_FRAME: {
		struct frame_hdr lie = { .kind = FRAME_REPLY, .flags = 0x80, .seq = hdr->seq };

		frame_post(&lie, NULL, 0, NULL, 0);
		break;
	}
	case FAKE_LIE_TAIL:
		__atomic_store_n(&c2n.ctl->tail, c2n.ctl->head + 4096, __ATOMIC_RELEASE);
		for (;;)
			pause();
	case FAKE_LIE_BULK: {
		struct bulk_ref lie = { .offset = SESSION_DOWN_SIZE - 8, .size = 4096 };

		reply(hdr, &lie, NULL, 0);
		break;
	}
	case FAKE_STALL:
		for (;;)
			pause();
	case FAKE_PID:
		out = (uint64_t)getpid();
		reply(hdr, NULL, &out, sizeof(out));
		break;
	case FAKE_COMMAND: {
		struct frame_hdr lie = { .kind = FRAME_COMMAND, .op = 1 };

		frame_post(&lie, NULL, 0, NULL, 0);
		break;
	}
	case FAKE_OP_MAX:
		break;
	}
}

static void plan(const char *driver, int status)
{
	static const char why[] = "Ethe fake driver can't be loaded, as planned";
	const char *name = strrchr(driver, '/');

	name = name ? name + 1 : driver;
	if (strncmp(name, "fail", 4) == 0) {
		if (write(status, why, sizeof(why) - 1) < 0)
			exit(3);
		exit(1);
	}
	if (strncmp(name, "never", 5) == 0)
		for (;;)
			pause();
	if (strncmp(name, "crash", 5) == 0)
		abort();
	if (strncmp(name, "slow", 4) == 0)
		sleep(6);
	if (write(status, "R", 1) != 1)
		exit(3);
	close(status);
}

int main(int argc, char **argv)
{
	const char *driver = "";
	struct frame_hdr hdr;
	const uint8_t *frame;
	int session = -1, status = -1;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--session-fd") == 0)
			session = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--doorbell-fd") == 0)
			doorbell = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--status-fd") == 0)
			status = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--driver") == 0)
			driver = argv[i + 1];
	}
	if (shm_map(&shm, session, NULL)) {
		fprintf(stderr, "fake worker: no session memory\n");
		return 3;
	}
	shm_ring_c2n(&shm, &c2n);
	shm_ring_n2c(&shm, &n2c);
	plan(driver, status);
	for (;;) {
		int got = ring_peek(&c2n, &hdr, &frame);

		if (got < 0) {
			fprintf(stderr, "fake worker: the command ring is nonsense\n");
			return 4;
		}
		if (got == 1) {
			handle(&hdr, frame);
			ring_next(&c2n, &hdr);
			ring_release(&c2n);
			continue;
		}
		if (__atomic_load_n(&shm_header(&shm)->state, __ATOMIC_ACQUIRE) == SESSION_DEAD)
			return 0;
		if (ring_sleep_begin(&c2n)) {
			ring_sleep_futex(&c2n, 200000000);
			ring_sleep_end(&c2n);
		}
	}
}
