/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bulk lanes of a link, until each has a thread, and what goes over them. Control thread; see link_private.h.
 */
#include "broker/core/link_private.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/lane_choice.h"
#include "broker/lib/clock.h"

void link_socket_tune(int fd, uint64_t keepalive_ns)
{
	int on = 1;
	int idle = (int)(keepalive_ns / NS_PER_S / 3);
	int count = 3;
	unsigned user_ms = (unsigned)(keepalive_ns / NS_PER_MS);

	if (idle < 1)
		idle = 1;
	/* Lanes have no messages of their own that would show a dead peer. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

/* ---- what goes over them ---- */

void link_bulk(struct link *link, struct mirror *mirror, struct bulk_item *item)
{
	struct lane_load loads[LINK_LANES_MAX];
	unsigned count = link->hello.lanes;
	uint64_t now = loop_now_ns(link->loop);
	unsigned at;

	for (unsigned i = 0; i < count; i++) {
		struct lane *lane = link->lanes[i].lane;

		loads[i] = (struct lane_load){ .queued = lane ? lane_queued(lane) : UINT64_MAX, .busy_ns = link->lanes[i].busy_ns };
	}
	/* For the host somebody waits. Streams, as uploads are, are to have all lanes, also while their program still copies. */
	at = link->node && item->size <= LANE_AWAITED_MAX ? lane_idle(loads, count, now) : count;
	if (at == count)
		at = lane_least(loads, count, link->turn++);
	if (at == count || link->state == LINK_LOST) {
		free(item); /* the link's end tells the sessions */
		return;
	}
	link->lanes[at].busy_ns = lane_busy(link->lanes[at].busy_ns, now, item->size);
	lane_bulk(link->lanes[at].lane, mirror, item);
}

/*
 * What its lanes have delivered together, over the time in which the busiest of them had something to deliver: pieces of a copy go over all of
 * them at once, and each has its part of the link.
 */
uint64_t link_rate(const struct link *link, struct link_mark *mark, uint64_t least)
{
	uint64_t bytes = 0, busy_us = 0;
	struct link_mark now = { 0 };

	for (unsigned i = 0; i < LINK_LANES_MAX; i++) {
		if (!link->lanes[i].lane)
			continue;
		lane_delivered(link->lanes[i].lane, &now.acked[i], &now.busy_us[i]);
		bytes += now.acked[i] - mark->acked[i];
		if (now.busy_us[i] - mark->busy_us[i] > busy_us)
			busy_us = now.busy_us[i] - mark->busy_us[i];
	}
	if (bytes < least || busy_us == 0)
		return 0;
	*mark = now;
	return bytes * 1000000 / busy_us;
}

/* ---- connecting ---- */

static struct mirror *lane_mirror(struct link *link, uint32_t session)
{
	struct mirror *mirror = link_mirror_get(link, session);

	if (!mirror || __atomic_load_n(&mirror->live, __ATOMIC_ACQUIRE))
		return mirror;
	mirror_put(mirror);
	return NULL;
}

static void lane_was_lost(struct link *link, struct lane *lane, int err, const char *why)
{
	link_lose(link, err, why);
}

/* Nothing of the lane's connection is in flight on the control thread: its own thread takes over. */
static void lane_quiet(void *owner)
{
	static const struct lane_ops lane_ops = { .mirror = lane_mirror, .lost = lane_was_lost };
	struct link_lane *slot = owner;
	struct link *link = slot->link;
	struct conn *conn = slot->moving;
	int err = 0;

	slot->moving = NULL;
	link->pending--;
	if (link->state == LINK_LOST) {
		conn_free(conn);
		link_tell(link);
		return;
	}
	slot->lane = lane_start(link->loop, link, &lane_ops, conn, link->node, &slot->hello, &err);
	if (!slot->lane) {
		link_lose(link, err, "can't start a thread for a bulk lane");
		return;
	}
	link->lanes_up++;
	link_look(link);
}

static void lane_moving_closed(void *owner, int err, const char *why)
{
	struct link_lane *slot = owner;
	struct link *link = slot->link;

	link_lose(link, err, why);
	conn_free(slot->moving);
	slot->moving = NULL;
	link->pending--;
	link_tell(link);
}

void link_conn_up(void *owner)
{
}

int link_conn_part(void *owner)
{
	return -EPROTO;
}

static void lane_move(struct link_lane *slot, struct conn *conn)
{
	static const struct conn_ops moving_ops = { .up = link_conn_up, .part = link_conn_part, .closed = lane_moving_closed };

	link_socket_tune(conn_fd(conn), slot->link->setting.keepalive_ns);
	slot->moving = conn;
	slot->link->pending++;
	conn_give(conn, &moving_ops, slot);
	conn_move(conn, lane_quiet);
}

bool link_lane_fits(const struct link *link, const struct hello_info *hello)
{
	return link->state != LINK_LOST && hello->lane >= 1 && hello->lane <= link->hello.lanes &&
	       hello->lanes == link->hello.lanes && !link->lanes[hello->lane - 1].lane &&
	       !link->lanes[hello->lane - 1].moving;
}

void link_lane_take(struct link *link, struct conn *conn, const struct hello_info *hello)
{
	struct link_lane *slot = &link->lanes[hello->lane - 1];

	slot->hello = *hello;
	slot->hello.lz4 = hello->lz4 && link->setting.compress;
	lane_move(slot, conn);
}

static void lane_hello_done(void *owner, struct hello *hello, const struct hello_info *theirs)
{
	struct link_lane *slot = owner;

	slot->greeting = NULL;
	slot->link->pending--;
	lane_move(slot, hello_take(hello));
}

static void lane_hello_failed(void *owner, struct hello *hello, int err, const char *why)
{
	struct link_lane *slot = owner;

	slot->greeting = NULL;
	slot->link->pending--;
	link_lose(slot->link, err, why);
	link_tell(slot->link);
}

static void lane_connected(void *arg, int res, uint32_t flags)
{
	static const struct hello_ops hello_ops = { .done = lane_hello_done, .failed = lane_hello_failed };
	struct link_lane *slot = arg;
	struct link *link = slot->link;
	int fd = slot->fd;

	slot->fd = -1;
	if (res < 0 || link->state == LINK_LOST) {
		close(fd);
		link->pending--;
		if (res < 0)
			link_lose(link, res, strerror(-res));
		link_tell(link);
		return;
	}
	slot->greeting = hello_new(link->loop, fd, link->setting.keys, &slot->hello, &hello_ops, slot);
	if (!slot->greeting) {
		link->pending--;
		link_lose(link, -ENOMEM, "out of memory");
		link_tell(link);
	}
}

void link_lane_begin(struct link_lane *slot)
{
	struct link *link = slot->link;
	struct io_uring_sqe *sqe;

	slot->hello = link->hello;
	slot->hello.lane = slot->number;
	slot->fd = socket(link->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (slot->fd < 0) {
		link_lose(link, -errno, strerror(errno));
		return;
	}
	sqe = loop_sqe(link->loop);
	io_uring_prep_connect(sqe, slot->fd, (struct sockaddr *)&link->address, link->address_size);
	loop_tag(link->loop, sqe, lane_connected, slot);
	link->pending++;
}
