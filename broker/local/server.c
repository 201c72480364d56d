/* SPDX-License-Identifier: Apache-2.0 */
/* A server and its link. Control thread; see server.h. */
#include "broker/local/server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/core/address.h"
#include "broker/core/dial.h"
#include "broker/lib/clock.h"
#include "broker/lib/log.h"
#include "broker/local/cache.h"

#define SERVER_RETRY_MIN (250 * NS_PER_MS)
#define SERVER_RETRY_MAX (16 * NS_PER_S)
#define SERVER_REPORT_MS 500u
#define SERVER_ORPHANS	 64u /* the node finds out by itself about others, after its grace time */
#define SERVER_LEFT_NS	 (30 * NS_PER_S) /* a link that carries nothing any more is given up before */

/*
 * IDLE: nobody has wanted it. DIALLING, OPENING: on the way to a link. READY: link is up. WAITING: failed or lost; tries again
 * after a pause, or at once for a waiter. STOPPED: as told.
 */
enum server_state_id { SERVER_IDLE, SERVER_DIALLING, SERVER_OPENING, SERVER_READY, SERVER_WAITING, SERVER_STOPPED };

struct server {
	struct loop *loop;
	struct conf_server conf;
	const struct link_setting *setting;
	const struct server_ops *ops;
	void *owner;
	enum server_state_id state;
	struct dial *dial;
	struct cache_server *cache;
	struct link *link; /* OPENING and later; also after STOPPED until it has ended */
	struct server_waiter *waiters;
	uint64_t retry_ns;
	uint64_t failed_ns;
	uint64_t up_ns; /* when a link that was up ended */
	struct loop_timer retry;
	bool logged; /* the failure has been logged: repeats aren't */
	bool reported;
	struct report report;
	uint8_t orphans[SERVER_ORPHANS][RESUME_TOKEN_SIZE];
	unsigned orphan_count;
	struct {
		uint8_t token[RESUME_TOKEN_SIZE];
		uint64_t ns;
	} left[SERVER_ORPHANS]; /* the newest of those that ended; a ring */
	unsigned left_count;
	uint64_t told_ns; /* when it came */
	char why[CONN_WHY_SIZE];
};

static void server_dial(struct server *server);

static void server_tell(struct server *server, int err, const char *why)
{
	struct server_waiter *waiter = server->waiters;

	server->waiters = NULL;
	while (waiter) {
		struct server_waiter *next = waiter->next;

		waiter->waiting = false;
		waiter->done(waiter, server, err, why);
		waiter = next;
	}
}

static void server_failed(struct server *server, int err, const char *why)
{
	char copy[CONN_WHY_SIZE];

	if (server->state == SERVER_STOPPED)
		return;
	server->state = SERVER_WAITING;
	server->failed_ns = loop_now_ns(server->loop);
	server->reported = false;
	snprintf(copy, sizeof(copy), "%s", why);
	memcpy(server->why, copy, sizeof(copy));
	if (!server->logged)
		log_warn("server %s: %s", server->conf.name, copy);
	server->logged = true;
	loop_timer_set(server->loop, &server->retry, server->failed_ns + server->retry_ns);
	server->retry_ns = 2 * server->retry_ns < SERVER_RETRY_MAX ? 2 * server->retry_ns : SERVER_RETRY_MAX;
	server_tell(server, err, copy);
}

/* ---- the link ---- */

static void server_ready(void *owner, struct link *link)
{
	struct server *server = owner;
	uint32_t ms = SERVER_REPORT_MS;

	if (server->state != SERVER_OPENING)
		return;
	server->state = SERVER_READY;
	server->retry_ns = SERVER_RETRY_MIN;
	server->failed_ns = 0;
	server->logged = false;
	server->why[0] = 0;
	log_info("server %s: link to %s (%s), %s, %u bulk lanes", server->conf.name, link_peer(link), link_host(link),
		 server->setting->keys ? "TLS" : "CLEARTEXT", server->setting->lanes);
	link_send(link, LINK_REPORT_WANTED, 0, &ms, sizeof(ms), NULL, 0);
	for (unsigned i = 0; i < server->orphan_count; i++)
		link_send(link, LINK_DETACH, 0, server->orphans[i], RESUME_TOKEN_SIZE, NULL, 0);
	server->orphan_count = 0;
	cache_server_ready(server->cache, link);
	server_tell(server, 0, "");
}

static int server_message(void *owner, struct link *link, const struct link_hdr *hdr, struct reader *body)
{
	struct server *server = owner;

	if (hdr->type == LINK_REPORT) {
		if (!report_get(body, &server->report))
			return -EPROTO;
		server->reported = true;
		server->told_ns = loop_now_ns(server->loop);
		if (server->ops->reported)
			server->ops->reported(server->owner, server);
		return 0;
	}
	if (hdr->session == 0) {
		int err = cache_server_message(server->cache, hdr, body);

		if (err != -ENOENT)
			return err;
	}
	return server->ops->message(server->owner, server, hdr, body);
}

/* The node may not have heard of their ends; it takes no harm from hearing twice. */
static void server_left_again(struct server *server)
{
	unsigned count = server->left_count < SERVER_ORPHANS ? server->left_count : SERVER_ORPHANS;

	for (unsigned i = 0; i < count; i++)
		if (server->up_ns - server->left[i].ns < SERVER_LEFT_NS)
			server_orphan(server, server->left[i].token);
	server->left_count = 0;
}

static void server_lost(void *owner, struct link *link, int err, const char *why)
{
	struct server *server = owner;
	bool was_ready = server->state == SERVER_READY;

	if (was_ready) {
		server->state = SERVER_WAITING;
		server->logged = false;
		server->up_ns = loop_now_ns(server->loop);
		server_left_again(server);
	}
	server->ops->lost(server->owner, server, why);
	cache_server_lost(server->cache);
	server->link = NULL;
	link_free(link);
	if (server->state != SERVER_STOPPED)
		server_failed(server, err ? err : -ECONNRESET, why);
}

static const struct link_ops server_link_ops = {
	.ready = server_ready, .message = server_message, .lost = server_lost,
};

static void server_dialled(void *owner, int fd, int err, const char *why)
{
	struct server *server = owner;

	server->dial = NULL;
	if (fd < 0) {
		server_failed(server, err, why);
		return;
	}
	if (!server->setting->keys) {
		struct sockaddr_storage address = { 0 };
		socklen_t size = sizeof(address);

		getpeername(fd, (struct sockaddr *)&address, &size);
		if (!address_is_loopback((struct sockaddr *)&address)) {
			close(fd);
			server_failed(server, -EPERM,
				      "a server that isn't on loopback needs a key: give this daemon the file that `gleamctl key "
				      "new` made for the node, with --key or [key] file");
			return;
		}
	}
	server->state = SERVER_OPENING;
	server->link = link_connect(server->loop, fd, server->setting, &server_link_ops, server);
	if (!server->link)
		server_failed(server, -ENOMEM, "out of memory for a link");
}

static void server_dial(struct server *server)
{
	loop_timer_clear(server->loop, &server->retry);
	server->state = SERVER_DIALLING;
	server->dial = dial_start(server->loop, server->conf.address, server_dialled, server);
	if (!server->dial)
		server_failed(server, -ENOMEM, "out of memory");
}

static void server_retry(void *arg)
{
	struct server *server = arg;

	if (server->state == SERVER_WAITING && !server->link)
		server_dial(server);
}

void server_orphan(struct server *server, const uint8_t token[RESUME_TOKEN_SIZE])
{
	if (server->state == SERVER_READY)
		link_send(server->link, LINK_DETACH, 0, token, RESUME_TOKEN_SIZE, NULL, 0);
	else if (server->orphan_count < SERVER_ORPHANS)
		memcpy(server->orphans[server->orphan_count++], token, RESUME_TOKEN_SIZE);
}

void server_left(struct server *server, const uint8_t token[RESUME_TOKEN_SIZE])
{
	unsigned place = server->left_count++ % SERVER_ORPHANS;

	memcpy(server->left[place].token, token, RESUME_TOKEN_SIZE);
	server->left[place].ns = loop_now_ns(server->loop);
}

void server_moved(struct server *server, const char *address)
{
	if (server->state != SERVER_IDLE && (server->state != SERVER_WAITING || server->link))
		return;
	snprintf(server->conf.address, sizeof(server->conf.address), "%s", address);
	server->retry_ns = SERVER_RETRY_MIN;
	server_dial(server);
}

void server_wake(struct server *server)
{
	if (server->state == SERVER_IDLE)
		server_dial(server);
}

void server_want(struct server *server, struct server_waiter *waiter)
{
	if (server->state == SERVER_READY) {
		waiter->done(waiter, server, 0, "");
		return;
	}
	if (server->state == SERVER_STOPPED) {
		waiter->done(waiter, server, -ESHUTDOWN, "the daemon is being stopped");
		return;
	}
	waiter->next = server->waiters;
	waiter->waiting = true;
	server->waiters = waiter;
	/* Whoever wants it now does not wait for a pause to end. */
	if (server->state == SERVER_IDLE || (server->state == SERVER_WAITING && !server->link))
		server_dial(server);
}

void server_want_forget(struct server *server, struct server_waiter *waiter)
{
	if (!waiter->waiting)
		return;
	waiter->waiting = false;
	for (struct server_waiter **at = &server->waiters; *at; at = &(*at)->next) {
		if (*at == waiter) {
			*at = waiter->next;
			return;
		}
	}
}

/* ---- life ---- */

struct server *server_new(struct loop *loop, const struct conf_server *conf, const struct link_setting *setting,
			  struct cache_local *cache, const struct server_ops *ops, void *owner)
{
	struct server *server = calloc(1, sizeof(*server));

	if (!server)
		return NULL;
	server->cache = cache_server_new(cache);
	if (!server->cache) {
		free(server);
		return NULL;
	}
	server->loop = loop;
	server->conf = *conf;
	server->setting = setting;
	server->ops = ops;
	server->owner = owner;
	server->retry_ns = SERVER_RETRY_MIN;
	server->retry.fire = server_retry;
	server->retry.arg = server;
	return server;
}

void server_stop(struct server *server)
{
	if (server->state == SERVER_STOPPED)
		return;
	server->state = SERVER_STOPPED;
	loop_timer_clear(server->loop, &server->retry);
	if (server->dial)
		dial_abandon(server->dial);
	server->dial = NULL;
	if (server->link)
		link_close_flushed(server->link, -ESHUTDOWN, "this daemon is being stopped");
	server_tell(server, -ESHUTDOWN, "the daemon is being stopped");
}

bool server_is_stopped(const struct server *server)
{
	return server->state == SERVER_STOPPED && !server->link;
}

void server_free(struct server *server)
{
	cache_server_free(server->cache);
	free(server);
}

struct link *server_link(const struct server *server)
{
	return server->state == SERVER_READY ? server->link : NULL;
}

const char *server_name(const struct server *server)
{
	return server->conf.name;
}

const char *server_address(const struct server *server)
{
	return server->conf.address;
}

const char *server_state(const struct server *server)
{
	static const char *const names[] = {
		[SERVER_IDLE] = "idle", [SERVER_DIALLING] = "connecting", [SERVER_OPENING] = "connecting",
		[SERVER_READY] = "ready", [SERVER_WAITING] = "unreachable", [SERVER_STOPPED] = "stopped",
	};

	/* Between two tries it is still what it was. */
	if ((server->state == SERVER_DIALLING || server->state == SERVER_OPENING) && server->failed_ns)
		return names[SERVER_WAITING];
	return names[server->state];
}

const char *server_why(const struct server *server)
{
	return server->why;
}

uint64_t server_failed_ns(const struct server *server)
{
	return server->failed_ns;
}

uint64_t server_up_ns(const struct server *server)
{
	return server->state == SERVER_READY ? loop_now_ns(server->loop) : server->up_ns;
}

uint64_t server_told_ns(const struct server *server)
{
	return server->told_ns;
}

bool server_is_new(const struct server *server)
{
	return server->state == SERVER_IDLE || (!server->failed_ns && server->state != SERVER_READY) ||
	       (server->state == SERVER_READY && !server->reported);
}

struct cache_server *server_cache(const struct server *server)
{
	return server->cache;
}

const struct report *server_report(const struct server *server)
{
	return server->state == SERVER_READY && server->reported ? &server->report : NULL;
}
