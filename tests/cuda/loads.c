// SPDX-License-Identifier: Apache-2.0
/*
 * Images as a program has them when it starts: modules and libraries, one of more functions than are told with its load, and one that is broken, which
 * must be refused at once. Each kernel runs. WORD, if given, is in all of them: images that nobody has loaded before. With `log` each load wants
 * the compiler's words. With TURNS as many times, each with images of its own; a line is said with each.
 * Usage: loads [WORD [log | TURNS]]
 */
#include "tests/cuda/prog.h"

#define IMAGES	  8
#define FUNCTIONS 24

static char text[65536];

static void ptx_begin(const char *word, int turn)
{
	snprintf(text, sizeof(text), "// %s %d\n.version 8.0\n.target sm_52\n.address_size 64\n", word, turn);
}

static void ptx_kernel(const char *name, uint32_t constant)
{
	size_t at = strlen(text);

	snprintf(text + at, sizeof(text) - at,
		 ".visible .entry %s(.param .u64 out, .param .u32 index)\n{\n.reg .b64 %%d<4>;\n.reg .b32 %%r<3>;\n"
		 "ld.param.u64 %%d1, [out];\nld.param.u32 %%r1, [index];\nmul.wide.u32 %%d2, %%r1, 4;\nadd.s64 %%d3, %%d1, %%d2;\n"
		 "st.global.u32 [%%d3], %u;\nret;\n}\n",
		 name, constant);
}

static CUmodule module_load(bool log)
{
	static char words[4096];
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { words, (void *)sizeof(words) };
	CUmodule module;

	if (log)
		MUST(cuModuleLoadDataEx(&module, text, 2, options, values));
	else
		MUST(cuModuleLoadData(&module, text));
	return module;
}

static CUfunction library_load(bool log)
{
	static char words[4096];
	CUjit_option options[] = { CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { words, (void *)sizeof(words) };
	CUlibrary library;
	CUkernel kernel;
	CUfunction function;

	MUST(cuLibraryLoadData(&library, text, options, values, log ? 2 : 0, NULL, NULL, 0));
	MUST(cuLibraryGetKernel(&kernel, library, "step"));
	MUST(cuKernelGetFunction(&function, kernel));
	return function;
}

static void turn_take(const char *word, int turn, bool log, CUdeviceptr out)
{
	uint32_t got[IMAGES + FUNCTIONS], count = 0;
	CUmodule module = NULL;
	int threads;

	for (uint32_t i = 0; i < IMAGES + FUNCTIONS; i++) {
		void *params[] = { &out, &count };
		CUfunction function;
		char name[32] = "step";

		if (i < IMAGES) {
			ptx_begin(word, turn);
			ptx_kernel("step", 1000 + i);
			if (i % 2) {
				function = library_load(log);
			} else {
				module = module_load(log);
				MUST(cuModuleGetFunction(&function, module, name));
			}
		} else {
			if (i == IMAGES) {
				ptx_begin(word, turn);
				for (uint32_t k = 0; k < FUNCTIONS; k++) {
					snprintf(name, sizeof(name), "step%u", k);
					ptx_kernel(name, 1000 + IMAGES + k);
				}
				module = module_load(log);
			}
			snprintf(name, sizeof(name), "step%u", i - IMAGES);
			MUST(cuModuleGetFunction(&function, module, name));
			if (i % 2)
				MUST(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
		}
		MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
		count++;
	}
	EXPECT(cuModuleGetFunction(&(CUfunction){ NULL }, module, "step"), CUDA_ERROR_NOT_FOUND);
	ptx_begin(word, turn);
	strcat(text, ".visible .entry broken(\n");
	EXPECT(cuModuleLoadData(&module, text), CUDA_ERROR_INVALID_PTX);
	MUST(cuMemcpyDtoH(got, out, sizeof(got)));
	for (uint32_t i = 0; i < count; i++)
		CHECK(got[i] == 1000 + i, "turn %d, kernel %u wrote %u", turn, i, got[i]);
	MUST(cuMemsetD8(out, 0, sizeof(got)));
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";
	bool log = argc > 2 && strcmp(argv[2], "log") == 0;
	int turns = argc > 2 && !log ? atoi(argv[2]) : 1;
	CUdeviceptr out;

	setvbuf(stdout, NULL, _IOLBF, 0);
	prog_context(NULL);
	MUST(cuMemAlloc(&out, (IMAGES + FUNCTIONS) * sizeof(uint32_t)));
	for (int turn = 0; turn < turns; turn++) {
		turn_take(word, turn, log, out);
		if (turns > 1)
			printf("turn %d\n", turn);
	}
	return prog_end();
}
