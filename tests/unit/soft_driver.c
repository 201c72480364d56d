// SPDX-License-Identifier: Apache-2.0
/*
 * Opens libsoftcuda.so beside the test program and finds what is in it.
 */
#include "tests/unit/soft_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

static void *driver;

static void driver_open(void)
{
	const char *other = getenv("GLEAM_TEST_DRIVER");
	char path[PATH_MAX];
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *end;

	assert_true(size > 0);
	path[size] = 0;
	/* OUT/tests/unit/NAME */
	for (int up = 0; up < 3; up++) {
		end = strrchr(path, '/');
		assert_non_null(end);
		*end = 0;
	}
	assert_true(strlen(path) < sizeof(path) - 32);
	strcat(path, "/lib/libsoftcuda.so");
	/* A real driver, to see where the software one differs. */
	if (other && *other)
		snprintf(path, sizeof(path), "%s", other);
	driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!driver)
		fail_msg("%s", dlerror());
}

void *driver_symbol_maybe(const char *name)
{
	if (!driver)
		driver_open();
	return dlsym(driver, name);
}

void *driver_symbol(const char *name)
{
	void *symbol = driver_symbol_maybe(name);

	if (!symbol)
		fail_msg("libsoftcuda.so has no %s", name);
	return symbol;
}

void driver_start(CUdevice device)
{
	CUcontext context;

	assert_ok(CU(cuInit)(0));
	assert_ok(CU(cuDevicePrimaryCtxRetain)(&context, device));
	assert_ok(CU(cuCtxSetCurrent)(context));
}

char *driver_file(const char *path, size_t *size_out)
{
	FILE *file = fopen(path, "rb");
	char *bytes;
	long size;

	if (!file)
		fail_msg("%s: can't be read; run from the top of the source tree", path);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	bytes = malloc((size_t)size + 1);
	assert_non_null(bytes);
	assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
	fclose(file);
	bytes[size] = 0;
	if (size_out)
		*size_out = (size_t)size;
	return bytes;
}

CUmodule driver_module(const char *ptx)
{
	char log[1024] = "";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)sizeof(log) };
	CUmodule module = NULL;
	CUresult result = CU(cuModuleLoadDataEx)(&module, ptx, 2, options, values);

	if (result != CUDA_SUCCESS)
		fail_msg("module: %d: %s", result, log);
	return module;
}

CUfunction driver_function(CUmodule module, const char *name)
{
	CUfunction function = NULL;

	assert_ok(CU(cuModuleGetFunction)(&function, module, name));
	return function;
}

pid_t driver_neighbour(int *answer_out, int *order_out)
{
	int up[2], down[2];
	pid_t child;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	child = fork();
	if (child == 0) {
		char answer[16], order[16];

		/* Else it would wait for an end of file that it holds off itself. */
		close(up[0]);
		close(down[1]);
		snprintf(answer, sizeof(answer), "%d", up[1]);
		snprintf(order, sizeof(order), "%d", down[0]);
		execl("/proc/self/exe", program_invocation_short_name, "neighbour", answer, order, (char *)NULL);
		_exit(1);
	}
	assert_true(child > 0);
	close(up[1]);
	close(down[0]);
	*answer_out = up[0];
	*order_out = down[1];
	return child;
}
