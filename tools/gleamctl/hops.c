// SPDX-License-Identifier: Apache-2.0
/* Where awaited calls spend their time; see hops.h. */
#include "tools/gleamctl/hops.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "broker/proto/span.h"
#include "gen/api.h"
#include "gen/ops.h"
#include "tools/gleamctl/gleamctl.h"

enum hop {
	HOP_PROGRAM, /* from the end of the thread's call before it: the program itself */
	HOP_SENT,    /* from the program's call until its daemon has sent the command on */
	HOP_THERE,   /* until the worker begins with it */
	HOP_PLAYED,  /* the worker and the driver's call in it */
	HOP_GPU,     /* until the GPU has done it, where the call waits for that */
	HOP_BACK,    /* until the answer is at the daemon */
	HOP_TAKEN,   /* until the call returns */
	HOP_WHOLE,
	HOP_COUNT
};

static const char *const hop_names[] = { "program", "to daemon", "to worker", "worker", "GPU", "back", "to call", "in all" };
static_assert(sizeof(hop_names) / sizeof(hop_names[0]) == HOP_COUNT, "each hop has a name");

/* One call. */
struct way {
	uint32_t api;
	bool passed[HOP_COUNT];
	double us[HOP_COUNT];
};

static int by_end(const void *a, const void *b)
{
	const struct trace_span *x = a, *y = b;

	return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

static int by_api(const void *a, const void *b)
{
	const struct way *x = a, *y = b;

	return x->api < y->api ? -1 : x->api > y->api;
}

/* Calls of a thread in the order of their beginnings. */
static int by_thread(const void *a, const void *b)
{
	const struct record *x = *(const struct record *const *)a, *y = *(const struct record *const *)b;

	if (x->thread != y->thread)
		return x->thread < y->thread ? -1 : 1;
	return x->start_ns < y->start_ns ? -1 : x->start_ns > y->start_ns;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* When the call before each of @r's ended, of its thread; 0: it is the first. NULL: no memory. */
static uint64_t *before_make(const struct recording *r)
{
	const struct record **sorted = calloc(r->count + 1, sizeof(*sorted));
	uint64_t *before = calloc(r->count + 1, sizeof(*before));

	for (size_t i = 0; sorted && i < r->count; i++)
		sorted[i] = &r->records[i];
	if (sorted)
		qsort(sorted, r->count, sizeof(struct record *), by_thread);
	for (size_t i = 1; sorted && before && i < r->count; i++) {
		struct trace_call call;

		memcpy(&call, sorted[i - 1]->bytes, sizeof(call));
		if (sorted[i]->thread == sorted[i - 1]->thread)
			before[sorted[i] - r->records] = call.end_ns;
	}
	if (!sorted) {
		free(before);
		before = NULL;
	}
	free(sorted);
	return before;
}

/* What broker and GPU told, in our clock and in its order; NULL: no memory. */
static struct trace_span *told_make(const struct recording *r, size_t *count_out)
{
	struct trace_span *told = calloc(r->span_count + 1, sizeof(*told));
	size_t count = 0;

	for (size_t i = 0; told && i < r->span_count; i++) {
		if (r->spans[i].who == SPAN_WORKER)
			continue;
		told[count] = r->spans[i];
		if (told[count].who == SPAN_GPU)
			told[count].end_ns += (uint64_t)r->offset_ns;
		count++;
	}
	if (told)
		qsort(told, count, sizeof(*told), by_end);
	*count_out = count;
	return told;
}

static void step(struct way *way, enum hop hop, uint64_t *from, uint64_t to)
{
	/* Clocks are aligned within some microseconds: what would be negative is nothing. */
	way->us[hop] = to > *from ? (double)(to - *from) / 1e3 : 0;
	way->passed[hop] = true;
	if (to > *from)
		*from = to;
}

/* @told from the first that can belong to it. False: the worker's part of it isn't known. */
static bool way_of(const struct recording *r, const struct trace_call *call, const struct trace_span *told, size_t count, struct way *way_out)
{
	const struct trace_span *played = recording_played(r, call->seq);
	uint64_t sent = 0, answered = 0, done = 0, from = call->start_ns;
	struct way way = { .api = call->api };

	if (!played)
		return false;
	for (size_t i = 0; i < count && told[i].end_ns <= call->end_ns; i++) {
		if (told[i].who == SPAN_BROKER && told[i].seq == call->seq)
			sent = told[i].end_ns;
		else if (told[i].who == SPAN_ANSWER && told[i].seq == call->seq)
			answered = told[i].end_ns;
		else if (told[i].who == SPAN_GPU && !done && played->word != SPAN_NO_WORD && told[i].word == played->word &&
			 (int32_t)((uint32_t)told[i].seq - (uint32_t)call->seq) >= 0)
			done = told[i].end_ns;
	}
	if (sent)
		step(&way, HOP_SENT, &from, sent);
	step(&way, HOP_THERE, &from, played->start_ns + (uint64_t)r->offset_ns);
	step(&way, HOP_PLAYED, &from, played->end_ns + (uint64_t)r->offset_ns);
	/* A command that has no answer but with GLEAM_OFF=async is answered at once; others may not wait for the GPU: then it is behind the answer. */
	if (done && (!answered || done < answered) && played->op < OP_MAX && op_info[played->op].flags & OP_HAS_REPLY)
		step(&way, HOP_GPU, &from, done);
	if (answered)
		step(&way, HOP_BACK, &from, answered);
	step(&way, HOP_TAKEN, &from, call->end_ns);
	from = call->start_ns;
	step(&way, HOP_WHOLE, &from, call->end_ns);
	*way_out = way;
	return true;
}

/* A line of @count ways of one function. */
static void line_print(const struct way *ways, size_t count, double *values)
{
	printf("%-32s %6zu", api_names[ways->api], count);
	for (unsigned hop = 0; hop < HOP_COUNT; hop++) {
		size_t n = 0;

		for (size_t i = 0; i < count; i++)
			if (ways[i].passed[hop])
				values[n++] = ways[i].us[hop];
		/* Where most of them didn't come by, the others are no usual case. */
		if (2 * n <= count) {
			printf(" %9s", "-");
			continue;
		}
		qsort(values, n, sizeof(*values), by_value);
		printf(" %9.1f", values[n / 2]);
	}
	putchar('\n');
}

int hops_print(const struct recording *r)
{
	struct way *ways = calloc(r->count + 1, sizeof(*ways));
	double *values = calloc(r->count + 1, sizeof(*values));
	size_t told_count = 0, first = 0, count = 0, unknown = 0;
	struct trace_span *told = told_make(r, &told_count);
	uint64_t *before = before_make(r);
	int status = 0;

	if (!ways || !values || !told || !before) {
		status = failed("out of memory");
		goto out;
	}
	for (size_t i = 0; i < r->count; i++) {
		struct trace_call call;

		memcpy(&call, r->records[i].bytes, sizeof(call));
		/* Calls are in the order of their beginnings. */
		while (first < told_count && told[first].end_ns < call.start_ns)
			first++;
		if (!call.waited_for_it)
			continue;
		if (!way_of(r, &call, told + first, told_count - first, &ways[count])) {
			unknown++;
			continue;
		}
		if (before[i])
			step(&ways[count], HOP_PROGRAM, &before[i], call.start_ns);
		count++;
	}
	qsort(ways, count, sizeof(*ways), by_api);
	printf("# %zu calls that waited for their answer; medians in us", count);
	if (r->offset_within_ns != UINT64_MAX)
		printf("; the worker's clock is known within %.1f us", (double)r->offset_within_ns / 1e3);
	putchar('\n');
	if (unknown)
		printf("# %zu more, of which the worker has told nothing\n", unknown);
	printf("%-32s %6s", "# function", "calls");
	for (unsigned hop = 0; hop < HOP_COUNT; hop++)
		printf(" %9s", hop_names[hop]);
	putchar('\n');
	for (size_t i = 0, next; i < count; i = next) {
		for (next = i; next < count && ways[next].api == ways[i].api; next++)
			;
		line_print(ways + i, next - i, values);
	}
out:
	free(ways);
	free(values);
	free(told);
	free(before);
	return status;
}
