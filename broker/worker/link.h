/* SPDX-License-Identifier: Apache-2.0 */
/* Links of several images into one. Executor thread. */
#ifndef GLEAM_WORKER_LINK_H
#define GLEAM_WORKER_LINK_H

#include "broker/worker/state.h"

struct link;

/* What belongs to a link (object.own). @driver: the driver's state ends too. */
void link_own_free(struct worker *w, struct link *link, bool driver);

#endif
