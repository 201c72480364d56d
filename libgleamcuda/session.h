/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's sessions with servers: socket, session memory, reply slots, cells, up pieces, sequence numbers.
 * One a process and node. Made by cuInit; they live until the process ends (destructors of others may still call).
 * Any thread; what guards what is said at the fields.
 */
#ifndef GLEAM_SESSION_H
#define GLEAM_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "broker/lib/ring.h"
#include "broker/lib/shm.h"
#include "broker/proto/cuda_abi.h"
#include "broker/proto/ring.h"
#include "broker/proto/snapshot.h"
#include "broker/proto/sticky.h"
#include "broker/proto/wire.h"

/* Servers that one process has GPUs of. */
#define SESSIONS_MAX 8
#define SESSION_PATH_SIZE 108 /* as struct sockaddr_un */

struct session {
	/* set when it is opened, then only read */
	uint32_t index; /* in the process: 0 is the first that was opened */
	uint32_t first; /* its devices have the address ranges (units) from this one on, see memory.h */
	bool chooses;	/* CUDA_VISIBLE_DEVICES wasn't told to the server: this library chooses among its GPUs */
	struct shm shm; /* shared with gleamd */
	struct session_header *header;
	int socket;   /* closes when this process ends: that is how gleamd knows; or the kernel's session */
	bool kernel;  /* opened through the kernel module: socket is /dev/gleam */
	int doorbell; /* eventfd: the broker sleeps, there is something in c2n */
	int pages;    /* the file for page-locked memory that a worker of this machine has mapped, too (pages.h); -1: none */
	struct snapshot snapshot;
	char server[64];
	char path[SESSION_PATH_SIZE]; /* of gleamd's socket */

	/* guarded by append_lock */
	pthread_mutex_t append_lock;
	struct ring c2n;
	uint64_t seq; /* of the last command */
	uint32_t returns; /* how often gleamd has gone: what one has said of files is void then; read without the lock, too */

	/* guarded by cell_lock */
	pthread_mutex_t cell_lock;
	pthread_cond_t cell_freed;
	uint64_t cells_used; /* bit per down cell */

	/* guarded by up_lock */
	pthread_mutex_t up_lock;
	uint64_t up_head;
	uint32_t up_open;  /* pieces that were taken and whose commands aren't in the ring yet */
	uint64_t up_first; /* of them the one that begins a lap behind a gap: its cookie; 0: none */
	uint64_t up_empty; /* where the arena was empty when its beginning was taken again, */
	uint64_t up_begun; /* and where that lap begins: while the worker has told no more than up_empty, what lies between is free */

	/* guarded by notice_lock: who takes notices. The service thread does, and landings whoever waits for one (service.h) */
	pthread_mutex_t notice_lock;
	struct ring n2c;

	pthread_mutex_t return_lock; /* held by the thread that looks for another gleamd */

	/* atomics */
	uint64_t away_ns; /* since when there is no gleamd; 0: there is one */
	uint64_t slots_used[SESSION_SLOTS / 64];
	uint32_t dead; /* set once, when the broker says so or its socket is gone */
	uint32_t death_told; /* the log has it */
};
static_assert(SESSION_CELLS <= 64, "cells_used has a bit for each");

/* What the client holds of device memory has grown by @bytes, or shrunk: for people to look at, see session_header. */
static inline void session_memory_count(struct session *s, int64_t bytes)
{
	__atomic_fetch_add(&s->header->memory, (uint64_t)bytes, __ATOMIC_RELAXED);
}

/*
 * The worker is on this machine, and the session's memory is its own, too: nobody is between. A move ends that. For the wake-up of whoever
 * takes commands it is looked at behind the publishing (ring_publish()): whoever announced his sleep last had written it before.
 */
static inline bool session_is_direct(const struct session *s)
{
	return __atomic_load_n(&s->header->direct, __ATOMIC_ACQUIRE) == 1;
}

/* The process's first session, NULL before cuInit succeeded: of calls that are about no device. */
struct session *session_current(void);
/* Every session, in the order in which they were opened; NULL beyond the last. */
struct session *session_at(uint32_t index);
uint32_t session_count(void);
/* The one whose devices have the unit; NULL: nobody's. */
struct session *session_of_unit(uint64_t unit);
/* It is the process's session number @index from now on; in the order of the numbers, before it has a thread. By cuInit. */
void session_show(struct session *s, uint32_t index);
/* True when every call has to fail; CUDA_ERROR_… for it (DEVICE_UNAVAILABLE, SYSTEM_NOT_READY …). */
bool session_is_dead(struct session *s);
CUresult session_death(struct session *s);
/* Looks at the socket, which a thread that has waited long does, and for another gleamd; true if the session has ended. */
bool session_check(struct session *s);
/* Whether its gleamd has closed it. */
bool session_has_ended(const struct session *s);
/* A reply slot, waiting while all are taken. */
uint16_t session_slot_take(struct session *s);
void session_slot_give(struct session *s, uint16_t slot);

/* An up piece of @size bytes (SESSION_CELL_SIZE at most) of the arena; waits for room. Fill bytes_out, then send ref. */
CUresult session_up_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out);
/* The same without waiting: false where there is no room. */
bool session_up_try(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out);

/*
 * The command of a piece that was taken is the next in the ring; append_lock is held. The worker takes what lies before a lap's first
 * piece for a gap, so that one's command comes behind those of all earlier pieces, and before later ones.
 */
static inline void session_up_opened(struct session *s, uint64_t cookie)
{
	pthread_mutex_lock(&s->up_lock);
	s->up_open--;
	if (s->up_first == cookie)
		s->up_first = 0;
	pthread_mutex_unlock(&s->up_lock);
}

/* A run of cells for @size bytes (8 cells at most), waiting until some are free. */
CUresult session_cells_take(struct session *s, uint32_t size, struct bulk_ref *ref_out, void **bytes_out);
void session_cells_give(struct session *s, const struct bulk_ref *ref);
/* Who waits for cells may help to get some free (late_help()). */
void session_cells_nudge(struct session *s);

/* How often a waiting thread looks whether the other side is still there. */
#define SESSION_LOOK_NS (250 * 1000000ll)

/* Progress words: has stream word @word reached @seq? Sees what the broker has written, no system call. */
bool session_reached(const struct session *s, uint32_t word, uint64_t seq);
/* The latched failure of context @index, CUDA_SUCCESS without one. take clears one that isn't sticky. */
CUresult session_error_peek(const struct session *s, uint32_t index);
CUresult session_error_take(struct session *s, uint32_t index);

#endif
