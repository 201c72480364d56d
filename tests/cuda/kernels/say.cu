// SPDX-License-Identifier: Apache-2.0
// Each thread says a line.
#include <cstdio>

extern "C" __global__ void say(unsigned int number)
{
	printf("block %u thread %u says %u\n", blockIdx.x, threadIdx.x, number);
}
