// SPDX-License-Identifier: Apache-2.0
// Managed memory works, or is refused with an error and the program goes on with ordinary memory: never a crash. What the
// program may ask beforehand (attributes) agrees with what it gets.
#include "lib.h"

__global__ void twice(int *values, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		values[i] *= 2;
}

int main()
{
	const int n = 1000;
	int *values = NULL, offered = 0, concurrent = 0, wrong = 0;
	std::vector<int> ordinary(n, 21);
	cudaError_t result;

	lib_device();
	MUST(cudaDeviceGetAttribute(&offered, cudaDevAttrManagedMemory, 0));
	MUST(cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, 0));
	result = cudaMallocManaged((void **)&values, n * sizeof(int));
	CHECK((result == cudaSuccess) == (offered != 0), "offered %d, and the allocation gave %d", offered, (int)result);
	if (result == cudaSuccess) {
		for (int i = 0; i < n; i++)
			values[i] = i;
		twice<<<8, 128>>>(values, n);
		MUST(cudaDeviceSynchronize());
		for (int i = 0; i < n; i++)
			wrong += values[i] != 2 * i;
		CHECK(!wrong, "%d wrong values in managed memory", wrong);
		MUST(cudaFree(values));
	} else {
		printf("refused: cudaMallocManaged: %s\n", cudaGetErrorString(result));
		CHECK(cudaGetLastError() == result && cudaGetLastError() == cudaSuccess, "the error is told once");
		CHECK(!concurrent, "concurrent access is offered all the same");
	}
	/* And all goes on. */
	Device<int> device(ordinary);
	twice<<<8, 128>>>(device.at, n);
	MUST(cudaGetLastError());
	CHECK(device.get() == std::vector<int>(n, 42), "ordinary memory");
	return lib_end();
}
