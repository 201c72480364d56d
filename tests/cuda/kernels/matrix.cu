// SPDX-License-Identifier: Apache-2.0
// nvcc: -arch=compute_80
// Matrix instructions: one warp multiplies small matrices. a is m x k, b is k x n by columns, c is m x n.
#include <cstdint>

extern "C" __global__ void mma_half(const uint16_t *a, const uint16_t *b, float *c)
{
	__shared__ __align__(16) uint16_t rows[16][16];
	__shared__ __align__(16) uint16_t columns[8][16];
	int lane = threadIdx.x;
	uint32_t ra[4];
	uint32_t rb[2];
	float d[4];
	int g = lane / 4;
	int t = lane % 4;

	for (int i = lane; i < 256; i += 32)
		rows[i / 16][i % 16] = a[i];
	for (int i = lane; i < 128; i += 32)
		columns[i / 16][i % 16] = b[i];
	__syncwarp();
	uint32_t at = (uint32_t)__cvta_generic_to_shared(&rows[lane % 16][lane / 16 * 8]);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
		     : "r"(at));
	at = (uint32_t)__cvta_generic_to_shared(&columns[lane % 8][lane / 8 % 2 * 8]);
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "r"(at));
	d[0] = c[g * 8 + t * 2];
	d[1] = c[g * 8 + t * 2 + 1];
	d[2] = c[(g + 8) * 8 + t * 2];
	d[3] = c[(g + 8) * 8 + t * 2 + 1];
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
	c[g * 8 + t * 2] = d[0];
	c[g * 8 + t * 2 + 1] = d[1];
	c[(g + 8) * 8 + t * 2] = d[2];
	c[(g + 8) * 8 + t * 2 + 1] = d[3];
}

extern "C" __global__ void mma_bytes(const int8_t *a, const int8_t *b, int *c)
{
	int lane = threadIdx.x;
	int g = lane / 4;
	int t = lane % 4;
	uint32_t ra[4];
	uint32_t rb[2];
	int d[4];

	for (int i = 0; i < 4; i++)
		ra[i] = *(const uint32_t *)&a[(g + (i & 1) * 8) * 32 + t * 4 + i / 2 * 16];
	for (int i = 0; i < 2; i++)
		rb[i] = *(const uint32_t *)&b[g * 32 + t * 4 + i * 16];
	for (int i = 0; i < 4; i++)
		d[i] = c[(g + i / 2 * 8) * 8 + t * 2 + i % 2];
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
	for (int i = 0; i < 4; i++)
		c[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}

extern "C" __global__ void mma_double(const double *a, const double *b, double *c)
{
	int lane = threadIdx.x;
	int g = lane / 4;
	int t = lane % 4;
	double d0 = c[g * 8 + t * 2];
	double d1 = c[g * 8 + t * 2 + 1];

	asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
		     : "+d"(d0), "+d"(d1)
		     : "d"(a[g * 4 + t]), "d"(b[g * 4 + t]));
	c[g * 8 + t * 2] = d0;
	c[g * 8 + t * 2 + 1] = d1;
}

// Transposed by loading.
extern "C" __global__ void transpose_load(const uint16_t *in, uint32_t *out)
{
	__shared__ __align__(16) uint16_t rows[8][8];
	int lane = threadIdx.x;
	uint32_t r;

	rows[lane / 4][lane % 4 * 2] = in[lane * 2];
	rows[lane / 4][lane % 4 * 2 + 1] = in[lane * 2 + 1];
	__syncwarp();
	uint32_t at = (uint32_t)__cvta_generic_to_shared(&rows[lane % 8][0]);

	asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at));
	out[lane] = r;
}

#include <mma.h>

// c = a * b for one tile of 16 x 16, b by columns.
extern "C" __global__ void wmma_tile(const __half *a, const __half *b, float *c, int stride)
{
	using namespace nvcuda;
	wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;

	wmma::fill_fragment(fc, 1.0f);
	wmma::load_matrix_sync(fa, a, stride);
	wmma::load_matrix_sync(fb, b, 16);
	wmma::mma_sync(fc, fa, fb, fc);
	for (int i = 0; i < fc.num_elements; i++)
		fc.x[i] *= 2.0f;
	wmma::store_matrix_sync(c, fc, stride, wmma::mem_row_major);
}
