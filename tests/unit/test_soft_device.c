// SPDX-License-Identifier: Apache-2.0
/*
 * Devices as the environment asks for them, contexts and what a thread works in.
 */
#include "tests/unit/soft_driver.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_nothing_works_before_init(void **state)
{
	CUcontext context;
	int count;

	/* Runs first: the other tests start the driver. */
	assert_int_equal(CU(cuDeviceGetCount)(&count), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(CU(cuCtxGetCurrent)(&context), CUDA_ERROR_NOT_INITIALIZED);
	assert_int_equal(CU(cuInit)(1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuDriverGetVersion)(&count));
	assert_int_equal(count, 13000);
	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuDeviceGetCount)(&count));
	assert_int_equal(count, 2);
}

static void test_identity(void **state)
{
	CUuuid first, second;
	char name[64], bus[32];
	CUdevice device = -1;
	size_t memory;
	int value;

	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuDeviceGetName)(name, sizeof(name), 0));
	assert_string_equal(name, "Test Device");
	assert_ok(CU(cuDeviceGetUuid)(&first, 0));
	assert_ok(CU(cuDeviceGetUuid_v2)(&second, 0));
	assert_memory_equal(&first, &second, sizeof(first));
	assert_ok(CU(cuDeviceGetUuid_v2)(&second, 1));
	assert_memory_not_equal(&first, &second, sizeof(first));
	assert_ok(CU(cuDeviceTotalMem_v2)(&memory, 0));
	assert_int_equal(memory, (size_t)256 << 20);
	assert_ok(CU(cuDeviceGetPCIBusId)(bus, sizeof(bus), 1));
	assert_ok(CU(cuDeviceGetByPCIBusId)(&device, bus));
	assert_int_equal(device, 1);
	assert_int_equal(CU(cuDeviceGetByPCIBusId)(&device, "0000:ff:00.0"), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(CU(cuDeviceGetByPCIBusId)(&device, "nonsense"), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuDeviceGetAttribute)(&value, 75, 0));
	assert_int_equal(value, 8);
	assert_ok(CU(cuDeviceGetAttribute)(&value, 76, 0));
	assert_int_equal(value, 6);
	for (int attribute = 1; attribute <= 150; attribute++)
		assert_ok(CU(cuDeviceGetAttribute)(&value, attribute, 0));
	assert_int_equal(CU(cuDeviceGetAttribute)(&value, 0, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuDeviceGetAttribute)(&value, 1, 2), CUDA_ERROR_INVALID_DEVICE);
	assert_int_equal(CU(cuDeviceGet)(&device, -1), CUDA_ERROR_INVALID_DEVICE);
}

static void test_error_names(void **state)
{
	const char *text;

	assert_ok(CU(cuGetErrorName)(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
	assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
	assert_ok(CU(cuGetErrorString)(CUDA_SUCCESS, &text));
	assert_string_equal(text, "no error");
	assert_int_equal(CU(cuGetErrorName)((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
	assert_null(text);
}

static void test_primary_context_keeps_its_handle(void **state)
{
	CUcontext first, again, current;
	CUdeviceptr pointer;
	unsigned int flags, version;
	int active;

	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuDevicePrimaryCtxGetState)(1, &flags, &active));
	assert_int_equal(active, 0);
	assert_ok(CU(cuDevicePrimaryCtxRetain)(&first, 1));
	assert_ok(CU(cuDevicePrimaryCtxRetain)(&again, 1));
	assert_ptr_equal(first, again);
	assert_ok(CU(cuCtxSetCurrent)(first));
	assert_ok(CU(cuMemAlloc_v2)(&pointer, 1000));
	assert_ok(CU(cuDevicePrimaryCtxRelease)(1));
	assert_ok(CU(cuCtxGetApiVersion)(first, &version));
	assert_ok(CU(cuDevicePrimaryCtxReset)(1));
	assert_int_equal(CU(cuMemFree_v2)(pointer), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuMemAlloc_v2)(&pointer, 1000));
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(1));
	assert_ok(CU(cuDevicePrimaryCtxGetState)(1, &flags, &active));
	assert_int_equal(active, 0);
	assert_int_equal(CU(cuMemAlloc_v2)(&pointer, 1000), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(CU(cuCtxGetApiVersion)(first, &version), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(CU(cuDevicePrimaryCtxRelease_v2)(1), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(CU(cuDevicePrimaryCtxRetain)(&again, 1));
	assert_ptr_equal(first, again);
	assert_ok(CU(cuMemAlloc_v2)(&pointer, 1000));
	assert_ok(CU(cuCtxGetCurrent)(&current));
	assert_ptr_equal(current, first);
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(1));
	assert_ok(CU(cuCtxSetCurrent)(NULL));
}

static void test_created_contexts_stack(void **state)
{
	CUcontext first, second, popped;
	unsigned long long first_id, second_id;
	unsigned int flags;
	CUdevice device;

	assert_ok(CU(cuInit)(0));
	assert_int_equal(CU(cuCtxPopCurrent_v2)(&popped), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(CU(cuCtxCreate_v2)(&first, 0, 0));
	assert_ok(CU(cuCtxCreate_v4)(&second, NULL, 4, 1));
	assert_ok(CU(cuCtxGetDevice)(&device));
	assert_int_equal(device, 1);
	assert_ok(CU(cuCtxGetFlags)(&flags));
	assert_int_equal(flags & 7, 4);
	assert_ok(CU(cuCtxGetId)(first, &first_id));
	assert_ok(CU(cuCtxGetId)(NULL, &second_id));
	assert_int_not_equal(first_id, second_id);
	assert_ok(CU(cuCtxPopCurrent_v2)(&popped));
	assert_ptr_equal(popped, second);
	assert_ok(CU(cuCtxGetDevice)(&device));
	assert_int_equal(device, 0);
	assert_ok(CU(cuCtxPushCurrent_v2)(second));
	assert_ok(CU(cuCtxDestroy_v2)(second));
	assert_int_equal(CU(cuCtxDestroy_v2)(second), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(CU(cuCtxSetCurrent)(second), CUDA_ERROR_INVALID_CONTEXT);
	assert_ok(CU(cuCtxDestroy_v2)(first));
	assert_int_equal(CU(cuCtxCreate_v2)(&first, 3, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(CU(cuCtxCreate_v2)(&first, 0, 9), CUDA_ERROR_INVALID_DEVICE);
}

static void *thread_has_no_context(void *argument)
{
	CUcontext *current = argument;

	CU(cuCtxGetCurrent)(current);
	return NULL;
}

static void test_settings(void **state)
{
	CUcontext current = (CUcontext)1;
	pthread_t thread;
	size_t value;
	int least, greatest, config;

	driver_start(0);
	assert_ok(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
	assert_int_equal(value, 1024);
	assert_ok(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096));
	assert_ok(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
	assert_int_equal(value, 4096);
	assert_int_equal(CU(cuCtxSetLimit)(CU_LIMIT_SHMEM_SIZE, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
	assert_int_equal(CU(cuCtxSetLimit)(77, 1), CUDA_ERROR_INVALID_VALUE);
	assert_ok(CU(cuCtxGetStreamPriorityRange)(&least, &greatest));
	assert_int_equal(least, 0);
	assert_int_equal(greatest, -5);
	assert_ok(CU(cuCtxSetCacheConfig)(2));
	assert_ok(CU(cuCtxGetCacheConfig)(&config));
	assert_int_equal(config, 2);
	assert_int_equal(pthread_create(&thread, NULL, thread_has_no_context, &current), 0);
	pthread_join(thread, NULL);
	assert_null(current);
}

static void test_peers(void **state)
{
	CUcontext other;
	int can;

	driver_start(0);
	assert_ok(CU(cuDeviceCanAccessPeer)(&can, 0, 1));
	assert_int_equal(can, 1);
	assert_ok(CU(cuDeviceCanAccessPeer)(&can, 0, 0));
	assert_int_equal(can, 0);
	assert_ok(CU(cuDevicePrimaryCtxRetain)(&other, 1));
	assert_int_equal(CU(cuCtxDisablePeerAccess)(other), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	assert_ok(CU(cuCtxEnablePeerAccess)(other, 0));
	assert_int_equal(CU(cuCtxEnablePeerAccess)(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	assert_ok(CU(cuCtxDisablePeerAccess)(other));
	assert_ok(CU(cuDevicePrimaryCtxRelease_v2)(1));
}

static void test_a_forked_child_is_told(void **state)
{
	int status, count;
	pid_t child;

	driver_start(0);
	child = fork();
	if (child == 0)
		_exit(CU(cuDeviceGetCount)(&count) == CUDA_ERROR_NOT_INITIALIZED &&
				      CU(cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_entry_points_by_name_and_version(void **state)
{
	void *function, *other;
	int status;

	assert_ok(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 13000, 0, &status));
	assert_ptr_equal(function, driver_symbol("cuMemAlloc_v2"));
	assert_ok(CU(cuGetProcAddress_v2)("cuMemAlloc", &function, 2000, 0, &status));
	assert_ptr_equal(function, driver_symbol("cuMemAlloc"));
	assert_ok(CU(cuGetProcAddress_v2)("cuMemcpyHtoD", &function, 13000, 2, &status));
	assert_ptr_equal(function, driver_symbol("cuMemcpyHtoD_v2_ptds"));
	assert_ok(CU(cuGetProcAddress_v2)("cuMemcpyHtoD", &other, 13000, 0, &status));
	assert_ptr_equal(other, driver_symbol("cuMemcpyHtoD_v2"));
	assert_ok(CU(cuGetProcAddress_v2)("cuStreamWaitValue32", &function, 9000, 0, NULL));
	assert_ptr_equal(function, driver_symbol("cuStreamWaitValue32"));
	assert_int_equal(CU(cuGetProcAddress_v2)("cuNothing", &function, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	assert_null(function);
	assert_int_equal(CU(cuGetProcAddress_v2)("cuLibraryLoadData", &function, 11000, 0, &status), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	assert_int_equal(CU(cuGetProcAddress_v2)("", &function, 0, 0, NULL), CUDA_ERROR_NOT_FOUND);
}

static void test_what_is_missing_is_refused(void **state)
{
	CUresult (*refused)(void) = (CUresult (*)(void))driver_symbol("cuTexRefCreate");

	driver_start(0);
	assert_int_equal(refused(), CUDA_ERROR_NOT_SUPPORTED);
	assert_null(driver_symbol_maybe("gleam_version"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_works_before_init),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_error_names),
		cmocka_unit_test(test_primary_context_keeps_its_handle),
		cmocka_unit_test(test_created_contexts_stack),
		cmocka_unit_test(test_settings),
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_a_forked_child_is_told),
		cmocka_unit_test(test_entry_points_by_name_and_version),
		cmocka_unit_test(test_what_is_missing_is_refused),
	};

	setenv("GLEAM_SOFTGPU_DEVICES", "2", 1);
	setenv("GLEAM_SOFTGPU_MEMORY", "256M", 1);
	setenv("GLEAM_SOFTGPU_NAME", "Test Device", 1);
	setenv("GLEAM_SOFTGPU_CAPABILITY", "8.6", 1);
	setenv("GLEAM_SOFTGPU_THREADS", "many", 1); /* nonsense is passed over */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
