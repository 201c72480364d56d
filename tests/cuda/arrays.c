// SPDX-License-Identifier: Apache-2.0
/*
 * Arrays of every shape: what they tell of themselves, copies of lines, rows and boxes between them, host and device
 * memory, in order with other work; mipmapped arrays; what is refused.
 */
#include "tests/cuda/prog.h"

#define cuMemcpy2D cuMemcpy2D_v2
#define cuMemcpy2DAsync cuMemcpy2DAsync_v2
#define cuMemcpy3D cuMemcpy3D_v2
#define cuMemcpy3DAsync cuMemcpy3DAsync_v2

static CUfunction spin, fill;

static void pattern(void *bytes, size_t size, uint32_t seed)
{
	uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		at[i] = (uint8_t)(prog_random(&seed) >> 3);
}

static CUarray array_new(size_t width, size_t height, size_t depth, CUarray_format format, unsigned int channels,
			 unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { width, height, depth, format, channels, flags };
	CUarray array;

	MUST(cuArray3DCreate_v2(&array, &desc));
	return array;
}

/* ---- what an array is ---- */

static void descriptor_check(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = { 100, 30, CU_AD_FORMAT_HALF, 2 }, flat_told = { 0 };
	CUDA_ARRAY3D_DESCRIPTOR box = { 20, 10, 6, CU_AD_FORMAT_SIGNED_INT16, 4, CUDA_ARRAY3D_SURFACE_LDST };
	CUDA_ARRAY3D_DESCRIPTOR told = { 0 };
	CUDA_ARRAY_DESCRIPTOR_v1 old = { 64, 0, CU_AD_FORMAT_FLOAT, 1 }, old_told = { 0 };
	CUDA_ARRAY3D_DESCRIPTOR_v1 old_box = { 8, 4, 2, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0 }, old_box_told = { 0 };
	CUDA_ARRAY_SPARSE_PROPERTIES sparse;
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUarray array, plane;

	MUST(cuArrayCreate_v2(&array, &flat));
	MUST(cuArrayGetDescriptor_v2(&flat_told, array));
	CHECK(flat_told.Width == 100 && flat_told.Height == 30 && flat_told.Format == CU_AD_FORMAT_HALF &&
		      flat_told.NumChannels == 2, "rows: %zu x %zu", flat_told.Width, flat_told.Height);
	MUST(cuArray3DGetDescriptor_v2(&told, array));
	CHECK(told.Width == 100 && told.Height == 30 && !told.Depth && !told.Flags, "rows as a box: depth %zu", told.Depth);
	EXPECT(cuArrayGetSparseProperties(&sparse, array), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuArrayGetMemoryRequirements(&need, array, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuArrayDestroy(array), CUDA_SUCCESS);
	if (prog_on_gleam()) {
		EXPECT(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuArray3DGetDescriptor_v2(&told, array), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuArrayDestroy((CUarray)(uintptr_t)0x1230), CUDA_ERROR_INVALID_HANDLE);
	}
	MUST(cuArray3DCreate_v2(&array, &box));
	MUST(cuArray3DGetDescriptor_v2(&told, array));
	CHECK(!memcmp(&told, &box, sizeof(box)), "a box: %zu x %zu x %zu, flags %#x", told.Width, told.Height, told.Depth,
	      told.Flags);
	MUST(cuArrayDestroy(array));

	/* Natively the first API's calls want a context of the first API: 201. */
	if (!prog_on_gleam())
		return;
	MUST(cuArrayCreate(&array, &old));
	MUST(cuArrayGetDescriptor(&old_told, array));
	CHECK(old_told.Width == 64 && !old_told.Height && old_told.Format == CU_AD_FORMAT_FLOAT, "the first API's array");
	MUST(cuArrayDestroy(array));
	MUST(cuArray3DCreate(&array, &old_box));
	MUST(cuArray3DGetDescriptor(&old_box_told, array));
	CHECK(!memcmp(&old_box_told, &old_box, sizeof(old_box)), "the first API's box");
	MUST(cuArrayDestroy(array));
}

static void refused(const char *what, size_t width, size_t height, size_t depth, int format, unsigned int channels,
		    unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { width, height, depth, (CUarray_format)format, channels, flags };
	CUarray array = NULL;
	CUresult result = cuArray3DCreate_v2(&array, &desc);

	CHECK(result == CUDA_ERROR_INVALID_VALUE, "an array with %s: %d", what, (int)result);
	if (!result)
		cuArrayDestroy(array);
}

static void limits_check(CUdevice device)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0 };
	int width, height;
	CUarray array;

	MUST(cuDeviceGetAttribute(&width, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, device));
	MUST(cuDeviceGetAttribute(&height, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, device));
	refused("no width", 0, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0);
	refused("three channels", 16, 16, 0, CU_AD_FORMAT_FLOAT, 3, 0);
	refused("no channel", 16, 16, 0, CU_AD_FORMAT_FLOAT, 0, 0);
	refused("a format that is none", 16, 16, 0, 0x77777, 1, 0);
	refused("too wide rows", (size_t)width + 1, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
	refused("too many rows", 16, (size_t)height + 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0);
	refused("layers but no number of them", 16, 16, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
	refused("a cube of five sides", 16, 16, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
	refused("a cube that is none", 16, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
	EXPECT(cuArray3DCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuArray3DCreate_v2(NULL, &desc), CUDA_ERROR_INVALID_VALUE);
}

/* ---- lines ---- */

static void lines_check(CUstream stream)
{
	enum { COUNT = 5000, SIZE = COUNT * 4 };
	CUarray a = array_new(COUNT, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	CUarray b = array_new(COUNT, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	uint8_t *from = malloc(SIZE), *to = malloc(SIZE), *pinned;
	CUdeviceptr device;

	MUST(cuMemAlloc(&device, SIZE));
	MUST(cuMemAllocHost((void **)&pinned, SIZE));
	pattern(from, SIZE, 1);
	MUST(cuMemcpyHtoA_v2(a, 0, from, SIZE));
	memset(to, 0, SIZE);
	MUST(cuMemcpyAtoH_v2(to, a, 0, SIZE));
	CHECK(!memcmp(from, to, SIZE), "a line to an array and back");
	MUST(cuMemcpyAtoA_v2(b, 400, a, 0, SIZE - 400));
	MUST(cuMemcpyAtoH_v2(to, b, 400, SIZE - 400));
	CHECK(!memcmp(from, to, SIZE - 400), "a line from array to array");
	MUST(cuMemcpyAtoD_v2(device, a, 800, 1200));
	MUST(cuMemcpyDtoH(to, device, 1200));
	CHECK(!memcmp(from + 800, to, 1200), "a line to device memory");
	MUST(cuMemcpyHtoD(device, from, SIZE));
	MUST(cuMemcpyDtoA_v2(b, 0, device, SIZE));
	memset(to, 0, SIZE);
	MUST(cuMemcpyAtoH(to, b, 0, SIZE));
	CHECK(!memcmp(from, to, SIZE), "a line from device memory");

	/* asynchronous: a pageable source is free when the call returns, page-locked bytes come later */
	memcpy(to, from, SIZE);
	MUST(cuMemcpyHtoAAsync_v2(a, 0, to, SIZE, stream));
	memset(to, 0xee, SIZE);
	MUST(cuMemcpyAtoHAsync_v2(pinned, a, 0, SIZE, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(!memcmp(from, pinned, SIZE), "lines there and back in stream order");
	pattern(pinned, SIZE, 2);
	MUST(cuMemcpyHtoAAsync(b, 0, pinned, SIZE, stream));
	MUST(cuMemcpyAtoHAsync(to, b, 0, SIZE, stream));
	CHECK(!memcmp(pinned, to, SIZE), "pageable memory is there when the call returns");
	MUST(cuMemcpyAtoA(a, 0, b, 0, SIZE));
	MUST(cuMemcpyHtoA(a, 0, pinned, 4));
	MUST(cuMemcpyAtoH_v2(to, a, 0, SIZE));
	CHECK(!memcmp(pinned, to, SIZE), "the first API's lines");

	EXPECT(cuMemcpyHtoA_v2(a, 4, from, SIZE), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyAtoH_v2(to, a, SIZE, 4), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemcpyHtoA_v2(a, 0, from, 0), CUDA_SUCCESS);
	MUST(cuMemFreeHost(pinned));
	MUST(cuMemFree(device));
	MUST(cuArrayDestroy(a));
	MUST(cuArrayDestroy(b));
	free(from);
	free(to);
}

/* ---- rows ---- */

static void rows_one(size_t width, size_t height, CUarray_format format, unsigned int channels, size_t element,
		     bool page_locked)
{
	size_t row = width * element, pitch = row + 3 * element, size = pitch * height;
	CUarray array = array_new(width, height, 0, format, channels, 0);
	CUDA_MEMCPY2D copy = { 0 };
	uint8_t *from, *to;
	size_t wrong = 0;

	if (page_locked) {
		MUST(cuMemAllocHost((void **)&from, size));
		MUST(cuMemAllocHost((void **)&to, size));
	} else {
		from = malloc(size);
		to = malloc(size);
	}
	pattern(from, size, (uint32_t)size);
	memset(to, 0xa5, size);
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = from;
	copy.srcPitch = pitch;
	copy.srcXInBytes = element;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = array;
	copy.WidthInBytes = row;
	copy.Height = height;
	MUST(cuMemcpy2D(&copy));
	/* a window of it over another place */
	copy.dstXInBytes = element;
	copy.dstY = 1;
	copy.WidthInBytes = row - element;
	copy.Height = height - 1;
	MUST(cuMemcpy2DUnaligned_v2(&copy));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = array;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = to;
	copy.dstPitch = pitch;
	copy.WidthInBytes = row;
	copy.Height = height;
	MUST(cuMemcpy2D(&copy));
	for (size_t y = 0; y < height; y++) {
		const uint8_t *got = to + y * pitch, *first = from + y * pitch + element;

		if (!y) {
			wrong += memcmp(got, first, row) != 0;
		} else {
			wrong += memcmp(got, first, element) != 0;
			wrong += memcmp(got + element, first - pitch, row - element) != 0;
		}
		for (size_t x = row; x < pitch; x++)
			wrong += got[x] != 0xa5;
	}
	CHECK(!wrong, "%zu of %zu rows of %zu bytes, %s memory", wrong, height, row, page_locked ? "page-locked" : "pageable");
	copy.srcXInBytes = element;
	EXPECT(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
	copy.srcXInBytes = 0;
	copy.srcY = 1;
	EXPECT(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE);
	MUST(cuArrayDestroy(array));
	if (page_locked) {
		MUST(cuMemFreeHost(from));
		MUST(cuMemFreeHost(to));
	} else {
		free(from);
		free(to);
	}
}

static void rows_check(void)
{
	rows_one(33, 17, CU_AD_FORMAT_UNSIGNED_INT8, 1, 1, false);
	rows_one(100, 50, CU_AD_FORMAT_SIGNED_INT16, 2, 4, true);
	rows_one(1919, 1081, CU_AD_FORMAT_UNSIGNED_INT8, 4, 4, false);
	rows_one(1000, 700, CU_AD_FORMAT_FLOAT, 4, 16, true);
	/* rows of more than a MiB */
	rows_one(131072, 3, CU_AD_FORMAT_FLOAT, 4, 16, false);
	rows_one(70001, 3, CU_AD_FORMAT_UNSIGNED_INT32, 4, 16, true);
}

/* Rows of an array, a device and the first API's forms, in stream order behind a kernel. */
static void order_check(CUstream stream)
{
	enum { WIDTH = 512, HEIGHT = 300, SIZE = WIDTH * HEIGHT * 4 };
	CUarray a = array_new(WIDTH, HEIGHT, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	CUarray b = array_new(WIDTH, HEIGHT, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
	unsigned long long ns = 200000000ull, count = WIDTH * HEIGHT;
	unsigned int value = 0x01020304;
	CUdeviceptr device;
	CUDA_MEMCPY2D copy = { 0 };
	CUDA_MEMCPY2D_v1 old = { 0 };
	uint32_t *pinned, wrong = 0;
	uint32_t *pageable = malloc(SIZE);
	void *spin_params[] = { &ns }, *fill_params[] = { &device, &value, &count };
	double start;

	MUST(cuMemAlloc(&device, SIZE));
	MUST(cuMemAllocHost((void **)&pinned, SIZE));
	memset(pinned, 0, SIZE);
	MUST(cuMemsetD8(device, 0, SIZE));
	MUST(cuCtxSynchronize());
	start = prog_seconds();
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_params, NULL));
	MUST(cuLaunchKernel(fill, 8, 1, 1, 128, 1, 1, 0, stream, fill_params, NULL));
	copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = device;
	copy.srcPitch = WIDTH * 4;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = a;
	copy.WidthInBytes = WIDTH * 4;
	copy.Height = HEIGHT;
	MUST(cuMemcpy2DAsync(&copy, stream));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = a;
	copy.dstArray = b;
	MUST(cuMemcpy2DAsync(&copy, stream));
	copy.srcArray = b;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = pinned;
	copy.dstPitch = WIDTH * 4;
	MUST(cuMemcpy2DAsync(&copy, stream));
	CHECK(prog_seconds() - start < 0.19, "asynchronous copies of arrays waited %.3f s", prog_seconds() - start);
	EXPECT(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	MUST(cuStreamSynchronize(stream));
	for (int i = 0; i < WIDTH * HEIGHT; i++)
		wrong += pinned[i] != value;
	CHECK(!wrong, "%u words after device, array, array and page-locked memory", wrong);

	/* an array is there as long as its work is */
	pattern(pinned, SIZE, 5);
	MUST(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, spin_params, NULL));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = pinned;
	copy.srcPitch = WIDTH * 4;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = a;
	copy.WidthInBytes = WIDTH * 4;
	copy.Height = HEIGHT;
	MUST(cuMemcpy2DAsync(&copy, stream));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = a;
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.dstDevice = device;
	copy.dstPitch = WIDTH * 4;
	copy.WidthInBytes = WIDTH * 4;
	copy.Height = HEIGHT;
	MUST(cuMemcpy2DAsync(&copy, stream));
	EXPECT(cuArrayDestroy(a), CUDA_SUCCESS);
	MUST(cuStreamSynchronize(stream));
	MUST(cuMemcpyDtoH(pageable, device, SIZE));
	CHECK(!memcmp(pinned, pageable, SIZE), "what went through an array that was destroyed behind it");

	old.srcMemoryType = CU_MEMORYTYPE_HOST;
	old.srcHost = pinned;
	old.srcPitch = WIDTH * 4;
	old.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	old.dstArray = b;
	old.WidthInBytes = WIDTH * 4;
	old.Height = HEIGHT;
	MUST(cuMemcpy2D_v2(&(CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = device,
					     .srcPitch = WIDTH * 4, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = b,
					     .WidthInBytes = 4, .Height = 1 }));
#undef cuMemcpy2D
#undef cuMemcpy2DAsync
	MUST(cuMemcpy2D(&old));
	memset(pageable, 0, SIZE);
	old.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	old.srcArray = b;
	old.dstMemoryType = CU_MEMORYTYPE_HOST;
	old.dstHost = pageable;
	old.dstPitch = WIDTH * 4;
	MUST(cuMemcpy2DAsync(&old, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(!memcmp(pinned, pageable, SIZE), "the first API's rows");
	MUST(cuMemFreeHost(pinned));
	MUST(cuMemFree(device));
	MUST(cuArrayDestroy(b));
	free(pageable);
}

/* ---- boxes ---- */

struct shape {
	const char *name;
	size_t width, height, depth;
	unsigned int flags;
};

/* A box within the array to and from host memory with gaps, over the device, and between arrays. */
static void box_one(const struct shape *s, CUcontext context)
{
	enum { ELEMENT = 8 };
	size_t rows = s->height ? s->height : 1;
	/* Layers of lines follow each other at once: an H200's driver does not look at the height that is named for them. */
	size_t pitch = (s->width + 2) * ELEMENT, height = s->height || s->depth < 2 ? rows + 1 : 1, size = pitch * height * s->depth;
	CUarray a = array_new(s->width, s->height, s->depth, CU_AD_FORMAT_SIGNED_INT32, 2, s->flags);
	CUarray b = array_new(s->width, s->height, s->depth, CU_AD_FORMAT_SIGNED_INT32, 2, s->flags);
	uint8_t *from = malloc(size), *to = malloc(size), *want = malloc(size);
	CUDA_MEMCPY3D copy = { 0 };
	CUDA_MEMCPY3D_PEER peer;
	CUdeviceptr device;

	pattern(from, size, (uint32_t)size);
	MUST(cuMemAlloc(&device, size));
	MUST(cuMemsetD8(device, 0x5a, size));
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = from;
	copy.srcPitch = pitch;
	copy.srcHeight = height;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = a;
	copy.WidthInBytes = s->width * ELEMENT;
	copy.Height = rows;
	copy.Depth = s->depth;
	MUST(cuMemcpy3D(&copy));

	/* a to b, without the first element, row and slice where there is more than one */
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = a;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = b;
	copy.WidthInBytes = s->width * ELEMENT;
	copy.Height = rows;
	copy.Depth = s->depth;
	MUST(cuMemcpy3D(&copy));
	copy.srcXInBytes = ELEMENT;
	copy.srcY = rows > 1;
	copy.srcZ = 1;
	copy.WidthInBytes -= ELEMENT;
	copy.Height -= rows > 1;
	copy.Depth--;
	memcpy(&peer, &copy, sizeof(peer));
	peer.srcContext = context;
	peer.dstContext = context;
	MUST(cuMemcpy3DPeer(&peer));

	/* b to the device and from there to the host */
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = b;
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.dstDevice = device;
	copy.dstPitch = pitch;
	copy.dstHeight = height;
	copy.WidthInBytes = s->width * ELEMENT;
	copy.Height = rows;
	copy.Depth = s->depth;
	MUST(cuMemcpy3D(&copy));
	MUST(cuMemcpyDtoH(to, device, size));
	memset(want, 0x5a, size);
	for (size_t z = 0; z < s->depth; z++)
		for (size_t y = 0; y < rows; y++)
			for (size_t x = 0; x < s->width; x++) {
				/* the second copy reads one further */
				bool moved = z < s->depth - 1 && y < rows - (rows > 1) && x < s->width - 1;
				size_t at = moved ? ((z + 1) * height + y + (rows > 1)) * pitch + (x + 1) * ELEMENT :
						    (z * height + y) * pitch + x * ELEMENT;

				memcpy(want + (z * height + y) * pitch + x * ELEMENT, from + at, ELEMENT);
			}
	for (size_t i = 0; i < size; i++)
		if (want[i] != to[i]) {
			printf("%s: first at byte %zu (layer %zu, row %zu, byte %zu): %#x, not %#x\n", s->name, i, i / pitch / height,
			       i / pitch % height, i % pitch, to[i], want[i]);
			break;
		}
	CHECK(!memcmp(want, to, size), "%s: host, array, array, device", s->name);

	/* straight to the host, tight */
	memset(to, 0, size);
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = to;
	copy.dstPitch = s->width * ELEMENT;
	copy.dstHeight = rows;
	MUST(cuMemcpy3D(&copy));
	size_t wrong = 0;

	for (size_t z = 0; z < s->depth; z++)
		for (size_t y = 0; y < rows; y++)
			wrong += memcmp(to + (z * rows + y) * s->width * ELEMENT, want + (z * height + y) * pitch,
					s->width * ELEMENT) != 0;
	CHECK(!wrong, "%s: %zu rows straight to the host", s->name, wrong);
	copy.srcZ = 1;
	EXPECT(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
	copy.srcZ = 0;
	copy.Depth = 0;
	EXPECT(cuMemcpy3D(&copy), CUDA_SUCCESS);
	MUST(cuMemFree(device));
	MUST(cuArrayDestroy(a));
	MUST(cuArrayDestroy(b));
	free(from);
	free(to);
	free(want);
}

static void boxes_check(CUcontext context, CUstream stream)
{
	static const struct shape shapes[] = {
		{ "a box", 50, 20, 9, 0 },
		{ "a large box", 300, 200, 24, 0 },
		{ "layers of lines", 77, 0, 12, CUDA_ARRAY3D_LAYERED },
		{ "layers", 64, 33, 5, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST },
		{ "a cube", 32, 32, 6, CUDA_ARRAY3D_CUBEMAP },
		{ "two cubes", 16, 16, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED },
	};
	CUDA_MEMCPY3D_v1 old = { 0 };
	uint16_t from[4][3][8], to[4][3][8];
	CUarray array;

	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		box_one(&shapes[i], context);
	array = array_new(8, 3, 4, CU_AD_FORMAT_HALF, 1, 0);
	pattern(from, sizeof(from), 8);
	memset(to, 0, sizeof(to));
	old.srcMemoryType = CU_MEMORYTYPE_HOST;
	old.srcHost = from;
	old.srcPitch = 16;
	old.srcHeight = 3;
	old.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	old.dstArray = array;
	old.WidthInBytes = 16;
	old.Height = 3;
	old.Depth = 4;
#undef cuMemcpy3D
#undef cuMemcpy3DAsync
	/* A driver of NVIDIA's knows contexts of the first API alone there. */
	if (cuMemcpy3D(&old) == CUDA_ERROR_INVALID_CONTEXT && !prog_on_gleam()) {
		MUST(cuArrayDestroy(array));
		return;
	}
	old.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	old.srcArray = array;
	old.dstMemoryType = CU_MEMORYTYPE_HOST;
	old.dstHost = to;
	old.dstPitch = 16;
	old.dstHeight = 3;
	MUST(cuMemcpy3DAsync(&old, stream));
	MUST(cuStreamSynchronize(stream));
	CHECK(!memcmp(from, to, sizeof(from)), "the first API's box");
	MUST(cuArrayDestroy(array));
}

/* ---- mipmapped arrays ---- */

static void mipmap_check(void)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 40, 24, 0, CU_AD_FORMAT_FLOAT, 1, 0 }, told;
	CUDA_ARRAY_SPARSE_PROPERTIES sparse;
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	CUmipmappedArray mipmap;
	CUarray level, again;
	float from[24][40], to[24][40];
	int wrong = 0;

	MUST(cuMipmappedArrayCreate(&mipmap, &desc, 100)); /* as many as there can be: 40, 20, 10, 5, 2, 1 */
	for (unsigned int i = 0; i < 6; i++) {
		size_t width = 40u >> i, height = 24u >> i ? 24u >> i : 1;
		CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = sizeof(from[0]),
				       .dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = width * 4,
				       .Height = height };

		MUST(cuMipmappedArrayGetLevel(&level, mipmap, i));
		MUST(cuArray3DGetDescriptor_v2(&told, level));
		CHECK(told.Width == width && told.Height == height && !told.Depth && told.Format == CU_AD_FORMAT_FLOAT,
		      "level %u is %zu x %zu", i, told.Width, told.Height);
		for (int k = 0; k < 24 * 40; k++)
			from[k / 40][k % 40] = (float)(k + 1000 * (int)i);
		copy.dstArray = level;
		MUST(cuMemcpy2D_v2(&copy));
	}
	for (unsigned int i = 0; i < 6; i++) {
		size_t width = 40u >> i, height = 24u >> i ? 24u >> i : 1;
		CUDA_MEMCPY2D copy = { .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = sizeof(to[0]),
				       .srcMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = width * 4,
				       .Height = height };

		MUST(cuMipmappedArrayGetLevel(&again, mipmap, i));
		copy.srcArray = again;
		MUST(cuMemcpy2D_v2(&copy));
		for (size_t y = 0; y < height; y++)
			for (size_t x = 0; x < width; x++)
				wrong += to[y][x] != (float)(y * 40 + x + 1000 * i);
	}
	CHECK(!wrong, "%d elements of levels", wrong);
	EXPECT(cuMipmappedArrayGetLevel(&level, mipmap, 6), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMipmappedArrayGetSparseProperties(&sparse, mipmap), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMipmappedArrayGetMemoryRequirements(&need, mipmap, 0), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMipmappedArrayDestroy(mipmap));
	if (prog_on_gleam()) {
		EXPECT(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuArray3DGetDescriptor_v2(&told, again), CUDA_ERROR_INVALID_HANDLE);
	}

	/* a box gets flatter too, layers do not */
	desc = (CUDA_ARRAY3D_DESCRIPTOR){ 16, 8, 4, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0 };
	MUST(cuMipmappedArrayCreate(&mipmap, &desc, 3));
	MUST(cuMipmappedArrayGetLevel(&level, mipmap, 2));
	MUST(cuArray3DGetDescriptor_v2(&told, level));
	CHECK(told.Width == 4 && told.Height == 2 && told.Depth == 1, "a box's level: %zu x %zu x %zu", told.Width,
	      told.Height, told.Depth);
	EXPECT(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMipmappedArrayDestroy(mipmap));
	desc.Flags = CUDA_ARRAY3D_LAYERED;
	MUST(cuMipmappedArrayCreate(&mipmap, &desc, 2));
	MUST(cuMipmappedArrayGetLevel(&level, mipmap, 1));
	MUST(cuArray3DGetDescriptor_v2(&told, level));
	CHECK(told.Width == 8 && told.Height == 4 && told.Depth == 4, "a layered level: %zu x %zu x %zu", told.Width,
	      told.Height, told.Depth);
	MUST(cuMipmappedArrayDestroy(mipmap));
}

/* Arrays end with their context; so many that they would not fit otherwise is for the device to say. */
static void context_check(CUdevice device, CUcontext primary)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 64, 64, 0, CU_AD_FORMAT_FLOAT, 4, 0 }, told;
	CUcontext context;
	CUmipmappedArray mipmap;
	CUarray array, level;

	MUST(cuCtxCreate_v2(&context, 0, device));
	MUST(cuArray3DCreate_v2(&array, &desc));
	MUST(cuMipmappedArrayCreate(&mipmap, &desc, 3));
	MUST(cuMipmappedArrayGetLevel(&level, mipmap, 1));
	MUST(cuCtxDestroy(context));
	MUST(cuCtxSetCurrent(primary));
	if (prog_on_gleam()) {
		EXPECT(cuArray3DGetDescriptor_v2(&told, array), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuArray3DGetDescriptor_v2(&told, level), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuMipmappedArrayDestroy(mipmap), CUDA_ERROR_INVALID_HANDLE);
	}
}

/* The device's own context ends and begins again: what was in it is gone, and new arrays work. */
static void reset_check(CUdevice device)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = { 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST }, told;
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY };
	CUDA_TEXTURE_DESC how = { .filterMode = CU_TR_FILTER_MODE_POINT };
	uint32_t from[16], to[16] = { 0 };
	CUmipmappedArray mipmap;
	CUcontext context;
	CUarray array, level;
	CUtexObject texture;
	CUsurfObject surface;

	for (int turn = 0; turn < 3; turn++) {
		MUST(cuArray3DCreate_v2(&array, &desc));
		MUST(cuMipmappedArrayCreate(&mipmap, &desc, 4));
		MUST(cuMipmappedArrayGetLevel(&level, mipmap, 2));
		resource.res.array.hArray = array;
		MUST(cuTexObjectCreate(&texture, &resource, &how, NULL));
		MUST(cuSurfObjectCreate(&surface, &resource));
		MUST(cuDevicePrimaryCtxReset(device));
		MUST(cuDevicePrimaryCtxRetain(&context, device));
		MUST(cuCtxSetCurrent(context));
		if (prog_on_gleam()) {
			EXPECT(cuArray3DGetDescriptor_v2(&told, array), CUDA_ERROR_INVALID_HANDLE);
			EXPECT(cuArray3DGetDescriptor_v2(&told, level), CUDA_ERROR_INVALID_HANDLE);
			EXPECT(cuTexObjectGetTextureDesc(&how, texture), CUDA_ERROR_INVALID_VALUE);
			EXPECT(cuSurfObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
		}
		array = array_new(16, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0);
		pattern(from, sizeof(from), (uint32_t)turn);
		MUST(cuMemcpyHtoA_v2(array, 0, from, sizeof(from)));
		MUST(cuMemcpyAtoH_v2(to, array, 0, sizeof(to)));
		CHECK(!memcmp(from, to, sizeof(from)), "an array after reset %d", turn + 1);
		MUST(cuArrayDestroy(array));
	}
}

int main(void)
{
	CUcontext context;
	CUdevice device;
	CUstream stream;
	CUmodule module;

	context = prog_context(&device);
	module = prog_module("util");
	MUST(cuModuleGetFunction(&spin, module, "spin"));
	MUST(cuModuleGetFunction(&fill, module, "fill"));
	MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	descriptor_check();
	limits_check(device);
	/* These have the first API's calls among them, which natively want a context of the first API. */
	if (prog_on_gleam()) {
		lines_check(stream);
		rows_check();
		order_check(stream);
	}
	boxes_check(context, stream);
	mipmap_check();
	context_check(device, context);
	MUST(cuStreamDestroy(stream));
	reset_check(device);
	return prog_end();
}
