/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source text compiled at run time, and what became of it launched through the driver API in the runtime's context.
 */
#ifndef TESTS_GPU_LIBS_RTC_H
#define TESTS_GPU_LIBS_RTC_H

#include <cuda.h>
#include <nvrtc.h>

#include "lib.h"

/* The program compiled, or a null one with its log; @name_out gets the name that @expression has in the image. */
[[maybe_unused]] static nvrtcProgram rtc_compile(const char *source, const std::vector<std::string> &options, const char *expression,
						 std::string *name_out, std::string *log_out)
{
	std::vector<const char *> texts;
	nvrtcProgram program;
	nvrtcResult result;
	const char *name;
	size_t size = 0;

	for (const std::string &option : options)
		texts.push_back(option.c_str());
	MUST(nvrtcCreateProgram(&program, source, "program.cu", 0, NULL, NULL));
	if (expression)
		MUST(nvrtcAddNameExpression(program, expression));
	result = nvrtcCompileProgram(program, (int)texts.size(), texts.data());
	MUST(nvrtcGetProgramLogSize(program, &size));
	std::vector<char> log(size + 1);
	MUST(nvrtcGetProgramLog(program, log.data()));
	if (log_out)
		*log_out = log.data();
	if (result != NVRTC_SUCCESS) {
		MUST(nvrtcDestroyProgram(&program));
		return NULL;
	}
	if (expression) {
		MUST(nvrtcGetLoweredName(program, expression, &name));
		*name_out = name;
	}
	return program;
}

/* out[i] = f(i) by the kernel `(float *out, int n, float by)` of an image, which must be twice i plus one, times @by. */
[[maybe_unused]] static void rtc_run(const void *image, const char *name, const char *what)
{
	const int n = 5000;
	std::vector<float> want(n);
	Device<float> out(n);
	CUmodule module;
	CUfunction function;
	float by = 0.5f;
	int count = n;
	void *arguments[] = {&out.at, &count, &by};
	CUresult result = cuModuleLoadData(&module, image);

	CHECK(result == CUDA_SUCCESS, "%s: loading gave %d", what, (int)result);
	if (result != CUDA_SUCCESS)
		return;
	MUST(cuModuleGetFunction(&function, module, name));
	MUST(cuLaunchKernel(function, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL));
	for (int i = 0; i < n; i++)
		want[i] = (2.0f * i + 1) * by;
	CHECK(out.get() == want, "%s: wrong values", what);
	MUST(cuModuleUnload(module));
}

#endif
