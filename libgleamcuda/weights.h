/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of mapped files: what the library can say of a copy's source, so that bytes which the node has needn't be read.
 * Any thread; a lock of its own, which is held while the daemon is asked about a file for the first time.
 */
#ifndef GLEAM_WEIGHTS_H
#define GLEAM_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/proto/wire.h"

struct session;

/* Shorter copies needn't be looked at. */
#define WEIGHTS_LEAST (256u << 10)

/* A mapping of a file; start 0, end 0: none was looked for yet. */
struct weights_map {
	uint64_t start, end;
	uint64_t offset; /* in the file */
	uint64_t inode;
	uint32_t major, minor;
};

/*
 * The front part of @size bytes at @address that is of one kind. @map is what was found for the part before: of one copy the mapping
 * is asked for once, since a program that changes it meanwhile has no copy that is right.
 */
struct weights_part {
	uint64_t size;	/* 1 at least */
	bool is_file;	/* file says which bytes these are, now */
	struct bulk_file file; /* absent: they needn't be copied */
	uint32_t returns; /* of the session, when this was true */
};
void weights_look(struct session *s, uint64_t address, uint64_t size, struct weights_map *map, struct weights_part *part_out);

/*
 * gleamd has gone, and what it knew with it. Between the first two: bytes that were left out, from the file, if it still is what was
 * told of it. Then nothing is known of any file, and nobody is asked until another one is there.
 */
void weights_lock(void);
void weights_unlock(void);
/* Whoever asks gleamd anything by the session's socket holds the lock meanwhile. */
bool weights_daemon_is_there_locked(const struct session *s);
bool weights_fill_locked(const struct session *s, uint32_t number, uint64_t offset, void *bytes, uint32_t size);
void weights_forget_locked(const struct session *s);
void weights_back(const struct session *s);

#endif
