/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the /gleam tree that are polled and stay the same: the kernel gets each as a file (FUSE passthrough: Linux 6.9, root), and reads of it
 * are the kernel's own business. Such a look at a value is one request, its opening, instead of two. What an open shows is unchanged: the text of
 * that moment, compared each time, since a file is rewritten only while nobody reads it. Control thread.
 *
 * The kernel fails an open (EIO) that is answered with another file, or none, while somebody else has the same node open with one. So each node
 * has one file, and whoever is to read other words from us meanwhile has it "beside".
 */
#ifndef GLEAM_LOCAL_TREE_STEADY_H
#define GLEAM_LOCAL_TREE_STEADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define STEADY_COUNT	16	     /* what somebody polls at a time; each may take a descriptor and a page or two */
#define STEADY_SIZE_MAX (16u << 10)  /* a text: `metrics` of a few servers, not a call table of fifty KiB that changes all the time */

struct steady_text {
	uint64_t node; /* 0: nothing */
	char *text;    /* what was there when it was opened last, and is in the file if that is valid */
	size_t size;
	size_t room;
	uint64_t seen_ns; /* when it was opened last */
	unsigned users;	  /* opens that read the file */
	unsigned beside;  /* opens that have it, and read from us */
	int fd;		  /* the file; -1: none yet */
	int32_t backing;  /* its number in the kernel; 0: none */
	bool valid;
};

struct steady {
	int fd;	   /* borrowed: /dev/fuse; -1: the kernel doesn't do it */
	bool does; /* it has done it once */
	bool off;  /* it refuses: reads are answered as without it */
	struct steady_text texts[STEADY_COUNT];
};

void steady_init(struct steady *steady);
/* Everybody who had a file open has gone, or the mount. */
void steady_fini(struct steady *steady);

/* Whether the kernel offers it, in its first request; then our answer to that says that we want it. */
bool steady_is_offered(const void *request, size_t size);
/* @reply: a copy is made of what is changed, into @init_out of INIT_OUT_SIZE bytes. False: it is no answer that can say so. */
#define STEADY_INIT_SIZE 64
bool steady_accept(struct iovec *reply, int count, uint8_t init_out[STEADY_INIT_SIZE]);

enum steady_way {
	STEADY_NOT,    /* its reads are answered; nothing is to be given back */
	STEADY_FILE,   /* the kernel reads the file */
	STEADY_BESIDE, /* it has the file, but its reads are answered */
};

/*
 * Somebody opens @node and is to see @text: how. Unless STEADY_NOT, *@text_out is what steady_hold() takes, or not: STEADY_FILE may be passed over for
 * STEADY_NOT where steady_is_held() is false, and must be while the answer to another open of @node, STEADY_NOT, may not have been looked at by the kernel.
 */
enum steady_way steady_look(struct steady *steady, uint64_t node, const char *text, size_t size, uint64_t now_ns, struct steady_text **text_out);
bool steady_is_held(const struct steady_text *text);
void steady_hold(struct steady_text *text, enum steady_way way);
/* It has been closed. */
void steady_give(struct steady_text *text, enum steady_way way);

#endif
