/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight cache at the broker: what each server's node holds, which pieces of programs' uploads go as references to that
 * instead of bytes, and the files that programs load from. Control thread.
 */
#ifndef GLEAM_LOCAL_CACHE_H
#define GLEAM_LOCAL_CACHE_H

#include "broker/core/held.h"
#include "broker/core/link.h"
#include "broker/core/mirror.h"
#include "broker/lib/conf.h"
#include "broker/local/sched_profile.h"
#include "broker/proto/stats.h"

struct cache_client;
struct cache_local;
struct cache_server;
struct client;

/* NULL: out of memory. */
struct cache_local *cache_local_new(struct loop *loop, const struct conf *conf);
void cache_local_stop(struct cache_local *cache);
bool cache_local_is_idle(const struct cache_local *cache);
void cache_local_free(struct cache_local *cache);
enum conf_cache_use cache_local_use(const struct cache_local *cache);
struct cfiles *cache_local_files(const struct cache_local *cache);

/* ---- servers ---- */

struct cache_server *cache_server_new(struct cache_local *cache);
void cache_server_free(struct cache_server *server);
void cache_server_ready(struct cache_server *server, struct link *link);
void cache_server_lost(struct cache_server *server);
/* A message of the link itself. -ENOENT: none of the cache's. */
int cache_server_message(struct cache_server *server, const struct link_hdr *hdr, struct reader *body);
/* What the node holds of ours; empty while there is no link. */
const struct held *cache_server_held(const struct cache_server *server);
/* NULL: the node keeps no cache for us, or there is no link. */
const struct cache_stats *cache_server_stats(const struct cache_server *server);
const uint8_t *cache_server_salt(const struct cache_server *server); /* NULL likewise */

/* A command for the node: answer() once, from the loop; the link's end is an answer, too (-ENOTCONN). */
struct cache_ask {
	struct cache_ask *next;
	void (*answer)(struct cache_ask *ask, int err, uint64_t value);
	uint32_t id;
};
/* -ENOTCONN: answer() won't be called. */
int cache_server_ask(struct cache_server *server, enum cache_do what, const uint8_t head[CACHE_HEAD_SIZE], struct cache_ask *ask);
/* Nobody waits for the answer any more. */
void cache_server_ask_forget(struct cache_server *server, struct cache_ask *ask);

/* ---- clients ---- */

/* NULL: out of memory; then nothing of it is cached. @use: what the program's environment says, or the configuration. */
struct cache_client *cache_client_new(struct cache_local *cache, struct client *client, enum conf_cache_use use, uid_t uid);
void cache_client_free(struct cache_client *cc);
/* It leaves its link: what is being hashed is not sent any more. */
void cache_client_left(struct cache_client *cc);
/* A piece has been seen in the client's ring. -EPROTO: what it says of a file can't be. */
int cache_client_piece(struct cache_client *cc, const struct bulk_ref *ref, const struct bulk_file *file);
/*
 * A piece on its way to @server. True: @item was taken, and goes as a reference or later. False: it goes by a lane, as it is.
 */
bool cache_client_send(struct cache_client *cc, struct cache_server *server, struct link *link, struct mirror *mirror,
		       struct bulk_item *item);
/* LINK_BULK_BAD: a reference that can't be served. */
int cache_client_bad(struct cache_client *cc, struct cache_server *server, struct link *link, struct mirror *mirror,
		     struct reader *body);
/* LOCAL_FILE. Takes @fd (-1: none). -EPROTO: nonsense. */
int cache_client_file(struct cache_client *cc, struct cache_server *server, uint32_t number, int fd);

struct cache_counts {
	uint64_t hits;	 /* pieces that went as references */
	uint64_t misses; /* pieces whose bytes went and were to be kept */
	uint64_t saved;	 /* bytes */
	/* For the scheduler: bytes of pieces that a node may hold, and of these the ones with the least fingerprints. */
	uint64_t bytes;
	struct sched_sample samples[SCHED_SAMPLES];
	uint32_t sample_count;
};
const struct cache_counts *cache_client_counts(const struct cache_client *cc);

#endif
