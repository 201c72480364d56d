// SPDX-License-Identifier: Apache-2.0
// What sets the values of conditional nodes of graphs.

extern "C" __global__ void set(cudaGraphConditionalHandle handle, unsigned int value)
{
	cudaGraphSetConditional(handle, value);
}

// The value is a word of memory.
extern "C" __global__ void set_from(cudaGraphConditionalHandle handle, const unsigned int *from)
{
	cudaGraphSetConditional(handle, *from);
}

// Counts down, and is true until nothing is left.
extern "C" __global__ void count_down(cudaGraphConditionalHandle handle, unsigned int *left)
{
	unsigned int now = *left - 1;

	*left = now;
	cudaGraphSetConditional(handle, now != 0);
}

struct asked {
	unsigned int value;
	unsigned int more;
	cudaGraphConditionalHandle first;
	cudaGraphConditionalHandle second;
};

// Handles in a structure; one thread of many sets.
extern "C" __global__ void set_both(struct asked asked)
{
	if (threadIdx.x != 5 || blockIdx.x != gridDim.x - 1)
		return;
	cudaGraphSetConditional(asked.first, asked.value);
	cudaGraphSetConditional(asked.second, asked.value + asked.more);
}

extern "C" __global__ void step(unsigned int *at, unsigned int add)
{
	*at = *at * 3 + add;
}
