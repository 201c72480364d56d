// SPDX-License-Identifier: Apache-2.0
/*
 * The linker and its logs (field case P-016): two texts that need each other, a missing name, log buffers of several sizes
 * with a guard behind them, option words that are written back, an image that is loaded from where the state keeps it.
 * "moves FILE": links in all states wait until there is FILE, and then go on.
 */
#include "tests/cuda/prog.h"

#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static const char caller[] =
	HEAD ".extern .func (.param .b32 r) twice (.param .b32 x);\n"
	     ".visible .entry run(.param .u64 out, .param .u32 n)\n"
	     "{\n"
	     "\t.reg .b32 %r<4>;\n"
	     "\t.reg .b64 %d<3>;\n"
	     "\tld.param.u64 %d1, [out];\n"
	     "\tld.param.u32 %r1, [n];\n"
	     "\tcvta.to.global.u64 %d2, %d1;\n"
	     "\t{\n"
	     "\t.param .b32 a;\n"
	     "\t.param .b32 b;\n"
	     "\tst.param.b32 [a], %r1;\n"
	     "\tcall.uni (b), twice, (a);\n"
	     "\tld.param.b32 %r2, [b];\n"
	     "\t}\n"
	     "\tst.global.u32 [%d2], %r2;\n"
	     "\tret;\n"
	     "}\n";

static const char called[] =
	HEAD ".visible .func (.param .b32 r) twice (.param .b32 x)\n"
	     "{\n"
	     "\t.reg .b32 %r<3>;\n"
	     "\tld.param.b32 %r1, [x];\n"
	     "\tadd.u32 %r2, %r1, %r1;\n"
	     "\tst.param.b32 [r], %r2;\n"
	     "\tret;\n"
	     "}\n";

static CUresult add_text(CUlinkState state, const char *text, const char *name)
{
	return cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, name, 0, NULL, NULL);
}

static unsigned int run(const void *image)
{
	unsigned int back = 0, n = 21;
	CUfunction function;
	CUdeviceptr out;
	CUmodule module;
	void *params[] = { &out, &n };

	MUST(cuModuleLoadData(&module, image));
	MUST(cuModuleGetFunction(&function, module, "run"));
	MUST(cuMemAlloc(&out, 4));
	MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	MUST(cuMemcpyDtoH(&back, out, 4));
	MUST(cuMemFree(out));
	MUST(cuModuleUnload(module));
	return back;
}

static void two_texts(void)
{
	CUlinkState state;
	void *image = NULL;
	size_t size = 0;

	MUST(cuLinkCreate_v2(0, NULL, NULL, &state));
	EXPECT(add_text(state, caller, "caller"), CUDA_SUCCESS);
	EXPECT(add_text(state, called, "called"), CUDA_SUCCESS);
	MUST(cuLinkComplete(state, &image, &size));
	CHECK(image && size > 64, "an image of %zu bytes", size);
	CHECK(run(image) == 42, "the linked kernel");
	EXPECT(cuLinkDestroy(state), CUDA_SUCCESS);
}

/* The same from files. */
static void two_files(void)
{
	static const char *const texts[] = { caller, called };
	CUlinkState state;
	void *image = NULL;
	size_t size = 0;
	char path[64];

	MUST(cuLinkCreate_v2(0, NULL, NULL, &state));
	EXPECT(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, NULL, NULL), CUDA_ERROR_FILE_NOT_FOUND);
	for (int i = 0; i < 2; i++) {
		FILE *file;

		snprintf(path, sizeof(path), "/tmp/gleam-links-%d-%d.ptx", (int)getpid(), i);
		file = fopen(path, "w");
		if (!file || fwrite(texts[i], 1, strlen(texts[i]), file) != strlen(texts[i]) || fclose(file)) {
			CHECK(false, "%s can't be written", path);
			return;
		}
		EXPECT(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL), CUDA_SUCCESS);
		unlink(path);
	}
	MUST(cuLinkComplete(state, &image, &size));
	CHECK(run(image) == 42, "the kernel linked from files");
	MUST(cuLinkDestroy(state));
}

/* A missing name, and an error log of @room bytes with a guard behind it. */
static void missing_name(unsigned int room)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	unsigned char log[8192 + 64];
	void *values[] = { log, (void *)(uintptr_t)room };
	void *image = &image;
	CUlinkState state;
	CUresult result;
	size_t size = 7;
	bool guard = true;

	memset(log, 0xaa, sizeof(log));
	MUST(cuLinkCreate_v2(2, options, values, &state));
	result = add_text(state, caller, "caller");
	if (!result)
		result = cuLinkComplete(state, &image, &size);
	CHECK(result != CUDA_SUCCESS, "a link with a name missing went well");
	for (unsigned int i = room; i < sizeof(log); i++)
		guard &= log[i] == 0xaa;
	/* A driver ends a log of no bytes all the same. */
	CHECK(guard || (!room && !prog_on_gleam()), "bytes behind a log of %u were written", room);
	if (room) {
		CHECK(memchr(log, 0, room) != NULL, "a log of %u bytes does not end", room);
		CHECK(log[0] && log[0] != 0xaa, "a log of %u bytes is empty", room);
		CHECK((uintptr_t)values[1] <= room, "the size word is %zu", (size_t)(uintptr_t)values[1]);
	}
	if (room >= 1024)
		CHECK(strstr((char *)log, "twice") != NULL, "the log lacks the name: %s", (char *)log);
	MUST(cuLinkDestroy(state));
}

static void good_log(void)
{
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME,
				   CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_LOG_VERBOSE };
	char log[4096];
	void *values[] = { log, (void *)(uintptr_t)sizeof(log), NULL, (void *)(uintptr_t)32, (void *)(uintptr_t)0,
			   (void *)(uintptr_t)1 };
	CUlinkState state;
	void *image = NULL;
	size_t size = 0;

	memset(log, 0xaa, sizeof(log));
	MUST(cuLinkCreate_v2(6, options, values, &state));
	EXPECT(add_text(state, called, "called"), CUDA_SUCCESS);
	EXPECT(add_text(state, caller, "caller"), CUDA_SUCCESS);
	MUST(cuLinkComplete(state, &image, &size));
	CHECK((uintptr_t)values[1] <= sizeof(log), "the size word is %zu", (size_t)(uintptr_t)values[1]);
	CHECK((uintptr_t)values[3] == 32 && (uintptr_t)values[4] == 0, "input words were written");
	CHECK(run(image) == 42, "a kernel linked with options");
	MUST(cuLinkDestroy(state));
}

static void mistakes(void)
{
	char *broken = strdup(called);
	CUjit_option odd = (CUjit_option)999;
	void *word = NULL, *image = NULL;
	CUlinkState state;
	size_t size;

	memcpy(strstr(broken, "add.u32"), "xxx.u32", 7);
	EXPECT(cuLinkCreate_v2(0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLinkCreate_v2(1, &odd, &word, &state), CUDA_ERROR_INVALID_VALUE);
	MUST(cuLinkCreate_v2(0, NULL, NULL, &state));
	EXPECT(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, NULL, 4, "nothing", 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuLinkAddData_v2(state, (CUjitInputType)99, broken, 4, "odd", 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	if (add_text(state, broken, "broken") == CUDA_SUCCESS)
		CHECK(cuLinkComplete(state, &image, &size) != CUDA_SUCCESS, "a broken text was linked");
	else
		CHECK(true, "told at once");
	MUST(cuLinkDestroy(state));
	if (prog_on_gleam())
		EXPECT(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
	free(broken);
}

/* A large input, in many parts. */
static void large_text(void)
{
	size_t pad = 3 << 20;
	char *text = malloc(sizeof(called) + pad);
	CUlinkState state;
	void *image = NULL;
	size_t size = 0;

	strcpy(text, called);
	memset(text + sizeof(called) - 1, '\n', pad);
	text[sizeof(called) - 1 + pad] = '\0';
	MUST(cuLinkCreate_v2(0, NULL, NULL, &state));
	EXPECT(add_text(state, text, "large"), CUDA_SUCCESS);
	EXPECT(add_text(state, caller, "caller"), CUDA_SUCCESS);
	MUST(cuLinkComplete(state, &image, &size));
	CHECK(run(image) == 42, "a kernel linked from a large text");
	MUST(cuLinkDestroy(state));
	free(text);
}

/* Links in all states, while somebody moves the program: until there is the file. */
static void moves(const char *path)
{
	CUlinkState begun, done, broke;
	void *image = NULL, *again = NULL;
	char *broken = strdup(called);
	size_t size = 0;

	MUST(cuLinkCreate_v2(0, NULL, NULL, &begun));
	EXPECT(add_text(begun, caller, "caller"), CUDA_SUCCESS);
	MUST(cuLinkCreate_v2(0, NULL, NULL, &done));
	EXPECT(add_text(done, caller, "caller"), CUDA_SUCCESS);
	EXPECT(add_text(done, called, "called"), CUDA_SUCCESS);
	MUST(cuLinkComplete(done, &image, &size));
	memcpy(strstr(broken, "add.u32"), "xxx.u32", 7);
	MUST(cuLinkCreate_v2(0, NULL, NULL, &broke));
	if (add_text(broke, broken, "broken") == CUDA_SUCCESS)
		CHECK(cuLinkComplete(broke, &again, &size) != CUDA_SUCCESS, "a broken text was linked");
	fprintf(stderr, "step: three links are under way\n");
	while (access(path, F_OK) != 0)
		usleep(1000);
	CHECK(run(image) == 42, "the kernel that was linked before");
	EXPECT(add_text(begun, called, "called"), CUDA_SUCCESS);
	MUST(cuLinkComplete(begun, &again, &size));
	CHECK(run(again) == 42, "the kernel that was linked in two places");
	MUST(cuLinkDestroy(begun));
	MUST(cuLinkDestroy(done));
	MUST(cuLinkDestroy(broke));
	free(broken);
}

int main(int argc, char **argv)
{
	prog_context(NULL);
	if (argc > 2) {
		moves(argv[2]);
		return prog_end();
	}
	two_texts();
	two_files();
	missing_name(8192);
	missing_name(64);
	missing_name(0);
	good_log();
	mistakes();
	large_text();
	return prog_end();
}
