// SPDX-License-Identifier: Apache-2.0
/*
 * Steps of well-known programs as the driver sees them: which calls, in which order, with which kinds of memory. For counting
 * round trips (tests/e2e/steps-need-few-round-trips.sh), and that a synchronise which returns early shows to nobody.
 *
 *	steps			the checks, and three steps of each
 *	steps NAME STEPS	that many steps of token, token_jit, image, train, graph
 */
#include "tests/cuda/prog.h"

#define IMAGE_SIZE (3 * 224 * 224 * 4)
#define LOGITS	   1000

static CUfunction spin, fill, add, chain, write_at;
static char *util;

/* ---- pieces of a step ---- */

static void add_to(CUstream stream, CUdeviceptr at, unsigned int value, unsigned long long n)
{
	void *params[] = { &at, &value, &n };

	MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void chain_on(CUstream stream, CUdeviceptr at, unsigned int value)
{
	void *params[] = { &at, &value };

	MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* What frameworks do with a small tensor of ordinary memory: an asynchronous copy, and a wait so that it can go. */
static void upload(CUdeviceptr to, const void *from, size_t size)
{
	MUST(cuMemcpyHtoDAsync(to, from, size, NULL));
	MUST(cuStreamSynchronize(NULL));
}

static void download(void *to, CUdeviceptr from, size_t size)
{
	MUST(cuMemcpyDtoHAsync(to, from, size, NULL));
	MUST(cuStreamSynchronize(NULL));
}

/* ---- steps ---- */

static CUdeviceptr device, device_too;
static unsigned int *pinned, *pageable;
static CUgraphExec exec;

/* A token of an eager language model: its position goes up, some 1,100 launches, one number comes back into pinned memory. */
static void token(int step)
{
	unsigned int position = (unsigned int)step, want = position;

	for (unsigned int i = 0; i < 20; i++)
		chain_on(NULL, device_too, i);
	upload(device, &position, sizeof(position));
	for (unsigned int i = 0; i < 1080; i++) {
		chain_on(NULL, device, i);
		want = want * 3 + i;
	}
	pinned[0] = 0;
	download(pinned, device, 4);
	CHECK(pinned[0] == want, "token %d: %#x, not %#x", step, pinned[0], want);
}

/* The same with a kernel that was compiled for this very step. */
static void token_jit(int step)
{
	size_t size = strlen(util);
	char *ptx = malloc(size + 64);
	unsigned int value = (unsigned int)step;
	unsigned long long n = 1;
	CUmodule module;
	CUfunction made;

	/* Another image each time: nothing that was loaded before is it. */
	memcpy(ptx, util, size);
	snprintf(ptx + size, 64, "\n// step %d of %d\n", step, (int)getpid());
	MUST(cuModuleLoadData(&module, ptx));
	MUST(cuModuleGetFunction(&made, module, "fill"));
	free(ptx);

	void *params[] = { &device_too, &value, &n };

	MUST(cuLaunchKernel(made, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	token(step);
	MUST(cuMemcpyDtoHAsync(pageable, device_too, 4, NULL));
	CHECK(pageable[0] != 0xffffffffu, "step %d", step);
}

/* An image goes up, 220 launches and 9 memsets, a thousand numbers come back into ordinary memory. */
static void image(int step)
{
	memset(pageable, step, IMAGE_SIZE);
	upload(device, pageable, IMAGE_SIZE);
	for (unsigned int i = 0; i < 9; i++)
		MUST(cuMemsetD8Async(device_too + i * 64, 0, 64, NULL));
	for (unsigned int i = 0; i < 220; i++)
		add_to(NULL, device, 1, LOGITS);
	download(pageable, device, LOGITS * 4);
	CHECK(pageable[LOGITS - 1] == 0x01010101u * (unsigned int)(step & 0xff) + 220, "image %d: %#x", step, pageable[LOGITS - 1]);
}

/* Images and labels go up, 700 launches, the loss comes back. */
static void train(int step)
{
	memset(pageable, step, IMAGE_SIZE);
	upload(device, pageable, IMAGE_SIZE);
	upload(device_too, pageable, 64);
	for (unsigned int i = 0; i < 700; i++)
		add_to(NULL, device_too, i & 1, 8);
	download(pageable, device_too, 4);
	CHECK(pageable[0] == 0x01010101u * (unsigned int)(step & 0xff) + 350, "step %d: %#x", step, pageable[0]);
}

static void graph_make(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	CUstream stream;
	CUgraph graph;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, mode));
	for (unsigned int i = 0; i < 50; i++)
		add_to(stream, device, 2, 8);
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
}

/* A graph is replayed, a kernel sums up, the sum comes back. */
static void graph(int step)
{
	unsigned int before;

	if (!exec) {
		graph_make();
		MUST(cuMemsetD8(device, 0, 64));
		pinned[0] = 0;
	}
	before = pinned[0];
	MUST(cuGraphLaunch(exec, NULL));
	add_to(NULL, device, 1, 8);
	download(pinned, device, 4);
	CHECK(pinned[0] == before + 101, "replay %d: %u after %u", step, pinned[0], before);
}

static const struct {
	const char *name;
	void (*step)(int step);
} kinds[] = { { "token", token }, { "token_jit", token_jit }, { "image", image }, { "train", train }, { "graph", graph } };

/* ---- a synchronise that returns early ---- */

static void busy(CUstream stream, unsigned long long ms)
{
	unsigned long long ns = ms * 1000000;
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* What another stream does behind the wait comes behind the copy. */
static void others_check(unsigned int flags)
{
	CUstream a, b;
	unsigned int value = 41;

	MUST(cuStreamCreate(&a, flags));
	MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	MUST(cuMemsetD8(device, 0, 64));
	MUST(cuCtxSynchronize());
	busy(a, 50);
	MUST(cuMemcpyHtoDAsync(device, &value, 4, a));
	MUST(cuStreamSynchronize(a));
	value = 7; /* the buffer is the program's again */
	EXPECT(cuStreamQuery(a), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(a));
	add_to(b, device, 1, 1);
	pinned[0] = 0;
	MUST(cuMemcpyDtoHAsync(pinned, device, 4, b));
	MUST(cuStreamSynchronize(b));
	CHECK(pinned[0] == 42, "the other stream saw %u", pinned[0]);
	MUST(cuStreamDestroy(a));
	MUST(cuStreamDestroy(b));
}

/* A synchronise behind anything else waits: its event is done, its kernel has written. */
static void others_wait_check(void)
{
	unsigned int value = 5, *seen;
	CUdeviceptr seen_at;
	CUevent event, start, end;
	CUstream a;
	float ms = 0;

	MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	busy(a, 50);
	MUST(cuMemcpyHtoDAsync(device, &value, 4, a));
	MUST(cuEventRecord(event, a));
	MUST(cuStreamSynchronize(a));
	EXPECT(cuEventQuery(event), CUDA_SUCCESS);

	/* One between the kernel and the copy is done as well, and tells its time. */
	MUST(cuEventCreate(&start, 0));
	MUST(cuEventCreate(&end, 0));
	MUST(cuEventRecord(start, a));
	busy(a, 50);
	MUST(cuEventRecord(end, a));
	MUST(cuMemcpyHtoDAsync(device, &value, 4, a));
	MUST(cuStreamSynchronize(a));
	EXPECT(cuEventQuery(end), CUDA_SUCCESS);
	MUST(cuEventElapsedTime(&ms, start, end));
	CHECK(ms >= 49, "50 ms took %f", (double)ms);
	MUST(cuEventDestroy(start));
	MUST(cuEventDestroy(end));

	/* Copies that bring bytes are there behind the wait, though the newest command takes some away. */
	MUST(cuMemcpyHtoD(device, &value, 4));
	pinned[0] = 0;
	busy(a, 50);
	MUST(cuMemcpyDtoHAsync(pinned, device, 4, a));
	MUST(cuMemcpyHtoDAsync(device_too, &value, 4, a));
	MUST(cuStreamSynchronize(a));
	CHECK(pinned[0] == 5, "a copy to the host behind a synchronise: %u", pinned[0]);

	/* Memory that kernels write and the program reads. */
	MUST(cuMemHostAlloc((void **)&seen, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&seen_at, seen, 0));
	for (unsigned int turn = 1; turn < 4; turn++) {
		void *params[] = { &seen_at, &turn };

		busy(a, 20);
		MUST(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, a, params, NULL));
		MUST(cuMemcpyHtoDAsync(device_too, &value, 4, a));
		MUST(cuStreamSynchronize(a));
		CHECK(seen[0] == turn, "mapped memory behind a synchronise: %u, not %u", seen[0], turn);
		/* And with a copy that is synchronous by itself. */
		params[1] = &value;
		busy(a, 1);
		MUST(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		MUST(cuMemcpyHtoD(device_too, &value, 4));
		CHECK(seen[0] == 5, "mapped memory behind a copy: %u", seen[0]);
	}
	MUST(cuStreamSynchronize(a));
	MUST(cuMemFreeHost(seen));
	MUST(cuEventDestroy(event));
	MUST(cuStreamDestroy(a));
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;
	int steps = argc > 2 ? atoi(argv[2]) : 3;
	CUdeviceptr word_at;
	CUmodule module;
	void *word;
	bool known = !only;

	prog_context(NULL);
	util = prog_ptx("util");
	MUST(cuModuleLoadData(&module, util));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&chain, module, "chain"));
	MUST(cuModuleGetFunction(&write_at, module, "write_at"));
	MUST(cuMemAlloc(&device, IMAGE_SIZE));
	MUST(cuMemAlloc(&device_too, 4096));
	MUST(cuMemsetD8(device_too, 0, 4096));
	MUST(cuMemHostAlloc((void **)&pinned, 4096, 0));
	/* cuBLAS keeps a word that kernels could reach; none of these does. */
	MUST(cuMemHostAlloc((void **)&word, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&word_at, word, 0));
	pageable = malloc(IMAGE_SIZE);
	pinned[0] = 0;
	if (!only) {
		others_check(CU_STREAM_NON_BLOCKING);
		others_check(CU_STREAM_DEFAULT);
		others_wait_check();
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (only && strcmp(only, kinds[i].name) != 0)
			continue;
		known = true;
		for (int step = 1; step <= steps; step++)
			kinds[i].step(step);
	}
	CHECK(known, "no steps of that name");
	MUST(cuCtxSynchronize());
	return prog_end();
}
