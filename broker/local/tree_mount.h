/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder that the /gleam tree is mounted on: made and made free at start, given back at the end. Control thread; blocks for
 * at most TREE_LOOK_MS where another file system does not answer.
 */
#ifndef GLEAM_LOCAL_TREE_MOUNT_H
#define GLEAM_LOCAL_TREE_MOUNT_H

#include <stdbool.h>
#include <stddef.h>

#include "broker/lib/conf.h"

#define TREE_LOOK_MS 1000

struct tree_place {
	char path[CONF_PATH_SIZE]; /* absolute */
	bool made;		   /* by us: it goes away again */
};

/*
 * Takes dead mounts of an earlier gleamd away (one that was killed leaves "Transport endpoint is not connected") and makes the
 * folder if there is none. On failure -errno and why: what is in the way and what to do.
 */
int tree_place_take(struct tree_place *place, const char *path, char *why, size_t why_size);
/* After the unmount. */
void tree_place_give(struct tree_place *place);

#endif
