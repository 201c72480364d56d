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
