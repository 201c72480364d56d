/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's contents on their way to another node: what its worker says aside (NOTICE_MOVE_ASIDE) goes over a link of its own to the
 * session there that a token names, as pieces of that one's up arena. A piece that the other node's cache holds goes as a reference to it, after
 * its bytes were compared with the chunk that we hold ourselves. Control thread.
 */
#ifndef GLEAM_NODE_POUR_H
#define GLEAM_NODE_POUR_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/core/link.h"
#include "broker/node/store.h"

struct pour;

struct pour_setting {
	uint32_t way; /* the broker's name of it */
	uint8_t token[FILL_TOKEN_SIZE];
	const char *address;
	const char *tenant;
	const struct link_setting *link;
	struct shelf *shelf; /* NULL: no cache */
	uint8_t salt[CACHE_SALT_SIZE];
	struct mirror *from; /* the session's; counted */
};

struct pour_ops {
	/* It is open (@err 0); or isn't, or not any more, and @why: that comes last. From the loop. */
	void (*told)(void *owner, struct pour *pour, int err, const char *why);
	/* Nothing of it is left. */
	void (*freed)(void *owner, struct pour *pour);
};

/* NULL: out of memory, or no key of that tenant. */
struct pour *pour_start(struct loop *loop, const struct pour_setting *setting, const struct pour_ops *ops, void *owner);
/* No told() any more; freed() comes later. */
void pour_end(struct pour *pour);
uint32_t pour_way(const struct pour *pour);
/* Bytes that went, and bytes that needn't. */
void pour_counts(const struct pour *pour, uint64_t *sent_out, uint64_t *cached_out);

/* Nothing more can be taken now: the loop is nudged when it can. NULL: never. */
bool pour_is_full(const struct pour *pour);
/*
 * A frame NOTICE_MOVE_ASIDE of the worker whose memory @shm is, in private memory of ours, where it is filled in. @pour: NULL, or one
 * that isn't full. The worker gets the room back. -EPROTO: it is nonsense.
 */
int pour_frame(struct pour *pour, const struct shm *shm, uint8_t *frame, uint32_t size);

#endif
