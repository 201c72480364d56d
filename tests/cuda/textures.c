// SPDX-License-Identifier: Apache-2.0
/*
 * Textures and surfaces: what kernels sample, read and write, compared with plain C. A GPU's filter counts with weights of
 * 8 bits and rounds in its own way, so what is filtered may differ by that; what is not must be equal.
 */
#include <math.h>

#include "tests/cuda/prog.h"

enum { POINTS = 700 };

struct point {
	float x, y, z, w;
};

static CUmodule module;

static CUfunction function(const char *name)
{
	CUfunction found;

	MUST(cuModuleGetFunction(&found, module, name));
	return found;
}

static void run(CUfunction f, unsigned int threads, void **params)
{
	MUST(cuLaunchKernel(f, (threads + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, params, NULL));
}

/* ---- pictures ---- */

enum kind { UINT8, SINT8, UINT16, SINT16, UINT32, SINT32, HALF, FLOAT };

static const struct format {
	CUarray_format format;
	size_t size;
} formats[] = {
	[UINT8] = { CU_AD_FORMAT_UNSIGNED_INT8, 1 },   [SINT8] = { CU_AD_FORMAT_SIGNED_INT8, 1 },
	[UINT16] = { CU_AD_FORMAT_UNSIGNED_INT16, 2 }, [SINT16] = { CU_AD_FORMAT_SIGNED_INT16, 2 },
	[UINT32] = { CU_AD_FORMAT_UNSIGNED_INT32, 4 }, [SINT32] = { CU_AD_FORMAT_SIGNED_INT32, 4 },
	[HALF] = { CU_AD_FORMAT_HALF, 2 },	       [FLOAT] = { CU_AD_FORMAT_FLOAT, 4 },
};

/* Texels as they lie in memory, and as numbers. */
struct picture {
	enum kind kind;
	unsigned int channels;
	int width, height, depth;
	uint8_t *bytes;
	double *value; /* channels each */
	CUarray array;
};

static double half_value(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double value = exponent ? ldexp((half & 1023) + 1024, exponent - 25) : ldexp(half & 1023, -24);

	return half & 0x8000 ? -value : value;
}

static double texel_value(enum kind kind, const uint8_t *at)
{
	uint16_t word;
	uint32_t wide;
	float real;

	memcpy(&word, at, formats[kind].size < 2 ? 1 : 2);
	memcpy(&wide, at, formats[kind].size < 4 ? 1 : 4);
	memcpy(&real, at, formats[kind].size < 4 ? 1 : 4);
	switch (kind) {
	case UINT8:
		return *at;
	case SINT8:
		return (int8_t)*at;
	case UINT16:
		return word;
	case SINT16:
		return (int16_t)word;
	case UINT32:
		return wide;
	case SINT32:
		return (int32_t)wide;
	case HALF:
		return half_value(word);
	default:
		return real;
	}
}

static struct picture picture_make(enum kind kind, unsigned int channels, int width, int height, int depth)
{
	struct picture p = { .kind = kind, .channels = channels, .width = width, .height = height, .depth = depth };
	size_t count = (size_t)width * (size_t)height * (size_t)depth * channels, size = formats[kind].size;
	uint32_t seed = (uint32_t)(width * 31 + height * 7 + depth + (int)kind);

	p.bytes = malloc(count * size);
	p.value = malloc(count * sizeof(double));
	for (size_t i = 0; i < count; i++) {
		uint32_t random = prog_random(&seed);

		if (kind == FLOAT) {
			float real = (float)random / 16777216.0f * 8 - 4;

			memcpy(p.bytes + i * size, &real, size);
		} else if (kind == HALF) {
			uint16_t half = (uint16_t)((random & 0x83ff) | (10 + random % 7) << 10);

			memcpy(p.bytes + i * size, &half, size);
		} else {
			random = random << 8 ^ random >> 5;
			memcpy(p.bytes + i * size, &random, size);
		}
		p.value[i] = texel_value(kind, p.bytes + i * size);
	}
	return p;
}

/* As an array with the same texels; @flags say what its depth is. Without height and depth: 1, and then not asked for. */
static void picture_array(struct picture *p, unsigned int flags, bool flat_height)
{
	size_t row = (size_t)p->width * p->channels * formats[p->kind].size;
	bool boxed = p->depth > 1 || flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	CUDA_ARRAY3D_DESCRIPTOR desc = { (size_t)p->width, flat_height ? 0 : (size_t)p->height, boxed ? (size_t)p->depth : 0,
					 formats[p->kind].format, p->channels, flags };
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = p->bytes, .srcPitch = row,
			       .srcHeight = (size_t)p->height, .dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = row,
			       .Height = (size_t)p->height, .Depth = (size_t)p->depth };

	MUST(cuArray3DCreate_v2(&p->array, &desc));
	copy.dstArray = p->array;
	MUST(cuMemcpy3D_v2(&copy));
}

static void picture_free(struct picture *p)
{
	if (p->array)
		MUST(cuArrayDestroy(p->array));
	free(p->bytes);
	free(p->value);
}

/* ---- plain C ---- */

struct how {
	CUaddress_mode mode;
	bool linear, normalized, as_integer;
	float border[4];
};

static bool reads_float(const struct picture *p, const struct how *how)
{
	return p->kind >= HALF || (!how->as_integer && p->kind < UINT32);
}

/* The texel's channel as a kernel reads it. */
static double read_texel(const struct picture *p, const struct how *how, int x, int y, int z, unsigned int channel)
{
	double value = p->value[(((size_t)z * (size_t)p->height + (size_t)y) * (size_t)p->width + (size_t)x) * p->channels +
				channel];

	if (how->as_integer || p->kind >= UINT32)
		return value;
	switch (p->kind) {
	case UINT8:
		return value / 255;
	case SINT8:
		return fmax(value / 127, -1);
	case UINT16:
		return value / 65535;
	default:
		return fmax(value / 32767, -1);
	}
}

/* The border's channel: where integers are read as floats it is stored as one, and read like a texel. */
static double read_border(const struct picture *p, const struct how *how, unsigned int channel)
{
	double value = how->border[channel];

	if (how->as_integer || p->kind >= UINT32)
		return value;
	switch (p->kind) {
	case UINT8:
		return ceil(value * 255 - 0.5) / 255;
	case SINT8:
		return ceil(value * 127 - 0.5) / 127;
	case UINT16:
		return ceil(value * 65535 - 0.5) / 65535;
	default:
		return ceil(value * 32767 - 0.5) / 32767;
	}
}

/* -1: the border. */
static int place(int at, int size, CUaddress_mode mode)
{
	switch (mode) {
	case CU_TR_ADDRESS_MODE_WRAP:
		while (at < 0)
			at += size;
		return at % size;
	case CU_TR_ADDRESS_MODE_MIRROR:
		while (at < 0)
			at += 2 * size;
		at %= 2 * size;
		return at < size ? at : 2 * size - 1 - at;
	case CU_TR_ADDRESS_MODE_BORDER:
		return at < 0 || at >= size ? -1 : at;
	default:
		return at < 0 ? 0 : at >= size ? size - 1 : at;
	}
}

/* Of @dimensions coordinates; what is above is the layer @z. */
static double expected(const struct picture *p, const struct how *how, int dimensions, const float at[3], int layer,
		       unsigned int channel)
{
	CUaddress_mode mode = how->mode;
	int size[3] = { p->width, p->height, p->depth };
	int low[3] = { 0, 0, layer };
	double weight[3] = { 0 }, sum = 0;
	bool linear = how->linear && reads_float(p, how);

	if (!how->normalized && (mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_MIRROR))
		mode = CU_TR_ADDRESS_MODE_CLAMP;
	if (channel >= p->channels)
		return 0;
	for (int d = 0; d < dimensions; d++) {
		double x = (double)at[d] * (how->normalized ? size[d] : 1) - (linear ? 0.5 : 0);

		low[d] = (int)floor(x);
		weight[d] = linear ? x - floor(x) : 0;
	}
	for (int corner = 0; corner < 1 << dimensions; corner++) {
		int index[3] = { 0, 0, layer };
		bool border = false;
		double part = 1;

		for (int d = 0; d < dimensions; d++) {
			index[d] = place(low[d] + (corner >> d & 1), size[d], mode);
			border |= index[d] < 0;
			part *= corner >> d & 1 ? weight[d] : 1 - weight[d];
		}
		if (part > 0)
			sum += part * (border ? read_border(p, how, channel) :
						read_texel(p, how, index[0], index[1], index[2], channel));
	}
	return sum;
}

/* What weights of 8 bits, rounded, can be away by: half a step a dimension of the most that neighbours can differ. */
static double tolerance(const struct picture *p, const struct how *how, int dimensions)
{
	double range = p->kind == FLOAT ? 8 : p->kind == HALF ? 8 : 2;

	return how->linear && reads_float(p, how) ? range * dimensions / 256.0 : 1e-6;
}

/* ---- objects ---- */

static CUtexObject texture_over(CUarray array, const struct how *how)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array };
	CUDA_TEXTURE_DESC desc = {
		.addressMode = { how->mode, how->mode, how->mode },
		.filterMode = how->linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT,
		.flags = (how->as_integer ? CU_TRSF_READ_AS_INTEGER : 0) |
			 (how->normalized ? CU_TRSF_NORMALIZED_COORDINATES : 0),
		.borderColor = { how->border[0], how->border[1], how->border[2], how->border[3] },
	};
	CUtexObject texture;

	MUST(cuTexObjectCreate(&texture, &resource, &desc, NULL));
	return texture;
}

/* Away from where a point filter changes its mind: the fraction of a texel is between 0.1 and 0.9. */
static float somewhere(uint32_t *seed, int size, bool normalized)
{
	int texel = (int)(prog_random(seed) % (uint32_t)(3 * size)) - size;
	float at = (float)texel + 0.1f + 0.8f * (float)(prog_random(seed) & 1023) / 1024.0f;

	return normalized ? at / (float)size : at;
}

/* Samples @count points of @coordinates floats each; 4 floats (or integers' bits) a point come back, to be freed. */
static uint32_t *sample(const char *kernel, CUtexObject texture, const void *at, size_t at_size, const int *layer,
			const float *level, int count, int results)
{
	size_t size = (size_t)count * (size_t)results * 16;
	uint32_t *out = malloc(size);
	CUdeviceptr at_device, out_device;
	void *params[5] = { &texture, &at_device };
	int used = 2;

	MUST(cuMemAlloc(&at_device, at_size));
	MUST(cuMemAlloc(&out_device, size));
	MUST(cuMemcpyHtoD(at_device, at, at_size));
	MUST(cuMemsetD8(out_device, 0xee, size));
	if (layer)
		params[used++] = (void *)layer;
	if (level)
		params[used++] = (void *)level;
	params[used++] = &out_device;
	params[used] = &count;
	run(function(kernel), (unsigned int)count, params);
	MUST(cuMemcpyDtoH(out, out_device, size));
	MUST(cuMemFree(at_device));
	MUST(cuMemFree(out_device));
	return out;
}

static double number(uint32_t bits, bool is_float, bool has_sign)
{
	float real;

	memcpy(&real, &bits, sizeof(real));
	return is_float ? real : has_sign ? (double)(int32_t)bits : bits;
}

static void compare(const char *what, const struct picture *p, const struct how *how, CUtexObject texture,
		    const char *kernel, int dimensions, int layer)
{
	int stride = dimensions == 3 ? 4 : dimensions;
	float *at = malloc(POINTS * (size_t)stride * sizeof(float));
	uint32_t seed = (uint32_t)(dimensions * 77 + layer);
	int size[3] = { p->width, p->height, p->depth };
	double most = 0, allowed = tolerance(p, how, dimensions);
	bool has_sign = p->kind == SINT8 || p->kind == SINT16 || p->kind == SINT32;
	uint32_t *out;
	int wrong = 0;

	for (int i = 0; i < POINTS; i++)
		for (int d = 0; d < stride; d++)
			at[i * stride + d] = d < dimensions ? somewhere(&seed, size[d], how->normalized) : 0;
	out = sample(kernel, texture, at, POINTS * (size_t)stride * sizeof(float), layer >= 0 ? &layer : NULL, NULL, POINTS,
		     1);
	for (int i = 0; i < POINTS; i++)
		for (unsigned int c = 0; c < p->channels; c++) {
			double want = expected(p, how, dimensions, at + i * stride, layer < 0 ? 0 : layer, c);
			double got = number(out[i * 4 + (int)c], reads_float(p, how), has_sign);
			double off = fabs(want - got);

			if (!(off <= allowed)) {
				if (!wrong++)
					printf("%s: point %d (%g %g) channel %u: %.9g, expected %.9g\n", what, i,
					       (double)at[i * stride], (double)at[i * stride + (stride > 1)], c, got, want);
			} else if (off > most) {
				most = off;
			}
		}
	CHECK(!wrong, "%s: %d of %d numbers", what, wrong, POINTS * (int)p->channels);
	free(at);
	free(out);
}

/* ---- what is compared ---- */

static const char *const mode_names[] = { "wrap", "clamp", "mirror", "border" };

static void flat_check(void)
{
	static const struct {
		enum kind kind;
		unsigned int channels;
	} pictures[] = { { FLOAT, 4 }, { FLOAT, 1 }, { UINT8, 4 }, { SINT8, 2 }, { UINT16, 2 }, { SINT16, 1 }, { HALF, 4 } };

	for (size_t i = 0; i < sizeof(pictures) / sizeof(pictures[0]); i++) {
		struct picture p = picture_make(pictures[i].kind, pictures[i].channels, 37, 23, 1);

		picture_array(&p, 0, false);
		for (int mode = 0; mode < 4; mode++)
			for (int kind = 0; kind < 4; kind++) {
				struct how how = { .mode = (CUaddress_mode)mode, .linear = kind & 1,
						   .normalized = kind & 2, .border = { 0.25f, 0.5f, 0.75f, 1.0f } };
				CUtexObject texture = texture_over(p.array, &how);
				char what[128];

				snprintf(what, sizeof(what), "rows of format %d x %u, %s, %s%s", (int)p.kind, p.channels,
					 mode_names[mode], how.linear ? "linear" : "point",
					 how.normalized ? ", normalised" : "");
				compare(what, &p, &how, texture, "sample_2d", 2, -1);
				MUST(cuTexObjectDestroy(texture));
			}
		picture_free(&p);
	}
}

static void integer_check(void)
{
	for (enum kind kind = UINT8; kind <= SINT32; kind++) {
		struct picture p = picture_make(kind, 4, 19, 12, 1);
		struct how how = { .mode = CU_TR_ADDRESS_MODE_CLAMP, .as_integer = true };
		bool has_sign = kind == SINT8 || kind == SINT16 || kind == SINT32;
		CUtexObject texture;
		char what[64];

		picture_array(&p, 0, false);
		texture = texture_over(p.array, &how);
		snprintf(what, sizeof(what), "integers of format %d", (int)kind);
		compare(what, &p, &how, texture, has_sign ? "sample_2d_int" : "sample_2d_uint", 2, -1);
		MUST(cuTexObjectDestroy(texture));
		picture_free(&p);
	}
}

static void shapes_check(void)
{
	struct how point = { .mode = CU_TR_ADDRESS_MODE_CLAMP }, linear = point, wrapped = point;
	struct picture p;
	CUtexObject texture;

	linear.linear = true;
	wrapped.linear = true;
	wrapped.normalized = true;
	wrapped.mode = CU_TR_ADDRESS_MODE_WRAP;

	p = picture_make(FLOAT, 2, 101, 1, 1);
	picture_array(&p, 0, true);
	texture = texture_over(p.array, &point);
	compare("a line", &p, &point, texture, "sample_1d", 1, -1);
	MUST(cuTexObjectDestroy(texture));
	texture = texture_over(p.array, &wrapped);
	compare("a line, filtered", &p, &wrapped, texture, "sample_1d", 1, -1);
	MUST(cuTexObjectDestroy(texture));
	picture_free(&p);

	p = picture_make(FLOAT, 4, 17, 13, 11);
	picture_array(&p, 0, false);
	texture = texture_over(p.array, &point);
	compare("a box", &p, &point, texture, "sample_3d", 3, -1);
	MUST(cuTexObjectDestroy(texture));
	texture = texture_over(p.array, &linear);
	compare("a box, filtered", &p, &linear, texture, "sample_3d", 3, -1);
	MUST(cuTexObjectDestroy(texture));
	texture = texture_over(p.array, &wrapped);
	compare("a box, filtered and wrapped", &p, &wrapped, texture, "sample_3d", 3, -1);
	MUST(cuTexObjectDestroy(texture));
	picture_free(&p);

	p = picture_make(UINT8, 4, 40, 1, 5);
	picture_array(&p, CUDA_ARRAY3D_LAYERED, true);
	texture = texture_over(p.array, &linear);
	for (int layer = 0; layer < 5; layer += 2)
		compare("a layer of lines", &p, &linear, texture, "sample_1d_layer", 1, layer);
	MUST(cuTexObjectDestroy(texture));
	picture_free(&p);

	p = picture_make(HALF, 2, 20, 30, 4);
	picture_array(&p, CUDA_ARRAY3D_LAYERED, false);
	texture = texture_over(p.array, &linear);
	for (int layer = 0; layer < 4; layer++)
		compare("a layer", &p, &linear, texture, "sample_2d_layer", 2, layer);
	MUST(cuTexObjectDestroy(texture));
	picture_free(&p);
}

/* Each direction through a texel's middle finds that texel of that face. */
static void cube_check(void)
{
	enum { SIZE = 8, CUBES = 2, FACE = SIZE * SIZE };
	static const float major[6][3] = { { 1, 0, 0 }, { -1, 0, 0 }, { 0, 1, 0 }, { 0, -1, 0 }, { 0, 0, 1 }, { 0, 0, -1 } };
	static const float right[6][3] = { { 0, 0, -1 }, { 0, 0, 1 }, { 1, 0, 0 }, { 1, 0, 0 }, { 1, 0, 0 }, { -1, 0, 0 } };
	static const float down[6][3] = { { 0, -1, 0 }, { 0, -1, 0 }, { 0, 0, 1 }, { 0, 0, -1 }, { 0, -1, 0 }, { 0, -1, 0 } };
	struct how how = { .mode = CU_TR_ADDRESS_MODE_CLAMP, .normalized = true };
	struct point at[6 * FACE];

	for (int f = 0; f < 6; f++)
		for (int i = 0; i < FACE; i++) {
			float s = ((float)(i % SIZE) + 0.5f) / SIZE * 2 - 1, t = ((float)(i / SIZE) + 0.5f) / SIZE * 2 - 1;
			float scale = 0.5f + (float)i / FACE;

			at[f * FACE + i] = (struct point){
				(major[f][0] + s * right[f][0] + t * down[f][0]) * scale,
				(major[f][1] + s * right[f][1] + t * down[f][1]) * scale,
				(major[f][2] + s * right[f][2] + t * down[f][2]) * scale, 0 };
		}
	for (int layered = 0; layered < 2; layered++) {
		struct picture p = picture_make(FLOAT, 1, SIZE, SIZE, layered ? 6 * CUBES : 6);
		CUtexObject texture;

		picture_array(&p, CUDA_ARRAY3D_CUBEMAP | (layered ? CUDA_ARRAY3D_LAYERED : 0), false);
		texture = texture_over(p.array, &how);
		for (int cube = 0; cube < (layered ? CUBES : 1); cube++) {
			uint32_t *out = sample(layered ? "sample_cube_layer" : "sample_cube", texture, at, sizeof(at),
					       layered ? &cube : NULL, NULL, 6 * FACE, 1);
			int wrong = 0;

			for (int i = 0; i < 6 * FACE; i++)
				wrong += number(out[i * 4], true, true) != p.value[cube * 6 * FACE + i];
			CHECK(!wrong, "%s: %d of %d texels", layered ? "one of two cubes" : "a cube", wrong, 6 * FACE);
			free(out);
		}
		MUST(cuTexObjectDestroy(texture));
		picture_free(&p);
	}
}

static void gather_check(void)
{
	struct picture p = picture_make(FLOAT, 4, 21, 14, 1);
	struct how how = { .mode = CU_TR_ADDRESS_MODE_CLAMP };
	static const int order[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };
	float at[POINTS][2];
	CUtexObject texture;
	uint32_t seed = 9, *out;
	int wrong = 0;

	picture_array(&p, CUDA_ARRAY3D_TEXTURE_GATHER, false);
	texture = texture_over(p.array, &how);
	for (int i = 0; i < POINTS; i++) {
		/* in the middle between texels, so that no rounding decides */
		at[i][0] = (float)(prog_random(&seed) % 20u) + 1;
		at[i][1] = (float)(prog_random(&seed) % 13u) + 1;
	}
	out = sample("gather_2d", texture, at, sizeof(at), NULL, NULL, POINTS, 4);
	for (int i = 0; i < POINTS; i++)
		for (unsigned int c = 0; c < 4; c++)
			for (int k = 0; k < 4; k++)
				wrong += number(out[(i * 4 + (int)c) * 4 + k], true, true) !=
					 read_texel(&p, &how, (int)at[i][0] - 1 + order[k][0],
						    (int)at[i][1] - 1 + order[k][1], 0, c);
	CHECK(!wrong, "%d of %d gathered texels", wrong, POINTS * 16);
	free(out);
	MUST(cuTexObjectDestroy(texture));
	picture_free(&p);
}

/* ---- memory without an array ---- */

static void linear_check(void)
{
	enum { COUNT = 3000, EXTRA = 8 };
	struct picture p = picture_make(FLOAT, 1, COUNT, 1, 1), q = picture_make(UINT8, 4, COUNT, 1, 1);
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_LINEAR }, told;
	CUDA_TEXTURE_DESC desc = { 0 };
	uint32_t *out = malloc((COUNT + 2 * EXTRA) * 16);
	int first = -EXTRA, n = COUNT + 2 * EXTRA, wrong = 0;
	CUdeviceptr memory, bytes, out_device;
	CUtexObject texture;
	void *params[] = { &texture, &first, &out_device, &n };

	MUST(cuMemAlloc(&memory, COUNT * 4));
	MUST(cuMemAlloc(&bytes, COUNT * 4));
	MUST(cuMemAlloc(&out_device, (COUNT + 2 * EXTRA) * 16));
	MUST(cuMemcpyHtoD(memory, p.bytes, COUNT * 4));
	MUST(cuMemcpyHtoD(bytes, q.bytes, COUNT * 4));
	resource.res.linear.devPtr = memory;
	resource.res.linear.format = CU_AD_FORMAT_FLOAT;
	resource.res.linear.numChannels = 1;
	resource.res.linear.sizeInBytes = COUNT * 4;
	MUST(cuTexObjectCreate(&texture, &resource, &desc, NULL));
	MUST(cuTexObjectGetResourceDesc(&told, texture));
	CHECK(told.resType == CU_RESOURCE_TYPE_LINEAR && told.res.linear.devPtr == memory &&
		      told.res.linear.sizeInBytes == COUNT * 4, "what a texture over memory tells");
	run(function("fetch_linear"), (unsigned int)n, params);
	MUST(cuMemcpyDtoH(out, out_device, (size_t)n * 4));
	for (int i = 0; i < n; i++) {
		int at = first + i;

		wrong += number(out[i], true, true) != (at >= 0 && at < COUNT ? p.value[at] : 0);
	}
	CHECK(!wrong, "%d of %d floats of linear memory", wrong, n);
	MUST(cuTexObjectDestroy(texture));

	resource.res.linear.devPtr = bytes;
	resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
	resource.res.linear.numChannels = 4;
	desc.flags = CU_TRSF_READ_AS_INTEGER;
	MUST(cuTexObjectCreate(&texture, &resource, &desc, NULL));
	first = 5;
	n = COUNT - 10;
	run(function("fetch_linear_uint"), (unsigned int)n, params);
	MUST(cuMemcpyDtoH(out, out_device, (size_t)n * 16));
	for (int i = 0; i < n * 4; i++)
		wrong += out[i] != q.bytes[5 * 4 + i];
	CHECK(!wrong, "%d of %d bytes of linear memory", wrong, n * 4);
	MUST(cuTexObjectDestroy(texture));

	resource.res.linear.devPtr = bytes + 4;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.res.linear.devPtr = 0;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	MUST(cuMemFree(memory));
	MUST(cuMemFree(bytes));
	MUST(cuMemFree(out_device));
	picture_free(&p);
	picture_free(&q);
	free(out);
}

static void pitch_check(void)
{
	struct picture p = picture_make(FLOAT, 2, 45, 31, 1);
	struct how how = { .mode = CU_TR_ADDRESS_MODE_CLAMP, .linear = true };
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_PITCH2D };
	CUDA_TEXTURE_DESC desc = { .addressMode = { CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP },
				   .filterMode = CU_TR_FILTER_MODE_LINEAR };
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = p.bytes, .srcPitch = 45 * 8,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE, .WidthInBytes = 45 * 8, .Height = 31 };
	CUdeviceptr memory;
	CUtexObject texture;
	size_t pitch;

	MUST(cuMemAllocPitch_v2(&memory, &pitch, 45 * 8, 31, 8));
	copy.dstDevice = memory;
	copy.dstPitch = pitch;
	MUST(cuMemcpy2D_v2(&copy));
	resource.res.pitch2D.devPtr = memory;
	resource.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
	resource.res.pitch2D.numChannels = 2;
	resource.res.pitch2D.width = 45;
	resource.res.pitch2D.height = 31;
	resource.res.pitch2D.pitchInBytes = pitch;
	MUST(cuTexObjectCreate(&texture, &resource, &desc, NULL));
	compare("rows of memory", &p, &how, texture, "sample_2d", 2, -1);
	MUST(cuTexObjectDestroy(texture));
	resource.res.pitch2D.pitchInBytes = pitch + 4;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.res.pitch2D.pitchInBytes = pitch;
	/* As an H200's driver: no width is no mistake. */
	resource.res.pitch2D.width = 0;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_SUCCESS);
	EXPECT(cuTexObjectDestroy(texture), CUDA_SUCCESS);
	MUST(cuMemFree(memory));
	picture_free(&p);
}

/* ---- levels, views ---- */

/* Level i is all i + 1. */
static void level_check(void)
{
	enum { LEVELS = 5, SIZE = 32 };
	static const float asked[] = { 0, 1, 2.4f, 2.6f, 3.5f, 9, -3 };
	static const float point[] = { 0, 1, 2, 3, -1, 4, 0 }; /* -1: either neighbour */
	static const float mixed[] = { 0, 1, 2.4f, 2.6f, 3.5f, 4, 0 };
	CUDA_ARRAY3D_DESCRIPTOR desc = { SIZE, SIZE, 0, CU_AD_FORMAT_FLOAT, 1, 0 };
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY };
	CUDA_TEXTURE_DESC how = { .addressMode = { CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_CLAMP },
				  .flags = CU_TRSF_NORMALIZED_COORDINATES, .maxMipmapLevelClamp = 100 };
	CUDA_RESOURCE_VIEW_DESC view = { .format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = SIZE, .height = SIZE,
					 .firstMipmapLevel = 1, .lastMipmapLevel = 3 }, view_told;
	CUmipmappedArray mipmap;
	float texels[SIZE * SIZE], at[8][2];
	CUtexObject texture;

	MUST(cuMipmappedArrayCreate(&mipmap, &desc, LEVELS));
	for (unsigned int i = 0; i < LEVELS; i++) {
		CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = texels, .srcPitch = SIZE * 4,
				       .dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = (SIZE >> i) * 4,
				       .Height = SIZE >> i };

		for (int k = 0; k < SIZE * SIZE; k++)
			texels[k] = (float)i + 1;
		MUST(cuMipmappedArrayGetLevel(&copy.dstArray, mipmap, i));
		MUST(cuMemcpy2D_v2(&copy));
	}
	for (int i = 0; i < 8; i++)
		at[i][0] = at[i][1] = ((float)i + 0.3f) / 8;
	resource.res.mipmap.hMipmappedArray = mipmap;
	for (int filter = 0; filter < 2; filter++) {
		how.mipmapFilterMode = filter ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT;
		MUST(cuTexObjectCreate(&texture, &resource, &how, NULL));
		/* Without a view of its own: told all the same. */
		EXPECT(cuTexObjectGetResourceViewDesc(&view_told, texture), CUDA_SUCCESS);
		CHECK(view_told.format == CU_RES_VIEW_FORMAT_NONE, "without a view its format is %d", (int)view_told.format);
		for (size_t k = 0; k < sizeof(asked) / sizeof(asked[0]); k++) {
			uint32_t *out = sample("sample_2d_level", texture, at, sizeof(at), NULL, &asked[k], 8, 1);
			float want = (filter ? mixed : point)[k];
			int wrong = 0;

			for (int i = 0; i < 8; i++) {
				double got = number(out[i * 4], true, true);

				wrong += want < 0 ? got != 4 && got != 5 : fabs(got - 1 - (double)want) > (filter ? 0.005 : 0);
			}
			CHECK(!wrong, "level %g, %s: %d points, %g", (double)asked[k], filter ? "mixed" : "the nearest", wrong,
			      number(out[0], true, true));
			free(out);
		}
		MUST(cuTexObjectDestroy(texture));
	}

	/* a view of the levels 1 to 3 */
	how.mipmapFilterMode = CU_TR_FILTER_MODE_POINT;
	MUST(cuTexObjectCreate(&texture, &resource, &how, &view));
	MUST(cuTexObjectGetResourceViewDesc(&view_told, texture));
	CHECK(!memcmp(&view, &view_told, sizeof(view)), "what a view tells");
	for (int k = 0; k < 2; k++) {
		float level = k ? 7 : 0;
		uint32_t *out = sample("sample_2d_level", texture, at, sizeof(at), NULL, &level, 8, 1);

		CHECK(number(out[0], true, true) == (k ? 4 : 2), "level %g of a view: %g", (double)level,
		      number(out[0], true, true));
		free(out);
	}
	MUST(cuTexObjectDestroy(texture));
	MUST(cuMipmappedArrayDestroy(mipmap));
}

/* ---- surfaces ---- */

static CUsurfObject surface_over(CUarray array)
{
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array };
	CUsurfObject surface;

	MUST(cuSurfObjectCreate(&surface, &resource));
	return surface;
}

static void down(CUarray array, void *to, size_t row, size_t rows, size_t layers)
{
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = array, .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = to, .dstPitch = row, .dstHeight = rows, .WidthInBytes = row, .Height = rows,
			       .Depth = layers };

	MUST(cuMemcpy3D_v2(&copy));
}

static void surface_check(void)
{
	enum { W = 29, H = 15, D = 6 };
	struct picture p;
	CUsurfObject surface;
	float *out = malloc(W * H * D * 4);
	int width = W, height = H, depth = D, layer = 3, wrong = 0;
	void *line[] = { &surface, &width }, *box[] = { &surface, &width, &height, &depth };
	void *layers[] = { &surface, &width, &height, &layer };

	p = picture_make(FLOAT, 1, W, 1, 1);
	picture_array(&p, CUDA_ARRAY3D_SURFACE_LDST, true);
	surface = surface_over(p.array);
	run(function("surface_add_1d"), W, line);
	down(p.array, out, W * 4, 1, 1);
	for (int i = 0; i < W; i++)
		wrong += out[i] != (float)p.value[i] + (float)i;
	CHECK(!wrong, "%d of %d elements of a line", wrong, W);
	MUST(cuSurfObjectDestroy(surface));
	picture_free(&p);

	p = picture_make(FLOAT, 1, W, H, D);
	picture_array(&p, CUDA_ARRAY3D_SURFACE_LDST, false);
	surface = surface_over(p.array);
	run(function("surface_add_3d"), W * H * D, box);
	down(p.array, out, W * 4, H, D);
	wrong = 0;
	for (int i = 0; i < W * H * D; i++)
		wrong += out[i] != (float)p.value[i] + (float)(i % W) + (float)(100 * (i / W % H)) + (float)(10000 * (i / W / H));
	CHECK(wrong <= 0, "%d of %d elements of a box", wrong, W * H * D);
	MUST(cuSurfObjectDestroy(surface));
	picture_free(&p);

	p = picture_make(FLOAT, 1, W, H, D);
	picture_array(&p, CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_LAYERED, false);
	surface = surface_over(p.array);
	run(function("surface_add_layer"), W * H, layers);
	down(p.array, out, W * 4, H, D);
	wrong = 0;
	for (int i = 0; i < W * H * D; i++) {
		float add = (float)(i % W) + (float)(100 * (i / W % H)) + 30000.0f;

		wrong += fabsf(out[i] - (i / W / H == layer ? (float)p.value[i] + add : (float)p.value[i])) > 0.01f;
	}
	CHECK(!wrong, "%d of %d elements of layers", wrong, W * H * D);
	MUST(cuSurfObjectDestroy(surface));
	picture_free(&p);
	free(out);
}

static void edge_check(void)
{
	enum { SIZE = 8, READ = 12 };
	struct picture p = picture_make(UINT16, 1, SIZE, SIZE, 1);
	uint16_t clamped[READ * READ], zero[READ * READ], after[SIZE * SIZE];
	CUdeviceptr clamped_device, zero_device;
	CUsurfObject surface;
	void *read[] = { &surface, &clamped_device, &zero_device }, *store[] = { &surface };
	int wrong = 0;

	picture_array(&p, CUDA_ARRAY3D_SURFACE_LDST, false);
	surface = surface_over(p.array);
	MUST(cuMemAlloc(&clamped_device, sizeof(clamped)));
	MUST(cuMemAlloc(&zero_device, sizeof(zero)));
	MUST(cuLaunchKernel(function("surface_edge"), READ, 1, 1, READ, 1, 1, 0, NULL, read, NULL));
	MUST(cuMemcpyDtoH(clamped, clamped_device, sizeof(clamped)));
	MUST(cuMemcpyDtoH(zero, zero_device, sizeof(zero)));
	for (int i = 0; i < READ * READ; i++) {
		int x = i % READ - 2, y = i / READ - 2;
		bool inside = x >= 0 && x < SIZE && y >= 0 && y < SIZE;
		int cx = x < 0 ? 0 : x >= SIZE ? SIZE - 1 : x, cy = y < 0 ? 0 : y >= SIZE ? SIZE - 1 : y;

		wrong += clamped[i] != (uint16_t)p.value[cy * SIZE + cx];
		wrong += zero[i] != (inside ? (uint16_t)p.value[y * SIZE + x] : 0);
	}
	CHECK(!wrong, "%d of %d reads at the edge of a surface", wrong, 2 * READ * READ);
	MUST(cuLaunchKernel(function("surface_store_zero"), READ, 1, 1, READ, 1, 1, 0, NULL, store, NULL));
	down(p.array, after, SIZE * 2, SIZE, 1);
	wrong = 0;
	for (int i = 0; i < SIZE * SIZE; i++)
		wrong += after[i] != 1000 + 16 * (i / SIZE) + i % SIZE;
	CHECK(!wrong, "%d of %d elements after stores around the edge", wrong, SIZE * SIZE);
	MUST(cuMemFree(clamped_device));
	MUST(cuMemFree(zero_device));
	MUST(cuSurfObjectDestroy(surface));
	picture_free(&p);
}

/* What one surface has written, a texture of the same array reads in the next kernel, and another surface too. */
static void both_check(void)
{
	enum { W = 64, H = 64 };
	struct picture p = picture_make(FLOAT, 1, W, H, 1);
	CUarray other;
	CUDA_ARRAY3D_DESCRIPTOR desc = { 4 * W, H, 0, CU_AD_FORMAT_UNSIGNED_INT16, 4, CUDA_ARRAY3D_SURFACE_LDST };
	CUsurfObject in, out;
	uint16_t *source = malloc(W * 4 * H * 8);
	uint32_t *result = malloc(W * 4 * H * 8);
	void *params[] = { &in, &out };
	int wrong = 0;
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = source, .srcPitch = W * 4 * 8,
			       .dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = W * 4 * 8, .Height = H };

	for (int i = 0; i < W * 4 * H * 4; i++)
		source[i] = (uint16_t)(i * 7);
	MUST(cuArray3DCreate_v2(&other, &desc));
	copy.dstArray = other;
	MUST(cuMemcpy2D_v2(&copy));
	MUST(cuArray3DCreate_v2(&p.array, &desc));
	in = surface_over(other);
	out = surface_over(p.array);
	/* thread i: row 3's texel i in, row i's texel i out */
	MUST(cuLaunchKernel(function("surface_2d"), 1, 1, 1, H, 1, 1, 0, NULL, params, NULL));
	down(p.array, result, W * 4 * 8, H, 1);
	for (int i = 0; i < H; i++) {
		const uint16_t *v = source + (3 * W * 4 + i) * 4;

		wrong += result[(i * W * 4 + i) * 2] != (uint32_t)v[0] + v[1];
		wrong += result[(i * W * 4 + i) * 2 + 1] != (uint32_t)v[2] * 2 + v[3];
	}
	CHECK(!wrong, "%d of %d words from surface to surface", wrong, 2 * H);
	MUST(cuSurfObjectDestroy(in));
	MUST(cuSurfObjectDestroy(out));
	MUST(cuArrayDestroy(other));
	picture_free(&p);
	free(source);
	free(result);
}

/* ---- what is told and refused ---- */

static void object_check(void)
{
	struct picture p = picture_make(UINT8, 4, 16, 16, 1);
	struct how how = { .mode = CU_TR_ADDRESS_MODE_MIRROR, .linear = true, .normalized = true,
			   .border = { 1, 2, 3, 4 } };
	CUDA_RESOURCE_DESC resource = { .resType = CU_RESOURCE_TYPE_ARRAY }, told;
	CUDA_TEXTURE_DESC desc = { 0 }, desc_told;
	CUtexObject texture, many[50];
	CUsurfObject surface;

	picture_array(&p, CUDA_ARRAY3D_SURFACE_LDST, false);
	texture = texture_over(p.array, &how);
	MUST(cuTexObjectGetResourceDesc(&told, texture));
	CHECK(told.resType == CU_RESOURCE_TYPE_ARRAY && told.res.array.hArray == p.array, "a texture's array");
	MUST(cuTexObjectGetTextureDesc(&desc_told, texture));
	CHECK(desc_told.addressMode[0] == CU_TR_ADDRESS_MODE_MIRROR && desc_told.filterMode == CU_TR_FILTER_MODE_LINEAR &&
		      desc_told.flags == CU_TRSF_NORMALIZED_COORDINATES, "how a texture samples: flags %#x", desc_told.flags);
	MUST(cuTexObjectDestroy(texture));
	surface = surface_over(p.array);
	memset(&told, 0, sizeof(told));
	MUST(cuSurfObjectGetResourceDesc(&told, surface));
	CHECK(told.resType == CU_RESOURCE_TYPE_ARRAY && told.res.array.hArray == p.array, "a surface's array");
	MUST(cuSurfObjectDestroy(surface));
	for (int i = 0; i < 50; i++)
		many[i] = texture_over(p.array, &how);
	for (int i = 0; i < 50; i++)
		for (int k = 0; k < i; k++)
			if (many[i] == many[k])
				CHECK(false, "textures %d and %d are one", i, k);
	for (int i = 0; i < 50; i++)
		EXPECT(cuTexObjectDestroy(many[i]), CUDA_SUCCESS);

	resource.res.array.hArray = p.array;
	EXPECT(cuTexObjectCreate(NULL, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuTexObjectCreate(&texture, NULL, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuTexObjectCreate(&texture, &resource, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.flags = 1;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	resource.flags = 0;
	resource.resType = (CUresourcetype)9;
	EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuSurfObjectCreate(&surface, NULL), CUDA_ERROR_INVALID_VALUE);
	if (prog_on_gleam()) {
		CUtexref reference;

		EXPECT(cuTexObjectDestroy(texture + 77777), CUDA_ERROR_INVALID_VALUE);
		EXPECT(cuTexObjectGetTextureDesc(&desc_told, 0), CUDA_ERROR_INVALID_VALUE);
		resource.resType = CU_RESOURCE_TYPE_ARRAY;
		resource.res.array.hArray = (CUarray)(uintptr_t)0x7770;
		EXPECT(cuTexObjectCreate(&texture, &resource, &desc, NULL), CUDA_ERROR_INVALID_HANDLE);
		EXPECT(cuTexRefCreate(&reference), CUDA_ERROR_NOT_SUPPORTED);
	}
	picture_free(&p);
}

int main(void)
{
	prog_context(NULL);
	module = prog_module("texture");
	object_check();
	flat_check();
	integer_check();
	shapes_check();
	cube_check();
	gather_check();
	linear_check();
	pitch_check();
	level_check();
	surface_check();
	edge_check();
	both_check();
	return prog_end();
}
