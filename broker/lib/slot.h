/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a broker tells a client through the words of its session memory: replies, progress, errors, freed arena, the
 * end; and the landed words, which a node sets for a worker. The memory's other side is not trusted.
 * Broker: control thread, landings also lane threads.
 *
 * How a client waits (the other half of this contract):
 *
 *	slot->seq = seq; slot->state = SLOT_SENT;  append and publish the command;  spin on state a little; then
 *	for (;;) {
 *		state SLOT_DONE: take the reply (size < 24: the session has ended), state = SLOT_FREE, return
 *		header state SESSION_DEAD: state = SLOT_FREE, fail
 *		cmpxchg SLOT_SENT -> SLOT_SLEEPING (seq_cst); look at the header's state again; futex_wait(state, SLOT_SLEEPING)
 *	}
 *	progress: progress_waiters += 1 (seq_cst); read progress_bell; look at the words; futex_wait(progress_bell, as read)
 */
#ifndef GLEAM_LIB_SLOT_H
#define GLEAM_LIB_SLOT_H

#include "broker/lib/shm.h"
#include "broker/proto/progress.h"
#include "broker/proto/wire.h"

/*
 * Puts a reply into the slot that waits for it and wakes its caller. @frame is private memory, its header checked.
 * -ENOENT: nobody waits for it any more. -EPROTO: no such slot, too big, or not a reply.
 */
int session_reply_post(const struct shm *shm, const void *frame);
/* -EPROTO: no such word. */
int session_progress_post(const struct shm *shm, uint32_t word, uint32_t value);
/* Kept only if the context's error word is empty. -EPROTO: no such context, or code 0. */
int session_error_post(const struct shm *shm, uint32_t context, uint32_t code, uint32_t op, uint64_t seq);
/* The up arena is free up to @tail. The caller has checked it against what it knows. */
void session_up_tail_post(const struct shm *shm, uint64_t tail);
/* Until up_tail is not @tail_seen any more: 0, -ETIMEDOUT, -EINTR. For the client, without any lock. */
int session_up_wait(const struct shm *shm, uint64_t tail_seen, int64_t timeout_ns);
/* The bytes of an up piece lie at @offset: its landed word (see landed_value()) and a nudge for the worker. Any thread. */
void session_landed_post(const struct shm *shm, uint32_t offset, uint64_t cookie);
/* Something changed for those who wait for one of many. */
void session_bell_ring(const struct shm *shm);
/* The session is LIVE; whoever waits for that wakes. */
void session_live_post(const struct shm *shm);
/* The session is DEAD for @reason: every waiting call is completed with size 0, everybody wakes. Once. */
void session_end_post(const struct shm *shm, enum session_end reason);

#endif
