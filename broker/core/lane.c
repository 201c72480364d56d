/* SPDX-License-Identifier: Apache-2.0 */
/* A bulk lane of a link. Runs on the lane's own thread unless it says otherwise; see lane.h. */
#include "broker/core/lane.h"

#include <assert.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/lane_choice.h"
#include "broker/core/pack.h"
#include "broker/lib/clock.h"
#include "broker/lib/codec.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/lib/tsan.h"

#define LANE_RING_ENTRIES 64u	       /* one connection: a receive, a send, an eventfd */
#define LANE_PART_MAX	  (512u << 10) /* bytes of one downward message: leaves room for its frame, and turns stay short */
#define LANE_AWAITED_FIRST (32u << 10)
#define LANE_SINK_SIZE	  (64u << 10)
#define LANE_SPIN_CORES	  8	       /* fewer are needed by those who make and use the bytes */
#define LANE_UP_FIELDS	  24u /* of LINK_BULK_UP */
#define LANE_KEEP_FIELDS  40u /* of LINK_BULK_KEEP */
#define LANE_DOWN_FIELDS  16u /* of LINK_BULK_DOWN */
#define LANE_LZ4_FIELD	  4u  /* behind them with LINK_LZ4 */
#define LANE_MEASURE_NS	  (20 * NS_PER_MS) /* the kernel is asked so often while bytes go out, and once after */
#define LANE_MEASURE_SIZE (1u << 20)	   /* less says more about the round trip than about the link */

static_assert(LANE_PART_MAX + FRAME_SIZE_MAX + 64 < LINK_MSG_MAX, "a part and its frame are one message");

enum lane_stage { STAGE_HEAD, STAGE_FIELDS, STAGE_BYTES, STAGE_PACKED, STAGE_FRAME, STAGE_SINK };

struct lane {
	/* set before the thread starts, then only read */
	struct loop *control;
	struct link *link;
	const struct lane_ops *ops;
	struct hello_info hello;
	bool node;
	unsigned index; /* of our queues in mirrors */
	pthread_t thread;
	bool started;

	/* lane thread */
	struct loop *loop;
	struct conn *conn;
	struct lane_queue *lent; /* whose bytes the connection is sending, taken out of the list */
	struct bulk_item *lent_item;
	enum lane_stage stage;
	struct link_hdr hdr;
	uint8_t fields[LANE_KEEP_FIELDS + LANE_LZ4_FIELD] __attribute__((aligned(8)));
	struct bulk_keep keep;
	struct mirror *target; /* counted, from FIELDS to the end of the message */
	uint32_t offset;
	uint64_t cookie; /* up */
	uint64_t number; /* down */
	uint32_t left; /* bytes of the message that are still to come */
	uint32_t size; /* of the bytes at hand, */
	uint32_t stored; /* and of the LZ4 that stands for them */
	uint8_t *packed; /* PACK_SIZE_MAX bytes, made at first need */
	struct packer packer; /* of what goes out */
	uint8_t *frame; /* FRAME_SIZE_MAX bytes */
	uint8_t *sink;
	bool stopping;
	bool closed;
	struct loop_timer measure;
	uint64_t measured_bytes; /* acknowledged when the bandwidth was measured last */
	uint64_t measured_busy;	 /* microseconds */

	struct loop_post pump_post;
	struct loop_post stop_post;
	bool pump_posted; /* atomic */

	/* on its way to the control thread */
	struct loop_post lost_post;
	int lost_err;
	char lost_why[CONN_WHY_SIZE];

	/* atomic */
	uint64_t queued;
	uint64_t sent;
	uint64_t received;
	uint64_t bandwidth; /* its own share of the link */
	uint64_t acked;
	uint64_t busy_us;
	uint64_t saved;

	pthread_mutex_t lock;
	/* guarded by lock */
	struct lane_queue *ready_first;
	struct lane_queue **ready_last;
	bool shut; /* nothing is queued any more */

	sem_t born;
	int born_err;
};

/* ---- in ---- */

static void lane_target_put(struct lane *lane)
{
	if (lane->target)
		mirror_put(lane->target);
	lane->target = NULL;
}

static int lane_head_want(struct lane *lane)
{
	lane_target_put(lane);
	lane->stage = STAGE_HEAD;
	conn_want(lane->conn, &lane->hdr, sizeof(lane->hdr));
	__atomic_store_n(&lane->received, conn_received(lane->conn), __ATOMIC_RELAXED);
	return 0;
}

/* The rest of a message for a session that has ended meanwhile. */
static int lane_sink_want(struct lane *lane)
{
	if (lane->left == 0)
		return lane_head_want(lane);
	lane->stage = STAGE_SINK;

	uint32_t size = lane->left < LANE_SINK_SIZE ? lane->left : LANE_SINK_SIZE;

	lane->left -= size;
	conn_want(lane->conn, lane->sink, size);
	return 0;
}

static int lane_head(struct lane *lane)
{
	const struct link_hdr *hdr = &lane->hdr;
	bool keep = lane->node && hdr->type == LINK_BULK_KEEP;
	uint32_t fields = keep ? LANE_KEEP_FIELDS : lane->node ? LANE_UP_FIELDS : LANE_DOWN_FIELDS;

	if (hdr->flags)
		fields += LANE_LZ4_FIELD;
	if ((hdr->type != (lane->node ? LINK_BULK_UP : LINK_BULK_DOWN) && !keep) ||
	    hdr->flags > (lane->hello.lz4 ? LINK_LZ4 : 0) || hdr->reserved ||
	    hdr->size > LINK_MSG_MAX || hdr->size < sizeof(*hdr) + fields)
		return conn_blame(lane->conn, -EPROTO, "message %u of %u bytes has no place on a bulk lane", hdr->type,
				  hdr->size);
	lane->left = hdr->size - (uint32_t)sizeof(*hdr) - fields;
	lane->stage = STAGE_FIELDS;
	conn_want(lane->conn, lane->fields, fields);
	return 0;
}

/* After the bytes: upwards that was all, downwards their frame follows, unless more bytes come first. */
static int lane_landed(struct lane *lane)
{
	if (lane->node) {
		/* Pairs with the release in cache_mirror_attach(). */
		void (*keep)(struct mirror *, const struct bulk_keep *, uint64_t, uint32_t, uint32_t) =
			__atomic_load_n(&lane->target->keep, __ATOMIC_ACQUIRE);

		if (lane->keep.total && keep)
			keep(lane->target, &lane->keep, lane->cookie, lane->offset, lane->size);
		order_give(lane->target);
		session_landed_post(&lane->target->shm, lane->offset, lane->cookie);
		return lane_head_want(lane);
	}
	order_give(lane->target);
	if (lane->left == 0)
		return lane_head_want(lane);
	lane->stage = STAGE_FRAME;
	conn_want(lane->conn, lane->frame, lane->left);
	return 0;
}

static uint8_t *lane_place(const struct lane *lane)
{
	return (lane->node ? shm_up(&lane->target->shm) : shm_down(&lane->target->shm)) + lane->offset;
}

/* LZ4 is complete. Back references of it are read from session memory, which others write: that spoils its own bytes only. */
static int lane_unpack(struct lane *lane)
{
	if (unpack(lane->packed, lane->stored, lane_place(lane), lane->size))
		return conn_blame(lane->conn, -EPROTO, "%u bytes that are no LZ4 of %u", lane->stored, lane->size);
	return lane_landed(lane);
}

static int lane_fields(struct lane *lane)
{
	struct reader r = reader_on(lane->fields, sizeof(lane->fields));
	uint32_t arena = lane->node ? SESSION_UP_SIZE : SESSION_DOWN_SIZE;
	bool right = true;

	if (lane->node) {
		get_u64(&r); /* seq: for traces */
		lane->cookie = get_u64(&r);
	} else {
		lane->number = get_u64(&r);
	}
	lane->offset = get_u32(&r);

	uint32_t size = get_u32(&r);
	uint32_t sink = lane->left;

	lane->size = lane->stored = size;
	lane->keep = (struct bulk_keep){ 0 };
	if (lane->hdr.type == LINK_BULK_KEEP) {
		lane->keep.tag = get_u64(&r);
		lane->keep.at = get_u32(&r);
		lane->keep.total = get_u32(&r);
		right = lane->keep.total && lane->keep.total <= CACHE_CHUNK_SIZE && lane->keep.at <= lane->keep.total &&
			size <= lane->keep.total - lane->keep.at &&
			(lane->keep.tag || (lane->keep.at == 0 && lane->keep.total == size));
	}
	if (lane->hdr.flags & LINK_LZ4) {
		lane->stored = get_u32(&r);
		if (size > PACK_SIZE_MAX || lane->stored >= size || lane->stored > lane->left || !lane->stored)
			return conn_blame(lane->conn, -EPROTO, "%u bytes of LZ4 for %u", lane->stored, size);
		/* From here on as if the bytes themselves came. */
		lane->left += size - lane->stored;
	}
	if (lane->offset > arena || size > arena - lane->offset || size > lane->left || size == 0)
		right = false;
	else if (lane->node)
		right = right && size == lane->left && size <= SESSION_CELL_SIZE && lane->offset % SESSION_GRANULE == 0 &&
			lane->cookie % SESSION_UP_SIZE == lane->offset;
	else
		right = lane->left - size == 0 ||
			(lane->left - size >= sizeof(struct frame_hdr) && lane->left - size <= FRAME_SIZE_MAX);
	if (!right)
		return conn_blame(lane->conn, -EPROTO, "bulk bytes at %u, %u of them, don't fit", lane->offset, size);
	lane->target = lane->ops->mirror(lane->link, lane->hdr.session);
	if (!lane->target) {
		lane->left = sink;
		return lane_sink_want(lane);
	}
	lane->left -= size;
	/* Who had the piece before gave it back by way of the other process. */
	order_take(lane->target);
	if (lane->node)
		shm_up_touch(&lane->target->shm, lane->offset, size, true);
	else
		shm_down_touch(&lane->target->shm, lane->offset, size, true);
	if (!(lane->hdr.flags & LINK_LZ4)) {
		lane->stage = STAGE_BYTES;
		conn_want(lane->conn, lane_place(lane), size);
		return 0;
	}
	if (!lane->packed)
		lane->packed = malloc(PACK_SIZE_MAX);
	if (!lane->packed)
		return -ENOMEM;
	lane->stage = STAGE_PACKED;
	conn_want(lane->conn, lane->packed, lane->stored);
	return 0;
}

static int lane_frame(struct lane *lane)
{
	struct frame_hdr hdr;

	memcpy(&hdr, lane->frame, sizeof(hdr));
	if (hdr.size != lane->left)
		return conn_blame(lane->conn, -EPROTO, "a frame of %u bytes says that it has %u", lane->left, hdr.size);
	lane->target->deliver(lane->target, lane->number, lane->frame, lane->left);
	return lane_head_want(lane);
}

static int lane_part(void *owner)
{
	struct lane *lane = owner;

	switch (lane->stage) {
	case STAGE_HEAD:
		return lane_head(lane);
	case STAGE_FIELDS:
		return lane_fields(lane);
	case STAGE_BYTES:
		return lane_landed(lane);
	case STAGE_PACKED:
		return lane_unpack(lane);
	case STAGE_FRAME:
		return lane_frame(lane);
	case STAGE_SINK:
		return lane_sink_want(lane);
	}
	return -EPROTO;
}

/* ---- out ---- */

/* The next queue in turn, taken out of the list together with its count; NULL without. */
static struct lane_queue *ready_take(struct lane *lane, struct bulk_item **item_out)
{
	struct lane_queue *queue;

	pthread_mutex_lock(&lane->lock);
	queue = lane->ready_first;
	if (queue) {
		lane->ready_first = queue->next_ready;
		if (!lane->ready_first)
			lane->ready_last = &lane->ready_first;
		*item_out = queue->first;
	}
	pthread_mutex_unlock(&lane->lock);
	return queue;
}

/* Back at the end of the list if there is more; its head goes when it is @done. */
static void ready_give(struct lane *lane, struct lane_queue *queue, struct bulk_item *item, bool done)
{
	struct mirror *mirror = queue->mirror;
	bool more;

	pthread_mutex_lock(&lane->lock);
	if (done) {
		queue->first = item->next;
		if (!queue->first)
			queue->last = &queue->first;
	}
	more = queue->first != NULL;
	if (more) {
		queue->next_ready = NULL;
		*lane->ready_last = queue;
		lane->ready_last = &queue->next_ready;
	} else {
		queue->ready = false;
	}
	pthread_mutex_unlock(&lane->lock);
	if (done) {
		__atomic_fetch_sub(&lane->queued, item->size, __ATOMIC_RELAXED);
		free(item);
		mirror_bulk_end(mirror);
	}
	if (!more)
		mirror_put(mirror);
}

/*
 * A message of bulk: its fields, and @size bytes at @bytes or LZ4 that stands for them; then @frame. @w has room left.
 */
static void item_send(struct lane *lane, const struct mirror *mirror, enum link_msg type, struct writer *w, const uint8_t *bytes,
		      uint32_t size, const uint8_t *frame, uint32_t frame_size)
{
	uint32_t stored = size;
	bool packed = lane->hello.lz4 && !(mirror->off & OFF_LZ4) && pack_try(&lane->packer, bytes, size, lane->bandwidth, &stored);
	struct link_hdr hdr = { .type = (uint16_t)type, .session = mirror->id };

	if (packed) {
		put_u32(w, stored);
		hdr.flags = LINK_LZ4;
		__atomic_store_n(&lane->saved, lane->packer.saved, __ATOMIC_RELAXED);
	}
	assert(!w->fault);
	hdr.size = (uint32_t)w->at + stored + frame_size;
	memcpy(w->start, &hdr, sizeof(hdr));
	conn_lend(lane->conn, w->start, w->at, packed ? lane->packer.packed : bytes, stored, frame, frame_size,
		  lane->node && size <= LANE_AWAITED_MAX ? LANE_AWAITED_FIRST : 0);
}

static void item_send_up(struct lane *lane, struct mirror *mirror, struct bulk_item *item)
{
	uint8_t head[sizeof(struct link_hdr) + LANE_KEEP_FIELDS + LANE_LZ4_FIELD] __attribute__((aligned(8)));
	struct writer w = writer_on(head, sizeof(head));
	bool keep = item->keep.total != 0;

	w.at = sizeof(struct link_hdr);
	put_u64(&w, item->seq);
	put_u64(&w, item->cookie);
	put_u32(&w, item->offset);
	put_u32(&w, item->size);
	if (keep) {
		put_u64(&w, item->keep.tag);
		put_u32(&w, item->keep.at);
		put_u32(&w, item->keep.total);
	}
	shm_up_touch(&mirror->shm, item->offset, item->size, false);
	item_send(lane, mirror, keep ? LINK_BULK_KEEP : LINK_BULK_UP, &w, shm_up(&mirror->shm) + item->offset, item->size, NULL, 0);
	item->done = item->size;
}

static void item_send_down(struct lane *lane, struct mirror *mirror, struct bulk_item *item)
{
	uint8_t head[sizeof(struct link_hdr) + LANE_DOWN_FIELDS + LANE_LZ4_FIELD] __attribute__((aligned(8)));
	struct writer w = writer_on(head, sizeof(head));
	uint32_t size = item->size - item->done < LANE_PART_MAX ? item->size - item->done : LANE_PART_MAX;
	uint32_t behind = size == item->size - item->done ? item->frame_size : 0;

	w.at = sizeof(struct link_hdr);
	put_u64(&w, item->number);
	put_u32(&w, item->offset + item->done);
	put_u32(&w, size);
	shm_down_touch(&mirror->shm, item->offset + item->done, size, false);
	item_send(lane, mirror, LINK_BULK_DOWN, &w, shm_down(&mirror->shm) + item->offset + item->done, size, item->frame, behind);
	item->done += size;
}

/*
 * Acknowledged bytes over the time in which the connection had some to deliver, both as the kernel counts them: pauses of ours
 * are not in it, so it may be looked at late. (The kernel's own delivery rate is of single bursts: on a fast link several times
 * what gets through.)
 */
static void lane_measure(void *arg)
{
	struct lane *lane = arg;
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	uint64_t bytes, busy, rate, known;

	if (lane->closed || getsockopt(conn_fd(lane->conn), IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
	    size < offsetof(struct tcp_info, tcpi_busy_time) + sizeof(info.tcpi_busy_time))
		return;
	__atomic_store_n(&lane->acked, info.tcpi_bytes_acked, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->busy_us, info.tcpi_busy_time, __ATOMIC_RELAXED);
	bytes = info.tcpi_bytes_acked - lane->measured_bytes;
	busy = info.tcpi_busy_time - lane->measured_busy;
	if (bytes < LANE_MEASURE_SIZE || busy == 0)
		return;
	lane->measured_bytes = info.tcpi_bytes_acked;
	lane->measured_busy = info.tcpi_busy_time;
	rate = bytes * 1000000 / busy;
	known = lane->bandwidth;
	__atomic_store_n(&lane->bandwidth, known ? known - known / 4 + rate / 4 : rate, __ATOMIC_RELAXED);
}

/* The connection has done with what was lent: the session's next turn. */
static void lent_end(struct lane *lane)
{
	struct lane_queue *queue = lane->lent;
	struct bulk_item *item = lane->lent_item;

	if (!queue)
		return;
	lane->lent = NULL;
	ready_give(lane, queue, item, item->done == item->size);
}

static void lane_pump(struct lane *lane)
{
	while (!lane->closed && !conn_is_lent(lane->conn)) {
		struct bulk_item *item;
		struct lane_queue *queue;

		lent_end(lane);
		queue = ready_take(lane, &item);
		if (!queue)
			break;
		lane->lent = queue;
		lane->lent_item = item;
		if (__atomic_load_n(&queue->mirror->dead, __ATOMIC_ACQUIRE))
			item->done = item->size;
		else if (lane->node)
			item_send_down(lane, queue->mirror, item);
		else
			item_send_up(lane, queue->mirror, item);
	}
	__atomic_store_n(&lane->sent, conn_sent(lane->conn), __ATOMIC_RELAXED);
	if (!lane->closed && !lane->measure.place)
		loop_timer_set(lane->loop, &lane->measure, loop_now_ns(lane->loop) + LANE_MEASURE_NS);
}

static void lane_pump_run(struct loop_post *post)
{
	struct lane *lane = (struct lane *)((char *)post - offsetof(struct lane, pump_post));

	/* Before the queue is looked at: what is queued after this posts again. */
	__atomic_store_n(&lane->pump_posted, false, __ATOMIC_SEQ_CST);
	lane_pump(lane);
}

static void lane_drained(void *owner)
{
	lane_pump(owner);
}

void lane_bulk(struct lane *lane, struct mirror *mirror, struct bulk_item *item)
{
	struct lane_queue *queue = &mirror->queues[lane->index];
	bool shut;

	mirror_bulk_begin(mirror);
	item->next = NULL;
	item->done = 0;
	pthread_mutex_lock(&lane->lock);
	shut = lane->shut;
	if (!shut) {
		__atomic_fetch_add(&lane->queued, item->size, __ATOMIC_RELAXED);
		*queue->last = item;
		queue->last = &item->next;
		if (!queue->ready) {
			queue->ready = true;
			mirror_get(mirror);
			queue->next_ready = NULL;
			*lane->ready_last = queue;
			lane->ready_last = &queue->next_ready;
		}
		/* Under the lock, so that the loop is there: lane_stop() shuts first. */
		if (!__atomic_exchange_n(&lane->pump_posted, true, __ATOMIC_SEQ_CST))
			loop_post(lane->loop, &lane->pump_post);
	}
	pthread_mutex_unlock(&lane->lock);
	if (shut) {
		free(item);
		mirror_bulk_end(mirror);
	}
}

uint64_t lane_queued(const struct lane *lane)
{
	return __atomic_load_n(&lane->queued, __ATOMIC_RELAXED);
}

void lane_bytes(const struct lane *lane, uint64_t *sent_out, uint64_t *received_out)
{
	*sent_out = __atomic_load_n(&lane->sent, __ATOMIC_RELAXED);
	*received_out = __atomic_load_n(&lane->received, __ATOMIC_RELAXED);
}

uint64_t lane_saved(const struct lane *lane)
{
	return __atomic_load_n(&lane->saved, __ATOMIC_RELAXED);
}

void lane_delivered(const struct lane *lane, uint64_t *bytes_out, uint64_t *busy_us_out)
{
	*bytes_out = __atomic_load_n(&lane->acked, __ATOMIC_RELAXED);
	*busy_us_out = __atomic_load_n(&lane->busy_us, __ATOMIC_RELAXED);
}

/* ---- life ---- */

static void lane_lost_run(struct loop_post *post)
{
	struct lane *lane = (struct lane *)((char *)post - offsetof(struct lane, lost_post));

	lane->ops->lost(lane->link, lane, lane->lost_err, lane->lost_why);
}

static void lane_closed(void *owner, int err, const char *why)
{
	struct lane *lane = owner;

	lane->closed = true;
	lane_target_put(lane);
	if (lane->stopping) {
		loop_stop(lane->loop);
		return;
	}
	lane->lost_err = err;
	snprintf(lane->lost_why, sizeof(lane->lost_why), "%s", why);
	lane->lost_post.run = lane_lost_run;
	loop_post(lane->control, &lane->lost_post);
}

static void lane_up(void *owner)
{
}

static void lane_stop_run(struct loop_post *post)
{
	struct lane *lane = (struct lane *)((char *)post - offsetof(struct lane, stop_post));

	lane->stopping = true;
	if (lane->closed)
		loop_stop(lane->loop);
	else
		conn_close(lane->conn, -ECANCELED, "the link is closed");
}

static void *lane_main(void *arg)
{
	static const struct conn_ops conn_ops = {
		.up = lane_up, .part = lane_part, .drained = lane_drained, .closed = lane_closed,
	};
	struct lane *lane = arg;
	char why[CONN_WHY_SIZE];

	pthread_setname_np(pthread_self(), "gleam-lane");
	lane->born_err = loop_open(&lane->loop, LANE_RING_ENTRIES, why, sizeof(why));
	if (lane->born_err) {
		log_error("lane: %s", why);
		sem_post(&lane->born);
		return NULL;
	}
	/* Bytes come in pieces, with less between them than a wake-up takes. */
	if (sysconf(_SC_NPROCESSORS_ONLN) >= LANE_SPIN_CORES)
		loop_may_spin(lane->loop);
	conn_adopt(lane->conn, lane->loop, &conn_ops, lane);
	lane_head_want(lane);
	if (lane->node)
		hello_answer(lane->conn, &lane->hello);
	sem_post(&lane->born);
	loop_run(lane->loop);
	return NULL;
}

struct lane *lane_start(struct loop *control, struct link *link, const struct lane_ops *ops, struct conn *conn, bool node,
			const struct hello_info *hello, int *err_out)
{
	struct lane *lane = calloc(1, sizeof(*lane));
	sigset_t all, before;
	int err = -ENOMEM;

	if (!lane)
		goto free_conn;
	lane->control = control;
	lane->link = link;
	lane->ops = ops;
	lane->conn = conn;
	lane->node = node;
	lane->hello = *hello;
	lane->index = hello->lane - 1;
	lane->ready_last = &lane->ready_first;
	lane->pump_post.run = lane_pump_run;
	lane->stop_post.run = lane_stop_run;
	lane->measure.fire = lane_measure;
	lane->measure.arg = lane;
	lane->frame = malloc(FRAME_SIZE_MAX);
	lane->sink = malloc(LANE_SINK_SIZE);
	if (!lane->frame || !lane->sink)
		goto free_lane;
	pthread_mutex_init(&lane->lock, NULL);
	sem_init(&lane->born, 0, 0);
	/* Signals are the control thread's. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&lane->thread, NULL, lane_main, lane);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		goto destroy_lock;
	while (sem_wait(&lane->born) < 0 && errno == EINTR)
		;
	err = lane->born_err;
	if (err) {
		pthread_join(lane->thread, NULL);
		goto destroy_lock;
	}
	lane->started = true;
	return lane;

destroy_lock:
	sem_destroy(&lane->born);
	pthread_mutex_destroy(&lane->lock);
free_lane:
	free(lane->frame);
	free(lane->sink);
	free(lane);
free_conn:
	conn_free(conn);
	*err_out = err;
	return NULL;
}

void lane_stop(struct lane *lane)
{
	struct lane_queue *queue;
	struct bulk_item *item;

	if (!lane->started)
		return;
	lane->started = false;
	pthread_mutex_lock(&lane->lock);
	lane->shut = true;
	pthread_mutex_unlock(&lane->lock);
	loop_post(lane->loop, &lane->stop_post);
	pthread_join(lane->thread, NULL);
	conn_free(lane->conn);
	loop_close(lane->loop);
	if (lane->lent_item && lane->lent)
		lane->lent_item->done = lane->lent_item->size;
	lent_end(lane);
	while ((queue = ready_take(lane, &item)))
		ready_give(lane, queue, item, true);
}

void lane_free(struct lane *lane)
{
	pthread_mutex_destroy(&lane->lock);
	sem_destroy(&lane->born);
	free(lane->frame);
	free(lane->sink);
	free(lane->packed);
	pack_fini(&lane->packer);
	free(lane);
}
