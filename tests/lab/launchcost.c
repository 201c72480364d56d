/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch costs in a driver, called as a program calls it and as a worker does: alone, with other threads busy beside it, with progress
 * writes in between, with frames read that another core has written, under a filter of system calls, with parameters as pointers and in
 * one buffer. One difference at a time, in turns, so that the one that costs is seen.
 *
 *	launchcost LIBCUDA [SECONDS]
 *
 * A row: us a launch until all are done, median of five turns (least-most), and the median of the call alone. Exit 0, 1 with the cause on
 * stderr, 2 for usage.
 */
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <linux/filter.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gen/api.h"

#define BATCH	    500u /* as gleam-bench: a driver takes some thousand before it blocks */
#define TURNS	    5
#define SPINNERS    4
#define FRAME_LINES 2u /* cache lines of a launch's frame */
#define RING_LINES  (BATCH * FRAME_LINES)
#define SAMPLES	    4096u

#define FUNCTIONS(X)                                                                                                      \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuLaunchKernel) \
	X(cuLaunchKernelEx) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamWriteValue32_v2) X(cuStreamQuery)               \
	X(cuLibraryLoadData) X(cuLibraryGetKernel) X(cuKernelGetFunction)                                                     \
	X(cuMemHostAlloc) X(cuMemHostGetDevicePointer_v2) X(cuMemHostRegister_v2) X(cuMemAddressReserve)                      \
	X(cuGraphCreate) X(cuGraphAddKernelNode_v2) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch)

#define X(name) static __typeof__(name) *p_##name;
FUNCTIONS(X)
#undef X

static const char ptx[] = ".version 6.4\n.target sm_70\n.address_size 64\n"
			  ".visible .entry nothing()\n{\n\tret;\n}\n"
			  ".visible .entry six(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param .u32 e, .param .u32 f)\n"
			  "{\n\tret;\n}\n";

static CUcontext context;
static CUstream stream;
static CUfunction nothing, six;
static CUfunction kernel, of_kernel; /* a library's kernel as a function, and its function */
static CUgraphExec graph;
static volatile uint32_t *done; /* what the GPU writes */
static CUdeviceptr done_at;
static uint32_t number;

#define MUST(call)                                                                                                       \
	do {                                                                                                             \
		CUresult must_result = (call);                                                                           \
                                                                                                                         \
		if (must_result != CUDA_SUCCESS) {                                                                       \
			fprintf(stderr, "launchcost: %s: %d\n", #call, (int)must_result);                                \
			exit(1);                                                                                         \
		}                                                                                                        \
	} while (0)

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- other threads ---- */

enum beside { ALONE, PAUSES, YIELDS, LOCKS, READS, NAPS, ASKS, FEEDS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum beside beside;
static volatile bool stop;
/* A ring of lines, which one thread writes a batch of and the launching one reads. */
static struct line {
	uint64_t words[8];
} ring[RING_LINES] __attribute__((aligned(64)));
static volatile uint64_t fed __attribute__((aligned(64)));
static volatile uint64_t wanted __attribute__((aligned(64)));

static void *busy(void *arg)
{
	uint64_t at = 0;

	p_cuCtxSetCurrent(context);
	while (!stop)
		switch (beside) {
		case PAUSES:
			__builtin_ia32_pause();
			break;
		case YIELDS:
			sched_yield();
			break;
		case LOCKS:
			pthread_mutex_lock(&lock);
			(void)*done;
			pthread_mutex_unlock(&lock);
			sched_yield();
			break;
		case READS:
			(void)*done;
			__builtin_ia32_pause();
			break;
		case NAPS:
			(void)*done;
			nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
			break;
		case ASKS:
			p_cuStreamQuery(stream);
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
			break;
		case FEEDS:
			while (at < wanted) {
				for (unsigned i = 0; i < FRAME_LINES; i++)
					memset(&ring[(at * FRAME_LINES + i) % RING_LINES], (int)at, sizeof(struct line));
				__atomic_store_n(&fed, ++at, __ATOMIC_RELEASE);
			}
			__builtin_ia32_pause();
			break;
		default:
			break;
		}
	return NULL;
}

/* ---- launches ---- */

enum how { PLAIN, KERNEL, OF_KERNEL, EX, POINTERS, BUFFER, WRITES, LOCKED, FED, GRAPH };

static void launch(enum how how, unsigned i)
{
	uint64_t a = 1, b = 2, c = 3;
	uint32_t d = 4, e = 5, f = 6;
	void *pointers[] = { &a, &b, &c, &d, &e, &f };
	uint32_t buffer[9] = { 1, 0, 2, 0, 3, 0, 4, 5, 6 };
	size_t size = sizeof(buffer);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
	CUlaunchConfig config = { .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1,
				  .hStream = stream };
	static uint8_t frame[FRAME_LINES * sizeof(struct line)];

	switch (how) {
	case KERNEL:
		MUST(p_cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		return;
	case OF_KERNEL:
		MUST(p_cuLaunchKernel(of_kernel, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
		return;
	case EX:
		MUST(p_cuLaunchKernelEx(&config, nothing, NULL, NULL));
		return;
	case POINTERS:
		MUST(p_cuLaunchKernel(six, 1, 1, 1, 32, 1, 1, 0, stream, pointers, NULL));
		return;
	case BUFFER:
		MUST(p_cuLaunchKernel(six, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra));
		return;
	case LOCKED:
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		break;
	case FED:
		while (__atomic_load_n(&fed, __ATOMIC_ACQUIRE) <= number)
			;
		memcpy(frame, &ring[number % BATCH * FRAME_LINES], sizeof(frame));
		__asm__ volatile("" : : "r"(frame) : "memory");
		number++;
		break;
	case GRAPH:
		MUST(p_cuGraphLaunch(graph, stream));
		return;
	default:
		break;
	}
	MUST(p_cuLaunchKernel(nothing, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
	if (how == WRITES && i % 64 == 63)
		MUST(p_cuStreamWriteValue32_v2(stream, done_at, ++number, 0));
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void row(const char *name, enum how how, enum beside what, unsigned threads, double seconds)
{
	static double calls[SAMPLES];
	pthread_t thread[SPINNERS];
	double turns[TURNS];
	unsigned sampled = 0, batch = how == GRAPH ? 1 : BATCH;

	beside = what;
	stop = false;
	number = 0;
	fed = wanted = 0;
	for (unsigned i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, busy, NULL);
	for (int t = -1; t < TURNS; t++) {
		double from = now(), until = from + (t < 0 ? 0.01 : seconds);
		unsigned count = 0;

		do {
			if (how == FED)
				wanted += batch;
			for (unsigned i = 0; i < batch; i++) {
				/* A clock costs 50 ns: one call of eight. */
				double before = i % 8 == 0 ? now() : 0;

				launch(how, i);
				if (i % 8 == 0)
					calls[sampled++ % SAMPLES] = (now() - before) * 1e6;
			}
			MUST(p_cuStreamSynchronize(stream));
			count += batch;
		} while (now() < until);
		if (t >= 0)
			turns[t] = (now() - from) / count * 1e6;
	}
	stop = true;
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	qsort(turns, TURNS, sizeof(turns[0]), compare);
	qsort(calls, sampled < SAMPLES ? sampled : SAMPLES, sizeof(calls[0]), compare);
	printf("%-44s %7.3f (%.3f-%.3f)  call %.3f\n", name, turns[TURNS / 2], turns[0], turns[TURNS - 1],
	       calls[(sampled < SAMPLES ? sampled : SAMPLES) / 2]);
	fflush(stdout);
}

static void graph_make(void)
{
	CUDA_KERNEL_NODE_PARAMS params = { .func = nothing, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32,
					   .blockDimY = 1, .blockDimZ = 1 };
	CUgraphNode before = NULL, node;
	CUgraph made = NULL;

	MUST(p_cuGraphCreate(&made, 0));
	for (unsigned i = 0; i < 50; i++) {
		MUST(p_cuGraphAddKernelNode_v2(&node, made, before ? &before : NULL, before ? 1 : 0, &params));
		before = node;
	}
	MUST(p_cuGraphInstantiateWithFlags(&graph, made, 0));
}

static void setup(const char *library)
{
	void *dl = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	CUlibrary loaded;
	CUmodule module;
	CUkernel named;
	void *word;

	if (!dl) {
		fprintf(stderr, "launchcost: %s\n", dlerror());
		exit(1);
	}
#define X(name)                                                                                                          \
	p_##name = (__typeof__(name) *)dlsym(dl, #name);                                                                 \
	if (!p_##name) {                                                                                                 \
		fprintf(stderr, "launchcost: %s has no %s\n", library, #name);                                           \
		exit(1);                                                                                                 \
	}
	FUNCTIONS(X)
#undef X
	MUST(p_cuInit(0));
	MUST(p_cuDevicePrimaryCtxRetain(&context, 0));
	MUST(p_cuCtxSetCurrent(context));
	MUST(p_cuModuleLoadData(&module, ptx));
	MUST(p_cuModuleGetFunction(&nothing, module, "nothing"));
	MUST(p_cuModuleGetFunction(&six, module, "six"));
	MUST(p_cuLibraryLoadData(&loaded, ptx, NULL, NULL, 0, NULL, NULL, 0));
	MUST(p_cuLibraryGetKernel(&named, loaded, "nothing"));
	MUST(p_cuKernelGetFunction(&of_kernel, named));
	kernel = (CUfunction)named;
	MUST(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(p_cuMemHostAlloc(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(p_cuMemHostGetDevicePointer_v2(&done_at, word, 0));
	done = word;
	graph_make();
}

/* What a worker has beside: memory of its session known to the driver, ranges reserved, a filter as long as its own. */
static void worker_like(void)
{
	size_t size = 96u << 20;
	void *arenas = aligned_alloc(4096, size);
	CUdeviceptr at;

	memset(arenas, 0, size);
	MUST(p_cuMemHostRegister_v2(arenas, size, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
	MUST(p_cuMemAddressReserve(&at, 1ull << 40, 0, 0x200000000000ull, 0));
}

static void filtered(void)
{
	enum { DENIED = 60 };
	struct sock_filter filter[DENIED * 2 + 2];
	struct sock_fprog program = { .filter = filter };
	unsigned at = 0;

	filter[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
	for (unsigned i = 0; i < DENIED; i++) {
		filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 100000 + i, 0, 1);
		filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1);
	}
	filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	program.len = (unsigned short)at;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		perror("launchcost: seccomp");
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.05;

	if (argc < 2 || argc > 3 || !(seconds > 0)) {
		fprintf(stderr, "usage: launchcost LIBCUDA [SECONDS]\n");
		return 2;
	}
	setup(argv[1]);
	printf("us a launch until all are done, median of %d turns (least-most); the call alone, median\n", TURNS);
	row("alone", PLAIN, ALONE, 0, seconds);
	row("a library's kernel", KERNEL, ALONE, 0, seconds);
	row("a library's kernel, by its function", OF_KERNEL, ALONE, 0, seconds);
	row("cuLaunchKernelEx", EX, ALONE, 0, seconds);
	row("six parameters by pointers", POINTERS, ALONE, 0, seconds);
	row("six parameters in a buffer", BUFFER, ALONE, 0, seconds);
	row("a progress write each 64", WRITES, ALONE, 0, seconds);
	row("a mutex a launch", LOCKED, ALONE, 0, seconds);
	row("1 thread that pauses", PLAIN, PAUSES, 1, seconds);
	row("4 threads that pause", PLAIN, PAUSES, 4, seconds);
	row("1 thread that yields", PLAIN, YIELDS, 1, seconds);
	row("4 threads that yield", PLAIN, YIELDS, 4, seconds);
	row("1 thread that reads the word", WRITES, READS, 1, seconds);
	row("1 thread that reads it now and then", WRITES, NAPS, 1, seconds);
	row("1 thread that locks, reads, yields", WRITES, LOCKS, 1, seconds);
	row("the same, and a mutex a launch", LOCKED, LOCKS, 1, seconds);
	row("cuStreamQuery on another thread each ms", PLAIN, ASKS, 1, seconds);
	row("frames of another core", FED, FEEDS, 1, seconds);
	row("a graph of 50", GRAPH, ALONE, 0, seconds);
	row("a graph of 50, 1 thread that reads", GRAPH, READS, 1, seconds);
	worker_like();
	row("alone, with a worker's memory", PLAIN, ALONE, 0, seconds);
	filtered();
	row("alone, that and a filter of system calls", PLAIN, ALONE, 0, seconds);
	row("a graph of 50, all that", GRAPH, ALONE, 0, seconds);
	return 0;
}
