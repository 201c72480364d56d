/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory is short: the node is asked to have other programs' workers give back what their clients don't use, and this one's
 * client is asked to when another program lacks it. Words in the session memory; see struct session_header. Executor thread.
 */
#ifndef GLEAM_WORKER_SHORTAGE_H
#define GLEAM_WORKER_SHORTAGE_H

#include "broker/worker/state.h"

#define SHORTAGE_WAIT_NS 300000000ull /* for others' memory: a round trip to their client, and its release by the driver */
#define SHORTAGE_LOOK_NS 2000000ull   /* between two looks whether it has come */

/* One lack of memory, from the first refusal until there is enough or no more hope. Zeroed at first. */
struct shortage {
	bool asked;
	uint32_t number; /* the node's answer to it is short_told from here on */
	uint64_t until_ns;
};

/* @bytes are missing on @device. True: they may yet come, so look again soon. False: nobody has any, or they didn't come in time. */
bool shortage_waits(struct worker *w, struct shortage *shortage, uint32_t device, uint64_t bytes);
/* Each round: whether another program lacks memory. The client is asked by NOTICE_RECALL then. */
void shortage_look(struct worker *w);
/* What the client has and doesn't use is @more bytes more (or wraps round to less). */
void shortage_idle(struct worker *w, uint64_t more);

#endif
