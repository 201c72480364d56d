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
#include "broker/lib/visible.h"
#include "broker/proto/progress.h"
#include "gen/ops.h"
#include "libgleamcuda/across.h"
#include "libgleamcuda/array.h"
#include "libgleamcuda/call.h"
#include "libgleamcuda/capture.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/device.h"
#include "libgleamcuda/event.h"
#include "libgleamcuda/graph_exec.h"
#include "libgleamcuda/host.h"
#include "libgleamcuda/hostfunc.h"
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

#define PCI_DOMAINS 0x100 /* from one server's to the next one's: PCs have a few dozen domains at most */
#define RELAY_CELLS 8u /* what one copy between servers has on its way */
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

struct session *session_of_unit(uint64_t unit)
{
	struct session *s;

	for (uint32_t i = 0; (s = session_at(i)); i++)
		if (unit >= s->first && unit - s->first < s->snapshot.device_count)
			return s;
	return NULL;
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

#define NAMES_SIZE 1024 /* of servers, with commas between */

/* What a session is asked for, where that isn't what the environment says. */
struct wish {
	const char *server;    /* GLEAM_SERVER */
	const char *gpus;      /* GLEAM_GPUS */
	char not[NAMES_SIZE];  /* NOT_SERVERS: servers that the process has GPUs of */
	bool chooses;	       /* the server is told nothing of CUDA_VISIBLE_DEVICES */
};

static const char *setting_of(const struct wish *wish, const char *name)
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
static void settings_collect(const struct wish *wish, char *text, size_t size)
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
static int open_packet(const struct wish *wish, uint8_t packet[OPEN_PACKET_MAX])
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

struct opened {
	int link; /* socket, or the kernel's session */
	bool kernel;
	int doorbell;
	struct shm shm;
	char server[64];
	char path[SOCKET_PATH_SIZE];
	uint32_t others; /* servers that could be asked next */
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
	opened_out->others = number;
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
static int open_either(const struct wish *wish, struct opened *opened_out)
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

static void session_close(struct session *s)
{
	shm_close(&s->shm);
	close(s->doorbell);
	close(s->socket);
	free(s);
}

/* A session whose devices have the units from @first on. @opened_out also tells why there is none. */
static int one_open(const struct wish *wish, uint32_t first, struct session **session_out, struct opened *opened_out,
		    CUresult *result_out)
{
	struct opened *opened = opened_out;
	struct session *s;
	int err;

	*opened = (struct opened){ .link = -1, .doorbell = -1, .shm.fd = -1 };
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
		close(opened->doorbell);
		close(opened->link);
		return -ENOMEM;
	}
	s->first = first;
	s->chooses = wish->chooses;
	s->header = shm_header(&s->shm);
	s->direct = __atomic_load_n(&s->header->direct, __ATOMIC_ACQUIRE) == 1;
	shm_ring_c2n(&s->shm, &s->c2n);
	err = session_attach(s, result_out);
	if (err) {
		session_close(s);
		return err;
	}
	*session_out = s;
	return 0;
}

/* ---- several servers ---- */

/* Sessions that are being opened, not yet anybody's. */
struct list {
	struct session *sessions[SESSIONS_MAX];
	uint32_t count;
	uint32_t units; /* devices of all of them */
};

static void list_close(struct list *list)
{
	while (list->count)
		session_close(list->sessions[--list->count]);
	list->units = 0;
}

static int list_add(struct list *list, struct wish *wish, struct opened *opened_out, CUresult *result_out)
{
	struct session *s;
	int err;

	if (list->count == SESSIONS_MAX || list->units >= SNAPSHOT_DEVICES)
		return -E2BIG;
	err = one_open(wish, list->units, &s, opened_out, result_out);
	if (err)
		return err;
	list->sessions[list->count++] = s;
	list->units += s->snapshot.device_count;
	return 0;
}

/* Those that GLEAM_SERVER names: so many GPUs of each, or @want in all (0: as many as they have). */
static int named_open(struct list *list, const char *names, bool each, uint32_t want, CUresult *result_out)
{
	struct wish wish = { .chooses = true };
	struct opened opened;

	while (*names) {
		size_t length = strcspn(names, ",");
		char name[sizeof(opened.server)], gpus[32] = "all";
		int err;

		if (!length || length >= sizeof(name)) {
			gleam_log("GLEAM_SERVER has a name that no server has: \"%.*s\"", (int)length, names);
			return -EINVAL;
		}
		snprintf(name, sizeof(name), "%.*s", (int)length, names);
		names += length + (names[length] == ',');
		if (each)
			strcpy(gpus, "1");
		else if (want)
			snprintf(gpus, sizeof(gpus), VISIBLE_UPTO "%u", want - list->units);
		wish.server = name;
		wish.gpus = gpus;
		err = list_add(list, &wish, &opened, result_out);
		if (err)
			return err;
		if (want && list->units >= want)
			break;
	}
	return 0;
}

/* Any that answer: @want GPUs in all, 0: all that there are. */
static int any_open(struct list *list, uint32_t want, CUresult *result_out)
{
	struct wish wish = { .chooses = true };
	struct opened opened;
	size_t at = 0;
	int err;

	if (list->count)
		at = (size_t)sprintf(wish.not, "%s", list->sessions[0]->server);
	do {
		const char *name;
		char gpus[32] = "all";

		if (want)
			snprintf(gpus, sizeof(gpus), VISIBLE_UPTO "%u", want - list->units);
		wish.gpus = gpus;
		err = list_add(list, &wish, &opened, result_out);
		if (err)
			break;
		name = list->sessions[list->count - 1]->server;
		if (at + strlen(name) + 2 > sizeof(wish.not))
			break;
		at += (size_t)sprintf(wish.not + at, "%s%s", at ? "," : "", name);
	} while (opened.others && (!want || list->units < want));
	/* The last one was as good as none: what there is has to do. */
	return list->count ? 0 : err;
}

static uint64_t pci_of(const struct snapshot_device *d)
{
	return visible_pci(d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID], d->attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID],
			   d->attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID]);
}

/* Whether one of the devices before device @k of session @i is at the same place. */
static bool pci_is_taken(const struct list *list, uint32_t i, uint32_t k)
{
	uint64_t pci = pci_of(&list->sessions[i]->snapshot.devices[k]);

	for (uint32_t s = 0; s <= i; s++)
		for (uint32_t d = 0; d < (s == i ? k : list->sessions[s]->snapshot.device_count); d++)
			if (pci_of(&list->sessions[s]->snapshot.devices[d]) == pci)
				return true;
	return false;
}

/*
 * Two servers may have a GPU at the same place of their buses, and programs (NCCL) tell GPUs by it: those of a later server get a
 * domain that is free.
 */
static void list_pci(struct list *list)
{
	for (uint32_t i = 1; i < list->count; i++)
		for (uint32_t k = 0; k < list->sessions[i]->snapshot.device_count; k++) {
			struct snapshot_device *d = &list->sessions[i]->snapshot.devices[k];
			int32_t *a = d->attributes;

			if (!pci_is_taken(list, i, k))
				continue;
			do
				a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID] += PCI_DOMAINS;
			while (pci_is_taken(list, i, k));
			snprintf(d->pci, sizeof(d->pci), "%04x:%02x:%02x.0", (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID],
				 (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] & 0xff,
				 (unsigned int)a[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID] & 0xff);
		}
}

/* Sessions whose devices CUDA_VISIBLE_DEVICES leaves out are given back. */
static CUresult list_choose(struct list *list)
{
	CUresult result = devices_init(list->sessions, list->count);
	uint32_t kept = 0;

	if (result)
		return result;
	for (uint32_t i = 0; i < list->count; i++) {
		bool used = false;

		for (int d = 0; d < device_count(); d++)
			used |= device_at(d)->session == list->sessions[i];
		if (used)
			list->sessions[kept++] = list->sessions[i];
		else
			session_close(list->sessions[i]);
	}
	list->count = kept;
	return CUDA_SUCCESS;
}

/*
 * One GPU of one server unless the program wants more (GLEAM_GPUS), or names several servers. So many are first looked for at
 * one server, and only then at several.
 */
static int list_open(struct list *list, CUresult *result_out)
{
	const char *names = secure_getenv("GLEAM_SERVER"), *gpus = secure_getenv("GLEAM_GPUS");
	bool visible = secure_getenv("CUDA_VISIBLE_DEVICES") || secure_getenv("CUDA_DEVICE_ORDER");
	bool named = names && *names, several = named && strchr(names, ',');
	struct wish wish = { .chooses = false };
	struct opened opened;
	uint32_t want = 1;
	int err;

	/* What is neither a number nor "all" is told by whoever looks at it next. */
	if (gpus && *gpus && !visible_count(gpus, &want))
		want = 1;
	if (several) {
		/* Without a number each gives one. */
		err = named_open(list, names, !gpus || !*gpus, !gpus || !*gpus || want == UINT32_MAX || visible ? 0 : want,
				 result_out);
	} else {
		err = list_add(list, &wish, &opened, result_out);
		if (named || want == 1 || (!err && (want != UINT32_MAX || !opened.others)) ||
		    (err && opened.end != END_REFUSED && opened.end != END_NO_DEVICE))
			return err;
		/* All there are, and there are more; or nobody has so many. */
		if (err || visible)
			list_close(list);
		err = any_open(list, want == UINT32_MAX || visible ? 0 : want, result_out);
	}
	if (err)
		return err;
	list_pci(list);
	*result_out = list_choose(list);
	return *result_out ? -ENODEV : 0;
}

int session_open(CUresult *result_out)
{
	struct list list = { .count = 0 };
	int err;

	off_start();
	err = list_open(&list, result_out);
	if (err)
		goto close_list;
	*result_out = CUDA_SUCCESS;
	for (uint32_t i = 0; i < list.count && !*result_out; i++)
		*result_out = memory_start(list.sessions[i]->first, list.sessions[i]->snapshot.device_count);
	if (!*result_out)
		*result_out = host_start();
	if (*result_out) {
		err = -ENOMEM;
		goto close_list;
	}
	context_on_close(capture_context_closed);
	context_on_close(graph_context_closed);
	context_on_close(across_context_closed);
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
	/* Before their threads, which look at each other's. */
	for (uint32_t i = 0; i < list.count; i++) {
		list.sessions[i]->index = i;
		__atomic_store_n(&sessions[i], list.sessions[i], __ATOMIC_RELEASE);
		__atomic_store_n(&opened_count, i + 1, __ATOMIC_RELEASE);
		if (list.count > 1)
			gleam_log("server %s: %u GPUs", list.sessions[i]->server, list.sessions[i]->snapshot.device_count);
	}
	for (uint32_t i = 0; i < list.count; i++) {
		err = service_start(list.sessions[i]);
		if (!err)
			continue;
		*result_out = CUDA_ERROR_OUT_OF_MEMORY;
		/* Others' threads have theirs by now: it stays, and is dead. */
		__atomic_store_n(&list.sessions[i]->dead, 1, __ATOMIC_RELAXED);
		return err;
	}
	return 0;

close_list:
	list_close(&list);
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

		/* The kernel says so, too, when no gleamd has come back in time. */
		if (s->kernel && reason == END_SHUTDOWN)
			gleam_log("session with %s: gleamd was stopped, or has ended and did not come back in time; every CUDA call fails from "
				  "now on; start it (systemctl start gleamd), then the program again", s->server);
		else
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

/* @tail_out: how far the worker had come when there was no room. */
static bool up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out, uint64_t *tail_out)
{
	uint64_t need = (size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1);
	bool room;

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
	room = tail <= s->up_head && at + need - tail <= SESSION_UP_SIZE;
	if (room) {
		s->up_head = at + need;
		__atomic_store_n(&s->header->up_head, s->up_head, __ATOMIC_RELAXED);
		*ref_out = (struct bulk_ref){ .offset = offset, .size = size, .cookie = at };
		*bytes_out = shm_up(&s->shm) + offset;
	}
	pthread_mutex_unlock(&s->up_lock);
	*tail_out = tail;
	return room;
}

bool session_up_try(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint64_t tail;

	return up_take(s, size, ref_out, bytes_out, &tail);
}

CUresult session_up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint64_t tail;

	while (!up_take(s, size, ref_out, bytes_out, &tail)) {
		if (session_up_wait(&s->shm, tail, SESSION_LOOK_NS) == -ETIMEDOUT)
			session_check(s);
		if (session_is_dead(s))
			return session_death(s);
	}
	return CUDA_SUCCESS;
}

CUresult session_cells_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out)
{
	uint32_t count = (size + SESSION_CELL_SIZE - 1) / SESSION_CELL_SIZE;
	uint64_t run = count >= 64 ? ~0ull : (1ull << count) - 1;
	bool idle = false; /* there is nothing to store */
	/* Streams that wait for another server may hold all that there are: some are kept for what lets them go on. */
	uint32_t cells = session_count() > 1 && !hostfunc_relays() ? SESSION_CELLS - RELAY_CELLS : SESSION_CELLS;
	int err = 0;

	pthread_mutex_lock(&s->cell_lock);
	for (;;) {
		for (uint32_t at = 0; at + count <= cells; at++) {
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
