/* SPDX-License-Identifier: Apache-2.0 */
/* What cache.c (servers) and cache_client.c (pieces) share. */
#ifndef GLEAM_LOCAL_CACHE_PRIVATE_H
#define GLEAM_LOCAL_CACHE_PRIVATE_H

#include "broker/core/jobs.h"
#include "broker/core/link.h"
#include "broker/local/cache.h"
#include "broker/local/seen.h"

struct cfiles;

struct cache_local {
	struct loop *loop;
	enum conf_cache_use use;
	struct jobs *names; /* hashes pieces that wait for it */
	struct cfiles *files;
	uint32_t running; /* jobs that will be posted here */
};

struct cache_server {
	struct cache_local *cache;
	struct link *link; /* NULL: lost */
	bool open;	   /* the node has said its salt */
	bool counted;	   /* stats are valid */
	bool loopback;
	uint8_t salt[CACHE_SALT_SIZE];
	struct held held;
	struct cache_stats stats;
	struct cache_ask *asks;
	uint32_t ask_id;
	/* how fast the link is */
	uint64_t rate; /* bytes a second; 0: nobody knows */
	uint64_t rate_ns;
	struct link_mark rate_mark;
	struct seen seen; /* what wasn't kept at first sight */
};

/* Whether names are worth their making on the way to this server. */
bool cache_pays(struct cache_server *server, enum conf_cache_use use);
/* Whether bytes of that fingerprint, which the node doesn't hold, are to be kept there although this is the first time. */
bool cache_keeps(struct cache_server *server, enum conf_cache_use use, uint32_t print, uint32_t size);

#endif
