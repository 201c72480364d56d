/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker frees and writes, on its way to the broker, and what of it has come there. Control thread; see seat_private.h. */
#include "broker/node/seat_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/small.h"
#include "broker/lib/clock.h"
#include "broker/lib/log.h"

#define SEAT_FRAMES_MAX	    64u			  /* a seat's turn in a round */
#define SEAT_BYTES_MAX	    (2 * LINK_SMALL_BYTES) /* bytes that frames of a turn bring with them */
#define SEAT_CONSUMED_BYTES (SESSION_C2N_SIZE / 4) /* freed ring that is told at once */
#define SEAT_CONSUMED_SLOW  (16 * NS_PER_MS)	  /* when the worker holds on to a command, we look this rarely */
#define SEAT_BULK_MAX	    (RESUME_WINDOW / 2) /* of them those with bytes */
#define SEAT_KEPT_MAX	    (SESSION_N2C_SIZE / 2) /* with more we ask what has come: one frame that came late holds back the others */
#define SEAT_ASK_NS	    (2 * NS_PER_MS)

/* The worker's tail of c2n. False when it is nonsense. */
bool seat_tail_look(struct seat *seat)
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

void seat_broken(struct seat *seat, const char *what)
{
	char why[PROC_WHY_SIZE];

	snprintf(why, sizeof(why), "the worker broke the protocol: %s", what);
	log_error("session %u: %s", seat->mirror.id, why);
	seat_end(seat, END_PROTOCOL, why, true);
}

void seat_consumed_late(void *arg)
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

/* Sends it, unless it was sent by a lost link and came. *@bulk_out: it goes by a bulk lane. *@bytes_out: it brings so many with it. */
static int seat_frame(struct seat *seat, const struct frame_hdr *hdr, const uint8_t *frame, bool *bulk_out, uint32_t *bytes_out)
{
	*bulk_out = false;
	*bytes_out = 0;
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

		if (ref.offset > SESSION_DOWN_SIZE || ref.size > SESSION_DOWN_SIZE - ref.offset)
			return -EPROTO;
		if (small_fits(hdr->size, &ref)) {
			seat->frames_sent++;
			if (seat->frames_sent > seat->had.frames)
				small_send(seat->link, &seat->mirror, hdr, frame, &ref);
			*bytes_out = ref.size;
			return 0;
		}
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
void seat_drop_seen(struct seat *seat, uint64_t frames, uint64_t bulk)
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

void seat_ask(void *arg)
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
	uint32_t size = 0;
	int got = 0;

	if (seat->state != SEAT_LIVE || seat->left)
		return false;
	seat_short_look(seat);
	while (count < SEAT_FRAMES_MAX && size < SEAT_BYTES_MAX && !seat_is_blocked(seat) && (got = ring_peek(&seat->n2c, &hdr, &frame)) == 1) {
		uint32_t bytes;
		bool bulk;
		int err = seat_frame(seat, &hdr, frame, &bulk, &bytes);

		if (err) {
			seat_broken(seat, err == -ENOMEM ? "out of memory for its frame" : "a frame that a worker can't send");
			return true;
		}
		ring_next(&seat->n2c, &hdr);
		seat->unseen[seat->unseen_head++ % SEAT_UNSEEN_MAX] = seat->n2c.at | bulk;
		size += bytes;
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
