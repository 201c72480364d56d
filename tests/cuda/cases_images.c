// SPDX-License-Identifier: Apache-2.0
/*
 * Hundreds of images whose kernels have the same name, or names of more than a thousand characters, through cuModule* and
 * cuLibrary*, among them one without a kernel: each call runs its own image's kernel (field case P-005). 60 images;
 * GLEAM_LONG=1: 400. Compressed containers are unit/test_fatbin's.
 */
#include "tests/cuda/prog.h"

#define NAME_LONG 1200

/* out[0] = constant: @tail distinguishes names that are equal for long. */
static void ptx_make(char *text, size_t size, const char *name, uint32_t constant)
{
	snprintf(text, size,
		 ".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry %s(.param .u64 out)\n{\n.reg .b64 %%d<3>;\n"
		 "ld.param.u64 %%d1, [out];\ncvta.to.global.u64 %%d2, %%d1;\nst.global.u32 [%%d2], %u;\nret;\n}\n",
		 name, constant);
}

/* As a compiler mangles deep templates: equal for most of their length. */
static void name_make(char *name, int i)
{
	int at = sprintf(name, "_Z4stepI");

	while (at < NAME_LONG)
		at += sprintf(name + at, "N5outer5innerIiEE");
	sprintf(name + at, "EvPj%d", i);
}

int main(void)
{
	const char *wish = getenv("GLEAM_LONG");
	int count = wish && strcmp(wish, "1") == 0 ? 400 : 60;
	CUfunction *functions;
	char text[4096], name[NAME_LONG + 64];
	CUlibrary library;
	CUmodule module, empty;
	CUkernel kernel;
	CUdeviceptr out;
	int wrong = 0;

	prog_context(NULL);
	functions = calloc((size_t)count, sizeof(*functions));
	MUST(cuMemAlloc(&out, 4));
	MUST(cuModuleLoadData(&empty, ".version 8.0\n.target sm_52\n.address_size 64\n.visible .global .u32 alone;\n"));
	for (int i = 0; i < count; i++) {
		bool lengthy = i % 3 == 0;

		if (lengthy)
			name_make(name, i);
		ptx_make(text, sizeof(text), lengthy ? name : "step", 5000 + (uint32_t)i);
		if (i % 2) {
			MUST(cuModuleLoadData(&module, text));
			MUST(cuModuleGetFunction(&functions[i], module, lengthy ? name : "step"));
		} else {
			MUST(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
			MUST(cuLibraryGetKernel(&kernel, library, lengthy ? name : "step"));
			MUST(cuKernelGetFunction(&functions[i], kernel));
		}
		if (lengthy && i) {
			CUfunction other;

			name_make(name, i - 1);
			EXPECT(i % 2 ? cuModuleGetFunction(&other, module, name) :
				       cuLibraryGetKernel((CUkernel *)&other, library, name),
			       CUDA_ERROR_NOT_FOUND);
		}
	}
	for (int turn = 0; turn < 3; turn++)
		for (int i = 0; i < count; i++) {
			void *params[] = { &out };
			uint32_t got = 0;

			MUST(cuLaunchKernel(functions[i], 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
			MUST(cuMemcpyDtoH(&got, out, 4));
			wrong += got != 5000 + (uint32_t)i;
		}
	CHECK(!wrong, "%d calls ran another image's kernel", wrong);
	EXPECT(cuModuleGetFunction(&functions[0], empty, "step"), CUDA_ERROR_NOT_FOUND);
	MUST(cuModuleUnload(empty));
	MUST(cuMemFree(out));
	free(functions);
	return prog_end();
}
