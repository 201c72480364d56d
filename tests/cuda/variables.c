// SPDX-License-Identifier: Apache-2.0
/*
 * Variables of a module, which the driver puts where it likes: beside a model on the CPU, by a program that doesn't know where they lie, or that
 * does in one of many ways, for moves to another worker.
 *
 *	variables WHAT FILE	until there is that file. How far it is is told on stderr. WHAT:
 *	free		nobody knows where one lies; functions are called by their class's table
 *	table		functions are called by a table of the program's
 *	memory, host, graph	a pointer to a variable lies in memory of the GPU, in page-locked memory, in a graph's parameters
 *	variable	a kernel has put one into another variable
 *	function	a function's address lies in memory of the GPU
 *	known		the program has asked
 *	library		as free; the variables are a library's
 *	library-known	as known
 *	contexts	a library's on two GPUs, where each has its own
 */
#include "tests/cuda/prog.h"

#define WORDS 1000u

static CUmodule module, classes, tables, late;
static CUlibrary library; /* instead of the module, if it isn't NULL */
/* The model, of each GPU. */
static struct gpu {
	CUcontext context;
	CUdeviceptr out;
	uint32_t counter, history[WORDS];
} gpus[2] = { { .counter = 7 }, { .counter = 7 } };
static struct gpu *here = &gpus[0];
static uint32_t *to_stored; /* what the variable points to, in the model */

static CUfunction function(CUmodule of, const char *name)
{
	CUfunction f;
	CUkernel kernel;

	if (!of) {
		MUST(cuLibraryGetKernel(&kernel, library, name));
		return (CUfunction)kernel;
	}
	MUST(cuModuleGetFunction(&f, of, name));
	return f;
}

static void launch(CUfunction f, void **params)
{
	MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

static void step(CUfunction f, uint32_t by)
{
	static const uint32_t factors[4] = { 3, 5, 7, 11 };
	void *params[] = { &by, &here->out };
	uint32_t got[5], want[5];

	launch(f, params);
	here->counter += by;
	here->counter += factors[by % 4];
	here->history[here->counter % WORDS] += by;
	here->history[10] += 1;
	here->history[500] += 2;
	want[0] = here->counter;
	want[1] = here->history[10];
	want[2] = here->history[500];
	want[3] = here->history[here->counter % WORDS];
	want[4] = to_stored ? *to_stored : 0;
	MUST(cuMemcpyDtoH(got, here->out, sizeof(got)));
	CHECK(memcmp(got, want, sizeof(got)) == 0, "a step by %u: %u %u %u %u %u, not %u %u %u %u %u", by, got[0], got[1], got[2], got[3],
	      got[4], want[0], want[1], want[2], want[3], want[4]);
}

static void called(CUfunction f, uint32_t x, int which, uint32_t want)
{
	void *params[] = { &x, &here->out, &which };
	uint32_t got;

	launch(f, params);
	MUST(cuMemcpyDtoH(&got, here->out, sizeof(got)));
	CHECK(got == want, "a function by a table: %u, not %u", got, want);
}

/* A node of a graph has the variable's address, which nothing else has any more. */
static CUgraphExec graph_make(CUdeviceptr cell)
{
	CUfunction add = function(module, "add_at");
	uint64_t address;
	uint32_t by = 1;
	void *params[] = { &address, &by };
	CUstream stream;
	CUgraph graph;
	CUgraphExec exec;

	MUST(cuMemcpyDtoH(&address, cell, sizeof(address)));
	MUST(cuMemsetD8(cell, 0, sizeof(address)));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	return exec;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "free", *file = argc > 2 ? argv[2] : NULL;
	CUdeviceptr cell = 0, other, known = 0;
	CUgraphExec graph = NULL;
	uint32_t random_state = 1, by = 1;
	void *tells[] = { &cell }, *adds[] = { &cell, &by };
	CUfunction stepping, by_class, by_table = NULL, add;
	void *host = NULL;

	gpus[0].context = prog_context(NULL);
	/* Its functions are used later than those of what is loaded behind it. */
	late = prog_module("util");
	if (strncmp(what, "library", 7) == 0 || strcmp(what, "contexts") == 0) {
		char *text = prog_ptx("variables");

		MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
		free(text);
	} else {
		module = prog_module("variables");
	}
	classes = prog_module("classes");
	MUST(cuMemAlloc(&here->out, 64));
	MUST(cuMemAlloc(&cell, 4096));
	MUST(cuMemAlloc(&other, 4096));
	MUST(cuMemsetD8(cell, 0, 4096));
	stepping = function(module, "step");
	by_class = function(classes, "by_class");
	add = function(module, "add");
	if (strcmp(what, "contexts") == 0) {
		CUdevice second;

		MUST(cuDeviceGet(&second, 1));
		MUST(cuDevicePrimaryCtxRetain(&gpus[1].context, second));
		MUST(cuCtxSetCurrent(gpus[1].context));
		MUST(cuMemAlloc(&gpus[1].out, 64));
		MUST(cuCtxSetCurrent(gpus[0].context));
	}
	if (strcmp(what, "known") == 0)
		MUST(cuModuleGetGlobal(&known, NULL, module, "history"));
	if (strcmp(what, "library-known") == 0)
		MUST(cuLibraryGetGlobal(&known, NULL, library, "history"));
	if (strcmp(what, "host") == 0) {
		MUST(cuMemAllocHost(&host, 4096));
		MUST(cuMemFree(cell));
		MUST(cuMemHostGetDevicePointer_v2(&cell, host, 0));
	}
	if (strcmp(what, "memory") == 0 || strcmp(what, "graph") == 0 || host)
		launch(function(module, "tell"), tells);
	if (strcmp(what, "graph") == 0)
		graph = graph_make(cell);
	if (strcmp(what, "variable") == 0) {
		launch(function(module, "store"), NULL);
		to_stored = &here->counter;
	}
	if (strcmp(what, "function") == 0 || strcmp(what, "table") == 0) {
		tables = prog_module("tables");
		by_table = function(tables, "by_table");
	}
	if (strcmp(what, "function") == 0)
		launch(function(tables, "tell_function"), tells);
	for (unsigned i = 0; i < 20 || (file && access(file, F_OK) != 0); i++) {
		by = prog_random(&random_state) % 100;
		step(stepping, by);
		if (gpus[1].context) {
			here = &gpus[1];
			MUST(cuCtxSetCurrent(here->context));
			step(stepping, by + 1);
			here = &gpus[0];
			MUST(cuCtxSetCurrent(here->context));
		}
		called(by_class, by, 1, by * by);
		called(by_class, by, 0, by);
		if (by_table)
			called(by_table, by, 0, by % 2 ? 3 * by : 2 * by);
		if (strcmp(what, "memory") == 0 || host) {
			launch(add, adds);
			here->counter += by;
		}
		if (graph) {
			MUST(cuGraphLaunch(graph, NULL));
			here->counter += 1;
		}
		if (known) {
			uint32_t value = by;

			MUST(cuMemcpyHtoD(known + 4 * (by % 10), &value, sizeof(value)));
			here->history[by % 10] = value;
		}
		if (i % 10 == 0)
			fprintf(stderr, "step %u\n", i);
		usleep(1000);
	}
	MUST(cuCtxSynchronize());
	(void)late;
	return prog_end();
}
