// SPDX-License-Identifier: Apache-2.0
/*
 * Cases from the field about memory: virtual memory in pieces, mapped elsewhere with the same bytes, and pools (P-010); free memory
 * and what an allocation gets tell one story, also with another program (P-011); registered host memory of every kind (P-021).
 * Scaled down; GLEAM_LONG=1: at full length. P-011 with "story MIB" alone, where MIB is what the other program holds: with a
 * software GPU whose processes share one ledger. "pinned MIB": that much page-locked memory (P-032).
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/cuda/prog.h"

#define MIB ((size_t)1 << 20)

static bool at_length;
static CUfunction fill;

static void fill_on(CUstream stream, CUdeviceptr out, uint32_t value, unsigned long long n)
{
	void *params[] = { &out, &value, &n };

	MUST(cuLaunchKernel(fill, 4, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static uint32_t first_word(CUdeviceptr at)
{
	uint32_t word = 0;

	MUST(cuMemcpyDtoH(&word, at, 4));
	return word;
}

/* ---- P-010 ---- */

static void pieces(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { .location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	uint32_t count = at_length ? 256 : 32, wrong = 0;
	CUmemGenericAllocationHandle *handles = calloc(count, sizeof(*handles));
	CUdeviceptr at, elsewhere;
	size_t size = 0;

	MUST(cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	CHECK(size == 2 * MIB, "granularity %zu", size);
	MUST(cuMemAddressReserve(&at, 8192 * MIB, 0, 0, 0));
	for (uint32_t i = 0; i < count; i++) {
		MUST(cuMemCreate(&handles[i], size, &prop, 0));
		MUST(cuMemMap(at + i * size, size, 0, handles[i], 0));
		MUST(cuMemSetAccess(at + i * size, size, &access, 1));
		fill_on(NULL, at + i * size, 1000 + i, size / 4);
	}
	for (uint32_t i = 0; i < count; i++)
		wrong += first_word(at + i * size) != 1000 + i || first_word(at + (i + 1) * size - 4) != 1000 + i;
	CHECK(!wrong, "%u pieces of %u", wrong, count);
	for (uint32_t i = 1; i < count; i += 2)
		MUST(cuMemUnmap(at + i * size, size));
	/* Gaps may be unmapped again, and mappings not in part. */
	EXPECT(cuMemUnmap(at + size, size), CUDA_SUCCESS);
	EXPECT(cuMemUnmap(at + size + 4096, size / 2), CUDA_SUCCESS);
	EXPECT(cuMemUnmap(at + 2 * size, size / 2), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemUnmap(at + size, size + size / 2), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemUnmap(at + size, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemUnmap(at + 8192 * MIB, size), CUDA_ERROR_INVALID_VALUE);
	CHECK(first_word(at + 2 * size) == 1002, "what was not unmapped begins with %u", first_word(at + 2 * size));
	/* The same bytes at another place, and back in a gap. */
	MUST(cuMemAddressReserve(&elsewhere, 2 * size, 0, 0, 0));
	MUST(cuMemMap(elsewhere, size, 0, handles[1], 0));
	MUST(cuMemSetAccess(elsewhere, size, &access, 1));
	CHECK(first_word(elsewhere) == 1001, "mapped elsewhere it begins with %u", first_word(elsewhere));
	MUST(cuMemMap(at + 3 * size, size, 0, handles[1], 0));
	MUST(cuMemSetAccess(at + 3 * size, size, &access, 1));
	fill_on(NULL, at + 3 * size, 5, 1);
	CHECK(first_word(elsewhere) == 5, "two mappings of one piece: %u", first_word(elsewhere));
	MUST(cuMemUnmap(at + 3 * size, size));
	MUST(cuMemUnmap(elsewhere, size));
	MUST(cuMemAddressFree(elsewhere, 2 * size));
	wrong = 0;
	for (uint32_t i = 0; i < count; i += 2) {
		wrong += first_word(at + i * size) != 1000 + i;
		MUST(cuMemUnmap(at + i * size, size));
	}
	CHECK(!wrong, "%u of those that stayed", wrong);
	for (uint32_t i = 0; i < count; i++)
		MUST(cuMemRelease(handles[i]));
	MUST(cuMemAddressFree(at, 8192 * MIB));
	free(handles);
}

static void pools(void)
{
	enum { LIVE = 24 };
	int turns = at_length ? 5000 : 400, wrong = 0;
	CUdeviceptr live[LIVE] = { 0 };
	uint32_t mark[LIVE] = { 0 };
	uint64_t used = 99, reserved = 99;
	uint32_t seed = 7;
	CUstream streams[3];
	CUmemoryPool pool;

	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	for (int i = 0; i < 3; i++)
		MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < turns; i++) {
		int at = (int)(prog_random(&seed) % LIVE);
		CUstream stream = streams[at % 3];

		if (live[at]) {
			uint32_t got = 0;

			MUST(cuMemcpyDtoHAsync(&got, live[at], 4, stream));
			MUST(cuStreamSynchronize(stream));
			wrong += got != mark[at];
			MUST(cuMemFreeAsync(live[at], stream));
			live[at] = 0;
			continue;
		}
		size_t size = 1024u << prog_random(&seed) % 14; /* up to 8 MiB */

		MUST(cuMemAllocAsync(&live[at], size, stream));
		mark[at] = (uint32_t)i;
		fill_on(stream, live[at], mark[at], size / 4);
	}
	for (int at = 0; at < LIVE; at++)
		if (live[at])
			MUST(cuMemFreeAsync(live[at], streams[at % 3]));
	CHECK(!wrong, "%d allocations had another's bytes", wrong);
	MUST(cuCtxSynchronize());
	MUST(cuMemPoolTrimTo(pool, 0));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	CHECK(used == 0 && reserved == 0, "after all was freed and trimmed %llu bytes are used, %llu reserved",
	      (unsigned long long)used, (unsigned long long)reserved);
	for (int i = 0; i < 3; i++)
		MUST(cuStreamDestroy(streams[i]));
}

/* ---- P-011 ---- */

static size_t free_bytes(void)
{
	size_t available = 0, total = 0, device_total = 0;

	MUST(cuMemGetInfo(&available, &total));
	MUST(cuDeviceTotalMem(&device_total, 0));
	CHECK(available <= total && total == device_total, "%zu of %zu free, the device has %zu", available, total, device_total);
	return available;
}

/* All that a device gives in @step pieces; its sum. */
static size_t fill_up(size_t step)
{
	static CUdeviceptr got[4096];
	size_t count = 0;
	CUresult result = CUDA_SUCCESS;

	while (count < 4096 && (result = cuMemAlloc(&got[count], step)) == CUDA_SUCCESS)
		count++;
	CHECK(result == CUDA_ERROR_OUT_OF_MEMORY, "the end of memory is %d", (int)result);
	EXPECT(cuMemAlloc(&got[4095], step), CUDA_ERROR_OUT_OF_MEMORY);
	for (size_t i = 0; i < count; i++)
		MUST(cuMemFree(got[i]));
	return count * step;
}

/* The other program: holds memory, and lets go of it when it is told. */
static void neighbour(int in, int out, size_t mib)
{
	CUdeviceptr held;
	char byte = 1;

	prog_context(NULL);
	MUST(cuMemAlloc(&held, mib * MIB));
	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		_exit(1);
	MUST(cuMemFree(held));
	MUST(cuCtxSynchronize());
	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		_exit(1);
	_exit(0);
}

static void one_story(int in, int out, size_t mib)
{
	size_t with, without, sum_of_all;
	char byte = 1;

	if (read(in, &byte, 1) != 1) {
		CHECK(false, "the other program has ended");
		return;
	}
	with = free_bytes();
	/* A device of many GiB would take its time. */
	if (with <= 16384 * MIB) {
		sum_of_all = fill_up(64 * MIB);
		CHECK(sum_of_all <= with && sum_of_all + with / 20 + 64 * MIB >= with, "%zu MiB were free, %zu were given", with / MIB,
		      sum_of_all / MIB);
		sum_of_all = fill_up(64 * MIB);
		CHECK(sum_of_all <= with && sum_of_all + with / 20 + 64 * MIB >= with, "again %zu MiB of %zu were given",
		      sum_of_all / MIB, with / MIB);
	}
	if (write(out, &byte, 1) != 1 || read(in, &byte, 1) != 1)
		CHECK(false, "the other program has ended");
	/* Its memory goes back a moment later. */
	for (int i = 0; i < 100; i++) {
		without = free_bytes();
		if (without >= with + mib * MIB / 2)
			break;
		usleep(50000);
	}
	CHECK(without >= with + mib * MIB / 2, "%zu MiB were free beside %zu of another program, %zu are without it", with / MIB,
	      mib, without / MIB);
	if (write(out, &byte, 1) != 1)
		CHECK(false, "the other program has ended");
}

/* ---- P-021 ---- */

/* What the driver says for wrong ones is asked of it where it is the real one. */
static void registers(void)
{
	size_t size = 4 * MIB;
	uint8_t *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *again;
	char path[] = "/tmp/gleam-register-XXXXXX";
	int fd = mkstemp(path);
	unsigned int flags = 99;
	CUdeviceptr device;
	CUresult result;

	MUST(cuMemAlloc(&device, size));
	memset(memory, 1, size);
	EXPECT(cuMemHostRegister(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemHostRegister(NULL, 4096, 0), CUDA_ERROR_INVALID_VALUE);
	/* Odd places and sizes. */
	MUST(cuMemHostRegister(memory + 123, 10001, CU_MEMHOSTREGISTER_PORTABLE));
	result = cuMemHostGetFlags(&flags, memory + 123);
	CHECK(result == CUDA_ERROR_INVALID_VALUE || flags & CU_MEMHOSTALLOC_PORTABLE, "its flags: %d, %#x", (int)result, flags);
	memset(memory + 123, 7, 10001);
	MUST(cuMemcpyHtoD(device, memory + 123, 10001));
	memset(memory + 123, 0, 10001);
	MUST(cuMemcpyDtoH(memory + 123, device, 10001));
	CHECK(memory[122] == 1 && memory[123] == 7 && memory[10123] == 7 && memory[10124] == 1, "odd bytes");
	EXPECT(cuMemHostRegister(memory + 123, 10001, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	EXPECT(cuMemHostRegister(memory, 65536, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	result = cuMemHostUnregister(memory + 200);
	CHECK(result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED || result == CUDA_ERROR_INVALID_VALUE, "an inner pointer gave %d",
	      (int)result);
	EXPECT(cuMemHostUnregister(memory + 123), CUDA_SUCCESS);
	result = cuMemHostUnregister(memory + 123);
	CHECK(result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED || result == CUDA_ERROR_INVALID_VALUE, "twice gave %d", (int)result);
	/* A file that can only be read, as weights are mapped: registered for reading, or refused. */
	if (fd >= 0 && write(fd, memory, 65536) == 65536) {
		uint8_t *weights = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
		uint8_t back = 0;

		result = cuMemHostRegister(weights, 65536, CU_MEMHOSTREGISTER_READ_ONLY);
		if (result == CUDA_SUCCESS) {
			MUST(cuMemcpyHtoD(device, weights, 65536));
			MUST(cuMemcpyDtoH(&back, device + 200, 1));
			CHECK(back == weights[200], "weights: %u", back);
			MUST(cuMemHostUnregister(weights));
		} else {
			printf("a file that can only be read: %s\n", prog_error(result));
		}
		munmap(weights, 65536);
	}
	if (fd >= 0) {
		close(fd);
		unlink(path);
	}
	/* Gone without a word, and something else at its place. */
	MUST(cuMemHostRegister(memory, size, 0));
	munmap(memory, size);
	again = mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == memory, "the place is taken");
	result = cuMemHostUnregister(memory);
	CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "unmapped memory: %d", (int)result);
	MUST(cuMemHostRegister(again, size, 0));
	memset(again, 9, size);
	MUST(cuMemcpyHtoD(device, again, size));
	CHECK((first_word(device + size - 4) & 0xff) == 9, "new memory at an old place");
	MUST(cuMemHostUnregister(again));
	munmap(again, size);
	/* Device memory isn't the host's to register. */
	if (prog_on_gleam())
		CHECK(cuMemHostRegister((void *)(uintptr_t)device, 4096, 0) != CUDA_SUCCESS, "device memory was registered");
	MUST(cuMemFree(device));
}

/* Much page-locked memory: whatever this machine lets us lock (P-032). */
static void pinned(size_t size)
{
	uint32_t *host = NULL, wrong = 0;
	CUdeviceptr device;

	MUST(cuMemHostAlloc((void **)&host, size, CU_MEMHOSTALLOC_PORTABLE));
	MUST(cuMemAlloc(&device, size));
	for (size_t i = 0; i < size / 4; i += 1024)
		host[i] = (uint32_t)i;
	MUST(cuMemcpyHtoDAsync(device, host, size, NULL));
	MUST(cuCtxSynchronize());
	for (size_t i = 0; i < size / 4; i += 1024)
		host[i] = 0;
	MUST(cuMemcpyDtoHAsync(host, device, size, NULL));
	MUST(cuCtxSynchronize());
	for (size_t i = 0; i < size / 4; i += 1024)
		wrong += host[i] != (uint32_t)i;
	CHECK(!wrong, "%u pages of page-locked memory", wrong);
	MUST(cuMemFreeHost(host));
	MUST(cuMemFree(device));
}

/* Two programs, the other one begun before this one knows of CUDA. */
static int story(size_t mib)
{
	int there[2], back[2];
	int status = 0;
	pid_t pid;

	if (pipe(there) || pipe(back))
		return 1;
	pid = fork();
	if (!pid)
		neighbour(there[0], back[1], mib);
	close(there[0]);
	close(back[1]);
	prog_context(NULL);
	one_story(back[0], there[1], mib);
	waitpid(pid, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the other program ended with %#x", status);
	return prog_end();
}

int main(int argc, char **argv)
{
	const char *wish = getenv("GLEAM_LONG");
	CUmodule module;

	at_length = wish && strcmp(wish, "1") == 0;
	if (argc == 3 && strcmp(argv[1], "pinned") == 0) {
		prog_context(NULL);
		pinned((size_t)atoi(argv[2]) * MIB);
		return prog_end();
	}
	if (argc == 3)
		return story((size_t)atoi(argv[2]));
	prog_context(NULL);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	pieces();
	pools();
	registers();
	return prog_end();
}
