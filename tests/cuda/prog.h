/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the test programs share. They are ordinary programs of the driver API: linked with -lcuda, they run on a real
 * driver as they are, and through Gleam with LD_LIBRARY_PATH. They end with the line `N passed, N failed`, exit 0 when
 * everything was right, 1 when not, 77 when the device lacks what they need.
 */
#ifndef TESTS_CUDA_PROG_H
#define TESTS_CUDA_PROG_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "gen/api.h" /* the prototypes of cuda.h, without a toolkit */

/* As cuda.h maps the plain names. */
#define cuMemAlloc	   cuMemAlloc_v2
#define cuMemFree	   cuMemFree_v2
#define cuMemcpyHtoD	   cuMemcpyHtoD_v2
#define cuMemcpyDtoH	   cuMemcpyDtoH_v2
#define cuMemcpyDtoD	   cuMemcpyDtoD_v2
#define cuMemcpyHtoDAsync  cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync  cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync  cuMemcpyDtoDAsync_v2
#define cuMemsetD8	   cuMemsetD8_v2
#define cuMemsetD32	   cuMemsetD32_v2
#define cuEventElapsedTime cuEventElapsedTime_v2
#define cuMemGetInfo	   cuMemGetInfo_v2
#define cuCtxDestroy	   cuCtxDestroy_v2
#define cuCtxPushCurrent   cuCtxPushCurrent_v2
#define cuCtxPopCurrent	   cuCtxPopCurrent_v2
#define cuStreamDestroy	   cuStreamDestroy_v2
#define cuEventDestroy	   cuEventDestroy_v2
#define cuMemAllocHost	   cuMemAllocHost_v2
#define cuMemHostRegister  cuMemHostRegister_v2
#define cuModuleGetGlobal  cuModuleGetGlobal_v2
#define cuDeviceTotalMem   cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuDevicePrimaryCtxReset	  cuDevicePrimaryCtxReset_v2

static int passed, failed;

/* The API must succeed: what comes after makes no sense without it. */
#define MUST(call)                                                                                             \
	do {                                                                                                   \
		CUresult must_result = (call);                                                                 \
                                                                                                               \
		if (must_result != CUDA_SUCCESS)                                                               \
			prog_die(must_result, #call, __FILE__, __LINE__);                                      \
	} while (0)

/* Counts, and says what was wrong. */
#define CHECK(condition, ...)                                                                                  \
	do {                                                                                                   \
		if (condition) {                                                                               \
			passed++;                                                                              \
		} else {                                                                                       \
			failed++;                                                                              \
			printf("%s:%d: wrong: ", __FILE__, __LINE__);                                          \
			printf(__VA_ARGS__);                                                                   \
			printf("\n");                                                                          \
		}                                                                                              \
	} while (0)

#define EXPECT(call, want)                                                                                     \
	do {                                                                                                   \
		CUresult expect_result = (call);                                                               \
                                                                                                               \
		CHECK(expect_result == (want), "%s gave %d (%s), not %d", #call, (int)expect_result,           \
		      prog_error(expect_result), (int)(want));                                                 \
	} while (0)

/* A real driver follows handles that it is given as pointers: garbage and destroyed ones crash it, so they are tried on
 * Gleam alone. */
static inline bool prog_on_gleam(void)
{
	return dlsym(RTLD_DEFAULT, "gleam_version") != NULL;
}

static inline const char *prog_error(CUresult result)
{
	const char *name = NULL;

	return cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

static inline void prog_die(CUresult result, const char *what, const char *file, int line)
{
	printf("%s:%d: %s: %s (%d)\n", file, line, what, prog_error(result), (int)result);
	printf("%d passed, %d failed\n", passed, failed + 1);
	exit(1);
}

static inline int prog_end(void)
{
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}

/* cuInit and a context of device 0. */
static inline CUcontext prog_context(CUdevice *device_out)
{
	CUcontext context;
	CUdevice device;
	int count = 0;

	/* What was said before a hang or a crash is there. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	if (!count) {
		printf("no device\n0 passed, 1 failed\n");
		exit(1);
	}
	MUST(cuDeviceGet(&device, 0));
	MUST(cuDevicePrimaryCtxRetain(&context, device));
	MUST(cuCtxSetCurrent(context));
	if (device_out)
		*device_out = device;
	return context;
}

/* The PTX in kernels/NAME.ptx beside the program (or under $GLEAM_KERNELS), terminated; the caller frees it. */
static inline char *prog_ptx(const char *name)
{
	const char *folder = getenv("GLEAM_KERNELS");
	char path[4096] = "";
	char *text = NULL;
	long size;
	FILE *file;

	if (folder) {
		snprintf(path, sizeof(path), "%s/%s.ptx", folder, name);
	} else {
		ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 64);
		char *slash;

		path[length > 0 ? length : 0] = '\0';
		slash = strrchr(path, '/');
		snprintf(slash ? slash : path, 64, "/kernels/%.32s.ptx", name);
	}
	file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(1);
	}
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	text = malloc((size_t)size + 1);
	if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) {
		perror(path);
		exit(1);
	}
	text[size] = '\0';
	fclose(file);
	return text;
}

static inline CUmodule prog_module(const char *name)
{
	char *text = prog_ptx(name);
	CUmodule module;

	MUST(cuModuleLoadData(&module, text));
	free(text);
	return module;
}

static inline CUfunction prog_function(const char *module_name, const char *function_name)
{
	CUfunction function;

	MUST(cuModuleGetFunction(&function, prog_module(module_name), function_name));
	return function;
}

static inline double prog_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Numbers that look random and are the same everywhere. */
static inline uint32_t prog_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

#endif
