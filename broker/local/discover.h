/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers of the LAN by DNS-SD, through Avahi where it runs: avahi-browse tells who is there, avahi-publish-service tells of this
 * machine's own node. Both are processes of ours, started again when they end. What a stranger announces is only an address to try: without
 * the key of ours there is no link. Control thread.
 */
#ifndef GLEAM_LOCAL_DISCOVER_H
#define GLEAM_LOCAL_DISCOVER_H

#include <stdbool.h>

#include "broker/core/loop.h"
#include "broker/local/discover_line.h"

#define DISCOVER_TYPE "_gleam._tcp"

struct discover;

/* @listen: where this machine's node listens, "": it is none, or only on loopback. NULL: out of memory. */
struct discover *discover_new(struct loop *loop, const char *listen, void (*event)(void *owner, const struct discover_event *event),
			      void *owner);
/* discover_is_stopped() tells when nothing is in flight, then discover_free(). All take NULL. */
void discover_stop(struct discover *discover);
bool discover_is_stopped(const struct discover *discover);
void discover_free(struct discover *discover);

#endif
