/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that may block for as long as somebody else likes (a disk, a file of a stranger's), on a thread of its own beside the loop's:
 * one piece at a time, each begun and heard of on the loop's thread. Whoever has it may leave it at any time; the thread ends when it
 * can, and nobody waits for it.
 */
#ifndef GLEAM_LOCAL_ASIDE_H
#define GLEAM_LOCAL_ASIDE_H

#include <pthread.h>
#include <stdbool.h>

#include "broker/core/loop.h"

struct aside;

struct aside_ops {
	/* On the thread. */
	void (*work)(struct aside *aside);
	/* On the loop's thread, when that is done; not after aside_leave(). It may call aside_go() and aside_leave(). */
	void (*done)(struct aside *aside);
	/* On whichever thread is the last to have it. */
	void (*free)(struct aside *aside);
};

/* Embedded, first. */
struct aside {
	/* set at the start, then only read */
	const struct aside_ops *ops;
	struct loop *loop;

	pthread_mutex_t lock;
	pthread_cond_t bell;
	/* guarded by lock */
	unsigned refs; /* the owner's, the thread's, and one while done() is on its way */
	bool wanted;
	bool left;

	/* loop's thread */
	bool busy;
	struct loop_post post;
};

/* -errno: there is no thread, and nothing to be freed. */
int aside_start(struct aside *aside, const struct aside_ops *ops, struct loop *loop);
/* Not while it is busy. */
void aside_go(struct aside *aside);
/* It isn't the caller's any more. */
void aside_leave(struct aside *aside);

#endif
