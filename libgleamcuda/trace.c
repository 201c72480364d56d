// SPDX-License-Identifier: Apache-2.0
/*
 * The recorder. A record costs two looks at the clock and a copy; one system call a chunk. The file's chunks are used in
 * turns, so that it stays bounded. Any thread; see trace.h.
 */
#include "libgleamcuda/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/span.h"
#include "broker/proto/trace.h"
#include "gen/trace_args.h"
#include "libgleamcuda/context.h"
#include "libgleamcuda/init.h"
#include "libgleamcuda/log.h"
#include "libgleamcuda/session.h"

#define MIB_MAX 65536u

struct tracer {
	struct tracer *next;	/* in all; guarded by lock */
	uint64_t place;		/* of its chunk in the file; guarded by lock */
	bool begun;		/* has a place; guarded by lock */
	uint32_t written;	/* of used; guarded by lock */
	struct trace_chunk *chunk; /* TRACE_CHUNK bytes; used is written by the owner alone, release after the record */
};

bool trace_on;

static int file = -1;
static uint32_t chunks_max = TRACE_CHUNKS;
static __thread struct tracer *own __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* guarded by lock */
static struct tracer *all;
static uint64_t serial; /* chunks begun */

static uint64_t clock_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool write_at(const void *bytes, size_t size, uint64_t offset)
{
	const char *from = bytes;

	while (size) {
		ssize_t got = pwrite(file, from, size, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			/* Told once: the first to see it switches it off. */
			if (__atomic_exchange_n(&trace_on, false, __ATOMIC_RELAXED))
				gleam_log("GLEAM_TRACE: %s; nothing more is recorded", strerror(got ? errno : ENOSPC));
			return false;
		}
		from += got;
		offset += (uint64_t)got;
		size -= (size_t)got;
	}
	return true;
}

/* What of a chunk isn't in the file yet. */
static void chunk_write_locked(struct tracer *t)
{
	/* Pairs with the release in record_put(): the records are whole. */
	uint32_t used = __atomic_load_n(&t->chunk->used, __ATOMIC_ACQUIRE);
	struct trace_chunk head = { .magic = t->chunk->magic, .used = used, .thread = t->chunk->thread,
				    .lost = __atomic_load_n(&t->chunk->lost, __ATOMIC_RELAXED) };

	if (used == t->written)
		return;
	if (t->begun && serial - t->chunk->serial >= chunks_max - 1) {
		/* Others have gone once around the file since: its place is taken. */
		t->begun = false;
		t->written = 0;
	}
	if (!t->begun) {
		t->begun = true;
		t->chunk->serial = ++serial;
		t->place = (1 + (serial - 1) % chunks_max) * (uint64_t)TRACE_CHUNK;
	}
	head.serial = t->chunk->serial;
	if (!write_at((const char *)(t->chunk + 1) + t->written, used - t->written, t->place + sizeof(head) + t->written) ||
	    !write_at(&head, sizeof(head), t->place))
		return;
	t->written = used;
}

static void chunk_next(struct tracer *t)
{
	pthread_mutex_lock(&lock);
	chunk_write_locked(t);
	t->begun = false;
	t->written = 0;
	__atomic_store_n(&t->chunk->used, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
}

void trace_flush(void)
{
	if (!__atomic_load_n(&trace_on, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	for (struct tracer *t = all; t; t = t->next)
		chunk_write_locked(t);
	pthread_mutex_unlock(&lock);
}

/* A thread that has ended leaves its records written, and its memory to the next one. */
static void tracer_end(struct thread *thread)
{
	struct tracer *t = own;

	if (!t || process_is_forked())
		return;
	own = NULL;
	pthread_mutex_lock(&lock);
	chunk_write_locked(t);
	for (struct tracer **at = &all; *at; at = &(*at)->next)
		if (*at == t) {
			*at = t->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	free(t->chunk);
	free(t);
}

static struct tracer *tracer_own(void)
{
	struct tracer *t = own;

	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->chunk = malloc(TRACE_CHUNK);
	if (!t->chunk) {
		free(t);
		return NULL;
	}
	*t->chunk = (struct trace_chunk){ .magic = TRACE_CHUNK_MAGIC, .thread = (uint32_t)syscall(SYS_gettid) };
	/* The thread's end is heard of by its struct thread. */
	if (!thread_current()) {
		free(t->chunk);
		free(t);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	t->next = all;
	all = t;
	pthread_mutex_unlock(&lock);
	own = t;
	return t;
}

/* What an argument holds: numbers as they are; where the call has written something, that. */
static uint64_t value_of(enum trace_arg_kind kind, uint64_t value, CUresult result)
{
	const void *at = (const void *)(uintptr_t)value;

	if (kind < TRACE_ARG_OUT || !at)
		return value;
	/* A call that failed has written nothing. */
	if (result)
		return 0;
	switch (kind) {
	case TRACE_ARG_OUT_I32:
		return (uint64_t)(int64_t) * (const int32_t *)at;
	case TRACE_ARG_OUT_U32:
	case TRACE_ARG_OUT_F32:
		return *(const uint32_t *)at;
	default:
		return *(const uint64_t *)at;
	}
}

/* @record is whole; its size is a multiple of 8. */
static void record_put(struct tracer *t, const void *record, uint32_t size)
{
	uint32_t used;

	if (t->chunk->used + size > TRACE_CHUNK - sizeof(struct trace_chunk))
		chunk_next(t);
	used = t->chunk->used;
	memcpy((uint8_t *)(t->chunk + 1) + used, record, size);
	/* Pairs with the acquire in chunk_write_locked(). */
	__atomic_store_n(&t->chunk->used, used + size, __ATOMIC_RELEASE);
}

void trace_spans(struct reader *r)
{
	struct tracer *t = trace_on ? tracer_own() : NULL;
	uint32_t lost = get_u32(r), count = get_u32(r);

	for (uint32_t i = 0; t && i < count && i < SPANS_MAX && !r->fault; i++) {
		struct span span = span_get(r);
		struct trace_span record = { .size = sizeof(record), .kind = TRACE_SPAN, .who = (uint8_t)span.who, .op = span.op,
					     .word = span.word, .seq = span.seq, .start_ns = span.start_ns, .end_ns = span.end_ns };

		if (!r->fault)
			record_put(t, &record, sizeof(record));
	}
	if (t && lost)
		__atomic_fetch_add(&t->chunk->lost, lost, __ATOMIC_RELAXED);
}

void trace_call(const struct call *call, CUresult result, const uint64_t *args, uint32_t count)
{
	uint8_t record[sizeof(struct trace_call) + TRACE_ARGS_MAX * (8 + 1 + TRACE_STRING_MAX)] __attribute__((aligned(8)));
	const struct trace_args *known = &trace_args[call->api];
	struct trace_call head = {
		.kind = TRACE_CALL, .args = (uint8_t)count, .api = call->api, .trips = call->trips, .result = result,
		.seq = call->posted, .waited_for_it = call->posted && call->posted == call->answered, .start_ns = call->entered_ns, .end_ns = clock_of(CLOCK_MONOTONIC),
	};
	uint32_t at = sizeof(head) + count * 8;
	struct tracer *t = process_is_forked() ? NULL : tracer_own();

	if (!t || count > TRACE_ARGS_MAX)
		return;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t value = value_of(known->args[i].kind, args[i], result);

		memcpy(record + sizeof(head) + i * 8, &value, 8);
		if (known->args[i].kind == TRACE_ARG_STR && value) {
			size_t length = strnlen((const char *)(uintptr_t)value, TRACE_STRING_MAX);

			record[at] = (uint8_t)length;
			memcpy(record + at + 1, (const char *)(uintptr_t)value, length);
			at += 1 + (uint32_t)length;
		}
	}
	head.size = (uint16_t)((at + 7) & ~7u);
	memset(record + at, 0, head.size - at);
	memcpy(record, &head, sizeof(head));
	record_put(t, record, head.size);
}

uint64_t trace_now(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

/* %p becomes the process's number, so that each of several has a file of its own. */
static void path_make(char *path, size_t size, const char *asked)
{
	const char *mark = strstr(asked, "%p");

	if (mark)
		snprintf(path, size, "%.*s%d%s", (int)(mark - asked), asked, (int)getpid(), mark + 2);
	else
		snprintf(path, size, "%s", asked);
}

void trace_start(void)
{
	const char *asked = secure_getenv("GLEAM_TRACE");
	const char *size = secure_getenv("GLEAM_TRACE_MIB");
	char path[4096];
	struct trace_file head = {
		.magic = TRACE_MAGIC, .chunk = TRACE_CHUNK, .api_count = API_COUNT, .names_hash = trace_names_hash,
		.pid = (uint32_t)getpid(), .started_ns = clock_of(CLOCK_MONOTONIC), .started_real_ns = clock_of(CLOCK_REALTIME),
	};
	ssize_t length;
	int above;

	if (!asked || !*asked || file >= 0)
		return;
	path_make(path, sizeof(path), asked);
	if (size) {
		unsigned long mib = strtoul(size, NULL, 10);

		if (mib >= 1 && mib <= MIB_MAX)
			chunks_max = (uint32_t)(mib * ((1u << 20) / TRACE_CHUNK));
		else
			gleam_log("GLEAM_TRACE_MIB=%s: not a number from 1 to %u; 256 are used", size, MIB_MAX);
	}
	file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0600);
	if (file >= 0 && file <= STDERR_FILENO) {
		above = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(file);
		file = above;
	}
	length = readlink("/proc/self/exe", head.program, sizeof(head.program) - 1);
	head.program[length > 0 ? length : 0] = '\0';
	if (file < 0 || pwrite(file, &head, sizeof(head), 0) != sizeof(head)) {
		gleam_log("GLEAM_TRACE=%s: %s; nothing is recorded", path, strerror(errno));
		return;
	}
	thread_on_end(tracer_end);
	__atomic_store_n(&trace_on, true, __ATOMIC_RELEASE);
}

/* Threads may still be calling: what they have recorded by now is written. */
__attribute__((destructor)) static void trace_end(void)
{
	struct session *s = session_current(); /* whose spans are taken: see service.c */

	if (process_is_forked() || !trace_on)
		return;
	/* What has just come about the last commands, if the service thread takes it soon. */
	for (int turn = 0; s && turn < 50; turn++) {
		if (__atomic_load_n(&s->header->n2c.tail, __ATOMIC_ACQUIRE) >= __atomic_load_n(&s->header->n2c.head, __ATOMIC_ACQUIRE))
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	}
	trace_flush();
}
