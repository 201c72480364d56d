// SPDX-License-Identifier: Apache-2.0
/* A session with one server is asked for: gleamd is found, told what the program's environment says, and answers. By cuInit. */
#include "libgleamcuda/session_open.h"

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
#include "broker/lib/fdpass.h"
#include "gen/ops.h"
#include "libgleamcuda/kdev.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/off.h"
#include "libgleamcuda/service.h"
#include "libgleamcuda/session.h"
#include "libgleamcuda/trace.h"

#define ANSWER_WAIT_MS 10000 /* a daemon answers or says LOCAL_WAITING within 3 s */
#define OPEN_WAIT_MS   (LOCAL_OPEN_MS_MAX + ANSWER_WAIT_MS)
#define AGAIN_WAIT_MS  10000 /* a daemon that was stopped while it was asked may be back by then */
#define AGAIN_PAUSE_MS 100
#define OPENED_FDS     3 /* of LOCAL_OPENED at most */

static const uint8_t protocol_hash[32] = PROTOCOL_HASH;

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
static int socket_find(char path[SESSION_PATH_SIZE])
{
	const char *asked = secure_getenv("GLEAM_SOCKET");
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	int fd;

	if (asked && *asked) {
		snprintf(path, SESSION_PATH_SIZE, "%s", asked);
		fd = socket_try(asked);
		if (fd < 0)
			gleam_log("GLEAM_SOCKET=%s: %s; is gleamd running with this socket?", asked, strerror(-fd));
		return fd;
	}
	if (runtime && *runtime) {
		if ((size_t)snprintf(path, SESSION_PATH_SIZE, "%s/gleam/gleamd.sock", runtime) < SESSION_PATH_SIZE) {
			fd = socket_try(path);
			if (fd >= 0)
				return fd;
		}
	}
	snprintf(path, SESSION_PATH_SIZE, "%s", LOCAL_SOCKET_SYSTEM);
	fd = socket_try(LOCAL_SOCKET_SYSTEM);
	if (fd < 0)
		gleam_log("no gleamd: %s: %s; start it (systemctl start gleamd), or set GLEAM_SOCKET",
			  LOCAL_SOCKET_SYSTEM, strerror(-fd));
	return fd;
}

/* ---- opening ---- */

static const char *setting_of(const struct session_wish *wish, const char *name)
{
	if (!strcmp(name, "GLEAM_SERVER") && wish->server)
		return wish->server;
	if (!strcmp(name, "GLEAM_GPUS") && wish->gpus)
		return wish->gpus;
	if (!strcmp(name, "NOT_SERVERS"))
		return *wish->not ? wish->not : NULL;
	if (wish->chooses && (!strcmp(name, "CUDA_VISIBLE_DEVICES") || !strcmp(name, "CUDA_DEVICE_ORDER")))
		return NULL;
	return secure_getenv(name);
}

/* What broker and worker must know of this program's environment: NAME=value, separated by newlines. */
static void settings_collect(const struct session_wish *wish, char *text, size_t size)
{
	static const char *const names[] = {
		"GLEAM_SERVER", "NOT_SERVERS", "GLEAM_OFF", "GLEAM_CACHE", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE",
		"CUDA_CACHE_PATH", "CUDA_FORCE_PTX_JIT", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_JIT", "CUDA_DISABLE_JIT", "GLEAM_GPUS",
		"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "GLEAM_PRIORITY",
	};
	size_t at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = setting_of(wish, names[i]);
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
static int open_packet(const struct session_wish *wish, uint8_t packet[OPEN_PACKET_MAX])
{
	char settings[4096];
	char program[256];
	ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
	struct writer w = writer_on(packet, OPEN_PACKET_MAX);

	program[size > 0 ? size : 0] = '\0';
	settings_collect(wish, settings, sizeof(settings));
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

/* LOCAL_OPENED or LOCAL_REFUSED. */
static int answer_take(const uint8_t *packet, size_t size, struct session_opened *opened_out)
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
	opened_out->others = number;
	return 0;
}

/* The next packet; its descriptors are the caller's. Size, or -errno. */
static int packet_take(int fd, uint8_t *packet, size_t packet_size, int fds_out[OPENED_FDS])
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int ready;

	do
		ready = poll(&poll_fd, 1, ANSWER_WAIT_MS);
	while (ready < 0 && errno == EINTR);
	if (ready == 0) {
		gleam_log("gleamd did not answer within %d s", ANSWER_WAIT_MS / 1000);
		return -ETIMEDOUT;
	}

	ssize_t size = fds_recv(fd, packet, packet_size, fds_out, OPENED_FDS, 0);

	return size ? (int)size : -ECONNRESET;
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

static int open_answer(int fd, struct session_opened *opened_out)
{
	uint8_t packet[4096] __attribute__((aligned(8)));
	uint64_t begin_ns = clock_ns();
	bool told = false;
	int fds[OPENED_FDS];
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
	if (fds[2] >= 0)
		opened_out->pages = fd_above_stdio(fds[2]);
	return 0;

close_fds:
	for (int i = 0; i < OPENED_FDS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return err;
}

static int open_once(const uint8_t *packet, size_t size, struct session_opened *opened_out)
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

static int open_socket(const uint8_t *packet, size_t size, struct session_opened *opened_out)
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
static int open_kernel(int fd, const uint8_t *packet, size_t size, struct session_opened *opened_out)
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
static int open_either(const struct session_wish *wish, struct session_opened *opened_out)
{
	const char *asked = secure_getenv("GLEAM_SOCKET");
	uint8_t packet[OPEN_PACKET_MAX];
	int size = open_packet(wish, packet);
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

static struct session *session_new(const struct session_opened *opened)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->socket = opened->link;
	s->kernel = opened->kernel;
	s->shm = opened->shm;
	s->doorbell = opened->doorbell;
	s->pages = opened->pages;
	memcpy(s->server, opened->server, sizeof(s->server));
	memcpy(s->path, opened->path, sizeof(s->path));
	pthread_mutex_init(&s->append_lock, NULL);
	pthread_mutex_init(&s->cell_lock, NULL);
	pthread_cond_init(&s->cell_freed, NULL);
	pthread_mutex_init(&s->up_lock, NULL);
	pthread_mutex_init(&s->notice_lock, NULL);
	shm_ring_n2c(&s->shm, &s->n2c);
	pthread_mutex_init(&s->return_lock, NULL);
	return s;
}

void session_close(struct session *s)
{
	shm_close(&s->shm);
	close(s->doorbell);
	if (s->pages >= 0)
		close(s->pages);
	close(s->socket);
	free(s);
}

int session_open_one(const struct session_wish *wish, uint32_t first, struct session **session_out, struct session_opened *opened_out,
		     CUresult *result_out)
{
	struct session_opened *opened = opened_out;
	struct session *s;
	int err;

	*opened = (struct session_opened){ .link = -1, .doorbell = -1, .pages = -1, .shm.fd = -1 };
	*result_out = CUDA_ERROR_NO_DEVICE;
	err = open_either(wish, opened);
	if (err) {
		if (opened->end)
			*result_out = end_result(opened->end);
		return err;
	}
	s = session_new(opened);
	if (!s) {
		shm_close(&opened->shm);
		if (opened->pages >= 0)
			close(opened->pages);
		close(opened->doorbell);
		close(opened->link);
		return -ENOMEM;
	}
	s->first = first;
	s->chooses = wish->chooses;
	s->header = shm_header(&s->shm);
	shm_ring_c2n(&s->shm, &s->c2n);
	err = session_attach(s, result_out);
	if (err) {
		session_close(s);
		return err;
	}
	*session_out = s;
	return 0;
}
