// SPDX-License-Identifier: Apache-2.0
/*
 * The process's session: found and opened by cuInit, ended by the process's end. What threads share of it (slots,
 * cells, up pieces, words) is handed out here. Any thread.
 */
#include "libgleamcuda/session.h"

#include <errno.h>
#include <fcntl.h>
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
#include "broker/lib/futex.h"
#include "broker/lib/slot.h"
#include "broker/proto/progress.h"
#include "gen/ops.h"
#include "libgleamcuda/array.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/host.h"
#include "libgleamcuda/kdev.h"
#include "libgleamcuda/late.h"
#include "libgleamcuda/link.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/logs.h"
#include "libgleamcuda/memory.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/peer.h"
#include "libgleamcuda/program.h"
#include "libgleamcuda/reconnect.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/share.h"
#include "libgleamcuda/stream.h"
#include "libgleamcuda/texture.h"
#include "libgleamcuda/trace.h"

#define ANSWER_WAIT_MS 10000 /* a daemon answers or says LOCAL_WAITING within 3 s */
#define OPEN_WAIT_MS   (LOCAL_OPEN_MS_MAX + ANSWER_WAIT_MS)
#define AGAIN_WAIT_MS  10000 /* a daemon that was stopped while it was asked may be back by then */
#define AGAIN_PAUSE_MS 100
#define SOCKET_PATH_SIZE sizeof(((struct session *)0)->path)

static const uint8_t protocol_hash[32] = PROTOCOL_HASH;
/* Written by cuInit, the count behind its entry. */
static struct session *sessions[SESSIONS_MAX]; /* atomic */
static uint32_t opened_count;		       /* atomic */

struct session *session_current(void)
{
	return __atomic_load_n(&sessions[0], __ATOMIC_ACQUIRE);
}

struct session *session_at(uint32_t index)
{
	return index < SESSIONS_MAX ? __atomic_load_n(&sessions[index], __ATOMIC_ACQUIRE) : NULL;
}

uint32_t session_count(void)
{
	return __atomic_load_n(&opened_count, __ATOMIC_ACQUIRE);
}

/* ---- finding the daemon ---- */

/* A program that has closed its stdout must not write into our socket: descriptors of ours begin at 3. Takes @fd. */
static int fd_above_stdio(int fd)
{
	int above;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	close(fd);
	return above;
}

static int socket_try(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = fd_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* GLEAM_SOCKET alone if it is set; else the user's own daemon, else the machine's. */
static int socket_find(char path[SOCKET_PATH_SIZE])
{
	const char *asked = secure_getenv("GLEAM_SOCKET");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	int fd;

	if (asked && *asked) {
		snprintf(path, SOCKET_PATH_SIZE, "%s", asked);
		fd = socket_try(asked);
		if (fd < 0)
			gleam_log("GLEAM_SOCKET=%s: %s; is gleamd running with this socket?", asked, strerror(-fd));
		return fd;
	}
	if (runtime && *runtime) {
		if ((size_t)snprintf(path, SOCKET_PATH_SIZE, "%s/gleam/gleamd.sock", runtime) < SOCKET_PATH_SIZE) {
			fd = socket_try(path);
			if (fd >= 0)
				return fd;
		}
	}
	snprintf(path, SOCKET_PATH_SIZE, "%s", LOCAL_SOCKET_SYSTEM);
	fd = socket_try(LOCAL_SOCKET_SYSTEM);
	if (fd < 0)
		gleam_log("no gleamd: %s: %s; start it (systemctl start gleamd), or set GLEAM_SOCKET",
			  LOCAL_SOCKET_SYSTEM, strerror(-fd));
	return fd;
}

/* ---- opening ---- */

/* What the worker must know of this program's environment: NAME=value, separated by newlines. */
static void settings_collect(char *text, size_t size)
{
	static const char *const names[] = {
		"GLEAM_SERVER", "GLEAM_OFF", "GLEAM_CACHE", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "CUDA_FORCE_PTX_JIT",
		"CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_JIT", "CUDA_DISABLE_JIT", "GLEAM_GPUS", "CUDA_VISIBLE_DEVICES",
		"CUDA_DEVICE_ORDER", "GLEAM_PRIORITY",
	};
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = secure_getenv(names[i]);
		int more;

		if (!value || strchr(value, '\n'))
			continue;
		more = snprintf(text + at, size - at, "%s=%s\n", names[i], value);
		if (more < 0 || (size_t)more >= size - at) {
			text[at] = '\0';
			return;
		}
		at += (size_t)more;
	}
}

#define OPEN_PACKET_MAX 8192

/* LOCAL_OPEN: its size, or -EMSGSIZE. */
static int open_packet(uint8_t packet[OPEN_PACKET_MAX])
{
	char settings[4096];
	char program[256];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	struct writer w = writer_on(packet, OPEN_PACKET_MAX);

	program[size > 0 ? size : 0] = '\0';
	settings_collect(settings, sizeof(settings));
	if (trace_on && strlen(settings) + sizeof(OFF_TRACED_SETTING) + 1 < sizeof(settings))
		strcat(settings, OFF_TRACED_SETTING "\n");
	put_u32(&w, LOCAL_OPEN);
	put_u32(&w, LINK_VERSION);
	put_block(&w, protocol_hash, sizeof(protocol_hash));
	put_u32(&w, (uint32_t)getpid());
	put_str(&w, program);
	put_str(&w, settings);
	return w.fault ? -EMSGSIZE : (int)w.at;
}

struct opened {
	int link; /* socket, or the kernel's session */
	bool kernel;
	int doorbell;
	struct shm shm;
	char server[64];
	char path[SOCKET_PATH_SIZE];
	uint32_t end; /* enum session_end when refused */
};

/* Takes the first two descriptors of a packet and closes what else came. */
static void fds_take(struct msghdr *msg, int fds_out[2])
{
	size_t count = 0;

	fds_out[0] = fds_out[1] = -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (count < 2)
				fds_out[count++] = fd;
			else
				close(fd);
		}
	}
}

/* LOCAL_OPENED or LOCAL_REFUSED. */
static int answer_take(const uint8_t *packet, size_t size, struct opened *opened_out)
{
	struct reader r = reader_on(packet, size);
	uint32_t type = get_u32(&r);
	uint32_t number = get_u32(&r);
	const char *text = get_str(&r, size);

	if (r.fault || (type != LOCAL_OPENED && type != LOCAL_REFUSED))
		return -EPROTO;
	if (type == LOCAL_REFUSED) {
		gleam_log("gleamd: %s", text);
		opened_out->end = number ? number : END_REFUSED;
		return -ECONNREFUSED;
	}
	snprintf(opened_out->server, sizeof(opened_out->server), "%.63s", text);
	return 0;
}

/* The next packet; its descriptors are the caller's. Size, or -errno. */
static int packet_take(int fd, uint8_t *packet, size_t packet_size, int fds_out[2])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = packet, .iov_len = packet_size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int ready;

	do
		ready = poll(&poll_fd, 1, ANSWER_WAIT_MS);
	while (ready < 0 && errno == EINTR);
	if (ready == 0) {
		gleam_log("gleamd did not answer within %d s", ANSWER_WAIT_MS / 1000);
		return -ETIMEDOUT;
	}

	ssize_t size = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);

	if (size <= 0)
		return size < 0 ? -errno : -ECONNRESET;
	fds_take(&msg, fds_out);
	return (int)size;
}

/* Whether it says that a server makes a worker ready, which is told once. */
static bool answer_is_waiting(const uint8_t *packet, size_t size, bool *told)
{
	struct reader r = reader_on(packet, size);
	uint32_t type = get_u32(&r);
	const char *server = get_str(&r, size);

	if (r.fault || type != LOCAL_WAITING)
		return false;
	if (!*told)
		gleam_log("gleamd: %s makes a worker ready; waiting for it", server);
	*told = true;
	return true;
}

static int open_answer(int fd, struct opened *opened_out)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	uint64_t begin_ns = clock_ns();
	bool told = false;
	int fds[2];
	int err;

	for (;;) {
		int size = packet_take(fd, packet, sizeof(packet), fds);

		if (size < 0)
			return size;
		if (answer_is_waiting(packet, (size_t)size, &told) && clock_ns() - begin_ns < OPEN_WAIT_MS * 1000000ull) {
			err = -EPROTO;
			if (fds[0] >= 0)
				goto close_fds;
			continue;
		}
		err = answer_take(packet, (size_t)size, opened_out);
		break;
	}
	if (!err && (fds[0] < 0 || fds[1] < 0))
		err = -EPROTO;
	if (err)
		goto close_fds;
	/* A program that has closed its stdout may still write to number 1, and so do we when a kernel prints. */
	fds[0] = fd_above_stdio(fds[0]);
	if (fds[0] < 0) {
		err = -EMFILE;
		goto close_fds;
	}
	err = shm_map(&opened_out->shm, fds[0], protocol_hash); /* takes the descriptor */
	fds[0] = -1;
	if (err) {
		gleam_log("session memory from gleamd: %s; library and daemon are of different versions?",
			  strerror(-err));
		opened_out->end = END_VERSION;
		goto close_fds;
	}
	opened_out->doorbell = fd_above_stdio(fds[1]);
	return 0;

close_fds:
	for (int i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return err;
}

static int open_once(const uint8_t *packet, size_t size, struct opened *opened_out)
{
	int fd = socket_find(opened_out->path);
	int err;

	if (fd < 0)
		return fd;
	err = send(fd, packet, size, MSG_NOSIGNAL) == (ssize_t)size ? 0 : -errno;
	if (err == -EPIPE)
		err = -ECONNRESET;
	if (!err)
		err = open_answer(fd, opened_out);
	if (err)
		close(fd);
	opened_out->link = fd;
	return err;
}

static int open_socket(const uint8_t *packet, size_t size, struct opened *opened_out)
{
	int err = open_once(packet, size, opened_out);

	/* It was there and is gone: stopped or killed, and perhaps restarted. */
	for (int waited = 0; err == -ECONNRESET || (waited && waited < AGAIN_WAIT_MS && (err == -ENOENT || err == -ECONNREFUSED));
	     waited += AGAIN_PAUSE_MS) {
		if (waited >= AGAIN_WAIT_MS)
			break;
		if (!waited)
			gleam_log("gleamd has ended while it was asked for a session; waiting for it to come back");
		nanosleep(&(struct timespec){ .tv_nsec = AGAIN_PAUSE_MS * 1000000l }, NULL);
		err = open_once(packet, size, opened_out);
	}
	return err;
}

/* Through the kernel module: @fd is the session already, and rings as an eventfd does. Takes @fd, also on failure. */
static int open_kernel(int fd, const uint8_t *packet, size_t size, struct opened *opened_out)
{
	uint8_t answer[4096] __attribute__((aligned(8)));
	int err = kdev_map(fd, &opened_out->shm);
	int got;

	if (err)
		goto close_fd;
	got = kdev_ask(fd, &opened_out->shm, packet, size, answer, sizeof(answer), OPEN_WAIT_MS);
	err = got < 0 ? got : answer_take(answer, (size_t)got, opened_out);
	if (err) {
		if (!opened_out->end)
			gleam_log("gleamd did not open the session of /dev/gleam: %s", strerror(-err));
		goto close_shm;
	}
	opened_out->doorbell = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (opened_out->doorbell < 0) {
		err = -errno;
		goto close_shm;
	}
	opened_out->link = fd;
	opened_out->kernel = true;
	return 0;

close_shm:
	shm_close(&opened_out->shm);
close_fd:
	close(fd);
	return err;
}

/* Where GLEAM_SOCKET names a daemon, that one; else by the kernel module, where it is and lets us; else the socket. */
static int open_either(struct opened *opened_out)
{
	const char *asked = secure_getenv("GLEAM_SOCKET");
	uint8_t packet[OPEN_PACKET_MAX];
	int size = open_packet(packet);
	int fd;

	if (size < 0)
		return size;
	fd = asked && *asked ? -ENOENT : kdev_find();
	if (fd >= 0)
		return open_kernel(fd, packet, (size_t)size, opened_out);
	return open_socket(packet, (size_t)size, opened_out);
}

static CUresult end_result(uint32_t end)
{
	switch (end) {
	case END_NO_SERVER:
	case END_NO_DEVICE:
	case END_REFUSED:
	case END_SHUTDOWN:
		return CUDA_ERROR_NO_DEVICE;
	case END_VERSION:
		return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
	default:
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
}

static struct session *session_new(const struct opened *opened)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->socket = opened->link;
	s->kernel = opened->kernel;
	s->shm = opened->shm;
	s->doorbell = opened->doorbell;
	memcpy(s->server, opened->server, sizeof(s->server));
	memcpy(s->path, opened->path, sizeof(s->path));
	pthread_mutex_init(&s->append_lock, NULL);
	pthread_mutex_init(&s->cell_lock, NULL);
	pthread_cond_init(&s->cell_freed, NULL);
	pthread_mutex_init(&s->up_lock, NULL);
	pthread_mutex_init(&s->return_lock, NULL);
	return s;
}

int session_open(CUresult *result_out)
{
	struct opened opened = { .link = -1, .doorbell = -1, .shm.fd = -1 };
	int err;

	*result_out = CUDA_ERROR_NO_DEVICE;
	off_start();
	err = open_either(&opened);
	if (err) {
		if (opened.end)
			*result_out = end_result(opened.end);
		return err;
	}

	struct session *s = session_new(&opened);

	if (!s) {
		err = -ENOMEM;
		goto close_opened;
	}
	s->header = shm_header(&s->shm);
	s->direct = __atomic_load_n(&s->header->direct, __ATOMIC_ACQUIRE) == 1;
	shm_ring_c2n(&s->shm, &s->c2n);
	err = session_attach(s, result_out);
	if (err)
		goto free_session;
	*result_out = memory_start(s->snapshot.device_count);
	if (!*result_out)
		*result_out = host_start();
	if (*result_out) {
		err = -ENOMEM;
		goto free_session;
	}
	context_on_close(capture_context_closed);
	context_on_close(graph_context_closed);
	context_on_close(stream_context_closed);
	context_on_close(event_context_closed);
	context_on_close(texture_context_closed);
	context_on_close(array_context_closed);
	context_on_close(share_context_closed);
	context_on_close(memory_context_closed);
	context_on_close(peer_context_closed);
	logs_start();
	context_on_close(link_context_closed);
	context_on_close(programs_context_gone);
	err = service_start(s);
	if (err) {
		*result_out = CUDA_ERROR_OUT_OF_MEMORY;
		goto free_session;
	}
	__atomic_store_n(&sessions[0], s, __ATOMIC_RELEASE);
	__atomic_store_n(&opened_count, 1, __ATOMIC_RELEASE);
	*result_out = CUDA_SUCCESS;
	return 0;

free_session:
	free(s);
close_opened:
	shm_close(&opened.shm);
	close(opened.doorbell);
	close(opened.link);
	return err;
}

/* ---- death ---- */

bool session_is_dead(struct session *s)
{
	return __atomic_load_n(&s->dead, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&s->header->state, __ATOMIC_ACQUIRE) == SESSION_DEAD;
}

bool session_has_ended(const struct session *s)
{
	char byte;
	ssize_t size = recv(s->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

bool session_check(struct session *s)
{
	if (session_is_dead(s))
		return true;
	if (!s->kernel)
		return session_has_ended(s) && reconnect_look(s);
	if (!kdev_is_over(s->socket))
		return false;
	if (!__atomic_exchange_n(&s->dead, 1, __ATOMIC_RELAXED))
		gleam_log("gleamd has ended: every CUDA call fails from now on; start it (systemctl start gleamd), then the program again");
	return true;
}

CUresult session_death(struct session *s)
{
	if (!__atomic_exchange_n(&s->death_told, 1, __ATOMIC_RELAXED)) {
		static const char *const reasons[] = {
			[END_NONE] = "gleamd has ended",
			[END_CLIENT_GONE] = "the session was closed",
			[END_WORKER_DIED] = "the worker process on the server died (its log says why)",
			[END_LINK_LOST] = "the connection to the server was lost",
			[END_PROTOCOL] = "the server ended it for a broken protocol",
			[END_NO_SERVER] = "no server is reachable",
			[END_NO_DEVICE] = "the server has no usable GPU",
			[END_REFUSED] = "the server refused it",
			[END_VERSION] = "library and server are of different versions",
			[END_SHUTDOWN] = "the server is shutting down",
		};
		uint32_t reason = __atomic_load_n(&s->header->reason, __ATOMIC_RELAXED);

		gleam_log("session with %s: %s; every CUDA call fails from now on", s->server,
			  reason < sizeof(reasons) / sizeof(reasons[0]) && reasons[reason] ? reasons[reason] : "ended");
	}
	return CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* ---- slots ---- */

uint16_t session_slot_take(struct session *s)
{
	static __thread uint32_t first; /* threads begin in different words, so that they seldom meet */

	for (;;) {
		for (uint32_t i = 0; i < SESSION_SLOTS / 64; i++) {
			uint32_t at = (first + i) % (SESSION_SLOTS / 64);
			uint64_t used = __atomic_load_n(&s->slots_used[at], __ATOMIC_RELAXED);

			while (used != ~0ull) {
				uint32_t bit = (uint32_t)__builtin_ctzll(~used);

				if (__atomic_compare_exchange_n(&s->slots_used[at], &used, used | 1ull << bit, false,
								__ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
					first = at;
					return (uint16_t)(at * 64 + bit);
				}
			}
		}
		/* More than SESSION_SLOTS threads wait at once: rare enough for a short nap. */
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
}

void session_slot_give(struct session *s, uint16_t slot)
{
	__atomic_fetch_and(&s->slots_used[slot / 64], ~(1ull << slot % 64), __ATOMIC_RELEASE);
}

/* ---- arenas ---- */

CUresult session_up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint64_t need = (size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);

	for (;;) {
		pthread_mutex_lock(&s->up_lock);

		uint64_t tail = __atomic_load_n(&s->header->up_tail, __ATOMIC_ACQUIRE);
		uint64_t at = s->up_head;
		uint32_t offset = (uint32_t)(at % SESSION_UP_SIZE);

		/* A piece does not wrap: what is left at the end is passed over. */
		if (need > SESSION_UP_SIZE - offset) {
			at += SESSION_UP_SIZE - offset;
			offset = 0;
		}
		/* A tail that is ahead of our head is a broken daemon's: there is no room then, for ever. */
		if (tail <= s->up_head && at + need - tail <= SESSION_UP_SIZE) {
			s->up_head = at + need;
			__atomic_store_n(&s->header->up_head, s->up_head, __ATOMIC_RELAXED);
			pthread_mutex_unlock(&s->up_lock);
			*ref_out = (struct bulk_ref){ .offset = offset, .size = size, .cookie = at };
			*bytes_out = shm_up(&s->shm) + offset;
			return CUDA_SUCCESS;
		}
		pthread_mutex_unlock(&s->up_lock);
		if (session_up_wait(&s->shm, tail, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
		if (session_is_dead(s))
			return session_death(s);
	}
}

CUresult session_cells_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint32_t count = (size + SESSION_CELL_SIZE - 1) / SESSION_CELL_SIZE;
	uint64_t run = count >= 64 ? ~0ull : (1ull << count) - 1;
	bool idle = false; /* there is nothing to store */
	int err = 0;

	pthread_mutex_lock(&s->cell_lock);
	for (;;) {
		for (uint32_t at = 0; at + count <= SESSION_CELLS; at++) {
			if (s->cells_used & run << at)
				continue;
			s->cells_used |= run << at;
			pthread_mutex_unlock(&s->cell_lock);
			*ref_out = (struct bulk_ref){ .offset = at * SESSION_CELL_SIZE, .size = size };
			*bytes_out = shm_down(&s->shm) + ref_out->offset;
			return CUDA_SUCCESS;
		}
		if (session_is_dead(s) || (err == ETIMEDOUT && session_check(s))) {
			pthread_mutex_unlock(&s->cell_lock);
			return session_death(s);
		}

		if (!idle) {
			/* Cells get free by what is stored. Then they are looked at once more, before the sleep. */
			pthread_mutex_unlock(&s->cell_lock);
			idle = !late_help(s);
			pthread_mutex_lock(&s->cell_lock);
			continue;
		}
		idle = false;

		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		err = pthread_cond_timedwait(&s->cell_freed, &s->cell_lock, &until);
	}
}

void session_cells_give(struct session *s, const struct bulk_ref *ref)
{
	uint32_t count = (ref->size + SESSION_CELL_SIZE - 1) / SESSION_CELL_SIZE;
	uint64_t run = count >= 64 ? ~0ull : (1ull << count) - 1;

	pthread_mutex_lock(&s->cell_lock);
	s->cells_used &= ~(run << ref->offset / SESSION_CELL_SIZE);
	pthread_cond_broadcast(&s->cell_freed);
	pthread_mutex_unlock(&s->cell_lock);
}

void session_cells_nudge(struct session *s)
{
	/* Without the lock: who misses it sleeps until a cell is given back. */
	pthread_cond_broadcast(&s->cell_freed);
}

/* ---- words ---- */

bool session_reached(const struct session *s, uint32_t word, uint64_t seq)
{
	/* Pairs with the release in session_progress_post(). 32 bits of the sequence: work in flight is far less than 2^31. */
	uint32_t value = __atomic_load_n(shm_progress(&s->shm, word), __ATOMIC_ACQUIRE);

	return (int32_t)(value - (uint32_t)seq) >= 0;
}

CUresult session_error_peek(const struct session *s, uint32_t index)
{
	return (CUresult)__atomic_load_n(&shm_error(&s->shm, index)->code, __ATOMIC_ACQUIRE);
}

CUresult session_error_take(struct session *s, uint32_t index)
{
	struct error_word *word = shm_error(&s->shm, index);
	uint32_t code = __atomic_load_n(&word->code, __ATOMIC_ACQUIRE);

	if (!code)
		return CUDA_SUCCESS;

	uint32_t op = __atomic_load_n(&word->op, __ATOMIC_RELAXED);

	gleam_log("%s (command %llu) failed with %u", op < OP_MAX && op_info[op].name ? op_info[op].name : "a command",
		  (unsigned long long)__atomic_load_n(&word->seq, __ATOMIC_RELAXED), code);
	if (!result_is_sticky((CUresult)code))
		__atomic_store_n(&word->code, 0, __ATOMIC_RELEASE);
	return (CUresult)code;
}
