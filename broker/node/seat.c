/* SPDX-License-Identifier: Apache-2.0 */
/* A client's session at the node. Control thread, but for the free of its memory; see seat.h. */
#include "broker/node/seat_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/node/origin.h"

#define SEAT_NEW_NS	    (2 * NS_PER_S) /* programs load what they need when they begin */

static void seat_bell_arm(struct seat *seat);

static struct seat *seat_of(struct mirror *mirror)
{
	return (struct seat *)mirror;
}

/* ---- ending ---- */

/* The worker is gone and no lane holds the memory. Control thread. */
static void seat_freed(struct loop_post *post)
{
	struct seat *seat = (struct seat *)((char *)post - offsetof(struct seat, post));

	assert(seat->state == SEAT_GONE && !seat->bell_armed);
	seat->ops->freed(seat->owner, seat);
	shm_close(&seat->mirror.shm);
	origins_free(seat->mirror.origins);
	fd_close(&seat->doorbell);
	fd_close(&seat->pages);
	proc_free(seat->proc);
	free(seat);
}

/* Any thread. */
static void seat_mirror_free(struct mirror *mirror)
{
	struct seat *seat = seat_of(mirror);

	seat->post.run = seat_freed;
	loop_post(seat->loop, &seat->post);
}

/* A lane has taken bytes of a seat that had too many waiting. Any thread. */
static void seat_mirror_room(struct mirror *mirror)
{
	loop_nudge(seat_of(mirror)->loop);
}

static void seat_settle(struct seat *seat)
{
	if (seat->state == SEAT_GONE && !seat->bell_armed)
		mirror_put(&seat->mirror); /* ours, from the start */
}

void seat_unlink(struct seat *seat)
{
	link_mirror_remove(seat->link, &seat->mirror);
	seat->ops->left(seat->owner, seat);
	seat->link = NULL;
}

void seat_end(struct seat *seat, enum session_end end, const char *why, bool tell)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	bool attached = seat->state == SEAT_LIVE;
	bool linked = seat->state != SEAT_AWAY;

	if (seat->state >= SEAT_LEFT)
		return;
	seat->state = SEAT_LEFT;
	loop_timer_clear(seat->loop, &seat->consumed);
	loop_timer_clear(seat->loop, &seat->away);
	loop_timer_clear(seat->loop, &seat->ask);
	seat->later_link = NULL;
	if (tell && linked) {
		put_u32(&w, end);
		put_str(&w, why);
		link_send(seat->link, attached ? LINK_ENDED : LINK_ATTACHED, seat->mirror.id, bytes, w.at, NULL, 0);
	}
	log_info("session %u of %s (%s, pid %u): ended: %s", seat->mirror.id, seat->host, seat->client.program, seat->client.pid,
		 why);
	__atomic_store_n(&seat->mirror.dead, true, __ATOMIC_RELEASE);
	if (linked)
		seat_unlink(seat);
	/* Else it is the client's, which goes on with another worker. */
	if (!seat->left)
		session_end_post(&seat->mirror.shm, end);
	/* So that its read ends and the descriptor can go. */
	ring_wake_fd(seat->doorbell);
	if (seat->over == END_NONE) {
		proc_kill(seat->proc, !seat->left);
	} else {
		seat->state = SEAT_GONE;
		seat_settle(seat);
	}
}

/* ---- the worker ---- */

/* Workers compare it alone: FNV-1a, of names that the node's administrator has given. */
static uint64_t tenant_number(const char *tenant)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *tenant; tenant++)
		hash = (hash ^ (unsigned char)*tenant) * 0x100000001b3u;
	return hash;
}

static void seat_proc_ready(void *owner, struct proc *proc)
{
	struct seat *seat = owner;
	uint8_t bytes[64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	uint64_t tenant;

	if (seat->state != SEAT_BEGUN)
		return;
	seat->state = SEAT_LIVE;
	shm_header(&seat->mirror.shm)->client_pid = seat->client.pid;
	shm_header(&seat->mirror.shm)->off = seat->mirror.off;
	/* Not by the session memory, which a program of this machine shares with its worker. */
	tenant = tenant_number(link_tenant(seat->link));
	proc_tell(proc, &tenant, sizeof(tenant));
	session_live_post(&seat->mirror.shm);
	seat_bell_arm(seat);
	put_u32(&w, END_NONE);
	put_str(&w, "");
	link_send(seat->link, LINK_ATTACHED, seat->mirror.id, bytes, w.at, NULL, 0);
	log_info("session %u of %s (%s, pid %u): worker %d", seat->mirror.id, seat->host, seat->client.program, seat->client.pid,
		 proc_pid(proc));
}

static void seat_proc_ended(void *owner, struct proc *proc, enum session_end end, const char *why)
{
	struct seat *seat = owner;

	if (seat->state == SEAT_AWAY) {
		/* For the broker, when it comes; nobody else would know why. */
		seat->over = end;
		snprintf(seat->over_why, sizeof(seat->over_why), "%s", why);
		return;
	}
	/* What it wrote last may say why. */
	while (seat->state == SEAT_LIVE && seat_poll(seat))
		;
	seat_end(seat, end, why, true);
	seat->state = SEAT_GONE;
	seat_settle(seat);
}

static const struct proc_ops seat_proc_ops = { .ready = seat_proc_ready, .ended = seat_proc_ended };

struct seat *seat_new(struct loop *loop, struct link *link, uint32_t session, const struct seat_client *client,
		      struct proc *proc, const struct seat_ops *ops, void *owner)
{
	struct seat *seat = calloc(1, sizeof(*seat));

	if (!seat)
		return NULL;
	mirror_init(&seat->mirror);
	seat->mirror.id = session;
	seat->mirror.off = client->off;
	seat->mirror.free = seat_mirror_free;
	seat->mirror.room = seat_mirror_room;
	seat->loop = loop;
	seat->link = link;
	seat->client = *client;
	seat->ops = ops;
	seat->owner = owner;
	seat->proc = proc;
	seat->consumed.fire = seat_consumed_late;
	seat->consumed.arg = seat;
	seat->away.fire = seat_away_over;
	seat->away.arg = seat;
	seat->ask.fire = seat_ask;
	seat->ask.arg = seat;
	seat->born_ns = loop_now_ns(loop);
	snprintf(seat->host, sizeof(seat->host), "%s", link_host(link));
	snprintf(seat->tenant, sizeof(seat->tenant), "%s", link_tenant(link));
	proc_memory_take(proc, &seat->mirror.shm, &seat->doorbell, &seat->pages);
	seat->mirror.live = true;
	shm_ring_c2n(&seat->mirror.shm, &seat->c2n);
	shm_ring_n2c(&seat->mirror.shm, &seat->n2c);
	link_mirror_add(link, &seat->mirror);
	proc_give(proc, &seat_proc_ops, seat);
	if (proc_is_ready(proc))
		seat_proc_ready(seat, proc);
	return seat;
}

/* ---- down: what the client wrote ---- */

int seat_direct(struct seat *seat, int *pages_out)
{
	int fd, pages;

	if (seat->state != SEAT_LIVE || seat->direct || seat->c2n.at)
		return -EBUSY;
	fd = fcntl(seat->mirror.shm.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	pages = fcntl(seat->pages, F_DUPFD_CLOEXEC, 0);
	if (pages < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	seat->direct = true;
	/* The client's own are the client's and the worker's. */
	shm_ring_side_c2n(&seat->mirror.shm, &seat->c2n);
	shm_ring_side_n2c(&seat->mirror.shm, &seat->n2c);
	__atomic_store_n(&shm_header(&seat->mirror.shm)->direct, 1, __ATOMIC_RELEASE);
	__atomic_store_n(&shm_header(&seat->mirror.shm)->pages, 1, __ATOMIC_RELEASE);
	*pages_out = pages;
	log_info("session %u of %s (%s, pid %u): on this machine, without us in between", seat->mirror.id, link_host(seat->link),
		 seat->client.program, seat->client.pid);
	return fd;
}

int seat_left(struct seat *seat)
{
	if (seat->state != SEAT_LIVE || !seat->direct || seat->left)
		return -ESRCH;
	/* From here on nothing of it is looked at, nor told in it that the session ends. */
	seat->left = true;
	loop_timer_clear(seat->loop, &seat->consumed);
	loop_timer_clear(seat->loop, &seat->ask);
	return 0;
}

void seat_wake_worker(struct seat *seat)
{
	ring_wake_futex(&shm_header(&seat->mirror.shm)->c2n);
}

int seat_span(struct seat *seat, uint64_t position, const void *bytes, uint32_t size)
{
	if (seat->state != SEAT_LIVE || seat->left)
		return -EPROTO;

	int err = ring_put_span(&seat->c2n, position, bytes, size);

	if (err)
		return err;
	work_note(&seat->work, bytes, size, loop_now_ns(seat->loop));
	if (ring_publish(&seat->c2n))
		seat_wake_worker(seat);
	seat->look_ns = SEAT_CONSUMED_NS;
	if (!seat->consumed.place)
		loop_timer_set(seat->loop, &seat->consumed, loop_now_ns(seat->loop) + SEAT_CONSUMED_NS);
	return 0;
}

/* ---- the doorbell ---- */

static void seat_bell_done(void *arg, int res, uint32_t flags)
{
	struct seat *seat = arg;

	seat->bell_armed = false;
	if (seat->state == SEAT_LEFT || seat->state == SEAT_GONE) {
		seat_settle(seat);
		return;
	}
	if (res < 0 && res != -EINTR) {
		/* A worker that made the eventfd non-blocking would have us spin. */
		seat_broken(seat, "its doorbell doesn't work");
		return;
	}
	seat_bell_arm(seat);
}

static void seat_bell_arm(struct seat *seat)
{
	struct io_uring_sqe *sqe = loop_sqe(seat->loop);

	io_uring_prep_read(sqe, seat->doorbell, &seat->bell_value, sizeof(seat->bell_value), 0);
	seat->bell_tag = loop_tag(seat->loop, sqe, seat_bell_done, seat);
	seat->bell_armed = true;
}

/* What client and worker say of a session that doesn't pass us: nonsense shows them as busy or idle, no more. */
static bool direct_is_busy(const struct seat *seat)
{
	const struct session_header *hdr = shm_header(&seat->mirror.shm);

	return !seat->left && (__atomic_load_n(&hdr->busy, __ATOMIC_RELAXED) ||
			       __atomic_load_n(&hdr->c2n.head, __ATOMIC_RELAXED) != __atomic_load_n(&hdr->c2n.tail, __ATOMIC_RELAXED));
}

bool seat_is_busy(const struct seat *seat)
{
	if (seat->state != SEAT_LIVE)
		return false;
	if (seat->direct)
		return direct_is_busy(seat);
	return work_is_open(&seat->work) || seat->seen < seat->c2n.at || __atomic_load_n(&seat->mirror.bulk_pending, __ATOMIC_RELAXED);
}

bool seat_is_new(const struct seat *seat)
{
	return loop_now_ns(seat->loop) - seat->born_ns < SEAT_NEW_NS;
}

bool seat_has_work(struct seat *seat)
{
	if (seat->state != SEAT_LIVE)
		return false;
	return seat->direct ? direct_is_busy(seat) : work_is_on(&seat->work, shm_landed(&seat->mirror.shm, 0));
}

void seat_account(struct seat *seat, uint64_t busy_ns, uint64_t gpu_ns)
{
	seat->busy_ns += busy_ns;
	seat->gpu_ns += gpu_ns;
}

void seat_report(const struct seat *seat, struct report_seat *report_out)
{
	uint64_t latency_us = seat->work.latency_ns / 1000;

	*report_out = (struct report_seat){
		.session = seat->mirror.id,
		.busy_us = seat->busy_ns / 1000,
		.gpu_us = seat->gpu_ns / 1000,
		.latency_us = latency_us < UINT32_MAX ? (uint32_t)latency_us : UINT32_MAX,
		.queued = (uint32_t)(seat->c2n.at - seat->seen),
		.gpus = seat_gpus(seat),
	};
}

void seat_pour_set(struct seat *seat, struct pour *pour)
{
	seat->pour = pour;
}

void seat_fill_set(struct seat *seat, struct fill *fill)
{
	seat->fill = fill;
}

struct link *seat_link(const struct seat *seat)
{
	return seat->link;
}

uint32_t seat_gpus(const struct seat *seat)
{
	return seat->client.gpus ? seat->client.gpus : ~0u;
}

struct mirror *seat_mirror(struct seat *seat)
{
	return &seat->mirror;
}

uint32_t seat_session(const struct seat *seat)
{
	return seat->mirror.id;
}

uint32_t seat_grace_ms(const struct seat *seat)
{
	return seat->client.grace_ms;
}
