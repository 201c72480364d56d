// SPDX-License-Identifier: Apache-2.0
/*
 * What a program recorded by GLEAM_TRACE=file, as a list or as a trace for Perfetto and Chrome. The file is another
 * program's: every number is checked before it is used. One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "broker/lib/error_text.h"
#include "broker/proto/ring.h"
#include "broker/proto/span.h"
#include "broker/proto/trace.h"
#include "gen/api.h"
#include "gen/ops.h"
#include "gen/trace_args.h"
#include "tools/gleamctl/gleamctl.h"
#include "tools/gleamctl/hops.h"
#include "tools/gleamctl/recording.h"

#define NS_PER_S 1000000000ull

/* ---- one call as text ---- */

static void put_text(FILE *out, const uint8_t *text, size_t length, bool json)
{
	/* A program's bytes: nothing of them reaches a terminal unread. */
	for (size_t i = 0; i < length; i++)
		if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
			fprintf(out, json ? "\\u%04x" : "\\x%02x", text[i]);
		else
			fputc(text[i], out);
}

/* @text_at: where the next text argument of the record lies; moves on. */
static void put_value(FILE *out, enum trace_arg_kind kind, uint64_t value, const struct trace_call *call, const uint8_t *bytes,
		      uint32_t *text_at, bool json)
{
	uint32_t bits = (uint32_t)value;
	float number;

	switch (kind) {
	case TRACE_ARG_I32:
	case TRACE_ARG_OUT_I32:
		fprintf(out, "%" PRId32, (int32_t)bits);
		return;
	case TRACE_ARG_U32:
	case TRACE_ARG_OUT_U32:
		fprintf(out, "%" PRIu32, bits);
		return;
	case TRACE_ARG_U64:
	case TRACE_ARG_OUT_U64:
		fprintf(out, "%" PRIu64, value);
		return;
	case TRACE_ARG_F32:
	case TRACE_ARG_OUT_F32:
		memcpy(&number, &bits, sizeof(number));
		fprintf(out, "%g", (double)number);
		return;
	case TRACE_ARG_STR:
		if (!value) {
			fputs("NULL", out);
			return;
		}
		fputs(json ? "\\\"" : "\"", out);
		if (*text_at < call->size && bytes[*text_at] < call->size - *text_at) {
			put_text(out, bytes + *text_at + 1, bytes[*text_at], json);
			*text_at += 1u + bytes[*text_at];
		}
		fputs(json ? "\\\"" : "\"", out);
		return;
	case TRACE_ARG_STRUCT:
		fputs("{...}", out);
		return;
	default:
		fprintf(out, value ? "%#" PRIx64 : "NULL", value);
	}
}

static void put_args(FILE *out, const struct trace_call *call, const uint8_t *bytes, bool json)
{
	const struct trace_args *known = &trace_args[call->api];
	uint32_t text_at = (uint32_t)sizeof(*call) + call->args * 8u;

	for (uint32_t i = 0; i < call->args; i++) {
		uint64_t value;

		memcpy(&value, bytes + sizeof(*call) + i * 8, 8);
		fprintf(out, "%s%s=", i ? ", " : "", known->args[i].name);
		put_value(out, known->args[i].kind, value, call, bytes, &text_at, json);
	}
}

static const char *result_name(int32_t result)
{
	const struct error_text *text = error_text_find((unsigned int)result);

	return text ? text->name : "an unknown result";
}

/* ---- forms ---- */

static void list_print(const struct recording *r)
{
	time_t seconds = (time_t)(r->head.started_real_ns / NS_PER_S);
	struct tm tm;
	char when[32] = "?";

	if (localtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
	printf("# ");
	put_text(stdout, (const uint8_t *)r->head.program, strlen(r->head.program), false);
	printf(", pid %" PRIu32 ", from %s on; %zu calls\n", r->head.pid, when, r->count);
	if (r->chunks && r->last_serial - r->first_serial + 1 > r->chunks)
		puts("# chunks are missing: the program is being recorded, or was killed");
	else if (r->first_serial > 1)
		puts("# the beginning is gone: the file holds the newest calls (GLEAM_TRACE_MIB)");
	if (r->span_count && r->offset_within_ns != UINT64_MAX)
		printf("# %zu moments of broker, worker and GPU (--chrome); the worker's clock differs by %.1f us, within %.1f us\n", r->span_count,
		       (double)r->offset_ns / 1e3, (double)r->offset_within_ns / 1e3);
	puts("#      ms   thread      us trips  command  call");
	for (size_t i = 0; i < r->count; i++) {
		struct trace_call call;

		memcpy(&call, r->records[i].bytes, sizeof(call));
		printf("%9.3f %8" PRIu32 " %7.1f %5u ", (double)(int64_t)(call.start_ns - r->head.started_ns) / 1e6, r->records[i].thread,
		       (double)(call.end_ns - call.start_ns) / 1e3, call.trips);
		if (call.seq)
			printf("%8" PRIu64, call.seq);
		else
			printf("%8s", "-");
		printf("  %s(", api_names[call.api]);
		put_args(stdout, &call, r->records[i].bytes, false);
		printf(") = %s\n", result_name(call.result));
	}
}

static const char *op_text(uint16_t op)
{
	return op < OP_MAX && op_info[op].name ? op_info[op].name : "a command";
}

/* One complete event; times in ns of our clock. */
static void event_print(FILE *out, const struct recording *r, unsigned process, unsigned line, const char *name, uint64_t from,
			uint64_t to, uint64_t seq)
{
	fprintf(out, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"command\":%" PRIu64 "}}",
		process, line, name, (double)(int64_t)(from - r->head.started_ns) / 1e3, (double)(int64_t)(to - from) / 1e3, seq);
}

/*
 * Commands behind the library: a moment when the broker sent one on or got its answer, the time in which the worker played it,
 * and for each word of a stream the time from when its first command was played (or the word was told before) to when it
 * told that all up to a number was done.
 */
static void chrome_behind(FILE *out, const struct recording *r)
{
	static const char *const names[] = { [SPAN_BROKER] = "broker", [SPAN_WORKER] = "worker (its clock, aligned)",
					     [SPAN_GPU] = "GPU, by the words of its streams" };
	uint32_t *told = calloc(SESSION_PROGRESS_WORDS, sizeof(*told));
	uint64_t *told_ns = calloc(SESSION_PROGRESS_WORDS, sizeof(*told_ns));
	size_t *next = calloc(SESSION_PROGRESS_WORDS, sizeof(*next)); /* played commands before it are passed */

	for (unsigned process = SPAN_BROKER; process <= SPAN_GPU; process++)
		if (names[process])
			fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", process, names[process]);
	for (size_t i = 0; i < r->span_count && told && told_ns && next; i++) {
		const struct trace_span *span = &r->spans[i];
		uint64_t from = span->start_ns + (uint64_t)r->offset_ns, to = span->end_ns + (uint64_t)r->offset_ns;
		const struct trace_span *first = NULL;
		char name[64];

		switch (span->who) {
		case SPAN_BROKER:
		case SPAN_ANSWER:
			event_print(out, r, SPAN_BROKER, span->who, op_text(span->op), span->start_ns, span->end_ns, span->seq);
			break;
		case SPAN_WORKER:
			event_print(out, r, SPAN_WORKER, 1, op_text(span->op), from, to, span->seq);
			break;
		case SPAN_GPU:
			if (span->word >= SESSION_PROGRESS_WORDS)
				break;
			/* The first command of this word behind what was told before. */
			for (size_t *k = &next[span->word]; *k < r->span_count && r->spans[*k].who == SPAN_WORKER && !first; (*k)++)
				if (r->spans[*k].word == span->word && (int32_t)((uint32_t)r->spans[*k].seq - told[span->word]) > 0)
					first = &r->spans[*k];
			if (first && (int32_t)((uint32_t)span->seq - (uint32_t)first->seq) >= 0) {
				from = first->start_ns > told_ns[span->word] ? first->start_ns : told_ns[span->word];
				snprintf(name, sizeof(name), "commands %u to %u", (unsigned)first->seq, (unsigned)span->seq);
				if (from < span->end_ns)
					event_print(out, r, SPAN_GPU, span->word, name, from + (uint64_t)r->offset_ns, to, span->seq);
			}
			told[span->word] = (uint32_t)span->seq;
			told_ns[span->word] = span->end_ns;
			break;
		default:
			break;
		}
	}
	free(told);
	free(told_ns);
	free(next);
}

/* The JSON that chrome://tracing and ui.perfetto.dev read: one complete event a call. */
static void chrome_print(FILE *out, const struct recording *r)
{
	fprintf(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"");
	put_text(out, (const uint8_t *)r->head.program, strlen(r->head.program), true);
	fprintf(out, "\"},\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"name\":\"process_name\",\"args\":{\"name\":\"library\"}}",
		r->head.pid);
	for (size_t i = 0; i < r->count; i++) {
		struct trace_call call;

		memcpy(&call, r->records[i].bytes, sizeof(call));
		fprintf(out,
			",\n{\"ph\":\"X\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"cat\":\"%s\",\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
			"\"args\":{\"call\":\"",
			r->head.pid, r->records[i].thread, call.trips ? "waits" : "local", api_names[call.api],
			(double)(int64_t)(call.start_ns - r->head.started_ns) / 1e3, (double)(call.end_ns - call.start_ns) / 1e3);
		put_args(out, &call, r->records[i].bytes, true);
		fprintf(out, "\",\"result\":\"%s\",\"command\":%" PRIu64 ",\"answered\":%s,\"round_trips\":%u}}", result_name(call.result), call.seq,
			call.waited_for_it ? "true" : "false", call.trips);
	}
	chrome_behind(out, r);
	fputs("\n]}\n", out);
}

int trace_command(const struct options *options)
{
	struct recording r = { 0 };
	FILE *out;
	int status = recording_read(&r, options->words[0]);

	if (!status && options->chrome) {
		out = fopen(options->chrome, "we");
		if (!out)
			return failed("%s: %s", options->chrome, strerror(errno));
		chrome_print(out, &r);
		if (ferror(out) | fclose(out))
			status = failed("%s: can't be written whole: %s", options->chrome, strerror(errno));
		else
			printf("%zu calls in %s: open it in ui.perfetto.dev or chrome://tracing\n", r.count, options->chrome);
	} else if (!status && options->hops) {
		status = hops_print(&r);
	} else if (!status) {
		list_print(&r);
	}
	recording_free(&r);
	return status ? status : output_end();
}
