// SPDX-License-Identifier: Apache-2.0
/*
 * Page-locked memory that copies read and write when their stream comes to them: what lies before them in the stream has been done by then,
 * on the host as well, and what comes behind finds their bytes; in copies of all forms and sizes, until it is freed.
 *
 * Usage: pages [FILE]. With FILE it copies up, about and down, and compares, until there is that file.
 */
#include "tests/cuda/prog.h"

#include <pthread.h>

enum { MIB = 1 << 20, SIZE = 4 * MIB, ROUNDS = 6, THREADS = 4 };

static CUcontext context;
static CUdeviceptr device, other;
static CUstream stream, second;

static void pattern(uint8_t *bytes, size_t size, uint32_t seed)
{
	uint32_t *words = (uint32_t *)(void *)bytes;

	for (size_t i = 0; i < size / 4; i++)
		words[i] = seed * 2654435761u + (uint32_t)i * 40503u;
	for (size_t i = size & ~(size_t)3; i < size; i++)
		bytes[i] = (uint8_t)(seed + i);
}

static bool is_pattern(const uint8_t *bytes, size_t size, uint32_t seed)
{
	const uint32_t *words = (const uint32_t *)(const void *)bytes;

	for (size_t i = 0; i < size / 4; i++)
		if (words[i] != seed * 2654435761u + (uint32_t)i * 40503u)
			return false;
	for (size_t i = size & ~(size_t)3; i < size; i++)
		if (bytes[i] != (uint8_t)(seed + i))
			return false;
	return true;
}

/* On the device; read back to memory that isn't page-locked. */
static bool device_has(CUdeviceptr from, size_t size, uint32_t seed)
{
	uint8_t *back = malloc(size);
	bool has;

	MUST(cuMemcpyDtoH(back, from, size));
	has = is_pattern(back, size, seed);
	free(back);
	return has;
}

struct work {
	uint8_t *bytes;
	size_t size;
	uint32_t seed;
	bool writes;
	bool right;
};

/* On the host, when the stream comes here, and late. */
static void host_works(void *arg)
{
	struct work *work = arg;

	usleep(20000);
	if (work->writes)
		pattern(work->bytes, work->size, work->seed);
	else
		work->right = is_pattern(work->bytes, work->size, work->seed);
}

static void read_when_the_stream_is_there(uint8_t *host)
{
	struct work fill = { .bytes = host, .size = SIZE, .writes = true };
	struct work look = { .bytes = host + SIZE, .size = SIZE };

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		memset(host, 0, 2 * SIZE);
		fill.seed = look.seed = round;
		MUST(cuLaunchHostFunc(stream, host_works, &fill));
		MUST(cuMemcpyHtoDAsync(device, host, SIZE, stream));
		MUST(cuMemcpyDtoDAsync(other, device, SIZE, stream));
		MUST(cuMemcpyDtoHAsync(host + SIZE, other, SIZE, stream));
		MUST(cuLaunchHostFunc(stream, host_works, &look));
		MUST(cuStreamSynchronize(stream));
		CHECK(is_pattern(host + SIZE, SIZE, round), "round %u: not what a host function before the copy has written", round);
		CHECK(look.right, "round %u: a host function behind the copy doesn't find its bytes", round);
	}
}

/* A synchronise behind something else doesn't end before the pages have been read. */
static void not_before_a_synchronise_ends(uint8_t *host)
{
	uint8_t *small = malloc(MIB);
	size_t wrong = 0;

	memset(small, 3, MIB);
	for (uint32_t round = 1; round <= 4 * ROUNDS; round++) {
		pattern(host, SIZE, round);
		for (int i = 0; i < 4; i++)
			MUST(cuMemsetD8Async(other, (unsigned char)i, SIZE, stream));
		MUST(cuMemcpyHtoDAsync(device, host, SIZE, stream));
		if (round % 2)
			MUST(cuMemcpyHtoDAsync(other, small, MIB, stream));
		if (round % 3)
			MUST(cuStreamSynchronize(stream));
		else
			MUST(cuCtxSynchronize());
		memset(host, 0x77, SIZE);
		wrong += !device_has(device, SIZE, round);
		/* And a copy that is synchronous has read them. */
		pattern(host, SIZE, round + 1000);
		MUST(cuMemcpyHtoD(device, host, round % 2 ? SIZE : MIB / 4));
		memset(host, 0x78, SIZE);
		wrong += !device_has(device, round % 2 ? SIZE : MIB / 4, round + 1000);
	}
	CHECK(!wrong, "%zu times the device has bytes that were written after a synchronise", wrong);
	free(small);
}

/* What is copied down is there for copies of every form behind it, and for streams that wait for it. */
static void what_comes_behind_finds_it(uint8_t *host)
{
	CUevent event;
	size_t wrong = 0;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (uint32_t round = 1; round <= 4 * ROUNDS; round++) {
		CUDA_MEMCPY2D rows = {
			.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = host, .srcPitch = 8192, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			.dstDevice = other, .dstPitch = 4096, .WidthInBytes = 4096, .Height = 64,
		};

		pattern(host + SIZE, SIZE, round);
		MUST(cuMemcpyHtoD(device, host + SIZE, SIZE));
		memset(host, 0, SIZE);
		for (int i = 0; i < 4; i++)
			MUST(cuMemsetD8Async(other, (unsigned char)i, SIZE, stream));
		MUST(cuMemcpyDtoHAsync(host, device, SIZE, stream));
		switch (round % 4) {
		case 0: /* by rows */
			MUST(cuMemcpy2DAsync_v2(&rows, stream));
			MUST(cuStreamSynchronize(stream));
			MUST(cuMemcpyDtoH(host + SIZE, other, 4096));
			wrong += memcmp(host, host + SIZE, 4096) != 0;
			break;
		case 1: /* small, in the copy's command */
			MUST(cuMemcpyHtoDAsync(other, host + SIZE - 4096, 4096, stream));
			MUST(cuStreamSynchronize(stream));
			MUST(cuMemcpyDtoH(host + SIZE, other, 4096));
			wrong += memcmp(host + SIZE - 4096, host + SIZE, 4096) != 0;
			break;
		case 2: /* on a stream that waits for it */
			MUST(cuEventRecord(event, stream));
			MUST(cuStreamWaitEvent(second, event, 0));
			MUST(cuMemcpyHtoDAsync(other, host, SIZE, second));
			MUST(cuStreamSynchronize(second));
			wrong += !device_has(other, SIZE, round);
			break;
		default: /* from host to host */
			MUST(cuMemcpyAsync((CUdeviceptr)(uintptr_t)(host + SIZE), (CUdeviceptr)(uintptr_t)host, SIZE, stream));
			MUST(cuStreamSynchronize(stream));
			wrong += !is_pattern(host + SIZE, SIZE, round);
		}
		MUST(cuStreamSynchronize(stream));
		wrong += !is_pattern(host, SIZE, round);
	}
	CHECK(!wrong, "%zu of %d copies behind a copy to the host did not find its bytes", wrong, 4 * ROUNDS);
	MUST(cuEventDestroy(event));
}

static void of_all_sizes(uint8_t *host)
{
	static const size_t sizes[] = { 1, 3, 4000, 4001, 32768, 32769, 65537, 524288, 524289, 1048577, 3 * MIB + 5 };
	size_t wrong = 0, most = 2 * SIZE;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int sync = 0; sync < 2; sync++) {
			size_t size = sizes[i], from = most - size, to = 64 * (i + 1);

			memset(host, 0, most);
			pattern(host + from - from % 4, size + from % 4, (uint32_t)i);
			if (sync) {
				MUST(cuMemcpyHtoD(device + 7, host + from, size));
				MUST(cuMemcpyDtoH(host + to + 1, device + 7, size));
			} else {
				MUST(cuMemcpyHtoDAsync(device + 7, host + from, size, stream));
				MUST(cuMemcpyDtoHAsync(host + to + 1, device + 7, size, stream));
				MUST(cuStreamSynchronize(stream));
			}
			wrong += memcmp(host + to + 1, host + from, size) != 0 || host[to] || host[to + 1 + size];
		}
	CHECK(!wrong, "%zu copies of odd sizes at odd places are wrong", wrong);
}

/* Freed while copies are on their way, and the next memory is another one. */
static void freed_on_its_way(void)
{
	size_t wrong = 0;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		uint8_t *host, *next;

		MUST(cuMemHostAlloc((void **)&host, SIZE, 0));
		pattern(host, SIZE, round);
		for (int i = 0; i < 8; i++)
			MUST(cuMemsetD8Async(other, (unsigned char)i, SIZE, stream));
		MUST(cuMemcpyHtoDAsync(device, host, SIZE, stream));
		MUST(cuMemFreeHost(host));
		MUST(cuMemHostAlloc((void **)&next, SIZE, CU_MEMHOSTALLOC_PORTABLE));
		memset(next, 0x11, SIZE);
		MUST(cuStreamSynchronize(stream));
		wrong += !device_has(device, SIZE, round);
		MUST(cuMemcpyDtoHAsync(next, device, SIZE, stream));
		MUST(cuStreamSynchronize(stream));
		wrong += !is_pattern(next, SIZE, round);
		MUST(cuMemFreeHost(next));
	}
	CHECK(!wrong, "%zu copies from or to memory that was freed or made at once are wrong", wrong);
}

/* A graph reads its sources, and writes its destinations, at each launch. */
static void in_graphs(uint8_t *host)
{
	CUgraph graph;
	CUgraphExec exec;
	size_t wrong = 0;

	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	MUST(cuMemcpyHtoDAsync(device, host, SIZE, stream));
	MUST(cuMemcpyDtoHAsync(host + SIZE, device, SIZE, stream));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		struct work fill = { .bytes = host, .size = SIZE, .seed = round, .writes = true };

		if (round % 2)
			MUST(cuLaunchHostFunc(stream, host_works, &fill));
		else
			pattern(host, SIZE, round);
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		wrong += !is_pattern(host + SIZE, SIZE, round);
	}
	CHECK(!wrong, "%zu of %d launches of a graph have copied other bytes", wrong, ROUNDS);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

/* It is reached by the device, too: memory that was copied to, and is copied from. */
static void reached_by_the_device(uint8_t *host)
{
	CUdeviceptr at;
	size_t wrong = 0;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		pattern(host + SIZE, SIZE, round);
		MUST(cuMemcpyHtoD(device, host + SIZE, SIZE));
		for (int i = 0; i < 4; i++)
			MUST(cuMemsetD8Async(other, (unsigned char)i, SIZE, stream));
		MUST(cuMemcpyDtoHAsync(host, device, SIZE, stream));
		MUST(cuMemHostGetDevicePointer_v2(&at, host, 0));
		/* By its device address it is filled, and copied on, behind the copy. */
		MUST(cuMemsetD8Async(at + 100, (unsigned char)round, 1000, stream));
		MUST(cuMemcpyDtoDAsync(other, at, MIB, stream));
		MUST(cuMemcpyHtoDAsync(device, host, MIB, stream));
		MUST(cuStreamSynchronize(stream));
		MUST(cuMemcpyDtoH(host + SIZE, other, MIB));
		for (size_t i = 100; i < 1100; i++)
			wrong += host[i] != round || host[SIZE + i] != round;
		wrong += memcmp(host, host + SIZE, MIB) != 0;
		MUST(cuMemcpyDtoH(host + SIZE, device, MIB));
		wrong += memcmp(host, host + SIZE, MIB) != 0;
		pattern(host + SIZE, SIZE, round);
		wrong += memcmp(host + 1100, host + SIZE + 1100, SIZE - 1100) != 0;
	}
	CHECK(!wrong, "%zu bytes of memory that copies and kernels reach are wrong", wrong);
}

struct thread {
	pthread_t thread;
	uint32_t number;
	size_t wrong;
};

static void *thread_run(void *arg)
{
	struct thread *self = arg;
	CUdeviceptr mine;
	CUstream on;
	uint8_t *host;

	MUST(cuCtxSetCurrent(context));
	MUST(cuStreamCreate(&on, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&mine, MIB));
	for (uint32_t round = 1; round <= 30; round++) {
		size_t size = MIB - self->number * 100000 - round;

		MUST(cuMemHostAlloc((void **)&host, 2 * MIB, 0));
		pattern(host, size, self->number * 100 + round);
		MUST(cuMemcpyHtoDAsync(mine, host, size, on));
		MUST(cuMemcpyDtoHAsync(host + MIB, mine, size, on));
		MUST(cuStreamSynchronize(on));
		self->wrong += !is_pattern(host + MIB, size, self->number * 100 + round);
		MUST(cuMemFreeHost(host));
	}
	MUST(cuMemFree(mine));
	MUST(cuStreamDestroy(on));
	return NULL;
}

static void in_threads(void)
{
	struct thread threads[THREADS];
	size_t wrong = 0;

	for (uint32_t i = 0; i < THREADS; i++) {
		threads[i] = (struct thread){ .number = i };
		pthread_create(&threads[i].thread, NULL, thread_run, &threads[i]);
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		wrong += threads[i].wrong;
	}
	CHECK(!wrong, "%zu copies of threads are wrong", wrong);
}

/* As programs do that feed a GPU: two buffers, which are filled and emptied in turns. */
static void until(const char *file, uint8_t *host)
{
	uint32_t round = 0;
	size_t wrong = 0;

	while (access(file, F_OK) != 0 || round < 20) {
		uint8_t *half = host + (round % 2) * SIZE;

		pattern(half, SIZE, ++round);
		MUST(cuMemcpyHtoDAsync(device, half, SIZE, stream));
		MUST(cuMemcpyDtoDAsync(other, device, SIZE, stream));
		/* Many are on their way at any time. */
		for (int i = 0; i < 16; i++)
			MUST(cuMemcpyDtoHAsync(half + i * (SIZE / 16), other + i * (SIZE / 16), SIZE / 16, stream));
		memset(host + (round % 2) * SIZE, 0, 16);
		MUST(cuStreamSynchronize(stream));
		wrong += !is_pattern(half, SIZE, round);
		printf("round %u\n", round);
		fflush(stdout);
	}
	CHECK(!wrong, "%zu of %u rounds gave other bytes", wrong, round);
}

int main(int argc, char **argv)
{
	uint8_t *host, *reached;

	prog_context(NULL);
	MUST(cuCtxGetCurrent(&context));
	MUST(cuMemAlloc(&device, SIZE + MIB));
	MUST(cuMemAlloc(&other, SIZE));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
	MUST(cuMemHostAlloc((void **)&host, 2 * SIZE, 0));
	if (argc > 1) {
		until(argv[1], host);
		return prog_end();
	}
	MUST(cuMemHostAlloc((void **)&reached, 2 * SIZE, 0));
	read_when_the_stream_is_there(host);
	not_before_a_synchronise_ends(host);
	what_comes_behind_finds_it(host);
	of_all_sizes(host);
	freed_on_its_way();
	in_graphs(host);
	reached_by_the_device(reached);
	in_threads();
	MUST(cuMemFreeHost(reached));
	MUST(cuMemFreeHost(host));
	return prog_end();
}
