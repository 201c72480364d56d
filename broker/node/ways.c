/* SPDX-License-Identifier: Apache-2.0 */
/* Ways from node to node. Control thread; see ways.h. */
#include "broker/node/ways.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/core/address.h"
#include "broker/lib/log.h"
#include "broker/node/fill.h"
#include "broker/node/pour.h"
#include "broker/node/seat.h"

/* What is on a list, and whose it is until that has left or is done with it. */
struct way {
	struct way *next;
	struct ways *ways;
	struct seat *seat; /* NULL: nobody's any more */
	struct fill *fill; /* one of both */
	struct pour *pour;
};

struct ways {
	struct loop *loop;
	const struct link_setting *setting;
	struct cache *const *cache;
	struct way *first;
	struct log_limit limit;
};

static void way_remove(struct way *way)
{
	for (struct way **at = &way->ways->first; *at; at = &(*at)->next) {
		if (*at == way) {
			*at = way->next;
			break;
		}
	}
	free(way);
}

static struct way *way_new(struct ways *ways, struct seat *seat)
{
	struct way *way = calloc(1, sizeof(*way));

	if (!way)
		return NULL;
	*way = (struct way){ .next = ways->first, .ways = ways, .seat = seat };
	ways->first = way;
	return way;
}

static struct way *way_find(const struct ways *ways, const struct seat *seat, bool fill)
{
	for (struct way *way = ways->first; way; way = way->next)
		if (way->seat == seat && (fill ? way->fill != NULL : way->pour != NULL))
			return way;
	return NULL;
}

static void told_send(struct link *link, enum link_msg type, uint32_t session, bool with_way, uint32_t number, int err, const char *why)
{
	uint8_t bytes[LINK_TEXT_MAX + 64] __attribute__((aligned(8)));
	struct writer w = writer_on(bytes, sizeof(bytes));

	if (with_way)
		put_u32(&w, number);
	put_u32(&w, (uint32_t)-err);
	put_str(&w, why);
	link_send(link, type, session, bytes, w.at, NULL, 0);
}

/* ---- they end here ---- */

static void way_fill_closed(void *owner, struct fill *fill, int err, const char *why)
{
	struct way *way = owner;

	if (!way->seat)
		return;
	seat_fill_set(way->seat, NULL);
	told_send(seat_link(way->seat), LINK_FILL_CLOSED, seat_session(way->seat), false, 0, err, why);
}

static void way_fill_freed(void *owner, struct fill *fill)
{
	way_remove(owner);
}

static int fill_open(struct ways *ways, struct link *link, struct seat *seat)
{
	static const struct fill_ops ops = { .closed = way_fill_closed, .freed = way_fill_freed };
	struct way *way;

	if (!seat)
		return 0; /* it has ended, and its broker will have heard so */
	if (way_find(ways, seat, true))
		return -EPROTO;
	way = way_new(ways, seat);
	if (way)
		way->fill = fill_new(ways->loop, seat_mirror(seat), link_tenant(link), &ops, way);
	if (!way || !way->fill) {
		if (way)
			way_remove(way);
		told_send(link, LINK_FILL_CLOSED, seat_session(seat), false, 0, -ENOMEM, "out of memory");
		return 0;
	}
	seat_fill_set(seat, way->fill);
	link_send(link, LINK_FILL_OPENED, seat_session(seat), fill_token(way->fill), FILL_TOKEN_SIZE, NULL, 0);
	return 0;
}

static int fill_closes(struct ways *ways, struct link *link, struct seat *seat)
{
	struct way *way = seat ? way_find(ways, seat, true) : NULL;

	if (way)
		fill_close(way->fill);
	else if (seat)
		told_send(link, LINK_FILL_CLOSED, seat_session(seat), false, 0, 0, "");
	return 0;
}

/* Another node, over a link of its own. */
static int fill_joins(struct ways *ways, struct link *link, uint32_t id, struct reader *body)
{
	uint8_t token[FILL_TOKEN_SIZE];
	struct way *way;
	uint32_t dropped;
	int err;

	get_block(body, token, sizeof(token));
	if (body->fault)
		return -EPROTO;
	for (way = ways->first; way; way = way->next)
		if (way->seat && way->fill && fill_is(way->fill, token, link_tenant(link)))
			break;
	err = way ? fill_join(way->fill, link, id) : -EACCES;
	if (err == -EPROTO)
		return err;
	if (err && log_limit_take(&ways->limit, &dropped))
		log_warn("%s: wants to fill a session with a token that is good for none", link_peer(link));
	told_send(link, LINK_FILL_JOINED, id, false, 0, err, err ? "the token is good for no session that waits to be filled" : "");
	if (!err)
		log_info("session %u: its contents come from %s (%s)", seat_session(way->seat), link_peer(link), link_host(link));
	return 0;
}

/* ---- they begin here ---- */

static void way_pour_told(void *owner, struct pour *pour, int err, const char *why)
{
	struct way *way = owner;

	if (way->seat)
		told_send(seat_link(way->seat), LINK_POUR_READY, seat_session(way->seat), true, pour_way(pour), err, why);
}

static void way_pour_freed(void *owner, struct pour *pour)
{
	way_remove(owner);
}

static void way_pour_end(struct way *way)
{
	seat_pour_set(way->seat, NULL);
	way->seat = NULL;
	pour_end(way->pour);
}

static int pour_begin(struct ways *ways, struct link *link, struct seat *seat, struct reader *body)
{
	static const struct pour_ops ops = { .told = way_pour_told, .freed = way_pour_freed };
	struct pour_setting setting = { .tenant = link_tenant(link), .link = ways->setting };
	struct way *way;

	setting.way = get_u32(body);
	get_block(body, setting.token, sizeof(setting.token));
	setting.address = get_str(body, ADDRESS_HOST_SIZE + 8);
	if (body->fault || setting.way == 0)
		return -EPROTO;
	if (!seat)
		return 0;
	way = way_find(ways, seat, false);
	if (way)
		way_pour_end(way);
	setting.shelf = cache_shelf(*ways->cache, setting.tenant, setting.salt);
	setting.from = seat_mirror(seat);
	way = way_new(ways, seat);
	if (way)
		way->pour = pour_start(ways->loop, &setting, &ops, way);
	if (!way || !way->pour) {
		if (way)
			way_remove(way);
		told_send(link, LINK_POUR_READY, seat_session(seat), true, setting.way, -ENOMEM, "out of memory");
		return 0;
	}
	seat_pour_set(seat, way->pour);
	return 0;
}

static int pour_ends(struct ways *ways, struct link *link, struct seat *seat, struct reader *body)
{
	struct way *way = seat ? way_find(ways, seat, false) : NULL;
	uint8_t bytes[32];
	struct writer w = writer_on(bytes, sizeof(bytes));
	uint32_t number = get_u32(body);
	uint64_t sent = 0, cached = 0;

	if (body->fault)
		return -EPROTO;
	if (way && pour_way(way->pour) == number) {
		pour_counts(way->pour, &sent, &cached);
		way_pour_end(way);
	}
	put_u32(&w, number);
	put_u64(&w, sent);
	put_u64(&w, cached);
	if (seat)
		link_send(link, LINK_POUR_ENDED, seat_session(seat), bytes, w.at, NULL, 0);
	return 0;
}

/* ---- both ---- */

int ways_message(struct ways *ways, struct link *link, struct seat *seat, const struct link_hdr *hdr, struct reader *body)
{
	switch (hdr->type) {
	case LINK_FILL_OPEN:
		return fill_open(ways, link, seat);
	case LINK_FILL_CLOSE:
		return fill_closes(ways, link, seat);
	case LINK_FILL_JOIN:
		return fill_joins(ways, link, hdr->session, body);
	case LINK_POUR:
		return pour_begin(ways, link, seat, body);
	case LINK_POUR_END:
		return pour_ends(ways, link, seat, body);
	default:
		return -ENOENT;
	}
}

void ways_seat_left(struct ways *ways, struct seat *seat)
{
	struct way *way = way_find(ways, seat, false);

	if (way)
		way_pour_end(way);
	way = way_find(ways, seat, true);
	if (!way)
		return;
	seat_fill_set(seat, NULL);
	way->seat = NULL;
	fill_end(way->fill);
}

void ways_link_lost(struct ways *ways, const struct link *link, const char *why)
{
	for (struct way *way = ways->first; way; way = way->next)
		if (way->fill)
			fill_link_lost(way->fill, link, why);
}

struct ways *ways_new(struct loop *loop, const struct link_setting *setting, struct cache *const *cache)
{
	struct ways *ways = calloc(1, sizeof(*ways));

	if (ways)
		*ways = (struct ways){ .loop = loop, .setting = setting, .cache = cache };
	return ways;
}

bool ways_are_gone(const struct ways *ways)
{
	return !ways->first;
}

void ways_free(struct ways *ways)
{
	assert(!ways || !ways->first);
	free(ways);
}
