// SPDX-License-Identifier: Apache-2.0
/*
 * Stream-ordered allocation, and the ledger that several processes keep together.
 */
#include "tests/unit/soft_driver.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static char ledger_path[] = "/tmp/test_soft_pool.XXXXXX";

static size_t memory_free(void)
{
	size_t unused, total;

	assert_ok(CU(cuMemGetInfo_v2)(&unused, &total));
	return unused;
}

static uint64_t pool_ask(CUmemoryPool pool, int attribute)
{
	uint64_t value = 0;

	assert_ok(CU(cuMemPoolGetAttribute)(pool, attribute, &value));
	return value;
}

static void test_blocks_are_reused_in_stream_order(void **state)
{
	CUdeviceptr first, second, third;
	CUstream stream, other;
	CUmemoryPool pool, same;
	uint32_t *flag;
	uint64_t keep = UINT64_MAX;

	driver_start(0);
	assert_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
	assert_ok(CU(cuDeviceGetMemPool)(&same, 0));
	assert_ptr_equal(pool, same);
	assert_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING));
	assert_ok(CU(cuMemHostAlloc)((void **)&flag, 64, 0));
	*flag = 0;
	assert_ok(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	assert_ok(CU(cuMemAllocAsync)(&first, 5 * MIB, stream));
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 5 * MIB);
	assert_ok(CU(cuStreamWaitValue32_v2)(stream, (CUdeviceptr)(uintptr_t)flag, 1, 0));
	assert_ok(CU(cuMemsetD8Async)(first, 1, 5 * MIB, stream));
	assert_ok(CU(cuMemFreeAsync)(first, stream));
	assert_int_equal(CU(cuMemFreeAsync)(first, stream), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuMemFree_v2)(first + 512), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 5 * MIB);
	/* Another stream can't have it yet, this one can. */
	assert_ok(CU(cuMemAllocAsync)(&second, 5 * MIB, other));
	assert_int_not_equal(second, first);
	assert_ok(CU(cuMemAllocAsync)(&third, 5 * MIB, stream));
	assert_int_equal(third, first);
	assert_ok(CU(cuMemFreeAsync)(third, stream));
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_ok(CU(cuMemAllocAsync)(&third, 5 * MIB, other));
	assert_int_equal(third, first);
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 10 * MIB);
	assert_ok(CU(cuMemFree_v2)(third)); /* the synchronous call does as well */
	assert_int_equal(CU(cuMemFree_v2)(third), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemFreeAsync)(second, other));
	assert_ok(CU(cuStreamSynchronize)(other));
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 5 * MIB);
	assert_ok(CU(cuMemPoolTrimTo)(pool, 0));
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	/* Nothing is kept beyond the threshold when a stream has been waited for. */
	keep = 0;
	assert_ok(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	assert_ok(CU(cuMemAllocAsync)(&first, 5 * MIB, stream));
	assert_ok(CU(cuMemFreeAsync)(first, stream));
	assert_ok(CU(cuStreamSynchronize)(stream));
	assert_int_equal(pool_ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
	assert_ok(CU(cuStreamDestroy_v2)(stream));
	assert_ok(CU(cuStreamDestroy_v2)(other));
	assert_ok(CU(cuMemFreeHost)(flag));
}

static void test_own_pools(void **state)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
				 .maxSize = 8 * MIB };
	CUdeviceptr first, second;
	CUmemoryPool pool, builtin;
	uint64_t owner;

	driver_start(0);
	assert_ok(CU(cuMemPoolCreate)(&pool, &props));
	assert_ok(CU(cuMemAllocFromPoolAsync)(&first, 6 * MIB, pool, NULL));
	assert_ok(CU(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first));
	assert_int_equal(owner, (uintptr_t)pool);
	assert_int_equal(CU(cuMemAllocFromPoolAsync)(&second, 6 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_ok(CU(cuMemFreeAsync)(first, NULL));
	assert_ok(CU(cuCtxSynchronize)());
	/* Kept memory of another size gives way. */
	assert_ok(CU(cuMemAllocFromPoolAsync)(&second, 7 * MIB, pool, NULL));
	assert_ok(CU(cuMemPoolDestroy)(pool));
	assert_ok(CU(cuMemFreeAsync)(second, NULL)); /* outlives its pool */
	assert_int_equal(CU(cuMemAllocFromPoolAsync)(&second, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuDeviceGetDefaultMemPool)(&builtin, 0));
	assert_int_equal(CU(cuMemPoolDestroy)(builtin), CUDA_ERROR_NOT_PERMITTED);
	props.handleTypes = 1;
	assert_int_equal(CU(cuMemPoolCreate)(&pool, &props), CUDA_ERROR_NOT_SUPPORTED);
}

/* Takes 100 MiB, says so, and waits to be told or killed. */
static int neighbour(int answer, int order)
{
	CUdeviceptr memory;
	char byte = 1;

	driver_start(0);
	assert_ok(CU(cuMemAlloc_v2)(&memory, 100 * MIB));
	if (write(answer, &byte, 1) != 1)
		return 1;
	return read(order, &byte, 1) < 0;
}

static void test_neighbours_share_the_ledger(void **state)
{
	CUdeviceptr memory;
	int answer, order, status;
	size_t before;
	char byte;
	pid_t child;

	driver_start(0);
	before = memory_free();
	for (int killed = 0; killed < 2; killed++) {
		child = driver_neighbour(&answer, &order);
		assert_int_equal(read(answer, &byte, 1), 1);
		assert_int_equal(before - memory_free(), 100 * MIB);
		assert_int_equal(CU(cuMemAlloc_v2)(&memory, 200 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
		if (killed)
			kill(child, SIGKILL);
		close(order);
		assert_int_equal(waitpid(child, &status, 0), child);
		close(answer);
		/* Gone, however it went. */
		assert_int_equal(memory_free(), before);
		assert_ok(CU(cuMemAlloc_v2)(&memory, 200 * MIB));
		assert_ok(CU(cuMemFree_v2)(memory));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_are_reused_in_stream_order),
		cmocka_unit_test(test_own_pools),
		cmocka_unit_test(test_neighbours_share_the_ledger),
	};
	int fd, failed;

	if (argc == 4 && strcmp(argv[1], "neighbour") == 0)
		return neighbour(atoi(argv[2]), atoi(argv[3]));
	fd = mkstemp(ledger_path);
	if (fd < 0)
		return 1;
	close(fd);
	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	setenv("GLEAM_SOFTGPU_LEDGER", ledger_path, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(ledger_path);
	return failed;
}
