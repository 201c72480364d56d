/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What flows between a client's session memory and the link. Control thread; client_deliver() also on lane threads.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/lib/slot.h"
#include "broker/local/client_private.h"
#include "broker/local/move.h"
#include "gen/msg.h"
#include "gen/ops.h"

#define FLOW_PACE_BURST_S 0.02 /* who is held back may send so much at once: a wake-up for each command would cost more than it */
#define MEND_REPLY_SLOT 1 /* of the answer with sequence number 0 that a failed move is forgotten */
#define FLOW_RETRY_NS (2 * NS_PER_MS) /* to look again for room in a notice ring that is full: nothing wakes us for it */

/* ---- out: commands ---- */

/* What the cache has to know of a piece, also when it is sent again. */
static int flow_note(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame, const struct bulk_ref *ref)
{
	struct bulk_file file;

	if (hdr->flags & FRAME_BULK_FILE)
		file = ring_bulk_file(frame);
	/* Of a file that an earlier daemon knew: its bytes are there. */
	if (!(hdr->flags & FRAME_BULK_FILE) || (file.file == BULK_FILE_NONE && !file.absent))
		return client->cache ? cache_client_piece(client->cache, ref, NULL) : 0;
	if (!client->cache)
		return -EPROTO; /* it was told so */
	return cache_client_piece(client->cache, ref, &file);
}

/* The bytes of a command go to a lane from where they lie. */
static int flow_piece(struct client *client, const struct journal_piece *piece)
{
	struct bulk_item *item = malloc(sizeof(*item));

	if (!item)
		return -ENOMEM;
	client->uploaded += piece->size;
	*item = (struct bulk_item){ .seq = piece->seq, .cookie = piece->cookie, .offset = piece->offset, .size = piece->size };
	if (client->cache &&
	    cache_client_send(client->cache, server_cache(client->server), client->link, &client->mirror, item))
		return 0;
	client->sent += piece->size;
	link_bulk(client->link, &client->mirror, item);
	return 0;
}

/* For a daemon that comes after us. */
static void flow_baton(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame, const struct journal_piece *piece)
{
	struct bulk_file file = { 0 };

	if (hdr->flags & FRAME_BULK_FILE)
		file = ring_bulk_file(frame);
	baton_piece_put(&client->mirror.shm, client->pieces.head - 1, piece, file.absent ? file.file + 1 : 0, file.offset);
}

static int flow_bulk(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct bulk_ref ref = ring_bulk_ref(frame);
	struct journal_piece piece = {
		.position = client->c2n.at, .seq = hdr->seq, .cookie = ref.cookie, .offset = ref.offset, .size = ref.size,
	};
	int err;

	if (ref.size == 0)
		return 0;
	if (ref.offset >= SESSION_UP_SIZE || ref.size > SESSION_UP_SIZE - ref.offset || ref.size > SESSION_CELL_SIZE ||
	    ref.offset % SESSION_GRANULE || ref.cookie % SESSION_UP_SIZE != ref.offset)
		return -EPROTO;
	err = flow_note(client, hdr, frame, &ref);
	if (!err)
		err = journal_piece_add(&client->pieces, &piece, __atomic_load_n(&client->up_tail, __ATOMIC_ACQUIRE));
	if (err)
		return err;
	flow_baton(client, hdr, frame, &piece);
	return journal_piece_landed(&client->pieces, &piece) ? 0 : flow_piece(client, &piece);
}

/* What it may send by now. False: nothing; a timer is set for the next. */
static bool flow_pace(struct client *client)
{
	uint64_t now = loop_now_ns(client->loop);
	double most = client->pace * FLOW_PACE_BURST_S;

	client->pace_left += client->pace * (double)(now - client->pace_ns) / (double)NS_PER_S;
	client->pace_ns = now;
	if (most < 1)
		most = 1;
	if (client->pace_left > most)
		client->pace_left = most;
	if (client->pace_left >= 1)
		return true;
	loop_timer_set(client->loop, &client->pace_timer,
		       now + (uint64_t)((1 - client->pace_left) / client->pace * (double)NS_PER_S) + NS_PER_MS);
	return false;
}

static int notice_put_locked(struct client *client, const struct baton_frame *from, const uint8_t *frame, uint32_t size);

/* A traced session's command has gone on, or its answer has come. */
static void flow_trace_locked(struct client *client, enum span_who who, const struct frame_hdr *hdr)
{
	struct {
		struct frame_hdr hdr;
		uint8_t payload[SPANS_SIZE_MAX];
	} frame;
	uint64_t now = clock_ns();
	struct writer w = writer_on(frame.payload, sizeof(frame.payload));

	span_add(client->spans, &(struct span){ .who = (uint16_t)who, .op = hdr->op, .seq = hdr->seq, .word = SPAN_NO_WORD,
						.start_ns = now, .end_ns = now });
	/* With an answer, before it: the program may end behind it. */
	if (!spans_due(client->spans, now) && who != SPAN_ANSWER)
		return;
	spans_put(&w, client->spans);
	frame.hdr = (struct frame_hdr){ .size = (uint32_t)(sizeof(frame.hdr) + w.at), .op = NOTICE_TRACE, .kind = FRAME_NOTICE,
					.ctx = CTX_NONE };
	/* No room: the trace lacks them, which is all. */
	(void)notice_put_locked(client, NULL, (const uint8_t *)&frame, frame.hdr.size);
}

/* What was read of the ring is remembered since a checkpoint. */
static void flow_record(struct client *client, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct record *records[] = { client->record, client->record_next };

	if (!records[0] && !records[1])
		return;
	pthread_mutex_lock(&client->deliver_lock);
	for (unsigned i = 0; i < 2; i++) {
		if (records[i] && hdr->kind == FRAME_COMMAND)
			record_command(records[i], hdr, frame, &client->mirror.shm);
		if (records[i])
			record_position(records[i], client->c2n.at);
	}
	pthread_mutex_unlock(&client->deliver_lock);
}

/* Whole frames from the own position on, in one piece, at most a turn's worth. */
static int flow_span(struct client *client)
{
	struct ring *ring = &client->c2n;
	uint64_t start = ring->at;
	const uint8_t *bytes = ring_place(ring, start);
	struct frame_hdr hdr;
	const uint8_t *frame;
	uint32_t size = 0;
	int got = 0;
	int err = 0;

	if (client->pace > 0 && !flow_pace(client))
		return 0;
	/* Switched off: a command a message, and the next one when this has gone. */
	uint32_t most = client->mirror.off & OFF_COALESCE ? 1 : LINK_SPAN_MAX;

	while (size < most && (got = ring_look(ring, &hdr, &frame)) == 1) {
		if (size && frame != bytes + size)
			break; /* the ring begins again */
		if (client->pace > 0 && client->pace_left < 1)
			break;
		if (hdr.kind != FRAME_PAD && hdr.kind != FRAME_COMMAND)
			err = -EPROTO;
		else if (hdr.kind == FRAME_COMMAND && (hdr.flags & FRAME_BULK_UP)) {
			if (mirror_is_full(&client->mirror))
				break;
			err = flow_bulk(client, &hdr, frame);
		}
		if (err)
			return err;
		if (client->spans && hdr.kind == FRAME_COMMAND) {
			pthread_mutex_lock(&client->deliver_lock);
			flow_trace_locked(client, SPAN_BROKER, &hdr);
			pthread_mutex_unlock(&client->deliver_lock);
		}
		if (hdr.kind == FRAME_COMMAND)
			client->seq = hdr.seq;
		ring_next(ring, &hdr);
		size += RING_ALIGN(hdr.size);
		flow_record(client, &hdr, frame);
		client->commands++;
		client->pace_left--;
	}
	if (size) {
		uint64_t there = start + client->delta;

		baton_seq_set(&client->mirror.shm, client->seq);
		link_send(client->link, LINK_SPAN, client->mirror.id, &there, sizeof(there), bytes, size);
	}
	client->sent += size;
	client->uploaded += size;
	return got < 0 ? got : (int)size;
}

static bool flow_is_blocked(const struct client *client)
{
	/* Switched off: a command a message, and the next one when this has gone. */
	if (client->on_link && client->mirror.off & OFF_COALESCE && link_backlog(client->link))
		return true;
	return !client->on_link || client->pace_timer.place || client->resuming || client->held || link_backlog(client->link) >= CONN_BACKLOG_HIGH || mirror_is_full(&client->mirror);
}

/* The node may forget what has come. */
static void flow_seen(struct client *client)
{
	uint64_t fields[2];

	pthread_mutex_lock(&client->deliver_lock);
	fields[0] = client->seen.frames;
	fields[1] = client->seen.bulk;
	client->seen.untold = 0;
	client->seen.untold_bytes = 0;
	__atomic_store_n(&client->seen_due, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&client->deliver_lock);
	link_send(client->link, LINK_SEEN, client->mirror.id, fields, sizeof(fields), NULL, 0);
}

/* True: something moved. */
static bool flow_mend(struct client *client)
{
	uint8_t frame[128] __attribute__((aligned(8))) = { 0 };
	struct msg_gleamMoveOut m = { .step = MOVE_FORGET };
	struct frame_hdr hdr = {
		.op = OP_gleamMoveOut, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .slot = MEND_REPLY_SLOT, .flags = FRAME_WANTS_REPLY,
	};
	struct writer w = writer_on(frame + sizeof(hdr), sizeof(frame) - sizeof(hdr));

	/* The ring is its own again. What the worker still had to say for the failed move comes before this answer, and is for nobody. */
	if (client->given) {
		client->mending = !client->forgotten;
		if (client->forgotten)
			baton_asked_set(&client->mirror.shm, false);
		return client->forgotten;
	}
	if (!client->taken) {
		/* Where a ring can't be taken it goes on by a command. */
		client->held = client->direct || wire_can_fill(client->c2n.at);
		if (!client->held || !client_ring_take(client))
			return false;
	}
	if (!client->forgot) {
		msg_gleamMoveOut_put(&w, &m);
		hdr.size = (uint32_t)(sizeof(hdr) + w.at);
		memcpy(frame, &hdr, sizeof(hdr));
		if (!wire_put(&client->wire, frame, hdr.size))
			return false;
		client->forgot = true;
	}
	client->given = client_ring_give(client);
	return client->given;
}

bool client_poll(struct client *client)
{
	const char *broken;
	int moved;

	if (client->state != CLIENT_LIVE)
		return false;
	broken = __atomic_load_n(&client->broken, __ATOMIC_ACQUIRE);
	if (broken) {
		client_end(client, END_PROTOCOL, broken);
		return true;
	}
	/* Lanes can't set timers of this loop. */
	if (__atomic_load_n(&client->overflowing, __ATOMIC_ACQUIRE) && !client->retry.place)
		loop_timer_set(client->loop, &client->retry, loop_now_ns(client->loop) + FLOW_RETRY_NS);
	if (__atomic_load_n(&client->seen_due, __ATOMIC_ACQUIRE) && client->on_link && !client->resuming)
		flow_seen(client);
	/* The next move waits for what the last one has left; the program only for its ring. */
	if (client->mending && client->on_link && !client->resuming && flow_mend(client))
		return true;
	if (client->mending && !client->given && client->held)
		return false;
	if (client->move && !client->mending && move_poll(client->move))
		return true;
	if (client->direct || flow_is_blocked(client))
		return false;
	moved = flow_span(client);
	if (moved < 0) {
		client_end(client, END_PROTOCOL,
			   moved == -ENOMEM ? "out of memory for its commands" : "it wrote nonsense into its command ring");
		return true;
	}
	return moved != 0;
}

bool client_sleep(struct client *client)
{
	if (client->state != CLIENT_LIVE)
		return true;
	if (__atomic_load_n(&client->broken, __ATOMIC_ACQUIRE))
		return false;
	if (__atomic_load_n(&client->seen_due, __ATOMIC_ACQUIRE) && client->on_link && !client->resuming)
		return false;
	/* The link's drained(), or the lanes' room(), wake us. */
	if (client->direct || flow_is_blocked(client))
		return true;
	return ring_sleep_begin(&client->c2n);
}

void client_wake(struct client *client)
{
	if (client->state == CLIENT_LIVE && !client->direct)
		ring_sleep_end(&client->c2n);
}

bool client_ring_take(struct client *client)
{
	if (client->direct)
		return client->held && client_direct_take(client);
	/* A place next to the ring's beginning leaves no room for a command that fills up to it. */
	if (!client->held || client->acknowledged != client->c2n.at)
		return false;
	if (!wire_can_fill(client->c2n.at)) {
		client->held = false;
		return false;
	}
	client->wire = (struct wire){
		.link = client->link, .session = client->mirror.id, .at = client->c2n.at + client->delta,
		.tail = client->c2n.at + client->delta,
	};
	client->taken = true;
	/* From here on another daemon must ask where the worker's ring is. */
	baton_asked_set(&client->mirror.shm, true);
	baton_state_set(&client->mirror.shm, BATON_MOVING);
	return true;
}

bool client_ring_give(struct client *client)
{
	if (client->direct)
		return client_direct_give(client);
	if (!wire_fill(&client->wire, client->c2n.at) || client->wire.tail != client->wire.at)
		return false;
	client->delta = client->wire.at - client->c2n.at;
	client->taken = false;
	client->held = false;
	baton_delta_set(&client->mirror.shm, client->delta);
	baton_state_set(&client->mirror.shm, BATON_LIVE);
	loop_nudge(client->loop);
	return true;
}

void client_mend(struct client *client)
{
	client->held = true;
	client->mending = true;
	client->forgot = client->given = client->forgotten = false;
	loop_nudge(client->loop);
}

void client_ring_lost(struct client *client)
{
	/* What of ours has got there the node will say. Of the client's nothing was on its way. */
	if (client->taken)
		client_mend(client);
	client->held = client->taken || (client->mending && !client->given);
}

uint64_t client_bulk_seen(struct client *client)
{
	uint64_t bulk;

	pthread_mutex_lock(&client->deliver_lock);
	bulk = client->seen.bulk;
	pthread_mutex_unlock(&client->deliver_lock);
	return bulk;
}

void client_consumed(struct client *client, uint64_t tail, bool fault)
{
	if ((client->taken || client->direct) && !fault && tail >= client->wire.tail && tail <= client->wire.at && tail % FRAME_ALIGN == 0) {
		client->wire.tail = tail;
		return;
	}
	tail -= client->delta;
	if (fault || tail < client->acknowledged || tail > client->c2n.at || (tail & (FRAME_ALIGN - 1))) {
		client_end(client, END_PROTOCOL, "the node acknowledged commands that were never sent");
		return;
	}
	client->acknowledged = tail;
	ring_release_to(&client->c2n, tail);
}

/* ---- in: replies and notices ---- */

/* A notice of ours comes from nowhere. */
static void flow_do(struct client *client, const struct baton_frame *from, enum baton_doing doing, uint64_t at, uint32_t index, uint32_t op)
{
	if (from)
		baton_do(&client->mirror.shm, doing, from, &client->seen, at, index, op);
}

static bool overflow_is_empty(const struct client *client)
{
	return client->overflow_in.at == client->overflow_out.at;
}

/* -EAGAIN: no room. */
static int notice_ring_locked(struct client *client, const struct baton_frame *from, const uint8_t *frame, uint32_t size)
{
	struct frame_hdr hdr;
	uint8_t *room;
	int err = ring_reserve(&client->n2c, size, &room);

	if (err)
		return err;
	memcpy(room, frame, size);
	ring_commit(&client->n2c, size);
	flow_do(client, from, BATON_NOTICE, client->n2c.at, 0, 0);
	/*
	 * Shown at once: a reply may be next, and its caller looks for what came before. The service thread is woken behind that, where we may (the control
	 * thread): whoever waits takes what has landed himself.
	 */
	ring_show(&client->n2c);
	if (!from || from->number) {
		ring_nudge_futex(client->n2c.ctl);
		return 0;
	}
	memcpy(&hdr, frame, sizeof(hdr));
	client->ring_bell |= hdr.op != NOTICE_LANDED;
	loop_flush_later(client->loop, &client->ring_flush);
	return 0;
}

/* Who has waited for it takes what has landed before himself (service_settle() in the library): nobody else is woken for that. */
static void flow_settled(struct client *client, const struct baton_frame *from, const struct frame_hdr *reply)
{
	if (from->number || client->ring_bell || (reply->op != OP_gleamStreamSync && reply->op != OP_gleamContextSync))
		return;
	loop_flush_forget(client->loop, &client->ring_flush);
}

void client_ring_run(struct loop_flush *flush)
{
	struct client *client = (struct client *)((char *)flush - offsetof(struct client, ring_flush));

	client->ring_bell = false;
	ring_nudge_futex(client->n2c.ctl);
}

void client_ring(struct client *client)
{
	if (!client->ring_flush.queued)
		return;
	loop_flush_forget(client->loop, &client->ring_flush);
	client_ring_run(&client->ring_flush);
}

/*
 * Into the client's notice ring, or behind what waits for room there. While anything waits, replies and words queue up as
 * well: they may say that bytes are there which are still in the queue.
 */
static int notice_put_locked(struct client *client, const struct baton_frame *from, const uint8_t *frame, uint32_t size)
{
	uint8_t *room;
	int err;

	if (overflow_is_empty(client)) {
		err = notice_ring_locked(client, from, frame, size);
		if (err != -EAGAIN)
			return err;
	}
	err = ring_reserve(&client->overflow_in, size, &room);
	if (err)
		return err == -EAGAIN ? -ENOBUFS : err;
	memcpy(room, frame, size);
	ring_commit(&client->overflow_in, size);
	flow_do(client, from, BATON_OVERFLOW, client->overflow_in.at, 0, 0);
	ring_publish(&client->overflow_in);
	__atomic_store_n(&client->overflowing, true, __ATOMIC_RELEASE);
	return 0;
}

static int notice_word(struct client *client, const struct baton_frame *from, const struct frame_hdr *hdr, struct reader *r);

/* A reply, or a notice that becomes a word, of private memory. -ENOENT: another notice. */
static int flow_word_locked(struct client *client, const struct baton_frame *from, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct reader r = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));
	int err;

	if (hdr->kind != FRAME_REPLY)
		return notice_word(client, from, hdr, &r);
	flow_do(client, from, BATON_REPLY, hdr->seq, hdr->slot, 0);
	err = session_reply_post(&client->mirror.shm, frame);
	if (!err)
		flow_settled(client, from, hdr);
	return err == -ENOENT ? 0 : err; /* nobody waits for it any more */
}

/* The frame that has waited longest. -EAGAIN: no room yet. 0: there is none, 1: it is where it belongs. */
static int overflow_deliver_locked(struct client *client)
{
	static uint8_t frame[FRAME_SIZE_MAX] __attribute__((aligned(8))); /* the control thread's */
	struct baton_frame from = { 0 };
	struct frame_hdr hdr;
	const uint8_t *waiting;
	int err = ring_peek(&client->overflow_out, &hdr, &waiting);

	if (err <= 0)
		return err;
	/* The client may write there. */
	memcpy(frame, waiting, hdr.size);
	memcpy(frame, &hdr, sizeof(hdr));
	from.overflow_tail = client->overflow_out.at + RING_ALIGN(hdr.size);
	if (hdr.kind != FRAME_REPLY && hdr.kind != FRAME_NOTICE)
		return -EPROTO;
	err = flow_word_locked(client, &from, &hdr, frame);
	if (err == -ENOENT)
		err = notice_ring_locked(client, &from, frame, hdr.size);
	if (err)
		return err;
	ring_next(&client->overflow_out, &hdr);
	ring_release(&client->overflow_out);
	baton_done(&client->mirror.shm, &from, &client->seen);
	return 1;
}

/* What waits for room, oldest first. */
void client_overflow_retry(void *arg)
{
	struct client *client = arg;
	int err;

	if (client->state != CLIENT_LIVE)
		return;
	pthread_mutex_lock(&client->deliver_lock);
	do
		err = overflow_deliver_locked(client);
	while (err > 0);
	if (overflow_is_empty(client))
		__atomic_store_n(&client->overflowing, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&client->deliver_lock);
	if (err && err != -EAGAIN)
		client_end(client, END_PROTOCOL, "it wrote nonsense into its notice ring");
	else if (err)
		loop_timer_set(client->loop, &client->retry, loop_now_ns(client->loop) + FLOW_RETRY_NS);
}

/* Notices that become words. -ENOENT: not one of them. */
static int notice_word(struct client *client, const struct baton_frame *from, const struct frame_hdr *hdr, struct reader *r)
{
	const struct shm *shm = &client->mirror.shm;
	uint32_t a, b, c;
	uint64_t tail;

	switch (hdr->op) {
	case NOTICE_PROGRESS:
		a = get_u32(r);
		b = get_u32(r);
		if (r->fault)
			return -EPROTO;
		/* It never goes back: a worker that another one has become may repeat what is known. */
		if (a < SESSION_PROGRESS_WORDS && progress_reached(*shm_progress(shm, a), b))
			return 0;
		return session_progress_post(shm, a, b);
	case NOTICE_ERROR:
		a = get_u32(r);
		b = get_u32(r);
		c = get_u32(r);
		if (r->fault)
			return -EPROTO;
		flow_do(client, from, BATON_ERROR, hdr->seq, a, c);
		return session_error_post(shm, a, b, c, hdr->seq);
	case NOTICE_CONSUMED:
		tail = get_u64(r);
		if (r->fault || tail < client->up_tail)
			return -EPROTO;
		__atomic_store_n(&client->up_tail, tail, __ATOMIC_RELEASE);
		session_up_tail_post(shm, tail);
		return 0;
	default:
		return -ENOENT;
	}
}

/* It is for the client. */
static int frame_take_locked(struct client *client, const struct baton_frame *from, const struct frame_hdr *hdr, const uint8_t *frame)
{
	int err;

	if (client->record)
		record_answer(client->record, hdr, frame, &client->mirror.shm);
	if (client->record_next)
		record_answer(client->record_next, hdr, frame, &client->mirror.shm);
	if (!overflow_is_empty(client))
		return notice_put_locked(client, from, frame, hdr->size);
	if (hdr->kind == FRAME_REPLY && client->spans)
		flow_trace_locked(client, SPAN_ANSWER, hdr);
	err = flow_word_locked(client, from, hdr, frame);
	return err == -ENOENT ? notice_put_locked(client, from, frame, hdr->size) : err;
}

void client_hand(struct client *client, const uint8_t *frame, uint32_t size, const uint8_t *cells)
{
	const struct baton_frame from = { .number = 0 };
	struct frame_hdr hdr;
	int err;

	memcpy(&hdr, frame, sizeof(hdr));
	if (cells) {
		struct bulk_ref ref = ring_bulk_ref(frame);

		memcpy(shm_down(&client->mirror.shm) + ref.offset, cells, ref.size);
	}
	pthread_mutex_lock(&client->deliver_lock);
	err = frame_take_locked(client, &from, &hdr, frame);
	if (!err)
		baton_done(&client->mirror.shm, &from, &client->seen);
	pthread_mutex_unlock(&client->deliver_lock);
	if (err)
		__atomic_store_n(&client->broken, "what its new worker says can't be", __ATOMIC_RELEASE);
	__atomic_fetch_add(&client->received, size, __ATOMIC_RELAXED);
}

void client_consumed_all(struct client *client)
{
	client->acknowledged = client->c2n.at;
	ring_release_to(&client->c2n, client->acknowledged);
}

static int flow_frame(struct client *client, uint64_t number, const uint8_t *frame, uint32_t size)
{
	const struct baton_frame from = { .number = number };
	struct frame_hdr hdr;
	bool due;
	int err;

	if (size < sizeof(hdr))
		return -EPROTO;
	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.size != size || size > FRAME_SIZE_MAX || (hdr.flags & ~FRAME_FLAGS) ||
	    ((hdr.flags & FRAME_BULK_DOWN) && size < sizeof(hdr) + sizeof(struct bulk_ref)) || (hdr.flags & (FRAME_BULK_UP | FRAME_BULK_FILE)))
		return -EPROTO;
	if (hdr.kind != FRAME_REPLY && hdr.kind != FRAME_NOTICE)
		return -EPROTO;
	pthread_mutex_lock(&client->deliver_lock);
	err = journal_seen_frame(&client->seen, number, size);
	if (err) {
		pthread_mutex_unlock(&client->deliver_lock);
		return err;
	}
	/* Those of the command lane alone: the control thread's. */
	if (number == 0 && ((hdr.kind == FRAME_NOTICE && (hdr.op == NOTICE_MOVE || hdr.op == NOTICE_MOVE_ASIDE)) || (hdr.kind == FRAME_REPLY && hdr.seq == 0))) {
		baton_done(&client->mirror.shm, &from, &client->seen);
		due = journal_seen_due(&client->seen) && !__atomic_exchange_n(&client->seen_due, true, __ATOMIC_ACQ_REL);
		pthread_mutex_unlock(&client->deliver_lock);
		if (client->direct && client_direct_frame(client, &hdr, frame))
			;
		else if (client->mending)
			client->forgotten |= hdr.kind == FRAME_REPLY && hdr.slot == MEND_REPLY_SLOT;
		else if (client->move)
			move_frame(client->move, frame, size);
		if (due || client->forgotten)
			loop_nudge(client->loop);
		return 0;
	}
	due = journal_seen_due(&client->seen) && !__atomic_exchange_n(&client->seen_due, true, __ATOMIC_ACQ_REL);
	/* What is the client's its worker says itself. */
	err = client->direct ? -EPROTO : frame_take_locked(client, &from, &hdr, frame);
	if (!err)
		baton_done(&client->mirror.shm, &from, &client->seen);
	pthread_mutex_unlock(&client->deliver_lock);
	if (due)
		loop_nudge(client->loop);
	return err;
}

void client_deliver(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size)
{
	struct client *client = (struct client *)mirror;
	int err = flow_frame(client, number, frame, size);

	__atomic_fetch_add(&client->received, size, __ATOMIC_RELAXED);
	if (!err)
		return;
	__atomic_store_n(&client->broken,
			 err == -ENOBUFS ? "it doesn't read its notices" :
			 err == -ENOMEM	 ? "out of memory for its notices" :
					   "the node sent a frame that can't be",
			 __ATOMIC_RELEASE);
	loop_nudge(client->loop);
}

/* ---- after a lost link ---- */

void client_resume(struct client *client)
{
	uint8_t bytes[RESUME_TOKEN_SIZE + 24 + RESUME_WINDOW / 8] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	/* No lane of the lost link runs any more. */
	pthread_mutex_lock(&client->deliver_lock);
	put_block(&w, client->token, sizeof(client->token));
	put_u32(&w, (uint32_t)client->pid);
	put_u32(&w, (uint32_t)client->uid);
	put_u64(&w, client->seen.frames);
	put_u64(&w, client->seen.bulk);
	put_block(&w, client->seen.bits, sizeof(client->seen.bits));
	client->seen.untold = 0;
	client->seen.untold_bytes = 0;
	__atomic_store_n(&client->seen_due, false, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&client->deliver_lock);
	assert(!w.fault);
	link_send(client->link, LINK_RESUME, client->mirror.id, NULL, 0, bytes, w.at);
}

void client_resumed(struct client *client, struct reader *body)
{
	uint32_t end = get_u32(body);
	const char *why = get_str(body, LINK_TEXT_MAX);
	uint64_t position = get_u64(body);
	uint64_t tail = get_u64(body);
	uint64_t up_tail = __atomic_load_n(&client->up_tail, __ATOMIC_ACQUIRE);
	uint64_t at = 0;
	unsigned pieces = 0;
	const struct journal_piece *piece;
	char text[sizeof(client->reason)];

	position -= client->delta;
	tail -= client->delta;
	get_block(body, client->pieces.landed, sizeof(client->pieces.landed));
	if (end != END_NONE) {
		snprintf(text, sizeof(text), "%.150s; the server does not go on with it: %.80s", client->reason,
			 *why ? why : "it gave no reason");
		if (!client_hold(client, text))
			client_end(client, (enum session_end)end, text);
		return;
	}
	/* The node has it on this link now, and has seen whose it is. */
	client->resuming = false;
	client->owned = true;
	if (client->taken && !body->fault && tail <= position && !((tail | position) & (FRAME_ALIGN - 1))) {
		/* All commands of the client's had been consumed before the ring was taken. What there is beyond them is the broker's. */
		client->wire = (struct wire){
			.link = client->link, .session = client->mirror.id, .at = position + client->delta, .tail = tail + client->delta,
		};
		position = client->c2n.at;
	} else if (body->fault || position > client->c2n.at || position < client->acknowledged || tail > position) {
		client_end(client, END_PROTOCOL, "the node resumed at commands that were never sent");
		return;
	} else {
		client_consumed(client, tail + client->delta, false);
	}
	if (client->state != CLIENT_LIVE)
		return;

	uint64_t again = client->c2n.at - position;

	client->pieces.known = client->c2n.at;

	/* What lies behind the position is read from the ring once more, bulk pieces and all. */
	client->c2n.at = position;
	journal_pieces_cut(&client->pieces, position);
	while ((piece = journal_piece_missing(&client->pieces, up_tail, &at))) {
		pieces++;
		if (flow_piece(client, piece)) {
			client_end(client, END_PROTOCOL, "out of memory for its commands");
			return;
		}
	}
	log_info("pid %d (%s): session %u goes on after %" PRIu64 " ms without a link: %" PRIu64 " bytes of commands and %u pieces are "
		 "sent again", client->pid, client->program, client->mirror.id,
		 (uint64_t)((loop_now_ns(client->loop) - client->lost_ns) / NS_PER_MS), again, pieces);
	client->lost_ns = 0;
	client->reason[0] = 0;
	loop_timer_clear(client->loop, &client->timer);
}
