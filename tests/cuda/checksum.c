// SPDX-License-Identifier: Apache-2.0
/*
 * A program that can be disturbed at any time: copies of all sizes both ways, kernels over two streams, a module's variable, page-locked
 * memory, events, host functions and a graph, in an order that the seed gives, beside a model of them on the CPU. A command that is
 * lost, or executed twice, or out of its place, shows.
 *
 *	checksum [STEPS [SEED [MS [FILE]]]]	MS: a pause after each step; FILE: goes on until there is that file. How far it is
 *	is told on stderr. CHECKSUM_UNMAPPED in the environment: kernels write to no memory of the host
 */
#include "tests/cuda/prog.h"

#define BUFFERS	   4
#define WORDS	   (16u << 10)
#define LARGE	   (768u << 10) /* words: three bulk pieces */
#define PINNED	   (64u << 10)
#define LARGE_SEEN 64u

static CUdeviceptr buffers[BUFFERS], large;
static uint32_t model[BUFFERS][WORDS], *large_model;
static uint32_t shared_word = 7; /* the module's */
static CUstream streams[2];
static CUevent event;
static CUfunction step, mix, through_global;
static CUgraphExec graph_exec;
static uint32_t *pinned, *mapped;
static CUdeviceptr mapped_at;
static bool unmapped;
static uint32_t random_state;
static uint64_t sum = 0xcbf29ce484222325ull;
static uint32_t called, calls; /* host functions */

static uint32_t draw(uint32_t below)
{
	return prog_random(&random_state) % below;
}

static void fold(const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		sum = (sum ^ at[i]) * 0x100000001b3ull;
}

static void launch(CUfunction function, CUstream stream, void **params)
{
	MUST(cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

/* What @stream does next comes after all that was issued before. */
static void order(CUstream stream)
{
	for (int i = 0; i < 2; i++) {
		if (streams[i] == stream)
			continue;
		MUST(cuEventRecord(event, streams[i]));
		MUST(cuStreamWaitEvent(stream, event, 0));
	}
}

static void copy_in(bool much)
{
	uint32_t count = much ? 1 + draw(WORDS) : 1 + draw(300);
	uint32_t at = draw(WORDS - count + 1), b = draw(BUFFERS), seed = draw(1 << 20);

	for (uint32_t i = 0; i < count; i++)
		model[b][at + i] = prog_random(&seed);
	MUST(cuMemcpyHtoD(buffers[b] + at * 4ull, model[b] + at, count * 4ull));
}

static void copy_in_large(void)
{
	uint32_t seed = draw(1 << 20), at = draw(4096), count = LARGE - at - draw(4096);

	for (uint32_t i = 0; i < count; i++)
		large_model[at + i] = prog_random(&seed);
	MUST(cuMemcpyHtoD(large + at * 4ull, large_model + at, count * 4ull));
}

static void copy_out(void)
{
	static uint32_t got[WORDS];
	uint32_t count = 1 + draw(WORDS), at = draw(WORDS - count + 1), b = draw(BUFFERS);

	MUST(cuMemcpyDtoH(got, buffers[b] + at * 4ull, count * 4ull));
	CHECK(memcmp(got, model[b] + at, count * 4ull) == 0, "%u words of buffer %u", count, b);
	fold(got, count * 4ull);
}

static void copy_out_large(void)
{
	uint32_t *got = malloc(LARGE * 4ull);

	MUST(cuMemcpyDtoH(got, large, LARGE * 4ull));
	CHECK(memcmp(got, large_model, LARGE * 4ull) == 0, "the large buffer");
	fold(got, LARGE_SEEN);
	free(got);
}

static void copy_out_pinned(CUstream stream)
{
	uint32_t count = 1 + draw(PINNED / 4), b = draw(BUFFERS);

	order(stream);
	MUST(cuMemcpyDtoHAsync(pinned, buffers[b], count * 4ull, stream));
	if (draw(2)) {
		MUST(cuStreamSynchronize(stream));
	} else {
		MUST(cuEventRecord(event, stream));
		while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
			;
	}
	CHECK(memcmp(pinned, model[b], count * 4ull) == 0, "%u words of buffer %u, page-locked", count, b);
}

static void one_step(CUstream stream)
{
	uint32_t n = WORDS, value = draw(1 << 20), b = draw(BUFFERS);
	void *params[] = { &buffers[b], &value, &n };

	order(stream);
	launch(step, stream, params);
	for (uint32_t i = 0; i < n; i++)
		model[b][i] = model[b][i] * 3 + value;
}

static void one_mix(CUstream stream)
{
	uint32_t n = WORDS, value = draw(1 << 20), b = draw(BUFFERS), from = (b + 1 + draw(BUFFERS - 1)) % BUFFERS;
	void *params[] = { &buffers[b], &value, &n, &buffers[from] };

	order(stream);
	launch(mix, stream, params);
	for (uint32_t i = 0; i < n; i++)
		model[b][i] = model[b][i] * 5 + model[from][i] + value;
}

static void one_global(CUstream stream)
{
	uint32_t n = 1000, value = draw(1 << 20), b = draw(BUFFERS);
	void *params[] = { &buffers[b], &value, &n };

	order(stream);
	launch(through_global, stream, params);
	for (uint32_t i = 0; i < n; i++)
		model[b][i] = model[b][i] * 7 + shared_word;
	shared_word = shared_word * 3 + value;
}

/* Memory that the host writes and a kernel reads, and the other way round. */
static void one_mapped(CUstream stream)
{
	uint32_t n = 256, value = draw(1 << 20), b = draw(BUFFERS);
	void *params[] = { &mapped_at, &value, &n, &buffers[b] };

	order(stream);
	for (uint32_t i = 0; i < n; i++)
		mapped[i] = i * value;
	launch(mix, stream, params);
	MUST(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < n; i++) {
		if (mapped[i] != i * value * 5 + model[b][i] + value) {
			CHECK(false, "mapped word %u", i);
			break;
		}
	}
}

static void one_temporary(CUstream stream)
{
	uint32_t n = 2048, value = draw(1 << 20), b = draw(BUFFERS);
	uint32_t *words = malloc(n * 4ull);
	CUdeviceptr at;
	void *params[] = { &buffers[b], &value, &n, &at };

	order(stream);
	for (uint32_t i = 0; i < n; i++) {
		words[i] = i ^ value;
		model[b][i] = model[b][i] * 5 + words[i] + value;
	}
	MUST(cuMemAlloc(&at, n * 4ull));
	MUST(cuMemcpyHtoDAsync(at, words, n * 4ull, stream));
	launch(mix, stream, params);
	MUST(cuMemFree(at));
	free(words);
}

static void one_set(CUstream stream)
{
	uint32_t count = 1 + draw(WORDS), at = draw(WORDS - count + 1), b = draw(BUFFERS), value = draw(1 << 20);

	order(stream);
	MUST(cuMemsetD32Async(buffers[b] + at * 4ull, value, count, stream));
	for (uint32_t i = 0; i < count; i++)
		model[b][at + i] = value;
}

static void host_function(void *arg)
{
	if (*(uint32_t *)arg == called)
		__atomic_store_n(&called, called + 1, __ATOMIC_RELEASE);
	free(arg);
}

static void one_host_function(CUstream stream)
{
	uint32_t *number = malloc(sizeof(*number));

	*number = calls++;
	order(stream);
	MUST(cuLaunchHostFunc(stream, host_function, number));
	if (draw(2)) {
		MUST(cuStreamSynchronize(stream));
		CHECK(__atomic_load_n(&called, __ATOMIC_ACQUIRE) == calls, "%u host functions were called, not %u", called, calls);
	}
}

/* Three steps of buffer 0. */
static void graph_make(void)
{
	uint32_t n = WORDS, value = 11;
	void *params[] = { &buffers[0], &value, &n };
	CUgraph graph;

	MUST(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int i = 0; i < 3; i++)
		launch(step, streams[0], params);
	MUST(cuStreamEndCapture(streams[0], &graph));
	MUST(cuGraphInstantiateWithFlags(&graph_exec, graph, 0));
	MUST(cuGraphDestroy(graph));
}

static void one_graph(CUstream stream)
{
	order(stream);
	MUST(cuGraphLaunch(graph_exec, stream));
	for (uint32_t i = 0; i < WORDS; i++)
		for (int k = 0; k < 3; k++)
			model[0][i] = model[0][i] * 3 + 11;
}

static void one(void)
{
	CUstream stream = streams[draw(2)];

	switch (draw(16)) {
	case 0:
	case 1:
		copy_in(false);
		break;
	case 2:
		copy_in(true);
		break;
	case 3:
		copy_in_large();
		break;
	case 4:
		copy_out();
		break;
	case 5:
		copy_out_pinned(stream);
		break;
	case 6:
		one_temporary(stream);
		break;
	case 7:
		one_set(stream);
		break;
	case 8:
		one_host_function(stream);
		break;
	case 9:
		if (!unmapped)
			one_mapped(stream);
		break;
	case 10:
		one_graph(stream);
		break;
	case 11:
		one_global(stream);
		break;
	case 12:
		copy_out_large();
		break;
	case 13:
	case 14:
		one_mix(stream);
		break;
	default:
		one_step(stream);
	}
}

int main(int argc, char **argv)
{
	unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) : 150;
	unsigned pause_ms = argc > 3 ? (unsigned)atoi(argv[3]) : 0;
	CUmodule module;

	random_state = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	unmapped = getenv("CHECKSUM_UNMAPPED");
	prog_context(NULL);
	module = prog_module("differ");
	MUST(cuModuleGetFunction(&step, module, "step"));
	MUST(cuModuleGetFunction(&mix, module, "mix"));
	MUST(cuModuleGetFunction(&through_global, module, "through_global"));
	large_model = calloc(LARGE, 4);
	MUST(cuMemAlloc(&large, LARGE * 4ull));
	MUST(cuMemsetD8(large, 0, LARGE * 4ull));
	for (int i = 0; i < BUFFERS; i++) {
		MUST(cuMemAlloc(&buffers[i], WORDS * 4ull));
		MUST(cuMemsetD8(buffers[i], 0, WORDS * 4ull));
	}
	for (int i = 0; i < 2; i++)
		MUST(cuStreamCreate(&streams[i], 0));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAllocHost((void **)&pinned, PINNED));
	MUST(cuMemHostAlloc((void **)&mapped, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&mapped_at, mapped, 0));
	graph_make();
	for (unsigned i = 0; i < steps || (argc > 4 && access(argv[4], F_OK) != 0); i++) {
		one();
		if (argc > 3 && i % 10 == 0)
			fprintf(stderr, "step %u\n", i);
		if (pause_ms) {
			nanosleep(&(struct timespec){ .tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000 }, NULL);
		}
	}
	for (int i = 0; i < 4 * BUFFERS; i++)
		copy_out();
	copy_out_large();
	MUST(cuCtxSynchronize());
	CHECK(called == calls, "%u host functions were called, not %u", called, calls);
	printf("checksum %016llx\n", (unsigned long long)sum);
	return prog_end();
}
