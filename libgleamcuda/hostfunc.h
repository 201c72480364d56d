/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions: the program's functions that a stream calls. They run on a thread of their own, in the order in which
 * streams come to them, and never on a thread that somebody waits for. Any thread.
 */
#ifndef GLEAM_HOSTFUNC_H
#define GLEAM_HOSTFUNC_H

#include <stdbool.h>
#include <stdint.h>

struct session;

/* Service thread: the stream has come to function @id. Never waits. */
void hostfunc_wanted(struct session *s, uint64_t id);
/* Service thread: the session ended; what has not run never will. */
void hostfunc_fail_all(void);
/* Is any host function not yet done? What it writes may be the source of a copy. */
bool hostfunc_outstanding(void);

#endif
