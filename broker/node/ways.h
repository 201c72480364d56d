/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ways by which sessions' contents go from node to node when they move (docs/migration.md, From node to node): those that begin here, a pour each,
 * and those that end here, a fill each; and what brokers and other nodes say of them. A session has one of each at most. Control thread.
 */
#ifndef GLEAM_NODE_WAYS_H
#define GLEAM_NODE_WAYS_H

#include <stdbool.h>

#include "broker/core/link.h"
#include "broker/node/cache.h"

struct seat;
struct ways;

/* @setting and @cache are looked at later. NULL: out of memory. */
struct ways *ways_new(struct loop *loop, const struct link_setting *setting, struct cache *const *cache);
bool ways_are_gone(const struct ways *ways);
void ways_free(struct ways *ways);

/* A message of its own kind, for @seat of @link (NULL: none of that number). -ENOENT: it isn't one. -EPROTO: a breach, the link ends. */
int ways_message(struct ways *ways, struct link *link, struct seat *seat, const struct link_hdr *hdr, struct reader *body);
/* @seat is about to leave its link. */
void ways_seat_left(struct ways *ways, struct seat *seat);
void ways_link_lost(struct ways *ways, const struct link *link, const char *why);

#endif
