/* SPDX-License-Identifier: Apache-2.0 */
/* Links of several images into one. Executor thread. */
#ifndef GLEAM_WORKER_LINK_H
#define GLEAM_WORKER_LINK_H

#include "broker/worker/state.h"

struct link;

/* What belongs to a link (object.own). @driver: the driver's state ends too. */
void link_own_free(struct worker *w, struct link *link, bool driver);

/* One of its steps can't be remembered (keep.h): while there is that link its session doesn't move. */
void link_unkept(struct worker *w, uint64_t handle);
/* NULL: all that there are can be made again. */
const char *links_trouble(struct worker *w);
/* At the end of a move: what the links have come to, for the new worker to compare. */
void links_say(struct worker *w);

#endif
