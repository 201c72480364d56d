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

struct session;
struct stream;
struct cls_entry;

#define CONTEXT_STACK_MAX 64 /* pushes of one thread; the real driver has no stated limit, programs nest 2 or 3 */

struct context {
	/* set at birth, then only read */
	CUcontext handle;
	uint32_t index;	 /* in the session: header of frames, error words; < SESSION_CONTEXTS */
	int device;	 /* ordinal as the program sees it */
	uint32_t node_device; /* ordinal at the worker */
	bool primary;
	struct session *session;

	/* guarded by lock */
	pthread_mutex_t lock;
	uint64_t id;	    /* cuCtxGetId: never reused, changes with every activation */
	unsigned int flags;
	unsigned int api_version;
	uint32_t retained;  /* primary: retains; others: 1 while alive */
	struct cls_entry *cls; /* context-local storage (export table c693336e) */

	/* atomics */
	uint32_t active;    /* 1 while work may be sent; 0: destroyed, or a primary that nobody holds */
	uint32_t epoch;	    /* counts activations: handles of an older epoch are dead */
	uint32_t error;	    /* sticky CUresult of this epoch */
	uint64_t last_seq;   /* sequence number of the newest command that a wait for the context waits for */
	uint64_t done_seq;   /* up to which such a wait has succeeded */
};

/* What a thread has: made at its first call, freed when it ends. */
struct thread {
	uint32_t number; /* from 1 */
	uint32_t depth;	 /* of stack */
	struct context *stack[CONTEXT_STACK_MAX]; /* entry depth-1 is current; NULL entries are possible (SetCurrent(NULL)) */
	CUstreamCaptureMode capture_mode;
	/* per-thread stream of each context index, made at first use; epoch tells a dead one */
	struct {
		uint64_t handle;
		uint32_t epoch;
	} own[SESSION_CONTEXTS];
};

struct thread *thread_current(void); /* NULL only when memory is short */
struct context *context_current(void);
/* The context of a handle that the program gave: NULL if it never was one. A destroyed one is returned as long as its
 * slot is not used again (look at active). */
struct context *context_find(CUcontext handle);
struct context *context_primary(int device); /* NULL for a bad ordinal */
struct context *context_at(uint32_t index);
int device_count(void);
/* Bring up the tables from the session's snapshot and CUDA_VISIBLE_DEVICES; called once by cuInit. */
CUresult contexts_init(struct session *session);

#endif
