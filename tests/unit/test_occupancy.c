// SPDX-License-Identifier: Apache-2.0
/*
 * Occupancy against what a real driver answered, and the questions that are asked once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libgleamcuda/occupancy.h"
#include "libgleamcuda/program.h"
#include "tests/unit/fake_call.h"
#include "tests/unit/occupancy_h200.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct fake_function functions[COUNT(measured_kernels)];
static CUmodule module;

static void load(void)
{
	struct call call = fake_call();

	fake_reset();
	for (size_t i = 0; i < COUNT(measured_kernels); i++) {
		const struct measured_kernel *k = &measured_kernels[i];

		functions[i] = (struct fake_function){ .name = k->name };
		functions[i].attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = k->threads_max;
		functions[i].attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = k->shared_size;
		functions[i].attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = k->registers;
		functions[i].attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = k->dynamic_max;
		functions[i].attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
	}
	fake_worker.functions = functions;
	fake_worker.function_count = COUNT(measured_kernels);
	assert_int_equal(do_cuModuleLoadData(&call, &module, FAKE_PTX), CUDA_SUCCESS);
}

/* The function as it was measured in @pass. */
static CUfunction function(struct call *call, const char *name, int pass)
{
	CUfunction f;
	int shared_size;

	assert_int_equal(do_cuModuleGetFunction(call, &f, module, name), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncGetAttribute(call, &shared_size, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), CUDA_SUCCESS);
	if (pass >= 1)
		assert_int_equal(do_cuFuncSetAttribute(call, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
						       232448 - shared_size),
				 CUDA_SUCCESS);
	if (pass >= 2)
		assert_int_equal(do_cuFuncSetAttribute(call, f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
						       pass == 2 ? 25 : -1),
				 CUDA_SUCCESS);
	if (pass == 3)
		assert_int_equal(do_cuFuncSetCacheConfig(call, f, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	return f;
}

/* The next of a row's values: -1 for E1. */
static bool next_value(const char **at, long *value_out)
{
	int used;

	while (**at == ' ')
		(*at)++;
	if (!**at)
		return false;
	if (**at == 'E') {
		*at += 2;
		*value_out = -1;
		return true;
	}
	if (sscanf(*at, "%ld%n", value_out, &used) != 1)
		return false;
	*at += used;
	return true;
}

static void test_blocks_are_the_drivers(void **state)
{
	static const size_t dynamic_sizes[] = { 0, 1, 1000, 1024, 10000, 16384, 20000, 32768, 49151, 49152, 49153, 65536,
						100000, 180000, 232448, 232449, 1ul << 31 };
	struct call call = fake_call();
	size_t seen = 0;

	load();
	for (size_t i = 0; i < COUNT(measured_blocks); i++) {
		const struct measured_row *row = &measured_blocks[i];
		CUfunction f = function(&call, row->kernel, row->pass);
		const char *at = row->values;
		long want;

		for (size_t k = 0; next_value(&at, &want); k++, seen++) {
			int blocks = -1;
			CUresult result = do_cuOccupancyMaxActiveBlocksPerMultiprocessor(&call, &blocks, f, row->threads,
											 dynamic_sizes[k]);

			assert_int_equal(result, want < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
			assert_int_equal(blocks, want);
		}
	}
	assert_int_equal(seen, COUNT(measured_blocks) * COUNT(dynamic_sizes));
	assert_true(fake_worker.trips <= 1); /* the load, unless it is remembered */
}

static void test_available_memory_is_the_drivers(void **state)
{
	struct call call = fake_call();

	load();
	for (size_t i = 0; i < COUNT(measured_available); i++) {
		const struct measured_row *row = &measured_available[i];
		CUfunction f = function(&call, row->kernel, row->pass);
		const char *at = row->values;
		long want;

		for (int blocks = -1; next_value(&at, &want); blocks += blocks < 5 ? 1 : 4) {
			size_t size = 77;
			CUresult result = do_cuOccupancyAvailableDynamicSMemPerBlock(&call, &size, f, blocks, row->threads);

			assert_int_equal(result, want < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
			assert_int_equal(size, want < 0 ? 77 : want);
		}
	}
	assert_true(fake_worker.trips <= 1);
}

static CUfunction in_callback_function;

/* Calls CUDA from within the call (P-025): no lock of ours may be held. */
static size_t sixteen_a_thread(int threads)
{
	struct call call = fake_call();
	int value;

	assert_int_equal(do_cuFuncGetAttribute(&call, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, in_callback_function),
			 CUDA_SUCCESS);
	return 16 * (size_t)threads;
}

static size_t two_hundred_a_thread(int threads)
{
	return 200 * (size_t)threads;
}

static void test_block_sizes_are_the_drivers(void **state)
{
	static const struct {
		CUoccupancyB2DSize callback;
		size_t dynamic_size;
	} questions[5] = { { NULL, 0 }, { sixteen_a_thread, 0 }, { two_hundred_a_thread, 0 }, { NULL, 20000 }, { NULL, 60000 } };
	struct call call = fake_call();

	load();
	for (size_t i = 0; i < COUNT(measured_potential); i++) {
		const struct measured_potential *row = &measured_potential[i];
		CUfunction f = function(&call, row->kernel, row->pass);

		in_callback_function = f;
		for (size_t k = 0; k < 5; k++) {
			int grid = -7, block = -7;

			assert_int_equal(do_cuOccupancyMaxPotentialBlockSize(&call, &grid, &block, f, questions[k].callback,
									     questions[k].dynamic_size, row->limit),
					 CUDA_SUCCESS);
			assert_int_equal(grid, row->answers[k][0]);
			assert_int_equal(block, row->answers[k][1]);
		}
	}
}

static void test_register_limits_are_the_drivers(void **state)
{
	load();
	for (size_t i = 0; i < COUNT(measured_kernels); i++)
		assert_int_equal(occupancy_threads_by_registers(device_at(0)->raw->attributes,
								measured_kernels[i].registers),
				 measured_kernels[i].threads_max);
}

static void test_wrong_arguments(void **state)
{
	struct call call = fake_call();
	CUfunction f;
	int n, m;
	size_t size;

	load();
	f = function(&call, "rg40", 0);
	assert_int_equal(do_cuOccupancyMaxActiveBlocksPerMultiprocessor(&call, NULL, f, 32, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxActiveBlocksPerMultiprocessor(&call, &n, NULL, 32, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&call, &n, f, 32, 0, 1), CUDA_SUCCESS);
	assert_int_equal(do_cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&call, &n, f, 32, 0, 2),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxPotentialBlockSize(&call, NULL, &m, f, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxPotentialBlockSize(&call, &n, &m, NULL, NULL, 0, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuOccupancyMaxPotentialBlockSize(&call, &n, &m, f, NULL, 0, -1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxPotentialBlockSizeWithFlags(&call, &n, &m, f, NULL, 0, 0, 5),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyAvailableDynamicSMemPerBlock(&call, &size, NULL, 1, 32), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuOccupancyAvailableDynamicSMemPerBlock(&call, NULL, f, 1, 32), CUDA_ERROR_INVALID_VALUE);
}

static void test_cluster_questions_are_asked_once(void **state)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 1, 1 } };
	CUlaunchConfig config = { .gridDimX = 4, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				  .blockDimZ = 1, .attrs = &attribute, .numAttrs = 1 };
	struct call call = fake_call();
	CUfunction f;
	int n = 0;

	load();
	f = function(&call, "rg40", 0);
	fake_worker.cluster_answer = 528;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, &n, f, &config), CUDA_SUCCESS);
		assert_int_equal(n, 528);
	}
	assert_int_equal(fake_worker.counts[OP_cuOccupancyMaxActiveClusters], 1);
	/* Another configuration and a changed function are other questions. */
	config.sharedMemBytes = 1024;
	assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, &n, f, &config), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetAttribute(&call, f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
			 CUDA_SUCCESS);
	assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, &n, f, &config), CUDA_SUCCESS);
	assert_int_equal(fake_worker.counts[OP_cuOccupancyMaxActiveClusters], 3);
	assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, &n, f, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, &n, NULL, &config), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuOccupancyMaxActiveClusters(&call, NULL, f, &config), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_are_the_drivers),
		cmocka_unit_test(test_available_memory_is_the_drivers),
		cmocka_unit_test(test_block_sizes_are_the_drivers),
		cmocka_unit_test(test_register_limits_are_the_drivers),
		cmocka_unit_test(test_wrong_arguments),
		cmocka_unit_test(test_cluster_questions_are_asked_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
