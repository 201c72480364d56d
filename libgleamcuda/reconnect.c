// SPDX-License-Identifier: Apache-2.0
/*
 * A session's way to the gleamd that comes after its own. Any thread, one at a time; see reconnect.h.
 *
 * The end of the socket says that no thread of the old daemon runs any more, so the memory stands still but for what we write. What the
 * old one knew of files is lost with it: bytes that were left out because it had them are filled in now, and commands that spoke of
 * its files are made to speak of none.
 */
#include "libgleamcuda/reconnect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/lib/fdpass.h"
#include "gen/ops.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/weights.h"

#define ANSWER_MS     3000 /* beyond the time of grace, in which it may wait for its server to be announced */
#define PAUSE_NS      20000000ll /* between two tries of a thread that does nothing else */
#define GRACE_MS_MAX  600000u	 /* what the daemon wrote is not believed beyond this */

static const uint8_t protocol_hash[32] = PROTOCOL_HASH;

int64_t reconnect_pause_ns(const struct session *s, int64_t usual_ns)
{
	return __atomic_load_n(&s->away_ns, __ATOMIC_RELAXED) && usual_ns > PAUSE_NS ? PAUSE_NS : usual_ns;
}

static bool ended(struct session *s)
{
	__atomic_store_n(&s->dead, 1, __ATOMIC_RELAXED);
	return true;
}

/* ---- bytes that the old daemon knew ---- */

static bool fill(struct session *s, uint32_t number, uint64_t file_offset, uint32_t offset, uint32_t size)
{
	if (offset >= SESSION_UP_SIZE || size > SESSION_UP_SIZE - offset)
		return false;
	return weights_fill_locked(s, number, file_offset, shm_up(&s->shm) + offset, size);
}

/* Commands that it hasn't got rid of. The append lock is held. */
static bool commands_fill(struct session *s)
{
	const struct ring *ring = &s->c2n;
	uint64_t at = ring_tail(ring);

	if (at > ring->at || ring->at - at > ring->size)
		return false;
	while (at < ring->at) {
		uint8_t *frame = ring_place(ring, at);
		struct frame_hdr hdr = { 0 };
		struct bulk_ref ref;
		struct bulk_file file;
		uint8_t *place = frame + sizeof(hdr) + sizeof(ref);

		/* Padding may have eight bytes. */
		memcpy(&hdr, frame, FRAME_ALIGN);
		if (hdr.size < FRAME_ALIGN || hdr.size > ring->at - at)
			return false;
		at += RING_ALIGN(hdr.size);
		if (hdr.kind != FRAME_COMMAND || !(hdr.flags & FRAME_BULK_FILE))
			continue;
		ref = ring_bulk_ref(frame);
		memcpy(&file, place, sizeof(file));
		if (file.absent && !fill(s, file.file, file.offset, ref.offset, ref.size))
			return false;
		file.file = BULK_FILE_NONE;
		file.absent = 0;
		memcpy(place, &file, sizeof(file));
	}
	return true;
}

/* Pieces of commands that the worker has taken, which wait for their bytes. */
static bool pieces_fill(struct session *s)
{
	struct session_baton *baton = (struct session_baton *)(void *)(s->shm.base + SESSION_AT_BATON);
	uint64_t up_tail = __atomic_load_n(&s->header->up_tail, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < SESSION_GRANULES; i++) {
		struct baton_piece *piece = &baton->pieces[i];

		if (!piece->size || piece->cookie < up_tail || !piece->file)
			continue;
		if (!fill(s, piece->file - 1, piece->file_offset, piece->offset, piece->size))
			return false;
		piece->file = 0;
	}
	return true;
}

static bool bytes_fill(struct session *s)
{
	bool whole;

	weights_lock();
	/* Who appends from here on sees that what it knows of files is old. */
	pthread_mutex_lock(&s->append_lock);
	__atomic_fetch_add(&s->returns, 1, __ATOMIC_RELEASE);
	whole = commands_fill(s) && pieces_fill(s);
	pthread_mutex_unlock(&s->append_lock);
	weights_forget_locked(s);
	weights_unlock();
	return whole;
}

/* ---- the new daemon ---- */

/* A socket that doesn't block, or -errno. */
static int try_connect(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

static int ask(int fd, int memory)
{
	uint8_t packet[64] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));

	put_u32(&w, LOCAL_RETURN);
	put_u32(&w, LINK_VERSION);
	put_block(&w, protocol_hash, sizeof(protocol_hash));
	put_u32(&w, (uint32_t)getpid());
	return fds_send(fd, packet, w.at, &memory, 1, 0);
}

/* The doorbell; -ECONNREFUSED: it doesn't go on with the session, and @why says why; else -errno. */
static int answer(int fd, uint64_t until_ns, char *why, size_t why_size)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	struct reader r;
	uint32_t type;
	const char *text;
	ssize_t size;
	int bell;

	/* It must not be left once it was asked: for it our end of the socket is the program's. */
	for (;;) {
		uint64_t now = clock_ns();
		int ready = poll(&poll_fd, 1, now < until_ns ? (int)((until_ns - now) / NS_PER_MS) + 1 : 0);

		if (ready > 0)
			break;
		if (ready == 0 || errno != EINTR)
			return -ETIMEDOUT;
	}
	size = fds_recv(fd, packet, sizeof(packet), &bell, 1, MSG_DONTWAIT);
	if (size <= 0)
		return size ? (int)size : -ECONNRESET;
	r = reader_on(packet, (size_t)size);
	type = get_u32(&r);
	get_u32(&r);
	text = get_str(&r, (size_t)size);
	if (!r.fault && type == LOCAL_OPENED && bell >= 0)
		return bell;
	if (bell >= 0)
		close(bell);
	if (r.fault || type != LOCAL_REFUSED)
		return -EPROTO;
	snprintf(why, why_size, "%.500s", text);
	return -ECONNREFUSED;
}

/* Both take the numbers of the old ones, which other threads may be using: with the old ones that led nowhere. */
static int numbers_take(struct session *s, int fd, int bell)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 || dup3(bell, s->doorbell, O_CLOEXEC) < 0 ||
	    dup3(fd, s->socket, O_CLOEXEC) < 0)
		return -errno;
	return 0;
}

/* 0: it goes on. -EAGAIN: there is nobody yet. Else the session has ended. */
static int go_on(struct session *s, uint64_t until_ns)
{
	char why[512] = "";
	int fd = try_connect(s->path);
	int bell, err;

	if (fd < 0)
		return -EAGAIN;
	err = ask(fd, s->shm.fd);
	bell = err ? err : answer(fd, until_ns, why, sizeof(why));
	if (bell == -ECONNREFUSED || bell == -EPROTO || bell == -ETIMEDOUT) {
		gleam_log("gleamd was restarted and does not go on with this program's session: %s; every CUDA call fails from now on; start "
			  "the program again", *why ? why : bell == -ETIMEDOUT ? "no answer" : "it is of another version");
		close(fd);
		return -ECONNREFUSED;
	}
	if (bell < 0) {
		close(fd);
		return -EAGAIN;
	}
	err = numbers_take(s, fd, bell);
	close(fd);
	close(bell);
	if (err) {
		gleam_log("gleamd was restarted, and its socket can't be used: %s", strerror(-err));
		return err;
	}
	/* Who rang before that has rung at a door that leads nowhere. */
	ring_wake_fd(s->doorbell);
	return 0;
}

static uint64_t grace_ms(const struct session *s)
{
	uint32_t ms = __atomic_load_n(&s->header->grace_ms, __ATOMIC_RELAXED);

	return ms < GRACE_MS_MAX ? ms : GRACE_MS_MAX;
}

/* The lock is held. */
static bool look(struct session *s)
{
	uint64_t now = clock_ns(), away = __atomic_load_n(&s->away_ns, __ATOMIC_RELAXED);
	double grace_s = (double)grace_ms(s) / 1000;
	int err;

	/* Nobody else changes it. A worker of this machine ends with its daemon. */
	if (!away && (session_is_direct(s) || grace_ms(s) == 0)) {
		gleam_log("gleamd has ended%s: every CUDA call fails from now on; start the program again once gleamd runs",
			  session_is_direct(s) ? ", and the worker of this machine with it" : "");
		return ended(s);
	}
	if (!away) {
		gleam_log("gleamd has ended; the program waits up to %.1f s for it to come back", grace_s);
		if (!bytes_fill(s)) {
			gleam_log("a file has changed while it was being loaded from it, and gleamd, which had its bytes, was restarted: "
				  "every CUDA call fails from now on; start the program again");
			return ended(s);
		}
		away = now;
		__atomic_store_n(&s->away_ns, away, __ATOMIC_RELAXED);
	}
	err = go_on(s, away + (grace_ms(s) + ANSWER_MS) * NS_PER_MS);
	if (err == 0) {
		__atomic_store_n(&s->away_ns, 0, __ATOMIC_RELAXED);
		weights_back(s);
		gleam_log("gleamd is back, after %.1f s", (double)(clock_ns() - away) / 1e9);
		return false;
	}
	if (err != -EAGAIN)
		return ended(s);
	if (now - away < grace_ms(s) * NS_PER_MS)
		return false;
	gleam_log("gleamd did not come back within %.1f s: every CUDA call fails from now on; start it (systemctl start gleamd), then the "
		  "program again", grace_s);
	return ended(s);
}

bool reconnect_look(struct session *s)
{
	bool over;

	/* Who finds it taken looks again later. */
	if (pthread_mutex_trylock(&s->return_lock))
		return session_is_dead(s);
	over = session_is_dead(s) || (session_has_ended(s) && look(s));
	pthread_mutex_unlock(&s->return_lock);
	return over;
}
