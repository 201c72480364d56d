/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Late copies: bytes that come back from the device after the call that asked for them has returned (into page-locked
 * memory), or in many pieces while one call waits. Each waits in its down cell; when the worker's notice is there the service
 * thread, or one that waits, puts the bytes where they belong.
 */
#ifndef GLEAM_LATE_H
#define GLEAM_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "broker/proto/cuda_abi.h"
#include "broker/proto/wire.h"

struct session;
struct late;

/* Of one stream, oldest first; guarded by late.c's lock. Zero is empty. */
struct late_list {
	struct late *first;
	struct late *last;
};

/* Where the bytes go: @rows rows of @width bytes, @pitch apart (1 row for a plain copy). */
struct late_target {
	void *bytes;
	size_t width;
	size_t pitch;
	size_t rows;
	uint32_t context; /* index of the copy's */
};

/* Announce a copy of @ref->size bytes before its command is posted; ref->cookie is filled in. @seq is told afterwards by
 * late_posted(). OUT_OF_MEMORY. Owns the cells from now on. */
CUresult late_add(struct session *s, struct late_list *list, struct bulk_ref *ref, const struct late_target *target);
void late_posted(struct session *s, const struct bulk_ref *ref, uint64_t seq);
/* The command could not be posted: as if it had never been added. */
void late_cancel(struct session *s, const struct bulk_ref *ref);

/* Is any copy on its way, from any server? */
bool late_any(void);
/* Have all copies of @list that were posted with a number up to @seq arrived (or failed)? */
bool late_done(const struct late_list *list, uint64_t seq);
/* Wait for that. DEVICE_UNAVAILABLE when the session ends; CUDA_SUCCESS otherwise: failures are latched in the context. */
CUresult late_wait(struct session *s, const struct late_list *list, uint64_t seq);

/*
 * Copies of other streams that what the words say has come after: the worker tells how many landings it has sent before it
 * tells anything else (PROGRESS_LANDINGS). Have those arrived? Wait for them, with late_wait()'s results.
 */
bool late_told_done(struct session *s);
CUresult late_told_wait(struct session *s);

/* Wait for all copies of a context that were posted with a number up to @seq, also those of destroyed streams. */
CUresult late_wait_context(struct session *s, uint32_t context, uint64_t seq);
/* Wait until no copy to these bytes is on its way, from whichever server: those of one that is lost never come. */
void late_wait_range(const void *bytes, size_t size);

/* Any thread that has nothing better to do, and holds no lock: stores bytes that have arrived. True: there were some. */
bool late_help(struct session *s);

/* Service thread: NOTICE_LANDED number @which, whose bytes are to be stored. Both come from the worker and are not trusted. */
void late_landed(struct session *s, const struct bulk_ref *ref, uint32_t which);
/* Service thread: stores the bytes of one copy; false: there is none now. */
bool late_store_one(struct session *s);
/* Service thread: what has landed is stored, by whomever, before what comes next. */
void late_settle(struct session *s);
/* Service thread: the session ended; everybody who waits for it goes on. */
void late_fail(struct session *s);

#endif
