// SPDX-License-Identifier: Apache-2.0
// cuBLAS: GEMM in single, double and half precision, batched, GEMV, on streams and workspaces of the program's own; two
// handles at work at once, from two threads.
#include "lib.h"
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <thread>

static const float one = 1, zero = 0;

static void singles(cublasHandle_t handle)
{
	const int m = 192, n = 160, k = 224;
	std::vector<float> a = random_floats(m * k, 1), b = random_floats(k * n, 2);
	Device<float> da(a), db(b), dc(m * n);

	MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da.at, m, db.at, k, &zero, dc.at, m));
	CHECK_CLOSE(dc.get(), matmul(a.data(), b.data(), m, n, k), 1e-5, "sgemm");
	MUST(cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, da.at, k, db.at, k, &zero, dc.at, m));
	CHECK_CLOSE(dc.get(), matmul(a.data(), b.data(), m, n, k, 1, true), 1e-5, "sgemm, A transposed");
	/* Single in, tensor cores with 10 bits of fraction. */
	MUST(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
	MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da.at, m, db.at, k, &zero, dc.at, m));
	CHECK_CLOSE(dc.get(), matmul(a.data(), b.data(), m, n, k), 2e-3, "sgemm in TF32");
	MUST(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
}

static void doubles(cublasHandle_t handle)
{
	const int m = 96, n = 130, k = 200;
	const double alpha = 0.5, beta = 0;
	std::vector<float> a = random_floats(m * k, 3), b = random_floats(k * n, 4);
	Device<double> da(std::vector<double>(a.begin(), a.end())), db(std::vector<double>(b.begin(), b.end())), dc(m * n);
	std::vector<double> got, want = matmul(a.data(), b.data(), m, n, k, alpha);
	double most = 0;

	MUST(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, da.at, m, db.at, k, &beta, dc.at, m));
	got = dc.get();
	for (size_t i = 0; i < want.size(); i++)
		most = std::fmax(most, std::fabs(got[i] - want[i]));
	CHECK(most < 1e-11, "dgemm differs by %g", most);
}

static void halves(cublasHandle_t handle)
{
	const int sizes[][3] = {{64, 64, 64}, {256, 128, 512}, {1, 320, 2048}, {1000, 24, 136}};

	for (auto &size : sizes) {
		int m = size[0], n = size[1], k = size[2];
		std::vector<float> a = random_floats((size_t)m * k, 5), b = random_floats((size_t)k * n, 6);
		Device<__half> da(std::vector<__half>(a.begin(), a.end())), db(std::vector<__half>(b.begin(), b.end()));
		Device<__half> dc((size_t)m * n);
		__half half_one = __float2half(1), half_zero = __float2half(0);

		MUST(cublasHgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &half_one, da.at, m, db.at, k, &half_zero, dc.at, m));
		CHECK_CLOSE(dc.get(), matmul(a.data(), b.data(), m, n, k), 1e-2, "hgemm");
		/* As frameworks call it: half in and out, sums in single. */
		MUST(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da.at, CUDA_R_16F, m, db.at, CUDA_R_16F, k, &zero,
				  dc.at, CUDA_R_16F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
		CHECK_CLOSE(dc.get(), matmul(a.data(), b.data(), m, n, k), 1e-3, "gemmEx in half");
	}
}

static void batches(cublasHandle_t handle)
{
	const int m = 48, n = 40, k = 56, count = 12;
	std::vector<float> a = random_floats(m * k * count, 7), b = random_floats(k * n * count, 8);
	std::vector<double> want;
	std::vector<float *> pa, pb, pc;
	Device<float> da(a), db(b), dc(m * n * count);

	for (int i = 0; i < count; i++) {
		std::vector<double> piece = matmul(&a[i * m * k], &b[i * k * n], m, n, k);

		want.insert(want.end(), piece.begin(), piece.end());
		pa.push_back(da.at + i * m * k);
		pb.push_back(db.at + i * k * n);
		pc.push_back(dc.at + i * m * n);
	}
	MUST(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, da.at, m, m * k, db.at, k, k * n, &zero,
				       dc.at, m, m * n, count));
	CHECK_CLOSE(dc.get(), want, 1e-5, "strided batches");
	MUST(cudaMemset(dc.at, 0, m * n * count * 4));
	/* Pointers to device memory inside of device memory. */
	Device<float *> pointers_a(pa), pointers_b(pb), pointers_c(pc);
	MUST(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, pointers_a.at, m, pointers_b.at, k, &zero,
				pointers_c.at, m, count));
	CHECK_CLOSE(dc.get(), want, 1e-5, "batches by pointers");
}

static void vectors(cublasHandle_t handle, cudaStream_t stream)
{
	const int m = 300, n = 200;
	std::vector<float> a = random_floats(m * n, 9), x = random_floats(n, 10), y(m);
	Device<float> da(a), dx(x), dy(y), scalar(1);
	float dot = 0;
	double want = 0;
	int largest = 0, at = 1;

	MUST(cublasSgemv(handle, CUBLAS_OP_N, m, n, &one, da.at, m, dx.at, 1, &zero, dy.at, 1));
	CHECK_CLOSE(dy.get(), matmul(a.data(), x.data(), m, 1, n), 1e-5, "sgemv");
	/* A result on the host is there when the call returns, without a wait of ours. */
	MUST(cublasSdot(handle, n, dx.at, 1, dx.at, 1, &dot));
	for (float value : x)
		want += (double)value * value;
	CHECK(std::fabs(dot - want) < 1e-4 * want, "sdot gave %g, not %g", dot, want);
	result_add(&dot, sizeof(dot));
	MUST(cublasIsamax(handle, n, dx.at, 1, &largest));
	for (int i = 0; i < n; i++)
		if (std::fabs(x[i]) > std::fabs(x[at - 1]))
			at = i + 1;
	CHECK(largest == at, "isamax gave %d, not %d", largest, at);
	/* And one on the device. */
	MUST(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
	MUST(cublasSnrm2(handle, n, dx.at, 1, scalar.at));
	MUST(cudaStreamSynchronize(stream));
	CHECK(std::fabs(scalar.get()[0] - std::sqrt(want)) < 1e-4, "snrm2 on the device");
	MUST(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
}

// The same product again and again on a stream of this thread's, beside the other thread's.
static void beside(int who, std::vector<float> *out)
{
	const int n = 256;
	std::vector<float> a = random_floats(n * n, 20 + who), b = random_floats(n * n, 30 + who);
	Device<float> da(a), db(b), dc(n * n);
	cublasHandle_t handle;
	cudaStream_t stream;

	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cublasCreate(&handle));
	MUST(cublasSetStream(handle, stream));
	for (int i = 0; i < 30; i++)
		MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, da.at, n, db.at, n, &zero, dc.at, n));
	out->resize(n * n);
	MUST(cudaMemcpyAsync(out->data(), dc.at, n * n * 4, cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamSynchronize(stream));
	for (int i = 0; i < n; i++) /* B was turned. */
		for (int j = 0; j < i; j++)
			std::swap(b[i * n + j], b[j * n + i]);
	double by = difference(*out, matmul(a.data(), b.data(), n, n, n));
	if (by > 1e-5)
		out->clear();
	MUST(cublasDestroy(handle));
	MUST(cudaStreamDestroy(stream));
}

int main()
{
	std::vector<float> results[2];
	cublasHandle_t handle;
	cudaStream_t stream;
	void *workspace;
	int version = 0;

	lib_device();
	MUST(cublasCreate(&handle));
	MUST(cublasGetVersion(handle, &version));
	printf("cuBLAS %d\n", version);
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cudaMalloc(&workspace, 32 << 20));
	MUST(cublasSetStream(handle, stream));
	MUST(cublasSetWorkspace(handle, workspace, 32 << 20));
	singles(handle);
	doubles(handle);
	halves(handle);
	batches(handle);
	vectors(handle, stream);
	std::thread first(beside, 0, &results[0]), second(beside, 1, &results[1]);
	first.join();
	second.join();
	for (auto &result : results) {
		CHECK(!result.empty(), "a product beside another thread's");
		result_add(result);
	}
	MUST(cublasDestroy(handle));
	MUST(cudaStreamDestroy(stream));
	MUST(cudaFree(workspace));
	return lib_end();
}
