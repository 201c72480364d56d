/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of GLEAM_TRACE, read: calls in the order of time, and what happened behind the library. The file is another program's: every number
 * is checked before it is used. One thread.
 */
#ifndef GLEAMCTL_RECORDING_H
#define GLEAMCTL_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#include "broker/proto/trace.h"

struct record {
	uint64_t start_ns;
	const uint8_t *bytes; /* in the file: a trace_call that was found sound, but for its texts */
	uint32_t thread;
};

struct recording {
	const uint8_t *bytes; /* the whole file */
	size_t size;
	struct trace_file head;
	uint8_t *last; /* the last chunk, where its end is missing in the file; NULL: it isn't */
	struct record *records;
	size_t count;
	size_t room;
	uint64_t first_serial; /* of the chunks that are there */
	uint64_t last_serial;
	uint64_t chunks;
	struct trace_span *spans;
	size_t span_count;
	size_t span_room;
	int64_t offset_ns; /* to be added to the worker's clock */
	uint64_t offset_within_ns; /* how wrong that may be, each way; UINT64_MAX: nothing tells */
};

/* 0, or an exit status after a complaint. recording_free() in any case. */
int recording_read(struct recording *r, const char *path);
void recording_free(struct recording *r);
/* When the worker played command @seq, in its own clock; NULL: not told. */
const struct trace_span *recording_played(const struct recording *r, uint64_t seq);

#endif
