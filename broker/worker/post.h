/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames to the node: replies and notices, into ring n2c. Executor and completion thread.
 */
#ifndef GLEAM_WORKER_POST_H
#define GLEAM_WORKER_POST_H

#include "broker/worker/state.h"

#define REPLY_PAYLOAD_MAX (SESSION_SLOT_SIZE - 16u - sizeof(struct frame_hdr)) /* what a reply slot holds */

/*
 * The answer to a command. @payload begins with 4 bytes of room for the CUresult; the out fields follow, @size counts
 * both. Without success, or where the context has a failure that wasn't told, only the code goes. @bulk: cells that
 * were filled, or NULL.
 */
void post_reply(struct worker *w, const struct frame_hdr *cmd, CUresult result, uint8_t *payload, uint32_t size,
		const struct bulk_ref *bulk);
void post_notice(struct worker *w, enum notice notice, uint64_t seq, uint32_t ctx, const void *payload, uint32_t size);
/* Bytes of an asynchronous copy lie in the cells. */
void post_landed(struct worker *w, const struct frame_hdr *cmd, CUresult result, const struct bulk_ref *bulk);

/*
 * What this thread posts from here on is shown by post_show(), so that the node finds a word and the reply behind it together
 * and sends them in one piece. Not over anything that takes long.
 */
void post_hold(void);
void post_show(struct worker *w);

/* What became of commands; empties @spans, which are the thread's own. */
void post_spans(struct worker *w, struct spans *spans);

#endif
