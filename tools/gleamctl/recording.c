// SPDX-License-Identifier: Apache-2.0
/* Reading a file of GLEAM_TRACE; see recording.h. */
#include "tools/gleamctl/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/proto/span.h"
#include "gen/api.h"
#include "gen/trace_args.h"
#include "tools/gleamctl/gleamctl.h"

static bool record_add(struct recording *r, const struct record *record)
{
	if (r->count == r->room) {
		size_t room = r->room ? r->room * 2 : 4096;
		struct record *records = realloc(r->records, room * sizeof(*records));

		if (!records)
			return false;
		r->records = records;
		r->room = room;
	}
	r->records[r->count++] = *record;
	return true;
}

static bool span_keep(struct recording *r, const uint8_t *at)
{
	if (r->span_count == r->span_room) {
		size_t room = r->span_room ? r->span_room * 2 : 4096;
		struct trace_span *spans = realloc(r->spans, room * sizeof(*spans));

		if (!spans)
			return false;
		r->spans = spans;
		r->span_room = room;
	}
	memcpy(&r->spans[r->span_count++], at, sizeof(*r->spans));
	return true;
}

/* A whole record at @at of @left bytes; 0: what follows is none. */
static uint32_t record_size(const uint8_t *at, uint32_t left)
{
	struct trace_call call;

	if (left < sizeof(call))
		return 0;
	memcpy(&call, at, sizeof(call));
	if (call.kind == TRACE_SPAN)
		return call.size == sizeof(struct trace_span) ? call.size : 0;
	if (call.size < sizeof(call) || call.size > left || call.size % 8 || call.kind != TRACE_CALL || call.api >= API_COUNT ||
	    call.args > TRACE_ARGS_MAX || call.args != trace_args[call.api].count ||
	    sizeof(call) + call.args * 8u > call.size || call.end_ns < call.start_ns)
		return 0;
	return call.size;
}

static bool chunk_read(struct recording *r, const uint8_t *at)
{
	struct trace_chunk chunk;
	uint32_t size;

	memcpy(&chunk, at, sizeof(chunk));
	/* Not begun yet, or cut off in the middle of being written. */
	if (chunk.magic != TRACE_CHUNK_MAGIC || chunk.used > TRACE_CHUNK - sizeof(chunk))
		return true;
	r->chunks++;
	if (!r->first_serial || chunk.serial < r->first_serial)
		r->first_serial = chunk.serial;
	if (chunk.serial > r->last_serial)
		r->last_serial = chunk.serial;
	at += sizeof(chunk);
	for (uint32_t done = 0; (size = record_size(at + done, chunk.used - done)); done += size) {
		struct trace_call call;

		memcpy(&call, at + done, sizeof(call));
		if (call.kind == TRACE_SPAN) {
			if (!span_keep(r, at + done))
				return false;
			continue;
		}
		if (!record_add(r, &(struct record){ .start_ns = call.start_ns, .bytes = at + done, .thread = chunk.thread }))
			return false;
	}
	return true;
}

/* Played commands by number; then the rest, as it came in time. */
static int by_command(const void *a, const void *b)
{
	const struct trace_span *x = a, *y = b;

	if ((x->who == SPAN_WORKER) != (y->who == SPAN_WORKER))
		return x->who == SPAN_WORKER ? -1 : 1;
	if (x->who == SPAN_WORKER)
		return x->seq < y->seq ? -1 : x->seq > y->seq;
	return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

const struct trace_span *recording_played(const struct recording *r, uint64_t seq)
{
	size_t low = 0, high = r->span_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (r->spans[middle].who == SPAN_WORKER && r->spans[middle].seq < seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low < r->span_count && r->spans[low].who == SPAN_WORKER && r->spans[low].seq == seq ? &r->spans[low] : NULL;
}

/*
 * How the worker's clock differs: a command is played after the broker sent it on, and before the call returned that waited for
 * its answer. What all of them allow; or, where clocks drift so that nothing does, the shortest round trip.
 */
static void clocks_align(struct recording *r)
{
	int64_t low = INT64_MIN, high = INT64_MAX;

	r->offset_within_ns = UINT64_MAX;
	qsort(r->spans, r->span_count, sizeof(*r->spans), by_command);
	for (size_t i = 0; i < r->span_count; i++) {
		const struct trace_span *span = r->spans[i].who == SPAN_BROKER ? recording_played(r, r->spans[i].seq) : NULL;

		if (span && (int64_t)(r->spans[i].end_ns - span->start_ns) > low)
			low = (int64_t)(r->spans[i].end_ns - span->start_ns);
	}
	for (size_t i = 0; i < r->count; i++) {
		const struct trace_span *span;
		struct trace_call call;
		int64_t least, most;

		memcpy(&call, r->records[i].bytes, sizeof(call));
		span = call.waited_for_it ? recording_played(r, call.seq) : NULL;
		if (!span)
			continue;
		least = (int64_t)(call.start_ns - span->start_ns);
		most = (int64_t)(call.end_ns - span->end_ns);
		low = least > low ? least : low;
		high = most < high ? most : high;
		if (most < least || (uint64_t)(most - least) / 2 >= r->offset_within_ns)
			continue;
		r->offset_ns = least + (most - least) / 2;
		r->offset_within_ns = (uint64_t)(most - least) / 2;
	}
	if (low != INT64_MIN && high != INT64_MAX && low <= high) {
		r->offset_ns = low + (high - low) / 2;
		r->offset_within_ns = (uint64_t)(high - low) / 2;
	}
}

static int by_start(const void *a, const void *b)
{
	const struct record *x = a, *y = b;

	return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

int recording_read(struct recording *r, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat stat;

	if (fd < 0 || fstat(fd, &stat) < 0) {
		int err = errno;

		if (fd >= 0)
			close(fd);
		return failed("%s: %s; a program writes it when GLEAM_TRACE names it", path, strerror(err));
	}
	r->size = stat.st_size > 0 ? (size_t)stat.st_size : 0;
	r->bytes = r->size >= sizeof(r->head) ? mmap(NULL, r->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	close(fd);
	if (r->bytes == MAP_FAILED)
		return failed("%s is not a trace: a program writes one, from cuInit on, into the file that GLEAM_TRACE names", path);
	memcpy(&r->head, r->bytes, sizeof(r->head));
	if (r->head.magic != TRACE_MAGIC || r->head.chunk != TRACE_CHUNK)
		return failed("%s is not a trace: a program writes one, from cuInit on, into the file that GLEAM_TRACE names", path);
	if (r->head.names_hash != trace_names_hash || r->head.api_count != API_COUNT)
		return failed("%s was written by a library of another version: use its gleamctl", path);
	r->head.program[sizeof(r->head.program) - 1] = '\0';
	for (uint64_t at = TRACE_CHUNK; at < r->size; at += TRACE_CHUNK) {
		const uint8_t *chunk = r->bytes + at;

		if (r->size - at < sizeof(struct trace_chunk))
			break;
		/* The last one ends where the file does: what is missing has no records. */
		if (r->size - at < TRACE_CHUNK) {
			r->last = calloc(1, TRACE_CHUNK);
			if (!r->last)
				return failed("out of memory");
			memcpy(r->last, chunk, r->size - at);
			chunk = r->last;
		}
		if (!chunk_read(r, chunk))
			return failed("out of memory");
	}
	qsort(r->records, r->count, sizeof(*r->records), by_start);
	clocks_align(r);
	return 0;
}

void recording_free(struct recording *r)
{
	free(r->records);
	free(r->spans);
	free(r->last);
}
