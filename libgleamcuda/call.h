/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: what every exported function is made of. Generated code enters and leaves; bodies (generated or by hand,
 * do_cuX()) check, encode straight into the ring, and post or wait. Lives on the application's thread.
 *
 *	call_enter() -> body -> call_leave()
 *	body: check arguments; call_open(); msg_X_put(&call->w, &m); call_post() or call_wait(); ans_X_get(&call->r, &a)
 *	where nothing stands in between: CALL_SEND(call, X, &m) or CALL_ASK(call, X, &m); ans_X_get(&call->r, &a)
 *
 * Between call_open() and call_post() or call_wait() the session's append lock is held: nothing may wait there.
 */
#ifndef GLEAM_CALL_H
#define GLEAM_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/codec.h"
#include "broker/proto/cuda_abi.h"
#include "broker/proto/handle.h"
#include "broker/proto/wire.h"
#include "gen/api.h"
#include "gen/ops.h"

#define GLEAM_EXPORT __attribute__((visibility("default")))

struct session;
struct context;
struct thread;

enum needs {
	NEEDS_NONE,    /* works before cuInit and in a forked child */
	NEEDS_INIT,    /* NOT_INITIALIZED before cuInit */
	NEEDS_CONTEXT, /* INVALID_CONTEXT without a current one; its latched error, if sticky, comes back at once */
};

struct call {
	uint16_t api; /* enum api */
	bool ptds;    /* NULL streams mean this thread's stream */
	bool touches; /* what is sent next may write to host memory that kernels reach (exposed.h), or is a copy of pages (pages.h) */
	struct thread *thread;
	struct context *context; /* current; NULL where none is needed and none is set. Of a green one its primary one */
	struct context *green;	 /* that green one; NULL */
	struct session *session; /* the context's, or the process's; NULL for NEEDS_NONE */

	/* between call_open() and its end */
	struct writer w; /* at the payload */
	uint8_t *frame;
	uint16_t op;
	uint16_t slot;

	/* after call_wait() */
	struct reader r; /* at the first out field */

	bool unawaited; /* more of this call follows, or it waits by itself: GLEAM_OFF waits for no answer to this command */
	bool awaited;	/* this one is answered though its class says nothing of it */
	CUresult failure; /* what such an answer said first: the call's result, if it is none of its own */
	uint16_t trips; /* made so far */
	uint64_t answered; /* of the newest command that it waited for; 0: none */
	uint64_t posted; /* sequence number of the newest command; 0: none */
	uint64_t entered_ns; /* only while tracing */
	uint64_t timed_ns;   /* when it began, if its time counts (broker/proto/times.h); else 0 */
};

CUresult call_enter(struct call *call, enum api api, enum needs needs, bool ptds);
/*
 * After a call_enter() that found no current context: calls about an object (stream, event, module, function) or about memory
 * work natively in a thread that has none, in the object's context. INVALID_CONTEXT where @handle or @address has none.
 */
CUresult call_enter_by(struct call *call, uint64_t handle);
CUresult call_enter_at(struct call *call, uint64_t address);
CUresult call_leave(struct call *call, CUresult result);
/*
 * What the call sends from now on goes to another server. What an earlier wait brought (call->r) is over then. See call_in() in
 * context.h.
 */
void call_to(struct call *call, struct session *session);
/* Told of every call that fails, where it is left. NULL until there is somebody (logs.c). Atomic. */
extern void (*call_failed)(const struct call *call, CUresult result);
/* For what the library sends by itself (service thread, clean-up): as if entered, with @context (may be NULL). Needs a
 * call_leave() too. */
void call_start(struct call *call, struct session *session, struct context *context);

/*
 * Reserve room for a command of at most @payload_max bytes of payload; waits for room where the ring is full.
 * Takes the append lock on success, nothing on failure. NEEDS_CONTEXT calls carry their context in the header.
 */
CUresult call_open(struct call *call, enum op op, size_t payload_max);
/* The same for a frame that refers to arena bytes; @flag is FRAME_BULK_UP or FRAME_BULK_DOWN. */
CUresult call_open_bulk(struct call *call, enum op op, size_t payload_max, enum frame_flag flag,
			const struct bulk_ref *ref);
/* An up piece whose bytes are those of a file; @file NULL: they aren't. */
CUresult call_open_file(struct call *call, enum op op, size_t payload_max, const struct bulk_ref *ref,
			const struct bulk_file *file);
/* Publish without waiting. Returns the command's sequence number. Releases the append lock. */
uint64_t call_post(struct call *call);
/* Publish nothing. Releases the append lock. */
void call_cancel(struct call *call);
/* Publish and wait for the reply, whose CUresult is returned; on success call->r stands at the out fields, which stay
 * valid until call_leave(). Releases the append lock before it waits. */
CUresult call_wait(struct call *call);

/*
 * The whole way of a command: the message @m, a struct msg_@name, is sent, or also answered. The CUresult of call_open() or call_wait().
 * Macros, for the codec's functions are named after the message; each has its own type, which is checked.
 */
#define CALL_SEND(call, name, m)                                                                       \
	({                                                                                             \
		const struct msg_##name *send_m = (m);                                                 \
		CUresult send_result = call_open((call), OP_##name, msg_##name##_size(send_m));        \
                                                                                                       \
		if (send_result == CUDA_SUCCESS) {                                                     \
			msg_##name##_put(&(call)->w, send_m);                                          \
			call_post(call);                                                               \
		}                                                                                      \
		send_result;                                                                           \
	})
#define CALL_ASK(call, name, m)                                                                        \
	({                                                                                             \
		const struct msg_##name *ask_m = (m);                                                  \
		CUresult ask_result = call_open((call), OP_##name, msg_##name##_size(ask_m));          \
                                                                                                       \
		if (ask_result == CUDA_SUCCESS) {                                                      \
			msg_##name##_put(&(call)->w, ask_m);                                           \
			ask_result = call_wait(call);                                                  \
		}                                                                                      \
		ask_result;                                                                            \
	})

/* Wait, without a command, until progress word @word has reached @seq; the words are pushed. Tells @context's failure, if
 * that keeps the word from ever coming. */
CUresult call_wait_progress(struct call *call, uint32_t word, uint64_t seq, struct context *context);
/* How long a thread that waits may look before it sleeps: 0 where there is one core, or looking is switched off. */
uint64_t call_spin_limit(void);
/* Bytes that travelled outside of frames. */
void call_count_bytes(struct call *call, uint64_t bytes);

/* ---- handles, as stubs use them ---- */

#define HANDLE_NULL_OK 1u

/* @handle_out is the wire handle (0 for an allowed NULL). INVALID_HANDLE for anything that is not a live @type; a
 * kernel is accepted as a function. Says CONTEXT_IS_DESTROYED where its context is gone. */
CUresult call_handle(struct call *call, enum object_type type, const void *handle, unsigned marks,
		     uint64_t *handle_out);
/* Streams: NULL, 1 and 2 are resolved (legacy or this thread's own, by call->ptds). A capturing one is refused, and its
 * capture spoilt: calls that can be captured, and questions, ask by the functions of capture.h. */
CUresult call_stream(struct call *call, CUstream stream, uint64_t *handle_out);
/* A new handle of the current context; INVALID handles only after handle_forget(). OUT_OF_MEMORY when all are in use. */
CUresult call_birth(struct call *call, enum object_type type, uint64_t *handle_out);
/* The handle is dead, or its birth was never sent. */
void call_death(struct call *call, uint64_t handle);

/* A function that isn't served: NOT_SUPPORTED, and one log line a process and name with the reason. */
CUresult call_refuse(struct call *call, const char *why);

#endif
