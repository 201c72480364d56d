/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The /gleam tree: what tree_node.h tells, as a FUSE file system that the daemon's own loop serves. Control thread.
 *
 * The daemon must not touch the mounted path: the kernel would ask us, who wait. Every request is answered from memory at once,
 * so no reader ever waits for a node.
 */
#ifndef GLEAM_LOCAL_TREE_H
#define GLEAM_LOCAL_TREE_H

#include <stdbool.h>

#include "broker/core/loop.h"
#include "broker/lib/log.h"

#define TREE_PATH_DEFAULT "/gleam"

struct broker;
struct tree;

#ifdef CONFIG_GLEAM_FUSE
/* Never fails: without a tree the daemon serves all the same, *@tree_out is NULL, and the log says why and what to do. */
void tree_start(struct loop *loop, struct broker *broker, const char *path, struct tree **tree_out);
/* Unmounts; tree_is_stopped() tells when that is done, then tree_free(). All take NULL. */
void tree_stop(struct tree *tree);
bool tree_is_stopped(const struct tree *tree);
void tree_free(struct tree *tree);
#else
static inline void tree_start(struct loop *loop, struct broker *broker, const char *path, struct tree **tree_out)
{
	*tree_out = NULL;
	if (*path)
		log_info("no tree on %s: this gleamd is built without it (GLEAM_FUSE)", path);
}

static inline void tree_stop(struct tree *tree)
{
}

static inline bool tree_is_stopped(const struct tree *tree)
{
	return true;
}

static inline void tree_free(struct tree *tree)
{
}
#endif

#endif
