// SPDX-License-Identifier: Apache-2.0
/*
 * Order: within a stream, between streams by events, with the legacy and per-thread streams (field case P-004), many
 * launches behind a busy kernel, times between events, host functions.
 */
#include <pthread.h>

#include "tests/cuda/pieces.h"

static CUfunction spin, fill, chain;

static void busy(CUstream stream, unsigned long long ms)
{
	unsigned long long ns = ms * 1000000;
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value, unsigned long long n)
{
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void chain_check(CUstream stream)
{
	unsigned int want = 1, start = 1;
	CUdeviceptr data;

	MUST(cuMemAlloc(&data, 4));
	MUST(cuMemcpyHtoDAsync(data, &start, 4, stream));
	busy(stream, 50);
	/* More than the driver keeps in flight. */
	for (unsigned int i = 0; i < 3000; i++) {
		void *params[] = { &data, &i };

		MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		want = want * 3 + i;
	}
	MUST(cuStreamSynchronize(stream));
	CHECK(word(data) == want, "3000 launches gave %#x, not %#x", word(data), want);
	MUST(cuMemFree(data));
}

static void events_check(void)
{
	CUstream a, b;
	CUevent start, done, between;
	CUdeviceptr data;
	float ms = -1;

	MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&start, CU_EVENT_DEFAULT));
	MUST(cuEventCreate(&done, CU_EVENT_DEFAULT));
	MUST(cuEventCreate(&between, CU_EVENT_DISABLE_TIMING));
	MUST(cuMemAlloc(&data, 4));
	MUST(cuMemsetD32(data, 0, 1));
	MUST(cuCtxSynchronize());
	EXPECT(cuEventQuery(done), CUDA_SUCCESS);
	MUST(cuEventRecord(start, a));
	busy(a, 100);
	fill_on(a, data, 7, 1);
	MUST(cuEventRecord(between, a));
	EXPECT(cuEventQuery(between), CUDA_ERROR_NOT_READY);
	MUST(cuStreamWaitEvent(b, between, 0));
	{
		unsigned int value = 2;
		void *params[] = { &data, &value };

		MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, b, params, NULL));
	}
	MUST(cuEventRecord(done, b));
	EXPECT(cuEventElapsedTime(&ms, start, done), CUDA_ERROR_NOT_READY);
	MUST(cuEventSynchronize(done));
	EXPECT(cuEventQuery(done), CUDA_SUCCESS);
	CHECK(word(data) == 23, "a stream that waited for an event saw %u, not 23", word(data));
	MUST(cuEventElapsedTime(&ms, start, done));
	CHECK(ms >= 95 && ms < 2000, "%.3f ms between events around 100 ms of work", (double)ms);
	EXPECT(cuEventElapsedTime(&ms, start, between), CUDA_ERROR_INVALID_HANDLE);
	MUST(cuEventDestroy(start));
	MUST(cuEventDestroy(done));
	MUST(cuEventDestroy(between));
	if (prog_on_gleam())
		EXPECT(cuEventQuery(done), CUDA_ERROR_INVALID_HANDLE);
	MUST(cuStreamDestroy(a));
	MUST(cuStreamDestroy(b));
	MUST(cuMemFree(data));
}

/* P-004: the legacy stream waits for all blocking streams, and for those alone. */
static void legacy_check(void)
{
	enum { STREAMS = 5, SIZE = 1 << 20 };
	CUstream streams[STREAMS];
	unsigned int *buffers[STREAMS];
	CUdeviceptr device[STREAMS];
	CUevent event;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < STREAMS; i++) {
		MUST(cuStreamCreate(&streams[i], i == STREAMS - 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
		MUST(cuMemAllocHost((void **)&buffers[i], SIZE));
		memset(buffers[i], 0xff, SIZE);
		MUST(cuMemAlloc(&device[i], SIZE));
	}
	for (int i = 0; i < STREAMS; i++) {
		busy(streams[i], i == STREAMS - 1 ? 1500 : 100);
		fill_on(streams[i], device[i], (unsigned int)i, SIZE / 4);
		MUST(cuMemcpyDtoHAsync(buffers[i], device[i], SIZE, streams[i]));
	}
	MUST(cuEventRecord(event, NULL));
	MUST(cuEventSynchronize(event));
	CHECK(buffers[STREAMS - 1][0] == 0xffffffff, "the non-blocking stream was waited for");
	for (int i = 0; i < STREAMS - 1; i++)
		CHECK(buffers[i][0] == (unsigned int)i && buffers[i][SIZE / 4 - 1] == (unsigned int)i,
		      "stream %d: %#x", i, buffers[i][0]);
	MUST(cuStreamSynchronize(streams[STREAMS - 1]));
	CHECK(buffers[STREAMS - 1][SIZE / 4 - 1] == STREAMS - 1, "the non-blocking stream after its own wait");

	/* And the other way round: work of a blocking stream starts after earlier work of the legacy stream. */
	MUST(cuMemsetD32(device[0], 0, 1));
	busy(NULL, 100);
	fill_on(NULL, device[0], 5, 1);
	unsigned int value = 1;
	void *params[] = { &device[0], &value };

	MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
	MUST(cuStreamSynchronize(streams[0]));
	CHECK(word(device[0]) == 16, "a blocking stream overtook the legacy one: %u", word(device[0]));
	for (int i = 0; i < STREAMS; i++) {
		MUST(cuStreamDestroy(streams[i]));
		MUST(cuMemFreeHost(buffers[i]));
		MUST(cuMemFree(device[i]));
	}
	MUST(cuEventDestroy(event));
}

struct order {
	int next;
	int wrong;
};

struct step {
	struct order *order;
	int number;
};

static void step_run(void *user)
{
	struct step *step = user;

	usleep(1000);
	step->order->wrong += step->order->next != step->number;
	step->order->next++;
}

static void hostfunc_check(CUstream stream)
{
	enum { STEPS = 50 };
	struct order order = { 0 };
	struct step steps[STEPS];
	CUdeviceptr data;
	unsigned int seen = 0;

	MUST(cuMemAlloc(&data, 4));
	for (int i = 0; i < STEPS; i++) {
		steps[i] = (struct step){ &order, i };
		MUST(cuLaunchHostFunc(stream, step_run, &steps[i]));
		fill_on(stream, data, (unsigned int)i, 1);
	}
	MUST(cuStreamSynchronize(stream));
	CHECK(order.next == STEPS && !order.wrong, "%d host functions ran, %d out of order", order.next, order.wrong);
	MUST(cuMemcpyDtoH(&seen, data, 4));
	CHECK(seen == STEPS - 1, "work after the last host function: %u", seen);
	MUST(cuMemFree(data));
}

struct own {
	CUcontext context;
	CUdeviceptr data;
	unsigned int value;
	unsigned int got;
};

static void *own_run(void *arg)
{
	struct own *own = arg;

	MUST(cuCtxSetCurrent(own->context));
	busy(CU_STREAM_PER_THREAD, 20);
	fill_on(CU_STREAM_PER_THREAD, own->data, own->value, 1);
	MUST(cuMemcpyDtoHAsync(&own->got, own->data, 4, CU_STREAM_PER_THREAD));
	return NULL;
}

static void threads_check(CUcontext context)
{
	enum { THREADS = 8 };
	struct own own[THREADS];
	pthread_t threads[THREADS];

	for (unsigned int i = 0; i < THREADS; i++) {
		own[i] = (struct own){ .context = context, .value = 100 + i };
		MUST(cuMemAlloc(&own[i].data, 4));
		pthread_create(&threads[i], NULL, own_run, &own[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		CHECK(own[i].got == own[i].value, "thread %d read %u, not %u", i, own[i].got, own[i].value);
		MUST(cuMemFree(own[i].data));
	}
}

int main(void)
{
	CUcontext context = prog_context(NULL);
	CUmodule module = prog_module("util");
	CUstream stream;
	int least, greatest, priority;
	unsigned long long id, other;

	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&chain, module, "chain"));
	MUST(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	chain_check(stream);
	chain_check(NULL);
	events_check();
	legacy_check();
	hostfunc_check(stream);
	threads_check(context);

	MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
	MUST(cuStreamGetId(stream, &id));
	MUST(cuStreamGetId(NULL, &other));
	CHECK(id != other, "two streams share the id %llu", id);
	MUST(cuStreamDestroy(stream));
	if (prog_on_gleam())
		EXPECT(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	MUST(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
	MUST(cuStreamGetPriority(stream, &priority));
	CHECK(priority == greatest, "priority %d of a stream made with %d", priority, greatest);
	MUST(cuStreamDestroy(stream));
	return prog_end();
}
