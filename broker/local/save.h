/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a checkpoint: what a worker has said that another one needs to become it, in a file. Any one thread; it blocks.
 *
 *	head	512 bytes: magic, version, protocol, whose it is
 *	blocks	u32 kind, u32 size, and that many bytes: SAVE_FRAMES: commands as they stand, whole, each at a multiple of FRAME_ALIGN;
 *		at last SAVE_END: where the client is to go on
 *	SHA-256 of all that comes before
 *
 * All of it is a stranger's when it is read: a file may be cut off, changed, or made by whoever can write to it.
 */
#ifndef GLEAM_LOCAL_SAVE_H
#define GLEAM_LOCAL_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include "broker/lib/hash.h"

#define SAVE_VERSION	   1u
#define SAVE_HEAD_SIZE	   512u
#define SAVE_BLOCK_MAX	   (1u << 20) /* bytes of a block, so much is in memory at a time */
#define SAVE_IDENTITY_SIZE 16u
#define SAVE_IDENTITY_AT   48u /* in the head, whatever the version: behind magic, version, size and protocol */
#define SAVE_PROGRAM_SIZE  256u

/* What a checkpoint is of. */
struct save_info {
	/* at its beginning */
	uint8_t identity[SAVE_IDENTITY_SIZE]; /* of the session, random */
	uint32_t pid;
	uint32_t uid;
	uint64_t made_s; /* since 1970 */
	char program[SAVE_PROGRAM_SIZE];
	/* at its end */
	uint64_t sequence; /* of the newest command that the client had sent */
	uint64_t position; /* in its command ring, behind that */
	uint64_t up;	   /* the tail of its up arena */
	uint32_t landings; /* that it had been told of */
	uint64_t memory;   /* bytes that it had */
	uint64_t bytes;	   /* of commands */
};

/* ---- writing ---- */

struct save_writer;

/* To @fd, which stays the caller's, at its beginning. NULL: out of memory. The first failure is kept, and told by save_finish(). */
struct save_writer *save_begin(int fd, const struct save_info *info);
/* Whole frames, SAVE_BLOCK_MAX bytes at most. -errno. */
int save_frames(struct save_writer *w, const uint8_t *frames, uint32_t size);
/* The end, with what @info says of it; on disk when it returns. */
int save_finish(struct save_writer *w, const struct save_info *info);
void save_writer_free(struct save_writer *w);

/* ---- reading ---- */

struct save_reader;

/*
 * Reads all of @fd, which stays the caller's, and looks whether it is a whole checkpoint of this version and protocol. NULL and @why:
 * it isn't, or can't be read.
 */
struct save_reader *save_open(int fd, char *why, size_t why_size);
const struct save_info *save_info(const struct save_reader *r);
/* From the beginning on, again: the next block of whole frames, borrowed until the next call. 1; 0 the end; -errno, -EPROTO: it has
 * changed since it was opened. */
int save_next(struct save_reader *r, const uint8_t **frames_out, uint32_t *size_out);
void save_reader_free(struct save_reader *r);

#endif
