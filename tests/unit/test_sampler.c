// SPDX-License-Identifier: Apache-2.0
/*
 * The sampler of the software GPU, texel by texel: formats, weights, address modes, levels, cubes, surfaces, and numbers
 * that no coordinate should be.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/softgpu/soft_sampler.h"

static struct sampler over(const void *texels, uint32_t width, uint32_t height, uint32_t depth, enum sampler_kind kind,
			   uint8_t size, uint8_t channels)
{
	struct sampler s = { .level_count = 1 };

	s.levels[0] = (struct sampler_image){
		.base = (uint64_t)(uintptr_t)texels, .width = width, .height = height, .depth = depth,
		.pitch = (uint64_t)width * size * channels, .slice = (uint64_t)width * height * size * channels,
		.format = { kind, size, channels },
	};
	for (int i = 0; i < 3; i++)
		s.mode[i] = SAMPLER_CLAMP;
	return s;
}

static struct ptx_texel at(enum ptx_geometry geometry, float x, float y, float z)
{
	return (struct ptx_texel){ .op = PTX_TEX, .geometry = geometry, .coord_float = true, .coord = { x, y, z } };
}

static float value(const struct ptx_texel *texel, int channel)
{
	uint32_t bits = (uint32_t)texel->value[channel];
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static float fetch(const struct sampler *s, enum ptx_geometry geometry, float x, float y, float z)
{
	struct ptx_texel texel = at(geometry, x, y, z);

	sampler_fetch(s, &texel);
	return value(&texel, 0);
}

static void same(float got, float want)
{
	if (got != want && !(isnan(got) && isnan(want)))
		fail_msg("%.9g, expected %.9g", (double)got, (double)want);
}

/* Every format, as the floats and as the integers that are read. */
static void formats(void **state)
{
	static const uint8_t bytes[] = { 0, 255, 128, 127, 0x80, 0x01, 0xff, 0x7f };
	static const uint16_t halves[] = { 0x3c00, 0xc000, 0x0001, 0x7c00, 0x7e00, 0x3555 };
	struct sampler_format f;
	struct ptx_texel texel;
	struct sampler s;

	s = over(bytes, 8, 1, 1, SAMPLER_UINT, 1, 1);
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 0);
	same(fetch(&s, PTX_1D, 1.5f, 0, 0), 1);
	same(fetch(&s, PTX_1D, 2.5f, 0, 0), 128.0f / 255);
	s.as_integer = true;
	texel = at(PTX_1D, 2.5f, 0, 0);
	sampler_fetch(&s, &texel);
	assert_int_equal(texel.value[0], 128);
	assert_int_equal(texel.value[1], 0);
	assert_int_equal(texel.value[3], 1);
	s = over(bytes, 8, 1, 1, SAMPLER_SINT, 1, 1);
	same(fetch(&s, PTX_1D, 2.5f, 0, 0), -1); /* -128 is -1 as -127 is */
	same(fetch(&s, PTX_1D, 3.5f, 0, 0), 1);
	s.as_integer = true;
	texel = at(PTX_1D, 2.5f, 0, 0);
	sampler_fetch(&s, &texel);
	assert_int_equal(texel.value[0], (uint32_t)-128);
	s = over(bytes, 4, 1, 1, SAMPLER_SINT, 2, 1);
	same(fetch(&s, PTX_1D, 2.5f, 0, 0), 0x0180 / 32767.0f);
	s = over(bytes, 4, 1, 1, SAMPLER_UNORM, 2, 1);
	s.as_integer = true; /* says nothing about these */
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 0xff00 / 65535.0f);
	/* 32 bits are never promoted */
	s = over(bytes, 2, 1, 1, SAMPLER_UINT, 4, 1);
	texel = at(PTX_1D, 1.5f, 0, 0);
	sampler_fetch(&s, &texel);
	assert_int_equal(texel.value[0], 0x7fff0180);

	s = over(halves, 6, 1, 1, SAMPLER_FLOAT, 2, 1);
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 1);
	same(fetch(&s, PTX_1D, 1.5f, 0, 0), -2);
	same(fetch(&s, PTX_1D, 2.5f, 0, 0), ldexpf(1, -24));
	same(fetch(&s, PTX_1D, 3.5f, 0, 0), INFINITY);
	same(fetch(&s, PTX_1D, 4.5f, 0, 0), NAN);
	same(fetch(&s, PTX_1D, 5.5f, 0, 0), 0.333251953125f);

	assert_true(sampler_format_of(0x20, 4, &f));
	assert_int_equal(sampler_texel_size(&f), 16);
	assert_false(sampler_format_of(0x20, 3, &f));
	assert_false(sampler_format_of(0x20, 0, &f));
	assert_false(sampler_format_of(0x91, 4, &f));
	assert_true(sampler_format_of(0xc4, 2, &f));
	assert_true(f.kind == SAMPLER_UNORM && f.size == 2 && f.channels == 2);
	assert_false(sampler_format_of(0xc4, 4, &f));
	assert_true(sampler_format_of(0xc8, 4, &f));
	assert_true(f.kind == SAMPLER_SNORM && f.size == 1);
	assert_true(sampler_format_of_view(0x12, &f)); /* SINT_4X32 */
	assert_true(f.kind == SAMPLER_SINT && f.size == 4 && f.channels == 4);
	assert_true(sampler_format_of_view(0x14, &f)); /* FLOAT_2X16 */
	assert_true(f.kind == SAMPLER_FLOAT && f.size == 2 && f.channels == 2);
	assert_false(sampler_format_of_view(0, &f));
	assert_false(sampler_format_of_view(0x19, &f));
}

/* A weight is the coordinate's fraction, rounded to 1/256. */
static void weights(void **state)
{
	static const float line[] = { 0, 256, 512, 0 };
	static const float square[] = { 0, 256, 1024, 4096 };
	static const float holes[] = { 1, INFINITY };
	static const float cube[] = { 0, 8, 16, 24, 32, 40, 48, 56 };
	struct sampler s = over(line, 4, 1, 1, SAMPLER_FLOAT, 4, 1);

	s.linear = true;
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 0);
	same(fetch(&s, PTX_1D, 0.0f, 0, 0), 0); /* outside: the first texel twice */
	same(fetch(&s, PTX_1D, 1.0f, 0, 0), 128);
	same(fetch(&s, PTX_1D, 0.5f + 3.0f / 256, 0, 0), 3);
	same(fetch(&s, PTX_1D, 0.5f + 3.4f / 256, 0, 0), 3);
	same(fetch(&s, PTX_1D, 0.5f + 3.6f / 256, 0, 0), 4);
	same(fetch(&s, PTX_1D, 1.5f - 0.1f / 256, 0, 0), 256); /* rounds up to the next texel */
	same(fetch(&s, PTX_1D, 2.75f, 0, 0), 384);
	s = over(square, 2, 2, 1, SAMPLER_FLOAT, 4, 1);
	s.linear = true;
	same(fetch(&s, PTX_2D, 1.0f, 1.0f, 0), (0 + 256 + 1024 + 4096) / 4.0f);
	same(fetch(&s, PTX_2D, 0.75f, 1.0f, 0), (0.75f * 0 + 0.25f * 256 + 0.75f * 1024 + 0.25f * 4096) / 2);
	s.normalized = true;
	same(fetch(&s, PTX_2D, 0.5f, 0.5f, 0), (0 + 256 + 1024 + 4096) / 4.0f);
	/* what has no weight does not count */
	s = over(holes, 2, 1, 1, SAMPLER_FLOAT, 4, 1);
	s.linear = true;
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 1);
	same(fetch(&s, PTX_1D, 0.75f, 0, 0), INFINITY);
	s = over(cube, 2, 2, 2, SAMPLER_FLOAT, 4, 1);
	s.linear = true;
	same(fetch(&s, PTX_3D, 1, 1, 1), 28);
	same(fetch(&s, PTX_3D, 0.5f, 0.5f, 1), 16);
}

static void modes(void **state)
{
	static const float line[] = { 1, 2, 3, 4 };
	/* texels that a point at the middle of texel -5 ... 8 finds */
	static const float wrapped[] = { 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1 };
	static const float mirrored[] = { 4, 4, 3, 2, 1, 1, 2, 3, 4, 4, 3, 2, 1, 1 };
	struct sampler s = over(line, 4, 1, 1, SAMPLER_FLOAT, 4, 1);

	s.border[0] = 9;
	for (int i = -5; i < 9; i++) {
		float x = (float)i + 0.5f;

		s.normalized = true;
		s.mode[0] = SAMPLER_WRAP;
		same(fetch(&s, PTX_1D, x / 4, 0, 0), wrapped[i + 5]);
		s.mode[0] = SAMPLER_MIRROR;
		same(fetch(&s, PTX_1D, x / 4, 0, 0), mirrored[i + 5]);
		s.mode[0] = SAMPLER_BORDER;
		same(fetch(&s, PTX_1D, x / 4, 0, 0), i < 0 || i > 3 ? 9 : line[i]);
		s.mode[0] = SAMPLER_CLAMP;
		same(fetch(&s, PTX_1D, x / 4, 0, 0), line[i < 0 ? 0 : i > 3 ? 3 : i]);
		/* coordinates that count texels know no period */
		s.normalized = false;
		s.mode[0] = SAMPLER_WRAP;
		same(fetch(&s, PTX_1D, x, 0, 0), line[i < 0 ? 0 : i > 3 ? 3 : i]);
		s.mode[0] = SAMPLER_MIRROR;
		same(fetch(&s, PTX_1D, x, 0, 0), line[i < 0 ? 0 : i > 3 ? 3 : i]);
	}
	/* the border mixes in */
	s.mode[0] = SAMPLER_BORDER;
	s.linear = true;
	same(fetch(&s, PTX_1D, 0, 0, 0), 5);
	same(fetch(&s, PTX_1D, 4, 0, 0), 6.5f);
	/* around the corner */
	s.normalized = true;
	s.mode[0] = SAMPLER_WRAP;
	same(fetch(&s, PTX_1D, 0, 0, 0), 2.5f);
}

static void nowhere(void **state)
{
	static const float line[] = { 1, 2, 3, 4 };
	static const float wild[] = { NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 2147483648.0f, -4294967296.0f };
	struct sampler s = over(line, 4, 1, 1, SAMPLER_FLOAT, 4, 1);

	for (int mode = SAMPLER_WRAP; mode <= SAMPLER_BORDER; mode++)
		for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
			for (int kind = 0; kind < 4; kind++) {
				struct ptx_texel texel = at(PTX_3D, wild[i], wild[i], wild[i]);

				s.mode[0] = s.mode[1] = s.mode[2] = (enum sampler_mode)mode;
				s.linear = kind & 1;
				s.normalized = kind & 2;
				sampler_fetch(&s, &texel);
				assert_true(value(&texel, 0) >= 0 && value(&texel, 0) <= 4);
				texel.geometry = PTX_CUBE;
				sampler_fetch(&s, &texel);
				texel.op = PTX_TLD4;
				texel.geometry = PTX_2D;
				sampler_fetch(&s, &texel);
			}
}

static void buffers(void **state)
{
	static const float line[] = { 1, 2, 3 };
	struct sampler s = over(line, 3, 1, 1, SAMPLER_FLOAT, 4, 1);

	s.buffer = true;
	for (int i = -3; i < 6; i++) {
		struct ptx_texel texel = { .op = PTX_TEX, .geometry = PTX_1D, .coord_int = { i } };

		sampler_fetch(&s, &texel);
		same(value(&texel, 0), i < 0 || i > 2 ? 0 : line[i]);
	}
}

static void layers(void **state)
{
	static const float texels[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
	struct sampler s = over(texels, 2, 2, 3, SAMPLER_FLOAT, 4, 1);

	s.linear = true;
	for (int layer = -2; layer < 6; layer++) {
		struct ptx_texel texel = at(PTX_2D_ARRAY, 1, 1, 77);
		int held = layer < 0 ? 0 : layer > 2 ? 2 : layer;

		texel.coord_int[3] = layer;
		sampler_fetch(&s, &texel);
		same(value(&texel, 0), 2.5f + 4.0f * (float)held);
	}
	s = over(texels, 4, 1, 3, SAMPLER_FLOAT, 4, 1);
	struct ptx_texel texel = at(PTX_1D_ARRAY, 1.5f, 0, 0);

	texel.coord_int[3] = 2;
	sampler_fetch(&s, &texel);
	same(value(&texel, 0), 10);
}

static void levels(void **state)
{
	static const float all[3][4] = { { 10, 10, 10, 10 }, { 20, 20, 20, 20 }, { 30, 30, 30, 30 } };
	struct sampler s = over(all[0], 4, 1, 1, SAMPLER_FLOAT, 4, 1);
	/* asked for, nearest, mixed */
	static const float cases[][3] = { { 0, 10, 10 },   { 0.25f, 10, 12.5f }, { 0.75f, 20, 17.5f },
					  { 1, 20, 20 },   { 1.75f, 30, 27.5f }, { 2, 30, 30 },
					  { 100, 30, 30 }, { -5, 10, 10 },	  { NAN, 10, 10 } };

	s.level_count = 3;
	s.level_max = 1000;
	for (uint32_t i = 0; i < 3; i++) {
		s.levels[i] = s.levels[0];
		s.levels[i].base = (uint64_t)(uintptr_t)all[i];
		s.levels[i].width = 4u >> i;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int mixed = 0; mixed < 2; mixed++) {
			struct ptx_texel texel = at(PTX_1D, 0.5f, 0, 0);

			texel.has_lod = true;
			texel.lod = cases[i][0];
			s.mip_linear = mixed;
			sampler_fetch(&s, &texel);
			same(value(&texel, 0), cases[i][1 + mixed]);
		}
	/* without a level the first; the bias and the limits count there too */
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 10);
	s.level_bias = 1;
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 20);
	s.level_min = 1.5f;
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 25);
	s.level_max = 0;
	s.level_min = 0;
	same(fetch(&s, PTX_1D, 0.5f, 0, 0), 10);
}

static void cubes(void **state)
{
	float texels[12] = { 0 };
	static const float directions[6][3] = { { 3, 1, -1 }, { -3, 1, 1 }, { 1, 2, 0 }, { 1, -2, 1 }, { 0, 1, 9 }, { 1, 1, -2 } };
	struct sampler s = over(texels, 1, 1, 12, SAMPLER_FLOAT, 4, 1);

	for (int i = 0; i < 12; i++)
		texels[i] = (float)i;
	for (int i = 0; i < 6; i++) {
		struct ptx_texel texel = at(PTX_CUBE_ARRAY, directions[i][0], directions[i][1], directions[i][2]);

		same(fetch(&s, PTX_CUBE, directions[i][0], directions[i][1], directions[i][2]), (float)i);
		texel.coord_int[3] = 1;
		sampler_fetch(&s, &texel);
		same(value(&texel, 0), (float)(6 + i));
	}
	/* no direction at all */
	same(fetch(&s, PTX_CUBE, 0, 0, 0), 0);
}

static void gathers(void **state)
{
	static const float texels[3][3][2] = { { { 0, 10 }, { 1, 11 }, { 2, 12 } },
					       { { 3, 13 }, { 4, 14 }, { 5, 15 } },
					       { { 6, 16 }, { 7, 17 }, { 8, 18 } } };
	static const float want[] = { 13, 14, 11, 10 };
	struct sampler s = over(texels, 3, 3, 1, SAMPLER_FLOAT, 4, 2);
	struct ptx_texel texel = at(PTX_2D, 1, 1, 0);

	texel.op = PTX_TLD4;
	texel.component = 1;
	sampler_fetch(&s, &texel);
	for (int i = 0; i < 4; i++)
		same(value(&texel, i), want[i]);
}

/* ---- surfaces ---- */

static struct ptx_texel access_at(enum ptx_tex_op op, enum ptx_geometry geometry, int x, int y, int z, uint8_t size, uint8_t count)
{
	return (struct ptx_texel){ .op = op, .geometry = geometry, .coord_int = { x, y, z, z }, .clamp_trap = true,
				   .element_size = size, .element_count = count };
}

static void surfaces(void **state)
{
	uint16_t texels[2][3][4] = { 0 };
	struct sampler s = over(texels, 4, 3, 2, SAMPLER_UINT, 2, 1);
	const struct sampler_image *image = &s.levels[0];
	struct ptx_texel t;

	for (int i = 0; i < 24; i++)
		((uint16_t *)texels)[i] = (uint16_t)(i + 1);
	t = access_at(PTX_SULD, PTX_3D, 2, 1, 1, 2, 1);
	assert_int_equal(sampler_surface(image, &t), 0);
	assert_int_equal(t.value[0], texels[1][1][1]);
	t = access_at(PTX_SULD, PTX_2D_ARRAY, 4, 2, 0, 2, 2);
	assert_int_equal(sampler_surface(image, &t), 0);
	assert_int_equal(t.value[0], texels[0][2][2]);
	assert_int_equal(t.value[1], texels[0][2][3]);
	t = access_at(PTX_SUST, PTX_2D_ARRAY, 0, 0, 1, 4, 2);
	t.value[0] = 0x22221111;
	t.value[1] = 0x44443333;
	assert_int_equal(sampler_surface(image, &t), 0);
	assert_int_equal(texels[1][0][0], 0x1111);
	assert_int_equal(texels[1][0][3], 0x4444);

	/* outside, and crooked */
	static const int outside[][3] = { { -2, 0, 0 }, { 8, 0, 0 }, { 0, -1, 0 }, { 0, 3, 0 }, { 0, 0, -1 }, { 0, 0, 2 },
					  { INT32_MIN, 0, 0 }, { INT32_MAX - 1, INT32_MAX, INT32_MAX } };

	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		const int *o = outside[i];

		t = access_at(PTX_SULD, PTX_3D, o[0], o[1], o[2], 2, 1);
		assert_int_equal(sampler_surface(image, &t), -EFAULT);
		t.clamp_trap = false;
		t.clamp_zero = true;
		t.value[0] = 5;
		assert_int_equal(sampler_surface(image, &t), 0);
		assert_int_equal(t.value[0], 0);
		t.op = PTX_SUST;
		t.value[0] = 0xdead;
		assert_int_equal(sampler_surface(image, &t), 0);
		t.clamp_zero = false; /* clamp */
		t.op = PTX_SULD;
		assert_int_equal(sampler_surface(image, &t), 0);
		assert_int_not_equal(t.value[0], 0xdead);
		assert_int_not_equal(t.value[0], 0);
	}
	t = access_at(PTX_SULD, PTX_3D, 1, 0, 0, 2, 1);
	assert_int_equal(sampler_surface(image, &t), -EFAULT);
	t = access_at(PTX_SULD, PTX_3D, 2, 0, 0, 2, 2);
	assert_int_equal(sampler_surface(image, &t), -EFAULT);
	t = access_at(PTX_SULD, PTX_3D, 0, 0, 0, 8, 4); /* more than a row */
	assert_int_equal(sampler_surface(image, &t), -EFAULT);
	t = access_at(PTX_SULD, PTX_3D, 0, 0, 0, 0, 0);
	assert_int_equal(sampler_surface(image, &t), -EFAULT);
	/* what a geometry has no coordinate for is not looked at */
	t = access_at(PTX_SULD, PTX_1D, 2, 99, 99, 2, 1);
	assert_int_equal(sampler_surface(image, &t), 0);
	assert_int_equal(t.value[0], texels[0][0][1]);
}

static void queries(void **state)
{
	struct sampler s = over(NULL, 7, 5, 3, SAMPLER_FLOAT, 2, 4);
	static const uint32_t want[] = { 7, 5, 3, 0x10dd, 0x10b5 };
	struct ptx_texel t = { .op = PTX_TXQ };

	for (int query = PTX_QUERY_WIDTH; query <= PTX_QUERY_CHANNEL_ORDER; query++) {
		t.query = (enum ptx_query)query;
		sampler_query(&s.levels[0], &t);
		assert_int_equal(t.value[0], want[query]);
	}
	assert_int_equal(sampler_image_size(&s.levels[0]), 7 * 5 * 3 * 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats), cmocka_unit_test(weights), cmocka_unit_test(modes), cmocka_unit_test(nowhere),
		cmocka_unit_test(buffers), cmocka_unit_test(layers), cmocka_unit_test(levels), cmocka_unit_test(cubes),
		cmocka_unit_test(gathers), cmocka_unit_test(surfaces), cmocka_unit_test(queries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
