// SPDX-License-Identifier: Apache-2.0
// cuBLASLt with heuristics: half, bfloat16 and, where the GPU has it, fp8 (e4m3) products, with a bias and ReLU behind
// one; every algorithm that the heuristic names for one product gives the same within the tolerance.
#include "lib.h"
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

static const size_t workspace_size = 32 << 20;
static cublasLtHandle_t handle;
static void *workspace;
static cudaStream_t stream;

// D = A^T B, A being k x m: the one layout that fp8 has.
template <typename T, typename D>
static void product(int m, int n, int k, cudaDataType type, cudaDataType out_type, double tolerance, const char *what, bool bias,
		    int algorithms)
{
	std::vector<float> fa = random_floats((size_t)m * k, 1), fb = random_floats((size_t)k * n, 2), fbias = random_floats(m, 3);
	std::vector<T> a(fa.begin(), fa.end()), b(fb.begin(), fb.end());
	std::vector<double> want = matmul(a.data(), b.data(), m, n, k, 1, true);
	Device<T> da(a), db(b);
	Device<D> dd((size_t)m * n), dbias(std::vector<D>(fbias.begin(), fbias.end()));
	Device<float> scale(std::vector<float>(1, 1.0f));
	cublasLtMatmulDesc_t description;
	cublasLtMatrixLayout_t la, lb, ld;
	cublasLtMatmulPreference_t preference;
	std::vector<cublasLtMatmulHeuristicResult_t> found(algorithms);
	cublasOperation_t turned = CUBLAS_OP_T, straight = CUBLAS_OP_N;
	float one = 1, zero = 0;
	int count = 0;

	MUST(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof(turned)));
	MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &straight, sizeof(straight)));
	if (sizeof(T) == 1) {
		MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scale.at, sizeof(void *)));
		MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scale.at, sizeof(void *)));
	}
	if (bias) {
		cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;

		MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
		MUST(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias.at, sizeof(void *)));
		for (int j = 0; j < n; j++)
			for (int i = 0; i < m; i++) {
				double &value = want[(size_t)j * m + i];

				value = std::fmax(value + fbias[i], 0);
			}
	}
	MUST(cublasLtMatrixLayoutCreate(&la, type, k, m, k));
	MUST(cublasLtMatrixLayoutCreate(&lb, type, k, n, k));
	MUST(cublasLtMatrixLayoutCreate(&ld, out_type, m, n, m));
	MUST(cublasLtMatmulPreferenceCreate(&preference));
	MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_size,
						  sizeof(workspace_size)));
	MUST(cublasLtMatmulAlgoGetHeuristic(handle, description, la, lb, ld, ld, preference, algorithms, found.data(), &count));
	CHECK(count > 0, "%s %dx%dx%d: no algorithm", what, m, n, k);
	for (int i = 0; i < count; i++) {
		MUST(cudaMemsetAsync(dd.at, 0xff, dd.count * sizeof(D), stream));
		MUST(cublasLtMatmul(handle, description, &one, da.at, la, db.at, lb, &zero, dd.at, ld, dd.at, ld, &found[i].algo, workspace,
				    workspace_size, stream));
		CHECK_CLOSE(dd.get(), want, tolerance, what);
	}
	MUST(cublasLtMatmulPreferenceDestroy(preference));
	MUST(cublasLtMatrixLayoutDestroy(la));
	MUST(cublasLtMatrixLayoutDestroy(lb));
	MUST(cublasLtMatrixLayoutDestroy(ld));
	MUST(cublasLtMatmulDescDestroy(description));
}

int main()
{
	const int sizes[][3] = {{64, 64, 64}, {256, 384, 512}, {2048, 1, 1024}, {320, 64, 2048}};
	int device = lib_device();

	printf("cuBLASLt %zu\n", cublasLtGetVersion());
	MUST(cublasLtCreate(&handle));
	MUST(cudaMalloc(&workspace, workspace_size));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (auto &size : sizes) {
		product<__half, __half>(size[0], size[1], size[2], CUDA_R_16F, CUDA_R_16F, 1e-3, "half", false, 3);
		product<__nv_bfloat16, __nv_bfloat16>(size[0], size[1], size[2], CUDA_R_16BF, CUDA_R_16BF, 8e-3, "bfloat16", false, 3);
		product<float, float>(size[0], size[1], size[2], CUDA_R_32F, CUDA_R_32F, 1e-5, "single", false, 1);
	}
	product<__half, __half>(512, 96, 256, CUDA_R_16F, CUDA_R_16F, 1e-3, "half with bias and ReLU", true, 2);
	if (device >= 89) {
		product<__nv_fp8_e4m3, __nv_bfloat16>(256, 128, 512, CUDA_R_8F_E4M3, CUDA_R_16BF, 8e-3, "fp8", false, 2);
		product<__nv_fp8_e4m3, __nv_bfloat16>(1024, 64, 1024, CUDA_R_8F_E4M3, CUDA_R_16BF, 8e-3, "fp8", false, 2);
	} else {
		printf("fp8 is left out: compute capability %d.%d has none\n", device / 10, device % 10);
	}
	MUST(cublasLtDestroy(handle));
	MUST(cudaFree(workspace));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
