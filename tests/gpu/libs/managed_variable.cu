// SPDX-License-Identifier: Apache-2.0
// A program with a __managed__ variable: it works, or every call says why not; it never crashes, not at its end either.
#include "lib.h"

__managed__ int shared_number = 20;

__global__ void add(int by) { shared_number += by; }

int main()
{
	cudaError_t result, again;
	void *memory = NULL;
	int count = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	result = cudaGetDeviceCount(&count);
	if (result == cudaSuccess)
		result = cudaMalloc(&memory, 1000);
	if (result != cudaSuccess) {
		again = cudaMalloc(&memory, 1000);
		printf("refused: %s, then %s\n", cudaGetErrorString(result), cudaGetErrorString(again));
		CHECK(again == result, "the second call gave %d, the first %d", (int)again, (int)result);
		return lib_end();
	}
	add<<<1, 1>>>(22);
	result = cudaDeviceSynchronize();
	if (result != cudaSuccess) {
		printf("refused: %s\n", cudaGetErrorString(result));
		CHECK(cudaFree(memory) == result || cudaGetLastError() != cudaErrorUnknown, "the error stays");
		return lib_end();
	}
	CHECK(shared_number == 42, "the variable is %d", shared_number);
	result_add(&shared_number, sizeof(shared_number));
	return lib_end();
}
