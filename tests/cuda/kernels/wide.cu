// SPDX-License-Identifier: Apache-2.0
// 32,760 bytes of parameters in one struct: needs compute 7.0 and PTX 8.1.
struct wide {
	unsigned int word[8188];
};

extern "C" __global__ void wide_sum(unsigned int *out, wide w)
{
	unsigned int part = 0;

	for (unsigned int i = threadIdx.x; i < 8188; i += blockDim.x)
		part += w.word[i] * (i + 1);
	atomicAdd(out, part);
}
