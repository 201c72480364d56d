/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way from the old worker's node to the new one's, which contents go by when a session moves: opened, accounted for, and closed before the
 * new worker is the client's. Where there is none they pass us. Control thread; see move.h.
 */
#include "broker/local/move_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/proto/aside.h"

#define WAY_NS	     (3 * NS_PER_S) /* for the old node to reach the new one: it gives up dialling after two, and says why */
#define WAY_LONG_MAX (8u << 20)	    /* bytes that are on their way: then the old worker isn't asked on */

/* ---- the beginning ---- */

static void way_none(struct move *move, const char *why)
{
	struct move_way *way = &move->way;

	if (way->state >= WAY_OPENING)
		link_send(move->link, LINK_FILL_CLOSE, move->mirror.id, NULL, 0, NULL, 0);
	if (way->state == WAY_REACHING && move->client->on_link)
		link_send(move->client->link, LINK_POUR_END, move->client->mirror.id, &way->number, sizeof(way->number), NULL, 0);
	way->state = WAY_NONE;
	snprintf(way->why, sizeof(way->why), "%s", why);
	log_info("move: pid %d: contents go through this machine: %s", move->client->pid, why);
	loop_nudge(move->loop);
}

void move_way_begin(struct move *move)
{
	struct move_way *way = &move->way;

	*way = (struct move_way){ .state = WAY_OPENING, .number = move->mirror.id, .head = MOVE_UP_START, .tail = MOVE_UP_START };
	way->until_ns = loop_now_ns(move->loop) + WAY_NS;
	if (move->client->direct) {
		way->state = WAY_IDLE;
		way_none(move, "the old server is this machine");
		return;
	}
	/* What we call so is another machine there. */
	if (link_is_loopback(move->link) && !link_is_loopback(move->client->link)) {
		way->state = WAY_IDLE;
		way_none(move, "the address of the new server is good on this machine alone");
		return;
	}
	link_send(move->link, LINK_FILL_OPEN, move->mirror.id, NULL, 0, NULL, 0);
}

static void way_reach(struct move *move, const uint8_t token[FILL_TOKEN_SIZE])
{
	uint8_t bytes[FILL_TOKEN_SIZE + CONF_ADDRESS_SIZE + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	put_u32(&w, move->way.number);
	put_block(&w, token, FILL_TOKEN_SIZE);
	put_str(&w, server_address(move->to));
	assert(!w.fault);
	move->way.state = WAY_REACHING;
	link_send(move->client->link, LINK_POUR, move->client->mirror.id, NULL, 0, bytes, w.at);
}

bool move_way_is_settled(struct move *move)
{
	struct move_way *way = &move->way;

	if ((way->state == WAY_OPENING || way->state == WAY_REACHING) && loop_now_ns(move->loop) > way->until_ns)
		way_none(move, "the two servers don't come to an end with each other");
	return way->state != WAY_OPENING && way->state != WAY_REACHING;
}

/* ---- what goes by it ---- */

uint32_t move_way_number(const struct move *move)
{
	return move->way.state == WAY_OPEN ? move->way.number : 0;
}

bool move_way_is_long(const struct move *move)
{
	return move->way.state == WAY_OPEN && move->way.head - move->way.tail > WAY_LONG_MAX;
}

bool move_way_is_empty(const struct move *move)
{
	return move->way.state != WAY_OPEN || move->way.head == move->way.tail;
}

bool move_way_consumed(struct move *move, uint64_t tail)
{
	/* A worker's first word may be of its arena as it was made. */
	if (move->way.state != WAY_OPEN || tail < MOVE_UP_START)
		return true;
	if (tail < move->way.tail || tail > move->way.head)
		return false;
	move->way.tail = tail;
	move->moved_ns = loop_now_ns(move->loop);
	return true;
}

/* Its bytes go from node to node: a command of the same size as any other, but for those. */
bool move_way_aside(struct move *move, const uint8_t *frame, uint32_t size)
{
	struct move_way *way = &move->way;
	struct aside_hdr aside;
	struct frame_hdr hdr;
	struct bulk_ref ref;

	if (size < sizeof(aside) + sizeof(hdr) + sizeof(ref))
		return false;
	memcpy(&aside, frame, sizeof(aside));
	memcpy(&hdr, frame + sizeof(aside), sizeof(hdr));
	memcpy(&ref, frame + sizeof(aside) + sizeof(hdr), sizeof(ref));
	/*
	 * Pieces follow each other, but for the end of a lap. Whether there is room the old node knows better: it hears sooner than we of what has been
	 * used up. Lost on the way: whoever lost it says why, unless it was asked of him before he was there.
	 */
	if (way->state != WAY_OPEN || aside.way != way->number || aside.how != ASIDE_GOES)
		return false;
	if (hdr.size != size - sizeof(aside) || hdr.kind != FRAME_COMMAND || !aside_carries(hdr.op) || hdr.flags != FRAME_BULK_UP || hdr.seq ||
	    ref.size == 0 || ref.size > MOVE_ASIDE_MAX || ref.cookie < way->head || ref.cookie - way->head >= MOVE_ASIDE_MAX ||
	    ref.cookie % SESSION_UP_SIZE != ref.offset || ref.size > SESSION_UP_SIZE - ref.offset)
		return false;
	way->head = ref.cookie + ((ref.size + (uint64_t)SESSION_GRANULE - 1) & ~(uint64_t)(SESSION_GRANULE - 1));
	way->bytes += ref.size;
	move->bytes += ref.size;
	move_queue_add(move, frame + sizeof(aside), hdr.size);
	return true;
}

/* ---- the end ---- */

bool move_way_close(struct move *move)
{
	struct move_way *way = &move->way;

	if (way->state == WAY_OPEN) {
		way->state = WAY_CLOSING;
		link_send(move->link, LINK_FILL_CLOSE, move->mirror.id, NULL, 0, NULL, 0);
		link_send(move->client->link, LINK_POUR_END, move->client->mirror.id, &way->number, sizeof(way->number), NULL, 0);
	}
	return way->state != WAY_CLOSING;
}

void move_way_end(struct move *move)
{
	struct move_way *way = &move->way;

	/* The new node hears of the end of its session. */
	if ((way->state == WAY_REACHING || way->state == WAY_OPEN) && move->client->on_link)
		link_send(move->client->link, LINK_POUR_END, move->client->mirror.id, &way->number, sizeof(way->number), NULL, 0);
	if (way->state >= WAY_OPENING)
		way->state = WAY_IDLE;
}

static void way_closed(struct move *move)
{
	struct move_way *way = &move->way;

	if (way->state != WAY_CLOSING || !way->filled || !way->poured)
		return;
	way->state = WAY_CLOSED;
	move->moved_ns = loop_now_ns(move->loop);
	loop_nudge(move->loop);
}

/* ---- what the nodes say ---- */

int move_way_filled(struct move *move, const struct link_hdr *hdr, struct reader *body)
{
	struct move_way *way = &move->way;
	uint8_t token[FILL_TOKEN_SIZE];
	uint32_t result;
	const char *why;

	if (hdr->type == LINK_FILL_OPENED) {
		get_block(body, token, sizeof(token));
		if (body->fault)
			return -EPROTO;
		if (way->state == WAY_OPENING && move->client->on_link)
			way_reach(move, token);
		return 0;
	}
	result = get_u32(body);
	why = get_str(body, LINK_TEXT_MAX);
	if (body->fault)
		return -EPROTO;
	way->filled = true;
	if (way->state == WAY_OPENING || way->state == WAY_REACHING)
		way_none(move, *why ? why : "the new server wants none of it");
	else if (way->state == WAY_OPEN || (way->state == WAY_CLOSING && result))
		move_failed(move, "%s hears no more of %s: %s", move->to_name, move->from_name, *why ? why : "without a reason");
	way_closed(move);
	return 0;
}

int move_way_poured(struct move *move, const struct link_hdr *hdr, struct reader *body)
{
	struct move_way *way = &move->way;
	uint32_t number = get_u32(body);

	if (hdr->type == LINK_POUR_ENDED) {
		uint64_t sent = get_u64(body);
		uint64_t cached = get_u64(body);

		if (body->fault)
			return -EPROTO;
		if (number != way->number || way->state != WAY_CLOSING || way->poured)
			return 0;
		way->poured = true;
		/* A piece that the cache could not give in the end was counted twice. */
		way->cached = cached <= way->bytes ? cached : way->bytes;
		if (sent + way->cached < way->bytes)
			log_debug("move: pid %d: %s counts fewer bytes than it said", move->client->pid, move->from_name);
		way_closed(move);
		return 0;
	}

	uint32_t result = get_u32(body);
	const char *why = get_str(body, LINK_TEXT_MAX);

	if (body->fault)
		return -EPROTO;
	if (number != way->number)
		return 0;
	if (way->state == WAY_REACHING && !result) {
		way->state = WAY_OPEN;
		log_info("move: pid %d: contents go from %s to %s", move->client->pid, move->from_name, move->to_name);
		loop_nudge(move->loop);
	} else if (way->state == WAY_REACHING) {
		char text[MOVE_WHY_SIZE];

		snprintf(text, sizeof(text), "%s doesn't reach %s at %s: %s", move->from_name, move->to_name, server_address(move->to), why);
		way_none(move, text);
	} else if (way->state == WAY_OPEN && result) {
		move_failed(move, "the link from %s to %s is lost: %s", move->from_name, move->to_name, why);
	}
	return 0;
}
