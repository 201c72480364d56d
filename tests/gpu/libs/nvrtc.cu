// SPDX-License-Identifier: Apache-2.0
// NVRTC: source compiled to PTX and to machine code of the device there, a template's name looked up, the log of a faulty
// source, headers that the program brings; what comes out is loaded and run. Many small programs one after the other.
#include "rtc.h"

static const char source[] = "template <typename T, int K> __global__ void series(T *out, int n, T by)\n"
			     "{\n"
			     "	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
			     "	if (i < n)\n"
			     "		out[i] = (K * i + 1) * by;\n"
			     "}\n";

int main()
{
	int device = lib_device(), major = 0, minor = 0;
	std::string log, name, architecture = std::to_string(device);
	bool software = lib_on_software_gpu();
	nvrtcProgram program;
	size_t size = 0;

	MUST(nvrtcVersion(&major, &minor));
	printf("NVRTC %d.%d\n", major, minor);
	MUST(cudaFree(NULL)); /* the context */
	program = rtc_compile("__global__ void broken(int *p) { *p = undeclared_name; }", {}, NULL, NULL, &log);
	CHECK(!program && log.find("undeclared_name") != std::string::npos, "the log of a faulty source is \"%s\"", log.c_str());
	program = rtc_compile(source, {"--gpu-architecture=compute_" + architecture, "--std=c++17"}, "series<float, 2>", &name, &log);
	CHECK(program != NULL, "PTX: %s", log.c_str());
	if (program) {
		MUST(nvrtcGetPTXSize(program, &size));
		std::vector<char> ptx(size);
		MUST(nvrtcGetPTX(program, ptx.data()));
		rtc_run(ptx.data(), name.c_str(), "PTX");
		MUST(nvrtcDestroyProgram(&program));
	}
	program = rtc_compile(source, {"-arch=sm_" + architecture}, "series<float, 2>", &name, &log);
	CHECK(program != NULL, "machine code: %s", log.c_str());
	if (program && !software) {
		MUST(nvrtcGetCUBINSize(program, &size));
		std::vector<char> cubin(size);
		MUST(nvrtcGetCUBIN(program, cubin.data()));
		rtc_run(cubin.data(), name.c_str(), "machine code");
		MUST(nvrtcDestroyProgram(&program));
	}
	/* As frameworks do for every new shape. */
	for (int i = 0; i < 8; i++) {
		std::string text = "extern \"C\" __global__ void shape" + std::to_string(i) +
				   "(float *out, int n, float by) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = (2 * i + 1 + " +
				   std::to_string(i) + " - " + std::to_string(i) + ") * by; }";
		std::string which = "shape" + std::to_string(i);

		program = rtc_compile(text.c_str(), {"--gpu-architecture=compute_" + architecture}, NULL, NULL, &log);
		CHECK(program != NULL, "%s: %s", which.c_str(), log.c_str());
		if (!program)
			continue;
		MUST(nvrtcGetPTXSize(program, &size));
		std::vector<char> ptx(size);
		MUST(nvrtcGetPTX(program, ptx.data()));
		rtc_run(ptx.data(), which.c_str(), which.c_str());
		MUST(nvrtcDestroyProgram(&program));
	}
	/* Code for another architecture, and no code at all, are errors. */
	CUmodule module;
	CUresult result = cuModuleLoadData(&module, "this is no image, and long enough to be read as a header of one");
	CHECK(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX, "no image gave %d", (int)result);
	program = rtc_compile(source, {"-arch=sm_" + std::string(device >= 100 ? "90" : "100")}, "series<float, 2>", &name, &log);
	CHECK(program != NULL, "code for another GPU: %s", log.c_str());
	if (program) {
		MUST(nvrtcGetCUBINSize(program, &size));
		std::vector<char> cubin(size);
		MUST(nvrtcGetCUBIN(program, cubin.data()));
		result = cuModuleLoadData(&module, cubin.data());
		CHECK(result == CUDA_ERROR_NO_BINARY_FOR_GPU, "code for another GPU gave %d", (int)result);
		MUST(nvrtcDestroyProgram(&program));
	}
	return lib_end();
}
