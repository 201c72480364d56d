/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel module's way in; see kdev.h. Control thread.
 *
 * A session's packets lie in its memory (broker/proto/door.h). Each is handed to a client over a pair of sockets whose other
 * end is here, so that all of a client but where its memory comes from is what it is on the local socket: this end closes
 * when the kernel says that the process is gone, the client's end when the client is done.
 *
 *	kernel: ATTACH		nothing yet: the process is about to ask
 *	kernel: DOORBELL	it has asked: memory and doorbell are taken, a client is made, the packet handed over
 *	pair: answer		laid into the memory, the process is woken
 *	pair: end of file	the client is gone: GLEAM_IOC_END
 *	kernel: DETACH		the process is gone: the pair is closed
 *
 * A session that an earlier daemon served has its packets behind it: the client is told to go on with it (adopt.c). One that had asked
 * and has no answer is as one that has just asked.
 */
#include "broker/local/kdev.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/lib/codec.h"
#include "broker/lib/fd.h"
#include "broker/lib/fdpass.h"
#include "broker/lib/futex.h"
#include "broker/lib/log.h"
#include "broker/lib/shm.h"
#include "broker/lib/slot.h"
#include "broker/local/broker.h"
#include "broker/local/client.h"
#include "broker/local/knl.h"
#include "broker/proto/door.h"
#include "kmod/include/uapi/linux/gleam.h"

#define KDEV_PATH   "/dev/gleam-broker"
#define KDEV_EVENTS 16 /* read at once */

struct kses {
	struct kses *next;
	struct kdev *kdev;
	struct gleam_event who; /* as the kernel told when it came */
	struct shm shm;		/* for the two packets */
	int pair;		/* our end; -1: no client yet, or none any more */
	bool returned;		/* an earlier daemon's: it doesn't look for an answer */
	bool over;		/* the kernel has no session of this number any more */
	bool armed;
	uint64_t tag;
};

struct kdev {
	struct broker *broker;
	struct loop *loop;
	int fd;
	bool armed;
	uint64_t tag;
	bool stopping;
	struct knl *knl; /* NULL: no virtual GPUs */
	struct kses *sessions;
	unsigned count;
	struct log_limit limit;
};

static void kdev_arm(struct kdev *kdev);

/* ---- sessions ---- */

static struct kses *kses_find(struct kdev *kdev, uint32_t session)
{
	for (struct kses *ses = kdev->sessions; ses; ses = ses->next)
		if (ses->who.session == session && !ses->over)
			return ses;
	return NULL;
}

static void kses_free(struct kses *ses)
{
	struct kses **link = &ses->kdev->sessions;

	while (*link != ses)
		link = &(*link)->next;
	*link = ses->next;
	ses->kdev->count--;
	shm_close(&ses->shm);
	fd_close(&ses->pair);
	free(ses);
}

/* The kernel is told, unless it was the kernel who told. Frees @ses, now or when its operation has ended. */
static void kses_end(struct kses *ses)
{
	struct gleam_session_ref ref = { .session = ses->who.session };

	if (!ses->over && ioctl(ses->kdev->fd, GLEAM_IOC_END, &ref) < 0)
		log_debug("session %u of the kernel: %s", ref.session, strerror(errno));
	ses->over = true;
	/* The client reads the end of the file. */
	if (ses->pair >= 0)
		shutdown(ses->pair, SHUT_RDWR);
	if (ses->armed)
		loop_cancel(ses->kdev->loop, ses->tag);
	else
		kses_free(ses);
}

static void kses_return(struct kses *ses);

static void kses_new(struct kdev *kdev, const struct gleam_event *event)
{
	struct kses *ses;
	uint32_t dropped;

	if (kdev->count == BROKER_CLIENTS_MAX) {
		struct gleam_session_ref ref = { .session = event->session };

		if (log_limit_take(&kdev->limit, &dropped))
			log_warn("%d sessions have come through the kernel, the most there may be: another one is turned away",
				 BROKER_CLIENTS_MAX);
		ioctl(kdev->fd, GLEAM_IOC_END, &ref);
		return;
	}
	ses = calloc(1, sizeof(*ses));
	if (!ses)
		return; /* it gets no answer in time */
	ses->kdev = kdev;
	ses->who = *event;
	ses->shm.fd = -1;
	ses->pair = -1;
	ses->next = kdev->sessions;
	kdev->sessions = ses;
	kdev->count++;
	if (event->flags & GLEAM_EVENT_RESUMED)
		kses_return(ses);
}

/* ---- the two packets ---- */

static void kses_arm(struct kses *ses);

/* Its size in @packet, or -errno; 0: it has not asked. */
static int ask_take(const struct kses *ses, uint8_t packet[LOCAL_MSG_MAX])
{
	struct door *ask = (struct door *)(void *)(ses->shm.base + DOOR_AT_ASK);
	uint32_t size;

	/* Pairs with the release in the library's kdev_ask(). */
	if (__atomic_load_n(&ask->state, __ATOMIC_ACQUIRE) != DOOR_FULL)
		return 0;
	size = __atomic_load_n(&ask->size, __ATOMIC_RELAXED);
	if (size == 0 || size > LOCAL_MSG_MAX)
		return -EPROTO;
	memcpy(packet, ask->bytes, size);
	return (int)size;
}

static bool ask_is_there(const struct kses *ses)
{
	const struct door *ask = (const struct door *)(const void *)(ses->shm.base + DOOR_AT_ASK);

	return __atomic_load_n(&ask->state, __ATOMIC_ACQUIRE) == DOOR_FULL;
}

static void answer_post(struct kses *ses, const uint8_t *packet, size_t size)
{
	struct door *answer = (struct door *)(void *)(ses->shm.base + DOOR_AT_ANSWER);

	memcpy(answer->bytes, packet, size);
	answer->size = (uint32_t)size;
	/* Pairs with the acquire in the library's kdev_ask(). */
	__atomic_store_n(&answer->state, DOOR_FULL, __ATOMIC_RELEASE);
	futex_wake(&answer->state, INT_MAX);
}

/* It has a session, or waits for one. */
static bool kses_goes_on(const struct kses *ses)
{
	return ses->shm.base && __atomic_load_n(&shm_header(&ses->shm)->state, __ATOMIC_ACQUIRE) != SESSION_DEAD;
}

static void pair_ready(void *arg, int res, uint32_t flags)
{
	static uint8_t packet[LOCAL_MSG_MAX];
	struct kses *ses = arg;
	ssize_t size;

	ses->armed = false;
	if (ses->over) {
		kses_free(ses);
		return;
	}
	/* What comes with a packet is the kernel's own memory and doorbell: the process has both. */
	size = fds_recv(ses->pair, packet, sizeof(packet), NULL, 0, MSG_DONTWAIT);
	if (size == -EAGAIN) {
		kses_arm(ses);
		return;
	}
	if (size <= 0) {
		/* The next daemon goes on with it. */
		if (ses->kdev->stopping && kses_goes_on(ses))
			ses->over = true;
		kses_end(ses);
		return;
	}
	if (!ses->returned)
		answer_post(ses, packet, (size_t)size);
	kses_arm(ses);
}

static void kses_arm(struct kses *ses)
{
	struct io_uring_sqe *sqe = loop_sqe(ses->kdev->loop);

	io_uring_prep_poll_add(sqe, ses->pair, POLLIN);
	ses->tag = loop_tag(ses->kdev->loop, sqe, pair_ready, ses);
	ses->armed = true;
}

/* Memory and doorbell from the kernel, for @kernel_out and for the packets. */
static int kses_take(struct kses *ses, struct client_kernel *kernel_out)
{
	struct gleam_take take = { .session = ses->who.session };
	int err = 0;

	*kernel_out = (struct client_kernel){ .pid = (pid_t)ses->who.tgid, .uid = ses->who.uid, .memory = -1, .doorbell = -1 };
	take.doorbell = eventfd(0, EFD_CLOEXEC);
	if (take.doorbell < 0 || ioctl(ses->kdev->fd, GLEAM_IOC_TAKE, &take) < 0) {
		err = -errno;
		log_warn("pid %u: its session's memory can't be had: %s", ses->who.tgid, strerror(-err));
		goto close_bell;
	}
	kernel_out->memory = fcntl(take.memory, F_DUPFD_CLOEXEC, 0);
	if (kernel_out->memory < 0) {
		err = -errno;
		close(take.memory);
		goto close_bell;
	}
	if (ses->shm.base) {
		close(take.memory);
	} else if (shm_map(&ses->shm, take.memory, NULL)) { /* takes it */
		err = -EPROTO;
		log_warn("pid %u: its session's memory is not one", ses->who.tgid);
		goto close_memory;
	}
	kernel_out->doorbell = take.doorbell;
	return 0;

close_memory:
	close(kernel_out->memory);
close_bell:
	if (take.doorbell >= 0)
		close(take.doorbell);
	return err;
}

/* A client whose first packet is this. Takes what is in @kernel. */
static void kses_hand(struct kses *ses, const struct client_kernel *kernel, const uint8_t *packet, size_t size)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		log_error("can't take a client: %s; raise the limit on open files (LimitNOFILE=)", strerror(errno));
		close(kernel->memory);
		close(kernel->doorbell);
		goto end;
	}
	ses->pair = pair[0];
	if (broker_client_kernel(ses->kdev->broker, pair[1], kernel)) /* takes all three */
		goto end;
	if (send(ses->pair, packet, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size)
		goto end;
	kses_arm(ses);
	return;
end:
	kses_end(ses);
}

/* It rang before anybody listens to its doorbell: it has asked. */
static void kses_asked(struct kses *ses)
{
	static uint8_t packet[LOCAL_MSG_MAX];
	struct kdev *kdev = ses->kdev;
	struct client_kernel kernel;
	int size;

	if (kses_take(ses, &kernel)) {
		kses_end(ses);
		return;
	}
	size = ask_take(ses, packet);
	if (size <= 0) {
		log_warn("pid %u: rang without having asked for a session", ses->who.tgid);
		close(kernel.memory);
		close(kernel.doorbell);
		kses_end(ses);
		return;
	}
	if (ses->who.devices != GLEAM_DEVICES_ANY) {
		int err = kdev->knl ? knl_devices(kdev->knl, ses->who.devices, kernel.server, sizeof(kernel.server),
						  kernel.visible, sizeof(kernel.visible)) : -ENODEV;

		if (err == -EXDEV)
			kernel.refused = "the devices it may open are GPUs of several servers; one program uses one server";
		else if (err)
			kernel.refused = "the devices it may open are no GPUs any more";
	}
	kses_hand(ses, &kernel, packet, (size_t)size);
}

/* An earlier daemon served it. */
static void kses_return(struct kses *ses)
{
	uint8_t packet[64] __attribute__((aligned(8)));
	struct writer w = writer_on(packet, sizeof(packet));
	const struct session_header *hdr;
	struct client_kernel kernel;
	uint32_t state;

	if (kses_take(ses, &kernel)) {
		kses_end(ses);
		return;
	}
	hdr = shm_header(&ses->shm);
	state = __atomic_load_n(&hdr->state, __ATOMIC_ACQUIRE);
	if (state == SESSION_NEW) {
		/* It waits for the answer, or is about to ask. */
		close(kernel.memory);
		close(kernel.doorbell);
		if (ask_is_there(ses))
			kses_asked(ses);
		return;
	}
	/* Without a command of its own it may not have seen its answer: nothing else lies there yet. */
	ses->returned = __atomic_load_n(&hdr->c2n.head, __ATOMIC_ACQUIRE) != 0;
	kernel.limited = ses->who.devices != GLEAM_DEVICES_ANY;
	put_u32(&w, LOCAL_RETURN);
	put_u32(&w, LINK_VERSION);
	put_block(&w, hdr->protocol_hash, sizeof(hdr->protocol_hash));
	put_u32(&w, ses->who.client_pid);
	kses_hand(ses, &kernel, packet, w.at);
}

/* ---- events ---- */

static void event_take(struct kdev *kdev, const struct gleam_event *event)
{
	struct kses *ses = kses_find(kdev, event->session);

	switch (event->type) {
	case GLEAM_EVENT_ATTACH:
		if (!ses)
			kses_new(kdev, event);
		break;
	case GLEAM_EVENT_DOORBELL:
		if (ses && ses->pair < 0)
			kses_asked(ses);
		break;
	case GLEAM_EVENT_DETACH:
		if (ses) {
			ses->over = true;
			kses_end(ses);
		}
		break;
	default:
		break;
	}
}

static void kdev_ready(void *arg, int res, uint32_t flags)
{
	struct kdev *kdev = arg;
	struct gleam_event events[KDEV_EVENTS];
	ssize_t size;

	kdev->armed = false;
	if (kdev->stopping)
		return;
	size = read(kdev->fd, events, sizeof(events));
	for (ssize_t i = 0; i < size / (ssize_t)sizeof(events[0]); i++)
		event_take(kdev, &events[i]);
	if (size < 0 && errno != EAGAIN && errno != EINTR) {
		log_error("%s: %s; programs are served through the socket alone", KDEV_PATH, strerror(errno));
		return;
	}
	kdev_arm(kdev);
}

static void kdev_arm(struct kdev *kdev)
{
	struct io_uring_sqe *sqe = loop_sqe(kdev->loop);

	io_uring_prep_poll_add(sqe, kdev->fd, POLLIN);
	kdev->tag = loop_tag(kdev->loop, sqe, kdev_ready, kdev);
	kdev->armed = true;
}

/* ---- life ---- */

struct kdev *kdev_start(struct broker *broker, struct loop *loop)
{
	struct kdev *kdev;
	int fd = open(KDEV_PATH, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0) {
		if (errno == EBUSY)
			log_warn("%s: another daemon is attached; programs are served through the socket alone", KDEV_PATH);
		else if (errno != ENOENT)
			log_info("%s: %s; programs are served through the socket alone", KDEV_PATH, strerror(errno));
		return NULL;
	}
	kdev = calloc(1, sizeof(*kdev));
	if (!kdev) {
		close(fd);
		return NULL;
	}
	kdev->broker = broker;
	kdev->loop = loop;
	kdev->fd = fd;
	kdev->knl = knl_start(broker, loop);
	kdev_arm(kdev);
	log_info("attached to the kernel module: programs come through /dev/gleam, too");
	return kdev;
}

void kdev_stop(struct kdev *kdev)
{
	if (!kdev || kdev->stopping)
		return;
	kdev->stopping = true;
	knl_free(kdev->knl); /* its timer would go on */
	kdev->knl = NULL;
	for (struct kses *ses = kdev->sessions, *next; ses; ses = next) {
		next = ses->next;
		/* One with a client ends when the client does, which has things to say until then. One without has asked nobody yet. */
		if (ses->pair < 0)
			kses_free(ses);
	}
	if (kdev->armed)
		loop_cancel(kdev->loop, kdev->tag);
}

bool kdev_is_stopped(const struct kdev *kdev)
{
	return !kdev || (kdev->stopping && !kdev->armed && !kdev->sessions);
}

void kdev_free(struct kdev *kdev)
{
	if (!kdev)
		return;
	while (kdev->sessions)
		kses_free(kdev->sessions);
	knl_free(kdev->knl);
	close(kdev->fd);
	free(kdev);
}

unsigned kdev_session_count(const struct kdev *kdev)
{
	return kdev ? kdev->count : 0;
}
