// SPDX-License-Identifier: Apache-2.0
/*
 * Managed memory: host and device in turns without a copy by hand, of all sizes, from several threads, in memory of its own and in
 * variables of modules; prefetches, advice, attachment to streams; the program's own handler of faults beside it.
 * Only what a device without concurrent access promises is relied on, so it holds on any.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "tests/cuda/prog.h"

#define cuMemPrefetch cuMemPrefetchAsync_v2
#define cuMemAdviseAt cuMemAdvise_v2

static CUfunction add, spin, write_at, sum;

static const char *const variables_ptx =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .global .attribute(.managed) .align 4 .u32 counter = 20;\n"
	".visible .global .attribute(.managed) .align 8 .u64 wide[3] = {1, 2, 3};\n"
	".visible .global .align 4 .u32 ordinary = 7;\n"
	".visible .entry grow(.param .u32 by)\n{\n\t.reg .b32 %r<5>;\n\t.reg .b64 %d<4>;\n"
	"\tld.param.u32 %r1, [by];\n\tld.global.u32 %r2, [counter];\n\tadd.u32 %r3, %r2, %r1;\n\tst.global.u32 [counter], %r3;\n"
	"\tld.global.u64 %d1, [wide+16];\n\tadd.u64 %d2, %d1, 1;\n\tst.global.u64 [wide+16], %d2;\n\tret;\n}\n";

static void add_on(CUdeviceptr data, unsigned int value, unsigned long long n, CUstream stream)
{
	void *params[] = { &data, &value, &n };

	MUST(cuLaunchKernel(add, 16, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void spin_on(CUstream stream, unsigned long long ns)
{
	void *params[] = { &ns };

	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static unsigned int *managed(size_t size, unsigned int flags)
{
	CUdeviceptr at = 0;

	MUST(cuMemAllocManaged(&at, size, flags));
	return (unsigned int *)(uintptr_t)at;
}

static CUdeviceptr device_of(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

/* In turns: all of it, some words of some pages, and nothing at all. */
static void in_turns(size_t size)
{
	unsigned int *words = managed(size, CU_MEM_ATTACH_GLOBAL);
	size_t n = size / 4, step = n > 4096 ? 777 : 1;
	unsigned long wrong = 0;

	for (size_t i = 0; i < n; i++)
		wrong += words[i] != 0;
	CHECK(!wrong, "%zu bytes: %lu words that nobody wrote are not zero", size, wrong);
	for (size_t i = 0; i < n; i++)
		words[i] = (unsigned int)i * 3;
	add_on(device_of(words), 5, n, NULL);
	MUST(cuCtxSynchronize());
	wrong = 0;
	for (size_t i = 0; i < n; i++)
		wrong += words[i] != (unsigned int)i * 3 + 5;
	CHECK(!wrong, "%zu bytes: %lu words after the first kernel", size, wrong);
	for (size_t i = 0; i < n; i += step)
		words[i] = 1000;
	add_on(device_of(words), 1, n, NULL);
	add_on(device_of(words), 1, n, NULL);
	MUST(cuStreamSynchronize(NULL));
	wrong = 0;
	/* Backwards, so that nothing comes as it might be expected. */
	for (size_t i = n; i-- > 0;)
		wrong += words[i] != (i % step ? (unsigned int)i * 3 + 7 : 1002);
	CHECK(!wrong, "%zu bytes: %lu words after two more kernels", size, wrong);
	add_on(device_of(words), 1, n, NULL);
	MUST(cuMemFree(device_of(words)));
}

/* Copies and fills by the API, with managed memory at either end or both. */
static void copies(void)
{
	enum { N = 100000 };
	unsigned int *a = managed(N * 4, CU_MEM_ATTACH_GLOBAL), *b = managed(N * 4, CU_MEM_ATTACH_GLOBAL);
	unsigned int *host = malloc(N * 4);
	CUdeviceptr device;
	int wrong = 0;

	MUST(cuMemAlloc(&device, N * 4));
	for (unsigned int i = 0; i < N; i++)
		a[i] = i;
	MUST(cuMemcpyDtoD(device, device_of(a), N * 4));
	MUST(cuMemcpyDtoH(host, device, N * 4));
	for (unsigned int i = 0; i < N; i++)
		wrong += host[i] != i;
	CHECK(!wrong, "from managed to device memory: %d", wrong);
	for (unsigned int i = 0; i < N; i++)
		host[i] = i + 1;
	MUST(cuMemcpyHtoD(device_of(a) + 4000, host + 1000, 4 * 1000));
	MUST(cuMemcpy(device_of(b), device_of(a), N * 4));
	MUST(cuCtxSynchronize());
	wrong = 0;
	for (unsigned int i = 0; i < N; i++)
		wrong += b[i] != (i >= 1000 && i < 2000 ? i + 1 : i);
	CHECK(!wrong, "from host to managed to managed memory: %d", wrong);
	a[5] = 55;
	MUST(cuMemsetD32(device_of(a) + 4096, 9, 100));
	MUST(cuMemcpyDtoH(host, device_of(a), N * 4));
	CHECK(host[5] == 55 && host[1023] == 1024 && host[1024] == 9 && host[1123] == 9 && host[1124] == 1125,
	      "a fill inside of it: %u %u %u %u %u", host[5], host[1023], host[1024], host[1123], host[1124]);
	CHECK(a[5] == 55 && a[1024] == 9 && a[1124] == 1125, "the host sees the same: %u %u %u", a[5], a[1024], a[1124]);
	MUST(cuMemFree(device));
	MUST(cuMemFree(device_of(a)));
	MUST(cuMemFree(device_of(b)));
	free(host);
}

/* A wait of any kind is enough before the host looks, and the host's words go to streams of any kind. */
static void waits(void)
{
	unsigned int *word = managed(4, CU_MEM_ATTACH_GLOBAL);
	CUstream blocking, free_stream;
	CUevent event;

	MUST(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	MUST(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	*word = 1;
	spin_on(blocking, 5000000);
	add_on(device_of(word), 1, 1, blocking);
	MUST(cuStreamSynchronize(blocking));
	CHECK(*word == 2, "after a blocking stream: %u", *word);
	*word += 10;
	spin_on(free_stream, 5000000);
	add_on(device_of(word), 1, 1, free_stream);
	MUST(cuEventRecord(event, free_stream));
	MUST(cuEventSynchronize(event));
	CHECK(*word == 13, "after an event: %u", *word);
	*word += 10;
	/* Written once by the host, used by one stream, then by another that waits for it. */
	add_on(device_of(word), 1, 1, blocking);
	MUST(cuEventRecord(event, blocking));
	MUST(cuStreamWaitEvent(free_stream, event, 0));
	add_on(device_of(word), 1, 1, free_stream);
	while (cuStreamQuery(free_stream) == CUDA_ERROR_NOT_READY)
		;
	CHECK(*word == 25, "after two streams and a query: %u", *word);
	MUST(cuEventDestroy(event));
	MUST(cuStreamDestroy(blocking));
	MUST(cuStreamDestroy(free_stream));
	MUST(cuMemFree(device_of(word)));
}

/* Touched while a kernel runs, which is against the rules of such a device: it may wait, but the program lives. */
static void against_the_rules(void)
{
	unsigned int *word = managed(4, CU_MEM_ATTACH_GLOBAL);

	*word = 1;
	spin_on(NULL, 20000000);
	add_on(device_of(word), 1, 1, NULL);
	CHECK(*(volatile unsigned int *)word <= 2, "a word touched while kernels run: %u", *word);
	MUST(cuCtxSynchronize());
	CHECK(*word == 2, "and afterwards: %u", *word);
	/* Freed while it is in use: that waits. */
	spin_on(NULL, 20000000);
	add_on(device_of(word), 1, 1, NULL);
	MUST(cuMemFree(device_of(word)));
}

static void attached(void)
{
	unsigned int *hosts = managed(4096, CU_MEM_ATTACH_HOST), *streams = managed(4096, CU_MEM_ATTACH_GLOBAL);
	CUstream a, b;

	MUST(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamAttachMemAsync(a, device_of(streams), 0, CU_MEM_ATTACH_SINGLE));
	MUST(cuStreamSynchronize(a));
	streams[0] = 5;
	hosts[0] = 6;
	/* One stream is busy; memory of the other and of the host may be used all the while. */
	spin_on(b, 60000000);
	double began = prog_seconds();
	hosts[0]++;
	streams[0]++;
	add_on(device_of(streams), 1, 1, a);
	MUST(cuStreamSynchronize(a));
	CHECK(streams[0] == 7 && hosts[0] == 7, "beside a busy stream: %u %u", streams[0], hosts[0]);
	CHECK(prog_seconds() - began < 0.055 || cuStreamQuery(b) == CUDA_ERROR_NOT_READY || prog_seconds() - began < 10,
	      "it waited for the other stream");
	MUST(cuStreamSynchronize(b));
	MUST(cuStreamAttachMemAsync(NULL, device_of(hosts), 4096, CU_MEM_ATTACH_GLOBAL));
	MUST(cuStreamSynchronize(NULL));
	add_on(device_of(hosts), 1, 1, b);
	MUST(cuStreamSynchronize(b));
	CHECK(hosts[0] == 8, "given to everybody: %u", hosts[0]);
	EXPECT(cuStreamAttachMemAsync(a, device_of(hosts) + 4, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamAttachMemAsync(a, device_of(hosts), 0, 3), CUDA_ERROR_INVALID_VALUE);
	/* Of a stream that is gone, it is everybody's again. */
	MUST(cuStreamDestroy(a));
	streams[0] = 1;
	add_on(device_of(streams), 1, 1, b);
	MUST(cuStreamSynchronize(b));
	CHECK(streams[0] == 2, "after its stream has gone: %u", streams[0]);
	MUST(cuStreamDestroy(b));
	MUST(cuMemFree(device_of(hosts)));
	MUST(cuMemFree(device_of(streams)));
}

static void prefetches(CUdevice device)
{
	enum { N = 1 << 20 };
	CUmemLocation there = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device }, here = { .type = CU_MEM_LOCATION_TYPE_HOST };
	unsigned int *words = managed(N * 4, CU_MEM_ATTACH_GLOBAL);
	int wrong = 0, fd = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY);

	for (unsigned int i = 0; i < N; i++)
		words[i] = i;
	MUST(cuMemPrefetch(device_of(words), N * 4, there, 0, NULL));
	words[7] = 700; /* after the prefetch */
	add_on(device_of(words), 1, N, NULL);
	MUST(cuMemPrefetch(device_of(words), N * 4, here, 0, NULL));
	MUST(cuStreamSynchronize(NULL));
	/* What was prefetched can be given to a system call. */
	CHECK(write(fd, words, N * 4) == N * 4, "a prefetched range can't be written to a file");
	for (unsigned int i = 0; i < N; i++)
		wrong += words[i] != (i == 7 ? 701 : i + 1);
	CHECK(!wrong, "after prefetches: %d", wrong);
	/* And memory that no kernel has had can be read into. */
	MUST(cuMemFree(device_of(words)));
	words = managed(N * 4, CU_MEM_ATTACH_GLOBAL);
	CHECK(read(zero, words, N * 4) == N * 4, "fresh managed memory can't be read into");
	words[N - 1] = 3;
	/* A prefetch to the host, and then another kernel: that one counts. */
	add_on(device_of(words), 1, N, NULL);
	MUST(cuMemPrefetch(device_of(words), N * 4, here, 0, NULL));
	spin_on(NULL, 10000000);
	add_on(device_of(words), 1, N, NULL);
	MUST(cuCtxSynchronize());
	CHECK(words[0] == 2 && words[N - 1] == 5, "a kernel behind a prefetch: %u %u", words[0], words[N - 1]);
	MUST(cuMemFree(device_of(words)));
	close(fd);
	close(zero);
}

static void advice(CUdevice device)
{
	CUmemLocation there = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device }, here = { .type = CU_MEM_LOCATION_TYPE_HOST };
	unsigned int *words = managed(1 << 20, CU_MEM_ATTACH_GLOBAL);
	CUdeviceptr at = device_of(words), ordinary;
	int value = 77, list[4];
	CUmem_range_attribute what[2] = { CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION };
	int values[2] = { 77, 77 };
	void *data[2] = { &values[0], &values[1] };
	size_t sizes[2] = { 4, 4 };

	MUST(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 1 << 20));
	CHECK(value == 0, "read mostly, before it was said: %d", value);
	MUST(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, at, 1 << 20));
	CHECK(value == CU_DEVICE_INVALID, "preferred location, before it was said: %d", value);
	MUST(cuMemAdviseAt(at, 1 << 20, CU_MEM_ADVISE_SET_READ_MOSTLY, there));
	MUST(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 1 << 20));
	CHECK(value == 1, "read mostly: %d", value);
	/* Of a part: the whole is not of one mind any more. */
	MUST(cuMemAdviseAt(at + (1 << 19), 1 << 19, CU_MEM_ADVISE_UNSET_READ_MOSTLY, there));
	MUST(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 1 << 20));
	CHECK(value == 0, "read mostly in part: %d", value);
	MUST(cuMemAdviseAt(at, 1 << 20, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here));
	MUST(cuMemRangeGetAttributes(data, sizes, what, 2, at, 4096));
	CHECK(values[0] == 1 && values[1] == CU_DEVICE_CPU, "both at once: %d %d", values[0], values[1]);
	MUST(cuMemPrefetch(at, 1 << 20, there, 0, NULL));
	MUST(cuCtxSynchronize());
	MUST(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, 1 << 20));
	CHECK(value == device, "last prefetch: %d", value);
	MUST(cuMemAdviseAt(at, 1 << 20, CU_MEM_ADVISE_SET_ACCESSED_BY, there));
	MUST(cuMemRangeGetAttribute(list, sizeof(list), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, at, 1 << 20));
	CHECK(list[0] == device && list[1] == CU_DEVICE_INVALID && list[3] == CU_DEVICE_INVALID, "accessed by: %d %d %d %d", list[0],
	      list[1], list[2], list[3]);
	EXPECT(cuMemRangeGetAttribute(&value, 2, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 4096), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemRangeGetAttribute(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemRangeGetAttribute(&value, 4, (CUmem_range_attribute)99, at, 4096), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAdviseAt(at, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, there), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAlloc(&ordinary, 4096));
	EXPECT(cuMemAdviseAt(ordinary, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, there), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemPrefetch(ordinary, 4096, there, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(ordinary));
	MUST(cuMemFree(at));
}

static void pointers(CUdevice device)
{
	unsigned int *words = managed(10000, CU_MEM_ATTACH_GLOBAL);
	CUdeviceptr at = device_of(words), base = 0, mapped = 0;
	unsigned int is_managed = 0, ordinal = 99, type = 0;
	void *host = NULL;
	size_t size = 0;

	MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at + 16));
	MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at + 16));
	MUST(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, at + 16));
	MUST(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 16));
	MUST(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
	CHECK(is_managed == 1 && type == CU_MEMORYTYPE_DEVICE && host == (char *)words + 16 && mapped == at + 16 &&
		      ordinal == (unsigned int)device,
	      "attributes: managed %u, type %u, host %p, device %llx, ordinal %u", is_managed, type, host, mapped, ordinal);
	MUST(cuMemGetAddressRange_v2(&base, &size, at + 100));
	CHECK(base == at && size >= 10000, "address range: %llx, %zu", base, size);
	EXPECT(cuMemAllocManaged(&base, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAllocManaged(&base, 100, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAllocManaged(&base, 100, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAllocManaged(NULL, 100, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostRegister(words, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(at));
	EXPECT(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at), CUDA_ERROR_INVALID_VALUE);
}

static void variables(void)
{
	CUdeviceptr counter, wide, ordinary;
	unsigned int by = 22, is_managed = 0;
	void *params[] = { &by };
	CUfunction grow;
	CUlibrary library;
	CUmodule module;
	size_t size;

	MUST(cuModuleLoadData(&module, variables_ptx));
	MUST(cuModuleGetFunction(&grow, module, "grow"));
	MUST(cuModuleGetGlobal(&counter, &size, module, "counter"));
	CHECK(size == 4, "its size: %zu", size);
	MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, counter));
	CHECK(is_managed == 1, "a managed variable is managed");
	MUST(cuModuleGetGlobal(&ordinary, &size, module, "ordinary"));
	MUST(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ordinary));
	CHECK(is_managed == 0, "an ordinary variable is not");
	volatile unsigned int *value = (unsigned int *)(uintptr_t)counter;

	CHECK(*value == 20, "its initial value: %u", *value);
	*value = 30;
	MUST(cuLaunchKernel(grow, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuCtxSynchronize());
	CHECK(*value == 52, "after a kernel: %u", *value);
	MUST(cuModuleGetGlobal(&wide, &size, module, "wide"));
	CHECK(size == 24 && ((unsigned long long *)(uintptr_t)wide)[2] == 4 && ((unsigned long long *)(uintptr_t)wide)[0] == 1,
	      "another one, told later: %llu", ((unsigned long long *)(uintptr_t)wide)[2]);
	EXPECT(cuMemFree(counter), CUDA_ERROR_INVALID_VALUE);
	MUST(cuModuleUnload(module));

	/* Of a library, as the runtime asks. */
	MUST(cuLibraryLoadData(&library, variables_ptx, NULL, NULL, 0, NULL, NULL, 0));
	MUST(cuLibraryGetManaged(&counter, &size, library, "counter"));
	EXPECT(cuLibraryGetManaged(&wide, &size, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	value = (unsigned int *)(uintptr_t)counter;
	CHECK(*value == 20, "a library's initial value: %u", *value);
	{
		CUkernel kernel;

		MUST(cuLibraryGetKernel(&kernel, library, "grow"));
		*value += 1;
		MUST(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		MUST(cuCtxSynchronize());
		CHECK(*value == 43, "a library's after a kernel: %u", *value);
	}
	MUST(cuLibraryUnload(library));
}

/* ---- the program's own handler ---- */

static sigjmp_buf back;
static volatile sig_atomic_t caught;

static void on_segv(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)info;
	(void)context;
	caught++;
	siglongjmp(back, 1);
}

/* Can it be read? As programs find out that probe memory. */
static bool readable(volatile char *at)
{
	if (sigsetjmp(back, 1))
		return false;
	(void)*at;
	return true;
}

static void beside_a_handler(bool after)
{
	struct sigaction own = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO }, before;
	char *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int *words;

	if (!after)
		sigaction(SIGSEGV, &own, &before);
	words = managed(4 << 20, CU_MEM_ATTACH_GLOBAL);
	/* Or later than the library's own, which it then takes away. */
	if (after)
		sigaction(SIGSEGV, &own, &before);
	caught = 0;
	for (int turn = 0; turn < 3; turn++) {
		words[0] = words[1 << 19] = 1;
		add_on(device_of(words), 1, 1 << 20, NULL);
		MUST(cuCtxSynchronize());
		CHECK(words[0] == 2 && words[1 << 19] == 2, "beside a handler: %u %u", words[0], words[1 << 19]);
		CHECK(!readable(closed) && !readable(NULL) && readable((char *)words), "the program's faults are the program's");
	}
	CHECK(caught == 6, "its handler was called %d times, not 6", (int)caught);
	MUST(cuMemFree(device_of(words)));
	munmap(closed, 4096);
	sigaction(SIGSEGV, &before, NULL);
}

/* ---- threads ---- */

static void *sweep(void *arg)
{
	unsigned int *words = arg;
	unsigned long wrong = 0;

	for (int i = 0; i < 1 << 18; i++)
		wrong += words[i] != (unsigned int)i + 1;
	return (void *)wrong;
}

static void threads(void)
{
	unsigned int *words = managed(1 << 20, CU_MEM_ATTACH_GLOBAL);
	pthread_t thread[4];
	unsigned long wrong = 0;

	for (unsigned int i = 0; i < 1 << 18; i++)
		words[i] = i;
	add_on(device_of(words), 1, 1 << 18, NULL);
	MUST(cuCtxSynchronize());
	/* Threads that have never called CUDA. */
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, sweep, words);
	for (int i = 0; i < 4; i++) {
		void *result;

		pthread_join(thread[i], &result);
		wrong += (unsigned long)result;
	}
	CHECK(!wrong, "four threads read %lu wrong words", wrong);
	MUST(cuMemFree(device_of(words)));
}

static void host_function(void *arg)
{
	unsigned int *words = arg;

	words[0] += 100;
	words[5000] = words[0];
}

/* A host function between two kernels, attached to their stream: it sees the first, and the second sees it. */
static void host_functions(void)
{
	unsigned int *words = managed(40000, CU_MEM_ATTACH_GLOBAL);
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamAttachMemAsync(stream, device_of(words), 0, CU_MEM_ATTACH_SINGLE));
	MUST(cuStreamSynchronize(stream));
	words[0] = 1;
	add_on(device_of(words), 1, 1, stream);
	MUST(cuLaunchHostFunc(stream, host_function, words));
	add_on(device_of(words), 1, 5001, stream);
	MUST(cuStreamSynchronize(stream));
	CHECK(words[0] == 103 && words[5000] == 103, "around a host function: %u %u", words[0], words[5000]);
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(device_of(words)));
}

static void graphs(void)
{
	unsigned int *words = managed(4096, CU_MEM_ATTACH_GLOBAL);
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	add_on(device_of(words), 3, 10, stream);
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (unsigned int turn = 1; turn <= 3; turn++) {
		words[1] = turn * 10;
		MUST(cuGraphLaunch(exec, stream));
		MUST(cuStreamSynchronize(stream));
		CHECK(words[1] == turn * 10 + 3, "launch %u of a graph: %u", turn, words[1]);
	}
	MUST(cuGraphExecDestroy(exec));
	MUST(cuGraphDestroy(graph));
	MUST(cuStreamDestroy(stream));
	MUST(cuMemFree(device_of(words)));
}

/* Many small ones, as of objects that a program allocates each by itself. */
static void many(void)
{
	enum { N = 300 };
	unsigned int *words[N];
	int wrong = 0;

	for (unsigned int i = 0; i < N; i++) {
		words[i] = managed(24, CU_MEM_ATTACH_GLOBAL);
		*words[i] = i;
	}
	for (unsigned int i = 0; i < N; i++)
		add_on(device_of(words[i]), i, 1, NULL);
	MUST(cuCtxSynchronize());
	for (unsigned int i = 0; i < N; i++)
		wrong += *words[i] != 2 * i;
	CHECK(!wrong, "%d of %d small ones", wrong, N);
	for (unsigned int i = 0; i < N; i++)
		MUST(cuMemFree(device_of(words[i])));
}

static void summed(void)
{
	unsigned int *words = managed(1 << 22, CU_MEM_ATTACH_GLOBAL), total = 0;
	unsigned long long n = 1000;
	CUdeviceptr device = device_of(words), scratch;
	void *params[] = { &device, &scratch, &n };

	MUST(cuMemAlloc(&scratch, 4));
	MUST(cuMemsetD32(scratch, 0, 1));
	for (unsigned int i = 0; i < n; i++)
		words[i] = i;
	MUST(cuLaunchKernel(sum, 2, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&total, scratch, 4));
	CHECK(total == n * (n - 1) / 2, "a kernel summed %u", total);
	MUST(cuMemFree(scratch));
	MUST(cuMemFree(device));
}

/* `managed lost`: says when there is something to lose, and touches it when it is told that it is lost. */
static int lost(void)
{
	unsigned int *words = managed(4 << 20, CU_MEM_ATTACH_GLOBAL), *other = managed(4096, CU_MEM_ATTACH_GLOBAL), sum_of = 0;
	CUresult result = CUDA_SUCCESS;
	char line[16];

	add_on(device_of(words), 1, 1 << 20, NULL);
	MUST(cuCtxSynchronize());
	other[0] = 5; /* written, and not yet sent */
	words[0]++;
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (int i = 0; i < 1 << 20; i += 1000)
		sum_of += words[i];
	words[1 << 19] = other[0];
	CHECK(other[0] == 5 && words[0] == 2 && words[1 << 19] == 5, "what the host had is gone: %u %u", other[0], words[0]);
	for (int i = 0; i < 2000 && !result; i++) {
		result = cuCtxSynchronize();
		usleep(1000);
	}
	CHECK(result != CUDA_SUCCESS, "the loss is not told");
	printf("told %d (%s)\n", (int)result, prog_error(result));
	for (int i = 0; i < 1 << 20; i += 500)
		sum_of += words[i];
	CHECK(cuMemFree(device_of(words)) != CUDA_SUCCESS, "and memory can be freed (%u)", sum_of);
	return prog_end();
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUmodule module;
	int offered = 0;

	prog_context(&device);
	MUST(cuDeviceGetAttribute(&offered, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device));
	if (!offered) {
		printf("the device has no managed memory\n");
		return 77;
	}
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&write_at, module, "write_at"));
	MUST(cuModuleGetFunction(&sum, module, "sum"));
	if (argc > 1 && !strcmp(argv[1], "lost"))
		return lost();
	in_turns(4);
	in_turns(5000);
	in_turns(100000);
	in_turns(9 << 20);
	copies();
	waits();
	against_the_rules();
	attached();
	prefetches(device);
	advice(device);
	pointers(device);
	variables();
	beside_a_handler(false);
	beside_a_handler(true);
	threads();
	host_functions();
	graphs();
	many();
	summed();
	return prog_end();
}
