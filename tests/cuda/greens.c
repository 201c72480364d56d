// SPDX-License-Identifier: Apache-2.0
/*
 * Green contexts: a GPU's multiprocessors split, contexts made of the parts, work in their streams and in their NULL stream, memory and
 * modules that they share with the primary context, events of whole contexts, and wrong uses. Results are compared with the same
 * steps on the CPU. What a split gives differs between devices: it is checked against what the device says of itself.
 * "moves FILE": green contexts work, and wait now and then, until there is FILE.
 */
#include "tests/cuda/pieces.h"

#define WORDS 65536u

static CUcontext primary;
static CUdevice device;
static CUfunction fill, chain, spin;

static CUdeviceptr buffer(void)
{
	CUdeviceptr at;

	MUST(cuMemAlloc(&at, WORDS * 4));
	MUST(cuMemsetD8(at, 0, WORDS * 4));
	MUST(cuCtxSynchronize());
	return at;
}

static void chain_on(CUstream stream, CUdeviceptr data, unsigned int value)
{
	void *params[] = { &data, &value };

	MUST(cuLaunchKernel(chain, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value)
{
	unsigned long long n = WORDS;
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 64, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static bool filled(CUdeviceptr at, unsigned int value)
{
	static unsigned int got[WORDS];

	memset(got, 0, sizeof(got));
	MUST(cuMemcpyDtoH(got, at, sizeof(got)));
	for (unsigned int i = 0; i < WORDS; i++)
		if (got[i] != value)
			return false;
	return true;
}

/* Two parts of the device and what remains. */
struct parts {
	CUdevResource all;
	CUdevResource part[2];
	CUdevResource rest;
	unsigned int count;
};

static struct parts split_check(void)
{
	struct parts p = { .count = 2 };
	unsigned int most = 0, least;
	int sms;

	MUST(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	MUST(cuDeviceGetDevResource(device, &p.all, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(p.all.type == CU_DEV_RESOURCE_TYPE_SM && p.all.sm.smCount == (unsigned int)sms, "%u multiprocessors, not %d", p.all.sm.smCount,
	      sms);
	CHECK(p.all.sm.minSmPartitionSize && p.all.sm.smCoscheduledAlignment, "least %u, unit %u", p.all.sm.minSmPartitionSize,
	      p.all.sm.smCoscheduledAlignment);
	least = p.all.sm.minSmPartitionSize;
	MUST(cuDevSmResourceSplitByCount(NULL, &most, &p.all, NULL, 0, least));
	CHECK(most >= 2 && most <= (unsigned int)sms / least, "%u groups of %u", most, least);
	MUST(cuDevSmResourceSplitByCount(p.part, &p.count, &p.all, &p.rest, 0, least));
	CHECK(p.count == 2, "%u groups, not 2", p.count);
	for (unsigned int i = 0; i < 2; i++)
		CHECK(p.part[i].type == CU_DEV_RESOURCE_TYPE_SM && p.part[i].sm.smCount >= least, "group %u has %u", i, p.part[i].sm.smCount);
	CHECK(p.part[0].sm.smCount + p.part[1].sm.smCount + (p.rest.type ? p.rest.sm.smCount : 0) <= (unsigned int)sms,
	      "more than there are");
	return p;
}

static CUgreenCtx green_new(CUdevResource *resources, unsigned int count)
{
	CUdevResourceDesc desc;
	CUgreenCtx green;

	MUST(cuDevResourceGenerateDesc(&desc, resources, count));
	MUST(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* Streams of two greens and of the primary context, over memory and functions that are the primary one's. */
static void streams_check(const struct parts *p)
{
	CUdevResource part = p->part[0], of;
	CUgreenCtx a = green_new(&part, 1), b, seen = NULL;
	CUstream sa, sb, own;
	CUcontext got = NULL;
	CUdeviceptr x = buffer(), y = buffer();
	unsigned long long id_a = 0, id_b = 0;
	CUevent event;

	part = p->part[1];
	b = green_new(&part, 1);
	MUST(cuGreenCtxGetId(a, &id_a));
	MUST(cuGreenCtxGetId(b, &id_b));
	CHECK(id_a != id_b, "both are number %llu", id_a);
	MUST(cuGreenCtxGetDevResource(a, &of, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(of.sm.smCount == p->part[0].sm.smCount, "a part has %u, not %u", of.sm.smCount, p->part[0].sm.smCount);
	MUST(cuGreenCtxStreamCreate(&sa, a, CU_STREAM_NON_BLOCKING, 0));
	MUST(cuGreenCtxStreamCreate(&sb, b, CU_STREAM_NON_BLOCKING, -1));
	MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamGetGreenCtx(sa, &seen));
	CHECK(seen == a, "a stream of another green context");
	MUST(cuStreamGetGreenCtx(own, &seen));
	CHECK(!seen, "an ordinary stream has a green context");
	MUST(cuStreamGetCtx_v2(sb, &got, &seen));
	CHECK(got == primary && seen == b, "contexts of a stream");
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	/* Behind each other by events, over all three. */
	for (unsigned int i = 0; i < 10; i++) {
		chain_on(sa, x, i);
		MUST(cuEventRecord(event, sa));
		MUST(cuStreamWaitEvent(sb, event, 0));
		chain_on(sb, x, i + 1);
		MUST(cuEventRecord(event, sb));
		MUST(cuStreamWaitEvent(own, event, 0));
		chain_on(own, x, i + 2);
		MUST(cuEventRecord(event, own));
		MUST(cuStreamWaitEvent(sa, event, 0));
	}
	MUST(cuMemcpyDtoDAsync(y, x, 4, sa));
	MUST(cuStreamSynchronize(sa));
	{
		unsigned int want = 0;

		for (unsigned int i = 0; i < 10; i++)
			want = ((want * 3 + i) * 3 + i + 1) * 3 + i + 2;
		CHECK(word(y) == want, "a chain over three contexts: %u, not %u", word(y), want);
	}
	/* A synchronous copy is before all that comes after it, on any of them. */
	for (unsigned int i = 0; i < 20; i++) {
		unsigned int value = 1000 + i;

		MUST(cuMemcpyHtoD(x, &value, 4));
		chain_on(i % 2 ? sa : sb, x, 1);
		MUST(cuCtxSynchronize());
		CHECK(word(x) == value * 3 + 1, "after a synchronous copy: %u, not %u", word(x), value * 3 + 1);
	}
	MUST(cuStreamDestroy(sa));
	MUST(cuStreamDestroy(sb));
	MUST(cuStreamDestroy(own));
	MUST(cuEventDestroy(event));
	MUST(cuMemFree(x));
	MUST(cuMemFree(y));
	MUST(cuGreenCtxDestroy(b));
	MUST(cuGreenCtxDestroy(a));
}

/* Small memory that is freed while a green stream works on it isn't given out again before that work is done. */
static void free_check(const struct parts *p)
{
	CUdevResource part = p->part[0];
	CUgreenCtx green = green_new(&part, 1);
	CUstream s, own;
	CUdeviceptr rest[40], first = 0, second = 1;
	int held = 0;

	MUST(cuGreenCtxStreamCreate(&s, green, CU_STREAM_NON_BLOCKING, 0));
	MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	/* Until what is freed is the only place for what is allocated next. */
	while (first != second && held < 40) {
		MUST(cuMemAlloc(&rest[held++], 900000));
		MUST(cuMemAlloc(&first, 900000));
		MUST(cuMemFree(first));
		MUST(cuCtxSynchronize());
		MUST(cuMemAlloc(&second, 900000));
		MUST(cuMemFree(second));
		MUST(cuCtxSynchronize());
	}
	for (unsigned int i = 0; i < 10; i++) {
		unsigned long long ns = 10000000;
		void *busy[] = { &ns };
		CUdeviceptr x, y;

		MUST(cuMemAlloc(&x, 900000));
		MUST(cuCtxSynchronize());
		MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, busy, NULL));
		chain_on(s, x, 7);
		MUST(cuMemFree(x));
		MUST(cuMemAlloc(&y, 900000));
		MUST(cuMemsetD32Async(y, i, 1024, own));
		MUST(cuStreamSynchronize(own));
		MUST(cuStreamSynchronize(s));
		CHECK(word(y) == i, "memory used too early: %u, not %u", word(y), i);
		MUST(cuMemFree(y));
	}
	while (held)
		MUST(cuMemFree(rest[--held]));
	MUST(cuStreamDestroy(s));
	MUST(cuStreamDestroy(own));
	MUST(cuGreenCtxDestroy(green));
}

/* Made current: its NULL stream, streams that are made then, memory that outlives it. */
static void current_check(const struct parts *p)
{
	CUdevResource part = p->part[0], of;
	CUgreenCtx green = green_new(&part, 1), seen = NULL;
	CUcontext context = NULL, got = NULL;
	CUdeviceptr x, y = buffer();
	CUstream blocking, free_one;
	CUmodule module;
	CUfunction f;
	CUdevice d = -1;

	MUST(cuCtxFromGreenCtx(&context, green));
	CHECK(context && context != primary, "it has the primary context's handle");
	MUST(cuCtxPushCurrent(context));
	MUST(cuCtxGetCurrent(&got));
	CHECK(got == context, "another context is current");
	MUST(cuCtxGetDevice(&d));
	CHECK(d == device, "device %d", (int)d);
	MUST(cuCtxGetDevResource(context, &of, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(of.sm.smCount == p->part[0].sm.smCount, "the context has %u", of.sm.smCount);
	MUST(cuStreamGetGreenCtx(NULL, &seen));
	CHECK(seen == green, "the NULL stream is of another");
	MUST(cuMemAlloc(&x, WORDS * 4));
	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	MUST(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamGetGreenCtx(free_one, &seen));
	CHECK(seen == green, "a stream made then is of another");
	/* The NULL stream waits for blocking ones and they for it. */
	for (unsigned int i = 0; i < 20; i++) {
		fill_on(blocking, x, i);
		fill_on(NULL, y, i + 7);
		MUST(cuMemcpyDtoDAsync(x, y, 4, blocking));
		MUST(cuStreamSynchronize(blocking));
		CHECK(word(x) == i + 7 && word(x + 4) == i, "NULL and blocking: %u %u, not %u %u", word(x), word(x + 4), i + 7, i);
	}
	module = prog_module("util");
	MUST(cuModuleGetFunction(&f, module, "chain"));
	fill_on(free_one, x, 77);
	MUST(cuCtxSynchronize());
	CHECK(filled(x, 77), "a free stream of it");
	MUST(cuCtxPopCurrent(&got));
	CHECK(got == context, "popped another");
	MUST(cuCtxGetCurrent(&got));
	CHECK(got == primary, "the primary context isn't current again");
	/* What was made there is the primary context's. */
	CHECK(filled(x, 77), "its memory from the primary context");
	{
		unsigned int value = 2;
		void *params[] = { &x, &value };

		MUST(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		CHECK(word(x) == 77 * 3 + 2, "its module in the primary context: %u", word(x));
	}
	MUST(cuStreamDestroy(blocking));
	MUST(cuStreamDestroy(free_one));
	MUST(cuGreenCtxDestroy(green));
	CHECK(word(x + 8) == 77, "memory after its end: %u", word(x + 8));
	MUST(cuModuleUnload(module));
	MUST(cuMemFree(x));
	MUST(cuMemFree(y));
}

/* Records and waits of whole contexts. */
static void events_check(const struct parts *p)
{
	CUdevResource part = p->part[0];
	CUgreenCtx green = green_new(&part, 1);
	CUdeviceptr x = buffer(), y = buffer();
	CUstream s[3], own, late;
	CUevent event;
	CUresult r;

	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 3; i++)
		MUST(cuGreenCtxStreamCreate(&s[i], green, CU_STREAM_NON_BLOCKING, 0));
	MUST(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
	r = cuGreenCtxRecordEvent(green, event);
	if (r == CUDA_ERROR_NOT_SUPPORTED && !prog_on_gleam()) {
		printf("no events of contexts here\n");
		goto end;
	}
	for (unsigned int i = 0; i < 10; i++) {
		unsigned int got;

		for (unsigned int j = 0; j < 3; j++)
			for (unsigned int k = 0; k < 10; k++)
				chain_on(s[j], x + j * 4, i + j);
		EXPECT(cuGreenCtxRecordEvent(green, event), CUDA_SUCCESS);
		MUST(cuStreamWaitEvent(own, event, 0));
		MUST(cuMemcpyDtoDAsync(y, x, 12, own));
		/* And the green one after that, also what is made later. */
		MUST(cuEventRecord(event, own));
		EXPECT(cuGreenCtxWaitEvent(green, event), CUDA_SUCCESS);
		MUST(cuGreenCtxStreamCreate(&late, green, CU_STREAM_NON_BLOCKING, 0));
		MUST(cuMemsetD32Async(x, 0, 3, late));
		MUST(cuStreamSynchronize(late));
		for (unsigned int j = 0; j < 3; j++) {
			unsigned int want = 0;

			for (unsigned int k = 0; k < 10; k++)
				want = want * 3 + i + j;
			got = word(y + j * 4);
			CHECK(got == want && word(x + j * 4) == 0, "behind the whole context: %u, not %u", got, want);
		}
		MUST(cuStreamDestroy(late));
	}
	/* The same of the primary context. */
	fill_on(own, x, 5);
	EXPECT(cuCtxRecordEvent(primary, event), CUDA_SUCCESS);
	MUST(cuStreamWaitEvent(s[0], event, 0));
	MUST(cuMemcpyDtoDAsync(y, x, WORDS * 4, s[0]));
	MUST(cuEventRecord(event, s[0]));
	EXPECT(cuCtxWaitEvent(primary, event), CUDA_SUCCESS);
	fill_on(own, x, 6);
	MUST(cuStreamSynchronize(own));
	CHECK(filled(y, 5) && filled(x, 6), "behind and before the primary context");
end:
	for (int i = 0; i < 3; i++)
		MUST(cuStreamDestroy(s[i]));
	MUST(cuStreamDestroy(own));
	MUST(cuEventDestroy(event));
	MUST(cuMemFree(x));
	MUST(cuMemFree(y));
	MUST(cuGreenCtxDestroy(green));
}

static void wrong_check(const struct parts *p)
{
	CUdevResource nothing = { .type = CU_DEV_RESOURCE_TYPE_INVALID }, part = p->part[0], out[2], mixed[2];
	unsigned int count = 1;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUstream stream;
	CUcontext context;

	EXPECT(cuDeviceGetDevResource(device, &out[0], (CUdevResourceType)77), CUDA_ERROR_INVALID_RESOURCE_TYPE);
	EXPECT(cuDeviceGetDevResource(device, NULL, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuDeviceGetDevResource(99, &out[0], CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
	EXPECT(cuDevSmResourceSplitByCount(out, &count, &nothing, NULL, 0, 8), CUDA_ERROR_INVALID_RESOURCE_TYPE);
	count = 1;
	EXPECT(cuDevSmResourceSplitByCount(out, &count, &p->all, NULL, 0, p->all.sm.smCount + 1),
	       CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	count = 1;
	EXPECT(cuDevSmResourceSplitByCount(out, &count, &part, NULL, 0, p->all.sm.minSmPartitionSize),
	       CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	if (!prog_on_gleam())
		return; /* 580 on an H200 crashes in one of what follows */
	EXPECT(cuDevResourceGenerateDesc(&desc, &nothing, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
	EXPECT(cuDevResourceGenerateDesc(&desc, &part, 0), CUDA_ERROR_INVALID_VALUE);
	count = 1;
	mixed[0] = part;
	MUST(cuDevSmResourceSplitByCount(&mixed[1], &count, &p->all, NULL, 0, p->all.sm.minSmPartitionSize));
	EXPECT(cuDevResourceGenerateDesc(&desc, mixed, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
	MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	EXPECT(cuGreenCtxCreate(&green, desc, device, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuGreenCtxCreate(&green, desc, 99, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_DEVICE);
	MUST(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
	EXPECT(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuCtxFromGreenCtx(&context, green));
	MUST(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	if (prog_on_gleam()) {
		EXPECT(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
		MUST(cuGreenCtxDestroy(green));
		EXPECT(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
		EXPECT(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
		MUST(cuCtxPushCurrent(context));
		EXPECT(cuMemAlloc(&(CUdeviceptr){ 0 }, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		MUST(cuCtxPopCurrent(NULL));
	} else {
		MUST(cuStreamDestroy(stream));
		MUST(cuGreenCtxDestroy(green));
	}
}

/* Two contexts with a stream each, and one that comes and goes, made of parts that are as old as the program: until there is the file. */
static void moves(const struct parts *p, const char *path)
{
	CUdevResource parts[2] = { p->part[0], p->part[1] }, of;
	CUgreenCtx green[2], guest = NULL;
	CUcontext context = NULL;
	CUdeviceptr x = buffer(), y = buffer();
	unsigned int want[2] = { 0, 0 }, turns = 0;
	CUstream s[2], null = NULL;

	for (unsigned int i = 0; i < 2; i++) {
		green[i] = green_new(&parts[i], 1);
		MUST(cuGreenCtxStreamCreate(&s[i], green[i], CU_STREAM_NON_BLOCKING, 0));
	}
	MUST(cuCtxFromGreenCtx(&context, green[1]));
	do {
		bool last = access(path, F_OK) == 0;

		for (unsigned int i = 0; i < 2; i++) {
			chain_on(s[i], x + 4 * i, turns + i);
			want[i] = want[i] * 3 + turns + i;
		}
		/* Its NULL stream, too. */
		MUST(cuCtxPushCurrent(context));
		fill_on(null, y, turns);
		MUST(cuStreamSynchronize(null));
		MUST(cuCtxPopCurrent(NULL));
		for (unsigned int i = 0; i < 2; i++) {
			MUST(cuStreamSynchronize(s[i]));
			CHECK(word(x + 4 * i) == want[i], "turn %u, stream %u: %u, not %u", turns, i, word(x + 4 * i), want[i]);
			MUST(cuGreenCtxGetDevResource(green[i], &of, CU_DEV_RESOURCE_TYPE_SM));
			CHECK(of.sm.smCount == p->part[i].sm.smCount, "turn %u: a part has %u, not %u", turns, of.sm.smCount,
			      p->part[i].sm.smCount);
		}
		CHECK(filled(y, turns), "turn %u: what the NULL stream of a green context filled", turns);
		if (guest)
			MUST(cuGreenCtxDestroy(guest));
		guest = green_new(&parts[turns % 2], 1);
		MUST(cuGreenCtxGetDevResource(guest, &of, CU_DEV_RESOURCE_TYPE_SM));
		if (turns++ % 20 == 0)
			fprintf(stderr, "step %u\n", turns);
		usleep(5000);
		if (last)
			break;
	} while (true);
	MUST(cuGreenCtxDestroy(guest));
	for (unsigned int i = 0; i < 2; i++) {
		MUST(cuStreamDestroy(s[i]));
		MUST(cuGreenCtxDestroy(green[i]));
	}
	MUST(cuMemFree(x));
	MUST(cuMemFree(y));
}

int main(int argc, char **argv)
{
	struct parts p;
	CUmodule module;

	primary = prog_context(&device);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuModuleGetFunction(&chain, module, "chain"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	p = split_check();
	if (argc > 2) {
		moves(&p, argv[2]);
		return prog_end();
	}
	streams_check(&p);
	current_check(&p);
	free_check(&p);
	events_check(&p);
	wrong_check(&p);
	return prog_end();
}
