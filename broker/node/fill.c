/* SPDX-License-Identifier: Apache-2.0 */
/* A session that another node fills. Control thread; see fill.h. */
#include "broker/node/fill.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "broker/core/mirror.h"
#include "broker/lib/clock.h"
#include "broker/lib/key.h"
#include "broker/lib/log.h"

#define FILL_CLOSE_NS NS_PER_S /* for a piece that is coming; all that was announced has come before */

struct fill {
	struct mirror mirror; /* first: the seat's memory, as the other node's link has it */
	struct loop *loop;
	const struct fill_ops *ops;
	void *owner;
	bool ended;  /* the owner wants to hear nothing */
	bool closed; /* nobody can join, and nothing new can come */
	struct mirror *seat;
	uint8_t token[FILL_TOKEN_SIZE];
	char tenant[KEY_TENANT_SIZE];
	struct link *link; /* of whoever fills it; NULL: nobody does */
	int err;
	char why[CONN_WHY_SIZE];
	struct loop_timer late;
	struct loop_post post;
};

/* No lane holds it any more. */
static void fill_freed(struct loop_post *post)
{
	struct fill *fill = (struct fill *)((char *)post - offsetof(struct fill, post));

	loop_timer_clear(fill->loop, &fill->late);
	if (!fill->ended)
		fill->ops->closed(fill->owner, fill, fill->err, fill->why);
	fill->ops->freed(fill->owner, fill);
	mirror_put(fill->seat);
	free(fill);
}

/* Any thread. */
static void fill_mirror_free(struct mirror *mirror)
{
	struct fill *fill = (struct fill *)mirror;

	fill->post.run = fill_freed;
	loop_post(fill->loop, &fill->post);
}

static void fill_late(void *arg)
{
	struct fill *fill = arg;

	if (!fill->link)
		return;
	log_warn("%s: a piece for a session that has moved here doesn't come to its end: the link is closed", link_peer(fill->link));
	link_close(fill->link, -EPROTO, "half a piece of a session whose move is over");
}

struct fill *fill_new(struct loop *loop, struct mirror *seat, const char *tenant, const struct fill_ops *ops, void *owner)
{
	struct fill *fill = calloc(1, sizeof(*fill));

	if (!fill || getrandom(fill->token, sizeof(fill->token), 0) != (ssize_t)sizeof(fill->token)) {
		free(fill);
		return NULL;
	}
	mirror_init(&fill->mirror);
	fill->mirror.free = fill_mirror_free;
	fill->mirror.depot = true;
	fill->mirror.fill = true;
	fill->mirror.off = seat->off;
	fill->mirror.shm = seat->shm;
	fill->mirror.origins = seat->origins;
	fill->mirror.live = true;
	fill->loop = loop;
	fill->ops = ops;
	fill->owner = owner;
	fill->seat = seat;
	mirror_get(seat);
	snprintf(fill->tenant, sizeof(fill->tenant), "%s", tenant);
	fill->late.fire = fill_late;
	fill->late.arg = fill;
	return fill;
}

const uint8_t *fill_token(const struct fill *fill)
{
	return fill->token;
}

bool fill_is(const struct fill *fill, const uint8_t token[FILL_TOKEN_SIZE], const char *tenant)
{
	return memcmp(fill->token, token, FILL_TOKEN_SIZE) == 0 && strcmp(fill->tenant, tenant) == 0;
}

int fill_join(struct fill *fill, struct link *link, uint32_t id)
{
	struct mirror *taken = link_mirror_get(link, id);

	if (taken)
		mirror_put(taken);
	if (taken || id == 0)
		return -EPROTO;
	if (fill->closed || fill->link)
		return -EBUSY;
	fill->link = link;
	fill->mirror.id = id;
	link_mirror_add(link, &fill->mirror);
	return 0;
}

void fill_consumed(struct fill *fill, uint64_t tail)
{
	if (fill->link && !fill->closed)
		link_send(fill->link, LINK_FILL_CONSUMED, fill->mirror.id, &tail, sizeof(tail), NULL, 0);
}

static void fill_shut(struct fill *fill, int err, const char *why)
{
	if (fill->closed)
		return;
	fill->closed = true;
	fill->err = err;
	snprintf(fill->why, sizeof(fill->why), "%s", why);
	__atomic_store_n(&fill->mirror.dead, true, __ATOMIC_RELEASE);
	if (fill->link) {
		link_mirror_remove(fill->link, &fill->mirror);
		loop_timer_set(fill->loop, &fill->late, loop_now_ns(fill->loop) + FILL_CLOSE_NS);
	}
	mirror_put(&fill->mirror); /* ours, from the start */
}

void fill_close(struct fill *fill)
{
	fill_shut(fill, 0, "");
}

void fill_link_lost(struct fill *fill, const struct link *link, const char *why)
{
	if (fill->link != link)
		return;
	if (!fill->closed)
		link_mirror_remove(fill->link, &fill->mirror);
	fill->link = NULL;
	fill_shut(fill, -ECONNRESET, why);
}

void fill_end(struct fill *fill)
{
	fill->ended = true;
	fill_shut(fill, -ECANCELED, "the session is gone");
}
