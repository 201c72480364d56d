/* SPDX-License-Identifier: Apache-2.0 */
/* A client's session at the node. Control thread, but for the free of its memory; see seat.h. */
#include "broker/node/seat.h"

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
#include "broker/node/fill.h"
#include "broker/node/origin.h"
#include "broker/node/pour.h"
#include "broker/node/work.h"

#define SEAT_FRAMES_MAX	    64u			  /* a seat's turn in a round */
#define SEAT_CONSUMED_BYTES (SESSION_C2N_SIZE / 4) /* freed ring that is told at once */
#define SEAT_CONSUMED_NS    (1 * NS_PER_MS)	  /* less is told after this */
#define SEAT_CONSUMED_SLOW  (16 * NS_PER_MS)	  /* when the worker holds on to a command, we look this rarely */

#define SEAT_UNSEEN_MAX	    4096u /* frames that the broker hasn't told to have come: a window at 1 ms and 4 million frames a second */
#define SEAT_BULK_MAX	    (RESUME_WINDOW / 2) /* of them those with bytes */
#define SEAT_KEPT_MAX	    (SESSION_N2C_SIZE / 2) /* with more we ask what has come: one frame that came late holds back the others */
#define SEAT_ASK_NS	    (2 * NS_PER_MS)
#define SEAT_NEW_NS	    (2 * NS_PER_S) /* programs load what they need when they begin */

/*
 * BEGUN: waits for the worker. LIVE: frames flow. AWAY: without a link; worker and memory wait for another one. LEFT: off the link
 * for good; the worker has been told to end. GONE: no worker any more; waits for lanes that still hold the memory.
 */
enum seat_state { SEAT_BEGUN, SEAT_LIVE, SEAT_AWAY, SEAT_LEFT, SEAT_GONE };

struct seat {
	struct mirror mirror; /* first: lanes know the seat by it */
	struct loop *loop;
	struct link *link;
	struct seat_client client;
	enum seat_state state;
	const struct seat_ops *ops;
	void *owner;
	struct proc *proc;
	int doorbell;
	int pages; /* for page-locked memory of a client of this machine */
	uint64_t bell_value;
	uint64_t bell_tag;
	bool bell_armed;

	struct ring c2n; /* we produce */
	struct ring n2c; /* we consume */
	uint64_t told;	 /* tail of c2n that the broker knows */
	uint64_t seen;	 /* tail of c2n as last read and found sane */
	uint64_t look_ns; /* pause until the next look at a tail that doesn't move */
	struct loop_timer consumed;

	/* Frames that were sent and haven't been told to have come: where each ends in n2c, bit 0 set for bulk frames. */
	uint64_t unseen[SEAT_UNSEEN_MAX];
	uint64_t unseen_head; /* counts run freely, as numbers of frames do */
	uint64_t unseen_tail;
	uint64_t frames_sent;
	uint64_t frames_seen; /* those that have been dropped from unseen */
	uint64_t bulk_sent;
	uint64_t bulk_seen;
	uint64_t n2c_kept; /* what of n2c has been given back to the worker ends here */
	struct seat_resume had; /* what the broker of a resumed session has: numbers up to here aren't sent again */

	struct loop_timer ask;	/* until the broker is asked what has come */
	struct loop_timer away; /* until it is given up */
	char host[HELLO_HOST_SIZE];
	char tenant[KEY_TENANT_SIZE];
	struct link *later_link; /* to resume on, once away; NULL: none */
	uint32_t later_session;
	struct seat_resume later;
	enum session_end over; /* the worker ended while we were away, or END_NONE */
	char over_why[PROC_WHY_SIZE];

	uint64_t born_ns;

	/* for the load */
	struct work work;
	uint64_t busy_ns;
	uint64_t gpu_ns;
	bool direct;	     /* the client has the memory itself; our rings are the side rings */
	bool left;	     /* it has gone on elsewhere, with the memory: that is not ours any more */
	uint32_t short_seen; /* short_asked of its memory that has been answered */

	/* while it moves, see ways.h */
	struct pour *pour;
	struct fill *fill;

	struct loop_post post;
};

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

static void seat_unlink(struct seat *seat)
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
	if (seat->mirror.off & OFF_SPIN)
		loop_spin_forbid(seat->loop, false);
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

static void seat_consumed_late(void *arg);
static void seat_away_over(void *arg);
static void seat_ask(void *arg);

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
	if (seat->mirror.off & OFF_SPIN)
		loop_spin_forbid(loop, true);
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

/* Whatever it waits for: of a client that shares its memory, too. */
static void seat_wake_worker(struct seat *seat)
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

/* ---- up: what the worker freed and wrote ---- */

/* The worker's tail of c2n. False when it is nonsense. */
static bool seat_tail_look(struct seat *seat)
{
	uint64_t tail = ring_tail(&seat->c2n);

	if (tail < seat->seen || tail > seat->c2n.at || (tail & (FRAME_ALIGN - 1)))
		return false;
	seat->seen = tail;
	return true;
}

static void seat_consumed_tell(struct seat *seat)
{
	if (seat->seen == seat->told)
		return;
	seat->told = seat->seen;
	link_send(seat->link, LINK_CONSUMED, seat->mirror.id, &seat->told, sizeof(seat->told), NULL, 0);
}

static void seat_broken(struct seat *seat, const char *what)
{
	char why[PROC_WHY_SIZE];

	snprintf(why, sizeof(why), "the worker broke the protocol: %s", what);
	log_error("session %u: %s", seat->mirror.id, why);
	seat_end(seat, END_PROTOCOL, why, true);
}

static void seat_consumed_late(void *arg)
{
	struct seat *seat = arg;
	uint64_t before = seat->seen;

	if (seat->state != SEAT_LIVE)
		return;
	if (!seat_tail_look(seat)) {
		seat_broken(seat, "tail of its command ring");
		return;
	}
	seat_consumed_tell(seat);
	if (seat->seen == seat->c2n.at)
		return;
	/* Commands remain. While they move we look again soon, else less and less. */
	seat->look_ns = seat->seen != before ? SEAT_CONSUMED_NS : 2 * seat->look_ns;
	if (seat->look_ns > SEAT_CONSUMED_SLOW)
		seat->look_ns = SEAT_CONSUMED_SLOW;
	loop_timer_set(seat->loop, &seat->consumed, loop_now_ns(seat->loop) + seat->look_ns);
}

/* A frame that brings bytes goes behind them on a bulk lane. */
static int seat_frame_bulk(struct seat *seat, const struct frame_hdr *hdr, const uint8_t *frame, const struct bulk_ref *ref,
			   uint64_t number)
{
	struct bulk_item *item;

	if (ref->offset > SESSION_DOWN_SIZE || ref->size > SESSION_DOWN_SIZE - ref->offset)
		return -EPROTO;
	item = malloc(sizeof(*item) + hdr->size);
	if (!item)
		return -ENOMEM;
	*item = (struct bulk_item){
		.seq = hdr->seq, .number = number, .offset = ref->offset, .size = ref->size, .frame_size = hdr->size,
	};
	memcpy(item->frame, frame, hdr->size);
	/* The checked ones, whatever the worker has written since. */
	memcpy(item->frame, hdr, sizeof(*hdr));
	memcpy(item->frame + sizeof(*hdr), ref, sizeof(*ref));
	link_bulk(seat->link, &seat->mirror, item);
	return 0;
}

/* Whether a broker that came back has that bulk frame. */
static bool seat_had_bulk(const struct seat *seat, uint64_t number)
{
	const struct seat_resume *had = &seat->had;

	if (number <= had->bulk)
		return true;
	return number - had->bulk <= RESUME_WINDOW && (had->bits[number % RESUME_WINDOW / 8] & 1u << number % 8);
}

/* Its bytes go to another node, and it goes on without them. */
static int seat_frame_aside(struct seat *seat, const struct frame_hdr *hdr, const uint8_t *frame)
{
	uint8_t copy[512];
	int err;

	if (hdr->size > sizeof(copy))
		return -EPROTO;
	memcpy(copy, frame, hdr->size);
	memcpy(copy, hdr, sizeof(*hdr));
	err = pour_frame(seat->pour, &seat->mirror.shm, copy, hdr->size);
	seat->frames_sent++;
	if (!err && seat->frames_sent > seat->had.frames)
		link_send(seat->link, LINK_FRAME, seat->mirror.id, copy, hdr->size, NULL, 0);
	return err;
}

/* Sends it, unless it was sent by a lost link and came. *@bulk_out: it is one with bytes. */
static int seat_frame(struct seat *seat, const struct frame_hdr *hdr, const uint8_t *frame, bool *bulk_out)
{
	*bulk_out = false;
	if (hdr->kind != FRAME_REPLY && hdr->kind != FRAME_NOTICE)
		return -EPROTO;
	if (hdr->kind == FRAME_REPLY) {
		work_answered(&seat->work, hdr->seq);
	} else if (hdr->op == NOTICE_PROGRESS && hdr->size >= sizeof(*hdr) + 8) {
		uint32_t words[2];

		memcpy(words, frame + sizeof(*hdr), sizeof(words));
		if (words[0] < SESSION_PROGRESS_WORDS)
			work_reached(&seat->work, words[0], words[1], loop_now_ns(seat->loop));
	}
	if (hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_MOVE_ASIDE)
		return seat_frame_aside(seat, hdr, frame);
	if (hdr->kind == FRAME_NOTICE && hdr->op == NOTICE_CONSUMED && seat->fill && hdr->size >= sizeof(*hdr) + sizeof(uint64_t)) {
		uint64_t tail;

		memcpy(&tail, frame + sizeof(*hdr), sizeof(tail));
		fill_consumed(seat->fill, tail);
	}
	if (hdr->flags & FRAME_BULK_DOWN) {
		struct bulk_ref ref = ring_bulk_ref(frame);

		if (ref.size) {
			*bulk_out = true;
			seat->bulk_sent++;
			if (seat_had_bulk(seat, seat->bulk_sent))
				return 0;
			return seat_frame_bulk(seat, hdr, frame, &ref, seat->bulk_sent);
		}
	}
	seat->frames_sent++;
	if (seat->frames_sent <= seat->had.frames)
		return 0;
	link_send(seat->link, LINK_FRAME, seat->mirror.id, hdr, sizeof(*hdr), frame + sizeof(*hdr), hdr->size - sizeof(*hdr));
	return 0;
}

/* Frames that have come are dropped, oldest first; the worker gets their room back. */
static void seat_drop_seen(struct seat *seat, uint64_t frames, uint64_t bulk)
{
	uint64_t kept = seat->n2c_kept;

	while (seat->unseen_tail < seat->unseen_head) {
		uint64_t end = seat->unseen[seat->unseen_tail % SEAT_UNSEEN_MAX];
		uint64_t *seen = end & 1 ? &seat->bulk_seen : &seat->frames_seen;

		if (*seen >= (end & 1 ? bulk : frames))
			break;
		(*seen)++;
		kept = end & ~1ull;
		seat->unseen_tail++;
	}
	if (kept == seat->n2c_kept)
		return;
	seat->n2c_kept = kept;
	ring_release_to(&seat->n2c, kept);
}

int seat_seen(struct seat *seat, uint64_t frames, uint64_t bulk)
{
	if (seat->state != SEAT_LIVE || seat->left)
		return 0;
	if (frames > seat->frames_sent || bulk > seat->bulk_sent)
		return -EPROTO;
	seat_drop_seen(seat, frames, bulk);
	return 0;
}

/* As many are on their way as can be sent again. */
static bool seat_unseen_full(const struct seat *seat)
{
	return seat->unseen_head - seat->unseen_tail == SEAT_UNSEEN_MAX || seat->bulk_sent - seat->bulk_seen >= SEAT_BULK_MAX;
}

static bool seat_keeps_much(const struct seat *seat)
{
	return seat->n2c.at - seat->n2c_kept > SEAT_KEPT_MAX || seat_unseen_full(seat);
}

static void seat_ask(void *arg)
{
	struct seat *seat = arg;

	if (seat->state != SEAT_LIVE || !seat_keeps_much(seat))
		return;
	link_send(seat->link, LINK_SEEN, seat->mirror.id, NULL, 0, NULL, 0);
	loop_timer_set(seat->loop, &seat->ask, loop_now_ns(seat->loop) + SEAT_ASK_NS);
}

/* Its frames wait, for the link or the broker. */
static bool seat_is_blocked(const struct seat *seat)
{
	/* Switched off: an answer a write, and the next one when this has gone. */
	if (seat->mirror.off & OFF_COALESCE && link_backlog(seat->link))
		return true;
	return link_backlog(seat->link) >= CONN_BACKLOG_HIGH || mirror_is_full(&seat->mirror) || seat_unseen_full(seat) || pour_is_full(seat->pour);
}

/* It may ask again and again: each time costs a look at every seat, and others some memory that they asked for ahead. */
static void seat_short_look(struct seat *seat)
{
	struct session_header *hdr = shm_header(&seat->mirror.shm);
	uint32_t asked = __atomic_load_n(&hdr->short_asked, __ATOMIC_ACQUIRE);
	unsigned others;

	if (asked == seat->short_seen)
		return;
	seat->short_seen = asked;
	others = seat->ops->is_short(seat->owner, seat, __atomic_load_n(&hdr->short_gpu, __ATOMIC_RELAXED),
				     __atomic_load_n(&hdr->short_bytes, __ATOMIC_RELAXED));
	__atomic_store_n(&hdr->short_others, others, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->short_told, asked, __ATOMIC_RELEASE);
	seat_wake_worker(seat);
}

bool seat_recall(struct seat *seat, uint32_t gpu, uint64_t bytes)
{
	struct session_header *hdr = shm_header(&seat->mirror.shm);

	if (seat->state != SEAT_LIVE || seat->left || !(seat_gpus(seat) >> gpu & 1) || !__atomic_load_n(&hdr->idle_bytes, __ATOMIC_RELAXED))
		return false;
	__atomic_store_n(&hdr->recall_gpu, gpu, __ATOMIC_RELAXED);
	__atomic_store_n(&hdr->recall_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_add_fetch(&hdr->recall_count, 1, __ATOMIC_RELEASE);
	seat_wake_worker(seat);
	return true;
}

bool seat_poll(struct seat *seat)
{
	struct frame_hdr hdr;
	const uint8_t *frame;
	unsigned count = 0;
	int got = 0;

	if (seat->state != SEAT_LIVE || seat->left)
		return false;
	seat_short_look(seat);
	while (count < SEAT_FRAMES_MAX && !seat_is_blocked(seat) && (got = ring_peek(&seat->n2c, &hdr, &frame)) == 1) {
		bool bulk;
		int err = seat_frame(seat, &hdr, frame, &bulk);

		if (err) {
			seat_broken(seat, err == -ENOMEM ? "out of memory for its frame" : "a frame that a worker can't send");
			return true;
		}
		ring_next(&seat->n2c, &hdr);
		seat->unseen[seat->unseen_head++ % SEAT_UNSEEN_MAX] = seat->n2c.at | bulk;
		count++;
	}
	if (got < 0) {
		seat_broken(seat, "its reply ring is nonsense");
		return true;
	}
	if (!seat_tail_look(seat)) {
		seat_broken(seat, "tail of its command ring");
		return true;
	}
	if (seat_keeps_much(seat) && !seat->ask.place)
		loop_timer_set(seat->loop, &seat->ask, loop_now_ns(seat->loop) + SEAT_ASK_NS);
	/* With anything that is sent anyway, or when it is much. */
	if (count || seat->seen - seat->told >= SEAT_CONSUMED_BYTES)
		seat_consumed_tell(seat);
	return count != 0;
}

bool seat_sleep(struct seat *seat)
{
	if (seat->state != SEAT_LIVE || seat->left)
		return true;
	/* The link's drained(), a mirror's room() and the broker's SEEN wake us. */
	if (seat_is_blocked(seat))
		return true;
	return ring_sleep_begin(&seat->n2c);
}

void seat_wake(struct seat *seat)
{
	if (seat->state == SEAT_LIVE && !seat->left)
		ring_sleep_end(&seat->n2c);
}

/* ---- without a link ---- */

static void seat_away_over(void *arg)
{
	struct seat *seat = arg;

	if (seat->state == SEAT_AWAY)
		seat_end(seat, END_LINK_LOST, "its broker did not come back after the link was lost", false);
}

bool seat_away(struct seat *seat, uint64_t limit_ns)
{
	/* A client that has the worker's memory ends with the link to ourselves, that is with this daemon. */
	if (seat->state != SEAT_LIVE || limit_ns == 0 || seat->direct)
		return false;
	loop_timer_clear(seat->loop, &seat->consumed);
	loop_timer_clear(seat->loop, &seat->ask);
	seat_unlink(seat);
	seat->state = SEAT_AWAY;
	loop_timer_set(seat->loop, &seat->away, loop_now_ns(seat->loop) + limit_ns);
	log_info("session %u of %s (%s, pid %u): waits up to %.1f s for its broker", seat->mirror.id, seat->host,
		 seat->client.program, seat->client.pid, (double)limit_ns / (double)NS_PER_S);
	return true;
}

bool seat_is_away(const struct seat *seat)
{
	return seat->state == SEAT_AWAY;
}

bool seat_is(const struct seat *seat, const uint8_t token[RESUME_TOKEN_SIZE], const char *tenant)
{
	return seat->state < SEAT_LEFT && memcmp(seat->client.token, token, RESUME_TOKEN_SIZE) == 0 &&
	       strcmp(seat->tenant, tenant) == 0;
}

bool seat_is_of(const struct seat *seat, uint32_t pid, uint32_t uid)
{
	return seat->client.pid == pid && seat->client.uid == uid;
}

void seat_resume_later(struct seat *seat, struct link *link, uint32_t session, const struct seat_resume *resume)
{
	seat->later_link = link;
	seat->later_session = session;
	seat->later = *resume;
}

struct link *seat_resume_link(const struct seat *seat)
{
	return seat->later_link;
}

void seat_resume_forget(struct seat *seat)
{
	seat->later_link = NULL;
}

/* The answer to RESUME. */
static void seat_resumed_send(struct link *link, uint32_t session, enum session_end end, const char *why, uint64_t position,
		       uint64_t tail, const uint32_t *landed)
{
	uint8_t bytes[LINK_TEXT_MAX + 64 + SESSION_GRANULES * 4] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, end);
	put_str(&w, why);
	put_u64(&w, position);
	put_u64(&w, tail);
	put_block(&w, landed, SESSION_GRANULES * 4);
	assert(!w.fault);
	link_send(link, LINK_RESUMED, session, NULL, 0, bytes, w.at);
}

void seat_resume_refuse(struct link *link, uint32_t session, enum session_end end, const char *why)
{
	static const uint32_t none[SESSION_GRANULES];

	seat_resumed_send(link, session, end, why, 0, 0, none);
}

bool seat_resume_due(struct seat *seat)
{
	const struct seat_resume *resume = &seat->later;
	struct link *link = seat->later_link;
	uint32_t session = seat->later_session;
	uint32_t landed[SESSION_GRANULES];

	assert(seat->state == SEAT_AWAY && link);
	seat->later_link = NULL;
	if (seat->over != END_NONE) {
		seat_resume_refuse(link, session, seat->over, seat->over_why);
		seat_end(seat, seat->over, seat->over_why, false);
		return false;
	}
	if (resume->frames > seat->frames_sent || resume->frames < seat->frames_seen || resume->bulk > seat->bulk_sent ||
	    resume->bulk < seat->bulk_seen) {
		seat_resume_refuse(link, session, END_PROTOCOL, "the broker has frames that were never sent");
		seat_end(seat, END_PROTOCOL, "its broker came back with frames that were never sent", false);
		return false;
	}
	if (!seat_tail_look(seat)) {
		seat_resume_refuse(link, session, END_PROTOCOL, "the worker broke the protocol: tail of its command ring");
		seat_end(seat, END_PROTOCOL, "the worker broke the protocol: tail of its command ring", false);
		return false;
	}
	loop_timer_clear(seat->loop, &seat->away);
	/* What hasn't come is read from the ring once more; frames get the same numbers again, as they have one order. */
	seat_drop_seen(seat, resume->frames, resume->bulk);
	seat->had = *resume;
	seat->n2c.at = seat->n2c_kept;
	seat->unseen_head = seat->unseen_tail;
	seat->frames_sent = seat->frames_seen;
	seat->bulk_sent = seat->bulk_seen;

	seat->mirror.id = session;
	seat->link = link;
	seat->state = SEAT_LIVE;
	link_mirror_add(link, &seat->mirror);
	seat->told = seat->seen;
	for (uint32_t i = 0; i < SESSION_GRANULES; i++)
		landed[i] = __atomic_load_n(shm_landed(&seat->mirror.shm, i), __ATOMIC_ACQUIRE);
	seat_resumed_send(link, session, END_NONE, "", seat->c2n.at, seat->seen, landed);
	seat->look_ns = SEAT_CONSUMED_NS;
	loop_timer_set(seat->loop, &seat->consumed, loop_now_ns(seat->loop) + SEAT_CONSUMED_NS);
	log_info("session %u of %s (%s, pid %u): goes on", seat->mirror.id, seat->host, seat->client.program, seat->client.pid);
	return true;
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
