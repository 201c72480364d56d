/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the /gleam tree that somebody has open, and the three requests that each look at a file is made of: open, read,
 * release. These are answered here, from the kernel's own words (linux/fuse.h): libfuse's allocations, locks and lists cost more than
 * a word that is shown, and what polls the tree asks for nothing else. All other requests are libfuse's (tree.c). Control thread.
 */
#ifndef GLEAM_LOCAL_TREE_OPEN_H
#define GLEAM_LOCAL_TREE_OPEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "broker/core/loop.h"
#include "broker/local/tree_node.h"
#include "broker/local/tree_steady.h"

#define TREE_OPEN_MAX   4096 /* of all readers together; a call table takes some 50 KiB */
#define TREE_BACKGROUND 1    /* what libfuse is to tell the kernel as max_background: see close_hold() */

#define TREE_ANSWER_SIZE 256 /* an answer that is given with the next look for a request; what is longer is given at once */

struct open_file;

struct tree_opens {
	struct loop *loop;
	const struct tree_view *view;
	int fd; /* borrowed: /dev/fuse */

	struct steady steady;
	struct open_file *open;
	struct open_file *spare;
	unsigned open_count;
	unsigned spare_count;

	uint64_t held; /* a release that isn't answered yet; 0: none, no request has this number */
	uint64_t held_ns;   /* when it came */
	uint64_t closed_ns; /* the last one */
	struct loop_timer held_timer;
	bool gathering; /* releases that the kernel has kept are taken one after the other */
	bool ending;

	/* An answer that the tree hands to the kernel together with its wish for another request: one system call for both. */
	uint8_t answer[TREE_ANSWER_SIZE];
	size_t answer_size;	   /* 0: none */
	struct open_file *opening; /* what is freed if it finds nobody */
};

void tree_opens_init(struct tree_opens *opens, struct loop *loop, const struct tree_view *view);
void tree_opens_fini(struct tree_opens *opens);

/* True: it was one of the three, and has its answer or will have it. @size bytes came from the kernel. */
bool tree_opens_take(struct tree_opens *opens, const void *request, size_t size);
/* Before requests are read: those that have been kept for long enough are asked for. */
void tree_opens_look(struct tree_opens *opens);
/* What was to be given with the next look is given now. */
void tree_opens_flush(struct tree_opens *opens);
/* It was handed over, and nobody wanted it: -errno. */
void tree_opens_refused(struct tree_opens *opens, int err);
/* Whether there may well be more to read already; and there is none. */
bool tree_opens_more(const struct tree_opens *opens);
void tree_opens_dry(struct tree_opens *opens);

/* What it was when it was opened, of something that has vanished since; NULL: nobody has it open. */
const struct stat *tree_opens_attr(const struct tree_opens *opens, uint64_t id);

#endif
