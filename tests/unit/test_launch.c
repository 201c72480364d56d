// SPDX-License-Identifier: Apache-2.0
/*
 * Launches: what reaches the wire, and which code comes back at once for what the driver refuses at once. The codes are
 * those that driver 580.159 gave on an H200 to the same calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "libgleamcuda/launch.h"
#include "libgleamcuda/program.h"
#include "tests/unit/fake_call.h"

#define DYNAMIC(n) [CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = (n), [CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1

static const struct fake_function functions[] = {
	{ .name = "none", .attributes = { 1024, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(49152) } },
	/* int *p, char c, double d: bytes 9..15 belong to nobody */
	{ .name = "three", .param_count = 3, .params = { { 0, 8 }, { 8, 1 }, { 16, 8 } },
	  .attributes = { 1024, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(49152) } },
	{ .name = "large", .param_count = 2, .params = { { 0, 4000 }, { 4000, 8 } },
	  .attributes = { 1024, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(49152) } },
	{ .name = "bounded", .attributes = { 256, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(49152) } },
	{ .name = "rg255", .attributes = { 256, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 255, DYNAMIC(49152) } },
	{ .name = "sm49152", .attributes = { 1024, 49152, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(0) } },
	{ .name = "clustered", .attributes = { 64, [CU_FUNC_ATTRIBUTE_NUM_REGS] = 8, DYNAMIC(49152),
					       [CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = 1, 2, 1, 1 } },
};

static CUmodule module;
static CUfunction none, three, large, bounded, rg255, sm49152, clustered;
static int *p = (int *)0x200000001000;
static char c = 7;
static double d = 2.5;
static void *three_params[] = { &p, &c, &d };

static CUfunction get(const char *name)
{
	struct call call = fake_call();
	CUfunction f = NULL;

	assert_int_equal(do_cuModuleGetFunction(&call, &f, module, name), CUDA_SUCCESS);
	return f;
}

static int setup(void **state)
{
	struct call call = fake_call();

	fake_reset();
	fake_worker.functions = functions;
	fake_worker.function_count = sizeof(functions) / sizeof(functions[0]);
	assert_int_equal(do_cuModuleLoadData(&call, &module, FAKE_PTX "//launch"), CUDA_SUCCESS);
	none = get("none");
	three = get("three");
	large = get("large");
	bounded = get("bounded");
	rg255 = get("rg255");
	sm49152 = get("sm49152");
	clustered = get("clustered");
	fake_worker.trips = 0;
	return 0;
}

static int teardown(void **state)
{
	struct call call = fake_call();

	/* No launch asks, whatever it was. */
	assert_int_equal(fake_worker.trips, 0);
	fake_check_balance();
	return (int)do_cuModuleUnload(&call, module);
}

static CUresult launch(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
		       unsigned int bz, unsigned int shared, void **params, void **extra)
{
	struct call call = fake_call();

	return do_cuLaunchKernel(&call, f, gx, gy, gz, bx, by, bz, shared, NULL, params, extra);
}

/* ---- the frame ---- */

static void test_parameters_are_packed_by_the_layout(void **state)
{
	uint8_t want[24] = { 0 };

	memcpy(want, &p, 8);
	memcpy(want + 8, &c, 1);
	memcpy(want + 16, &d, 8);
	memset(fake_worker.launch_params, 0xee, sizeof(fake_worker.launch_params));
	assert_int_equal(launch(three, 1, 2, 3, 4, 5, 6, 77, three_params, NULL), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.function, (uintptr_t)three);
	assert_int_equal(fake_worker.launch.stream, WIRE_STREAM_LEGACY);
	assert_int_equal(fake_worker.launch.grid_x, 1);
	assert_int_equal(fake_worker.launch.grid_y, 2);
	assert_int_equal(fake_worker.launch.grid_z, 3);
	assert_int_equal(fake_worker.launch.block_x, 4);
	assert_int_equal(fake_worker.launch.block_y, 5);
	assert_int_equal(fake_worker.launch.block_z, 6);
	assert_int_equal(fake_worker.launch.shared_size, 77);
	assert_int_equal(fake_worker.launch.attrs_size, 0);
	assert_int_equal(fake_worker.launch.params_size, 24);
	assert_memory_equal(fake_worker.launch_params, want, 24);
	assert_int_equal(fake_worker.noted_seq, fake_worker.last_seq);
	assert_int_equal(fake_worker.noted_stream, WIRE_STREAM_LEGACY);
}

static void test_large_parameters(void **state)
{
	uint8_t block[4000];
	void *params[] = { block, &p };

	for (size_t i = 0; i < sizeof(block); i++)
		block[i] = (uint8_t)(i * 7);
	assert_int_equal(launch(large, 1, 1, 1, 1, 1, 1, 0, params, NULL), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.params_size, 4008);
	assert_memory_equal(fake_worker.launch_params, block, 4000);
	assert_memory_equal(fake_worker.launch_params + 4000, &p, 8);
}

static void test_packed_blocks_go_as_they_are(void **state)
{
	uint8_t block[64];
	static uint8_t big[40000];
	size_t size = 24;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };
	void *reversed[] = { CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_END };
	void *no_size[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_END };
	void *unknown[] = { (void *)7, block, CU_LAUNCH_PARAM_END };
	void *end[] = { CU_LAUNCH_PARAM_END };
	void *no_block[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, NULL, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END };

	memset(block, 0x5a, sizeof(block));
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.params_size, 24);
	assert_memory_equal(fake_worker.launch_params, block, 24);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, reversed), CUDA_SUCCESS);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, three_params, extra), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, no_size), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, unknown), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, end), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(none, 1, 1, 1, 1, 1, 1, 0, NULL, end), CUDA_SUCCESS);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, no_block), CUDA_ERROR_INVALID_VALUE);
	size = 16;
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.params_size, 16);
	size = 0;
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_ERROR_INVALID_VALUE);
	size = 32;
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(launch(none, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	extra[1] = big;
	size = SIZE_MAX;
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	size = (1ull << 32) + 24;
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

static void test_missing_parameters(void **state)
{
	void *nulls[] = { NULL, NULL, NULL };

	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(three, 1, 1, 1, 1, 1, 1, 0, nulls, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.params_size, 0);
	assert_int_equal(launch(none, 1, 1, 1, 1, 1, 1, 0, three_params, NULL), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.params_size, 0);
}

/* ---- limits ---- */

static void test_dimensions(void **state)
{
	static const struct {
		unsigned int g[3], b[3];
		CUresult want;
	} cases[] = {
		{ { 0, 1, 1 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 0, 1 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 0 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 0, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1, 0, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1, 1, 0 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1024, 1, 1 }, CUDA_SUCCESS },
		{ { 1, 1, 1 }, { 1025, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1, 1025, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1, 1, 64 }, CUDA_SUCCESS },
		{ { 1, 1, 1 }, { 1, 1, 65 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1024, 2, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 1 }, { 1024, 1024, 64 }, CUDA_ERROR_INVALID_VALUE },
		{ { 0x7fffffff, 1, 1 }, { 1, 1, 1 }, CUDA_SUCCESS },
		{ { 0x80000000, 1, 1 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 65535, 65535 }, { 1, 1, 1 }, CUDA_SUCCESS },
		{ { 1, 65536, 1 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 1, 1, 65536 }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
		{ { 0xffffffff, 0xffffffff, 0xffffffff }, { 1, 1, 1 }, CUDA_ERROR_INVALID_VALUE },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(launch(none, cases[i].g[0], cases[i].g[1], cases[i].g[2], cases[i].b[0], cases[i].b[1],
					cases[i].b[2], 0, NULL, NULL),
				 cases[i].want);
}

static void test_threads_of_the_function(void **state)
{
	assert_int_equal(launch(bounded, 1, 1, 1, 256, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	/* Its own bound is a wrong value; too few registers are a lack of resources. */
	assert_int_equal(launch(bounded, 1, 1, 1, 257, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(rg255, 1, 1, 1, 256, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(launch(rg255, 1, 1, 1, 257, 1, 1, 0, NULL, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	assert_int_equal(launch(rg255, 1, 1, 1, 512, 1, 1, 0, NULL, NULL), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

static void test_shared_memory(void **state)
{
	struct call call = fake_call();

	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 49152, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 49153, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 0xffffffff, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(sm49152, 1, 1, 1, 32, 1, 1, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch(sm49152, 1, 1, 1, 32, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetAttribute(&call, none, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
			 CUDA_SUCCESS);
	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 100000, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 100001, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncSetAttribute(&call, none, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000),
			 CUDA_SUCCESS);
	assert_int_equal(launch(none, 1, 1, 1, 32, 1, 1, 2000, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* ---- handles and contexts ---- */

static void test_handles(void **state)
{
	struct call call = fake_call();
	CUmodule other;
	CUfunction stale;

	assert_int_equal(launch(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	for (uintptr_t garbage = 1; garbage < 3; garbage++)
		assert_int_equal(launch((CUfunction)garbage, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(launch((CUfunction)-1, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(launch((CUfunction)module, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(launch((CUfunction)((uintptr_t)none + 8), 1, 1, 1, 1, 1, 1, 0, NULL, NULL),
			 CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuModuleLoadData(&call, &other, FAKE_PTX "//launch"), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleGetFunction(&call, &stale, other, "none"), CUDA_SUCCESS);
	assert_int_equal(do_cuModuleUnload(&call, other), CUDA_SUCCESS);
	assert_int_equal(launch(stale, 1, 1, 1, 1, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuFuncSetCacheConfig(&call, stale, CU_FUNC_CACHE_PREFER_L1), CUDA_ERROR_INVALID_HANDLE);
}

static CUresult on_stream(CUfunction f, uint32_t current, uintptr_t stream)
{
	struct call call = fake_call();

	call.context = &fake_contexts[current];
	return do_cuLaunchKernel(&call, f, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, NULL, NULL);
}

static void test_function_and_stream_are_of_one_context(void **state)
{
	struct call call = fake_call();
	CUlibrary library;
	CUkernel kernel;

	/* none is of context 0, as stream 0x1000 is; 0x2000 is of context 1. */
	assert_int_equal(on_stream(none, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(on_stream(none, 1, 0x1000), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch_hdr.ctx, 0);
	assert_int_equal(on_stream(none, 1, 0x2000), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(on_stream(none, 0, 0x2000), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(on_stream(none, 0, 0x3000), CUDA_ERROR_INVALID_HANDLE);
	/* A kernel has a function in either. */
	assert_int_equal(do_cuLibraryLoadData(&call, &library, FAKE_PTX "//launch", NULL, NULL, 0, NULL, NULL, 0),
			 CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &kernel, library, "none"), CUDA_SUCCESS);
	assert_int_equal(on_stream((CUfunction)kernel, 1, 0x1000), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.function, (uintptr_t)kernel);
	assert_int_equal(fake_worker.launch_hdr.ctx, 0);
	assert_int_equal(on_stream((CUfunction)kernel, 1, 0x2000), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch_hdr.ctx, 1);
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_SUCCESS);
	assert_int_equal(on_stream((CUfunction)kernel, 0, 0), CUDA_ERROR_INVALID_HANDLE);
}

/* ---- launch attributes ---- */

static CUresult launch_ex(CUfunction f, unsigned int grid, const CUlaunchAttribute *attrs, unsigned int count)
{
	struct call call = fake_call();
	CUlaunchConfig config = { .gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
				  .blockDimZ = 1, .attrs = (CUlaunchAttribute *)(uintptr_t)attrs, .numAttrs = count };

	return do_cuLaunchKernelEx(&call, &config, f, NULL, NULL);
}

static CUresult launch_with(CUfunction f, CUlaunchAttribute attribute)
{
	return launch_ex(f, 4, &attribute, 1);
}

static void test_attribute_ids(void **state)
{
	static const CUresult zero[25] = {
		[3] = CUDA_ERROR_INVALID_VALUE,	 [7] = CUDA_ERROR_INVALID_HANDLE, [12] = CUDA_ERROR_INVALID_HANDLE,
		[13] = CUDA_ERROR_NOT_SUPPORTED, [15] = CUDA_ERROR_INVALID_VALUE, [17] = CUDA_ERROR_INVALID_VALUE,
		[18] = CUDA_ERROR_INVALID_VALUE, [19] = CUDA_ERROR_INVALID_VALUE, [20] = CUDA_ERROR_INVALID_VALUE,
		[21] = CUDA_ERROR_INVALID_VALUE, [22] = CUDA_ERROR_INVALID_VALUE, [23] = CUDA_ERROR_INVALID_VALUE,
		[24] = CUDA_ERROR_INVALID_VALUE,
	};

	for (int id = 0; id < 25; id++)
		assert_int_equal(launch_with(none, (CUlaunchAttribute){ .id = (CUlaunchAttributeID)id }), zero[id]);
	assert_int_equal(launch_with(none, (CUlaunchAttribute){ .id = (CUlaunchAttributeID)99 }), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch_ex(none, 4, NULL, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(launch_ex(none, 4, NULL, 0), CUDA_SUCCESS);
	assert_int_equal(launch_ex(NULL, 4, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(launch_ex(none, 0, NULL, 0), CUDA_ERROR_INVALID_VALUE);

	struct call call = fake_call();

	assert_int_equal(do_cuLaunchKernelEx(&call, NULL, none, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

#define WITH(ID, ...) launch_with(none, (CUlaunchAttribute){ .id = (ID), .value = { __VA_ARGS__ } })

static void test_attribute_values(void **state)
{
	assert_int_equal(WITH(8, .priority = 100), CUDA_SUCCESS);
	assert_int_equal(WITH(8, .priority = -5), CUDA_SUCCESS);
	assert_int_equal(WITH(14, .sharedMemCarveout = 50), CUDA_SUCCESS);
	assert_int_equal(WITH(14, .sharedMemCarveout = 101), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(WITH(14, .sharedMemCarveout = (unsigned int)-1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(WITH(5, .clusterSchedulingPolicyPreference = (CUclusterSchedulingPolicy)3), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(WITH(9, .memSyncDomainMap = { 0, 1 }), CUDA_SUCCESS);
	assert_int_equal(WITH(9, .memSyncDomainMap = { 77, 1 }), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(WITH(10, .memSyncDomain = (CUlaunchMemSyncDomain)1), CUDA_SUCCESS);
	assert_int_equal(WITH(10, .memSyncDomain = (CUlaunchMemSyncDomain)5), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(WITH(7, .programmaticEvent = { (CUevent)0x500, 0, 0 }), CUDA_SUCCESS);
	assert_int_equal(WITH(7, .programmaticEvent = { (CUevent)0x600, 0, 0 }), CUDA_ERROR_NOT_SUPPORTED);
	assert_int_equal(WITH(12, .launchCompletionEvent = { (CUevent)0x500, 0 }), CUDA_SUCCESS);
	assert_int_equal(WITH(2, .cooperative = 7), CUDA_SUCCESS);
}

static void test_attributes_on_the_wire(void **state)
{
	CUlaunchAttribute attrs[3], sent;

	/* What an attribute does not use is the program's own and stays here; the last of an id counts. */
	memset(attrs, 0xcc, sizeof(attrs));
	attrs[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	attrs[0].value.priority = 1;
	attrs[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
	attrs[2].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	attrs[2].value.priority = 2;
	assert_int_equal(launch_ex(none, 4, attrs, 3), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.attrs_size, 72);
	memset(&sent, 0, sizeof(sent));
	sent.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	sent.value.priority = 2;
	assert_memory_equal(fake_worker.launch_attrs, &sent, 72);
}

static void test_clusters(void **state)
{
	struct call call = fake_call();
	CUlaunchAttribute sixteen = { .id = 4, .value.clusterDim = { 16, 1, 1 } };

	assert_int_equal(WITH(4, .clusterDim = { 2, 1, 1 }), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.attrs_size, 72);
	assert_int_equal(WITH(4, .clusterDim = { 0, 0, 0 }), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.attrs_size, 0);
	assert_int_equal(WITH(4, .clusterDim = { 3, 1, 1 }), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_int_equal(WITH(4, .clusterDim = { 0, 1, 1 }), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_int_equal(launch(clustered, 1, 1, 1, 64, 1, 1, 0, NULL, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_int_equal(launch(clustered, 2, 1, 1, 64, 1, 1, 0, NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(launch_with(clustered, (CUlaunchAttribute){ .id = 4, .value.clusterDim = { 2, 1, 1 } }), CUDA_SUCCESS);
	assert_int_equal(launch_with(clustered, (CUlaunchAttribute){ .id = 4, .value.clusterDim = { 4, 1, 1 } }),
			 CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_int_equal(launch_ex(none, 16, &sixteen, 1), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	assert_int_equal(do_cuFuncSetAttribute(&call, none, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
			 CUDA_SUCCESS);
	assert_int_equal(launch_ex(none, 16, &sixteen, 1), CUDA_SUCCESS);
}

static CUresult cooperative(unsigned int grid, unsigned int block)
{
	struct call call = fake_call();

	return do_cuLaunchCooperativeKernel(&call, none, grid, 1, 1, block, 1, 1, 0, NULL, NULL);
}

static void test_cooperative_launches(void **state)
{
	assert_int_equal(cooperative(1, 32), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.attrs_size, 72);
	assert_int_equal(cooperative(132 * 32, 32), CUDA_SUCCESS);
	assert_int_equal(cooperative(132 * 64, 32), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	assert_int_equal(cooperative(132 * 2, 1024), CUDA_SUCCESS);
	assert_int_equal(cooperative(132 * 2 + 1, 1024), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	assert_int_equal(cooperative(1, 0), CUDA_ERROR_INVALID_VALUE);

	struct call call = fake_call();

	assert_int_equal(do_cuLaunchCooperativeKernelMultiDevice(&call, NULL, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- settings ---- */

static void test_function_settings(void **state)
{
	static const int values[] = { -2, -1, 0, 1, 2, 7, 100, 101, 49152, 232448, 232449 };
	struct call call = fake_call();
	int value;

	for (int attribute = 0; attribute < 18; attribute++)
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			int v = values[i];
			bool good = (attribute == 8 && v >= 0 && v <= 232448) || (attribute == 9 && v >= -1 && v <= 100) ||
				    (attribute >= 11 && attribute <= 13 && v >= 0) || attribute == 14 ||
				    (attribute == 15 && v >= 0 && v <= 2);

			assert_int_equal(do_cuFuncSetAttribute(&call, none, (CUfunction_attribute)attribute, v),
					 good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
			if (!good)
				continue;
			assert_int_equal(do_cuFuncGetAttribute(&call, &value, (CUfunction_attribute)attribute, none),
					 CUDA_SUCCESS);
			assert_int_equal(value, attribute == 14 ? v != 0 : v);
		}
	/* Static memory counts. */
	assert_int_equal(do_cuFuncSetAttribute(&call, sm49152, 8, 232448 - 49152), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetAttribute(&call, sm49152, 8, 232448 - 49151), CUDA_ERROR_INVALID_VALUE);
	/* Setting what is set sends nothing. */
	fake_worker.counts[OP_cuFuncSetAttribute] = 0;
	assert_int_equal(do_cuFuncSetAttribute(&call, sm49152, 8, 232448 - 49152), CUDA_SUCCESS);
	assert_int_equal(fake_worker.counts[OP_cuFuncSetAttribute], 0);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, (CUfunction_attribute)16, none), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, (CUfunction_attribute)-1, none), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncGetAttribute(&call, NULL, 0, none), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, 0, NULL), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuFuncSetCacheConfig(&call, none, (CUfunc_cache)3), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetCacheConfig(&call, none, (CUfunc_cache)4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncSetSharedMemConfig(&call, none, (CUsharedconfig)9), CUDA_ERROR_INVALID_VALUE);
}

static void test_kernel_settings_reach_functions(void **state)
{
	struct call call = fake_call();
	CUlibrary library;
	CUkernel k;
	CUfunction f;
	int value;

	assert_int_equal(do_cuLibraryLoadData(&call, &library, FAKE_PTX "//launch", NULL, NULL, 0, NULL, NULL, 0),
			 CUDA_SUCCESS);
	assert_int_equal(do_cuLibraryGetKernel(&call, &k, library, "none"), CUDA_SUCCESS);
	assert_int_equal(do_cuKernelGetFunction(&call, &f, k), CUDA_SUCCESS);
	/* A function's setting is its own. */
	assert_int_equal(do_cuFuncSetAttribute(&call, f, 8, 50000), CUDA_SUCCESS);
	assert_int_equal(do_cuKernelGetAttribute(&call, &value, 8, k, 0), CUDA_SUCCESS);
	assert_int_equal(value, 49152);
	assert_int_equal(launch((CUfunction)k, 1, 1, 1, 1, 1, 1, 50000, NULL, NULL), CUDA_SUCCESS);
	/* A kernel's reaches the function, also when it is the kernel's old value. */
	assert_int_equal(do_cuKernelSetAttribute(&call, 8, 49152, k, 0), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, 8, f), CUDA_SUCCESS);
	assert_int_equal(value, 49152);
	assert_int_equal(launch((CUfunction)k, 1, 1, 1, 1, 1, 1, 50000, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	/* The cluster flag is kept as given for a kernel, as a truth for a function: measured. */
	assert_int_equal(do_cuKernelSetAttribute(&call, 14, 7, k, 0), CUDA_SUCCESS);
	assert_int_equal(do_cuKernelGetAttribute(&call, &value, 14, k, 0), CUDA_SUCCESS);
	assert_int_equal(value, 7);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, 14, f), CUDA_SUCCESS);
	assert_int_equal(value, 1);
	assert_int_equal(do_cuFuncGetAttribute(&call, &value, 8, (CUfunction)k), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuKernelGetAttribute(&call, &value, 0, k, 5), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(do_cuKernelGetAttribute(&call, &value, 0, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
	assert_int_equal(do_cuKernelSetAttribute(&call, 8, 0, k, 7), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(do_cuKernelSetCacheConfig(&call, k, (CUfunc_cache)9, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuLibraryUnload(&call, library), CUDA_SUCCESS);
}

/* ---- the oldest form ---- */

static void test_shape_and_parameters_set_on_the_function(void **state)
{
	struct call call = fake_call();
	CUdeviceptr address = 0x200000000000;
	uint8_t want[24] = { 0 };

	assert_int_equal(do_cuFuncSetBlockShape(&call, three, 32, 2, 1), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetBlockShape(&call, three, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncSetBlockShape(&call, three, 1025, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncSetBlockShape(&call, three, -1, 1, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuParamSetSize(&call, three, 24), CUDA_SUCCESS);
	assert_int_equal(do_cuParamSetSize(&call, three, 40000), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuParamSetv(&call, three, 0, &address, 8), CUDA_SUCCESS);
	assert_int_equal(do_cuParamSeti(&call, three, 8, 5), CUDA_SUCCESS);
	assert_int_equal(do_cuParamSetf(&call, three, 16, 1.5f), CUDA_SUCCESS);
	assert_int_equal(do_cuParamSetv(&call, three, -1, &address, 8), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuParamSetv(&call, three, 32760, &address, 8), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuParamSetv(&call, three, 0, &address, UINT32_MAX), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuFuncSetSharedSize(&call, three, 100), CUDA_SUCCESS);
	assert_int_equal(do_cuFuncSetSharedSize(&call, three, 60000), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuLaunchGrid(&call, three, 3, 4), CUDA_SUCCESS);
	memcpy(want, &address, 8);
	want[8] = 5;
	memcpy(want + 16, &(float){ 1.5f }, 4);
	assert_int_equal(fake_worker.launch.params_size, 24);
	assert_memory_equal(fake_worker.launch_params, want, 24);
	assert_int_equal(fake_worker.launch.block_x, 32);
	assert_int_equal(fake_worker.launch.block_y, 2);
	assert_int_equal(fake_worker.launch.grid_x, 3);
	assert_int_equal(fake_worker.launch.grid_y, 4);
	assert_int_equal(fake_worker.launch.shared_size, 100);
	assert_int_equal(do_cuLaunchGrid(&call, three, 0, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(do_cuLaunch(&call, three), CUDA_SUCCESS);
	assert_int_equal(fake_worker.launch.grid_x, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_parameters_are_packed_by_the_layout),
		TEST(test_large_parameters),
		TEST(test_packed_blocks_go_as_they_are),
		TEST(test_missing_parameters),
		TEST(test_dimensions),
		TEST(test_threads_of_the_function),
		TEST(test_shared_memory),
		TEST(test_handles),
		TEST(test_function_and_stream_are_of_one_context),
		TEST(test_attribute_ids),
		TEST(test_attribute_values),
		TEST(test_attributes_on_the_wire),
		TEST(test_clusters),
		TEST(test_cooperative_launches),
		TEST(test_function_settings),
		TEST(test_kernel_settings_reach_functions),
		TEST(test_shape_and_parameters_set_on_the_function),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
