/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that a session leaves: what it is asked, and what it says. Control thread; see move.h. */
#include "broker/local/move_private.h"

#include <stdio.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/tsan.h"
#include "gen/msg.h"
#include "gen/ops.h"

#define MOVE_SLICE	(16u << 20)	 /* contents of a round while the program runs: some 30 ms for which it can't send commands */
#define MOVE_LAST_SLICE (64u << 20)	 /* when it is held anyway */
#define MOVE_LARGE	(256u << 20)	 /* memory that takes long enough to change meanwhile */
#define MOVE_ROUNDS_LARGE 2u		 /* turns over that before it is held; what changes all the time never gets less */
#define MOVE_DRAIN_NS	(5 * TSAN_SLOW * NS_PER_S) /* work that isn't done by then: the program stays where it is */
#define MOVE_HELD_NS	(1 * NS_PER_S)	 /* for work to end; then the program goes on for a moment: it may have to do something for it */
#define MOVE_LOOK_NS	(1 * NS_PER_MS)	 /* between two looks at whether it has */
#define MOVE_GO_ON_NS	(10 * NS_PER_MS) /* that moment */
#define MOVE_REST_NS	(5 * NS_PER_MS)	 /* the program goes on for so long at least, and for as long as the round took */

void move_old_ask(struct move *move)
{
	uint8_t payload[64] __attribute__((aligned(8)));
	struct msg_gleamMoveOut m = {
		.step = !move->checked ? MOVE_CHECK : move->last ? MOVE_LAST : MOVE_COPY,
		.limit = move->last ? MOVE_LAST_SLICE : MOVE_SLICE, .way = move_way_number(move),
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

void move_old_take(struct move *move)
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

bool move_direct_stand(struct move *move)
{
	if (!client_direct_stand(move->client)) {
		move_failed(move, "the program has written nonsense into its command ring, and can't be moved");
		return false;
	}
	if (wire_can_fill(move->client->c2n.at) && !client_direct_has_pages(move->client))
		return true;
	/* It goes on by a command or two, if it has any. */
	if (loop_now_ns(move->loop) - move->drain_ns > MOVE_DRAIN_NS)
		move_failed(move, "the program has stopped at a place of its command ring where no other worker can go on, or in a copy; try again");
	else
		old_give(move, MOVE_GO_ON_NS);
	return false;
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
		move_failed(move, "%s", *reason ? reason : "its worker can't say what it is; the log of its gleamd says why");
		return;
	}
	if (a->code) {
		/* Work isn't done: it goes on, and is looked at again soon. */
		snprintf(move->drain_why, sizeof(move->drain_why), "%s", reason);
		if (now - move->drain_ns > MOVE_DRAIN_NS) {
			move_failed(move, "its work did not come to an end within %u s: %s; it goes on where it is, try again when it has less under way",
				    (unsigned)(MOVE_DRAIN_NS / NS_PER_S), reason);
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
	move_queue_add(move, frame, hdr->size);
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
			move_failed(move, "%s has said nonsense: is its gleamd of the same version as this one?", move->from_name);
		else
			old_says(move, &inner, frame + sizeof(hdr));
		return true;
	}
	if (hdr.kind == FRAME_NOTICE && hdr.op == NOTICE_MOVE_ASIDE) {
		if (move->stage != STAGE_SAY)
			return true;
		move->moved_ns = loop_now_ns(move->loop);
		if (!move_way_aside(move, frame + sizeof(hdr), size - (uint32_t)sizeof(hdr)))
			move_failed(move, "contents have been lost between %s and %s; it goes on where it is, try again", move->from_name, move->to_name);
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
