// SPDX-License-Identifier: Apache-2.0
/* The child: one libcuda, opened by its path; measures what it is asked for. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "broker/proto/cuda_abi.h"
#include "gen/api.h"
#include "tools/gleam-bench/bench.h"

#define BATCH	    500u /* launches between two synchronises: a driver takes some thousand before it blocks */
#define GRAPH_NODES 50u
#define CALLS_MAX   4000000u

#define FUNCTIONS(X)                                                                                                    \
	X(cuInit) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) \
	X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)                \
	X(cuLaunchKernel) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemcpyHtoD_v2)           \
	X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuStreamCreate) X(cuStreamSynchronize)        \
	X(cuGraphCreate) X(cuGraphAddKernelNode_v2) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuEventCreate)  \
	X(cuEventRecord) X(cuEventQuery) X(cuGetErrorName)

#define X(name) static __typeof__(name) *p_##name;
FUNCTIONS(X)
#undef X

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";

static CUstream stream;
static CUfunction nothing;
static CUdeviceptr device;
static CUevent event;
static CUgraphExec graph;
static char *host;
static uint64_t device_size, host_size;
static bool host_locked;
static const char *failure; /* what failed first in this turn */

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		CUresult must_result = (call);                                                                         \
                                                                                                                       \
		if (must_result != CUDA_SUCCESS && !failure)                                                           \
			failure = error_of(must_result, #call);                                                        \
	} while (0)

static const char *error_of(CUresult result, const char *call)
{
	static char text[160];
	const char *name = NULL;

	if (p_cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
		name = "an unknown error";
	snprintf(text, sizeof(text), "%.*s: %s", (int)strcspn(call + 2, "("), call + 2, name);
	return text;
}

double seconds_of(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double now(void)
{
	return seconds_of(CLOCK_MONOTONIC);
}

/* ---- what is measured: each works for about @seconds and says what one took ---- */

static void launch(void)
{
	MUST(p_cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

/* Microseconds of the caller in a launch, and of its process's CPU. What they cost behind is a row of its own. */
static void launches(double seconds, bool whole, double *values)
{
	double until = now() + seconds, spent = 0, cpu = 0, from, cpu_from;
	unsigned count = 0;

	do {
		from = now();
		cpu_from = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
		for (unsigned i = 0; i < BATCH; i++)
			launch();
		if (!whole) {
			spent += now() - from;
			cpu += seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_from;
		}
		MUST(p_cuStreamSynchronize(stream));
		if (whole) {
			spent += now() - from;
			cpu += seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_from;
		}
		count += BATCH;
	} while (now() < until && !failure);
	values[0] = spent / count * 1e6;
	values[1] = cpu / count * 1e6;
}

static void launch_sync(void)
{
	launch();
	MUST(p_cuStreamSynchronize(stream));
}

static uint32_t word;

static void copy_up(void)
{
	MUST(p_cuMemcpyHtoD_v2(device, &word, sizeof(word)));
}

static void copy_down(void)
{
	MUST(p_cuMemcpyDtoH_v2(&word, device, sizeof(word)));
}

static void event_record(void)
{
	MUST(p_cuEventRecord(event, stream));
}

static void event_query(void)
{
	CUresult result = p_cuEventQuery(event);

	if (result != CUDA_ERROR_NOT_READY)
		MUST(result);
}

static void context_get(void)
{
	CUcontext context;

	MUST(p_cuCtxGetCurrent(&context));
}

static void attribute_get(void)
{
	int value;

	MUST(p_cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
}

static void alloc_free(size_t size)
{
	CUdeviceptr at = 0;

	MUST(p_cuMemAlloc_v2(&at, size));
	MUST(p_cuMemFree_v2(at));
}

static void alloc_small(void)
{
	alloc_free(4096);
}

static void alloc_large(void)
{
	alloc_free(16 << 20);
}

/* Another text each time: nothing that was loaded before is it. */
static void module_load(void)
{
	static unsigned number;
	char text[sizeof(ptx) + 32];
	CUmodule module = NULL;

	snprintf(text, sizeof(text), "%s// %u %d\n", ptx, number++, (int)getpid());
	MUST(p_cuModuleLoadData(&module, text));
	if (module)
		MUST(p_cuModuleUnload(module));
}

static void graph_launch(void)
{
	MUST(p_cuGraphLaunch(graph, stream));
	MUST(p_cuStreamSynchronize(stream));
}

/* The median of single ones where each waits; the mean of many where nobody could time one. */
static void each(void (*once)(void), double seconds, unsigned at_once, double *values)
{
	enum { SAMPLES = 4096 };
	static double took[SAMPLES];
	double until = now() + seconds, cpu_from = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
	unsigned count = 0, calls = 0;

	do {
		double from = now();

		for (unsigned i = 0; i < at_once; i++)
			once();
		took[count++ % SAMPLES] = (now() - from) / at_once;
		calls += at_once;
	} while (now() < until && calls < CALLS_MAX && !failure);
	values[0] = median_of(took, count < SAMPLES ? count : SAMPLES) * 1e6;
	values[1] = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_from) / calls * 1e6;
}

static void host_give(void)
{
	if (host_locked)
		p_cuMemFreeHost(host);
	else
		free(host);
	host = NULL;
	host_size = 0;
}

static void room_make(uint64_t size, bool locked)
{
	if (device_size < size) {
		MUST(p_cuMemFree_v2(device));
		device = 0;
		device_size = 0;
		MUST(p_cuMemAlloc_v2(&device, size));
		device_size = failure ? 0 : size;
	}
	if (host && (host_size < size || host_locked != locked))
		host_give();
	if (!host) {
		host_locked = locked;
		if (locked)
			MUST(p_cuMemHostAlloc((void **)&host, size, 0));
		else
			host = malloc(size);
		if (!host && !failure)
			failure = "no host memory of that size";
		if (!failure) {
			memset(host, 1, size);
			host_size = size;
		}
	}
}

/* Until the bytes are where they belong: upwards the last of them is read back. GB/s, and CPU microseconds a MiB. */
static void bandwidth(bool up, bool locked, uint64_t size, double seconds, double *values)
{
	double from, until, cpu_from;
	unsigned count = 0;

	room_make(size, locked);
	if (failure)
		return;
	for (int warm = 1; warm >= 0; warm--) {
		from = now();
		cpu_from = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
		until = from + (warm ? 0 : seconds);
		count = 0;
		do {
			if (up)
				MUST(p_cuMemcpyHtoDAsync_v2(device, host, size, stream));
			else
				MUST(p_cuMemcpyDtoHAsync_v2(host, device, size, stream));
			MUST(p_cuStreamSynchronize(stream));
			count++;
		} while (now() < until && !failure);
		if (up)
			MUST(p_cuMemcpyDtoH_v2(&word, device + size - sizeof(word), sizeof(word)));
	}
	values[0] = (double)size * count / (now() - from) / 1e9;
	values[1] = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_from) * 1e6 / ((double)size * count / (1 << 20));
}

static void turn(const char *library, const char *name, uint64_t size, double seconds, double *values)
{
	static const struct {
		const char *name;
		void (*once)(void);
		unsigned at_once;
	} singles[] = {
		{ "launch_sync", launch_sync, 1 },     { "copy4_up", copy_up, 1 },	  { "copy4_down", copy_down, 1 },
		{ "event_query", event_query, 1000 },  { "context_get", context_get, 1000 },
		{ "attribute_get", attribute_get, 1000 }, { "alloc_small", alloc_small, 1 }, { "alloc_large", alloc_large, 1 },
		{ "module_load", module_load, 1 },     { "graph_launch", graph_launch, 1 },
	};

	if (strcmp(name, "first_alloc") == 0) {
		failure = first_measure(library, values);
		return;
	}
	if (strcmp(name, "launch") == 0 || strcmp(name, "launch_rate") == 0) {
		launches(seconds, strcmp(name, "launch_rate") == 0, values);
		return;
	}
	if (strcmp(name, "event_record") == 0) {
		each(event_record, seconds, 100, values);
		MUST(p_cuStreamSynchronize(stream));
		return;
	}
	for (size_t i = 0; i < sizeof(singles) / sizeof(singles[0]); i++)
		if (strcmp(name, singles[i].name) == 0) {
			each(singles[i].once, seconds, singles[i].at_once, values);
			return;
		}
	bandwidth(strncmp(name, "up", 2) == 0, strstr(name, "locked") != NULL, size, seconds, values);
}

/* ---- beginning ---- */

/* Kernels in a row, each behind the one before. */
static void graph_make(void)
{
	CUDA_KERNEL_NODE_PARAMS params = { .func = nothing, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					   .blockDimY = 1, .blockDimZ = 1 };
	CUgraphNode before = NULL, node;
	CUgraph made = NULL;

	MUST(p_cuGraphCreate(&made, 0));
	for (unsigned i = 0; i < GRAPH_NODES && !failure; i++) {
		MUST(p_cuGraphAddKernelNode_v2(&node, made, before ? &before : NULL, before ? 1 : 0, &params));
		before = node;
	}
	if (!failure)
		MUST(p_cuGraphInstantiateWithFlags(&graph, made, 0));
}

static int setup(const char *library, char *device_name, size_t size)
{
	void *dl = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	CUcontext context;
	CUmodule module;

	if (!dl) {
		printf("no %s\n", dlerror());
		return EXIT_FAILED;
	}
#define X(name)                                                                                                        \
	p_##name = (__typeof__(name) *)dlsym(dl, #name);                                                               \
	if (!p_##name) {                                                                                               \
		printf("no %s has no %s: it is not a CUDA driver\n", library, #name);                                 \
		return EXIT_FAILED;                                                                                    \
	}
	FUNCTIONS(X)
#undef X
	MUST(p_cuInit(0));
	if (!failure)
		MUST(p_cuDeviceGetName(device_name, (int)size, 0));
	if (!failure)
		MUST(p_cuDevicePrimaryCtxRetain(&context, 0));
	if (!failure)
		MUST(p_cuCtxSetCurrent(context));
	if (!failure)
		MUST(p_cuModuleLoadData(&module, ptx));
	if (!failure)
		MUST(p_cuModuleGetFunction(&nothing, module, "nothing"));
	if (!failure)
		MUST(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (!failure)
		MUST(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	if (!failure)
		MUST(p_cuMemAlloc_v2(&device, device_size = 1 << 20));
	if (!failure)
		graph_make();
	if (!failure)
		MUST(p_cuCtxSynchronize());
	if (!failure)
		return 0;
	printf("no %s\n", failure);
	return EXIT_FAILED;
}

int measure_run(const char *library)
{
	char line[256], name[64], device_name[128] = "";
	double seconds, values[VALUES_MAX];
	unsigned long long size;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (setup(library, device_name, sizeof(device_name)))
		return EXIT_FAILED;
	printf("ready %s\n", device_name);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "%63s %llu %lf", name, &size, &seconds) != 3)
			break;
		failure = NULL;
		values[0] = values[1] = 0;
		turn(library, name, size, seconds, values);
		if (failure)
			printf("no %s\n", failure);
		else
			printf("ok %.9g %.9g\n", values[0], values[1]);
	}
	return 0;
}
