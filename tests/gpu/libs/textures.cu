// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects of the runtime API: arrays with linear and with nearest filtering, pitched and linear
// memory, bytes read as fractions, layers, and a surface that a kernel writes.
#include "lib.h"

__global__ void sample2d(cudaTextureObject_t texture, float *out, int w, int h, float dx, float dy, float sx, float sy)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < w && y < h)
		out[y * w + x] = tex2D<float>(texture, (x + dx) * sx, (y + dy) * sy);
}

__global__ void fetch1d(cudaTextureObject_t texture, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		float4 v = tex1Dfetch<float4>(texture, n - 1 - i);

		out[i] = v.x + 2 * v.y + 4 * v.z + 8 * v.w;
	}
}

__global__ void sample_layer(cudaTextureObject_t texture, float *out, int w, int h, int layers)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < w * h * layers)
		out[i] = tex2DLayered<float>(texture, i % w + 0.5f, i / w % h + 0.5f, i / (w * h));
}

__global__ void paint(cudaSurfaceObject_t surface, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < w && y < h) {
		float old = 0;

		surf2Dread(&old, surface, x * 4, y);
		surf2Dwrite(old * 2 + x - y, surface, x * 4, y);
	}
}

static const int w = 96, h = 64;
static const dim3 block(16, 16), grid(w / 16, h / 16);

static std::vector<float> image() { return random_floats(w * h, 3); }

static cudaTextureObject_t texture_of(const cudaResourceDesc &resource, cudaTextureFilterMode filter, cudaTextureAddressMode mode,
				      bool normalized, cudaTextureReadMode read = cudaReadModeElementType)
{
	cudaTextureDesc description = {};
	cudaTextureObject_t texture = 0;

	description.addressMode[0] = description.addressMode[1] = mode;
	description.filterMode = filter;
	description.readMode = read;
	description.normalizedCoords = normalized;
	MUST(cudaCreateTextureObject(&texture, &resource, &description, NULL));
	return texture;
}

// Between four texels, with weights of eight bits.
static std::vector<double> between(const std::vector<float> &in, double dx, double dy)
{
	std::vector<double> out(w * h);
	auto at = [&in](int x, int y) {
		x = x < 0 ? 0 : x >= w ? w - 1 : x;
		y = y < 0 ? 0 : y >= h ? h - 1 : y;
		return (double)in[y * w + x];
	};

	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++) {
			double px = x + dx - 0.5, py = y + dy - 0.5;
			int ix = (int)std::floor(px), iy = (int)std::floor(py);
			double fx = px - ix, fy = py - iy;

			out[y * w + x] = (1 - fx) * (1 - fy) * at(ix, iy) + fx * (1 - fy) * at(ix + 1, iy) +
					 (1 - fx) * fy * at(ix, iy + 1) + fx * fy * at(ix + 1, iy + 1);
		}
	return out;
}

static void arrays()
{
	std::vector<float> in = image(), back(w * h);
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaResourceDesc resource = {}, described;
	cudaTextureObject_t texture;
	cudaSurfaceObject_t surface;
	Device<float> out(w * h);
	cudaExtent extent;
	unsigned flags;

	resource.resType = cudaResourceTypeArray;
	MUST(cudaMallocArray(&resource.res.array.array, &format, w, h, cudaArraySurfaceLoadStore));
	MUST(cudaArrayGetInfo(&format, &extent, &flags, resource.res.array.array));
	CHECK(extent.width == w && extent.height == h && format.x == 32 && format.f == cudaChannelFormatKindFloat, "what an array tells");
	MUST(cudaMemcpy2DToArray(resource.res.array.array, 0, 0, in.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
	/* Nearest, at the texels' middles: the image itself. */
	texture = texture_of(resource, cudaFilterModePoint, cudaAddressModeClamp, false);
	MUST(cudaGetTextureObjectResourceDesc(&described, texture));
	CHECK(described.resType == cudaResourceTypeArray && described.res.array.array == resource.res.array.array, "what a texture tells");
	sample2d<<<grid, block>>>(texture, out.at, w, h, 0.5f, 0.5f, 1, 1);
	MUST(cudaGetLastError());
	CHECK(out.get() == in, "nearest texels of an array");
	MUST(cudaDestroyTextureObject(texture));
	/* Linear, a quarter and three eighths aside, normalised. */
	texture = texture_of(resource, cudaFilterModeLinear, cudaAddressModeClamp, true);
	sample2d<<<grid, block>>>(texture, out.at, w, h, 0.75f, 0.875f, 1.0f / w, 1.0f / h);
	MUST(cudaGetLastError());
	CHECK_CLOSE(out.get(), between(in, 0.75, 0.875), 2.0 / 256, "linear filtering");
	MUST(cudaDestroyTextureObject(texture));
	MUST(cudaCreateSurfaceObject(&surface, &resource));
	paint<<<grid, block>>>(surface, w, h);
	MUST(cudaGetLastError());
	MUST(cudaMemcpy2DFromArray(back.data(), w * 4, resource.res.array.array, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
	for (int i = 0; i < w * h; i++)
		in[i] = in[i] * 2 + (float)(i % w - i / w);
	CHECK(back == in, "what a kernel wrote to a surface");
	result_add(back);
	MUST(cudaDestroySurfaceObject(surface));
	MUST(cudaFreeArray(resource.res.array.array));
}

static void memory()
{
	std::vector<float> in = image(), four = random_floats(4096, 9), sums(1024);
	std::vector<unsigned char> bytes(w * h);
	std::vector<double> fractions(w * h);
	Device<float> out(w * h), linear(four), small(1024);
	cudaResourceDesc resource = {};
	cudaTextureObject_t texture;
	size_t pitch;

	resource.resType = cudaResourceTypePitch2D;
	MUST(cudaMallocPitch(&resource.res.pitch2D.devPtr, &pitch, w * 4, h));
	resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
	resource.res.pitch2D.width = w;
	resource.res.pitch2D.height = h;
	resource.res.pitch2D.pitchInBytes = pitch;
	MUST(cudaMemcpy2D(resource.res.pitch2D.devPtr, pitch, in.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
	texture = texture_of(resource, cudaFilterModeLinear, cudaAddressModeClamp, false);
	sample2d<<<grid, block>>>(texture, out.at, w, h, 0.75f, 0.5f, 1, 1);
	MUST(cudaGetLastError());
	CHECK_CLOSE(out.get(), between(in, 0.75, 0.5), 2.0 / 256, "linear filtering of pitched memory");
	MUST(cudaDestroyTextureObject(texture));
	/* Bytes as fractions of 255. */
	for (int i = 0; i < w * h; i++) {
		bytes[i] = (unsigned char)(i * 7);
		fractions[i] = bytes[i] / 255.0;
	}
	MUST(cudaMemcpy2D(resource.res.pitch2D.devPtr, pitch, bytes.data(), w, w, h, cudaMemcpyHostToDevice));
	resource.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
	texture = texture_of(resource, cudaFilterModePoint, cudaAddressModeWrap, true, cudaReadModeNormalizedFloat);
	/* One image further on either axis. */
	sample2d<<<grid, block>>>(texture, out.at, w, h, 0.5f + w, 0.5f + h, 1.0f / w, 1.0f / h);
	MUST(cudaGetLastError());
	CHECK_CLOSE(out.get(), fractions, 1e-6, "bytes as fractions, wrapped");
	MUST(cudaDestroyTextureObject(texture));
	MUST(cudaFree(resource.res.pitch2D.devPtr));

	memset(&resource, 0, sizeof(resource));
	resource.resType = cudaResourceTypeLinear;
	resource.res.linear.devPtr = linear.at;
	resource.res.linear.desc = cudaCreateChannelDesc<float4>();
	resource.res.linear.sizeInBytes = four.size() * 4;
	texture = texture_of(resource, cudaFilterModePoint, cudaAddressModeClamp, false);
	fetch1d<<<4, 256>>>(texture, small.at, 1024);
	MUST(cudaGetLastError());
	for (int i = 0; i < 1024; i++) {
		const float *v = &four[(1023 - i) * 4];

		sums[i] = v[0] + 2 * v[1] + 4 * v[2] + 8 * v[3];
	}
	CHECK(small.get() == sums, "fetches from linear memory");
	MUST(cudaDestroyTextureObject(texture));
}

static void layers()
{
	const int count = 5, n = 16 * 8 * count;
	std::vector<float> in = random_floats(n, 11);
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaResourceDesc resource = {};
	cudaTextureObject_t texture;
	cudaMemcpy3DParms copy = {};
	Device<float> out(n);

	resource.resType = cudaResourceTypeArray;
	MUST(cudaMalloc3DArray(&resource.res.array.array, &format, make_cudaExtent(16, 8, count), cudaArrayLayered));
	copy.srcPtr = make_cudaPitchedPtr(in.data(), 16 * 4, 16, 8);
	copy.dstArray = resource.res.array.array;
	copy.extent = make_cudaExtent(16, 8, count);
	copy.kind = cudaMemcpyHostToDevice;
	MUST(cudaMemcpy3D(&copy));
	texture = texture_of(resource, cudaFilterModePoint, cudaAddressModeClamp, false);
	sample_layer<<<(n + 127) / 128, 128>>>(texture, out.at, 16, 8, count);
	MUST(cudaGetLastError());
	CHECK(out.get() == in, "texels of layers");
	MUST(cudaDestroyTextureObject(texture));
	MUST(cudaFreeArray(resource.res.array.array));
}

int main()
{
	lib_device();
	arrays();
	memory();
	layers();
	return lib_end();
}
