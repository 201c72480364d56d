// SPDX-License-Identifier: Apache-2.0
/*
 * What each kind of host memory costs: a line `cost NAME VALUE UNIT` each. Results are checked. `hostmem long`: with more turns,
 * for measuring (some 10 s). At most 200 MiB of each kind.
 */
#include <sys/mman.h>

#include "tests/cuda/prog.h"

static CUfunction add, write_at;
static unsigned int turns = 5;

static void add_on(CUdeviceptr data, unsigned int value, unsigned long long n)
{
	void *params[] = { &data, &value, &n };

	MUST(cuLaunchKernel(add, 64, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
}

static void cost(const char *name, double value, const char *unit)
{
	printf("cost %s %.3g %s\n", name, value, unit);
}

/* Best of three, as others run beside. */
#define TIMED(seconds, what)                                     \
	do {                                                     \
		(seconds) = 1e9;                                 \
		for (int timed_turn = 0; timed_turn < 3; timed_turn++) { \
			double timed_from = prog_seconds();      \
			what;                                    \
			timed_from = prog_seconds() - timed_from; \
			if (timed_from < (seconds))              \
				(seconds) = timed_from;          \
		}                                                \
	} while (0)

static void copies(const char *kind, void *host, size_t size, CUdeviceptr device)
{
	char name[64];
	double up, down;

	memset(host, 3, size);
	TIMED(up, MUST(cuMemcpyHtoDAsync(device, host, size, NULL)); MUST(cuStreamSynchronize(NULL)));
	MUST(cuMemsetD8(device, 7, size));
	TIMED(down, MUST(cuMemcpyDtoHAsync(host, device, size, NULL)); MUST(cuStreamSynchronize(NULL)));
	CHECK(((char *)host)[0] == 7 && ((char *)host)[size - 1] == 7, "%s: the copy back is wrong", kind);
	snprintf(name, sizeof(name), "%s_to_device", kind);
	cost(name, (double)size / up * 1e-9, "GB/s");
	snprintf(name, sizeof(name), "%s_to_host", kind);
	cost(name, (double)size / down * 1e-9, "GB/s");
}

static void page_locked(size_t size)
{
	void *pageable = malloc(size), *made = NULL, *registered;
	CUdeviceptr device;
	double from;

	registered = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	MUST(cuMemAlloc(&device, size));
	copies("pageable", pageable, size, device);
	from = prog_seconds();
	MUST(cuMemHostAlloc(&made, size, CU_MEMHOSTALLOC_PORTABLE));
	cost("host_alloc", (prog_seconds() - from) * 1e3, "ms");
	copies("page_locked", made, size, device);
	from = prog_seconds();
	MUST(cuMemHostRegister(registered, size, 0));
	cost("host_register", (prog_seconds() - from) * 1e3, "ms");
	copies("registered", registered, size, device);
	MUST(cuMemHostUnregister(registered));
	MUST(cuMemFreeHost(made));
	MUST(cuMemFree(device));
	munmap(registered, size);
	free(pageable);
}

/* A kernel and a wait, with memory of this kind reached by the kernel; @touch: the host reads and writes a word in between. */
static double turn_us(unsigned int *host, CUdeviceptr device, unsigned long long n, bool touch)
{
	unsigned int wrong = 0, value = touch ? host[0] : 0;
	double from;

	add_on(device, 1, n);
	MUST(cuStreamSynchronize(NULL));
	value++;
	from = prog_seconds();
	for (unsigned int i = 0; i < turns; i++) {
		if (touch) {
			wrong += host[0] != value;
			host[0] = value = i * 10;
		}
		add_on(device, 1, n);
		MUST(cuStreamSynchronize(NULL));
		value++;
	}
	from = prog_seconds() - from;
	CHECK(!wrong, "%u wrong words", wrong);
	return from / turns * 1e6;
}

static void mapped(void)
{
	unsigned int *small, *large;
	CUdeviceptr device, ordinary;
	unsigned int value = 77;
	double least = 1e9;

	MUST(cuMemAlloc(&ordinary, 1 << 20));
	cost("device_turn", turn_us(NULL, ordinary, 1024, false), "us");
	MUST(cuMemHostAlloc((void **)&small, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostAlloc((void **)&large, 1 << 20, CU_MEMHOSTALLOC_DEVICEMAP));
	MUST(cuMemHostGetDevicePointer_v2(&device, small, 0));
	cost("mapped_4K_turn", turn_us(small, device, 1024, true), "us");
	for (unsigned int i = 0; i < turns; i++) {
		void *params[] = { &device, &value };
		double from = prog_seconds();

		*(volatile unsigned int *)small = 0;
		MUST(cuLaunchKernel(write_at, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		while (*(volatile unsigned int *)small != 77 && prog_seconds() < from + 2)
			;
		from = prog_seconds() - from;
		CHECK(from < 2, "a flag that is polled does not come");
		MUST(cuStreamSynchronize(NULL));
		least = from < least ? from : least;
	}
	cost("mapped_flag_polled", least * 1e6, "us");
	MUST(cuMemHostGetDevicePointer_v2(&device, large, 0));
	cost("mapped_1M_turn", turn_us(large, device, 1 << 18, true), "us");
	MUST(cuMemFreeHost(small));
	MUST(cuMemFreeHost(large));
	MUST(cuMemFree(ordinary));
}

static void managed(size_t size)
{
	CUmemLocation here = { .type = CU_MEM_LOCATION_TYPE_HOST };
	unsigned long long n = size / 4;
	unsigned int *words, wrong = 0;
	CUdeviceptr device;
	double from, best = 1e9;

	MUST(cuMemAllocManaged(&device, 4096, CU_MEM_ATTACH_GLOBAL));
	words = (unsigned int *)(uintptr_t)device;
	cost("managed_4K_turn", turn_us(words, device, 1024, true), "us");
	cost("managed_untouched_turn", turn_us(NULL, device, 1024, false), "us");
	MUST(cuMemFree(device));
	from = prog_seconds();
	MUST(cuMemAllocManaged(&device, size, CU_MEM_ATTACH_GLOBAL));
	cost("managed_alloc", (prog_seconds() - from) * 1e3, "ms");
	words = (unsigned int *)(uintptr_t)device;
	memset(words, 0, size);
	add_on(device, 1, n);
	MUST(cuCtxSynchronize());
	for (int turn = 0; turn < 3; turn++) {
		from = prog_seconds();
		for (unsigned long long i = 0; i < n; i += 1024)
			wrong += words[i] != (unsigned int)turn + 1;
		from = prog_seconds() - from;
		best = from < best ? from : best;
		add_on(device, 1, n);
		MUST(cuCtxSynchronize());
	}
	CHECK(!wrong, "%u wrong words in managed memory", wrong);
	cost("managed_swept_by_host", (double)size / best * 1e-9, "GB/s");
	for (unsigned long long i = 0; i < n; i += 1024)
		words[i]++;
	best = 1e9;
	for (int turn = 0; turn < 3; turn++) {
		memset(words, turn, size);
		from = prog_seconds();
		add_on(device, 1, n);
		MUST(cuCtxSynchronize());
		from = prog_seconds() - from;
		best = from < best ? from : best;
		if (turn < 2)
			wrong += words[n - 1] != (unsigned int)turn * 0x01010101u + 1;
	}
	cost("managed_written_by_host", (double)size / best * 1e-9, "GB/s");
	from = prog_seconds();
	/* Where the device natively takes no prefetches: nothing to measure. */
	if (cuMemPrefetchAsync_v2(device, size, here, 0, NULL) == CUDA_SUCCESS) {
		MUST(cuStreamSynchronize(NULL));
		wrong += words[n - 1] != 0x02020203u || words[0] != 0x02020203u;
		cost("managed_prefetched", (double)size / (prog_seconds() - from) * 1e-9, "GB/s");
	}
	CHECK(!wrong, "%u wrong words in managed memory at the end", wrong);
	MUST(cuMemFree(device));
}

int main(int argc, char **argv)
{
	bool is_long = argc > 1 && !strcmp(argv[1], "long");
	size_t size = is_long ? 64 << 20 : 4 << 20;
	CUmodule module;

	if (is_long)
		turns = 300;
	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&add, module, "add"));
	MUST(cuModuleGetFunction(&write_at, module, "write_at"));
	page_locked(size);
	mapped();
	managed(size);
	return prog_end();
}
