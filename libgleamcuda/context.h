/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts and the per-thread stack of current ones. All local: a context's handle is ours, the worker hears of it by
 * gleamContextOpen when it becomes active. Primary contexts have a fixed handle per device that can be made current
 * while inactive (cudart does that before it retains).
 */
#ifndef GLEAM_CONTEXT_H
#define GLEAM_CONTEXT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/ring.h"
#include "broker/proto/snapshot.h"
#include "libgleamcuda/call.h"

struct cls_block;
struct session;

struct context {
	/* set at birth, then only read */
	CUcontext handle;
	uint32_t index;	 /* in the session: header of frames, error words; < SESSION_CONTEXTS */
	int device;	 /* ordinal as the program sees it */
	uint32_t node_device; /* ordinal at the worker */
	uint32_t unit;	      /* the device's range of addresses */
	bool primary;
	struct session *session; /* its device's */
	struct context *base; /* of a green context: the primary one that it is a part of, whose memory, modules and events it has */

	/* guarded by lock */
	pthread_mutex_t lock;
	uint32_t attached; /* cuCtxCreate's own and cuCtxAttach; primary: retains */
	struct cls_block *cls; /* context-local storage; the pointer is written under lock and read without */

	/* atomics; written under lock */
	uint64_t id;	    /* cuCtxGetId: never reused, changes with every activation */
	uint32_t flags;	    /* as cuCtxGetFlags tells them */
	uint32_t primary_flags; /* as cuDevicePrimaryCtxGetState tells them */
	uint32_t api_version;
	uint32_t cache_config;
	uint32_t limits_known; /* bit per limit whose value is below */
	uint64_t limits[SNAPSHOT_LIMITS];

	/* atomics */
	uint32_t active;    /* 1 while work may be sent; 0: destroyed, or a primary that nobody holds */
	uint32_t epoch;	    /* counts activations: handles of an older epoch are dead */
	uint32_t error;	    /* sticky CUresult of this epoch */
	uint64_t last_seq;   /* sequence number of the newest command that a wait for the context waits for */
	uint32_t has_free_streams; /* a stream was ever made that does not wait for the legacy one */
	uint64_t done_seq;   /* up to which such a wait has succeeded */
	uint64_t gone_seq;   /* of the newest destruction of a stream */
	uint32_t owed;	     /* a failure that the library has met on its own account; the next wait tells it */
	uint32_t greens;     /* of a primary one: green contexts that are parts of it */
	uint64_t gate;	     /* event that streams which are made later wait for (ctxevent.c); 0 */
	uint32_t stacked;   /* entries of all threads' stacks that are this one: its place isn't used again before they go */
};

/* What the call sends from now on is sent in @context, and so to its server; NULL: in none, to the server that it was at. */
static inline void call_in(struct call *call, struct context *context)
{
	call->context = context;
	if (__builtin_expect(context && call->session != context->session, 0))
		call_to(call, context->session);
}

/* Of two contexts with one of these all but the streams is common. */
static inline struct context *context_base(struct context *context)
{
	return __builtin_expect(context->base != NULL, 0) ? context->base : context;
}

/* The current one, be it green; NULL. */
static inline struct context *call_current(const struct call *call)
{
	return call->green ? call->green : call->context;
}

/* What a thread has: made at its first call, freed when it ends. */
struct thread {
	uint32_t number; /* from 1 */
	uint32_t depth;	 /* of stack */
	uint32_t depth_max; /* room in it: the real driver has no limit either (seen: 5,000 pushes) */
	struct context **stack; /* entry depth-1 is current; none is NULL, some may be destroyed */
	CUstreamCaptureMode capture_mode;
	/* per-thread stream of each context index, made at first use; epoch tells a dead one */
	struct {
		uint64_t handle;
		uint32_t epoch;
	} own[SESSION_CONTEXTS];
};

/* ---- thread.c ---- */

struct thread *thread_current(void); /* NULL only when memory is short */
struct context *context_current(void); /* NULL if none; a destroyed one may still be current */
/* Make @context the top of the thread's stack, in place of what is there; NULL pops. */
CUresult thread_set(struct thread *thread, struct context *context);
CUresult thread_push(struct thread *thread, struct context *context);
/* NULL for an empty stack. */
struct context *thread_pop(struct thread *thread);
/* Have @hook called by each thread that ends, on that thread, with context_current() still in place. Six at most. */
void thread_on_end(void (*hook)(struct thread *thread));

/* ---- context.c, primary.c ---- */

/* The context of a handle that the program gave: NULL if it never was one. A destroyed one is returned as long as its
 * slot is not used again (look at active). */
struct context *context_find(CUcontext handle);
struct context *context_primary(int device); /* NULL for a bad ordinal */
/* One that is active on the device, the primary one if that is; NULL. */
struct context *context_on(int device);
struct context *context_at(uint32_t index);  /* NULL for one that was never used */
int device_count(void);
/* One retain fewer of a primary context, which stays active all the same until the next release or reset. */
void primary_let_go(struct context *context);
/* Bring up the tables from the sessions' snapshots and CUDA_VISIBLE_DEVICES; called once by cuInit. */
CUresult contexts_init(void);
/*
 * Have @hook called whenever a context ends (destroy, last release, reset): it is inactive then, its work has been waited
 * for, and gleamContextClose has not been sent. The hook forgets handles and ranges (the worker frees what they stood for
 * by itself) and must not call this header's functions. In order of registration; 16 at most. Ranges of the context that
 * no hook has removed are removed afterwards.
 */
void context_on_close(void (*hook)(struct context *context));

/* For context.c and primary.c: lifecycle_lock is held from one to the other. */
void context_activate_locked(struct call *call, struct context *context, CUresult *result_out);
struct cls_block *context_deactivate_locked(struct call *call, struct context *context);
/* A green context of @device, of resources that the worker knows by number. It retains the primary one, and is not made current. */
CUresult context_green_make(struct call *call, int device, const uint32_t *parts, uint32_t count, struct context **context_out);
CUresult context_green_end(struct call *call, struct context *context);
/* Waits for those of @base; context_wait() does, so that a wait for it is for all that its memory is used by. */
void contexts_green_wait(struct call *call, struct context *base);
extern pthread_mutex_t lifecycle_lock; /* births, deaths, retains: taken before append_lock and every hook's locks */

#endif
