/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file on its way into a server's cache before anybody loads it: its chunks are read and named one after the other, and those
 * that the node lacks are sent through a session that has no worker (LINK_CACHE_DEPOT). Control thread.
 */
#ifndef GLEAM_LOCAL_PREFETCH_H
#define GLEAM_LOCAL_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct broker;
struct prefetch;
struct server;

struct prefetch_view {
	uint64_t size;
	uint64_t done; /* bytes that the server holds */
	uint64_t sent; /* of these: that it lacked */
	bool over;
	int err; /* over: 0, or why not; -ENOTCONN: the link is lost, -ENOSPC: the server doesn't keep them */
};

/* Takes @fd. NULL and -errno: not a plain file that can be read, no link, no cache there, out of memory. */
struct prefetch *prefetch_start(struct broker *broker, struct server *server, uid_t uid, int fd, int *err_out);
void prefetch_look(const struct prefetch *prefetch, struct prefetch_view *view_out);
/* Ends it, if it isn't over. The owner forgets it. */
void prefetch_end(struct prefetch *prefetch);

/* The link of @server is lost; called for every server. */
void prefetch_link_lost(struct server *server);
/* All that were begun have ended, what lanes hold included. */
bool prefetch_is_idle(void);
/* The daemon stops. */
void prefetch_stop(void);

#endif
