/* SPDX-License-Identifier: Apache-2.0 */
/* A client's end of a session for tests. One thread; see fake_session.h. */
#include "tests/fake/fake_session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/lib/fdpass.h"
#include "broker/lib/futex.h"
#include "broker/lib/hash.h"
#include "broker/lib/slot.h"

int fake_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static int answer_take(struct fake_session *s)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	struct pollfd ready = { .fd = s->fd, .events = POLLIN };
	int fds[2];
	struct reader r;
	uint32_t type;
	ssize_t size;

	do {
		if (poll(&ready, 1, 30000) <= 0)
			return -ETIMEDOUT;
		size = fds_recv(s->fd, packet, sizeof(packet), fds, 2, 0);
		if (size <= 0)
			return -ECONNRESET;
		r = reader_on(packet, (size_t)size);
		type = get_u32(&r);
		if (type == LOCAL_WAITING)
			s->waited++;
	} while (type == LOCAL_WAITING);

	uint32_t number = get_u32(&r);
	const char *text = get_str(&r, 1000);

	if (type == LOCAL_REFUSED) {
		s->end = number;
		snprintf(s->why, sizeof(s->why), "%.*s", (int)sizeof(s->why) - 1, text);
		return -ECONNREFUSED;
	}
	if (type != LOCAL_OPENED || r.fault || fds[1] < 0)
		return -EPROTO;
	snprintf(s->server, sizeof(s->server), "%.*s", (int)sizeof(s->server) - 1, text);
	s->doorbell = fds[1];
	return shm_map(&s->shm, fds[0], protocol_hash);
}

int fake_open(struct fake_session *s, const char *path, const char *settings)
{
	uint8_t packet[8192] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	int err;

	memset(s, 0, sizeof(*s));
	s->shm.fd = -1;
	s->doorbell = -1;
	snprintf(s->path, sizeof(s->path), "%s", path);
	s->fd = fake_connect(path);
	if (s->fd < 0)
		return s->fd;
	put_u32(&w, LOCAL_OPEN);
	put_u32(&w, LINK_VERSION);
	put_block(&w, protocol_hash, PROTOCOL_HASH_SIZE);
	put_u32(&w, (uint32_t)getpid());
	put_str(&w, "fake-client");
	put_str(&w, settings);
	err = send(s->fd, packet, w.at, MSG_NOSIGNAL) == (ssize_t)w.at ? answer_take(s) : -errno;
	if (err) {
		close(s->fd);
		s->fd = -1;
		return err;
	}
	shm_ring_c2n(&s->shm, &s->c2n);
	shm_ring_n2c(&s->shm, &s->n2c);
	return 0;
}

void fake_close(struct fake_session *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->doorbell >= 0)
		close(s->doorbell);
	shm_close(&s->shm);
	s->fd = s->doorbell = -1;
}

bool fake_is_alone(const struct fake_session *s)
{
	char byte;

	return recv(s->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

int fake_return(struct fake_session *s, int memory, uint32_t version)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	int fd = fake_connect(s->path);
	int bell = -1;
	struct reader r;
	uint32_t type;
	ssize_t size;

	if (fd < 0)
		return fd;
	put_u32(&w, LOCAL_RETURN);
	put_u32(&w, version);
	put_block(&w, protocol_hash, PROTOCOL_HASH_SIZE);
	put_u32(&w, (uint32_t)getpid());
	size = fds_send(fd, packet, w.at, &memory, memory >= 0, 0);
	if (size == 0)
		size = fds_recv(fd, packet, sizeof(packet), &bell, 1, 0);
	if (size <= 0) {
		close(fd);
		return -EPIPE;
	}
	r = reader_on(packet, (size_t)size);
	type = get_u32(&r);
	if (type == LOCAL_REFUSED) {
		s->end = get_u32(&r);
		snprintf(s->why, sizeof(s->why), "%.1000s", get_str(&r, 2000));
		close(fd);
		return -ECONNREFUSED;
	}
	if (type != LOCAL_OPENED || bell < 0) {
		close(fd);
		return -EPROTO;
	}
	dup2(bell, s->doorbell);
	dup2(fd, s->fd);
	close(bell);
	close(fd);
	s->returned++;
	ring_wake_fd(s->doorbell);
	return 0;
}

bool fake_is_dead(struct fake_session *s)
{
	if (__atomic_load_n(&shm_header(&s->shm)->state, __ATOMIC_ACQUIRE) != SESSION_DEAD) {
		if (s->returns && fake_is_alone(s) && fake_return(s, s->shm.fd, LINK_VERSION) == -ECONNREFUSED && s->end)
			fprintf(stderr, "fake-client: refused: %s\n", s->why);
		return false;
	}
	s->end = shm_header(&s->shm)->reason;
	return true;
}

uint64_t fake_post(struct fake_session *s, enum fake_op op, uint16_t flags, uint16_t slot, const struct bulk_ref *ref,
		   uint64_t argument, const void *bytes, size_t size)
{
	struct frame_hdr hdr = {
		.size = (uint32_t)(sizeof(hdr) + (ref ? sizeof(*ref) : 0) + sizeof(argument) + size),
		.op = (uint16_t)op, .kind = FRAME_COMMAND, .flags = (uint8_t)flags, .slot = slot, .ctx = CTX_NONE, .thread = 1,
	};
	uint8_t *room, *at;
	int err;

	for (;;) {
		uint64_t tail = ring_tail(&s->c2n);

		err = ring_reserve(&s->c2n, hdr.size, &room);
		if (err != -EAGAIN || fake_is_dead(s))
			break;
		ring_room_wait(s->c2n.ctl, tail, 100000000);
	}
	if (err || fake_is_dead(s))
		return 0;
	hdr.seq = ++s->seq;
	if (flags & FRAME_WANTS_REPLY) {
		struct reply_slot *waiting = shm_slot(&s->shm, slot);

		waiting->seq = hdr.seq;
		__atomic_store_n(&waiting->state, SLOT_SENT, __ATOMIC_SEQ_CST);
	}
	memcpy(room, &hdr, sizeof(hdr));
	at = room + sizeof(hdr);
	if (ref) {
		memcpy(at, ref, sizeof(*ref));
		at += sizeof(*ref);
	}
	memcpy(at, &argument, sizeof(argument));
	if (size)
		memcpy(at + sizeof(argument), bytes, size);
	ring_commit(&s->c2n, hdr.size);
	if (ring_publish(&s->c2n))
		ring_wake_fd(s->doorbell);
	return hdr.seq;
}

int fake_wait(struct fake_session *s, uint16_t slot, void *out, size_t size_max, int timeout_ms)
{
	struct reply_slot *waiting = shm_slot(&s->shm, slot);
	uint64_t until = clock_ns() + (uint64_t)timeout_ms * NS_PER_MS;
	const uint32_t head = sizeof(struct frame_hdr);

	for (;;) {
		uint32_t state = __atomic_load_n(&waiting->state, __ATOMIC_ACQUIRE);
		uint32_t sent = SLOT_SENT;

		if (state == SLOT_DONE) {
			struct frame_hdr hdr;
			uint32_t size = waiting->size;
			uint32_t at = head + 8;

			__atomic_store_n(&waiting->state, SLOT_FREE, __ATOMIC_RELEASE);
			if (size < head) {
				fake_is_dead(s);
				return -ENODEV;
			}
			memcpy(&hdr, waiting->data, sizeof(hdr));
			if (hdr.flags & FRAME_BULK_DOWN)
				at += sizeof(struct bulk_ref);
			size = size > at ? size - at : 0;
			if (size > size_max)
				size = (uint32_t)size_max;
			memcpy(out, waiting->data + at, size);
			return (int)size;
		}
		if (fake_is_dead(s))
			return -ENODEV;
		if (clock_ns() > until)
			return -ETIMEDOUT;
		if (state == SLOT_SLEEPING ||
		    __atomic_compare_exchange_n(&waiting->state, &sent, SLOT_SLEEPING, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			if (!fake_is_dead(s))
				futex_wait(&waiting->state, SLOT_SLEEPING, 100000000);
	}
}

int fake_call(struct fake_session *s, enum fake_op op, uint64_t argument, const void *bytes, size_t size, void *out,
	      size_t size_max)
{
	if (!fake_post(s, op, FRAME_WANTS_REPLY, 0, NULL, argument, bytes, size))
		return -ENODEV;
	return fake_wait(s, 0, out, size_max, 20000);
}

bool fake_up_take(struct fake_session *s, uint32_t size, struct bulk_ref *ref_out)
{
	struct session_header *hdr = shm_header(&s->shm);
	uint32_t whole = (size + SESSION_GRANULE - 1) & ~(SESSION_GRANULE - 1);

	/* A piece does not wrap. */
	if (s->up_head % SESSION_UP_SIZE + whole > SESSION_UP_SIZE)
		s->up_head += SESSION_UP_SIZE - s->up_head % SESSION_UP_SIZE;
	for (;;) {
		uint64_t tail = __atomic_load_n(&hdr->up_tail, __ATOMIC_ACQUIRE);

		if (s->up_head + whole - tail <= SESSION_UP_SIZE)
			break;
		if (fake_is_dead(s))
			return false;
		session_up_wait(&s->shm, tail, 100000000);
	}
	ref_out->offset = (uint32_t)(s->up_head % SESSION_UP_SIZE);
	ref_out->size = size;
	ref_out->cookie = s->up_head;
	s->up_head += whole;
	__atomic_store_n(&hdr->up_head, s->up_head, __ATOMIC_RELEASE);
	return true;
}

char *fake_ask(const char *path, const char *request)
{
	static uint8_t packet[LOCAL_MSG_MAX] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	int fd = fake_connect(path);
	char *text = calloc(1, 1);
	size_t at = 0;

	if (fd < 0) {
		free(text);
		return NULL;
	}
	put_u32(&w, LOCAL_CONTROL);
	put_str(&w, request);
	if (send(fd, packet, w.at, MSG_NOSIGNAL) != (ssize_t)w.at)
		goto failed;
	for (uint32_t more = 1; more;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		ssize_t size = poll(&ready, 1, 10000) > 0 ? recv(fd, packet, sizeof(packet), 0) : -1;

		if (size <= 0)
			goto failed;

		struct reader r = reader_on(packet, (size_t)size);
		uint32_t type = get_u32(&r);

		more = get_u32(&r);

		const char *part = get_str(&r, LOCAL_MSG_MAX);

		if (type != LOCAL_JSON || r.fault)
			goto failed;
		text = realloc(text, at + strlen(part) + 1);
		strcpy(text + at, part);
		at += strlen(part);
	}
	close(fd);
	return text;

failed:
	close(fd);
	free(text);
	return NULL;
}
