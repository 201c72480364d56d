// SPDX-License-Identifier: Apache-2.0
/*
 * Streams: what they are asked, their attributes, and the callbacks of both kinds.
 */
#include "tests/cuda/prog.h"

static CUcontext context;
static CUdevice device;

static void questions(CUstream stream, unsigned int want_flags, int want_priority)
{
	unsigned long long id = 0, legacy = 0;
	CUcontext owner = NULL, again = NULL;
	unsigned int flags = 77;
	CUgreenCtx green = (CUgreenCtx)&green;
	int priority = 77;
	CUdevice where = -1;

	EXPECT(cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
	CHECK(flags == want_flags, "flags %u", flags);
	EXPECT(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
	CHECK(priority == want_priority, "priority %d, not %d", priority, want_priority);
	EXPECT(cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
	CHECK(owner == context, "another context");
	EXPECT(cuStreamGetCtx_v2(stream, &again, &green), CUDA_SUCCESS);
	CHECK(again == context && !green, "another context, or a green one");
	EXPECT(cuStreamGetDevice(stream, &where), CUDA_SUCCESS);
	CHECK(where == device, "device %d", where);
	EXPECT(cuStreamGetId(stream, &id), CUDA_SUCCESS);
	EXPECT(cuStreamGetId(NULL, &legacy), CUDA_SUCCESS);
	CHECK(!stream || id != legacy, "two streams with id %llu", id);
	EXPECT(cuStreamGetFlags(stream, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void attributes(CUstream one, CUstream two)
{
	CUstreamAttrValue value, got;
	int least, greatest, window = 0, domains = 0;
	CUdeviceptr memory;
	uint32_t word = 0;

	MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
	MUST(cuDeviceGetAttribute(&window, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, device));
	MUST(cuDeviceGetAttribute(&domains, CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, device));
	MUST(cuMemAlloc(&memory, 4096));
	memset(&value, 0, sizeof(value));
	memset(&got, 0x77, sizeof(got));
	EXPECT(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got), CUDA_SUCCESS);
	/* An H200's driver says -1, which is no policy that cuda.h knows. */
	CHECK(got.syncPolicy == CU_SYNC_POLICY_AUTO || !prog_on_gleam(), "a stream begins with policy %d", (int)got.syncPolicy);
	value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
	EXPECT(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value), CUDA_SUCCESS);
	EXPECT(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got), CUDA_SUCCESS);
	CHECK(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC, "policy %d", (int)got.syncPolicy);
	value.syncPolicy = (CUsynchronizationPolicy)99;
	EXPECT(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value), CUDA_ERROR_INVALID_VALUE);
	if (window > 0) {
		memset(&value, 0, sizeof(value));
		value.accessPolicyWindow.base_ptr = (void *)(uintptr_t)memory;
		value.accessPolicyWindow.num_bytes = 4096;
		value.accessPolicyWindow.hitRatio = 0.5f;
		value.accessPolicyWindow.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
		value.accessPolicyWindow.missProp = CU_ACCESS_PROPERTY_STREAMING;
		EXPECT(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value), CUDA_SUCCESS);
		EXPECT(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got), CUDA_SUCCESS);
		CHECK(got.accessPolicyWindow.num_bytes == 4096 && got.accessPolicyWindow.hitRatio == 0.5f,
		      "a window of %zu", got.accessPolicyWindow.num_bytes);
	}
	EXPECT(cuStreamCopyAttributes(two, one), CUDA_SUCCESS);
	EXPECT(cuStreamGetAttribute(two, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got), CUDA_SUCCESS);
	CHECK(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC, "the copied policy is %d", (int)got.syncPolicy);
	EXPECT(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &got), CUDA_SUCCESS);
	CHECK(got.priority == 0, "priority %d", got.priority);
	EXPECT(cuStreamGetAttribute(one, (CUstreamAttrID)99, &got), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamSetAttribute(one, (CUstreamAttrID)99, &value), CUDA_ERROR_INVALID_VALUE);
	/* Work goes on as before. */
	MUST(cuMemsetD32Async(memory, 7, 4, one));
	MUST(cuMemcpyDtoHAsync(&word, memory, 4, one));
	MUST(cuStreamSynchronize(one));
	CHECK(word == 7, "work on a stream with attributes: %u", word);
	MUST(cuMemFree(memory));
}

static int calls;
static CUresult seen = (CUresult)77;

static void called(CUstream stream, CUresult status, void *user)
{
	(void)stream;
	seen = status;
	*(int *)user += 1;
	calls++;
}

static void called_plain(void *user)
{
	*(int *)user += 10;
	calls++;
}

static void callbacks(CUstream stream)
{
	int count = 0;

	EXPECT(cuStreamAddCallback(stream, called, &count, 0), CUDA_SUCCESS);
	EXPECT(cuLaunchHostFunc(stream, called_plain, &count), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	CHECK(count == 11 && calls == 2 && seen == CUDA_SUCCESS, "callbacks: %d, %d, status %d", count, calls, (int)seen);
	EXPECT(cuStreamAddCallback(stream, called, &count, 1), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamAddCallback(stream, NULL, &count, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLaunchHostFunc(stream, NULL, &count), CUDA_ERROR_INVALID_VALUE);
}

static void events(CUstream stream)
{
	float ms = -1;
	CUevent one, two, quick;

	MUST(cuEventCreate(&one, CU_EVENT_DEFAULT));
	MUST(cuEventCreate(&two, CU_EVENT_BLOCKING_SYNC));
	MUST(cuEventCreate(&quick, CU_EVENT_DISABLE_TIMING));
	EXPECT(cuEventQuery(one), CUDA_SUCCESS);
	EXPECT(cuEventRecord(one, stream), CUDA_SUCCESS);
	EXPECT(cuEventRecordWithFlags(two, stream, 0), CUDA_SUCCESS);
	EXPECT(cuEventRecord(quick, stream), CUDA_SUCCESS);
	EXPECT(cuEventSynchronize(two), CUDA_SUCCESS);
	EXPECT(cuEventElapsedTime(&ms, one, two), CUDA_SUCCESS);
	CHECK(ms >= 0 && ms < 10000, "%g ms", (double)ms);
	EXPECT(cuEventElapsedTime(&ms, one, quick), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuEventCreate(&one, 0xff00), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuEventDestroy(two), CUDA_SUCCESS);
	EXPECT(cuEventDestroy(quick), CUDA_SUCCESS);
}

int main(void)
{
	int least, greatest;
	CUstream plain, free_one, urgent;

	context = prog_context(&device);
	MUST(cuCtxGetStreamPriorityRange(&least, &greatest));
	EXPECT(cuStreamCreate(&plain, CU_STREAM_DEFAULT), CUDA_SUCCESS);
	EXPECT(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
	/* A priority out of range is brought into it. */
	EXPECT(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest - 10), CUDA_SUCCESS);
	questions(plain, CU_STREAM_DEFAULT, 0);
	questions(free_one, CU_STREAM_NON_BLOCKING, 0);
	questions(urgent, CU_STREAM_NON_BLOCKING, greatest);
	questions(NULL, CU_STREAM_DEFAULT, 0);
	attributes(plain, free_one);
	callbacks(plain);
	events(free_one);
	EXPECT(cuStreamDestroy(plain), CUDA_SUCCESS);
	EXPECT(cuStreamDestroy(free_one), CUDA_SUCCESS);
	EXPECT(cuStreamDestroy(urgent), CUDA_SUCCESS);
	return prog_end();
}
