// SPDX-License-Identifier: Apache-2.0
// cuRAND's generators on the device: the same numbers for the same seed, those of the host generator of the same kind, the
// right spread; offsets, streams, quasi-random numbers.
#include "lib.h"
#include <curand.h>

static const size_t n = 1 << 18;

static void spread(const std::vector<float> &values, double mean, double deviation, const char *what)
{
	double sum = 0, squares = 0;

	for (float value : values) {
		sum += value;
		squares += (double)value * value;
	}
	sum /= (double)values.size();
	squares = std::sqrt(squares / (double)values.size() - sum * sum);
	CHECK(std::fabs(sum - mean) < 0.03 && std::fabs(squares - deviation) < 0.03, "%s: mean %g, deviation %g", what, sum, squares);
}

static void generator(curandRngType_t type, const char *what, bool host_too)
{
	curandGenerator_t device_one, host_one;
	Device<float> numbers(n);
	Device<unsigned> integers(n);
	std::vector<float> uniform, normal, again, host(n);
	double most = 0;

	MUST(curandCreateGenerator(&device_one, type));
	MUST(curandSetPseudoRandomGeneratorSeed(device_one, 1234));
	MUST(curandGenerateUniform(device_one, numbers.at, n));
	uniform = numbers.get();
	spread(uniform, 0.5, std::sqrt(1 / 12.0), what);
	MUST(curandGenerateNormal(device_one, numbers.at, n, 3, 2));
	normal = numbers.get();
	spread(normal, 3, 2, what);
	MUST(curandGenerate(device_one, integers.at, n));
	integers.get();
	/* From the start again, by a new one; two kinds know offsets only as an error. */
	MUST(curandDestroyGenerator(device_one));
	MUST(curandCreateGenerator(&device_one, type));
	MUST(curandSetPseudoRandomGeneratorSeed(device_one, 1234));
	if (host_too)
		MUST(curandSetGeneratorOffset(device_one, 0));
	MUST(curandGenerateUniform(device_one, numbers.at, n));
	again = numbers.get();
	CHECK(again == uniform, "%s: the same seed gives other numbers", what);
	if (host_too) {
		MUST(curandCreateGeneratorHost(&host_one, type));
		MUST(curandSetPseudoRandomGeneratorSeed(host_one, 1234));
		MUST(curandGenerateUniform(host_one, host.data(), n));
		for (size_t i = 0; i < n; i++)
			most = std::fmax(most, std::fabs((double)host[i] - (double)uniform[i]));
		CHECK(most < 1e-6, "%s: the host's numbers differ by %g", what, most);
		MUST(curandDestroyGenerator(host_one));
	}
	MUST(curandDestroyGenerator(device_one));
}

int main()
{
	curandGenerator_t sobol;
	cudaStream_t stream;
	Device<float> numbers(n);
	int version = 0;

	lib_device();
	MUST(curandGetVersion(&version));
	printf("cuRAND %d\n", version);
	generator(CURAND_RNG_PSEUDO_PHILOX4_32_10, "Philox", true);
	generator(CURAND_RNG_PSEUDO_XORWOW, "XORWOW", true);
	generator(CURAND_RNG_PSEUDO_MRG32K3A, "MRG32k3a", true);
	generator(CURAND_RNG_PSEUDO_MT19937, "MT19937", false);
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(curandCreateGenerator(&sobol, CURAND_RNG_QUASI_SOBOL32));
	MUST(curandSetStream(sobol, stream));
	MUST(curandSetQuasiRandomGeneratorDimensions(sobol, 4));
	MUST(curandGenerateUniform(sobol, numbers.at, n));
	spread(numbers.get(), 0.5, std::sqrt(1 / 12.0), "Sobol");
	MUST(curandDestroyGenerator(sobol));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
