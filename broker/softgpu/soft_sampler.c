// SPDX-License-Identifier: Apache-2.0
/*
 * Texture sampling and surface access. Any thread; see soft_sampler.h.
 *
 * Where the guide leaves it open: a filter's weight is the coordinate rounded to 1/256, texels are summed up in double
 * precision, channels that a format lacks read as 0, 0 and 1.
 */
#include "broker/softgpu/soft_sampler.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Coordinates beyond this are all the same, whatever the mode: far outside. */
#define COORDINATE_MAX 1073741824.0
#define FRACTIONS 256 /* steps of a filter's weight: 8 bits */

/* ---- formats ---- */

bool sampler_format_of(int format, unsigned int channels, struct sampler_format *format_out)
{
	static const struct {
		int format;
		enum sampler_kind kind;
		uint8_t size;
	} plain[] = {
		{ 0x01, SAMPLER_UINT, 1 }, { 0x02, SAMPLER_UINT, 2 },  { 0x03, SAMPLER_UINT, 4 },
		{ 0x08, SAMPLER_SINT, 1 }, { 0x09, SAMPLER_SINT, 2 },  { 0x0a, SAMPLER_SINT, 4 },
		{ 0x10, SAMPLER_FLOAT, 2 }, { 0x20, SAMPLER_FLOAT, 4 },
	};
	static const uint8_t counts[] = { 1, 2, 4 };

	if (channels != 1 && channels != 2 && channels != 4)
		return false;
	for (unsigned int i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		if (plain[i].format != format)
			continue;
		*format_out = (struct sampler_format){ plain[i].kind, plain[i].size, (uint8_t)channels };
		return true;
	}
	/* CU_AD_FORMAT_UNORM_INT8X1 and its eleven successors have their channels in the name. */
	if (format >= 0xc0 && format <= 0xcb) {
		unsigned int at = (unsigned int)format - 0xc0;

		*format_out = (struct sampler_format){ at < 6 ? SAMPLER_UNORM : SAMPLER_SNORM,
						       (uint8_t)(at / 3 % 2 ? 2 : 1), counts[at % 3] };
		return counts[at % 3] == channels;
	}
	return false;
}

bool sampler_format_of_view(unsigned int view, struct sampler_format *format_out)
{
	/* In this order, each with 1, 2 and 4 channels, from 1 on. */
	static const struct sampler_format groups[] = {
		{ SAMPLER_UINT, 1, 0 }, { SAMPLER_SINT, 1, 0 },	 { SAMPLER_UINT, 2, 0 },  { SAMPLER_SINT, 2, 0 },
		{ SAMPLER_UINT, 4, 0 }, { SAMPLER_SINT, 4, 0 }, { SAMPLER_FLOAT, 2, 0 }, { SAMPLER_FLOAT, 4, 0 },
	};

	if (!view || view > 24)
		return false;
	*format_out = groups[(view - 1) / 3];
	format_out->channels = (uint8_t)(1u << (view - 1) % 3);
	return true;
}

uint64_t sampler_image_size(const struct sampler_image *image)
{
	return (image->depth - 1ull) * image->slice + (image->height - 1ull) * image->pitch +
	       (uint64_t)image->width * sampler_texel_size(&image->format);
}

/* ---- one texel ---- */

static float half_to_float(uint16_t half)
{
	int exponent = half >> 10 & 31;
	float fraction = (float)(half & 1023);
	float value;

	if (exponent == 31)
		value = half & 1023 ? NAN : INFINITY;
	else
		value = exponent ? ldexpf(fraction + 1024.0f, exponent - 25) : ldexpf(fraction, -24);
	return half & 0x8000 ? -value : value;
}

static uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static bool reads_float(const struct sampler *sampler, const struct sampler_format *format)
{
	switch (format->kind) {
	case SAMPLER_UINT:
	case SAMPLER_SINT:
		/* Integers of 32 bits are never promoted. */
		return !sampler->as_integer && format->size < 4;
	default:
		return true;
	}
}

/* One channel's bits, sign-extended where it has a sign. */
static uint32_t channel_bits(const struct sampler_format *format, const uint8_t *at)
{
	bool sign = format->kind == SAMPLER_SINT || format->kind == SAMPLER_SNORM;
	uint16_t half;
	uint32_t word;

	switch (format->size) {
	case 1:
		return sign ? (uint32_t)(int32_t)(int8_t)*at : *at;
	case 2:
		memcpy(&half, at, sizeof(half));
		return sign ? (uint32_t)(int32_t)(int16_t)half : half;
	default:
		memcpy(&word, at, sizeof(word));
		return word;
	}
}

static float channel_float(const struct sampler_format *format, uint32_t bits)
{
	float value;

	switch (format->kind) {
	case SAMPLER_FLOAT:
		if (format->size == 2)
			return half_to_float((uint16_t)bits);
		memcpy(&value, &bits, sizeof(value));
		return value;
	case SAMPLER_UINT:
	case SAMPLER_UNORM:
		return (float)(bits / (double)(format->size == 1 ? 255 : 65535));
	default:
		value = (float)((int32_t)bits / (double)(format->size == 1 ? 127 : 32767));
		return value < -1.0f ? -1.0f : value;
	}
}

/* The border's channel: of integers that stand for parts of one it is stored as they are, halves towards below (H200). */
static float border_float(const struct sampler_format *format, float value)
{
	double most = format->size == 1 ? 255 : 65535;

	switch (format->kind) {
	case SAMPLER_FLOAT:
		return value;
	case SAMPLER_UINT:
	case SAMPLER_UNORM:
		return (float)(ceil(fmin(fmax((double)value, 0), 1) * most - 0.5) / most);
	default:
		most = format->size == 1 ? 127 : 32767;
		return (float)(ceil(fmin(fmax((double)value, -1), 1) * most - 0.5) / most);
	}
}

/* A texel, or the border: floats where they are read as such, else integers' bits. */
struct texel {
	bool is_float;
	float f[4];
	uint32_t bits[4];
};

static void texel_read(const struct sampler *sampler, const struct sampler_image *image, const int64_t index[3],
		       bool outside, struct texel *texel_out)
{
	const struct sampler_format *format = &image->format;
	const uint8_t *at;

	texel_out->is_float = reads_float(sampler, format);
	for (int c = 0; c < 4; c++) {
		texel_out->f[c] = outside ? sampler->border[c] : c == 3 ? 1.0f : 0.0f;
		texel_out->bits[c] = outside ? (uint32_t)(int32_t)texel_out->f[c] : c == 3;
		if (outside && texel_out->is_float)
			texel_out->f[c] = border_float(format, texel_out->f[c]);
	}
	if (outside)
		return;
	at = (const uint8_t *)(uintptr_t)(image->base + (uint64_t)index[2] * image->slice +
					  (uint64_t)index[1] * image->pitch +
					  (uint64_t)index[0] * sampler_texel_size(format));
	for (unsigned int c = 0; c < format->channels; c++) {
		texel_out->bits[c] = channel_bits(format, at + c * format->size);
		if (texel_out->is_float)
			texel_out->f[c] = channel_float(format, texel_out->bits[c]);
	}
}

/* ---- coordinates ---- */

static double coordinate(double value)
{
	if (isnan(value))
		return 0;
	return value > COORDINATE_MAX ? COORDINATE_MAX : value < -COORDINATE_MAX ? -COORDINATE_MAX : value;
}

/* The index that a mode makes of @at; true where that is the border. */
static bool index_address(enum sampler_mode mode, int64_t at, int64_t count, int64_t *index_out)
{
	int64_t turn;

	switch (mode) {
	case SAMPLER_WRAP:
		*index_out = (at % count + count) % count;
		return false;
	case SAMPLER_MIRROR:
		turn = (at % (2 * count) + 2 * count) % (2 * count);
		*index_out = turn < count ? turn : 2 * count - 1 - turn;
		return false;
	case SAMPLER_BORDER:
		*index_out = 0;
		if (at < 0 || at >= count)
			return true;
		*index_out = at;
		return false;
	default:
		*index_out = at < 0 ? 0 : at >= count ? count - 1 : at;
		return false;
	}
}

/* Where in a level, and how it is addressed there. */
struct place {
	unsigned int dimensions; /* that are coordinates; what is above is in @fixed */
	double at[3];		 /* as given: of [0, 1) if normalized */
	bool normalized;
	enum sampler_mode mode[3];
	uint64_t layer; /* or face, or both */
};

static uint32_t extent(const struct sampler_image *image, unsigned int dimension)
{
	return dimension == 0 ? image->width : dimension == 1 ? image->height : image->depth;
}

/* The major axis is the face; what the two others are of it, where on the face. */
static unsigned int cube_face(const float direction[3], double *s_out, double *t_out)
{
	float x = direction[0], y = direction[1], z = direction[2];
	float ax = fabsf(x), ay = fabsf(y), az = fabsf(z);
	double m, s, t;
	unsigned int face;

	if (ax >= ay && ax >= az) {
		face = x >= 0 ? 0 : 1;
		m = ax;
		s = x >= 0 ? -z : z;
		t = -y;
	} else if (ay >= az) {
		face = y >= 0 ? 2 : 3;
		m = ay;
		s = x;
		t = y >= 0 ? z : -z;
	} else {
		face = z >= 0 ? 4 : 5;
		m = az;
		s = z >= 0 ? x : -x;
		t = -y;
	}
	*s_out = m > 0 ? (s / m + 1) / 2 : 0.5;
	*t_out = m > 0 ? (t / m + 1) / 2 : 0.5;
	return face;
}

static uint64_t layer_of(int32_t layer, uint64_t count)
{
	return layer < 0 ? 0 : (uint64_t)layer >= count ? count - 1 : (uint64_t)layer;
}

static void place_find(const struct sampler *sampler, const struct ptx_texel *texel, struct place *place_out)
{
	const struct sampler_image *image = &sampler->levels[0];
	static const unsigned int dimensions[] = {
		[PTX_1D] = 1, [PTX_2D] = 2, [PTX_3D] = 3, [PTX_1D_ARRAY] = 1, [PTX_2D_ARRAY] = 2, [PTX_CUBE] = 2,
		[PTX_CUBE_ARRAY] = 2,
	};

	*place_out = (struct place){ .dimensions = dimensions[texel->geometry],
				     .normalized = sampler->normalized && texel->coord_float };
	for (unsigned int d = 0; d < 3; d++) {
		enum sampler_mode mode = sampler->mode[d];

		/* Coordinates that count texels know no period. */
		if (!place_out->normalized && (mode == SAMPLER_WRAP || mode == SAMPLER_MIRROR))
			mode = SAMPLER_CLAMP;
		place_out->mode[d] = mode;
		place_out->at[d] = coordinate(texel->coord_float ? (double)texel->coord[d] : texel->coord_int[d]);
	}
	if (texel->geometry == PTX_1D_ARRAY || texel->geometry == PTX_2D_ARRAY)
		place_out->layer = layer_of(texel->coord_int[3], image->depth);
	if (texel->geometry == PTX_CUBE || texel->geometry == PTX_CUBE_ARRAY) {
		double s, t;
		unsigned int face = cube_face(texel->coord, &s, &t);
		uint64_t cubes = image->depth / CUBE_FACES;

		place_out->normalized = true;
		place_out->at[0] = s;
		place_out->at[1] = t;
		place_out->mode[0] = SAMPLER_CLAMP;
		place_out->mode[1] = SAMPLER_CLAMP;
		if (cubes)
			place_out->layer = face + CUBE_FACES * (texel->geometry == PTX_CUBE_ARRAY ?
									layer_of(texel->coord_int[3], cubes) : 0);
	}
}

/* In texels of @image. */
static double place_at(const struct place *place, const struct sampler_image *image, unsigned int dimension)
{
	double at = place->at[dimension];

	return place->normalized ? coordinate(at * extent(image, dimension)) : at;
}

static bool place_index(const struct place *place, const struct sampler_image *image, const int64_t at[3],
			int64_t index_out[3])
{
	bool outside = false;

	index_out[1] = 0;
	index_out[2] = 0;
	for (unsigned int d = 0; d < place->dimensions; d++)
		outside |= index_address(place->mode[d], at[d], extent(image, d), &index_out[d]);
	if (place->dimensions < 3)
		index_out[2] = (int64_t)place->layer;
	return outside;
}

/* ---- filters ---- */

static void level_nearest(const struct sampler *sampler, const struct sampler_image *image, const struct place *place,
			  struct texel *texel_out)
{
	int64_t at[3] = { 0 }, index[3];

	for (unsigned int d = 0; d < place->dimensions; d++)
		at[d] = (int64_t)floor(place_at(place, image, d));

	bool outside = place_index(place, image, at, index);

	texel_read(sampler, image, index, outside, texel_out);
}

static void level_linear(const struct sampler *sampler, const struct sampler_image *image, const struct place *place,
			 struct texel *texel_out)
{
	int64_t low[3] = { 0 };
	double weight[3] = { 0 };
	double sum[4] = { 0 };

	for (unsigned int d = 0; d < place->dimensions; d++) {
		double steps = floor((place_at(place, image, d) - 0.5) * FRACTIONS + 0.5);

		low[d] = (int64_t)floor(steps / FRACTIONS);
		weight[d] = (steps - (double)low[d] * FRACTIONS) / FRACTIONS;
	}
	for (unsigned int corner = 0; corner < 1u << place->dimensions; corner++) {
		int64_t at[3] = { 0 }, index[3];
		struct texel texel;
		double part = 1;

		for (unsigned int d = 0; d < place->dimensions; d++) {
			at[d] = low[d] + (corner >> d & 1);
			part *= corner >> d & 1 ? weight[d] : 1 - weight[d];
		}
		/* A texel without weight does not count, were it infinite. */
		if (part == 0)
			continue;

		bool outside = place_index(place, image, at, index);

		texel_read(sampler, image, index, outside, &texel);
		for (int c = 0; c < 4; c++)
			sum[c] += part * texel.f[c];
	}
	texel_out->is_float = true;
	for (int c = 0; c < 4; c++)
		texel_out->f[c] = (float)sum[c];
}

static void level_fetch(const struct sampler *sampler, uint32_t level, const struct place *place, bool linear,
			struct texel *texel_out)
{
	const struct sampler_image *image = &sampler->levels[level];

	if (linear && reads_float(sampler, &image->format))
		level_linear(sampler, image, place, texel_out);
	else
		level_nearest(sampler, image, place, texel_out);
}

static double level_of(const struct sampler *sampler, const struct ptx_texel *texel)
{
	double level = coordinate(texel->has_lod ? (double)texel->lod : 0) + sampler->level_bias;

	level = fmin(fmax(level, sampler->level_min), sampler->level_max);
	return fmin(fmax(coordinate(level), 0), sampler->level_count - 1.0);
}

static void fetch_levels(const struct sampler *sampler, struct ptx_texel *texel, const struct place *place,
			 struct texel *out)
{
	bool linear = sampler->linear && texel->coord_float;
	struct texel next;
	double level, weight;
	uint32_t low;

	if (sampler->level_count == 1) {
		level_fetch(sampler, 0, place, linear, out);
		return;
	}
	level = level_of(sampler, texel);
	if (!sampler->mip_linear) {
		level_fetch(sampler, (uint32_t)floor(level + 0.5), place, linear, out);
		return;
	}
	level = floor(level * FRACTIONS + 0.5) / FRACTIONS;
	low = (uint32_t)floor(level);
	weight = level - low;
	level_fetch(sampler, low, place, linear, out);
	if (weight == 0 || !out->is_float)
		return;
	level_fetch(sampler, low + 1, place, linear, &next);
	for (int c = 0; c < 4; c++)
		out->f[c] = (float)((1 - weight) * out->f[c] + weight * next.f[c]);
}

/* The four texels that a filter would mix, one channel of each. */
static void gather(const struct sampler *sampler, struct ptx_texel *texel, const struct place *place)
{
	static const int64_t order[4][2] = { { 0, 1 }, { 1, 1 }, { 1, 0 }, { 0, 0 } };
	const struct sampler_image *image = &sampler->levels[0];
	int64_t low[2];

	for (unsigned int d = 0; d < 2; d++)
		low[d] = (int64_t)floor((floor((place_at(place, image, d) - 0.5) * FRACTIONS + 0.5)) / FRACTIONS);
	for (int i = 0; i < 4; i++) {
		int64_t at[3] = { low[0] + order[i][0], low[1] + order[i][1], 0 }, index[3];
		bool outside = place_index(place, image, at, index);
		struct texel one;

		texel_read(sampler, image, index, outside, &one);
		texel->value[i] = one.is_float ? float_bits(one.f[texel->component]) : one.bits[texel->component];
	}
}

void sampler_fetch(const struct sampler *sampler, struct ptx_texel *texel)
{
	const struct sampler_image *image = &sampler->levels[0];
	struct place place;
	struct texel out;

	if (sampler->buffer) {
		int64_t index[3] = { texel->coord_float ? (int64_t)floor(coordinate(texel->coord[0])) :
							  texel->coord_int[0], 0, 0 };
		bool outside = index[0] < 0 || index[0] >= image->width;

		texel_read(sampler, image, index, outside, &out);
	} else {
		place_find(sampler, texel, &place);
		if (texel->op == PTX_TLD4) {
			gather(sampler, texel, &place);
			return;
		}
		fetch_levels(sampler, texel, &place, &out);
	}
	for (int c = 0; c < 4; c++)
		texel->value[c] = out.is_float ? float_bits(out.f[c]) : out.bits[c];
}

/* ---- surfaces ---- */

/* One coordinate: @count places of @step. False: outside, and not brought inside. */
static bool surface_index(int64_t at, int64_t count, int64_t step, bool clamp, int64_t *at_out)
{
	int64_t last = (count - 1) * step;

	*at_out = at < 0 ? 0 : at > last ? last : at;
	return clamp || *at_out == at;
}

int sampler_surface(const struct sampler_image *image, struct ptx_texel *texel)
{
	uint32_t size = (uint32_t)texel->element_size * texel->element_count;
	uint64_t row = (uint64_t)image->width * sampler_texel_size(&image->format);
	bool clamp = !texel->clamp_trap && !texel->clamp_zero;
	bool store = texel->op == PTX_SUST;
	int64_t x, y = 0, z = 0;
	bool inside;
	uint8_t *at;

	if (!size || size > row)
		return -EFAULT;
	/* An access is as far from the row's beginning as a number of its own kind can be. */
	if (texel->coord_int[0] % (int32_t)size)
		return -EFAULT;
	inside = surface_index(texel->coord_int[0], (int64_t)(row / size), size, clamp, &x);
	if (texel->geometry != PTX_1D && texel->geometry != PTX_1D_ARRAY)
		inside &= surface_index(texel->coord_int[1], image->height, 1, clamp, &y);
	if (texel->geometry == PTX_3D)
		inside &= surface_index(texel->coord_int[2], image->depth, 1, clamp, &z);
	else if (texel->geometry == PTX_1D_ARRAY || texel->geometry == PTX_2D_ARRAY)
		inside &= surface_index(texel->coord_int[3], image->depth, 1, clamp, &z);
	if (!inside && texel->clamp_trap)
		return -EFAULT;
	if (!inside) {
		if (!store)
			memset(texel->value, 0, sizeof(texel->value));
		return 0;
	}
	at = (uint8_t *)(uintptr_t)(image->base + (uint64_t)z * image->slice + (uint64_t)y * image->pitch + (uint64_t)x);
	for (uint32_t i = 0; i < texel->element_count; i++) {
		if (store) {
			memcpy(at + i * texel->element_size, &texel->value[i], texel->element_size);
		} else {
			texel->value[i] = 0;
			memcpy(&texel->value[i], at + i * texel->element_size, texel->element_size);
		}
	}
	return 0;
}

/* ---- queries ---- */

/* The numbers are OpenCL's, which PTX has taken over. */
static uint32_t channel_type(const struct sampler_format *format)
{
	switch (format->kind) {
	case SAMPLER_SNORM:
		return format->size == 1 ? 0x10d0 : 0x10d1;
	case SAMPLER_UNORM:
		return format->size == 1 ? 0x10d2 : 0x10d3;
	case SAMPLER_SINT:
		return format->size == 1 ? 0x10d7 : format->size == 2 ? 0x10d8 : 0x10d9;
	case SAMPLER_UINT:
		return format->size == 1 ? 0x10da : format->size == 2 ? 0x10db : 0x10dc;
	default:
		return format->size == 2 ? 0x10dd : 0x10de;
	}
}

void sampler_query(const struct sampler_image *image, struct ptx_texel *texel)
{
	switch (texel->query) {
	case PTX_QUERY_WIDTH:
		texel->value[0] = image->width;
		break;
	case PTX_QUERY_HEIGHT:
		texel->value[0] = image->height;
		break;
	case PTX_QUERY_DEPTH:
		texel->value[0] = image->depth;
		break;
	case PTX_QUERY_CHANNEL_TYPE:
		texel->value[0] = channel_type(&image->format);
		break;
	case PTX_QUERY_CHANNEL_ORDER:
		texel->value[0] = image->format.channels == 1 ? 0x10b0 : image->format.channels == 2 ? 0x10b2 : 0x10b5;
		break;
	}
}
