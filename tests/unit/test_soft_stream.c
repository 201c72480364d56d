// SPDX-License-Identifier: Apache-2.0
/*
 * Order: within a stream, between streams, through events, words in memory and the legacy stream.
 */
#include "tests/unit/soft_driver.h"
#include "tests/unit/soft_words.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static void word_write(unsigned int index, uint32_t value)
{
	__atomic_store_n(&words[index], value, __ATOMIC_RELEASE);
}

static CUstream stream_new(unsigned int flags)
{
	CUstream stream;

	assert_ok(CU(cuStreamCreate)(&stream, flags));
	return stream;
}

/* Holds @stream until word @index is 1. */
static void stream_hold(CUstream stream, unsigned int index)
{
	assert_ok(CU(cuStreamWaitValue32_v2)(stream, word(index), 1, CU_STREAM_WAIT_VALUE_EQ));
}

static void nap(void)
{
	usleep(20000);
}

static void test_a_stream_waits_for_a_word(void **state)
{
	CUstream stream;

	words_clear();
	stream = stream_new(0);
	stream_hold(stream, 0);
	assert_ok(CU(cuStreamWriteValue32_v2)(stream, word(1), 7, 0));
	nap();
	assert_int_equal(word_read(1), 0);
	assert_int_equal(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
	word_write(0, 1);
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_int_equal(word_read(1), 7);
	assert_ok(CU(cuStreamQuery)(stream));
	assert_ok(CU(cuStreamDestroy_v2)(stream));
	assert_int_equal(CU(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(CU(cuStreamDestroy_v2)(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void test_all_comparisons(void **state)
{
	static const struct {
		unsigned int flags;
		uint32_t word, value;
		bool goes;
	} cases[] = {
		{ CU_STREAM_WAIT_VALUE_GEQ, 5, 5, true },
		{ CU_STREAM_WAIT_VALUE_GEQ, 4, 5, false },
		{ CU_STREAM_WAIT_VALUE_GEQ, 3, 0xfffffffe, true }, /* a counter that has wrapped */
		{ CU_STREAM_WAIT_VALUE_EQ, 6, 5, false },
		{ CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, 5, 5, true },
		{ CU_STREAM_WAIT_VALUE_AND, 6, 2, true },
		{ CU_STREAM_WAIT_VALUE_AND, 4, 2, false },
		{ CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0, 0xf, false },
		{ CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0, 0x7, true },
	};
	CUstream stream;

	words_clear();
	stream = stream_new(0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		word_write(2, cases[i].word);
		assert_ok(CU(cuStreamWaitValue32)(stream, word(2), cases[i].value, cases[i].flags));
		if (!cases[i].goes) {
			usleep(3000);
			assert_int_equal(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
			word_write(2, (cases[i].flags & 3) == CU_STREAM_WAIT_VALUE_NOR ? 0 : cases[i].value);
		}
		assert_ok(CU(cuStreamSynchronize)(stream));
	}
	/* Eight bytes. */
	*(volatile uint64_t *)&words[4] = 0;
	assert_ok(CU(cuStreamWriteValue64_v2)(stream, word(4), 0x123456789abcdef0, 0));
	assert_ok(CU(cuStreamWaitValue64_v2)(stream, word(4), 0x123456789abcdef0, CU_STREAM_WAIT_VALUE_EQ));
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_int_equal(CU(cuStreamWaitValue64_v2)(stream, word(5), 0, 0), CUDA_ERROR_INVALID_VALUE); /* alignment */
	assert_int_equal(CU(cuStreamWaitValue32_v2)(stream, 0x1000, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuStreamWaitValue32_v2)(stream, word(0), 0, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuStreamWriteValue32_v2)(stream, word(0), 0, 16), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuStreamDestroy_v2)(stream));
}

static void test_batches(void **state)
{
	CUstreamBatchMemOpParams ops[4] = { 0 };
	CUstream stream;

	words_clear();
	stream = stream_new(CU_STREAM_NON_BLOCKING);
	ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	ops[0].writeValue.address = word(8);
	ops[0].writeValue.value = 1;
	ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[1].waitValue.address = word(9);
	ops[1].waitValue.value = 3;
	ops[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
	ops[3] = ops[0];
	ops[3].writeValue.value = 2;
	assert_ok(CU(cuStreamBatchMemOp_v2)(stream, 4, ops, 0));
	while (word_read(8) != 1)
		usleep(100);
	word_write(9, 4);
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_int_equal(word_read(8), 2);
	ops[2].operation = 99;
	assert_int_equal(CU(cuStreamBatchMemOp_v2)(stream, 4, ops, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuStreamBatchMemOp_v2)(stream, 257, ops, 0), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuStreamDestroy_v2)(stream));
}

static void test_events_order_streams(void **state)
{
	CUstream first, second;
	CUevent event, never;
	float elapsed;

	words_clear();
	first = stream_new(CU_STREAM_NON_BLOCKING);
	second = stream_new(CU_STREAM_NON_BLOCKING);
	assert_ok(CU(cuEventCreate)(&event, 0));
	assert_ok(CU(cuEventCreate)(&never, 0));
	assert_ok(CU(cuEventQuery)(event)); /* never recorded: nothing to wait for */
	assert_ok(CU(cuStreamWaitEvent)(second, never, 0));
	stream_hold(first, 0);
	assert_ok(CU(cuEventRecord)(event, first));
	assert_ok(CU(cuStreamWaitEvent)(second, event, 0));
	/* A later recording does not move the wait. */
	stream_hold(first, 1);
	assert_ok(CU(cuStreamWriteValue32_v2)(second, word(2), 1, 0));
	nap();
	assert_int_equal(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
	assert_int_equal(word_read(2), 0);
	assert_int_equal(CU(cuEventElapsedTime_v2)(&elapsed, event, event), CUDA_ERROR_NOT_READY);
	word_write(0, 1);
	assert_ok(CU(cuEventSynchronize)(event));
	assert_ok(CU(cuStreamSynchronize)(second));
	assert_int_equal(word_read(2), 1);
	assert_int_equal(CU(cuEventElapsedTime_v2)(&elapsed, never, event), CUDA_ERROR_INVALID_HANDLE);
	word_write(1, 1);
	nap();
	assert_ok(CU(cuEventRecord)(never, first));
	assert_ok(CU(cuEventSynchronize)(never));
	assert_ok(CU(cuEventElapsedTime)(&elapsed, event, never));
	assert_true(elapsed >= 15.0f && elapsed < 10000.0f);
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_int_equal(CU(cuEventQuery)(event), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuEventDestroy_v2)(never));
	assert_ok(CU(cuStreamDestroy_v2)(first));
	assert_ok(CU(cuStreamDestroy_v2)(second));
}

static void test_legacy_stream_orders_blocking_streams(void **state)
{
	CUstream blocking, later, free_stream;

	words_clear();
	blocking = stream_new(0);
	later = stream_new(0);
	free_stream = stream_new(CU_STREAM_NON_BLOCKING);
	stream_hold(blocking, 0);
	assert_ok(CU(cuStreamWriteValue32_v2)(NULL, word(1), 1, 0));		   /* behind blocking */
	assert_ok(CU(cuStreamWriteValue32_v2)(later, word(2), 1, 0));		   /* behind legacy */
	assert_ok(CU(cuStreamWriteValue32_v2)(CU_STREAM_PER_THREAD, word(3), 1, 0)); /* a blocking stream, too */
	assert_ok(CU(cuStreamWriteValue32_v2)(free_stream, word(4), 1, 0));	   /* behind nothing */
	assert_ok(CU(cuStreamSynchronize)(free_stream));
	nap();
	assert_int_equal(word_read(4), 1);
	assert_int_equal(word_read(1), 0);
	assert_int_equal(word_read(2), 0);
	assert_int_equal(word_read(3), 0);
	assert_int_equal(CU(cuStreamQuery)(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
	word_write(0, 1);
	assert_ok(CU(cuStreamSynchronize)(later));
	assert_int_equal(word_read(1), 1);
	assert_int_equal(word_read(2), 1);
	assert_ok(CU(cuCtxSynchronize)());
	assert_int_equal(word_read(3), 1);
	assert_ok(CU(cuStreamQuery)(NULL));
	assert_ok(CU(cuStreamDestroy_v2)(blocking));
	assert_ok(CU(cuStreamDestroy_v2)(later));
	assert_ok(CU(cuStreamDestroy_v2)(free_stream));
}

static void *other_thread(void *argument)
{
	unsigned long long *id = argument;

	driver_start(0);
	assert_ok(CU(cuStreamGetId)(CU_STREAM_PER_THREAD, id));
	/* Not behind what the first thread's stream waits for. */
	assert_ok(CU(cuStreamWriteValue32_v2_ptsz)(NULL, word(1), 1, 0));
	assert_ok(CU(cuStreamSynchronize_ptsz)(NULL));
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(0));
	return NULL;
}

static void test_per_thread_streams(void **state)
{
	unsigned long long own, again, other = 0, legacy;
	pthread_t thread;

	words_clear();
	assert_ok(CU(cuStreamGetId_ptsz)(NULL, &own));
	assert_ok(CU(cuStreamGetId)(CU_STREAM_PER_THREAD, &again));
	assert_int_equal(own, again);
	assert_ok(CU(cuStreamGetId)(NULL, &legacy));
	assert_int_not_equal(own, legacy);
	stream_hold(CU_STREAM_PER_THREAD, 0);
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &other), 0);
	pthread_join(thread, NULL);
	assert_int_equal(word_read(1), 1);
	assert_int_not_equal(own, other);
	word_write(0, 1);
	assert_ok(CU(cuStreamSynchronize)(CU_STREAM_PER_THREAD));
	/* The plain entry point means the legacy stream again. */
	assert_ok(CU(cuStreamGetId)(NULL, &again));
	assert_int_equal(again, legacy);
}

static void host_function(void *user)
{
	word_write(1, word_read(1) * 10 + (uint32_t)(uintptr_t)user);
}

static void host_callback(CUstream stream, CUresult status, void *user)
{
	assert_int_equal(status, CUDA_SUCCESS);
	assert_ptr_equal(stream, user);
	word_write(1, word_read(1) * 10 + 3);
}

static void test_host_functions_run_in_order(void **state)
{
	CUstream stream;

	words_clear();
	stream = stream_new(0);
	assert_ok(CU(cuLaunchHostFunc)(stream, host_function, (void *)1));
	assert_ok(CU(cuLaunchHostFunc)(stream, host_function, (void *)2));
	assert_ok(CU(cuStreamAddCallback)(stream, host_callback, stream, 0));
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_int_equal(word_read(1), 123);
	assert_int_equal(CU(cuLaunchHostFunc)(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuStreamDestroy_v2)(stream));
}

static _Atomic unsigned int pushed;

static void *pusher(void *argument)
{
	driver_start(0);
	for (unsigned int i = 0; i < 1500; i++) {
		assert_ok(CU(cuStreamWriteValue32_v2)(argument, word(3), i, 0));
		atomic_store(&pushed, i + 1);
	}
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(0));
	return NULL;
}

static void test_a_full_stream_blocks_its_caller_alone(void **state)
{
	CUstream full, other;
	pthread_t thread;
	unsigned int count;

	words_clear();
	full = stream_new(CU_STREAM_NON_BLOCKING);
	other = stream_new(CU_STREAM_NON_BLOCKING);
	atomic_store(&pushed, 0);
	stream_hold(full, 0);
	assert_int_equal(pthread_create(&thread, NULL, pusher, full), 0);
	do {
		count = atomic_load(&pushed);
		usleep(100000);
	} while (count != atomic_load(&pushed));
	assert_in_range(count, 900, 1100);
	assert_ok(CU(cuStreamWriteValue32_v2)(other, word(4), 1, 0));
	assert_ok(CU(cuStreamSynchronize)(other));
	word_write(0, 1);
	pthread_join(thread, NULL);
	assert_ok(CU(cuStreamSynchronize)(full));
	assert_int_equal(word_read(3), 1499);
	assert_ok(CU(cuStreamDestroy_v2)(full));
	assert_ok(CU(cuStreamDestroy_v2)(other));
}

static void test_asynchronous_copies(void **state)
{
	unsigned char *pinned, plain[70000], small[100];
	CUdeviceptr memory;
	CUstream stream;

	words_clear();
	stream = stream_new(0);
	assert_ok(CU(cuMemHostAlloc)((void **)&pinned, 100, 0));
	assert_ok(CU(cuMemAlloc_v2)(&memory, sizeof(plain)));
	/* Page-locked: read when the stream gets there. */
	memset(pinned, 1, 100);
	stream_hold(stream, 0);
	assert_ok(CU(cuMemcpyHtoDAsync_v2)(memory, pinned, 100, stream));
	memset(pinned, 2, 100);
	/* Pageable: read by the call. */
	memset(small, 3, 100);
	assert_ok(CU(cuMemcpyHtoDAsync_v2)(memory + 100, small, 100, stream));
	memset(small, 4, 100);
	word_write(0, 1);
	/* Pageable and large, and pageable destinations: done when the call returns. */
	memset(plain, 5, sizeof(plain));
	assert_ok(CU(cuMemcpyHtoDAsync_v2)(memory + 200, plain, sizeof(plain) - 200, stream));
	memset(plain, 6, sizeof(plain));
	assert_ok(CU(cuMemcpyDtoHAsync_v2)(plain, memory, sizeof(plain), stream));
	assert_int_equal(plain[0], 2);
	assert_int_equal(plain[100], 3);
	assert_int_equal(plain[sizeof(plain) - 1], 5);
	assert_ok(CU(cuMemFreeHost)(pinned));
	assert_ok(CU(cuMemFree_v2)(memory));
	assert_ok(CU(cuStreamDestroy_v2)(stream));
}

static void test_properties(void **state)
{
	CUcontext context, current;
	unsigned long long first_id, second_id;
	CUstream first, second;
	unsigned int flags;
	CUdevice device;
	int priority;

	words_clear();
	assert_ok(CU(cuStreamCreateWithPriority)(&first, CU_STREAM_NON_BLOCKING, -100));
	second = stream_new(0);
	assert_ok(CU(cuStreamGetPriority)(first, &priority));
	assert_int_equal(priority, -5);
	assert_ok(CU(cuStreamGetFlags)(first, &flags));
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	assert_ok(CU(cuStreamGetCtx)(first, &context));
	assert_ok(CU(cuCtxGetCurrent)(&current));
	assert_ptr_equal(context, current);
	assert_ok(CU(cuStreamGetDevice)(first, &device));
	assert_int_equal(device, 0);
	assert_ok(CU(cuStreamGetId)(first, &first_id));
	assert_ok(CU(cuStreamGetId)(second, &second_id));
	assert_int_not_equal(first_id, second_id);
	assert_int_equal(CU(cuStreamCreate)(&first, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuStreamDestroy_v2)(NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_ok(CU(cuStreamDestroy_v2)(second));
}

static void test_a_context_ends_with_its_streams_held(void **state)
{
	CUcontext context;
	CUstream stream;
	CUevent event;

	words_clear();
	assert_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
	stream = stream_new(0);
	assert_ok(CU(cuEventCreate)(&event, 0));
	stream_hold(stream, 0);
	stream_hold(NULL, 0);
	assert_ok(CU(cuEventRecord)(event, stream));
	assert_ok(CU(cuCtxDestroy_v2)(context));
	assert_int_equal(CU(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(CU(cuEventQuery)(event), CUDA_ERROR_INVALID_HANDLE);
}

/* Four threads at four streams, with events between them: nothing may be lost or out of order. */
#define RACE_ROUNDS 300

struct racer {
	unsigned int index;
	CUstream *streams;
};

static void *racer_run(void *argument)
{
	struct racer *racer = argument;
	CUevent event;

	driver_start(0);
	assert_ok(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned int i = 1; i <= RACE_ROUNDS; i++) {
		CUstream own = racer->streams[racer->index];

		assert_ok(CU(cuStreamWriteValue32_v2)(own, word(64 + racer->index), i, 0));
		assert_ok(CU(cuEventRecord)(event, own));
		assert_ok(CU(cuStreamWaitEvent)(racer->streams[(racer->index + 1) % 4], event, 0));
		if (i % 50 == 0) {
			assert_ok(CU(cuEventSynchronize)(event));
			assert_true(word_read(64 + racer->index) >= i);
		}
		if (i % 100 == 0)
			assert_ok(CU(cuMemsetD32_v2)(word(80 + racer->index), i, 1));
	}
	assert_ok(CU(cuEventDestroy_v2)(event));
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(0));
	return NULL;
}

static void test_threads_race(void **state)
{
	struct racer racers[4];
	CUstream streams[4];
	pthread_t threads[4];

	words_clear();
	for (unsigned int i = 0; i < 4; i++)
		streams[i] = stream_new(i & 1 ? CU_STREAM_NON_BLOCKING : 0);
	for (unsigned int i = 0; i < 4; i++) {
		racers[i] = (struct racer){ i, streams };
		assert_int_equal(pthread_create(&threads[i], NULL, racer_run, &racers[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_ok(CU(cuCtxSynchronize)());
	for (unsigned int i = 0; i < 4; i++) {
		assert_int_equal(word_read(64 + i), RACE_ROUNDS);
		assert_int_equal(word_read(80 + i), RACE_ROUNDS);
		assert_ok(CU(cuStreamDestroy_v2)(streams[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_stream_waits_for_a_word),
		cmocka_unit_test(test_all_comparisons),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_events_order_streams),
		cmocka_unit_test(test_legacy_stream_orders_blocking_streams),
		cmocka_unit_test(test_per_thread_streams),
		cmocka_unit_test(test_host_functions_run_in_order),
		cmocka_unit_test(test_a_full_stream_blocks_its_caller_alone),
		cmocka_unit_test(test_asynchronous_copies),
		cmocka_unit_test(test_properties),
		cmocka_unit_test(test_a_context_ends_with_its_streams_held),
		cmocka_unit_test(test_threads_race),
	};

	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
