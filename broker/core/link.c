/* SPDX-License-Identifier: Apache-2.0 */
/* A link between a broker and a node. Control thread, but for the table of mirrors; see link.h. */
#include "broker/core/link_private.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/lib/clock.h"
#include "broker/lib/fd.h"
#include "broker/lib/log.h"

#define LINK_PING_NS (NS_PER_S / 2) /* schedulers look at the RTT; a shorter keepalive asks more often */
#define LINK_MEASURE_SIZE (1u << 20) /* bytes; less says more about the round trip than about the link */

/* ---- messages ---- */

void link_send(struct link *link, enum link_msg type, uint32_t session, const void *head, size_t head_size,
	       const void *body, size_t body_size)
{
	uint8_t bytes[sizeof(struct link_hdr) + 1024];
	struct link_hdr hdr = {
		.size = (uint32_t)(sizeof(hdr) + head_size + body_size),
		.type = (uint16_t)type,
		.session = session,
	};

	if (link->state == LINK_LOST || !link->command)
		return;
	assert(hdr.size <= LINK_COMMAND_MAX && head_size <= sizeof(bytes) - sizeof(hdr));
	memcpy(bytes, &hdr, sizeof(hdr));
	if (head_size)
		memcpy(bytes + sizeof(hdr), head, head_size);
	conn_send(link->command, bytes, sizeof(hdr) + head_size, body, body_size);
}

size_t link_backlog(const struct link *link)
{
	return link->command ? conn_backlog(link->command) : 0;
}

int link_blame(struct link *link, int err, const char *format, ...)
{
	char why[CONN_WHY_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	return link->command ? conn_blame(link->command, err, "%s", why) : err;
}

/* What may be sent at once: beyond the window it would wait for a round trip, and tell of that. */
static uint32_t probe_size(const struct link *link)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	uint64_t most;

	if (getsockopt(conn_fd(link->command), IPPROTO_TCP, TCP_INFO, &info, &size) < 0 || info.tcpi_snd_cwnd < 4 || info.tcpi_unacked)
		return 0;
	most = (uint64_t)(info.tcpi_snd_cwnd - 2) * info.tcpi_snd_mss;
	return most < PINGS_PADDING ? (uint32_t)most & ~7u : PINGS_PADDING;
}

static int link_ping(struct link *link, const struct link_hdr *hdr, struct reader *body)
{
	uint64_t stamp = get_u64(body);
	uint64_t now = clock_ns();

	if (body->fault)
		return -EPROTO;
	if (hdr->type == LINK_PING) {
		link_send(link, LINK_PONG, 0, &stamp, sizeof(stamp), NULL, 0);
	} else if (stamp < now && (stamp & 1)) {
		pings_padded(&link->pings, now - stamp, link->padding_sent);
	} else if (stamp < now) {
		/* A stamp of ours that comes back; a forged one spoils only what we say of this peer. */
		pings_small(&link->pings, now - stamp);
		/* The first ones follow each other: programs are placed by the least of some, and one alone may have waited for a core. */
		if (link->state == LINK_IS_READY && link->pings.small_count < PINGS_KEPT) {
			stamp = now & ~1ull;
			link_send(link, LINK_PING, 0, &stamp, sizeof(stamp), NULL, 0);
			return 0;
		}
		/* Not both at once: they would share a TLS record, which is opened when its last byte has come. */
		if (link->state == LINK_IS_READY && link->probe_due) {
			static const uint8_t padding[PINGS_PADDING];

			link->probe_due = false;
			link->padding_sent = probe_size(link);
			stamp = now | 1;
			if (link->padding_sent)
				link_send(link, LINK_PING, 0, &stamp, sizeof(stamp), padding, link->padding_sent);
		}
	}
	return 0;
}

static int command_message(struct link *link)
{
	const struct link_hdr *hdr = &link->hdr;
	struct reader body = reader_on(link->body, hdr->size - sizeof(*hdr));
	int err;

	if (hdr->type == LINK_PING || hdr->type == LINK_PONG)
		err = link_ping(link, hdr, &body);
	else
		err = link->ops->message(link->owner, link, hdr, &body);
	if (err)
		return link_blame(link, err, "message %u of %u bytes: %s", hdr->type, hdr->size, strerror(-err));
	link->in_body = false;
	conn_want(link->command, &link->hdr, sizeof(link->hdr));
	return 0;
}

static int command_part(void *owner)
{
	struct link *link = owner;
	const struct link_hdr *hdr = &link->hdr;

	if (link->in_body)
		return command_message(link);
	if (hdr->size < sizeof(*hdr) || hdr->size > LINK_COMMAND_MAX || hdr->flags || hdr->reserved)
		return link_blame(link, -EPROTO, "not a message: type %u, %u bytes, flags %#x", hdr->type, hdr->size, hdr->flags);
	if (hdr->size == sizeof(*hdr))
		return command_message(link);
	link->in_body = true;
	conn_want(link->command, link->body, hdr->size - sizeof(*hdr));
	return 0;
}

static void command_drained(void *owner)
{
	struct link *link = owner;

	if (link->ops->drained)
		link->ops->drained(link->owner, link);
}

static void command_closed(void *owner, int err, const char *why)
{
	struct link *link = owner;

	link_lose(link, err, why);
	conn_free(link->command);
	link->command = NULL;
	link_tell(link);
}

static const struct conn_ops command_ops = {
	.up = link_conn_up, .part = command_part, .drained = command_drained, .closed = command_closed,
};

/* ---- the mirrors ---- */

void link_mirror_add(struct link *link, struct mirror *mirror)
{
	struct mirror **bucket = &link->table[mirror->id % LINK_BUCKETS];

	pthread_mutex_lock(&link->table_lock);
	mirror->next = *bucket;
	*bucket = mirror;
	pthread_mutex_unlock(&link->table_lock);
}

void link_mirror_remove(struct link *link, struct mirror *mirror)
{
	pthread_mutex_lock(&link->table_lock);
	for (struct mirror **at = &link->table[mirror->id % LINK_BUCKETS]; *at; at = &(*at)->next) {
		if (*at == mirror) {
			*at = mirror->next;
			break;
		}
	}
	pthread_mutex_unlock(&link->table_lock);
}

struct mirror *link_mirror_get(struct link *link, uint32_t session)
{
	struct mirror *mirror;

	pthread_mutex_lock(&link->table_lock);
	for (mirror = link->table[session % LINK_BUCKETS]; mirror && mirror->id != session; mirror = mirror->next)
		;
	if (mirror)
		mirror_get(mirror);
	pthread_mutex_unlock(&link->table_lock);
	return mirror;
}

bool link_is_loopback(const struct link *link)
{
	struct sockaddr_storage address = { 0 };
	socklen_t size = sizeof(address);

	return link->command && getpeername(conn_fd(link->command), (struct sockaddr *)&address, &size) == 0 &&
	       address_is_loopback((struct sockaddr *)&address);
}

/* ---- life ---- */

void link_look(struct link *link)
{
	if (link->state != LINK_OPENING || !link->command || link->lanes_up < link->hello.lanes)
		return;
	link->state = LINK_IS_READY;
	if (link->ops->ready)
		link->ops->ready(link->owner, link);
}

static void link_tick(void *arg)
{
	struct link *link = arg;
	uint64_t now = loop_now_ns(link->loop);
	uint64_t stamp = clock_ns() & ~1ull;
	uint64_t rate;

	if (link->state == LINK_LOST || !link->command)
		return;
	if (now - conn_heard_ns(link->command) > link->setting.keepalive_ns) {
		char why[CONN_WHY_SIZE];

		snprintf(why, sizeof(why), "nothing heard for %.1f s",
			 (double)(now - conn_heard_ns(link->command)) / (double)NS_PER_S);
		link_lose(link, -ETIMEDOUT, why);
		return;
	}
	rate = link_rate(link, &link->mark, LINK_MEASURE_SIZE);
	if (rate)
		link->bandwidth = link->bandwidth ? link->bandwidth / 2 + rate / 2 : rate;
	if (!link->node) {
		link->probe_due = true;
		link_send(link, LINK_PING, 0, &stamp, sizeof(stamp), NULL, 0);
	}

	uint64_t pause = link->setting.keepalive_ns / 4;

	loop_timer_set(link->loop, &link->tick, now + (pause < LINK_PING_NS ? pause : LINK_PING_NS));
}

static struct link *link_new(struct loop *loop, const struct link_setting *setting, const struct link_ops *ops, void *owner)
{
	struct link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->body = malloc(LINK_COMMAND_MAX);
	if (!link->body) {
		free(link);
		return NULL;
	}
	link->loop = loop;
	link->setting = *setting;
	link->ops = ops;
	link->owner = owner;
	link->tick.fire = link_tick;
	link->tick.arg = link;
	pthread_mutex_init(&link->table_lock, NULL);
	for (unsigned i = 0; i < LINK_LANES_MAX; i++)
		link->lanes[i] = (struct link_lane){ .link = link, .number = i + 1, .fd = -1 };
	return link;
}

static void link_command_take(struct link *link, struct conn *conn)
{
	link_socket_tune(conn_fd(conn), link->setting.keepalive_ns);
	/* Others (bbr) would spread a probe's bytes over time by what they think of the path. */
	setsockopt(conn_fd(conn), IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic"));
	link->command = conn;
	snprintf(link->tenant, sizeof(link->tenant), "%s", conn_tenant(conn));
	conn_give(conn, &command_ops, link);
	conn_want(conn, &link->hdr, sizeof(link->hdr));
	loop_timer_set(link->loop, &link->tick, loop_now_ns(link->loop));
}

static void command_hello_done(void *owner, struct hello *hello, const struct hello_info *theirs)
{
	struct link *link = owner;

	link->greeting = NULL;
	link->pending--;
	link->hello.lz4 = link->hello.lz4 && theirs->lz4;
	snprintf(link->host, sizeof(link->host), "%s", theirs->host);
	link_command_take(link, hello_take(hello));
	for (unsigned i = 0; i < link->hello.lanes && link->state != LINK_LOST; i++)
		link_lane_begin(&link->lanes[i]);
}

static void command_hello_failed(void *owner, struct hello *hello, int err, const char *why)
{
	struct link *link = owner;

	link->greeting = NULL;
	link->pending--;
	link_lose(link, err, why);
	link_tell(link);
}

struct link *link_connect(struct loop *loop, int fd, const struct link_setting *setting, const struct link_ops *ops,
			  void *owner)
{
	static const struct hello_ops hello_ops = { .done = command_hello_done, .failed = command_hello_failed };
	struct link *link = link_new(loop, setting, ops, owner);

	if (!link)
		goto close_fd;
	peer_text(fd, link->peer);
	link->address_size = sizeof(link->address);
	if (getpeername(fd, (struct sockaddr *)&link->address, &link->address_size) < 0 ||
	    getrandom(link->hello.id, sizeof(link->hello.id), 0) != (ssize_t)sizeof(link->hello.id))
		goto free_link;
	link->hello.lanes = setting->lanes;
	link->hello.lz4 = setting->compress;
	hello_host(link->hello.host);
	link->greeting = hello_new(loop, fd, setting->keys, &link->hello, &hello_ops, link);
	if (!link->greeting) {
		fd = -1;
		goto free_link;
	}
	link->pending++;
	return link;

free_link:
	pthread_mutex_destroy(&link->table_lock);
	free(link->body);
	free(link);
close_fd:
	fd_close(&fd);
	return NULL;
}

static void orphan_closed(void *owner, int err, const char *why)
{
	conn_free(owner);
}

struct link *link_accept(struct loop *loop, struct conn *conn, const struct hello_info *hello,
			 const struct link_setting *setting, const struct link_ops *ops, void *owner)
{
	static const struct conn_ops orphan_ops = { .up = link_conn_up, .part = link_conn_part, .closed = orphan_closed };
	struct link *link = link_new(loop, setting, ops, owner);

	if (!link) {
		conn_give(conn, &orphan_ops, conn);
		conn_close(conn, -ENOMEM, "out of memory");
		return NULL;
	}
	link->node = true;
	link->hello = *hello;
	link->hello.lz4 = hello->lz4 && setting->compress;
	peer_text(conn_fd(conn), link->peer);
	snprintf(link->host, sizeof(link->host), "%s", hello->host);
	link_command_take(link, conn);
	hello_answer(conn, &link->hello);
	return link;
}

static void link_told(struct loop_post *post)
{
	struct link *link = (struct link *)((char *)post - offsetof(struct link, post));

	link->ops->lost(link->owner, link, link->err, link->why);
}

void link_tell(struct link *link)
{
	if (link->state != LINK_LOST || link->command || link->pending || link->told)
		return;
	link->told = true;
	link->post.run = link_told;
	loop_post(link->loop, &link->post);
}

void link_lose(struct link *link, int err, const char *why)
{
	if (link->state == LINK_LOST)
		return;
	link->state = LINK_LOST;
	link->err = err;
	snprintf(link->why, sizeof(link->why), "%s", why && *why ? why : strerror(-err));
	loop_timer_clear(link->loop, &link->tick);
	if (link->greeting)
		hello_abandon(link->greeting);
	if (link->greeting) {
		/* It ends by itself, and tells nobody. */
		link->greeting = NULL;
		link->pending--;
	}
	if (link->command)
		conn_close(link->command, err, why);
	for (unsigned i = 0; i < LINK_LANES_MAX; i++) {
		struct link_lane *slot = &link->lanes[i];

		if (slot->greeting) {
			hello_abandon(slot->greeting);
			slot->greeting = NULL;
			link->pending--;
		}
		if (slot->fd >= 0)
			shutdown(slot->fd, SHUT_RDWR); /* its connect ends now */
		if (slot->moving)
			conn_close(slot->moving, err, why);
		if (slot->lane)
			lane_stop(slot->lane);
	}
	link_tell(link);
}

void link_close(struct link *link, int err, const char *why)
{
	link_lose(link, err, why);
}

void link_close_flushed(struct link *link, int err, const char *why)
{
	if (link->command && link->state == LINK_IS_READY)
		conn_close_heard(link->command, err, why);
	else
		link_lose(link, err, why);
}

static void link_freed(struct loop_post *post)
{
	struct link *link = (struct link *)((char *)post - offsetof(struct link, post));

	for (unsigned i = 0; i < LINK_LANES_MAX; i++)
		if (link->lanes[i].lane)
			lane_free(link->lanes[i].lane);
	for (unsigned i = 0; i < LINK_BUCKETS; i++)
		assert(!link->table[i]);
	pthread_mutex_destroy(&link->table_lock);
	free(link->body);
	free(link);
}

void link_free(struct link *link)
{
	assert(link->told);
	/* Behind what the lanes' threads have posted: they may have said that they are lost, too. */
	link->post.run = link_freed;
	loop_post(link->loop, &link->post);
}

const uint8_t *link_id(const struct link *link)
{
	return link->hello.id;
}

const char *link_peer(const struct link *link)
{
	return link->peer;
}

const char *link_host(const struct link *link)
{
	return link->host;
}

const char *link_tenant(const struct link *link)
{
	return link->tenant;
}

bool link_is_ready(const struct link *link)
{
	return link->state == LINK_IS_READY;
}

int link_fd(const struct link *link)
{
	return link->command ? conn_fd(link->command) : -1;
}

void link_stats(const struct link *link, struct link_stats *stats_out)
{
	const struct pings *pings = &link->pings;
	struct link_stats stats = { .rtt_mean_ns = pings->rtt_mean_ns, .rtt_low_ns = pings_least(pings), .jitter_ns = pings->jitter_ns,
				    .rtt_ns = pings->rtt_ns, .rtt_min_ns = pings->rtt_min_ns, .lanes = link->lanes_up,
				    .bandwidth = link->bandwidth };

	if (link->command) {
		struct tcp_info info = { 0 };
		socklen_t size = sizeof(info);

		if (getsockopt(conn_fd(link->command), IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
			stats.tcp_rtt_us = info.tcpi_rtt;
			stats.retransmits = info.tcpi_total_retrans;
		}
		stats.sent = conn_sent(link->command);
		stats.received = conn_received(link->command);
		stats.tls = conn_is_tls(link->command);
	}
	for (unsigned i = 0; i < LINK_LANES_MAX; i++) {
		uint64_t sent, received;

		if (!link->lanes[i].lane)
			continue;
		lane_bytes(link->lanes[i].lane, &sent, &received);
		stats.saved += lane_saved(link->lanes[i].lane);
		stats.sent += sent;
		stats.received += received;
	}
	stats.probe_tells = pings_rate(pings, &stats.probe_bandwidth);
	*stats_out = stats;
}
