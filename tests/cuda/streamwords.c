// SPDX-License-Identifier: Apache-2.0
/*
 * Words that streams wait for and write, in device memory and in page-locked memory that the host, or another stream, writes
 * later (field case P-038): work behind a wait starts soon after the word is there and never before, and finds what the host
 * had put there first.
 */
#include "tests/cuda/prog.h"

#define ROUNDS 1000

static CUstream one, two;

/* The work behind a wait: a mark in device memory, and whether it is there. */
static CUdeviceptr mark;

static bool is_waiting(CUstream stream)
{
	return cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

static uint32_t mark_read(void)
{
	uint32_t value;

	MUST(cuMemcpyDtoHAsync(&value, mark, 4, two));
	return value;
}

static void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

static void device_words(void)
{
	CUdeviceptr words;
	uint64_t back[4] = { 0 };

	MUST(cuMemAlloc(&words, 64));
	MUST(cuMemsetD8(words, 0, 64));
	MUST(cuCtxSynchronize());
	EXPECT(cuStreamWriteValue32_v2(one, words, 0x12345678, 0), CUDA_SUCCESS);
	/* Not every device can leave the barrier out (an H200 can't), and says so at once. */
	EXPECT(cuStreamWriteValue32_v2(one, words + 4, 7, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWriteValue32_v2(one, words + 4, 7, 0), CUDA_SUCCESS);
	EXPECT(cuStreamWriteValue64_v2(one, words + 8, 0x1122334455667788, 0), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(one));
	MUST(cuMemcpyDtoH(back, words, sizeof(back)));
	CHECK(back[0] == 0x712345678 && back[1] == 0x1122334455667788 && !back[2], "words: %llx %llx",
	      (unsigned long long)back[0], (unsigned long long)back[1]);

	/* One stream waits for what another one writes. */
	MUST(cuMemsetD32(mark, 0, 1));
	EXPECT(cuStreamWaitValue64_v2(one, words + 16, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
	MUST(cuMemsetD32Async(mark, 1, 1, one));
	sleep_ms(50);
	CHECK(is_waiting(one) && mark_read() == 0, "a wait for a device word did not wait");
	EXPECT(cuStreamWriteValue64_v2(two, words + 16, 4, 0), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(two));
	sleep_ms(20);
	CHECK(is_waiting(one), "4 was taken for 5");
	EXPECT(cuStreamWriteValue64_v2(two, words + 16, 6, 0), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(one));
	CHECK(mark_read() == 1, "the work behind the wait");
	/* Already so: nothing to wait for. */
	EXPECT(cuStreamWaitValue64_v2(one, words + 16, 6, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
	EXPECT(cuStreamWaitValue32_v2(one, words, 0x8, CU_STREAM_WAIT_VALUE_AND), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(one));
	MUST(cuMemFree(words));
}

static void batches(void)
{
	CUstreamBatchMemOpParams ops[4];
	CUdeviceptr words;
	uint64_t back[2];

	memset(ops, 0, sizeof(ops));
	MUST(cuMemAlloc(&words, 64));
	MUST(cuMemsetD8(words, 0, 64));
	MUST(cuCtxSynchronize());
	ops[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[0].waitValue.address = words;
	ops[0].waitValue.value = 3;
	ops[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	ops[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[1].writeValue.address = words + 4;
	ops[1].writeValue.value = 44;
	ops[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	ops[2].writeValue.address = words + 8;
	ops[2].writeValue.value64 = 1ull << 40;
	EXPECT(cuStreamBatchMemOp_v2(one, 3, ops, 0), CUDA_SUCCESS);
	sleep_ms(20);
	CHECK(is_waiting(one), "a batch did not wait");
	EXPECT(cuStreamWriteValue32_v2(two, words, 3, 0), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(one));
	MUST(cuMemcpyDtoH(back, words, sizeof(back)));
	CHECK(back[0] == ((44ull << 32) | 3) && back[1] == 1ull << 40, "a batch wrote %llx %llx",
	      (unsigned long long)back[0], (unsigned long long)back[1]);
	EXPECT(cuStreamBatchMemOp_v2(one, 0, ops, 0), CUDA_SUCCESS);
	EXPECT(cuStreamBatchMemOp_v2(one, 257, ops, 0), CUDA_ERROR_INVALID_VALUE);
	/* A driver of NVIDIA's is killed by it. */
	if (prog_on_gleam())
		EXPECT(cuStreamBatchMemOp_v2(one, 3, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamBatchMemOp_v2(one, 3, ops, 1), CUDA_ERROR_INVALID_VALUE);
	ops[1].operation = (CUstreamBatchMemOpType)77;
	EXPECT(cuStreamBatchMemOp_v2(one, 3, ops, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuStreamSynchronize(one));
	MUST(cuMemFree(words));
}

static void illegal(void)
{
	CUdeviceptr words;

	MUST(cuMemAlloc(&words, 64));
	EXPECT(cuStreamWaitValue32_v2(one, words + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWaitValue64_v2(one, words + 4, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWriteValue32_v2(one, words + 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWriteValue32_v2(one, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamWriteValue64_v2(one, words, 0, 0x80), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamSynchronize(one), CUDA_SUCCESS);
	MUST(cuMemFree(words));
}

/* The host stores the word, without a call, and the work behind it starts soon. */
static void host_store(volatile uint32_t *word, CUdeviceptr at, uint32_t before, uint32_t value, uint32_t after,
		       unsigned int flags, const char *what)
{
	double best = 1e9, start, took;

	for (int round = 0; round < 5; round++) {
		*word = before;
		MUST(cuMemsetD32(mark, 0, 1));
		MUST(cuCtxSynchronize());
		EXPECT(cuStreamWaitValue32_v2(one, at, value, flags), CUDA_SUCCESS);
		MUST(cuMemsetD32Async(mark, 1, 1, one));
		sleep_ms(round ? 20 : 200);
		CHECK(is_waiting(one) && mark_read() == 0, "%s: started before the word was there", what);
		start = prog_seconds();
		__atomic_store_n(word, after, __ATOMIC_RELEASE);
		MUST(cuStreamSynchronize(one));
		took = prog_seconds() - start;
		if (took < best)
			best = took;
		CHECK(took < 2, "%s: started %.3f s after the word", what, took);
		CHECK(mark_read() == 1, "%s: the work behind it", what);
	}
	/* The machine may be busy: one of five has to be as fast as it should be. */
	CHECK(best < 0.05, "%s: started %.3f s after the word at best", what, best);
	printf("%s: %.1f ms after the store\n", what, best * 1e3);
}

/* The host fills a buffer and then stores the flag; the copy and the kernel behind the wait find what it has filled in, though
 * both were queued while the buffer held something else. */
static void data_before_flag(uint32_t *page, CUdeviceptr at, size_t words)
{
	volatile uint32_t *flag = page;
	uint32_t *data = page + 16, *back = malloc(words * 4);
	CUdeviceptr device;
	int wrong = 0;

	MUST(cuMemAlloc(&device, words * 8));
	*flag = 0;
	for (uint32_t round = 1; round <= 8; round++) {
		for (size_t i = 0; i < words; i++)
			data[i] = 0xdead;
		MUST(cuStreamWaitValue32_v2(one, at, round, CU_STREAM_WAIT_VALUE_GEQ));
		MUST(cuMemcpyHtoDAsync(device, data, words * 4, one));
		MUST(cuMemcpyDtoDAsync(device + words * 4, device, words * 4, one));
		for (size_t i = 0; i < words; i++)
			data[i] = (uint32_t)i * round;
		__atomic_store_n(flag, round, __ATOMIC_RELEASE);
		MUST(cuStreamSynchronize(one));
		MUST(cuMemcpyDtoH(back, device + words * 4, words * 4));
		for (size_t i = 0; i < words; i++)
			wrong += back[i] != (uint32_t)i * round;
	}
	CHECK(!wrong, "%d words were copied before the flag was there", wrong);
	MUST(cuMemFree(device));
	free(back);
}

/* Host and stream take turns. */
static void ping_pong(uint32_t *page, CUdeviceptr at)
{
	volatile uint32_t *ping = page, *pong = page + 1;
	double start = prog_seconds(), limit = start + 60;
	uint32_t done;

	*ping = *pong = 0;
	for (done = 1; done <= ROUNDS; done++) {
		MUST(cuStreamWaitValue32_v2(one, at, done, CU_STREAM_WAIT_VALUE_EQ));
		MUST(cuStreamWriteValue32_v2(one, at + 4, done, 0));
		__atomic_store_n(ping, done, __ATOMIC_RELEASE);
		while (__atomic_load_n(pong, __ATOMIC_ACQUIRE) != done && prog_seconds() < limit) {
			uint32_t seen = *pong;

			if (seen != done && seen != done - 1) {
				CHECK(false, "half a word: %#x in round %u", seen, done);
				break;
			}
		}
		if (*pong != done)
			break;
	}
	CHECK(done == ROUNDS + 1, "stopped in round %u", done);
	printf("%d turns: %.3f ms each\n", ROUNDS, (prog_seconds() - start) * 1e3 / ROUNDS);
	MUST(cuStreamSynchronize(one));
}

/* Page-locked words that another stream writes, 64 bits at a time. */
static void stream_to_stream(uint64_t *word, CUdeviceptr at)
{
	*word = 0;
	for (uint64_t i = 1; i <= 50; i++) {
		MUST(cuStreamWaitValue64_v2(one, at, i << 33, CU_STREAM_WAIT_VALUE_EQ));
		MUST(cuStreamWriteValue64_v2(one, at + 8, i << 33, 0));
		MUST(cuStreamWriteValue64_v2(two, at, i << 33, 0));
		MUST(cuStreamWaitValue64_v2(two, at + 8, i << 33, CU_STREAM_WAIT_VALUE_EQ));
	}
	MUST(cuStreamSynchronize(one));
	MUST(cuStreamSynchronize(two));
	CHECK(word[0] == 50ull << 33 && word[1] == 50ull << 33, "words after 50 turns of two streams: %#llx %#llx",
	      (unsigned long long)word[0], (unsigned long long)word[1]);
}

/* Captured words are nodes. */
static void captured(CUdeviceptr at)
{
	CUgraphNodeType type;
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 1;
	uint32_t back;

	MUST(cuMemsetD32(at, 0, 1));
	MUST(cuStreamBeginCapture_v2(one, CU_STREAM_CAPTURE_MODE_RELAXED));
	EXPECT(cuStreamWriteValue32_v2(one, at, 99, 0), CUDA_SUCCESS);
	MUST(cuStreamEndCapture(one, &graph));
	MUST(cuGraphGetNodes(graph, &node, &count));
	CHECK(count == 1, "%zu nodes", count);
	MUST(cuGraphNodeGetType(node, &type));
	CHECK(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, "a captured word is a node of type %d", (int)type);
	MUST(cuMemcpyDtoH(&back, at, 4));
	CHECK(back == 0, "a captured word was written at once");
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	MUST(cuGraphLaunch(exec, one));
	MUST(cuStreamSynchronize(one));
	MUST(cuMemcpyDtoH(&back, at, 4));
	CHECK(back == 99, "a captured word became %u", back);
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
}

int main(void)
{
	uint32_t *page, *registered = aligned_alloc(4096, 1 << 20);
	int wide = 0, nor = 0, registered_too;
	CUdeviceptr at, registered_at = 0;
	CUdevice device;

	prog_context(&device);
	MUST(cuDeviceGetAttribute(&wide, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device));
	MUST(cuDeviceGetAttribute(&nor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, device));
	if (!wide || !nor) {
		printf("a device with 64-bit words and NOR is needed\n");
		return 77;
	}
	MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&mark, 4));
	device_words();
	batches();
	illegal();
	captured(mark);
	MUST(cuMemHostAlloc((void **)&page, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
	memset(page, 0, 1 << 20);
	MUST(cuMemHostGetDevicePointer_v2(&at, page, 0));
	host_store(page, at, 4, 5, 6, CU_STREAM_WAIT_VALUE_GEQ, "GEQ");
	host_store(page + 3, at + 12, 4, 0x1ff, 0x1ff, CU_STREAM_WAIT_VALUE_EQ, "EQ");
	host_store(page + 3, at + 12, 5, 8, 0x10008, CU_STREAM_WAIT_VALUE_AND, "AND");
	host_store(page + 3, at + 12, 1, 0xfffffffe, 0, CU_STREAM_WAIT_VALUE_NOR, "NOR");
	data_before_flag(page, at, 20000);
	data_before_flag(page, at, 200000);
	stream_to_stream((uint64_t *)page, at);
	ping_pong(page, at);
	/* Memory of the program's own. */
	memset(registered, 0, 1 << 20);
	MUST(cuMemHostRegister(registered, 1 << 20, CU_MEMHOSTREGISTER_DEVICEMAP));
	registered_too = cuMemHostGetDevicePointer_v2(&registered_at, registered, 0) == CUDA_SUCCESS;
	if (registered_too) {
		host_store(registered + 5, registered_at + 20, 0, 1, 1, CU_STREAM_WAIT_VALUE_EQ, "registered");
		data_before_flag(registered, registered_at, 20000);
	}
	MUST(cuMemHostUnregister(registered));
	MUST(cuMemFreeHost(page));
	MUST(cuMemFree(mark));
	free(registered);
	return prog_end();
}
