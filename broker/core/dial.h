/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting to a server by what its configuration says: all its addresses, a quarter of a second apart, and the first that
 * answers is taken, so a dead one in front costs little. Control thread; names are looked up by a thread of their own.
 */
#ifndef GLEAM_CORE_DIAL_H
#define GLEAM_CORE_DIAL_H

#include "broker/core/loop.h"

#define DIAL_NS	     2000000000ull /* a client is answered within three seconds */
#define DIAL_NEXT_NS 250000000ull

struct dial;

/* Called once: a connected @fd that is the owner's, or -1, -errno and why. */
typedef void dial_done(void *owner, int fd, int err, const char *why);

/* NULL: out of memory. @done is never called from within. */
struct dial *dial_start(struct loop *loop, const char *address, dial_done *done, void *owner);
/* @done won't be called. */
void dial_abandon(struct dial *dial);

#endif
