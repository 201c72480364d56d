// SPDX-License-Identifier: Apache-2.0
// c = a * b for square matrices of n rows, in tiles of 16 x 16 staged in shared memory.
#define TILE 16

extern "C" __global__ void matmul_tiled(const float *a, const float *b, float *c, int n)
{
	__shared__ float tile_a[TILE][TILE];
	__shared__ float tile_b[TILE][TILE];
	int column = blockIdx.x * TILE + threadIdx.x;
	int row = blockIdx.y * TILE + threadIdx.y;
	float sum = 0.0f;

	for (int start = 0; start < n; start += TILE) {
		int ka = start + threadIdx.x;
		int kb = start + threadIdx.y;

		tile_a[threadIdx.y][threadIdx.x] = row < n && ka < n ? a[row * n + ka] : 0.0f;
		tile_b[threadIdx.y][threadIdx.x] = kb < n && column < n ? b[kb * n + column] : 0.0f;
		__syncthreads();
		for (int k = 0; k < TILE; k++)
			sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
		__syncthreads();
	}
	if (row < n && column < n)
		c[row * n + column] = sum;
}
