/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that were started ahead, so that a client's context is there at once. Control thread. */
#ifndef GLEAM_NODE_POOL_H
#define GLEAM_NODE_POOL_H

#include "broker/node/gpus.h"
#include "broker/node/proc.h"

#define POOL_WARM_MAX 64 /* each holds about 0.5 GiB of a real GPU */

struct pool;

/*
 * @warm workers are kept; of a node with several GPUs as many for each of them (pool_gpus()). A new one takes the place of one that was
 * taken when @calm says that no client has just begun to work, or after 1.5 s.
 */
int pool_new(struct loop *loop, const struct proc_setting *setting, unsigned warm, bool (*calm)(void *owner), void *owner,
	     struct pool **pool_out);
/* What GPUs the node has is known now: with several, warm workers see one of them each from here on. */
void pool_gpus(struct pool *pool, const struct gpus_have *have);
/* Kills what is in it; pool_is_empty() tells when they have ended, then pool_free(). */
void pool_stop(struct pool *pool);
bool pool_is_empty(const struct pool *pool);
void pool_free(struct pool *pool);

/*
 * A worker for a client with these GPUs and settings (NAME=value, NULL at the end): a warm one if it has the right GPUs and
 * there are no settings that the driver would read at its start, else a new one. It goes to @ops and @owner by proc_give()
 * or proc_start().
 */
int pool_take(struct pool *pool, const struct gpus_choice *choice, const char *const *settings, const struct proc_ops *ops,
	      void *owner, struct proc **proc_out, char *why, size_t why_size);
unsigned pool_ready_count(const struct pool *pool);
/* Why the newest warm worker did not get ready; "" when it did. */
const char *pool_trouble(const struct pool *pool);

#endif
