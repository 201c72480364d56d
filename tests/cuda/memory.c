// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory: allocations of many sizes live side by side, freed memory is used again and not too early, figures of
 * free memory tell one story (field case P-011), contexts take their memory with them (P-017).
 */
#include "tests/cuda/prog.h"

static CUfunction spin, fill;

static void fill_on(CUstream stream, CUdeviceptr out, unsigned int value, unsigned long long n)
{
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 16, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static void side_by_side(void)
{
	enum { COUNT = 300 };
	static CUdeviceptr at[COUNT];
	static size_t size[COUNT];
	uint32_t seed = 42;
	int wrong = 0, unaligned = 0;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COUNT; i++) {
			if (at[i] && i % 3 == round)
				continue;
			if (at[i])
				MUST(cuMemFree(at[i]));
			size[i] = (prog_random(&seed) % 4 ? prog_random(&seed) % 50000 : prog_random(&seed) % 6000000) + 4;
			size[i] &= ~(size_t)3;
			MUST(cuMemAlloc(&at[i], size[i]));
			unaligned += (at[i] & 255) != 0;
			fill_on(NULL, at[i], (unsigned int)i, size[i] / 4);
		}
	}
	for (int i = 0; i < COUNT; i++) {
		unsigned int first = 0, last = 0;

		MUST(cuMemcpyDtoH(&first, at[i], 4));
		MUST(cuMemcpyDtoH(&last, at[i] + size[i] - 4, 4));
		wrong += first != (unsigned int)i || last != (unsigned int)i;
		MUST(cuMemFree(at[i]));
	}
	CHECK(!wrong, "%d allocations were overwritten", wrong);
	CHECK(!unaligned, "%d addresses", unaligned);
}

/* What still runs when memory is freed must not write into its next owner's. */
static void not_too_early(void)
{
	unsigned long long ns = 100000000;
	void *params[] = { &ns };
	int wrong = 0;
	CUstream other;

	MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	for (size_t size = 4096; size <= 8u << 20; size *= 2048) {
		CUdeviceptr first, second;
		unsigned int value = 0;

		MUST(cuMemAlloc(&first, size));
		MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, other, params, NULL));
		fill_on(other, first, 0xdead, size / 4);
		MUST(cuMemFree(first));
		MUST(cuMemAlloc(&second, size));
		fill_on(NULL, second, 0xbeef, size / 4);
		MUST(cuStreamSynchronize(other));
		MUST(cuMemcpyDtoH(&value, second, 4));
		wrong += value != 0xbeef;
		MUST(cuMemFree(second));
	}
	CHECK(!wrong, "freed memory was used while a kernel still wrote to it");
	MUST(cuStreamDestroy(other));
}

static void figures(CUdevice device)
{
	size_t before, total, with, after, device_total;
	CUdeviceptr memory, base;
	size_t size;

	MUST(cuDeviceTotalMem(&device_total, device));
	MUST(cuMemGetInfo(&before, &total));
	CHECK(total == device_total && before <= total, "free %zu, total %zu, device %zu", before, total, device_total);
	MUST(cuMemAlloc(&memory, 256 << 20));
	MUST(cuMemGetInfo(&with, &total));
	CHECK(before - with >= 240u << 20 && before - with <= 300u << 20, "256 MiB took %zu MiB", (before - with) >> 20);
	MUST(cuMemGetAddressRange_v2(&base, &size, memory + 12345));
	CHECK(base == memory && size == 256u << 20, "range of an inner address");
	MUST(cuMemFree(memory));
	MUST(cuCtxSynchronize());
	/* Freed memory comes back when the work before it is done. */
	for (int i = 0; i < 100; i++) {
		MUST(cuMemGetInfo(&after, &total));
		if (after + (2u << 20) >= before)
			break;
		usleep(20000);
	}
	CHECK(after + (2u << 20) >= before, "%zu MiB did not come back", (before - after) >> 20);
	EXPECT(cuMemAlloc(&memory, total + (64u << 20)), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAlloc(&memory, total + (64u << 20)), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuMemAlloc(&memory, 1 << 20), CUDA_SUCCESS);
	EXPECT(cuMemFree(memory), CUDA_SUCCESS);
}

/* What is freed counts as free at once, with work outstanding too: frameworks look after they have emptied their caches. */
static void free_at_once(void)
{
	static CUdeviceptr at[16];
	size_t before, after, total;

	MUST(cuCtxSynchronize());
	MUST(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 16; i++)
		MUST(cuMemAlloc(&at[i], 48u << 20));
	MUST(cuMemGetInfo(&after, &total));
	CHECK(after + (15ull * 48 << 20) <= before, "16 times 48 MiB taken: %zu free, before %zu", after, before);
	for (int i = 0; i < 16; i++) {
		MUST(cuMemsetD8(at[i], i, 48u << 20));
		MUST(cuMemFree(at[i]));
	}
	MUST(cuMemGetInfo(&after, &total));
	CHECK(after + (64u << 20) >= before, "16 times 48 MiB freed: %zu free, before %zu", after, before);
}

static void contexts(CUdevice device, CUcontext primary)
{
	size_t before, total, after;

	MUST(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 10; i++) {
		CUcontext context, popped;
		CUdeviceptr memory;
		unsigned int value = 5;

		MUST(cuCtxCreate_v2(&context, 0, device));
		MUST(cuMemAlloc(&memory, 64 << 20));
		MUST(cuMemcpyHtoD(memory, &value, 4));
		MUST(cuCtxDestroy(context));
		MUST(cuCtxPopCurrent(&popped));
		CHECK(popped == primary, "what was current before is not any more");
		MUST(cuCtxSetCurrent(primary));
		EXPECT(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
	}
	MUST(cuCtxSynchronize());
	for (int i = 0; i < 100; i++) {
		MUST(cuMemGetInfo(&after, &total));
		if (after + (32u << 20) >= before)
			break;
		usleep(20000);
	}
	CHECK(after + (32u << 20) >= before, "ten contexts left %zu MiB behind", (before - after) >> 20);
}

static void resets(CUdevice device)
{
	for (int i = 0; i < 5; i++) {
		CUcontext context;
		CUdeviceptr memory;
		unsigned int value = 0;
		CUfunction function;

		MUST(cuDevicePrimaryCtxRetain(&context, device));
		MUST(cuCtxSetCurrent(context));
		function = prog_function("util", "fill");
		MUST(cuMemAlloc(&memory, 4 << 20));

		unsigned int want = 77 + (unsigned int)i;
		unsigned long long n = 1 << 20;
		void *params[] = { &memory, &want, &n };

		MUST(cuLaunchKernel(function, 16, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
		MUST(cuMemcpyDtoH(&value, memory + (4 << 20) - 4, 4));
		CHECK(value == want, "after %d resets: %u, not %u", i, value, want);
		MUST(cuDevicePrimaryCtxReset(device));
	}
}

int main(void)
{
	CUdevice device;
	CUcontext context = prog_context(&device);
	CUmodule module = prog_module("util");

	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	side_by_side();
	not_too_early();
	figures(device);
	free_at_once();
	contexts(device, context);
	resets(device);
	return prog_end();
}
