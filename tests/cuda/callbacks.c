// SPDX-License-Identifier: Apache-2.0
/*
 * Host functions of streams that wait for others by events: what JAX does, with a function behind each computation on a stream of its
 * own, which otherwise only waits for events of the one that computes. Each has to run in its stream's order and behind the work that it
 * waits for, whatever stands between two of them. `callbacks deep COUNT [ROUNDS]` says how long so many of them took.
 */
#include <pthread.h>

#include "tests/cuda/pieces.h"

#define DEEP 300

static CUcontext context;
static CUfunction spin, fill;

static void busy(CUstream stream, unsigned long long ms)
{
	unsigned long long ns = ms * 1000000;
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value)
{
	unsigned long long n = 1;
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

/* What the functions of one stream have seen. */
struct line {
	unsigned int ran;   /* atomic: how many have returned */
	unsigned int wrong; /* ran out of order */
	unsigned int early; /* before what they wait for */
};

struct step {
	struct line *line;
	unsigned int number;	    /* on its line */
	const unsigned int *sees;   /* NULL: nothing. A word that has to be... */
	unsigned int want;
	unsigned int *writes;	    /* NULL: nothing. Becomes @want at its end */
	unsigned int ms;	    /* it takes so long */
	const struct line *behind;  /* NULL: none. That has to have come to... */
	unsigned int behind_ran;
};

static void step_run(void *user)
{
	struct step *step = user;

	step->line->wrong += __atomic_load_n(&step->line->ran, __ATOMIC_ACQUIRE) != step->number;
	step->line->early += step->sees && __atomic_load_n(step->sees, __ATOMIC_ACQUIRE) != step->want;
	step->line->early += step->behind && __atomic_load_n(&step->behind->ran, __ATOMIC_ACQUIRE) < step->behind_ran;
	if (step->ms)
		usleep(step->ms * 1000);
	if (step->writes)
		__atomic_store_n(step->writes, step->want, __ATOMIC_RELEASE);
	__atomic_fetch_add(&step->line->ran, 1, __ATOMIC_RELEASE);
}

static void function_on(CUstream stream, struct step *step)
{
	MUST(cuLaunchHostFunc(stream, step_run, step));
}

static bool is_right(const struct line *line, unsigned int count)
{
	if (line->ran == count && !line->wrong && !line->early)
		return true;
	printf("%u of %u functions ran, %u out of order, %u too early\n", line->ran, count, line->wrong, line->early);
	return false;
}

static unsigned int *words_new(unsigned int count)
{
	unsigned int *words;

	MUST(cuMemAllocHost((void **)&words, count * sizeof(*words)));
	memset(words, 0, count * sizeof(*words));
	return words;
}

static CUevent event_new(void)
{
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static void wait_for(CUstream stream, CUevent event, CUstream other)
{
	MUST(cuEventRecord(event, other));
	MUST(cuStreamWaitEvent(stream, event, 0));
}

/* The pattern itself: one event for all, whose newest record is meant each time. Gives the seconds that it took. */
static double deep_run(unsigned int count, struct line *line)
{
	CUstream compute = stream_new(), calls = stream_new();
	struct step *steps = calloc(count, sizeof(*steps));
	unsigned int *seen = words_new(count);
	CUevent event = event_new();
	CUdeviceptr data;
	double from;

	MUST(cuMemAlloc(&data, 4));
	/* What is made at a first use isn't counted. */
	fill_on(compute, data, 0);
	MUST(cuMemcpyDtoHAsync(&seen[0], data, 4, compute));
	wait_for(calls, event, compute);
	MUST(cuCtxSynchronize());
	from = prog_seconds();
	for (unsigned int i = 0; i < count; i++) {
		fill_on(compute, data, i + 1);
		MUST(cuMemcpyDtoHAsync(&seen[i], data, 4, compute));
		wait_for(calls, event, compute);
		steps[i] = (struct step){ .line = line, .number = i, .sees = &seen[i], .want = i + 1 };
		function_on(calls, &steps[i]);
	}
	MUST(cuStreamSynchronize(calls));
	from = prog_seconds() - from;
	MUST(cuStreamDestroy(calls));
	MUST(cuStreamDestroy(compute));
	MUST(cuEventDestroy(event));
	MUST(cuMemFree(data));
	MUST(cuMemFreeHost(seen));
	free(steps);
	return from;
}

static void *deep_thread(void *arg)
{
	MUST(cuCtxSetCurrent(context));
	deep_run(DEEP / 3, arg);
	return NULL;
}

static void deep_check(void)
{
	struct line lines[4] = { { 0 } };
	pthread_t threads[3];

	deep_run(DEEP, &lines[3]);
	CHECK(is_right(&lines[3], DEEP), "functions behind events of a stream that computes");
	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], NULL, deep_thread, &lines[i]))
			abort();
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		CHECK(is_right(&lines[i], DEEP / 3), "the same in thread %d of three", i);
	}
}

/* Events of two streams, of which one is late, and destroyed while it is waited for. */
static void events_check(void)
{
	CUstream fast = stream_new(), slow = stream_new(), calls = stream_new();
	unsigned int *seen = words_new(2);
	CUevent of_fast = event_new(), of_slow = event_new(), never = event_new();
	struct line line = { 0 };
	struct step steps[] = {
		{ .line = &line, .number = 0, .sees = &seen[0], .want = 11, .ms = 20 },
		{ .line = &line, .number = 1, .sees = &seen[1], .want = 12 },
		{ .line = &line, .number = 2, .sees = &seen[0], .want = 11 },
		{ .line = &line, .number = 3, .sees = &seen[1], .want = 12 },
	};
	CUdeviceptr data;

	MUST(cuMemAlloc(&data, 8));
	busy(slow, 60);
	fill_on(slow, data + 4, 12);
	MUST(cuMemcpyDtoHAsync(&seen[1], data + 4, 4, slow));
	fill_on(fast, data, 11);
	MUST(cuMemcpyDtoHAsync(&seen[0], data, 4, fast));
	wait_for(calls, of_fast, fast);
	function_on(calls, &steps[0]);
	wait_for(calls, of_slow, slow);
	/* A later record doesn't count, and one that never was is none. */
	busy(slow, 20);
	MUST(cuEventRecord(of_slow, slow));
	MUST(cuStreamWaitEvent(calls, never, 0));
	function_on(calls, &steps[1]);
	wait_for(calls, of_fast, fast);
	function_on(calls, &steps[2]);
	function_on(calls, &steps[3]);
	MUST(cuStreamDestroy(slow));
	MUST(cuStreamDestroy(fast));
	MUST(cuEventDestroy(of_fast));
	MUST(cuEventDestroy(of_slow));
	MUST(cuEventDestroy(never));
	MUST(cuStreamSynchronize(calls));
	CHECK(is_right(&line, 4), "functions behind events of two streams");
	MUST(cuCtxSynchronize());
	MUST(cuStreamDestroy(calls));
	MUST(cuMemFree(data));
	MUST(cuMemFreeHost(seen));
}

/* Work of the device between two functions: it sees what the first has written, and the second sees what it has. */
static void work_check(void)
{
	enum { ROUNDS = 8 };
	CUstream calls = stream_new();
	unsigned int *words = words_new(2 * ROUNDS);
	struct line line = { 0 };
	struct step steps[2 * ROUNDS];
	CUdeviceptr data;

	MUST(cuMemAlloc(&data, 4));
	for (unsigned int i = 0; i < ROUNDS; i++) {
		steps[2 * i] = (struct step){ .line = &line, .number = 2 * i, .writes = &words[2 * i], .want = 100 + i, .ms = 3 };
		steps[2 * i + 1] = (struct step){ .line = &line, .number = 2 * i + 1, .sees = &words[2 * i + 1], .want = 100 + i };
		function_on(calls, &steps[2 * i]);
		MUST(cuMemcpyHtoDAsync(data, &words[2 * i], 4, calls));
		MUST(cuMemcpyDtoHAsync(&words[2 * i + 1], data, 4, calls));
		function_on(calls, &steps[2 * i + 1]);
	}
	MUST(cuStreamSynchronize(calls));
	CHECK(is_right(&line, 2 * ROUNDS), "functions with copies between them");
	MUST(cuStreamDestroy(calls));
	MUST(cuMemFree(data));
	MUST(cuMemFreeHost(words));
}

/* An event between two functions is done when the first has returned, for whoever looks: the program, and other streams. */
static void records_check(void)
{
	CUstream calls = stream_new(), other = stream_new();
	CUevent between = event_new();
	struct line line = { 0 }, line_other = { 0 };
	struct step steps[] = {
		{ .line = &line, .number = 0, .ms = 60 },
		{ .line = &line, .number = 1, .ms = 30 },
		{ .line = &line_other, .number = 0, .behind = &line, .behind_ran = 1 },
		{ .line = &line_other, .number = 1, .behind = &line, .behind_ran = 2 },
	};
	CUresult got;

	function_on(calls, &steps[0]);
	wait_for(other, between, calls);
	function_on(calls, &steps[1]);
	function_on(other, &steps[2]);
	do {
		unsigned int ran;

		got = cuEventQuery(between);
		ran = __atomic_load_n(&line.ran, __ATOMIC_ACQUIRE);
		if (got == CUDA_SUCCESS)
			CHECK(ran >= 1, "an event is done before the function that it stands behind");
		usleep(500);
	} while (got == CUDA_ERROR_NOT_READY);
	wait_for(other, between, calls);
	function_on(other, &steps[3]);
	MUST(cuEventSynchronize(between));
	CHECK(line.ran == 2, "an event is waited for, and %u of 2 functions before it have returned", line.ran);
	MUST(cuStreamSynchronize(other));
	CHECK(is_right(&line, 2), "functions with an event between them");
	CHECK(is_right(&line_other, 2), "functions behind that event");
	MUST(cuStreamDestroy(calls));
	MUST(cuStreamDestroy(other));
	MUST(cuEventDestroy(between));
}

/* What the legacy stream does between two functions of a blocking one is before the second; and the other way round. */
static void legacy_check(void)
{
	unsigned int *seen = words_new(2);
	CUstream blocking;
	struct line line = { 0 }, line_legacy = { 0 };
	struct step steps[] = {
		{ .line = &line, .number = 0, .ms = 20 },
		{ .line = &line, .number = 1, .sees = &seen[0], .want = 21 },
		{ .line = &line_legacy, .number = 0, .ms = 20 },
		{ .line = &line_legacy, .number = 1, .sees = &seen[1], .want = 22 },
		{ .line = &line, .number = 2, .ms = 10 },
		{ .line = &line_legacy, .number = 2, .behind = &line, .behind_ran = 3 },
		{ .line = &line, .number = 3, .behind = &line_legacy, .behind_ran = 3 },
	};
	CUdeviceptr data;

	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	MUST(cuMemAlloc(&data, 8));
	function_on(blocking, &steps[0]);
	busy(NULL, 20);
	fill_on(NULL, data, 21);
	MUST(cuMemcpyDtoHAsync(&seen[0], data, 4, NULL));
	function_on(blocking, &steps[1]);

	function_on(NULL, &steps[2]);
	busy(blocking, 20);
	fill_on(blocking, data + 4, 22);
	MUST(cuMemcpyDtoHAsync(&seen[1], data + 4, 4, blocking));
	function_on(NULL, &steps[3]);

	function_on(blocking, &steps[4]);
	function_on(NULL, &steps[5]);
	function_on(blocking, &steps[6]);
	MUST(cuCtxSynchronize());
	CHECK(is_right(&line, 4), "functions of a blocking stream");
	CHECK(is_right(&line_legacy, 3), "functions of the legacy stream");
	MUST(cuStreamDestroy(blocking));
	MUST(cuMemFree(data));
	MUST(cuMemFreeHost(seen));
}

/*
 * A copy to the host that stands behind a function which becomes due later, on a blocking stream; a function of another one is not before it, nor
 * behind it, also when the legacy stream has got something to do since.
 */
static void unrelated_check(void)
{
	CUstream late = stream_new(), copies, calls;
	unsigned int *seen = words_new(1);
	CUevent event = event_new();
	struct line line = { 0 }, line_late = { 0 };
	struct step steps[] = {
		{ .line = &line_late, .number = 0 },
		{ .line = &line, .number = 0 },
		{ .line = &line, .number = 1, .sees = &seen[0], .want = 41 },
	};
	CUdeviceptr data;

	MUST(cuStreamCreate(&copies, CU_STREAM_DEFAULT));
	MUST(cuStreamCreate(&calls, CU_STREAM_DEFAULT));
	MUST(cuMemAlloc(&data, 8));
	MUST(cuMemsetD32(data, 41, 2));
	MUST(cuCtxSynchronize());
	busy(late, 100);
	function_on(late, &steps[0]);
	wait_for(copies, event, late);
	MUST(cuMemcpyDtoHAsync(seen, data, 4, copies));
	function_on(calls, &steps[1]);
	MUST(cuMemcpyDtoDAsync(data + 4, data, 4, NULL));
	function_on(calls, &steps[2]);
	MUST(cuCtxSynchronize());
	CHECK(is_right(&line_late, 1), "a function that is due later");
	CHECK(is_right(&line, 2), "functions of a stream that has nothing to do with it");
	MUST(cuStreamDestroy(late));
	MUST(cuStreamDestroy(copies));
	MUST(cuStreamDestroy(calls));
	MUST(cuEventDestroy(event));
	MUST(cuMemFree(data));
	MUST(cuMemFreeHost(seen));
}

/* Memory that the host and the device share: each function finds what the one before has written, and a kernel what the last has. */
static void shared_check(void)
{
	enum { FUNCTIONS = 6 };
	CUstream calls = stream_new();
	struct line line = { 0 };
	struct step steps[FUNCTIONS];
	unsigned int *managed;
	CUdeviceptr at;

	MUST(cuMemAllocManaged(&at, 8192, CU_MEM_ATTACH_GLOBAL));
	managed = (unsigned int *)(uintptr_t)at;
	MUST(cuMemsetD32(at, 30, 2048));
	MUST(cuCtxSynchronize());
	for (unsigned int i = 0; i < FUNCTIONS; i += 2) {
		steps[i] = (struct step){ .line = &line, .number = i, .writes = &managed[0], .want = 31 + i };
		steps[i + 1] = (struct step){ .line = &line, .number = i + 1, .sees = &managed[0], .want = 31 + i };
		function_on(calls, &steps[i]);
		function_on(calls, &steps[i + 1]);
	}
	MUST(cuStreamSynchronize(calls));
	CHECK(is_right(&line, FUNCTIONS), "functions that write to managed memory");
	MUST(cuMemcpyDtoDAsync(at + 4096, at, 4, calls));
	MUST(cuStreamSynchronize(calls));
	CHECK(managed[0] == 35 && managed[1024] == 35, "managed memory has %u and %u, not 35", managed[0], managed[1024]);
	/* With what the host has written before, which has been sent by then or not: the function's word is the newest. */
	for (unsigned int i = 0; i < 3; i++) {
		line = (struct line){ 0 };
		managed[0] = 50;
		managed[1] = 60 + i;
		steps[0] = (struct step){ .line = &line, .number = 0, .ms = 5, .writes = &managed[0], .want = 51 + i };
		function_on(calls, &steps[0]);
		MUST(cuMemcpyDtoDAsync(at + 4096, at, 8, calls));
		MUST(cuStreamSynchronize(calls));
		CHECK(managed[1024] == 51 + i && managed[1025] == 60 + i, "managed memory behind a function has %u and %u, not %u and %u", managed[1024],
		      managed[1025], 51 + i, 60 + i);
	}
	MUST(cuStreamDestroy(calls));
	MUST(cuMemFree(at));
}

/* A graph with functions, launched between others of the stream. */
static void graphs_check(void)
{
	enum { LAUNCHES = 5 };
	CUstream calls = stream_new();
	struct line line = { 0 };
	struct step steps[3 * LAUNCHES];
	CUgraphExec execs[LAUNCHES];

	for (unsigned int i = 0; i < 3 * LAUNCHES; i++)
		steps[i] = (struct step){ .line = &line, .number = i };
	for (unsigned int i = 0; i < LAUNCHES; i++) {
		CUDA_HOST_NODE_PARAMS a = { .fn = step_run, .userData = &steps[3 * i + 1] };
		CUDA_HOST_NODE_PARAMS b = { .fn = step_run, .userData = &steps[3 * i + 2] };
		CUgraphNode first, second;
		CUgraph graph;

		MUST(cuGraphCreate(&graph, 0));
		MUST(cuGraphAddHostNode(&first, graph, NULL, 0, &a));
		MUST(cuGraphAddHostNode(&second, graph, &first, 1, &b));
		execs[i] = made(graph);
		MUST(cuGraphDestroy(graph));
	}
	for (unsigned int i = 0; i < LAUNCHES; i++) {
		function_on(calls, &steps[3 * i]);
		MUST(cuGraphLaunch(execs[i], calls));
	}
	MUST(cuStreamSynchronize(calls));
	CHECK(is_right(&line, 3 * LAUNCHES), "functions of a stream and of graphs");
	for (unsigned int i = 0; i < LAUNCHES; i++)
		MUST(cuGraphExecDestroy(execs[i]));
	MUST(cuStreamDestroy(calls));
}

int main(int argc, char **argv)
{
	CUmodule module;

	context = prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	if (argc >= 3 && !strcmp(argv[1], "deep")) {
		unsigned int count = (unsigned int)atoi(argv[2]);

		for (int rounds = argc > 3 ? atoi(argv[3]) : 1; rounds > 0; rounds--) {
			struct line line = { 0 };
			double seconds = deep_run(count, &line);

			CHECK(is_right(&line, count), "functions behind events of a stream that computes");
			printf("%u functions in %.1f ms\n", count, seconds * 1e3);
		}
		return prog_end();
	}
	deep_check();
	events_check();
	work_check();
	records_check();
	legacy_check();
	unrelated_check();
	shared_check();
	graphs_check();
	return prog_end();
}
