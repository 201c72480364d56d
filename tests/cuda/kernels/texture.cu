// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces by handle.
#include <cstdint>

extern "C" __global__ void fetch_2d(cudaTextureObject_t texture, float4 *out)
{
	int i = threadIdx.x;

	out[i] = tex2D<float4>(texture, i * 0.5f, i + 0.25f);
}

extern "C" __global__ void fetch_more(cudaTextureObject_t texture, float *out, int *integers)
{
	int i = threadIdx.x;

	out[i] = tex1Dfetch<float>(texture, i * 3) + tex3D<float>(texture, i, i + 1.0f, i + 2.0f) +
		 tex2DLayered<float>(texture, i, 2.0f * i, i % 5) + tex2DLod<float>(texture, i, 7.0f, 3.0f);
	integers[i] = tex1D<int>(texture, i + 0.5f);
}

extern "C" __global__ void surface_2d(cudaSurfaceObject_t in, cudaSurfaceObject_t out)
{
	int i = threadIdx.x;
	ushort4 v = surf2Dread<ushort4>(in, i * 8, 3);

	surf2Dwrite(make_uint2(v.x + v.y, v.z * 2 + v.w), out, i * 8, i, cudaBoundaryModeZero);
}

// One thread a point: what is sampled there, for comparison with plain C.

extern "C" __global__ void sample_1d(cudaTextureObject_t texture, const float *at, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex1D<float4>(texture, at[i]);
}

extern "C" __global__ void sample_2d(cudaTextureObject_t texture, const float2 *at, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2D<float4>(texture, at[i].x, at[i].y);
}

extern "C" __global__ void sample_2d_uint(cudaTextureObject_t texture, const float2 *at, uint4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2D<uint4>(texture, at[i].x, at[i].y);
}

extern "C" __global__ void sample_2d_int(cudaTextureObject_t texture, const float2 *at, int4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2D<int4>(texture, at[i].x, at[i].y);
}

extern "C" __global__ void sample_2d_level(cudaTextureObject_t texture, const float2 *at, float level, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2DLod<float4>(texture, at[i].x, at[i].y, level);
}

extern "C" __global__ void sample_3d(cudaTextureObject_t texture, const float4 *at, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex3D<float4>(texture, at[i].x, at[i].y, at[i].z);
}

extern "C" __global__ void sample_1d_layer(cudaTextureObject_t texture, const float *at, int layer, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex1DLayered<float4>(texture, at[i], layer);
}

extern "C" __global__ void sample_2d_layer(cudaTextureObject_t texture, const float2 *at, int layer, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2DLayered<float4>(texture, at[i].x, at[i].y, layer);
}

extern "C" __global__ void sample_cube(cudaTextureObject_t texture, const float4 *at, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = texCubemap<float4>(texture, at[i].x, at[i].y, at[i].z);
}

extern "C" __global__ void sample_cube_layer(cudaTextureObject_t texture, const float4 *at, int layer, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = texCubemapLayered<float4>(texture, at[i].x, at[i].y, at[i].z, layer);
}

extern "C" __global__ void gather_2d(cudaTextureObject_t texture, const float2 *at, float4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[4 * i] = tex2Dgather<float4>(texture, at[i].x, at[i].y, 0);
		out[4 * i + 1] = tex2Dgather<float4>(texture, at[i].x, at[i].y, 1);
		out[4 * i + 2] = tex2Dgather<float4>(texture, at[i].x, at[i].y, 2);
		out[4 * i + 3] = tex2Dgather<float4>(texture, at[i].x, at[i].y, 3);
	}
}

extern "C" __global__ void fetch_linear(cudaTextureObject_t texture, int first, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex1Dfetch<float>(texture, first + i);
}

extern "C" __global__ void fetch_linear_uint(cudaTextureObject_t texture, int first, uint4 *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex1Dfetch<uint4>(texture, first + i);
}

// Each element of a box of floats is read, changed by where it is, and written.

extern "C" __global__ void surface_add_1d(cudaSurfaceObject_t surface, int width)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x;

	if (x < width) {
		float v = surf1Dread<float>(surface, x * 4);

		surf1Dwrite(v + x, surface, x * 4);
	}
}

extern "C" __global__ void surface_add_3d(cudaSurfaceObject_t surface, int width, int height, int depth)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int x = i % width, y = i / width % height, z = i / width / height;

	if (z < depth) {
		float v = surf3Dread<float>(surface, x * 4, y, z);

		surf3Dwrite(v + x + 100 * y + 10000 * z, surface, x * 4, y, z);
	}
}

extern "C" __global__ void surface_add_layer(cudaSurfaceObject_t surface, int width, int height, int layer)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	int x = i % width, y = i / width;

	if (y < height) {
		float v = surf2DLayeredread<float>(surface, x * 4, y, layer);

		surf2DLayeredwrite(v + x + 100 * y + 10000 * layer, surface, x * 4, y, layer);
	}
}

// Reads around the edge of an 8 x 8 surface of shorts, outside of it too, and writes there as the mode says.
extern "C" __global__ void surface_edge(cudaSurfaceObject_t surface, unsigned short *clamped, unsigned short *zero)
{
	int x = (int)threadIdx.x - 2, y = (int)blockIdx.x - 2;
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	clamped[i] = surf2Dread<unsigned short>(surface, x * 2, y, cudaBoundaryModeClamp);
	zero[i] = surf2Dread<unsigned short>(surface, x * 2, y, cudaBoundaryModeZero);
}

extern "C" __global__ void surface_store_zero(cudaSurfaceObject_t surface)
{
	int x = (int)threadIdx.x - 2, y = (int)blockIdx.x - 2;

	surf2Dwrite((unsigned short)(1000 + 16 * y + x), surface, x * 2, y, cudaBoundaryModeZero);
}

extern "C" __global__ void surface_trap(cudaSurfaceObject_t surface)
{
	surf2Dwrite((unsigned short)1, surface, 2 * (int)threadIdx.x, 100);
}
