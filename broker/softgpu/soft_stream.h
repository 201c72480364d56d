/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: queues of commands with a thread each, in order within a stream and concurrent between them.
 *
 * Every command has a ticket that is torn when the command is through, whether it ran or was skipped after an
 * error. All order between streams is waiting for tickets: events, the legacy stream, synchronisation. One lock
 * and one condition serve the scheduler; commands run without it.
 */
#ifndef SOFT_STREAM_H
#define SOFT_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "broker/softgpu/soft_context.h"

/* Commands a stream holds before the next one blocks its caller, about as many as a real channel takes. */
#define SOFT_STREAM_DEPTH 1000

/* Launch attributes that a stream may carry have numbers below. */
#define SOFT_STREAM_ATTRIBUTES 16

struct soft_ticket {
	_Atomic uint32_t refs;
	_Atomic bool done;
	uint64_t time_ns; /* written before done */
};

/* One that soft_ticket_tear() ends, not a command. */
struct soft_ticket *soft_ticket_new(void);
void soft_ticket_tear(struct soft_ticket *ticket);

struct soft_ticket *soft_ticket_get(struct soft_ticket *ticket);
void soft_ticket_put(struct soft_ticket *ticket);
bool soft_ticket_done(const struct soft_ticket *ticket);
void soft_ticket_wait(struct soft_ticket *ticket);

struct soft_stream;

/* Embedded at the start of each kind of command. */
struct soft_command {
	/* An error becomes the context's; NULL for a mere point in the stream. Runs on the stream's thread. */
	CUresult (*run)(struct soft_command *command, struct soft_stream *stream);
	/* Frees the command, whether it ran or not. */
	void (*free)(struct soft_command *command);
	bool after_error; /* runs in a failed context too */

	/* the scheduler's */
	struct soft_command *next;
	struct soft_ticket *ticket;
	struct soft_ticket **waits;
	unsigned int wait_count;
	unsigned int wait_room;
};

enum soft_stream_kind { SOFT_STREAM_USER, SOFT_STREAM_LEGACY, SOFT_STREAM_THREAD };

struct soft_stream {
	struct soft_object object;

	/* set when it is made, then only read */
	enum soft_stream_kind kind;
	unsigned int flags;
	int priority;
	uint64_t id;
	pthread_cond_t wake; /* for its thread: work or the end */
	pthread_cond_t room; /* for callers that met a full queue */

	/* guarded by the scheduler's lock */
	struct soft_stream *next, **link; /* in the context's list */
	struct soft_command *head, **tail;
	unsigned int count; /* commands not yet through */
	struct soft_ticket *last;
	bool running; /* has a thread */
	bool closing;

	/* guarded by the lock of captures */
	struct soft_member *member; /* NULL: it takes part in none */
	_Atomic bool capturing;	    /* the same, for who only looks */

	/* guarded by the context's lock, as is priority once the stream is known: kept for their reader */
	CUlaunchAttributeValue attributes[SOFT_STREAM_ATTRIBUTES];
};

static inline struct soft_context *soft_stream_context(const struct soft_stream *stream)
{
	return stream->object.owner;
}

/*
 * What a stream argument names, counted; NULL, 1 and 2 are streams of the current context. INVALID_HANDLE for a
 * stale one; the context's error if its device has failed.
 */
CUresult soft_stream_find(CUstream handle, struct soft_stream **stream_out);

#define SOFT_STREAM_ARG(name, handle)              \
	SOFT_HELD struct soft_stream *name = NULL; \
	TRY(soft_stream_find(handle, &name))

CUresult soft_stream_new(struct soft_context *context, enum soft_stream_kind kind, unsigned int flags, int priority,
			 struct soft_stream **stream_out);

/* Makes @command wait for @ticket before it runs; before it is submitted. */
CUresult soft_command_wait(struct soft_command *command, struct soft_ticket *ticket);

/*
 * Appends @command, blocking while the stream is full. Takes the command, also on failure. @ticket_out, if wanted,
 * gets a reference.
 */
CUresult soft_stream_submit(struct soft_stream *stream, struct soft_command *command, struct soft_ticket **ticket_out);

/* A point in the stream: its ticket is torn when all before it is through. */
CUresult soft_stream_mark(struct soft_stream *stream, struct soft_ticket *after, struct soft_ticket **ticket_out);

/* The last command's ticket, counted; NULL if there is none. */
struct soft_ticket *soft_stream_last(struct soft_stream *stream);

/* Waits for all that was submitted before, in one stream or a context; then the context's error. */
CUresult soft_stream_sync(struct soft_stream *stream);
CUresult soft_context_sync(struct soft_context *context);

/* Whether no blocking stream of the context has work: what the legacy stream is asked. */
bool soft_context_idle(struct soft_context *context);

/* No more commands; the thread ends when the queue is empty. Takes the reference. */
void soft_stream_close(struct soft_stream *stream);

/* Stops every stream of a context that ends and waits for their threads. The context is marked as ending. */
void soft_stream_stop_all(struct soft_context *context);

/* True where a command that waits for something outside should give up. */
bool soft_stream_stopped(const struct soft_stream *stream);

/* Sleeps a little, longer the more often in a row: for polling memory. */
void soft_poll_pause(unsigned int *round);

#endif
