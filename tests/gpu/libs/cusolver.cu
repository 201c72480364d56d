// SPDX-License-Identifier: Apache-2.0
// cuSOLVER: a dense system by LU and by Cholesky, eigenvalues and vectors, singular values; what comes out is put into
// the equations it must solve. A singular matrix is told, not hidden.
#include "lib.h"
#include <cusolverDn.h>

static const int n = 120;
static cusolverDnHandle_t handle;

typedef std::vector<double> matrix; /* column major */

static matrix times(const matrix &a, const matrix &b, int columns)
{
	matrix c((size_t)n * columns);

	for (int j = 0; j < columns; j++)
		for (int l = 0; l < n; l++)
			for (int i = 0; i < n; i++)
				c[j * n + i] += a[l * n + i] * b[j * n + l];
	return c;
}

static double apart(const matrix &a, const matrix &b)
{
	double most = 0;

	for (size_t i = 0; i < a.size(); i++) {
		double d = std::fabs(a[i] - b[i]);

		most = d <= most ? most : d;
	}
	return most;
}

static matrix random_matrix(uint32_t seed, bool symmetric)
{
	std::vector<float> values = random_floats(n * n, seed);
	matrix a(values.begin(), values.end());

	if (symmetric)
		for (int j = 0; j < n; j++)
			for (int i = 0; i < j; i++)
				a[j * n + i] = a[i * n + j];
	for (int i = 0; i < n; i++)
		a[i * n + i] += n / 2;
	return a;
}

static void by_lu()
{
	matrix a = random_matrix(1, false), b = random_matrix(2, false), singular((size_t)n * n, 1.0);
	Device<double> da(a), db(b);
	Device<int> pivots(n), info(1);
	int size = 0;

	b.resize(n * 3);
	MUST(cusolverDnDgetrf_bufferSize(handle, n, n, da.at, n, &size));
	Device<double> work(size + 1);
	MUST(cusolverDnDgetrf(handle, n, n, da.at, n, work.at, pivots.at, info.at));
	CHECK(info.get()[0] == 0, "LU");
	MUST(cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 3, da.at, n, pivots.at, db.at, n, info.at));
	CHECK(info.get()[0] == 0, "solving");
	matrix x = db.get();
	x.resize(n * 3);
	double by = apart(times(a, x, 3), b);
	CHECK(by < 1e-10, "A x is %g away from b", by);
	da.set(singular);
	MUST(cusolverDnDgetrf(handle, n, n, da.at, n, work.at, pivots.at, info.at));
	CHECK(info.get()[0] == 2, "a singular matrix");
}

// By the 64-bit interface, whose work is partly on the host.
static void by_cholesky()
{
	matrix a = random_matrix(3, true), b = random_matrix(4, false);
	Device<double> da(a), db(b);
	Device<int> info(1);
	cusolverDnParams_t parameters;
	size_t on_device = 0, on_host = 0;

	b.resize(n * 2);
	MUST(cusolverDnCreateParams(&parameters));
	MUST(cusolverDnXpotrf_bufferSize(handle, parameters, CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, da.at, n, CUDA_R_64F, &on_device,
					 &on_host));
	Device<char> work(on_device + 1);
	std::vector<char> host_work(on_host + 1);
	MUST(cusolverDnXpotrf(handle, parameters, CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, da.at, n, CUDA_R_64F, work.at, on_device,
			      host_work.data(), on_host, info.at));
	CHECK(info.get()[0] == 0, "Cholesky");
	MUST(cusolverDnXpotrs(handle, parameters, CUBLAS_FILL_MODE_LOWER, n, 2, CUDA_R_64F, da.at, n, CUDA_R_64F, db.at, n, info.at));
	matrix x = db.get();
	x.resize(n * 2);
	double by = apart(times(a, x, 2), b);
	CHECK(by < 1e-10, "A x is %g away from b, by Cholesky", by);
	MUST(cusolverDnDestroyParams(parameters));
}

static void eigen()
{
	matrix a = random_matrix(5, true);
	Device<double> da(a), values(n);
	Device<int> info(1);
	int size = 0;

	MUST(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, da.at, n, values.at, &size));
	Device<double> work(size + 1);
	MUST(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, da.at, n, values.at, work.at, size, info.at));
	CHECK(info.get()[0] == 0, "eigenvalues");
	matrix vectors = da.get(), lambda = values.get(), left = times(a, vectors, n), right = vectors;
	for (int j = 0; j < n; j++)
		for (int i = 0; i < n; i++)
			right[j * n + i] *= lambda[j];
	double by = apart(left, right);
	CHECK(by < 1e-10, "A v is %g away from lambda v", by);
}

static void singular_values()
{
	matrix a = random_matrix(6, false);
	Device<double> da(a), s(n), u(n * n), v(n * n);
	Device<int> info(1);
	int size = 0;

	MUST(cusolverDnDgesvd_bufferSize(handle, n, n, &size));
	Device<double> work(size + 1);
	MUST(cusolverDnDgesvd(handle, 'A', 'A', n, n, da.at, n, s.at, u.at, n, v.at, n, work.at, size, NULL, info.at));
	CHECK(info.get()[0] == 0, "singular values");
	matrix left = u.get(), values = s.get();
	for (int j = 0; j < n; j++)
		for (int i = 0; i < n; i++)
			left[j * n + i] *= values[j];
	double by = apart(times(left, v.get(), n), a);
	CHECK(by < 1e-10, "U S V is %g away from A", by);
}

int main()
{
	cudaStream_t stream;

	lib_device();
	MUST(cusolverDnCreate(&handle));
	MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	MUST(cusolverDnSetStream(handle, stream));
	by_lu();
	by_cholesky();
	eigen();
	singular_values();
	MUST(cusolverDnDestroy(handle));
	MUST(cudaStreamDestroy(stream));
	return lib_end();
}
