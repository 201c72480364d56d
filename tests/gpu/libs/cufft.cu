// SPDX-License-Identifier: Apache-2.0
// cuFFT: transforms in one dimension (powers of two and others), two dimensions, batches, from real to complex and back,
// in double precision; against sums on the CPU, and there and back again.
#include "lib.h"
#include <complex>
#include <cufft.h>

typedef std::complex<double> cd;

static std::vector<cd> dft(const std::vector<cd> &in)
{
	const size_t n = in.size();
	std::vector<cd> out(n), root(n);

	for (size_t i = 0; i < n; i++)
		root[i] = std::polar(1.0, -2 * M_PI * (double)i / (double)n);
	for (size_t f = 0; f < n; f++)
		for (size_t i = 0; i < n; i++)
			out[f] += in[i] * root[f * i % n];
	return out;
}

static std::vector<double> flat(const std::vector<cd> &values)
{
	std::vector<double> out;

	for (const cd &value : values) {
		out.push_back(value.real());
		out.push_back(value.imag());
	}
	return out;
}

static std::vector<cd> pairs(const std::vector<float> &values)
{
	std::vector<cd> out;

	for (size_t i = 0; i < values.size(); i += 2)
		out.emplace_back(values[i], values[i + 1]);
	return out;
}

static void lines(int n, int batch, cudaStream_t stream)
{
	std::vector<float> in = random_floats((size_t)n * batch * 2, (uint32_t)n);
	std::vector<double> want;
	Device<float> device(in);
	cufftHandle plan;

	for (int b = 0; b < batch; b++) {
		std::vector<double> piece =
			flat(dft(pairs(std::vector<float>(in.begin() + b * n * 2, in.begin() + (b + 1) * n * 2))));

		want.insert(want.end(), piece.begin(), piece.end());
	}
	MUST(cufftPlan1d(&plan, n, CUFFT_C2C, batch));
	MUST(cufftSetStream(plan, stream));
	MUST(cufftExecC2C(plan, (cufftComplex *)device.at, (cufftComplex *)device.at, CUFFT_FORWARD));
	CHECK_CLOSE(device.get(), want, 5e-6, "a transform of lines");
	MUST(cufftExecC2C(plan, (cufftComplex *)device.at, (cufftComplex *)device.at, CUFFT_INVERSE));
	std::vector<float> back = device.get();
	for (float &value : back)
		value /= (float)n;
	CHECK_CLOSE(back, in, 5e-6, "there and back again");
	MUST(cufftDestroy(plan));
}

static void planes()
{
	const int h = 48, w = 60;
	std::vector<float> in = random_floats(h * w * 2, 77);
	std::vector<cd> all = pairs(in);
	Device<float> device(in);
	cufftHandle plan;

	for (int y = 0; y < h; y++) {
		std::vector<cd> row = dft(std::vector<cd>(all.begin() + y * w, all.begin() + (y + 1) * w));

		std::copy(row.begin(), row.end(), all.begin() + y * w);
	}
	for (int x = 0; x < w; x++) {
		std::vector<cd> column(h);

		for (int y = 0; y < h; y++)
			column[y] = all[y * w + x];
		column = dft(column);
		for (int y = 0; y < h; y++)
			all[y * w + x] = column[y];
	}
	MUST(cufftPlan2d(&plan, h, w, CUFFT_C2C));
	MUST(cufftExecC2C(plan, (cufftComplex *)device.at, (cufftComplex *)device.at, CUFFT_FORWARD));
	CHECK_CLOSE(device.get(), flat(all), 5e-6, "a transform of a plane");
	MUST(cufftDestroy(plan));
}

// With a work area of the program's, and a plan made in steps.
static void reals()
{
	const int n = 1000, batch = 6, half = n / 2 + 1;
	std::vector<float> in = random_floats(n * batch, 5);
	std::vector<double> want;
	Device<float> device(in), out(half * batch * 2), again(n * batch);
	int length = n;
	size_t size = 0;
	cufftHandle forward, inverse;
	void *area;

	for (int b = 0; b < batch; b++) {
		std::vector<double> piece = flat(dft(std::vector<cd>(in.begin() + b * n, in.begin() + (b + 1) * n)));

		want.insert(want.end(), piece.begin(), piece.begin() + half * 2);
	}
	MUST(cufftCreate(&forward));
	MUST(cufftSetAutoAllocation(forward, 0));
	MUST(cufftMakePlanMany(forward, 1, &length, NULL, 1, n, NULL, 1, half, CUFFT_R2C, batch, &size));
	MUST(cudaMalloc(&area, size + 1));
	MUST(cufftSetWorkArea(forward, area));
	MUST(cufftExecR2C(forward, device.at, (cufftComplex *)out.at));
	CHECK_CLOSE(out.get(), want, 5e-6, "from real to complex");
	MUST(cufftPlanMany(&inverse, 1, &length, NULL, 1, half, NULL, 1, n, CUFFT_C2R, batch));
	MUST(cufftExecC2R(inverse, (cufftComplex *)out.at, again.at));
	std::vector<float> back = again.get();
	for (float &value : back)
		value /= (float)n;
	CHECK_CLOSE(back, in, 5e-6, "and back to real");
	MUST(cufftDestroy(forward));
	MUST(cufftDestroy(inverse));
	MUST(cudaFree(area));
}

static void doubles()
{
	const int n = 512;
	std::vector<float> in = random_floats(n * 2, 6);
	std::vector<double> got, want = flat(dft(pairs(in)));
	Device<double> device(std::vector<double>(in.begin(), in.end()));
	cufftHandle plan;
	double most = 0;

	MUST(cufftPlan1d(&plan, n, CUFFT_Z2Z, 1));
	MUST(cufftExecZ2Z(plan, (cufftDoubleComplex *)device.at, (cufftDoubleComplex *)device.at, CUFFT_FORWARD));
	got = device.get();
	for (size_t i = 0; i < want.size(); i++)
		most = std::fmax(most, std::fabs(got[i] - want[i]));
	CHECK(most < 1e-10, "double precision differs by %g", most);
	MUST(cufftDestroy(plan));
}

int main()
{
	cudaStream_t stream;
	int version = 0;

	lib_device();
	MUST(cufftGetVersion(&version));
	printf("cuFFT %d\n", version);
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	lines(1024, 1, stream);
	lines(256, 16, stream);
	lines(360, 5, stream);
	lines(1009, 2, stream); /* a prime */
	planes();
	reals();
	doubles();
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
