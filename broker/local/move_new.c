/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that a session goes to: what it is sent, what it answers, and the switch. Control thread; see move.h. */
#include "broker/local/move_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/small.h"
#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/cache.h"
#include "broker/local/place.h"
#include "gen/msg.h"
#include "gen/ops.h"

#define MOVE_GPUS_NS   (5 * NS_PER_S) /* for a server to find its GPUs */
#define MOVE_QUEUE_MAX (8u << 20) /* said and not yet taken by the new worker: then the old one isn't asked on */

/* ---- commands for it ---- */

void move_queue_add(struct move *move, const void *frame, uint32_t size)
{
	uint32_t room = RING_ALIGN(size);

	if (move->saver) {
		move->bytes += size;
		if (!saver_put(move->saver, frame, size))
			move_failed(move, "gleamd has no memory for it");
		return;
	}
	if (move->queue_at == move->queue_size)
		move->queue_at = move->queue_size = 0;
	if (move->queue_size + room > move->queue_room) {
		size_t more = move->queue_room ? 2 * move->queue_room : 1u << 20;
		uint8_t *queue = realloc(move->queue, more);

		if (!queue) {
			move_failed(move, "gleamd has no memory for it");
			return;
		}
		move->queue = queue;
		move->queue_room = more;
	}
	memcpy(move->queue + move->queue_size, frame, size);
	memset(move->queue + move->queue_size + size, 0, room - size);
	move->queue_size += room;
	move->bytes += size;
}

static void queue_command(struct move *move, uint16_t op, bool reply, const void *payload, size_t size)
{
	uint8_t frame[1024] __attribute__((aligned(8)));
	struct frame_hdr hdr = {
		.size = (uint32_t)(sizeof(hdr) + size), .op = op, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .slot = MOVE_REPLY_SLOT,
		.flags = reply ? FRAME_WANTS_REPLY : 0,
	};

	assert(size <= sizeof(frame) - sizeof(hdr));
	memcpy(frame, &hdr, sizeof(hdr));
	memcpy(frame + sizeof(hdr), payload, size);
	move_queue_add(move, frame, hdr.size);
}

bool move_queue_pump(struct move *move)
{
	bool any = false;

	while (move->stage != STAGE_OVER && move->on_link && move->queue_at < move->queue_size) {
		struct frame_hdr hdr;

		memcpy(&hdr, move->queue + move->queue_at, sizeof(hdr));
		if (!wire_put(&move->new, move->queue + move->queue_at, hdr.size))
			break;
		move->queue_at += RING_ALIGN(hdr.size);
		any = true;
	}
	return any;
}

bool move_queue_is_long(const struct move *move)
{
	return move->saver ? saver_is_behind(move->saver) : move->queue_size - move->queue_at > MOVE_QUEUE_MAX || move_way_is_long(move);
}

bool move_new_has_all(const struct move *move)
{
	return move->queue_at == move->queue_size && move->new.tail == move->new.at && move_way_is_empty(move);
}

void move_new_end(struct move *move)
{
	uint8_t payload[64] __attribute__((aligned(8)));

	/* Its work is done by now, and told: the last of it may have been so a moment ago. */
	if (move->client->direct && !client_direct_stand(move->client)) {
		move_failed(move, "the program has written nonsense into its command ring, and can't be moved");
		return;
	}

	struct msg_gleamMoveEnd m = {
		.landings = move->landings, .sequence = move->client->seq, .up = __atomic_load_n(&move->client->up_tail, __ATOMIC_ACQUIRE),
	};
	struct writer w = writer_on(payload, sizeof(payload));

	if (move->loader) {
		m.sequence = move->info.sequence;
		m.up = move->info.up;
	}
	msg_gleamMoveEnd_put(&w, &m);
	queue_command(move, OP_gleamMoveEnd, true, payload, w.at);
	move->stage = STAGE_END;
}

/* ---- what it says ---- */

/* The reason in an answer of the new worker. */
static bool new_says_no(struct move *move, const void *reason, uint32_t size)
{
	char text[256];

	snprintf(text, sizeof(text), "%.*s", size ? (int)size - 1 : 0, size ? (const char *)reason : "");
	if (!*text)
		return false;
	move_failed(move, "%s: %s", move->to_name, text);
	return true;
}

/* Any thread. */
static bool seen_add(struct move *move, uint64_t number, uint32_t size)
{
	int err;

	pthread_mutex_lock(&move->seen_lock);
	err = journal_seen_frame(&move->seen, number, size);
	pthread_mutex_unlock(&move->seen_lock);
	return !err;
}

/* Lane or control thread: a frame whose cells lie in our own memory, of what is done again. */
void move_deliver(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size)
{
	struct move *move = move_of(mirror);

	if (size < sizeof(struct frame_hdr) || size > FRAME_SIZE_MAX || !move->replay || !seen_add(move, number, size) ||
	    !replay_frame(move->replay, frame, size))
		__atomic_store_n(&move->broken, true, __ATOMIC_RELEASE);
	loop_nudge(move->loop);
}

void move_room(struct mirror *mirror)
{
	loop_nudge(move_of(mirror)->loop);
}

static void new_frame(struct move *move, const uint8_t *frame, uint32_t size)
{
	struct frame_hdr hdr;
	struct reader r;
	uint32_t result;

	if (size < sizeof(hdr))
		return;
	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.size != size || !seen_add(move, 0, size)) {
		move_failed(move, "%s sent a frame that can't be: is its gleamd of the same version as this one?", move->to_name);
		return;
	}
	if (move->stage >= STAGE_AGAIN && move->replay && (hdr.kind == FRAME_NOTICE ? hdr.op != NOTICE_MOVE : hdr.seq != 0)) {
		move->moved_ns = loop_now_ns(move->loop);
		if (!replay_frame(move->replay, frame, size))
			move_failed(move, "%s sent a frame that can't be: is its gleamd of the same version as this one?", move->to_name);
		return;
	}
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_MOVE) {
		new_says_no(move, frame + sizeof(hdr), size - (uint32_t)sizeof(hdr));
		return;
	}
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_CONSUMED && size >= sizeof(hdr) + sizeof(uint64_t)) {
		uint64_t tail;

		memcpy(&tail, frame + sizeof(hdr), sizeof(tail));
		if (!move_way_consumed(move, tail))
			move_failed(move, "%s has used up what was never sent", move->to_name);
		return;
	}
	/* What else it says is of commands that the client has heard of long ago. */
	if (hdr.kind != FRAME_REPLY)
		return;
	r = reader_on(frame + sizeof(hdr), size - sizeof(hdr));
	result = get_u32(&r);
	if (hdr.op == OP_gleamMoveBegin) {
		struct ans_gleamMoveBegin a = { 0 };

		if (result || !ans_gleamMoveBegin_get(&r, &a))
			move_failed(move, "%s can't take it (its worker answers %u); the log of its gleamd says why", move->to_name, result);
		else
			new_says_no(move, a.reason, a.reason_size);
	} else if (hdr.op == OP_gleamMoveEnd) {
		struct ans_gleamMoveEnd a = { 0 };

		/* What was played to it may have asked before us: the old worker is a stranger's, and so is a file. */
		if (move->stage != STAGE_END)
			move_failed(move, "%s was told to end before all was said", move->to_name);
		else if (result || !ans_gleamMoveEnd_get(&r, &a))
			move_failed(move, "%s can't take it (its worker answers %u); the log of its gleamd says why", move->to_name, result);
		else if (!new_says_no(move, a.reason, a.reason_size))
			move->stage = move->replay ? STAGE_AGAIN : STAGE_ALIGN;
	}
}

void move_seen_tell(struct move *move)
{
	uint64_t fields[2];
	bool due;

	pthread_mutex_lock(&move->seen_lock);
	due = journal_seen_due(&move->seen) && move->on_link;
	fields[0] = move->seen.frames;
	fields[1] = move->seen.bulk;
	if (due)
		move->seen.untold = move->seen.untold_bytes = 0;
	pthread_mutex_unlock(&move->seen_lock);
	if (due)
		link_send(move->link, LINK_SEEN, move->mirror.id, fields, sizeof(fields), NULL, 0);
}

int move_message(struct mirror *mirror, const struct link_hdr *hdr, struct reader *body)
{
	struct move *move = move_of(mirror);
	uint64_t now = loop_now_ns(move->loop);

	switch (hdr->type) {
	case LINK_ATTACHED: {
		uint32_t end = get_u32(body);
		const char *why = get_str(body, LINK_TEXT_MAX);

		if (move->stage != STAGE_ATTACH)
			return 0;
		move->moved_ns = now;
		if (body->fault || end != END_NONE) {
			move->on_link = false;
			link_mirror_remove(move->link, &move->mirror);
			move_failed(move, "%s: %s", move->to_name, *why ? why : "it refuses without a reason; the log of its gleamd may have one");
			return 0;
		}
		move->stage = move->loader ? STAGE_PLAY : STAGE_REST;
		if (!move->loader)
			move_way_begin(move);
		move_goes_to(move, move->loader ? MOVE_PHASE_COPY : MOVE_PHASE_CHECK);
		loop_nudge(move->loop);
		return 0;
	}
	case LINK_SEEN:
		pthread_mutex_lock(&move->seen_lock);
		move->seen.untold_bytes = UINT32_MAX / 2;
		pthread_mutex_unlock(&move->seen_lock);
		return 0;
	case LINK_CONSUMED: {
		uint64_t tail = get_u64(body);

		if (body->fault || tail < move->new.tail || tail > move->new.at) {
			move_failed(move, "%s acknowledged commands that were never sent", move->to_name);
			return 0;
		}
		move->new.tail = tail;
		move->moved_ns = now;
		return 0;
	}
	case LINK_FRAME: {
		uint32_t size = (uint32_t)reader_left(body);

		new_frame(move, reader_take(body, 8, size), size);
		return 0;
	}
	case LINK_FRAME_BYTES: {
		uint32_t size;
		const uint8_t *frame = small_take(body, mirror, &size);

		if (!frame)
			return -EPROTO;
		if (move->replay)
			move_deliver(mirror, 0, frame, size);
		else
			new_frame(move, frame, size);
		return 0;
	}
	case LINK_FILL_OPENED:
	case LINK_FILL_CLOSED:
		return move_way_filled(move, hdr, body);
	case LINK_ENDED: {
		get_u32(body);

		const char *why = get_str(body, LINK_TEXT_MAX);

		move_failed(move, "%s: %s", move->to_name, *why ? why : "its new worker has ended; the log of its gleamd says why");
		return 0;
	}
	default:
		return -EPROTO;
	}
}

/* ---- the beginning ---- */

static void move_attach(struct move *move)
{
	uint8_t bytes[2 * LINK_TEXT_MAX + CLIENT_SETTINGS_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));
	struct client *client = move->client;
	char settings[CLIENT_SETTINGS_MAX + 64];

	/* The first of a name counts. */
	if (move->gpu >= 0)
		snprintf(settings, sizeof(settings), "CUDA_VISIBLE_DEVICES=%d\n%s", move->gpu, client->settings);
	else
		snprintf(settings, sizeof(settings), "%s", client->settings);
	move->link = server_link(move->to);
	move->on_link = true;
	move->new = (struct wire){ .link = move->link, .session = move->mirror.id };
	link_mirror_add(move->link, &move->mirror);
	put_u32(&w, (uint32_t)client->pid);
	put_u32(&w, (uint32_t)client->uid);
	put_u32(&w, (uint32_t)broker_conf(move->broker)->grace_ms);
	put_block(&w, move->token, sizeof(move->token));
	put_str(&w, client->program);
	put_str(&w, settings);
	assert(!w.fault);
	link_send(move->link, LINK_ATTACH, move->mirror.id, NULL, 0, bytes, w.at);
	move->stage = STAGE_ATTACH;
}

static void move_linked(struct server_waiter *waiter, struct server *server, int err, const char *why)
{
	struct move *move = (struct move *)((char *)waiter - offsetof(struct move, waiter));

	if (move->stage != STAGE_LINK)
		return;
	if (err) {
		move_failed(move, "%s can't be reached: %s; gleamctl doctor looks for the cause", move->to_name, why);
	} else if (move->gpu < 0) {
		move_attach(move);
	} else {
		move->reached = true;
		loop_nudge(move->loop);
	}
}

bool move_new_look(struct move *move)
{
	const struct report *report;

	if (!move->reached)
		return false;
	report = server_report(move->to);
	/* Its first report may come before it has found them. */
	if (report && !report->gpu_count && loop_now_ns(move->loop) - move->moved_ns < MOVE_GPUS_NS)
		report = NULL;
	if (!server_link(move->to))
		move_failed(move, "the link to %s is lost; try again when gleamctl servers tells that it is there", move->to_name);
	else if (report && (unsigned)move->gpu >= report->gpu_count)
		move_failed(move, "%s has %u GPU%s, numbered from 0", move->to_name, report->gpu_count, report->gpu_count == 1 ? "" : "s");
	else if (report)
		move_attach(move);
	return report || move->stage == STAGE_OVER;
}

void move_new_reach(struct move *move)
{
	move->waiter.done = move_linked;
	server_want(move->to, &move->waiter);
}

/* ---- the end ---- */

void move_new_leave(struct move *move)
{
	if (move->to)
		server_want_forget(move->to, &move->waiter);
	if (!move->on_link)
		return;
	link_mirror_remove(move->link, &move->mirror);
	move->on_link = false;
}

static void rest_give(void *arg, const uint8_t *frame, uint32_t size, const uint8_t *cells)
{
	client_hand(arg, frame, size, cells);
}

void move_switch(struct move *move)
{
	struct client *client = move->client;
	struct link *old = client->link;
	uint32_t session = client->mirror.id;

	if (move->loader) {
		/* Should it come back it is told. */
		if (client->owned)
			server_orphan(move->from, client->token);
		client_found(client);
	} else {
		if (client->direct)
			client_direct_end(client);
		link_mirror_remove(old, &client->mirror);
		cache_client_left(client->cache);
	}
	link_mirror_remove(move->link, &move->mirror);
	move->on_link = false;
	if (move->loader)
		client_consumed_all(client);
	pthread_mutex_lock(&client->deliver_lock);
	pthread_mutex_lock(&move->seen_lock);
	client->seen = move->seen;
	pthread_mutex_unlock(&move->seen_lock);
	pthread_mutex_unlock(&client->deliver_lock);
	client->mirror.id = move->mirror.id;
	client->link = move->link;
	client->server = move->to;
	client->delta = move->new.at - client->c2n.at;
	memcpy(client->token, move->token, sizeof(client->token));
	client->pieces.known = 0;
	client->taken = false;
	client->held = false;

	const struct baton_name name = client_baton_name(client);

	baton_seq_set(&client->mirror.shm, client->seq);
	baton_moved(&client->mirror.shm, &name, client->delta, &client->seen);
	baton_state_set(&client->mirror.shm, BATON_LIVE);
	/* The next gleamd would look for it there. */
	if (!move->loader)
		link_send(old, LINK_DETACH, session, NULL, 0, NULL, 0);
	link_mirror_add(client->link, &client->mirror);
	/* All answers with bytes have come to us: what is still to come is the client's. */
	if (move->replay)
		replay_rest(move->replay, rest_give, client);
	place_client_moved(broker_place(move->broker), client, session, move->from);
	log_info("pid %d (%s): session %u on %s goes on as session %u on %s", client->pid, client->program, session, move->from_name,
		 client->mirror.id, move->to_name);
	move_over(move, true, "");
	loop_nudge(client->loop);
}
