// SPDX-License-Identifier: Apache-2.0
/*
 * Threads that load one image, share a library and set the same kernels: every one sees its own module and the common
 * kernels. Meant for SAN=thread as much as for its asserts.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libgleamcuda/program.h"
#include "tests/unit/fake_call.h"

#define THREADS 8
#define ROUNDS	300

static const struct fake_function two[] = {
	{ .name = "first", .param_count = 1, .params = { { 0, 8 } },
	  .attributes = { 1024, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152 } },
	{ .name = "second",
	  .attributes = { 1024, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152 } },
};

static CUlibrary library;
static pthread_barrier_t start;

static void worker_make(void)
{
	fake_reset();
	fake_worker.functions = two;
	fake_worker.function_count = 2;
	/* Kernels' attributes are asked for when they are needed, by several threads at once. */
	fake_worker.without_attributes = true;
}

/* Threads have no cmocka: a failure is counted. */
#define MUST(expression)                                                                                       \
	do {                                                                                                   \
		if ((expression) != CUDA_SUCCESS)                                                              \
			return (void *)1;                                                                      \
	} while (0)

static void *work(void *number)
{
	uintptr_t id = (uintptr_t)number;
	CUstream stream = (CUstream)(uintptr_t)(id & 1 ? 0x2000 : 0x1000);

	worker_make();
	pthread_barrier_wait(&start);
	for (int i = 0; i < ROUNDS; i++) {
		struct call call = fake_call();
		uint64_t value = id << 32 | (unsigned int)i;
		void *params[] = { &value };
		CUmodule module, of_library;
		CUfunction f, g;
		CUkernel k;
		size_t size;
		CUdeviceptr address;
		int blocks;

		call.context = &fake_contexts[id & 1];
		MUST(do_cuModuleLoadData(&call, &module, FAKE_PTX "//threads"));
		MUST(do_cuModuleGetFunction(&call, &f, module, "first"));
		MUST(do_cuLaunchKernel(&call, f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		if (memcmp(fake_worker.launch_params, &value, 8))
			return (void *)2;
		MUST(do_cuLibraryGetKernel(&call, &k, library, id & 2 ? "first" : "second"));
		MUST(do_cuKernelGetFunction(&call, &g, k));
		MUST(do_cuLibraryGetModule(&call, &of_library, library));
		MUST(do_cuFuncSetAttribute(&call, g, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, i * 16));
		MUST(do_cuKernelSetAttribute(&call, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, i * 8, k, 0));
		MUST(do_cuLaunchKernel(&call, (CUfunction)k, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
		MUST(do_cuOccupancyMaxActiveBlocksPerMultiprocessor(&call, &blocks, g, 128, 0));
		MUST(do_cuModuleGetGlobal_v2(&call, &address, &size, module, "counter"));
		MUST(do_cuModuleUnload(&call, module));
	}
	fake_release();
	return NULL;
}

static void test_threads_share_images_and_kernels(void **state)
{
	struct call call;
	pthread_t threads[THREADS];
	void *failed;

	worker_make();
	call = fake_call();
	assert_int_equal(do_cuLibraryLoadData(&call, &library, FAKE_PTX "//shared", NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	pthread_barrier_init(&start, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_SUCCESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads_share_images_and_kernels) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
