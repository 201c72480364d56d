/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions: the program's functions that a stream calls. They run on a thread of their own, in the order in which
 * streams come to them, and never on a thread that somebody waits for. Any thread.
 */
#ifndef GLEAM_HOSTFUNC_H
#define GLEAM_HOSTFUNC_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"

struct call;
struct session;

/* Service thread: the stream has come to function @id. Never waits. */
void hostfunc_wanted(struct session *s, uint64_t id);
/* Service thread: the session ended; what has not run never will. */
void hostfunc_fail(struct session *s);
/* Is any host function not yet done? What it writes may be the source of a copy. */
bool hostfunc_outstanding(void);
/* Does the caller run on the thread of host functions? */
bool hostfunc_here(void);
/* The stream (a wire handle) stops until @function has run: what is posted later comes behind it. Not run when this fails,
 * nor after the session's end. */
CUresult hostfunc_stop(struct call *call, uint64_t stream, CUhostFn function, void *user);

/*
 * The library's own: @function runs once, on a thread that the program's functions never hold up, with the stream stopped until
 * hostfunc_go(@stop), which may come later and from any thread. @failed: the session has ended, and the stream with it; go all the
 * same. Not run when this fails. The function must not wait for what another one has to do.
 */
struct hostfunc;
typedef void hostfunc_relay(struct hostfunc *stop, bool failed, void *user);
CUresult hostfunc_relay_stop(struct call *call, uint64_t stream, hostfunc_relay *function, void *user);
/* The stream goes on. Takes @stop. */
void hostfunc_go(struct hostfunc *stop);
/* Does the caller run on that thread? */
bool hostfunc_relays(void);

#endif
