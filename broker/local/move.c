/* SPDX-License-Identifier: Apache-2.0 */
/* A client's session moves to another worker. Control thread; see move.h. */
#include "broker/local/move.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/broker.h"
#include "broker/local/cache.h"
#include "broker/local/client_private.h"
#include "broker/local/place.h"
#include "broker/local/replay.h"
#include "broker/local/saver.h"
#include "broker/local/wire.h"
#include "gen/msg.h"
#include "gen/ops.h"

#define MOVE_SLICE	(16u << 20)	 /* contents of a round while the program runs: some 30 ms for which it can't send commands */
#define MOVE_LAST_SLICE (64u << 20)	 /* when it is held anyway */
#define MOVE_QUEUE_MAX	(8u << 20)	 /* said and not yet taken by the new worker: then the old one isn't asked on */
#define MOVE_LARGE	(256u << 20)	 /* memory that takes long enough to change meanwhile */
#define MOVE_ROUNDS_LARGE 2u		 /* turns over that before it is held; what changes all the time never gets less */
#define MOVE_DRAIN_NS	(5 * NS_PER_S)	 /* work that isn't done by then: the program stays where it is */
#define MOVE_HELD_NS	(1 * NS_PER_S)	 /* for work to end; then the program goes on for a moment: it may have to do something for it */
#define MOVE_LOOK_NS	(1 * NS_PER_MS)	 /* between two looks at whether it has */
#define MOVE_GO_ON_NS	(10 * NS_PER_MS) /* that moment */
#define MOVE_REST_NS	(5 * NS_PER_MS)	 /* the program goes on for so long at least, and for as long as the round took */
#define MOVE_STUCK_NS	(60 * NS_PER_S)	 /* nothing has moved: modules may take long to load */
#define MOVE_AGAIN_NS	(600 * NS_PER_S) /* nor has anything that is done again ended: a kernel may take long */
#define MOVE_REPLY_SLOT 0		 /* answers with sequence number 0 are ours */

/*
 * LINK, ATTACH: a new worker comes. REST: the program runs. TAKE: no more of its commands go out, and those that have are waited for.
 * SAY: the old worker says something. WAIT: its work isn't done. FILL: the old worker's ring is brought to where the client's is. DRAIN: the new worker plays what
 * waits for it. END: it is asked whether it is what the old one was. ALIGN: its ring is brought to where the client's is. OVER.
 *
 * A checkpoint has a file instead of the new worker: no LINK and ATTACH, and after DRAIN the program goes on, SAVE: until the file is on
 * disk. One that comes back has a file instead of the old worker: OPEN: it is looked at; and after ATTACH, PLAY: what is in it goes to
 * the new worker; then DRAIN, END, and AGAIN: it does what the program has done since.
 */
enum move_stage {
	STAGE_OPEN, STAGE_LINK, STAGE_ATTACH, STAGE_PLAY, STAGE_REST, STAGE_TAKE, STAGE_SAY, STAGE_WAIT, STAGE_FILL, STAGE_DRAIN, STAGE_SAVE,
	STAGE_END, STAGE_AGAIN, STAGE_ALIGN, STAGE_OVER,
};

struct move {
	struct mirror mirror; /* first: of the new session */
	struct broker *broker;
	struct loop *loop;
	struct client *client;
	struct server *from;
	struct server *to; /* NULL: a checkpoint */
	struct saver *saver;   /* a checkpoint's; else NULL */
	struct loader *loader; /* one that comes back; else NULL */
	bool loading;
	bool broken; /* atomic: what a lane found */
	struct replay *replay; /* of what came after it; NULL: nothing did */
	struct save_info info; /* of either */
	struct server_waiter waiter;
	struct link *link; /* while on_link */
	bool on_link;
	uint8_t token[RESUME_TOKEN_SIZE];
	int gpu;
	enum move_stage stage;
	bool last;	 /* what is said from here on is all there is */
	bool asked_end;
	bool checked;	 /* the old worker has said that it can move */
	bool final;	 /* it has said everything */
	unsigned rounds;
	uint32_t landings; /* that it has told of */
	uint64_t bulk;	 /* frames with bytes that the old worker has sent */

	struct wire new;
	pthread_mutex_t seen_lock; /* lanes hear of a replay's frames, too */
	struct journal_seen seen;  /* of the new worker's frames; guarded by seen_lock */

	/* for the new worker; frames at multiples of FRAME_ALIGN */
	uint8_t *queue;
	size_t queue_at;
	size_t queue_size;
	size_t queue_room;

	uint64_t bytes;
	uint64_t avoided;
	uint64_t bytes_free; /* of bytes, before it was held at the end */
	uint64_t memory;
	uint64_t left;
	enum move_phase phase;
	bool refused;
	uint64_t begun_ns;
	uint64_t phase_begun_ns; /* clock_ns() */
	uint64_t phase_ns[MOVE_PHASES];
	uint64_t moved_ns; /* something has happened */
	uint64_t taken_ns; /* the client's ring was taken */
	uint64_t held_ns;  /* it was taken for good; 0: it isn't */
	uint64_t freed_ns; /* and went on, before the end; 0: it hasn't */
	uint64_t drain_ns; /* the first look at whether all work is done */
	uint64_t rest_ns;
	char from_name[CONF_NAME_SIZE];
	char to_name[CONF_NAME_SIZE];
	char drain_why[256];

	move_hear *hear;
	void *arg;
	struct loop_timer timer;
	struct loop_post post;
};

static struct move *move_of(struct mirror *mirror)
{
	return (struct move *)mirror;
}

static void move_over(struct move *move, bool done, const char *why);
static void move_failed(struct move *move, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- the end ---- */

static void move_free(struct loop_post *post)
{
	struct move *move = (struct move *)((char *)post - offsetof(struct move, post));

	free(move->queue);
	replay_free(move->replay);
	if (move->mirror.shm.base)
		shm_close(&move->mirror.shm);
	pthread_mutex_destroy(&move->seen_lock);
	free(move);
}

/* Any thread. */
static void move_mirror_free(struct mirror *mirror)
{
	struct move *move = move_of(mirror);

	move->post.run = move_free;
	loop_post(move->loop, &move->post);
}

static void move_leave(struct move *move)
{
	saver_free(move->saver);
	loader_free(move->loader);
	move->saver = NULL;
	if (move->to)
		server_want_forget(move->to, &move->waiter);
	if (!move->on_link)
		return;
	link_mirror_remove(move->link, &move->mirror);
	move->on_link = false;
}

/* ---- news ---- */

const char *const move_phase_names[MOVE_PHASES] = {
	[MOVE_PHASE_REACH] = "reach", [MOVE_PHASE_CHECK] = "check", [MOVE_PHASE_COPY] = "copy", [MOVE_PHASE_LAST] = "last",
	[MOVE_PHASE_SWITCH] = "switch",
};

static void news_of(const struct move *move, struct move_news *news)
{
	uint64_t now = clock_ns();

	*news = (struct move_news){
		.why = "", .pid = move->client->pid, .program = move->client->program, .from = move->from_name, .to = move->to_name,
		.phase = move->phase, .held = move->held_ns != 0, .bytes = move->bytes, .avoided = move->avoided,
		.bytes_held = move->held_ns ? move->bytes - move->bytes_free : 0, .memory = move->memory, .left = move->left,
		.pause_ns = !move->held_ns ? 0 : (move->freed_ns ? move->freed_ns : now) - move->held_ns, .total_ns = now - move->begun_ns, .rounds = move->rounds,
		.commands = move->info.sequence,
	};
	memcpy(news->phase_ns, move->phase_ns, sizeof(news->phase_ns));
	news->phase_ns[move->phase] += now - move->phase_begun_ns;
}

static void news_tell(const struct move *move)
{
	struct move_news news;

	if (!move->hear)
		return;
	news_of(move, &news);
	move->hear(move->arg, &news);
}

static void move_goes_to(struct move *move, enum move_phase phase)
{
	uint64_t now = clock_ns();

	move->phase_ns[move->phase] += now - move->phase_begun_ns;
	move->phase_begun_ns = now;
	move->phase = phase;
	log_debug("move: pid %d: %s", move->client->pid, move_phase_names[phase]);
	news_tell(move);
}

/* The newer checkpoint counts from now on, or it has failed, and the older one does. */
static void records_turn(struct client *client, bool done)
{
	pthread_mutex_lock(&client->deliver_lock);
	record_free(done ? client->record : client->record_next);
	if (done)
		client->record = client->record_next;
	client->record_next = NULL;
	pthread_mutex_unlock(&client->deliver_lock);
}

static void move_over(struct move *move, bool done, const char *why)
{
	struct move_news news;

	if (move->stage == STAGE_OVER)
		return;
	news_of(move, &news);
	news.over = true;
	news.done = done;
	news.refused = move->refused;
	news.why = why;
	move->stage = STAGE_OVER;
	loop_timer_clear(move->loop, &move->timer);
	if (!done && move->on_link)
		link_send(move->link, LINK_DETACH, move->mirror.id, NULL, 0, NULL, 0);
	move_leave(move);
	if (!move->to)
		records_turn(move->client, done);
	move->client->move = NULL;
	/* Without a worker it waits on, for the one that it had or for another checkpoint. */
	if (!done && move->loader)
		client_waits(move->client, true);
	if (done && !move->to)
		log_info("checkpoint on %s: %" PRIu64 " bytes of memory, %" PRIu64 " written, %.1f ms held, %.2f s in all", move->from_name,
			 move->memory, move->bytes, (double)news.pause_ns / 1e6, (double)news.total_ns / 1e9);
	else if (done)
		log_info("move: %s to %s: %" PRIu64 " bytes of memory, %" PRIu64 " sent, %.1f ms held, %.2f s in all", move->from_name,
			 move->to_name, move->memory, move->bytes, (double)news.pause_ns / 1e6, (double)news.total_ns / 1e9);
	else
		log_warn("move: %s to %s: not done: %s", move->from_name, move->to ? move->to_name : "a file", why);
	if (move->hear)
		move->hear(move->arg, &news);
	mirror_put(&move->mirror);
}

void move_unheard(struct move *move)
{
	move->hear = NULL;
}

static void move_failed(struct move *move, const char *format, ...)
{
	char why[MOVE_WHY_SIZE];
	va_list args;

	if (move->stage == STAGE_OVER)
		return;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	/* One that has no worker has no ring that would have to be given back. */
	if (!move->loader)
		client_mend(move->client);
	move_over(move, false, why);
}

void move_abandon(struct move *move, const char *why)
{
	move_over(move, false, why);
}

/* ---- to the new worker ---- */

static void queue_add(struct move *move, const void *frame, uint32_t size)
{
	uint32_t room = RING_ALIGN(size);

	if (move->saver) {
		move->bytes += size;
		if (!saver_put(move->saver, frame, size))
			move_failed(move, "out of memory on this machine");
		return;
	}
	if (move->queue_at == move->queue_size)
		move->queue_at = move->queue_size = 0;
	if (move->queue_size + room > move->queue_room) {
		size_t more = move->queue_room ? 2 * move->queue_room : 1u << 20;
		uint8_t *queue = realloc(move->queue, more);

		if (!queue) {
			move_failed(move, "out of memory on this machine");
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
	queue_add(move, frame, hdr.size);
}

/* True: something went. */
static bool queue_pump(struct move *move)
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

/* What is said waits for whoever it is said to. */
static bool queue_is_long(const struct move *move)
{
	return move->saver ? saver_is_behind(move->saver) : move->queue_size - move->queue_at > MOVE_QUEUE_MAX;
}

static bool new_has_all(const struct move *move)
{
	return move->queue_at == move->queue_size && move->new.tail == move->new.at;
}

/* ---- the old worker ---- */

static void old_ask(struct move *move)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct msg_gleamMoveOut m = {
		.step = !move->checked ? MOVE_CHECK : move->last ? MOVE_LAST : MOVE_COPY,
		.limit = move->last ? MOVE_LAST_SLICE : MOVE_SLICE,
	};
	struct writer w = writer_on(payload, sizeof(payload));
	uint8_t frame[128] __attribute__((aligned(8)));
	struct frame_hdr hdr = {
		.op = OP_gleamMoveOut, .kind = FRAME_COMMAND, .ctx = CTX_NONE, .slot = MOVE_REPLY_SLOT, .flags = FRAME_WANTS_REPLY,
	};

	msg_gleamMoveOut_put(&w, &m);
	hdr.size = (uint32_t)(sizeof(hdr) + w.at);
	memset(frame, 0, sizeof(frame));
	memcpy(frame, &hdr, sizeof(hdr));
	memcpy(frame + sizeof(hdr), payload, w.at);
	/* When it is taken the ring is empty, and later it has what we wrote: there is room, or will be. */
	if (wire_put(&move->client->wire, frame, hdr.size))
		move->stage = STAGE_SAY;
}

static void old_take(struct move *move)
{
	move->client->held = true;
	move->taken_ns = loop_now_ns(move->loop);
	move->stage = STAGE_TAKE;
}

/* The program goes on, for now. */
static void old_give(struct move *move, uint64_t rest_ns)
{
	move->held_ns = 0;
	move->rest_ns = rest_ns;
	move->stage = STAGE_FILL;
}

static void old_said(struct move *move, const struct ans_gleamMoveOut *a, uint32_t result)
{
	uint64_t now = loop_now_ns(move->loop);
	char reason[256];

	snprintf(reason, sizeof(reason), "%.*s", a->reason_size ? (int)a->reason_size - 1 : 0, a->reason_size ? (const char *)a->reason : "");
	move->bulk = a->bulk;
	move->landings = a->landings;
	move->memory = a->total ? a->total : move->memory;
	move->left = a->left;
	if (result || (a->code && a->code != MOVE_NOT_READY && a->code != MOVE_WANTS_CLIENT)) {
		move->refused = !move->checked;
		move_failed(move, "%s", *reason ? reason : "the old worker can't say what it is");
		return;
	}
	if (a->code) {
		/* Work isn't done: it goes on, and is looked at again soon. */
		snprintf(move->drain_why, sizeof(move->drain_why), "%s", reason);
		if (now - move->drain_ns > MOVE_DRAIN_NS) {
			move_failed(move, "its work did not come to an end within %u s: %s", (unsigned)(MOVE_DRAIN_NS / NS_PER_S), reason);
			return;
		}
		/* Behind what waits for a function of the host is nothing that would end before the program has gone on. */
		if (now - move->taken_ns > MOVE_HELD_NS || a->code == MOVE_WANTS_CLIENT) {
			old_give(move, MOVE_GO_ON_NS);
			return;
		}
		move->stage = STAGE_WAIT;
		move->rest_ns = now + MOVE_LOOK_NS;
		loop_timer_set(move->loop, &move->timer, move->rest_ns);
		return;
	}
	if (!move->checked) {
		move->checked = true;
		old_give(move, 0);
		move_goes_to(move, MOVE_PHASE_COPY);
		return;
	}
	if (move->last) {
		move->final = a->left == 0;
		move->stage = STAGE_DRAIN;
		if (move->final)
			move_goes_to(move, MOVE_PHASE_SWITCH);
		return;
	}
	if (a->left == 0 && ++move->rounds >= (move->memory > MOVE_LARGE ? MOVE_ROUNDS_LARGE : 1)) {
		move->last = true;
		move->drain_ns = 0;
	}
	old_give(move, now - move->taken_ns > MOVE_REST_NS ? now - move->taken_ns : MOVE_REST_NS);
	if (move->last)
		move_goes_to(move, MOVE_PHASE_LAST);
}

/* A command for the new worker. */
static void old_says(struct move *move, const struct frame_hdr *hdr, const uint8_t *frame)
{
	struct msg_gleamMoveBytes m;
	struct reader r = reader_on(frame + sizeof(*hdr), hdr->size - sizeof(*hdr));

	if (hdr->op == OP_gleamMoveBytes && msg_gleamMoveBytes_get(&r, &m))
		move->avoided += m.zeros;
	queue_add(move, frame, hdr->size);
}

bool move_frame(struct move *move, const uint8_t *frame, uint32_t size)
{
	struct frame_hdr hdr;
	struct reader r;

	memcpy(&hdr, frame, sizeof(hdr));
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_MOVE) {
		struct frame_hdr inner;

		/* Nobody has asked it to say anything. */
		if (move->stage != STAGE_SAY)
			return true;
		move->moved_ns = loop_now_ns(move->loop);
		if (size < sizeof(hdr) + sizeof(inner))
			return true;
		memcpy(&inner, frame + sizeof(hdr), sizeof(inner));
		if (inner.size != size - sizeof(hdr) || inner.kind != FRAME_COMMAND || (inner.flags & (FRAME_BULK_UP | FRAME_BULK_DOWN)))
			move_failed(move, "the old worker has said nonsense");
		else
			old_says(move, &inner, frame + sizeof(hdr));
		return true;
	}
	if (hdr.kind != FRAME_REPLY || hdr.seq != 0)
		return false;
	/* That another move is forgotten. */
	if (hdr.slot != MOVE_REPLY_SLOT)
		return true;
	if (hdr.op == OP_gleamMoveOut && move->stage == STAGE_SAY) {
		struct ans_gleamMoveOut a = { 0 };
		uint32_t result;

		r = reader_on(frame + sizeof(hdr), size - sizeof(hdr));
		result = get_u32(&r);
		if (result == 0 && !ans_gleamMoveOut_get(&r, &a))
			result = 999;
		move->moved_ns = loop_now_ns(move->loop);
		old_said(move, &a, result);
	}
	return true;
}

/* ---- the new worker ---- */

static void new_end(struct move *move)
{
	uint8_t payload[64] __attribute__((aligned(8)));
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

/* Lane thread: a frame whose cells lie in our own memory, of what is done again. */
static void move_deliver(struct mirror *mirror, uint64_t number, const uint8_t *frame, uint32_t size)
{
	struct move *move = move_of(mirror);

	if (size < sizeof(struct frame_hdr) || size > FRAME_SIZE_MAX || !seen_add(move, number, size) ||
	    !replay_frame(move->replay, frame, size))
		__atomic_store_n(&move->broken, true, __ATOMIC_RELEASE);
	loop_nudge(move->loop);
}

static void move_room(struct mirror *mirror)
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
		move_failed(move, "%s sent a frame that can't be", move->to_name);
		return;
	}
	if (move->stage >= STAGE_AGAIN && move->replay && (hdr.kind == FRAME_NOTICE ? hdr.op != NOTICE_MOVE : hdr.seq != 0)) {
		move->moved_ns = loop_now_ns(move->loop);
		if (!replay_frame(move->replay, frame, size))
			move_failed(move, "%s sent a frame that can't be", move->to_name);
		return;
	}
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_MOVE) {
		new_says_no(move, frame + sizeof(hdr), size - (uint32_t)sizeof(hdr));
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
			move_failed(move, "%s can't take it (%u)", move->to_name, result);
		else
			new_says_no(move, a.reason, a.reason_size);
	} else if (hdr.op == OP_gleamMoveEnd) {
		struct ans_gleamMoveEnd a = { 0 };

		/* What was played to it may have asked before us: the old worker is a stranger's, and so is a file. */
		if (move->stage != STAGE_END)
			move_failed(move, "%s was told to end before all was said", move->to_name);
		else if (result || !ans_gleamMoveEnd_get(&r, &a))
			move_failed(move, "%s can't take it (%u)", move->to_name, result);
		else if (!new_says_no(move, a.reason, a.reason_size))
			move->stage = move->replay ? STAGE_AGAIN : STAGE_ALIGN;
	}
}

/* The program goes on while the file is written. */
static void save_end(struct move *move)
{
	struct client *client = move->client;

	move->info.sequence = client->seq;
	move->info.position = client->c2n.at;
	move->info.up = __atomic_load_n(&client->up_tail, __ATOMIC_ACQUIRE);
	move->info.landings = move->landings;
	move->info.memory = move->memory;
	move->info.bytes = move->bytes;
	move->freed_ns = clock_ns();
	move->stage = STAGE_SAVE;
	/* What comes after it is remembered; without memory for that, a program that goes on can't be restored. */
	pthread_mutex_lock(&client->deliver_lock);
	client->record_next = record_new(client->seq, client->c2n.at);
	pthread_mutex_unlock(&client->deliver_lock);
	client_mend(client);
	move_goes_to(move, MOVE_PHASE_SWITCH);
	saver_end(move->saver, &move->info);
}

static void rest_give(void *arg, const uint8_t *frame, uint32_t size, const uint8_t *cells)
{
	client_hand(arg, frame, size, cells);
}

/* From here on the client's session is the new one. */
static void move_switch(struct move *move)
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

/* ---- rounds ---- */

/* The new node may forget what has come. */
static void seen_tell(struct move *move)
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

/* It does again what the program has done since the checkpoint. */
static bool again_poll(struct move *move)
{
	const char *why = NULL;

	switch (replay_step(move->replay, &move->new, &why)) {
	case REPLAY_FAILED:
		move_failed(move, "%s: %s", move->to_name, why);
		return true;
	case REPLAY_GOES:
		move->moved_ns = loop_now_ns(move->loop);
		return true;
	case REPLAY_DONE:
		if (move->new.tail != move->new.at)
			return false;
		move->stage = STAGE_ALIGN;
		return true;
	default:
		return false;
	}
}

bool move_poll(struct move *move)
{
	struct client *client = move->client;
	uint64_t now = loop_now_ns(move->loop);
	bool any = queue_pump(move);

	if (move->stage == STAGE_OVER)
		return true;
	seen_tell(move);
	if (__atomic_load_n(&move->broken, __ATOMIC_ACQUIRE)) {
		move_failed(move, "%s sent a frame that can't be", move->to_name);
		return true;
	}
	if (any)
		move->moved_ns = now;
	switch (move->stage) {
	case STAGE_REST:
		/* What was said is with the new worker, or nearly, before more is asked for. */
		if (now < move->rest_ns || queue_is_long(move) || (move->last && !new_has_all(move)))
			break;
		old_take(move);
		return true;
	case STAGE_TAKE:
		/* Where its ring can't be taken it has been let go by a command. */
		client->held = client->held || wire_can_fill(client->c2n.at);
		if (!client_ring_take(client))
			break;
		if (move->last && !move->drain_ns)
			move->drain_ns = now;
		if (move->last) {
			move->held_ns = clock_ns() - (now - move->taken_ns);
			move->bytes_free = move->bytes;
		}
		old_ask(move);
		return true;
	case STAGE_WAIT:
		if (now < move->rest_ns)
			break;
		old_ask(move);
		return true;
	case STAGE_FILL:
		if (!client_ring_give(client))
			break;
		move->rest_ns += now;
		move->stage = STAGE_REST;
		loop_timer_set(move->loop, &move->timer, move->rest_ns);
		loop_nudge(move->loop);
		return true;
	case STAGE_DRAIN:
		if (!move->final) {
			if (queue_is_long(move))
				break;
			old_ask(move);
			return true;
		}
		/* Also the frames that came by bulk lanes. */
		if (!new_has_all(move) || client_bulk_seen(client) < move->bulk)
			break;
		if (move->saver)
			save_end(move);
		else
			new_end(move);
		return true;
	case STAGE_AGAIN:
		if (again_poll(move))
			return true;
		break;
	case STAGE_PLAY:
		if (move->loading || queue_is_long(move))
			break;
		move->loading = true;
		loader_next(move->loader);
		return true;
	case STAGE_ALIGN:
		/* Lanes of its old link may still have bytes of it, in a queue that is to be the new link's. */
		if (move->loader && __atomic_load_n(&client->mirror.refs, __ATOMIC_ACQUIRE) != 1)
			break;
		if (!wire_fill(&move->new, client->c2n.at) || move->new.tail != move->new.at)
			break;
		move_switch(move);
		return true;
	default:
		break;
	}
	return any;
}

static void move_timer(void *arg)
{
	struct move *move = arg;
	uint64_t now = loop_now_ns(move->loop);
	uint64_t stuck_ns = move->stage == STAGE_AGAIN ? MOVE_AGAIN_NS : MOVE_STUCK_NS;

	/* A file may be large, and its disk slow. */
	if (now - move->moved_ns > stuck_ns && move->stage != STAGE_REST && move->stage != STAGE_OPEN) {
		move_failed(move, "nothing happened for %u s", (unsigned)(stuck_ns / NS_PER_S));
		return;
	}
	news_tell(move);
	if (now - move->moved_ns > NS_PER_S)
		log_debug("move: stage %d%s: %zu bytes wait; old ring at %" PRIu64 ", consumed %" PRIu64 "; new at %" PRIu64
			  ", consumed %" PRIu64 "; client at %" PRIu64 ", consumed %" PRIu64 "; bulk %" PRIu64 " of %" PRIu64,
			  move->stage, move->last ? ", the last" : "", move->queue_size - move->queue_at, move->client->wire.at,
			  move->client->wire.tail, move->new.at, move->new.tail, move->client->c2n.at, move->client->acknowledged,
			  client_bulk_seen(move->client), move->bulk);
	loop_timer_set(move->loop, &move->timer, now + NS_PER_S);
	loop_nudge(move->loop);
}

/* ---- the beginning ---- */

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
			move_failed(move, "%s: %s", move->to_name, *why ? why : "it refused without a reason");
			return 0;
		}
		move->stage = move->loader ? STAGE_PLAY : STAGE_REST;
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
	case LINK_ENDED: {
		get_u32(body);

		const char *why = get_str(body, LINK_TEXT_MAX);

		move_failed(move, "%s: %s", move->to_name, *why ? why : "its new worker has ended");
		return 0;
	}
	default:
		return -EPROTO;
	}
}

void move_link_lost(struct move *move, struct server *server, const char *why)
{
	if (move->stage != STAGE_OVER && move->to == server && move->on_link)
		move_failed(move, "the link to %s is lost: %s", move->to_name, why);
}

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
	if (err)
		move_failed(move, "%s can't be reached: %s", move->to_name, why);
	else
		move_attach(move);
}

static void move_begin(void *arg)
{
	struct move *move = arg;

	move->timer.fire = move_timer;
	loop_timer_set(move->loop, &move->timer, loop_now_ns(move->loop) + NS_PER_S);
	if (move->stage == STAGE_LINK)
		server_want(move->to, &move->waiter);
	else if (move->stage == STAGE_REST)
		move_goes_to(move, MOVE_PHASE_CHECK);
}

/* Whether the old worker can be asked. */
static int move_may(const struct client *client, char *why, size_t why_size)
{
	if (client->state != CLIENT_LIVE) {
		snprintf(why, why_size, "pid %d has no live session", client->pid);
		return -ESRCH;
	}
	if (client->move) {
		snprintf(why, why_size, "pid %d is being moved already", client->pid);
		return -EALREADY;
	}
	if (client->direct) {
		snprintf(why, why_size, "pid %d has a GPU of this machine to itself, by a short cut that can't be moved; [link] direct = no "
			 "in gleamd's settings does without it", client->pid);
		return -EOPNOTSUPP;
	}
	if (client_has_sibling(client)) {
		snprintf(why, why_size, "pid %d has GPUs of several servers, which stay where they are", client->pid);
		return -EOPNOTSUPP;
	}
	if (client->limited) {
		snprintf(why, why_size, "pid %d may use single devices (/dev/gleam<N>) alone, and gleamd was restarted since it was given "
			 "them: it stays", client->pid);
		return -EOPNOTSUPP;
	}
	if (!client->on_link || client->resuming) {
		snprintf(why, why_size, "pid %d has no link to its server at the moment", client->pid);
		return -EAGAIN;
	}
	return 0;
}

/* It begins in the next round, with @stage. */
static struct move *move_new(struct broker *broker, struct client *client, struct server *to, int gpu, enum move_stage stage,
			     move_hear *hear, void *arg)
{
	struct move *move = calloc(1, sizeof(*move));

	if (!move || getrandom(move->token, sizeof(move->token), 0) != (ssize_t)sizeof(move->token)) {
		free(move);
		return NULL;
	}
	move->stage = stage;
	mirror_init(&move->mirror);
	pthread_mutex_init(&move->seen_lock, NULL);
	move->mirror.id = broker_session_take(broker);
	move->mirror.shm.fd = -1;
	move->mirror.free = move_mirror_free;
	move->mirror.deliver = move_deliver;
	move->mirror.room = move_room;
	move->mirror.is_move = true;
	move->broker = broker;
	move->loop = client->loop;
	move->client = client;
	move->from = client->server;
	move->to = to;
	move->gpu = gpu;
	snprintf(move->from_name, sizeof(move->from_name), "%s", server_name(client->server));
	snprintf(move->to_name, sizeof(move->to_name), "%s", to ? server_name(to) : "");
	move->waiter.done = move_linked;
	move->hear = hear;
	move->arg = arg;
	move->begun_ns = move->phase_begun_ns = clock_ns();
	move->moved_ns = loop_now_ns(move->loop);
	move->timer.arg = move;
	client->move = move;
	/* From the loop, so that hear() is never called from here. */
	move->timer.fire = move_begin;
	loop_timer_set(move->loop, &move->timer, loop_now_ns(move->loop));
	return move;
}

int move_start(struct broker *broker, struct client *client, struct server *to, int gpu, move_hear *hear, void *arg, char *why,
	       size_t why_size)
{
	int err = move_may(client, why, why_size);

	if (err)
		return err;
	if (!move_new(broker, client, to, gpu, STAGE_LINK, hear, arg)) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	log_info("pid %d (%s): is moved from %s to %s", client->pid, client->program, server_name(client->server), server_name(to));
	return 0;
}

/* ---- checkpoints ---- */

static void save_heard(void *arg, bool over, int err)
{
	struct move *move = arg;
	struct client *client = move->client;

	move->moved_ns = loop_now_ns(move->loop);
	loop_nudge(move->loop);
	if (err) {
		move_failed(move, "the checkpoint can't be written: %s", strerror(-err));
	} else if (over) {
		client->saved = (struct client_saved){ .there = true, .sequence = move->info.sequence, .position = move->info.position };
		move_over(move, true, "");
	}
}

int move_save(struct broker *broker, struct client *client, int fd, move_hear *hear, void *arg, char *why, size_t why_size)
{
	int err = move_may(client, why, why_size);
	struct save_info info = { .pid = (uint32_t)client->pid, .uid = (uint32_t)client->uid, .made_s = (uint64_t)time(NULL) };
	struct move *move;

	if (err) {
		close(fd);
		return err;
	}
	/* At the first: one that a daemon has taken over from another one has none. */
	if (memcmp(client->identity, info.identity, sizeof(info.identity)) == 0 &&
	    getrandom(client->identity, sizeof(client->identity), 0) != (ssize_t)sizeof(client->identity)) {
		close(fd);
		snprintf(why, why_size, "no random number");
		return -EIO;
	}
	memcpy(info.identity, client->identity, sizeof(info.identity));
	snprintf(info.program, sizeof(info.program), "%.*s", (int)sizeof(info.program) - 2, client->program);
	move = move_new(broker, client, NULL, -1, STAGE_REST, hear, arg);
	if (!move) {
		close(fd);
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	move->info = info;
	move->saver = saver_new(move->loop, fd, &info, save_heard, move);
	if (!move->saver) {
		move->hear = NULL;
		move_over(move, false, "out of memory");
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	log_info("pid %d (%s): a checkpoint is made on %s", client->pid, client->program, move->from_name);
	return 0;
}

/* ---- they come back ---- */

/* @why: not this one. */
static bool load_fits(struct move *move, char *why, size_t why_size)
{
	struct client *client = move->client;
	const struct save_info *info = &move->info;
	const char *trouble;

	if (!client->saved.there || memcmp(info->identity, client->identity, sizeof(info->identity)) != 0) {
		snprintf(why, why_size, "the checkpoint is of another session (pid %u, %.100s), or of a gleamd that was restarted since", info->pid,
			 info->program);
		return false;
	}
	if (info->sequence != client->saved.sequence || info->position != client->saved.position) {
		snprintf(why, why_size, "pid %d has a newer checkpoint than this one: what came after this one isn't known any more", client->pid);
		return false;
	}
	trouble = client_lasts(client);
	if (trouble) {
		snprintf(why, why_size, "pid %d has gone on since the checkpoint by %" PRIu64 " commands, which can't be done again: %s", client->pid,
			 client->seq - info->sequence, trouble);
		return false;
	}
	if (client->seq == info->sequence)
		return true;
	if (!wire_can_fill(client->c2n.at)) {
		snprintf(why, why_size, "the program has stopped at a place of its command ring where no other worker can go on");
		return false;
	}
	/* It gets bytes for the program before the program does. */
	move->replay = replay_new(client->record, &move->mirror);
	if (!move->replay || shm_make(&move->mirror.shm, protocol_hash, (uint32_t)client->pid)) {
		snprintf(why, why_size, "out of memory");
		return false;
	}
	__atomic_store_n(&move->mirror.live, true, __ATOMIC_RELEASE);
	log_info("pid %d (%s): %" PRIu64 " commands since its checkpoint are done again", client->pid, client->program,
		 client->seq - info->sequence);
	return true;
}

static void load_opened(void *arg, const struct save_info *info, const char *why)
{
	struct move *move = arg;
	char text[MOVE_WHY_SIZE];

	if (!info) {
		move_failed(move, "the checkpoint: %s", why);
		return;
	}
	move->info = *info;
	move->memory = info->memory;
	move->moved_ns = loop_now_ns(move->loop);
	if (!load_fits(move, text, sizeof(text))) {
		move_failed(move, "%s", text);
		return;
	}
	move->stage = STAGE_LINK;
	server_want(move->to, &move->waiter);
}

static void load_frames(void *arg, const uint8_t *frames, uint32_t size, const char *why)
{
	struct move *move = arg;

	move->loading = false;
	move->moved_ns = loop_now_ns(move->loop);
	loop_nudge(move->loop);
	if (*why) {
		move_failed(move, "the checkpoint: %s", why);
		return;
	}
	for (uint32_t at = 0; at < size && move->stage == STAGE_PLAY;) {
		struct frame_hdr hdr;

		memcpy(&hdr, frames + at, sizeof(hdr));
		queue_add(move, frames + at, hdr.size);
		at += RING_ALIGN(hdr.size);
	}
	if (!frames && move->stage == STAGE_PLAY) {
		move->landings = move->info.landings;
		move->final = true;
		move->stage = STAGE_DRAIN;
		move_goes_to(move, MOVE_PHASE_SWITCH);
	}
}

int move_load(struct broker *broker, struct client *client, struct server *to, int gpu, int fd, move_hear *hear, void *arg, char *why,
	      size_t why_size)
{
	static const struct loader_ops ops = { .opened = load_opened, .frames = load_frames };
	struct move *move = NULL;
	int err = 0;

	if (client->state != CLIENT_LIVE || client->direct) {
		snprintf(why, why_size, "pid %d has no session that could go on", client->pid);
		err = -ESRCH;
	} else if (client->on_link || !client->lost_ns) {
		snprintf(why, why_size, "pid %d has its worker on %s, and needs no checkpoint; gleamctl migrate moves it", client->pid,
			 server_name(client->server));
		err = -EALREADY;
	} else if (client->move) {
		snprintf(why, why_size, "pid %d is being restored already", client->pid);
		err = -EBUSY;
	} else {
		move = move_new(broker, client, to, gpu, STAGE_OPEN, hear, arg);
		if (!move) {
			snprintf(why, why_size, "out of memory");
			err = -ENOMEM;
		}
	}
	if (err) {
		close(fd);
		return err;
	}
	move->loader = loader_new(move->loop, fd, &ops, move);
	if (!move->loader) {
		move->hear = NULL;
		move_abandon(move, "out of memory");
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	client_waits(client, false);
	log_info("pid %d (%s): a checkpoint is restored on %s", client->pid, client->program, move->to_name);
	return 0;
}

bool move_needs_link(const struct move *move)
{
	return move->stage != STAGE_SAVE;
}

const char *move_state(const struct move *move)
{
	return !move->to ? "live" : move->loader ? "restoring" : "moving";
}
