// SPDX-License-Identifier: Apache-2.0
/*
 * GPUs that don't reach each other's memory, as those of two servers: copies of all kinds in the order of their streams, events
 * across, one library on all, page-locked memory of all, what has to be refused, and many streams at once. Runs on any two GPUs.
 * "again FILE": the parts that don't look at the time, again and again until there is FILE; how far it is is told on stderr. "again FILE small":
 * of these, the ones that don't copy much, and whose kernels don't write to page-locked memory.
 * "lost FILE": says so, waits for FILE, by when the second GPU's server has to be gone; the first goes on.
 */
#include <pthread.h>

#include "tests/cuda/prog.h"

#define SMALL 1000u		     /* words */
#define LARGE ((18u << 20) / 4 + 77) /* words: several chunks, and not all of the last */
#define PAIRS 4
#define TURNS 40

struct gpu {
	CUdevice device;
	CUcontext context;
	CUstream stream, other;
	CUkernel add, fill, spin;
	CUdeviceptr small, large;
};

static struct gpu gpus[2];
static uint32_t *host;	 /* pageable */
static uint32_t *locked; /* page-locked */
static uint32_t *shared; /* page-locked, and kernels reach it */
static bool apart;	 /* of two servers, by what Gleam says: no access, no graph, no capture */

/* Says how long a part took, for whoever wonders. */
static void part(const char *name)
{
	static double from;
	double now = prog_seconds();

	if (from)
		printf("%s: %.3f s\n", name, now - from);
	from = now;
}

static void use(const struct gpu *gpu)
{
	MUST(cuCtxSetCurrent(gpu->context));
}

static void gpu_open(struct gpu *gpu, CUdevice device, CUlibrary library)
{
	gpu->device = device;
	MUST(cuDevicePrimaryCtxRetain(&gpu->context, device));
	use(gpu);
	MUST(cuStreamCreate(&gpu->stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&gpu->other, CU_STREAM_NON_BLOCKING));
	MUST(cuLibraryGetKernel(&gpu->add, library, "add"));
	MUST(cuLibraryGetKernel(&gpu->fill, library, "fill"));
	MUST(cuLibraryGetKernel(&gpu->spin, library, "spin"));
	MUST(cuMemAlloc(&gpu->small, SMALL * 4));
	MUST(cuMemAlloc(&gpu->large, LARGE * 4));
}

static void launch(const struct gpu *gpu, CUkernel kernel, CUstream stream, CUdeviceptr data, uint32_t value, uint64_t n)
{
	void *params[] = { &data, &value, &n };

	use(gpu);
	MUST(cuLaunchKernel((CUfunction)kernel, 8, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void spin_on(const struct gpu *gpu, CUstream stream, unsigned long long ns)
{
	void *params[] = { &ns };

	use(gpu);
	MUST(cuLaunchKernel((CUfunction)gpu->spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void wait_for(const struct gpu *gpu)
{
	use(gpu);
	MUST(cuStreamSynchronize(gpu->stream));
}

static void words_are(const uint32_t *words, uint32_t n, uint32_t value, const char *what)
{
	uint32_t wrong = 0, first = 0;

	for (uint32_t i = n; i-- > 0;)
		if (words[i] != value) {
			wrong++;
			first = i;
		}
	CHECK(!wrong, "%s: %u of %u words, the first at %u is %u, not %u", what, wrong, n, first, words[first], value);
}

/* @n words at @data are all @value. */
static void is_all(const struct gpu *gpu, CUdeviceptr data, uint32_t value, uint32_t n, const char *what)
{
	use(gpu);
	memset(host, 0xee, n * 4);
	MUST(cuMemcpyDtoH(host, data, n * 4));
	words_are(host, n, value, what);
}

/* Asynchronous copies between the two come behind what their stream has, and before what it gets. */
static void copies_in_order(const struct gpu *one, const struct gpu *two)
{
	const struct {
		CUdeviceptr from, to;
		uint32_t n;
	} sizes[] = { { one->small, two->small, SMALL }, { one->large, two->large, LARGE } };

	for (int i = 0; i < 2; i++) {
		CUdeviceptr from = sizes[i].from, to = sizes[i].to;
		uint32_t n = sizes[i].n, value = 100 + (uint32_t)i;

		/* There and back on one stream: what lies between must not show. */
		spin_on(one, one->stream, 20000000);
		launch(one, one->fill, one->stream, from, value, n);
		MUST(cuMemcpyPeerAsync(to, two->context, from, one->context, n * 4, one->stream));
		launch(one, one->fill, one->stream, from, 0, n);
		MUST(cuMemcpyDtoDAsync(from, to, n * 4, one->stream));
		launch(one, one->add, one->stream, from, 1000, n);
		wait_for(one);
		is_all(one, from, value + 1000, n, "there and back on one stream");
		is_all(two, to, value, n, "what came over");
		/* From the other's side, and asked for by neither's context but by address. */
		launch(two, two->fill, two->stream, to, value + 7, n);
		MUST(cuMemcpyAsync(from, to, n * 4, two->stream));
		launch(two, two->fill, two->stream, to, 1, n);
		wait_for(two);
		is_all(one, from, value + 7, n, "a copy to the other on one's own stream");
		/* Within the other's memory. */
		use(one);
		spin_on(one, one->stream, 5000000);
		MUST(cuMemcpyDtoDAsync(to + n * 2, to, n * 2 & ~3ull, one->stream));
		MUST(cuMemsetD32Async(to, 9, n / 2, one->stream));
		MUST(cuStreamSynchronize(one->stream));
		is_all(two, to, 9, n / 2, "a fill of the other's memory");
		MUST(cuMemsetD32(to, 10, n));
		is_all(one, to, 10, n, "a synchronous fill of the other's memory, read by the filler");
	}
}

static void copies_of_the_host(const struct gpu *one, const struct gpu *two)
{
	uint32_t n = LARGE;

	/* Memory of the second while the first is current. */
	use(one);
	for (uint32_t i = 0; i < n; i++)
		host[i] = locked[i] = 41;
	MUST(cuMemcpyHtoD(two->large, host, n * 4));
	is_all(two, two->large, 41, n, "from the host to the other's memory");
	use(one);
	/* Page-locked memory is read when the stream comes to it, or before: not what is written there after a wait. */
	for (uint32_t i = 0; i < n; i++)
		locked[i] = 42;
	spin_on(one, one->stream, 20000000);
	MUST(cuMemcpyHtoDAsync(two->large, locked, n * 4, one->stream));
	MUST(cuStreamSynchronize(one->stream));
	for (uint32_t i = 0; i < n; i++)
		locked[i] = 0;
	is_all(two, two->large, 42, n, "from page-locked memory to the other's");
	launch(two, two->fill, two->stream, two->large, 43, n);
	wait_for(two);
	use(one);
	spin_on(one, one->stream, 20000000);
	MUST(cuMemcpyDtoHAsync(locked, two->large, n * 4, one->stream));
	MUST(cuStreamSynchronize(one->stream));
	words_are(locked, n, 43, "from the other's memory to page-locked memory");
	MUST(cuMemcpyDtoHAsync(host, two->large, n * 4, one->stream));
	words_are(host, n, 43, "from the other's memory to pageable memory");
}

static void rows(const struct gpu *one, const struct gpu *two)
{
	CUDA_MEMCPY3D_PEER box = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = one->large, .srcContext = one->context, .srcPitch = 8192,
		.srcHeight = 24,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = two->large, .dstContext = two->context, .dstPitch = 10240,
		.dstHeight = 20, .WidthInBytes = 4096, .Height = 20, .Depth = 3,
	};

	launch(one, one->fill, one->stream, one->large, 51, LARGE);
	launch(two, two->fill, two->stream, two->large, 52, LARGE);
	wait_for(two);
	use(one);
	MUST(cuMemcpy3DPeerAsync(&box, one->stream));
	wait_for(one);
	for (uint32_t row = 0; row < 60; row += 7) {
		is_all(two, two->large + (uint64_t)row * 10240, 51, 1024, "a row that was copied");
		is_all(two, two->large + (uint64_t)row * 10240 + 4096, 52, 1536, "what is between rows");
	}
}

/* Each waits for the other, many times, without the host. */
static void events(const struct gpu *one, const struct gpu *two)
{
	CUevent done[2], timed[2];
	float ms = 0;

	for (int i = 0; i < 2; i++) {
		use(i ? two : one);
		MUST(cuEventCreate(&done[i], CU_EVENT_DISABLE_TIMING));
		MUST(cuEventCreate(&timed[i], 0));
		MUST(cuEventRecord(timed[i], (i ? two : one)->stream));
	}
	/* Never recorded: nothing to wait for. */
	use(one);
	MUST(cuStreamWaitEvent(one->stream, done[1], 0));
	wait_for(one);
	launch(one, one->fill, one->stream, one->small, 0, SMALL);
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		if (turn % 8 == 0)
			spin_on(one, one->stream, 10000000);
		launch(one, one->add, one->stream, one->small, 1, SMALL);
		MUST(cuMemcpyPeerAsync(two->small, two->context, one->small, one->context, SMALL * 4, one->stream));
		MUST(cuEventRecord(done[0], one->stream));
		use(two);
		MUST(cuStreamWaitEvent(two->stream, done[0], 0));
		launch(two, two->add, two->stream, two->small, 1, SMALL);
		MUST(cuMemcpyDtoDAsync(one->small, two->small, SMALL * 4, two->stream));
		MUST(cuEventRecord(done[1], two->stream));
		use(one);
		MUST(cuStreamWaitEvent(one->stream, done[1], 0));
	}
	/* Asked about while the other is current. */
	use(one);
	MUST(cuEventSynchronize(done[1]));
	EXPECT(cuEventQuery(done[1]), CUDA_SUCCESS);
	wait_for(one);
	is_all(one, one->small, 2 * TURNS, SMALL, "in turns");
	EXPECT(cuEventElapsedTime(&ms, timed[0], timed[1]), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventRecord(done[1], one->stream), CUDA_ERROR_INVALID_HANDLE);
	for (int i = 0; i < 2; i++) {
		MUST(cuEventDestroy(done[i]));
		MUST(cuEventDestroy(timed[i]));
	}
}

static int go; /* atomic */

static void held(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		usleep(1000);
}

/* A stream that is stopped holds no other up, nor does a function of the program's that takes its time. */
static void others_go_on(const struct gpu *one, const struct gpu *two)
{
	CUevent late;

	__atomic_store_n(&go, 0, __ATOMIC_RELEASE);
	use(one);
	MUST(cuEventCreate(&late, CU_EVENT_DISABLE_TIMING));
	MUST(cuLaunchHostFunc(one->stream, held, NULL));
	MUST(cuEventRecord(late, one->stream));
	use(two);
	MUST(cuStreamWaitEvent(two->stream, late, 0));
	launch(two, two->fill, two->other, two->small, 77, SMALL);
	MUST(cuStreamSynchronize(two->other));
	EXPECT(cuStreamQuery(two->stream), CUDA_ERROR_NOT_READY);
	use(one);
	MUST(cuMemcpyPeerAsync(one->small, one->context, two->small, two->context, SMALL * 4, one->other));
	MUST(cuStreamSynchronize(one->other));
	EXPECT(cuEventQuery(late), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	wait_for(two);
	use(one);
	EXPECT(cuEventQuery(late), CUDA_SUCCESS);
	is_all(one, one->small, 77, SMALL, "a copy beside a stream that waits");
	MUST(cuEventDestroy(late));
}

/* What a function has found, and when. */
struct found {
	const uint32_t *word;
	uint32_t value;
	uint32_t *order; /* how many ran before it */
	uint32_t ran;
};

static void find(void *user)
{
	struct found *found = user;

	found->value = __atomic_load_n(found->word, __ATOMIC_ACQUIRE);
	found->ran = (*found->order)++;
}

/* Functions of a stream that waits for events of the other GPU, with nothing else between them: each comes behind its own. */
static void functions_behind_the_other(const struct gpu *one, const struct gpu *two)
{
	enum { FUNCTIONS = 12 };
	struct found found[FUNCTIONS];
	uint32_t order = 0, wrong = 0;
	CUevent done;

	use(one);
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	memset(locked, 0, FUNCTIONS * 4);
	for (uint32_t i = 0; i < FUNCTIONS; i++) {
		found[i] = (struct found){ .word = &locked[i], .order = &order };
		spin_on(one, one->stream, 3000000);
		launch(one, one->fill, one->stream, one->small, 500 + i, 1);
		MUST(cuMemcpyDtoHAsync(&locked[i], one->small, 4, one->stream));
		MUST(cuEventRecord(done, one->stream));
		use(two);
		MUST(cuStreamWaitEvent(two->stream, done, 0));
		MUST(cuLaunchHostFunc(two->stream, find, &found[i]));
	}
	wait_for(two);
	for (uint32_t i = 0; i < FUNCTIONS; i++)
		wrong += found[i].value != 500 + i || found[i].ran != i;
	CHECK(!wrong, "%u of %u functions ran before the other GPU's work that they wait for, or out of order", wrong, FUNCTIONS);
	use(one);
	MUST(cuEventDestroy(done));
}

/* Kernels of both in one page-locked array, each behind the other. */
static void locked_by_both(const struct gpu *one, const struct gpu *two)
{
	CUevent done;
	CUdeviceptr at;

	use(one);
	MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemHostGetDevicePointer_v2(&at, shared, 0));
	for (uint32_t turn = 0; turn < 5; turn++) {
		for (uint32_t i = 0; i < SMALL; i++)
			shared[i] = turn;
		launch(one, one->add, one->stream, at, 10, SMALL);
		MUST(cuEventRecord(done, one->stream));
		MUST(cuEventSynchronize(done));
		launch(two, two->add, two->stream, at, 100, SMALL);
		wait_for(two);
		words_are(shared, SMALL, turn + 110, "page-locked memory that kernels of both have changed");
	}
	use(one);
	MUST(cuEventDestroy(done));
}

static void memory_of_the_other(const struct gpu *one, const struct gpu *two)
{
	CUdeviceptr plain, pooled;
	size_t before, after, total;

	use(two);
	MUST(cuMemGetInfo(&before, &total));
	MUST(cuMemAlloc(&plain, 64 << 20));
	MUST(cuMemAllocAsync(&pooled, 1 << 20, two->stream));
	launch(two, two->fill, two->stream, pooled, 3, 1000);
	wait_for(two);
	use(one);
	is_all(one, pooled, 3, 1000, "memory of the other's pool");
	MUST(cuMemFree(plain));
	MUST(cuMemFreeAsync(pooled, one->stream));
	MUST(cuStreamSynchronize(one->stream));
	use(two);
	MUST(cuCtxSynchronize());
	MUST(cuMemGetInfo(&after, &total));
	CHECK(after + (32u << 20) >= before, "freed while the other was current: %zu MiB are gone", (before - after) >> 20);
}

static void refusals(const struct gpu *one, const struct gpu *two)
{
	CUstreamCaptureStatus status;
	CUgraphNode first, second;
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUevent event;
	CUDA_MEMSET_NODE_PARAMS fill = { .dst = one->small, .value = 1, .elementSize = 4, .width = 10, .height = 1 };

	use(one);
	EXPECT(cuCtxEnablePeerAccess(two->context, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	/* A graph over both. */
	MUST(cuGraphCreate(&graph, 0));
	MUST(cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, one->context));
	fill.dst = two->small;
	MUST(cuGraphAddMemsetNode(&second, graph, &first, 1, &fill, two->context));
	EXPECT(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
	MUST(cuGraphDestroyNode(second));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EXPECT(cuGraphLaunch(exec, two->stream), CUDA_ERROR_NOT_SUPPORTED);
	EXPECT(cuGraphLaunch(exec, one->stream), CUDA_SUCCESS);
	wait_for(one);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	/* A capture that would join the other's stream, and one that would wait for it. */
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuStreamBeginCapture_v2(one->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	MUST(cuEventRecord(event, one->stream));
	use(two);
	EXPECT(cuStreamWaitEvent(two->stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	MUST(cuStreamIsCapturing(two->stream, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE, "the other's stream captures: %d", (int)status);
	use(one);
	MUST(cuStreamEndCapture(one->stream, &graph));
	MUST(cuGraphDestroy(graph));
	MUST(cuEventDestroy(event));
	wait_for(one);
	wait_for(two);
}

/* Threads with streams of their own, in both directions at once. */
static void *pair_run(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg + 1, value = 0, wrong = 0, n = 3000;
	uint32_t *words = malloc(n * 4);
	CUdeviceptr at[2];
	CUstream streams[2];
	CUevent events[2];

	for (int i = 0; i < 2; i++) {
		use(&gpus[i]);
		MUST(cuMemAlloc(&at[i], n * 4));
		MUST(cuStreamCreate(&streams[i], i ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
		MUST(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	}
	launch(&gpus[0], gpus[0].fill, streams[0], at[0], 0, n);
	for (int turn = 0; turn < TURNS; turn++) {
		int here = turn & 1, there = !here;
		uint32_t add = prog_random(&seed) % 1000;

		launch(&gpus[here], gpus[here].add, streams[here], at[here], add, n);
		value += add;
		if (prog_random(&seed) % 2) {
			MUST(cuMemcpyPeerAsync(at[there], gpus[there].context, at[here], gpus[here].context, n * 4, streams[here]));
			MUST(cuEventRecord(events[here], streams[here]));
			MUST(cuStreamWaitEvent(streams[there], events[here], 0));
		} else {
			MUST(cuEventRecord(events[here], streams[here]));
			MUST(cuStreamWaitEvent(streams[there], events[here], 0));
			MUST(cuMemcpyPeerAsync(at[there], gpus[there].context, at[here], gpus[here].context, n * 4, streams[there]));
			/* The next writer of the source is on the other stream: it has to come behind this. */
			use(&gpus[there]);
			MUST(cuEventRecord(events[there], streams[there]));
			MUST(cuStreamWaitEvent(streams[here], events[there], 0));
		}
	}
	use(&gpus[TURNS & 1]);
	MUST(cuMemcpyDtoHAsync(words, at[TURNS & 1], n * 4, streams[TURNS & 1]));
	for (uint32_t i = 0; i < n; i++)
		wrong += words[i] != value;
	for (int i = 0; i < 2; i++) {
		use(&gpus[i]);
		MUST(cuStreamDestroy(streams[i]));
		MUST(cuEventDestroy(events[i]));
		MUST(cuMemFree(at[i]));
	}
	free(words);
	return (void *)(uintptr_t)wrong;
}

static void pairs(void)
{
	pthread_t threads[PAIRS];
	void *wrong;

	for (uintptr_t i = 0; i < PAIRS; i++)
		if (pthread_create(&threads[i], NULL, pair_run, (void *)i))
			abort();
	for (int i = 0; i < PAIRS; i++) {
		pthread_join(threads[i], &wrong);
		CHECK(!wrong, "thread %d: %u words", i, (unsigned int)(uintptr_t)wrong);
	}
}

/* The second GPU's server goes while the first waits for an event of it. */
static int lost(const struct gpu *one, const struct gpu *two, const char *file)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr at;
	CUevent never;

	use(two);
	MUST(cuEventCreate(&never, CU_EVENT_DISABLE_TIMING));
	spin_on(two, two->stream, 60000000000ull);
	MUST(cuEventRecord(never, two->stream));
	use(one);
	MUST(cuMemHostGetDevicePointer_v2(&at, shared, 0));
	MUST(cuStreamWaitEvent(one->stream, never, 0));
	printf("waiting\n");
	while (access(file, F_OK))
		usleep(10000);
	use(two);
	for (int i = 0; i < 600 && !result; i++) {
		result = cuStreamQuery(two->stream);
		result = result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
		usleep(50000);
	}
	CHECK(result == CUDA_ERROR_DEVICE_UNAVAILABLE, "a lost GPU gave %d", (int)result);
	EXPECT(cuMemcpyDtoH(host, two->small, 4), CUDA_ERROR_DEVICE_UNAVAILABLE);
	/* Whoever waited for it hears of it once, and goes on. */
	use(one);
	EXPECT(cuStreamSynchronize(one->stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
	launch(one, one->fill, one->stream, one->small, 5, SMALL);
	wait_for(one);
	is_all(one, one->small, 5, SMALL, "the GPU that is left");
	CHECK(cuMemcpyPeer(two->small, two->context, one->small, one->context, 4) != CUDA_SUCCESS, "a copy to a lost GPU");
	/* Registered with both: let go of by the one that is left. */
	shared[0] = 1;
	launch(one, one->add, one->stream, at, 4, 1);
	wait_for(one);
	CHECK(shared[0] == 5, "page-locked memory that the lost one had too: %u", shared[0]);
	EXPECT(cuMemFreeHost(shared), CUDA_SUCCESS);
	return prog_end();
}

static int again(const struct gpu *one, const struct gpu *two, const char *file, bool small)
{
	for (unsigned turn = 0; access(file, F_OK) != 0; turn++) {
		const struct gpu *a = turn % 2 ? two : one, *b = turn % 2 ? one : two;

		fprintf(stderr, "turn %u\n", turn);
		rows(a, b);
		events(a, b);
		memory_of_the_other(a, b);
		if (small)
			continue;
		copies_in_order(a, b);
		copies_of_the_host(a, b);
		locked_by_both(a, b);
	}
	return prog_end();
}

int main(int argc, char **argv)
{
	CUlibrary library;
	char *ptx;
	int count = 0, can = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	CHECK(count > 0, "%d devices", count);
	if (count < 2) {
		printf("one GPU: the rest needs two\n");
		return prog_end();
	}
	MUST(cuDeviceCanAccessPeer(&can, 0, count - 1));
	apart = prog_on_gleam() && !can;
	host = malloc((size_t)LARGE * 4);
	ptx = prog_ptx("util");
	/* Without a context: it is for all. */
	MUST(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
	free(ptx);
	gpu_open(&gpus[0], 0, library);
	gpu_open(&gpus[1], count - 1, library);
	use(&gpus[0]);
	MUST(cuMemAllocHost((void **)&locked, (size_t)LARGE * 4));
	MUST(cuMemAllocHost((void **)&shared, (size_t)SMALL * 4));
	if (argc > 2 && !strcmp(argv[1], "lost"))
		return lost(&gpus[0], &gpus[1], argv[2]);
	if (argc > 2 && !strcmp(argv[1], "again"))
		return again(&gpus[0], &gpus[1], argv[2], argc > 3);
	part("start");
	for (int turn = 0; turn < 2; turn++) {
		const struct gpu *one = &gpus[turn], *two = &gpus[!turn];

		copies_in_order(one, two);
		part("copies_in_order");
		copies_of_the_host(one, two);
		part("copies_of_the_host");
		rows(one, two);
		part("rows");
		events(one, two);
		part("events");
		others_go_on(one, two);
		part("others_go_on");
		functions_behind_the_other(one, two);
		part("functions_behind_the_other");
		locked_by_both(one, two);
		part("locked_by_both");
		memory_of_the_other(one, two);
		part("memory_of_the_other");
		if (apart)
			refusals(one, two);
	}
	pairs();
	part("pairs");
	use(&gpus[0]);
	MUST(cuMemFreeHost(locked));
	MUST(cuMemFreeHost(shared));
	for (int i = 0; i < 2; i++) {
		use(&gpus[i]);
		MUST(cuMemFree(gpus[i].small));
		MUST(cuMemFree(gpus[i].large));
		MUST(cuStreamDestroy(gpus[i].stream));
		MUST(cuStreamDestroy(gpus[i].other));
		MUST(cuDevicePrimaryCtxRelease(gpus[i].device));
	}
	MUST(cuLibraryUnload(library));
	free(host);
	return prog_end();
}
