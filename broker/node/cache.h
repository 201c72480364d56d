/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight cache at the node, between links and the store: tells brokers what is held, serves pieces that come as
 * references, takes care of depots (sessions without a worker, for prefetching). Control thread.
 */
#ifndef GLEAM_NODE_CACHE_H
#define GLEAM_NODE_CACHE_H

#include "broker/core/link.h"
#include "broker/core/tls.h"
#include "broker/lib/conf.h"

struct cache;
struct cache_peer;
struct shelf;

/* Never fails: without a store there is no cache, and the log says why. @keys as of the node. */
struct cache *cache_start(struct loop *loop, const struct conf *conf, struct tls_keys *keys);
/* Whether everything that it has begun has ended; the last peer has left then. */
bool cache_is_idle(const struct cache *cache);
void cache_free(struct cache *cache);
bool cache_is_on(const struct cache *cache);

/* A tenant's part of the store, and the salt of its names; NULL: there is none. */
struct shelf *cache_shelf(struct cache *cache, const char *tenant, uint8_t salt_out[CACHE_SALT_SIZE]);

/* A link. NULL: out of memory, it has no cache. */
struct cache_peer *cache_peer_new(struct cache *cache, struct link *link);
/* The link is lost. */
void cache_peer_free(struct cache_peer *peer);
/* A message of its own kind; -ENOENT: it isn't one. -EPROTO: a breach, the link ends. */
int cache_peer_message(struct cache_peer *peer, const struct link_hdr *hdr, struct reader *body);
void cache_peer_drained(struct cache_peer *peer);
/* Bytes for this session that are to be kept go to the store. */
void cache_mirror_attach(struct cache_peer *peer, struct mirror *mirror);
/*
 * A piece of the session @mirror as a reference. 0. -EPROTO: the message is nonsense, the link ends. -EACCES: it names what it
 * may not name, the session ends.
 */
int cache_ref(struct cache_peer *peer, struct mirror *mirror, struct reader *body);

#endif
