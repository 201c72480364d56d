/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes from one server's GPUs to another's in one process: streams that wait for events of the other, and copies and fills
 * of memory of the other. Order is kept by stops of streams (hostfunc.h): the stream stands still until the other server has come
 * so far. Bytes pass through this process. Any thread.
 */
#ifndef GLEAM_ACROSS_H
#define GLEAM_ACROSS_H

#include <stdbool.h>
#include <stdint.h>

#include "libgleamcuda/call.h"
#include "libgleamcuda/copy.h"
#include "libgleamcuda/session.h"

struct context;

/* Has the process GPUs of several servers? */
static inline bool across_any(void)
{
	return __builtin_expect(session_count() > 1, 0);
}

/*
 * A context by which memory at @address is reached, where another server than the call's has it; NULL: it is of the call's own
 * server, or of no GPU (or a variable of a module, whose address two servers may both have).
 */
struct context *across_owner(const struct call *call, uint64_t address);

/* The call's stream waits for the newest record of @event (a wire handle), which is of another server. */
CUresult across_wait(struct call *call, uint64_t stream, uint64_t event);

/* Does the copy touch memory of another server than the call's? */
bool across_copies(const struct call *call, const struct copy *copy);
/* The same as copy_run() for such a copy. */
CUresult across_copy(struct call *call, const struct copy *copy);

/*
 * A command about memory that @owner reaches, behind what @stream has: @send posts it to @stream of its call; @size bytes of
 * @message are kept. @async: the call may return before it is done.
 */
typedef CUresult across_send(struct call *call, uint64_t stream, const void *message);
CUresult across_run(struct call *call, uint64_t stream, struct context *owner, across_send *send, const void *message, size_t size,
		    bool async);

/* What the library has for the stream elsewhere ends with it. */
void across_stream_gone(uint64_t stream);
void across_context_closed(struct context *context);

#endif
