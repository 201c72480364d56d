/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session that another node may fill: whoever brings the token over a link of the same tenant may put pieces into its up arena, or refer to
 * chunks of the cache, and nothing else, until its broker closes that. It is told what its worker has used up. Control thread.
 */
#ifndef GLEAM_NODE_FILL_H
#define GLEAM_NODE_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"

struct fill;

struct fill_ops {
	/* Nothing comes any more: it was closed (@err 0), or whoever filled it is gone. From the loop; then only freed(). */
	void (*closed)(void *owner, struct fill *fill, int err, const char *why);
	/* Nothing of it is left. */
	void (*freed)(void *owner, struct fill *fill);
};

/* @seat: whose memory it is; counted. NULL: out of memory, or no random number. */
struct fill *fill_new(struct loop *loop, struct mirror *seat, const char *tenant, const struct fill_ops *ops, void *owner);
const uint8_t *fill_token(const struct fill *fill);
bool fill_is(const struct fill *fill, const uint8_t token[FILL_TOKEN_SIZE], const char *tenant);
/* Who fills it, as session @id of @link. -EBUSY: somebody does already, or it is closed. -EPROTO: the link has that session. */
int fill_join(struct fill *fill, struct link *link, uint32_t id);
/* Its worker has used up pieces up to @tail: for whoever fills it. */
void fill_consumed(struct fill *fill, uint64_t tail);
/* closed() follows when no byte can come any more; whoever sends only half a piece loses his link. Repeated calls are harmless. */
void fill_close(struct fill *fill);
/* That link is lost, and its lanes have ended. */
void fill_link_lost(struct fill *fill, const struct link *link, const char *why);
/* Nobody wants to hear of it any more. */
void fill_end(struct fill *fill);

#endif
