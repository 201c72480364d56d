// SPDX-License-Identifier: Apache-2.0
// nvJitLink: a kernel in one part calls a function in another; two parts of PTX become machine code, two of intermediate
// code (LTO) become machine code and PTX. A part that is missing is in the log. The driver's own linker does the first too.
#include "rtc.h"
#include <nvJitLink.h>

static const char caller[] = "extern __device__ float term(int i);\n"
			     "extern \"C\" __global__ void series(float *out, int n, float by)\n"
			     "{\n"
			     "	int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
			     "	if (i < n)\n"
			     "		out[i] = term(i) * by;\n"
			     "}\n";
static const char callee[] = "__device__ float term(int i) { return 2 * i + 1; }\n";

static std::string architecture;

static std::vector<char> ptx_of(const char *source)
{
	std::string log;
	nvrtcProgram program = rtc_compile(source, {"--gpu-architecture=compute_" + architecture, "-rdc=true"}, NULL, NULL, &log);
	size_t size = 0;

	CHECK(program != NULL, "%s", log.c_str());
	if (!program)
		return {};
	MUST(nvrtcGetPTXSize(program, &size));
	std::vector<char> ptx(size);
	MUST(nvrtcGetPTX(program, ptx.data()));
	MUST(nvrtcDestroyProgram(&program));
	return ptx;
}

static std::vector<char> lto_of(const char *source)
{
	std::string log;
	nvrtcProgram program = rtc_compile(source, {"--gpu-architecture=compute_" + architecture, "-rdc=true", "-dlto"}, NULL, NULL, &log);
	size_t size = 0;

	CHECK(program != NULL, "%s", log.c_str());
	if (!program)
		return {};
	MUST(nvrtcGetLTOIRSize(program, &size));
	std::vector<char> code(size);
	MUST(nvrtcGetLTOIR(program, code.data()));
	MUST(nvrtcDestroyProgram(&program));
	return code;
}

// The parts linked: machine code, PTX, or nothing and a log.
static std::vector<char> link(const std::vector<std::vector<char>> &parts, nvJitLinkInputType type, std::vector<const char *> options,
			      bool to_ptx, std::string *log_out)
{
	std::string target = "-arch=sm_" + architecture;
	nvJitLinkHandle handle;
	std::vector<char> image;
	size_t size = 0;
	bool bad = false;

	options.push_back(target.c_str());
	MUST(nvJitLinkCreate(&handle, (uint32_t)options.size(), options.data()));
	for (size_t i = 0; i < parts.size(); i++)
		bad |= nvJitLinkAddData(handle, type, parts[i].data(), parts[i].size(), i ? "callee" : "caller") != NVJITLINK_SUCCESS;
	bad |= nvJitLinkComplete(handle) != NVJITLINK_SUCCESS;
	MUST(nvJitLinkGetErrorLogSize(handle, &size));
	std::vector<char> log(size + 1);
	if (size)
		MUST(nvJitLinkGetErrorLog(handle, log.data()));
	*log_out = log.data();
	if (!bad) {
		MUST(to_ptx ? nvJitLinkGetLinkedPtxSize(handle, &size) : nvJitLinkGetLinkedCubinSize(handle, &size));
		image.resize(size + 1);
		MUST(to_ptx ? nvJitLinkGetLinkedPtx(handle, image.data()) : nvJitLinkGetLinkedCubin(handle, image.data()));
	}
	MUST(nvJitLinkDestroy(&handle));
	return image;
}

static void by_driver(const std::vector<char> &one, const std::vector<char> &two)
{
	CUlinkState state;
	void *image;
	size_t size = 0;
	CUresult result = cuLinkCreate(0, NULL, NULL, &state);

	CHECK(result == CUDA_SUCCESS, "the driver's linker gave %d", (int)result);
	if (result != CUDA_SUCCESS)
		return;
	MUST(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)one.data(), one.size(), "caller", 0, NULL, NULL));
	MUST(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)two.data(), two.size(), "callee", 0, NULL, NULL));
	MUST(cuLinkComplete(state, &image, &size));
	CHECK(size > 0, "linked by the driver: %zu bytes", size);
	rtc_run(image, "series", "linked by the driver");
	MUST(cuLinkDestroy(state));
}

int main()
{
	bool software;
	std::string log;
	std::vector<char> image;

	architecture = std::to_string(lib_device());
	software = lib_on_software_gpu();
	MUST(cudaFree(NULL)); /* the context */
	std::vector<char> one = ptx_of(caller), two = ptx_of(callee), a = lto_of(caller), b = lto_of(callee);
	image = link({one, two}, NVJITLINK_INPUT_PTX, {}, false, &log);
	CHECK(!image.empty(), "two parts of PTX: %s", log.c_str());
	if (!image.empty() && !software)
		rtc_run(image.data(), "series", "two parts of PTX");
	image = link({a, b}, NVJITLINK_INPUT_LTOIR, {"-lto"}, false, &log);
	CHECK(!image.empty(), "two parts of intermediate code: %s", log.c_str());
	if (!image.empty() && !software)
		rtc_run(image.data(), "series", "two parts of intermediate code");
	image = link({a, b}, NVJITLINK_INPUT_LTOIR, {"-lto", "-ptx"}, true, &log);
	CHECK(!image.empty(), "intermediate code to PTX: %s", log.c_str());
	if (!image.empty())
		rtc_run(image.data(), "series", "intermediate code to PTX");
	image = link({one}, NVJITLINK_INPUT_PTX, {}, false, &log);
	CHECK(image.empty() && log.find("term") != std::string::npos, "a missing part: \"%s\"", log.c_str());
	by_driver(one, two);
	return lib_end();
}
