/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose chunks have names, so that what programs load from them needn't be read and hashed each time.
 *
 * A file is what it was as long as (file system, inode, generation, size, mtime, ctime) are the same: on ext4, xfs and btrfs,
 * where no write goes past these times. A chunk gets its name only while nobody can be writing: a read lease is held, and both
 * times are older than two seconds. Everything is done through a descriptor that a client has passed, for its uid alone.
 * docs/cache.md says why that is enough.
 *
 * Control thread, except for the functions that say so.
 */
#ifndef GLEAM_LOCAL_CFILE_H
#define GLEAM_LOCAL_CFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker/core/jobs.h"
#include "broker/core/loop.h"
#include "broker/lib/chunk.h"
#include "broker/lib/conf.h"

struct cfile;
struct cfiles;

struct cfile_identity {
	uint64_t fs; /* f_fsid */
	uint64_t fs_type;
	uint64_t inode;
	uint64_t generation;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
};

/*
 * Any thread. @strict: -EMEDIUMTYPE for another file system, -EISDIR and the like for what isn't a plain file, -EACCES for a
 * descriptor that can't be read. Without it any plain file will do, for bytes that are hashed anyway.
 */
int cfile_identify(int fd, bool strict, struct cfile_identity *identity_out);
/* Whole chunk @index of it. 0 or -errno; -ESTALE: it has become shorter. Any thread. */
int cfile_chunk_read(int fd, uint64_t file_size, uint32_t index, uint8_t *bytes, uint32_t *size_out);

/* @dir "": nothing is remembered on disk. NULL: out of memory. */
struct cfiles *cfiles_new(struct loop *loop, const char *dir);
/* What runs ends early from now on. */
void cfiles_stop(struct cfiles *cfiles);
bool cfiles_are_idle(const struct cfiles *cfiles);
void cfiles_free(struct cfiles *cfiles);

/* Somebody who passes a file. */
struct cfile_wish {
	struct job job;
	struct loop_post post;
	struct cfiles *cfiles;
	int fd; /* taken */
	uid_t uid;
	uint8_t salt[CACHE_SALT_SIZE];
	void *arg; /* the caller's */
	/* Control thread. @err 0: @file is counted for the caller. Owns @wish. */
	void (*done)(struct cfile_wish *wish, struct cfile *file, int err);
	/* its own */
	struct cfile_identity identity;
	struct chunk_name *names;
	uint64_t count;
	int err;
};
void cfile_open(struct cfiles *cfiles, struct cfile_wish *wish);
void cfile_get(struct cfile *file);
void cfile_put(struct cfile *file);

const struct cfile_identity *cfile_identity(const struct cfile *file);
const uint8_t *cfile_salt(const struct cfile *file);
int cfile_fd(const struct cfile *file);
uint32_t cfile_chunks(const struct cfile *file);
/* The size of chunk @index, which exists. */
uint32_t cfile_chunk_size(const struct cfile *file, uint32_t index);
/* NULL: it has none yet. Chunks get names, and keep them. */
const struct chunk_name *cfile_name(const struct cfile *file, uint32_t index);
/* Something that no other chunk of any file has: for pieces that belong together. */
uint64_t cfile_tag(const struct cfile *file, uint32_t index);
/* Chunk @index should get a name, when there is time for that. */
void cfile_want(struct cfile *file, uint32_t index);

#endif
