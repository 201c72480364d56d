// SPDX-License-Identifier: Apache-2.0
/*
 * What must fail, with the driver's codes: before cuInit (field case P-014), bad images (P-009), garbage handles (P-015),
 * and kernels that fault, after which a context is unusable and a new process is not.
 */
#include <sys/wait.h>

#include "tests/cuda/prog.h"

static void before_init(void)
{
	const char *text = NULL;
	CUcontext context;
	CUdeviceptr memory;
	CUstream stream;
	CUdevice device;
	int count, version = 0;

	EXPECT(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuMemAlloc(&memory, 4), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuStreamCreate(&stream, 0), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT(cuDriverGetVersion(&version), CUDA_SUCCESS);
	CHECK(version >= 13000, "driver version %d", version);
	EXPECT(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
	CHECK(text && !strcmp(text, "out of memory"), "text of error 2: %s", text ? text : "(none)");
	EXPECT(cuGetErrorName((CUresult)54321, &text), CUDA_ERROR_INVALID_VALUE);
}

static void images(void)
{
	char *good = prog_ptx("vecadd");
	char *newer = strdup(good), *broken = strdup(good);
	unsigned char cut[64] = { 0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0 };
	CUmodule module;

	/* A version from the future. */
	memcpy(strstr(newer, ".version ") + 9, "9.9", 3);
	EXPECT(cuModuleLoadData(&module, newer), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
	memcpy(strstr(broken, "ld.global"), "xx.global", 9);
	EXPECT(cuModuleLoadData(&module, broken), CUDA_ERROR_INVALID_PTX);
	EXPECT(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK(!prog_on_gleam() || cuModuleLoadData(&module, "") != CUDA_SUCCESS, "an empty image was loaded");
	CHECK(!prog_on_gleam() || cuModuleLoadData(&module, cut) != CUDA_SUCCESS, "an empty fatbin was loaded");
	EXPECT(cuModuleLoadData(&module, good), CUDA_SUCCESS);
	EXPECT(cuModuleUnload(module), CUDA_SUCCESS);
	free(good);
	free(newer);
	free(broken);
}

static void jit_logs(void)
{
	char *broken = prog_ptx("vecadd");
	char log[256 + 16];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)256 };
	CUmodule module;

	memset(log, 0xaa, sizeof(log));
	memcpy(strstr(broken, "ld.global"), "xx.global", 9);
	EXPECT(cuModuleLoadDataEx(&module, broken, 2, options, values), CUDA_ERROR_INVALID_PTX);
	CHECK(memchr(log, 0, 256) != NULL && log[0], "the log is not a string");
	for (int i = 256; i < 272; i++)
		CHECK((unsigned char)log[i] == 0xaa, "a byte behind the log was written");
	free(broken);
}

static void handles(void)
{
	const uintptr_t garbage[] = { 0x10, ~(uintptr_t)0, 0x5420000010000010, (uintptr_t)&garbage };
	CUdeviceptr memory;
	CUcontext context;
	CUevent event;
	CUstream stream;

	for (unsigned int i = 0; i < 4 && prog_on_gleam(); i++) {
		CHECK(cuStreamQuery((CUstream)garbage[i]) != CUDA_SUCCESS, "stream %#zx", garbage[i]);
		CHECK(cuEventQuery((CUevent)garbage[i]) != CUDA_SUCCESS, "event %#zx", garbage[i]);
		CHECK(cuModuleUnload((CUmodule)garbage[i]) != CUDA_SUCCESS, "module %#zx", garbage[i]);
		CHECK(cuMemFree((CUdeviceptr)garbage[i]) != CUDA_SUCCESS, "memory %#zx", garbage[i]);
	}
	MUST(cuEventCreate(&event, 0));
	if (prog_on_gleam())
		EXPECT(cuStreamQuery((CUstream)event), CUDA_ERROR_INVALID_HANDLE);
	MUST(cuEventDestroy(event));
	if (prog_on_gleam())
		EXPECT(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
	EXPECT(cuMemAlloc(NULL, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuStreamCreate(&stream, 0xff00), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemAlloc(&memory, 1 << 20));
	EXPECT(cuMemFree(memory + 512), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemFree(memory), CUDA_SUCCESS);
	EXPECT(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemFree(0), CUDA_SUCCESS);
	EXPECT(cuMemAlloc(&memory, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
	EXPECT(cuCtxGetCurrent(&context), CUDA_SUCCESS);
}

/* A kernel that faults, told by the next wait and by everything after it. */
static void fault(const char *kernel, CUresult want)
{
	CUdeviceptr memory, nowhere = 0x10;
	CUfunction function;
	CUstream stream;
	unsigned int value = 1;
	void *params[] = { &nowhere, &value };

	prog_context(NULL);
	function = prog_function("util", kernel);
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	MUST(cuMemAlloc(&memory, 4096));
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
	EXPECT(cuStreamSynchronize(stream), want);
	EXPECT(cuStreamSynchronize(stream), want);
	EXPECT(cuMemcpyHtoD(memory, &value, 4), want);
	EXPECT(cuMemAlloc(&memory, 4096), want);
	EXPECT(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL), want);
	EXPECT(cuCtxSynchronize(), want);
}

/* In a process of its own: the context is lost with the fault. */
static void in_child(const char *self, const char *what)
{
	char *const argv[] = { (char *)self, (char *)what, NULL };
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the part \"%s\" (status %#x)", what, status);
}

static void in_forked_child(void)
{
	int status = -1, count;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "CUDA in a forked child (status %#x)", status);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "address")) {
		fault("write_at", CUDA_ERROR_ILLEGAL_ADDRESS);
		return prog_end();
	}
	if (argc > 1 && !strcmp(argv[1], "trap")) {
		fault("trap", CUDA_ERROR_LAUNCH_FAILED);
		return prog_end();
	}
	before_init();
	in_child(argv[0], "address");
	in_child(argv[0], "trap");
	prog_context(NULL);
	printf("images\n");
	images();
	printf("logs\n");
	jit_logs();
	printf("handles\n");
	handles();
	printf("fork\n");
	in_forked_child();
	EXPECT(cuCtxSynchronize(), CUDA_SUCCESS);
	return prog_end();
}
