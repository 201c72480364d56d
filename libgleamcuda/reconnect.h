/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gleamd is gone, and another one may come: a session opened through its socket goes on with that one. All that is needed lies in the
 * session's memory, which is ours; it is handed over, and the numbers of socket and doorbell stay what they are. Whichever thread
 * waits and looks does it.
 */
#ifndef GLEAM_RECONNECT_H
#define GLEAM_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

struct session;

/* The socket is at its end. True: the session has ended, for good; the log says why. */
bool reconnect_look(struct session *s);
/* How long a thread that has nothing else to do sleeps until it looks again. */
int64_t reconnect_pause_ns(const struct session *s, int64_t usual_ns);

#endif
