// SPDX-License-Identifier: Apache-2.0
/*
 * Images as a program has them when it starts: modules and libraries, one of more functions than are told with its load, and one that is broken, which
 * must be refused at once. Each kernel runs. WORD, if given, is in all of them: images that nobody has loaded before. With `log` each load wants
 * the compiler's words. With TURNS as many times, each with images of its own; a line is said with each. With THREADS all of them load the same.
 * With `large` one image with 128 MiB of variables; `full`: when the device has no room for it. What its load says, the next call that synchronises,
 * and what its kernel has written.
 * Usage: loads [WORD [log | large | full | TURNS [THREADS]]]
 */
#include <pthread.h>

#include "tests/cuda/prog.h"

#define IMAGES	  8
#define FUNCTIONS 24
#define THREADS	  16

static __thread char text[65536];

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
	static __thread char words[4096];
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
	static __thread char words[4096];
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

/* How much was wrong, which it says. */
static int wrong_if(bool is, int turn, const char *what, uint32_t number)
{
	if (is)
		printf("wrong: turn %d: %s %u\n", turn, what, number);
	return is;
}

static int turn_take(const char *word, int turn, bool log, CUdeviceptr out)
{
	uint32_t got[IMAGES + FUNCTIONS], count = 0;
	CUmodule module = NULL;
	CUfunction none;
	int threads, wrong = 0;

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
	wrong += wrong_if(cuModuleGetFunction(&none, module, "step") != CUDA_ERROR_NOT_FOUND, turn, "a function that isn't there", 0);
	ptx_begin(word, turn);
	strcat(text, ".visible .entry broken(\n");
	wrong += wrong_if(cuModuleLoadData(&module, text) != CUDA_ERROR_INVALID_PTX, turn, "the broken image", 0);
	MUST(cuMemcpyDtoH(got, out, sizeof(got)));
	for (uint32_t i = 0; i < count; i++)
		wrong += wrong_if(got[i] != 1000 + i, turn, "what was written by kernel", i);
	MUST(cuMemsetD8(out, 0, sizeof(got)));
	return wrong;
}

static struct {
	const char *word;
	bool log;
	int turns;
	CUcontext context;
	pthread_barrier_t begin; /* each turn's: they ask for the same at once */
} all;

static void *thread_run(void *arg)
{
	int *wrong = arg;
	CUdeviceptr out;

	MUST(cuCtxSetCurrent(all.context));
	MUST(cuMemAlloc(&out, (IMAGES + FUNCTIONS) * sizeof(uint32_t)));
	for (int turn = 0; turn < all.turns; turn++) {
		pthread_barrier_wait(&all.begin);
		*wrong += turn_take(all.word, turn, all.log, out);
		if (all.turns > 1)
			printf("turn %d\n", turn);
	}
	return NULL;
}

static int large_load(const char *word, bool full)
{
	CUresult load, sync;
	CUfunction function;
	uint32_t got = 0, index = 0;
	CUdeviceptr out, room;
	void *params[] = { &out, &index };
	CUmodule module;

	MUST(cuMemAlloc(&out, sizeof(got)));
	MUST(cuMemsetD8(out, 0, sizeof(got)));
	for (size_t size = 256u << 20; full && size >= 2u << 20; size /= 2)
		while (cuMemAlloc(&room, size) == CUDA_SUCCESS)
			;
	ptx_begin(word, 0);
	strcat(text, ".visible .global .align 4 .b8 large[134217728];\n");
	ptx_kernel("step", 7);
	load = cuModuleLoadData(&module, text);
	if (load == CUDA_SUCCESS) {
		MUST(cuModuleGetFunction(&function, module, "step"));
		MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	}
	sync = cuCtxSynchronize();
	MUST(cuMemcpyDtoH(&got, out, sizeof(got)));
	printf("load %d, sync %d, wrote %u\n", (int)load, (int)sync, got);
	return 0;
}

int main(int argc, char **argv)
{
	int threads = argc > 3 ? atoi(argv[3]) : 1, wrong[THREADS] = { 0 };
	pthread_t ids[THREADS];

	setvbuf(stdout, NULL, _IOLBF, 0);
	all.word = argc > 1 ? argv[1] : "";
	all.log = argc > 2 && strcmp(argv[2], "log") == 0;
	all.turns = argc > 2 && !all.log ? atoi(argv[2]) : 1;
	if (threads < 1 || threads > THREADS) {
		fprintf(stderr, "usage: loads [WORD [log | TURNS [THREADS]]]: 1 to %d threads\n", THREADS);
		return 2;
	}
	all.context = prog_context(NULL);
	if (argc > 2 && (strcmp(argv[2], "large") == 0 || strcmp(argv[2], "full") == 0))
		return large_load(all.word, strcmp(argv[2], "full") == 0);
	pthread_barrier_init(&all.begin, NULL, (unsigned int)threads);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, thread_run, &wrong[i]))
			return 2;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		CHECK(wrong[i] == 0, "thread %d: %d", i, wrong[i]);
	}
	return prog_end();
}
