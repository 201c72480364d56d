/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of the configuration and the one link to its node, which all clients of this machine share. Control thread.
 *
 * The link is opened when somebody wants it; once it was up it is opened again by itself, with growing pauses.
 */
#ifndef GLEAM_LOCAL_SERVER_H
#define GLEAM_LOCAL_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/lib/conf.h"
#include "broker/proto/stats.h"

struct cache_local;
struct cache_server;
struct server;

/* Somebody who waits for the link. */
struct server_waiter {
	struct server_waiter *next;
	/* @err 0: the link is ready. Called once, from the loop or from within server_want(). */
	void (*done)(struct server_waiter *waiter, struct server *server, int err, const char *why);
	bool waiting;
};

struct server_ops {
	/* A message for a session of this server. -errno: a breach, the link ends. */
	int (*message)(void *owner, struct server *server, const struct link_hdr *hdr, struct reader *body);
	/* server_report() is new; may be NULL. */
	void (*reported)(void *owner, struct server *server);
	/* The link is gone: every session on it must leave it, now. */
	void (*lost)(void *owner, struct server *server, const char *why);
};

struct server *server_new(struct loop *loop, const struct conf_server *conf, const struct link_setting *setting,
			  struct cache_local *cache, const struct server_ops *ops, void *owner);
/* No link any more and no retry; server_is_stopped() tells when it has ended. */
void server_stop(struct server *server);
bool server_is_stopped(const struct server *server);
void server_free(struct server *server);

void server_want(struct server *server, struct server_waiter *waiter);
void server_want_forget(struct server *server, struct server_waiter *waiter);
/* A session that waits at the node for its link needs it no more: the node is told when there is a link. A few are remembered. */
void server_orphan(struct server *server, const uint8_t token[RESUME_TOKEN_SIZE]);
/* A session has ended and its node was told over the link. Should that be lost just then, it is told again. */
void server_left(struct server *server, const uint8_t token[RESUME_TOKEN_SIZE]);
/* It is found there now (DNS-SD). Only for one that has no link; tries at once. */
void server_moved(struct server *server, const char *address);
/* Opens the link if it isn't, for nobody in particular: whoever looks at servers wants to see their load. */
void server_wake(struct server *server);

struct link *server_link(const struct server *server); /* NULL while there is none that is ready */
const char *server_name(const struct server *server);
const char *server_address(const struct server *server);
const char *server_state(const struct server *server); /* idle, connecting, ready, unreachable */
const char *server_why(const struct server *server);   /* of the last failure; "" when it is ready */
/* When it failed last, 0 if it hasn't since it was ready. */
uint64_t server_failed_ns(const struct server *server);
/* When its link was up last: now, if it is; 0: never. */
uint64_t server_up_ns(const struct server *server);
/* When its last report came; 0: none has. */
uint64_t server_told_ns(const struct server *server);
/* Nobody has tried it yet, or the first try is under way. */
bool server_is_new(const struct server *server);
struct cache_server *server_cache(const struct server *server);
/* NULL: none yet. */
const struct report *server_report(const struct server *server);

#endif
