/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs with NVIDIA's libraries share. Each computes with fixed seeds, compares with the CPU within a stated
 * tolerance, and ends with `checksum <FNV-1a 64 over all bytes that came back>` and `N passed, N failed`: exit 0 when all was
 * right, 1 when not, 77 with its reason as the last line when the device lacks what it needs. The suite compares checksums.
 */
#ifndef TESTS_GPU_LIBS_LIB_H
#define TESTS_GPU_LIBS_LIB_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>

static int passed, failed;
static uint64_t result_sum = 0xcbf29ce484222325ull;

[[maybe_unused]] static void lib_die(const char *what, int code, const char *file, int line)
{
	printf("%s:%d: %s gave %d (last error of the runtime: %s)\n", file, line, what, code,
	       cudaGetErrorString(cudaPeekAtLastError()));
	printf("%d passed, %d failed\n", passed, failed + 1);
	fflush(stdout);
	/* Threads may be at work: no destructors under their feet. */
	_Exit(1);
}

/* The call of any of the libraries must succeed, which is 0 in all of them: what comes after makes no sense without it. */
#define MUST(call)                                                                                       \
	do {                                                                                             \
		int must_result = (int)(call);                                                           \
		if (must_result)                                                                         \
			lib_die(#call, must_result, __FILE__, __LINE__);                                 \
	} while (0)

/* Counts, and says what was wrong. */
#define CHECK(condition, ...)                                                                            \
	do {                                                                                             \
		if (condition) {                                                                         \
			passed++;                                                                        \
		} else {                                                                                 \
			failed++;                                                                        \
			printf("%s:%d: wrong: ", __FILE__, __LINE__);                                    \
			printf(__VA_ARGS__);                                                             \
			printf("\n");                                                                    \
		}                                                                                        \
	} while (0)

/* Bytes of a result, which must be the same natively and through Gleam. */
[[maybe_unused]] static void result_add(const void *data, size_t size)
{
	const unsigned char *byte = (const unsigned char *)data;

	for (size_t i = 0; i < size; i++)
		result_sum = (result_sum ^ byte[i]) * 0x100000001b3ull;
}

template <typename T> void result_add(const std::vector<T> &values)
{
	result_add(values.data(), values.size() * sizeof(T));
}

[[maybe_unused]] static int lib_end()
{
	printf("checksum %016llx\n", (unsigned long long)result_sum);
	printf("%d passed, %d failed\n", passed, failed);
	return failed ? 1 : 0;
}

[[maybe_unused]] static void lib_skip(const char *reason)
{
	printf("%s\n", reason);
	fflush(stdout);
	exit(77);
}

/* Major * 10 + minor; skips when there is no device. What was said before a hang or a crash is there. */
[[maybe_unused]] static int lib_device()
{
	int count = 0, major, minor;

	setvbuf(stdout, NULL, _IOLBF, 0);
	MUST(cudaGetDeviceCount(&count));
	if (!count)
		lib_skip("no device");
	MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
	MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
	return major * 10 + minor;
}

/* The software GPU executes PTX alone. */
[[maybe_unused]] static bool lib_on_software_gpu()
{
	cudaDeviceProp properties;

	MUST(cudaGetDeviceProperties(&properties, 0));
	return strstr(properties.name, "Software") != NULL;
}

/* Numbers that look random and are the same everywhere: [-1, 1) in steps that half precision holds. */
struct Random {
	uint32_t state;

	explicit Random(uint32_t seed) : state(seed) {}
	uint32_t bits()
	{
		state = state * 1664525u + 1013904223u;
		return state >> 8;
	}
	float next() { return (float)((int)(bits() % 256) - 128) / 128.0f; }
};

[[maybe_unused]] static std::vector<float> random_floats(size_t count, uint32_t seed)
{
	std::vector<float> values(count);
	Random random(seed);

	for (auto &value : values)
		value = random.next();
	return values;
}

/* Device memory that holds what a vector does. */
template <typename T> struct Device {
	T *at = nullptr;
	size_t count;

	explicit Device(size_t n) : count(n) { MUST(cudaMalloc((void **)&at, n * sizeof(T))); }
	explicit Device(const std::vector<T> &values) : Device(values.size()) { set(values); }
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;
	~Device() { cudaFree(at); }
	void set(const std::vector<T> &values)
	{
		MUST(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
	}
	/* Waits for the whole device first, whichever stream wrote. */
	std::vector<T> get() const
	{
		std::vector<T> values(count);

		MUST(cudaDeviceSynchronize());
		MUST(cudaMemcpy(values.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
		result_add(values);
		return values;
	}
};

/* The largest difference, in parts of the largest value expected. */
template <typename T, typename W> double difference(const std::vector<T> &got, const std::vector<W> &want)
{
	double most = 0, largest = 1e-30;

	if (got.size() != want.size())
		return HUGE_VAL;
	for (size_t i = 0; i < want.size(); i++) {
		double d = std::fabs((double)(float)got[i] - (double)want[i]);

		if (!(d <= most)) /* a NaN counts */
			most = std::isnan(d) ? HUGE_VAL : d;
		if (std::fabs((double)want[i]) > largest)
			largest = std::fabs((double)want[i]);
	}
	return most / largest;
}

#define CHECK_CLOSE(got, want, tolerance, what)                                                          \
	do {                                                                                             \
		double close_by = difference(got, want);                                                 \
		CHECK(close_by <= (tolerance), "%s differs from the CPU's by %g of its range, %g allowed", what, close_by, \
		      (double)(tolerance));                                                              \
	} while (0)

/* C = alpha A B + beta C, column major as in BLAS; A is m x k, or k x m when @turned. */
template <typename T>
std::vector<double> matmul(const T *a, const T *b, int m, int n, int k, double alpha = 1, bool turned = false)
{
	std::vector<double> c((size_t)m * n);

	for (int j = 0; j < n; j++)
		for (int i = 0; i < m; i++) {
			double sum = 0;

			for (int l = 0; l < k; l++)
				sum += (double)(float)(turned ? a[(size_t)i * k + l] : a[(size_t)l * m + i]) *
				       (double)(float)b[(size_t)j * k + l];
			c[(size_t)j * m + i] = alpha * sum;
		}
	return c;
}

#endif
