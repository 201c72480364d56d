/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a texture or surface access finds in memory: coordinates, address modes, filters, read modes, as CUDA's
 * programming guide states them. Knows nothing of handles or of the map: the caller has made sure of the memory.
 * Any thread.
 */
#ifndef SOFT_SAMPLER_H
#define SOFT_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "broker/softgpu/ptx.h"

/* 131072 texels in one direction have 18 levels. */
#define SAMPLER_LEVELS_MAX 18u
#define CUBE_FACES 6u

enum sampler_kind {
	SAMPLER_UINT,
	SAMPLER_SINT,
	SAMPLER_FLOAT, /* of 4 bytes, or halves of 2 */
	SAMPLER_UNORM, /* an integer that stands for [0, 1] */
	SAMPLER_SNORM, /* [-1, 1] */
};

struct sampler_format {
	enum sampler_kind kind;
	uint8_t size;	  /* bytes of a channel: 1, 2, 4 */
	uint8_t channels; /* 1, 2, 4 */
};

/* Texels in memory, at device addresses, which are the host's too. */
struct sampler_image {
	uint64_t base;
	uint64_t pitch; /* bytes from row to row */
	uint64_t slice; /* bytes from layer to layer */
	uint32_t width, height, depth; /* 1 at least; depth counts layers and faces too */
	struct sampler_format format;
};

enum sampler_mode { SAMPLER_WRAP, SAMPLER_CLAMP, SAMPLER_MIRROR, SAMPLER_BORDER };

struct sampler {
	struct sampler_image levels[SAMPLER_LEVELS_MAX];
	uint32_t level_count;
	enum sampler_mode mode[3];
	bool linear;	 /* filter within a level */
	bool mip_linear; /* and between levels */
	bool normalized; /* coordinates of [0, 1) */
	bool as_integer; /* integers of 8 and 16 bits stay such */
	bool buffer;	 /* linear memory: integer coordinates only, nothing outside of it */
	float level_bias, level_min, level_max;
	float border[4];
};

/* The format of CUarray_format @format with @channels; false for one that has none of these. */
bool sampler_format_of(int format, unsigned int channels, struct sampler_format *format_out);
/* The same for CUresourceViewFormat. */
bool sampler_format_of_view(unsigned int view, struct sampler_format *format_out);
static inline uint32_t sampler_texel_size(const struct sampler_format *format)
{
	return (uint32_t)format->size * format->channels;
}
/* From the first byte to the last. */
uint64_t sampler_image_size(const struct sampler_image *image);

/* tex, tld4: fills in texel->value. */
void sampler_fetch(const struct sampler *sampler, struct ptx_texel *texel);
/* suld, sust: -EFAULT for what is outside and traps. */
int sampler_surface(const struct sampler_image *image, struct ptx_texel *texel);
/* txq, suq. */
void sampler_query(const struct sampler_image *image, struct ptx_texel *texel);

#endif
